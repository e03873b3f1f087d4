#!/usr/bin/env python3
"""dev_test.py BUILD: millrace dev: what it prints can be pasted as it stands, its sample has what it says, and
it ends when it is asked to, with all of its processes."""
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from running import Running, wait_until
from tap import MILLRACE, TIMEOUT_S, case, check, equal, main, top

os.environ.update(NO_COLOR="1")
os.environ.pop("MILLRACE_URL", None)
os.chdir(top)
FREE = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]


class Dev(Running):
    """millrace dev, when it has printed its lines."""

    def __init__(self, *options, program=MILLRACE, **more):
        super().__init__(program, "dev", *options, text=True, **more)
        last = "}\n" if "--json" in options else "Only warnings follow here.\n"
        wait_until(lambda: self.read(self.out).endswith(last) or self.process.poll() is not None, "its lines")
        self.text_printed = self.read(self.out)
        check(self.process.poll() is None, self.text_printed, self.said())

    def line(self, name):
        """What stands behind a name in what it printed."""
        found = re.search(rf"^  {name} +(.+)$", self.text_printed, re.M)
        check(found, name, self.text_printed)
        return found[1]

    def stop(self, number=signal.SIGINT):
        self.signal(number)
        ended = self.end()
        equal((ended.code, ended.err), (0, ""), ended)


def sh(line, **more):
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=TIMEOUT_S, **more)


def ok(line, **more):
    ended = sh(line, **more)
    equal(ended.returncode, 0, line, ended)
    return ended.stdout


def check_lines(push, work, look):
    """The three lines, as a user pastes them."""
    check(re.fullmatch(r"\d+\n", ok(push)), push)
    worker = Running("sh", "-c", work, text=True)
    wait_until(lambda: "Hello, ann!" in worker.said() or worker.process.poll() is not None, worker.said())
    os.killpg(worker.process.pid, signal.SIGINT)
    check("Hello, ann!" in worker.end().err, worker.end())
    check("greetings" in ok(look), look)


@case("it prints its page and three lines, which run as they stand; Ctrl-C ends it with 0, without a word")
def _():
    dev = Dev(*FREE)
    check_lines(dev.line("push"), dev.line("work"), dev.line("look"))
    page = urllib.request.Request(dev.line("page"), headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(page) as reply:
        equal(reply.status, 200)
    equal(os.listdir(top), [])  # it keeps nothing
    dev.stop()


@case("--json has the same in one line; --http off has no page")
def _():
    dev = Dev(*FREE, "--json")
    start = json.loads(dev.text_printed)
    check_lines(start["push"], start["work"], start["look"])
    check(start["url"] in start["push"] and start["page"].startswith("http://127.0.0.1:"), start)
    dev.stop(signal.SIGTERM)
    dev = Dev("--listen", "127.0.0.1:0", "--http", "off", "--json")
    equal(sorted(json.loads(dev.text_printed)), ["look", "push", "url", "work"])
    dev.stop()


@case("a command in the PATH is named shortly, another one by its path, as a shell needs it")
def _():
    os.mkdir("a bin")
    os.symlink(MILLRACE, "a bin/millrace")
    path = f"{top}/a bin:{os.environ['PATH']}"
    dev = Dev(*FREE, env={**os.environ, "PATH": path})
    check(dev.line("look").startswith("millrace stages --at millrace://127.0.0.1:"), dev.text_printed)
    ok(dev.line("look"), env={**os.environ, "PATH": path})
    dev.stop()
    os.unlink("a bin/millrace")
    with open(MILLRACE, "rb") as source, open("a bin/millrace", "wb") as copy:
        copy.write(source.read())
    os.chmod("a bin/millrace", 0o755)
    dev = Dev(*FREE, program=f"{top}/a bin/millrace")
    ok(dev.line("look"))
    dev.stop()


@case("of two at once each has ports of its own, and lines that reach it; a port that is asked for must be free")
def _():
    first, second = Dev("--json"), Dev("--json")
    starts = [json.loads(dev.text_printed) for dev in (first, second)]
    check(starts[0]["url"] != starts[1]["url"] and starts[0]["page"] != starts[1]["page"], starts)
    ok(starts[1]["push"])
    equal([len(json.loads(ok(f"{start['look']} --json"))) for start in starts], [0, 1])
    taken = starts[0]["url"].removeprefix("millrace://")
    ended = sh(f"{MILLRACE} dev --listen {taken}")
    equal((ended.returncode, ended.stdout), (3, ""))
    check("is another server running?" in ended.stderr, ended.stderr)
    first.stop()
    second.stop()


@case("it is for this machine only, and refuses options that it does not have")
def _():
    for options in "--listen 0.0.0.0:0", "--http 0.0.0.0:0", "--listen here", "--log-level loud", "--store mem:":
        ended = sh(f"{MILLRACE} dev {options}")
        equal((ended.returncode, ended.stdout), (2, ""), options, ended.stderr)
        check(ended.stderr.startswith("millrace: dev"), options, ended.stderr)


def stage(dev, name):
    stages = json.loads(ok(f"{dev.line('look')} --json"))
    return next((s for s in stages if s["name"] == name), None)


def sample_of(dev):
    with open(f"/proc/{dev.process.pid}/task/{dev.process.pid}/children", encoding="ascii") as file:
        return int(file.read())


def is_gone(pid):
    """Gone, or a zombie that waits for its new parent."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(") ")[1][0] == "Z"
    except FileNotFoundError:
        return True


@case("the sample's stages are alive: a limit holds one, keys are parked, jobs are dead, groups take turns, a schedule ticks")
def _():
    dev = Dev(*FREE, "--sample")
    at = dev.line("look").split("--at ")[1]
    wait_until(lambda: (s := stage(dev, "resize")) and s["held-by"] == "limit" and s["done"], "a limit")
    wait_until(lambda: (s := stage(dev, "invoices")) and s["parked"] and s["dead"], "failures")
    groups = f"{MILLRACE} channels reports --groups --json --at {at}"
    wait_until(lambda: {"acme", "birch"} <= set(re.findall(r'"group": ?"(\w+)"', ok(groups))), "groups")
    wait_until(lambda: (s := stage(dev, "fetch"))["done"] > 8 and s["running"], "jobs of fetch")
    wait_until(lambda: (s := stage(dev, "crawl")) and s["done"], "a tick of the schedule")
    hints = re.findall(r"^            (.*)$", dev.text_printed, re.M)
    equal(len(hints), 5, dev.text_printed)
    for hint in hints:
        check(ok(hint).strip(), hint)
    sample = sample_of(dev)
    dev.stop()
    check(is_gone(sample), "its sample goes on")


@case("a closed terminal ends it; if it is killed, its sample ends by itself")
def _():
    dev = Dev(*FREE, "--sample")
    dev.stop(signal.SIGHUP)
    dev = Dev(*FREE, "--sample")
    sample = sample_of(dev)
    dev.kill()
    wait_until(lambda: is_gone(sample), "the end of the sample")


main()
