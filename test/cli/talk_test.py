#!/usr/bin/env python3
"""talk_test.py BUILD: the client commands against a server of their own and against engines in
the process: what each says and exits with, as people and as programs read it. Speaks TAP. A worker is
played by a socket here; nothing waits for time to pass."""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Server, Wire
from tap import MILLRACE, TIMEOUT_S, as_shown, case, check, equal, main, top

SOURCES = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))

os.chdir(top)
for name in "MILLRACE_TOKEN", "MILLRACE_URL":
    os.environ.pop(name, None)
os.environ.update(NO_COLOR="1", XDG_STATE_HOME=os.path.join(top, "state"))


class Worker(Wire):
    """Takes jobs and ends them, on a connection of its own."""

    def __init__(self):
        super().__init__(server.port)

    def take(self, stage):
        """Waits for a job: its id and token."""
        return self.ask("TAKE", stage, "WAIT", TIMEOUT_S * 1000)[0][:2]

    def fail(self, stage, reason):
        job, token = self.take(stage)
        equal(self.ask("FAIL", job, token, reason, "NEVER"), b"+OK")
        return job.decode()


def start(*arguments, url=None, **more):
    environment = dict(os.environ, MILLRACE_URL=url or server.url)
    environment.update(more.pop("env", {}))
    return subprocess.Popen([MILLRACE, *arguments], stdin=more.pop("stdin", subprocess.PIPE),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **more)


class Ended:
    def __init__(self, process, data=b""):
        self.out, self.err = process.communicate(data, TIMEOUT_S)
        self.code = process.returncode

    def __str__(self):
        return f"exit {self.code}\nstdout {self.out[-2000:]!r}\nstderr {self.err[-2000:]!r}"


def mr(*arguments, data=b"", **more):
    return Ended(start(*arguments, **more), data)


def ok(*arguments, **more):
    """Runs it, which must succeed without a word; what it wrote."""
    ended = mr(*arguments, **more)
    check(ended.code == 0 and not ended.err, arguments, ended)
    return ended.out.decode()


def read(*arguments, **more):
    return json.loads(ok(*arguments, "--json", **more))


def fails(code, said, *arguments, **more):
    ended = mr(*arguments, **more)
    check(ended.code == code and said in ended.err.decode() and not ended.out, arguments, ended)
    check(ended.err.startswith(b"millrace: "), ended)


def table(text):
    """The rows as lists; every column must begin or end where its title does, as a terminal shows it."""
    lines = as_shown(text).splitlines()
    spans = [(m.start(), m.end()) for m in re.finditer(r"\S+( \S+)*", lines[0])]
    for line in lines[1:]:
        cells = [(m.start(), m.end()) for m in re.finditer(r"\S+( \S+)*", line)]
        equal(len(cells), len(spans), text)
        for (begin, end), (title, title_end) in zip(cells, spans):
            check(begin == title or end == title_end, "out of line", text)
    return [[c.strip() for c in re.split(r"  +", line.strip())] for line in lines]


# ---- Jobs --------------------------------------------------------------------------------------


@case("push prints an id; a body is an argument or stdin, of any bytes")
def _():
    first = ok("push", "bodies", "as argument").strip()
    check(first.isdigit(), first)
    every = bytes(range(256))
    for body, arguments in ((b"", []), (every, ["-"]), (every * 5000, [])):
        job = read("push", "bodies", *arguments, data=body)["id"]
        check(isinstance(job, str), job)
        worker = Worker()
        equal(worker.ask("DROP", first), b":1")
        taken = worker.ask("TAKE", "bodies")[0]
        equal((taken[0].decode(), taken[4]), (job, body))
        first = ok("push", "bodies", "next").strip()
        equal(worker.ask("DONE", taken[0], taken[1]), b"+OK")


@case("push takes the options of a job; once makes one job of two")
def _():
    first = ok("push", "options", "b", "--key", "k", "--once", "name", "--delay", "1h",
               "--deadline", "2h", "--attempts", "3")
    equal(ok("push", "options", "b", "--key", "k", "--once", "name"), first)
    job = read("job", first.strip(), "--body")
    equal((job["key"], job["status"], job["attempts"], job["body"]), ("k", "delayed", 3, "b"))
    check(0 < job["left-ms"] <= 7200000 and 0 < job["due-ms"] <= 3600000, job)


@case("a duration without a unit is refused, with the way out")
def _():
    for option in "--delay", "--deadline", "--room":
        fails(2, "30s", "push", "s", "b", option, "30")
    fails(2, "5s", "await", "1", "--wait", "5")
    fails(2, "5s", "epic", "s", "e", "--wait", "5")
    fails(2, "lease=30s", "stage", "s", "lease=30")
    fails(2, "retention=5s", "stage", "s", "retention=5,100")


@case("call writes the result; its failures have exit codes of their own")
def _():
    worker = Worker()
    for words, code, out in ((("DONE", "RESULT", b"\x00result"), 0, b"\x00result"),
                             (("FAIL", "no luck", "NEVER"), 1, b"no luck")):
        process = start("call", "calls", "body")
        job, token = worker.take("calls")
        worker.ask(words[0], job, token, *words[1:])
        ended = Ended(process)
        equal(ended.code, code, ended)
        check(out == ended.out if code == 0 else out in ended.err, ended)
    fails(124, "deadline", "call", "calls", "body", "--deadline", "1ms")


@case("Ctrl-C during a call takes the job back, and exits 130")
def _():
    worker = Worker()
    process = start("call", "withdrawn", "body")
    job, _ = worker.take("withdrawn")
    process.send_signal(signal.SIGINT)
    ended = Ended(process)
    equal((ended.code, ended.out), (130, b""), ended)
    while worker.ask("JOB", job)[7] != b"cancelled":
        pass  # the server notices it later


@case("work runs a command for each job: stdout is the result, a failure an attempt, emits come along")
def _():
    boom = ok("push", "toil", "boom", "--attempts", "1").strip()
    ids = [ok("push", "toil", f"body {i}", "--key", f"k{i}").strip() for i in range(3)]
    script = ('read x; [ "$x" = boom ] && exit 3; echo "$MILLRACE_KEY $x"; '
              f'echo from $MILLRACE_ID | "{MILLRACE}" emit toiled')
    process = start("work", "toil", "--shell", "--", script)
    for i, job in enumerate(ids):
        equal(ok("await", job, "--wait", "60s"), f"k{i} body {i}\n")
    while not read("dead", "toil"):
        pass  # until the one that fails has been run, too
    check("exit code 3" in ok("dead", "toil"))
    process.send_signal(signal.SIGINT)
    ended = Ended(process)
    check(ended.code == 130 and b"3 done, 1 failed" in ended.err, ended)
    check(f"work: job {boom} of toil failed (attempt 1): exit code 3\n" in ended.err.decode(), ended)
    worker = Worker()
    for _ in ids:
        worker.take("toiled")


@case("work says why it ends a command whose job is stopped, which is no failed attempt")
def _():
    late = ok("push", "stopped", "x", "--deadline", "300ms").strip()
    process = start("work", "stopped", "--jobs", "1", "--shell", "--", 'read x; [ "$x" = z ] && exit 3; exec sleep 60')
    ended = mr("await", late, "--wait", "60s")
    check(ended.code == 124 and b"deadline" in ended.err, ended)
    cancelled = ok("push", "stopped", "y").strip()
    failed = ok("push", "stopped", "z", "--attempts", "1").strip()
    while read("job", cancelled)["status"] != "running":
        pass
    ok("cancel", cancelled)
    equal([read("job", job)["attempt"] for job in (late, cancelled)], [0, 0])
    fails(1, "exit code 3", "await", failed, "--wait", "60s")
    process.send_signal(signal.SIGINT)
    ended = Ended(process)
    shown = ended.err.decode()
    check(f"work: job {late} of stopped was stopped: the deadline has passed\n" in shown, ended)
    check(f"work: job {cancelled} of stopped was stopped: the job was cancelled\n" in shown, ended)
    check(shown.endswith("work: 0 done, 1 failed attempt, 2 stopped\n"), ended)


@case("U13, G11: the end of the stderr of a failed attempt is kept with its reason, and shown once")
def _():
    job = ok("push", "wordy", "x", "--attempts", "1").strip()
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i + 1)); done; echo 'no such host' >&2; exit 3"
    process = start("work", "wordy", "--shell", "--", script)
    fails(1, "exit code 3: no such host", "await", job, "--wait", "60s")
    check("exit code 3: no such host" in ok("dead", "wordy"))
    for listed in json.loads(ok("dead", "wordy", "--json"))[0], json.loads(ok("job", job, "--json")):
        words = listed["reasons"][-1]["output"]
        check(len(words) == 4096 and words.endswith("line 2999\nno such host\n"), words)
    check("| line 2999\n" in ok("job", job) and "| no such host\n" in ok("job", job))
    process.send_signal(signal.SIGINT)
    ended = Ended(process)
    shown = ended.err.decode()
    equal((shown.count("no such host"), shown.count("line 0\n"), shown.count("line 2999\n")), (1, 1, 1))
    check(f"work: job {job} of wordy failed (attempt 1): exit code 3\n" in shown, ended)


@case("G11: a command says how far it is; job and jobs show it while it runs")
def _():
    gate = os.path.join(top, "gate")
    os.mkfifo(gate)
    job = ok("push", "slow", "x", "--key", "ann").strip()
    script = f"{MILLRACE} progress 3 10 'attach\tments'; cat {gate} >/dev/null"
    process = start("work", "slow", "--shell", "--", script)
    while "progress" not in ok("job", job):
        check(process.poll() is None, "the worker has ended")
    check(re.search(r"^progress +3 of 10 attach ments$", ok("job", job), re.M), ok("job", job))
    table = ok("jobs", "slow")
    check("PROGRESS" in table and "3 of 10 attach ments" in table, table)
    equal(json.loads(ok("jobs", "slow", "--json"))[0]["progress"], {"done": 3, "total": 10, "text": "attach ments"})
    open(gate, "w").close()
    ok("await", job, "--wait", "60s")
    check("progress" not in ok("job", job) and "3 of 10" not in ok("jobs", "slow"))
    process.send_signal(signal.SIGINT)
    equal(Ended(process).code, 130)
    fails(2, "not inside a job", "progress", "1", "2")
    os.environ["MILLRACE_SIDE_FILE"] = os.path.join(top, "side")
    fails(2, "'-1' is not a number for DONE", "progress", "--", "-1", "2")
    fails(2, "'many' is not a number for TOTAL", "progress", "1", "many")
    fails(2, "9223372036854775808", "progress", "9223372036854775808", "2")
    check(not os.path.exists(os.environ.pop("MILLRACE_SIDE_FILE") + ".progress"))


@case("U1: work --shell hands bodies and keys to its script as variables, and runs nothing of them")
def _():
    own = os.path.join(top, "own")
    hostile = [f"; touch {own}", f"$(touch {own})", f"`touch {own}`", f"' ; touch {own} ; '",
               f'" ; touch {own} ; "', f"a\ntouch {own}"]
    ids = [ok("push", "hostile", body, "--key", body).strip() for body in hostile]
    process = start("work", "hostile", "--shell", "--", r'printf "%s\n" {} "<{key}>" {/} {//} {.} {/.} {#} {id}')
    for job, body in zip(ids, hostile):
        check(ok("await", job, "--wait", "60s").startswith(f"{body}\n<{body}>\n"), body)
    process.send_signal(signal.SIGINT)
    equal(Ended(process).code, 130)
    check(not os.path.exists(own))
    fails(2, "single quotes", "work", "hostile", "--shell", "--", "echo '{}'")
    fails(2, "sh -c 'SCRIPT' sh {}", "work", "hostile", "--", "python3", "-c", "print('{key}')")


def blocked(wire):
    """How many connections of the server wait for an answer."""
    return int(re.search(rb"blocked_clients:(\d+)", wire.ask("INFO"))[1])


@case("F2: call, await and epic --wait continue when their server is restarted")
def _():
    with Server("--store", "file:" + os.path.join(top, "restarted")) as own:
        job = ok("push", "s", "job", url=own.url).strip()
        ok("push", "t", "--lines", "--epic", "e", data=b"line\n", url=own.url)
        waiting = [start(*command, url=own.url) for command in
                   (["call", "u", "called"], ["await", job], ["epic", "t", "e", "--wait", "1h", "--json"])]
        with contextlib.closing(Wire(own.port)) as wire:  # a call does not block its connection
            while blocked(wire) < 2 or not isinstance(wire.ask("JOBS", "u"), list):
                check(all(p.poll() is None for p in waiting), "one has ended")
        own.kill()
        own.start()
        working = start("work", "s", "t", "u", "--", "cat", url=own.url)
        call, awaited, epic = (Ended(process) for process in waiting)
        equal((call.code, call.out, awaited.code, awaited.out), (0, b"called", 0, b"job"), call, awaited)
        equal((epic.code, json.loads(epic.out)["done"]), (0, 1), epic)
        working.send_signal(signal.SIGINT)
        equal(Ended(working).code, 130)


@case("work reports before it takes a job that there is no such command")
def _():
    job = ok("push", "untoiled", "x").strip()
    for name, said in (("nosuch", "no command 'nosuch'"), ("./nosuch", "no command './nosuch'"),
                       ("/etc/passwd", "'/etc/passwd' is not executable")):
        fails(2, said, "work", "untoiled", "--", name)
        fails(2, said, "work", "empty", "--", name)
    equal(read("job", job)["status"], "waiting")


@case("work reports once that its command is gone, and gives the job back")
def _():
    gone = os.path.join(top, "gone")
    shutil.copy("/bin/cat", gone)
    process = start("work", "untoiled", "--", gone)
    equal(ok("call", "untoiled", "x"), "x")
    os.unlink(gone)
    job = ok("push", "untoiled", "y").strip()
    ended = Ended(process)
    equal(ended.code, 2, ended)
    equal(ended.err.count(f"not found: {gone}\n".encode()), 1, ended)
    equal(read("job", job)["status"], "waiting")
    ok("cancel", job)
    fails(2, "one word", "work", "untoiled", "--shell", "--", "a", "b")


@case("F3: work reports once that its server is lost, once that it is back, and continues")
def _():
    with Server("--store", "file:" + os.path.join(top, "away")) as own:
        process = start("work", "s", "--", "cat", url=own.url)
        equal(ok("call", "s", "there", url=own.url), "there")
        own.kill()
        said = process.stderr.readline().decode()
        check(said.startswith("millrace: work: trying again: ") and f":{own.port}" in said, said)
        own.start()
        equal(process.stderr.readline(), b"millrace: work: connected again\n")
        equal(ok("call", "s", "body", url=own.url), "body")
        process.send_signal(signal.SIGINT)
        ended = Ended(process)
        equal(ended.code, 130, ended)
        check(b"again: " not in ended.err and b"2 done, 0 failed" in ended.err, ended)


@case("work interrupted while its server is lost says what it waits for; interrupted again, it exits")
def _():
    gone = Server("--store", "mem:")
    process = start("work", "s", "--", "sleep", "1000", url=gone.url)
    job = ok("push", "s", "body", url=gone.url).strip()
    while read("job", job, url=gone.url)["status"] != "running":
        pass
    gone.process.kill()
    check(b"trying again: " in process.stderr.readline())
    process.send_signal(signal.SIGINT)
    said = process.stderr.readline()
    check(b"taking no more; waiting for the server" in said, said)
    process.send_signal(signal.SIGINT)
    ended = Ended(process)
    equal((ended.code, ended.err), (130, b""), ended)
    gone.process.wait(TIMEOUT_S)


@case("G6: cancel takes back jobs of a stage, by key and status; a dry run counts the same")
def _():
    for key in "a", "a", "b":
        ok("push", "many", "x", "--key", key)
    ok("push", "many", "x", "--delay", "1h")
    equal(ok("cancel", "many", "--key", "a", "--dry-run"), "2 would be cancelled\n")
    equal(ok("cancel", "many", "--key", "a"), "2 cancelled\n")
    equal(ok("cancel", "many", "--status", "delayed"), "1 cancelled\n")
    fails(2, "is not an id; of a stage", "cancel", "many")
    equal(ok("cancel", "many", "--all"), "1 cancelled\n")


@case("pause and resume act on one key, too")
def _():
    ok("push", "keyed", "x", "--key", "k")
    equal(ok("pause", "keyed", "--key", "k"), "keyed starts no jobs of this key\n")
    check("paused" in ok("why", "keyed"))
    equal(Worker().ask("TAKE", "keyed"), [])
    equal(ok("resume", "keyed", "--key", "k"), "keyed goes on\n")
    equal(len(Worker().ask("TAKE", "keyed")), 1)


@case("G7: channels --groups lists the groups of a stage that has them, the deepest first")
def _():
    ok("push", "ungrouped", "x")
    fails(2, "stage ungrouped has no groups", "channels", "ungrouped", "--groups")
    ok("stage", "tenants", "group=on", "group-concurrency=1")
    fails(0, "no group of this stage has two jobs", "channels", "tenants", "--groups")
    for key in "small/1", "small/2", "acme/1", "acme/2", "acme/3":
        ok("push", "tenants", "x", "--key", key)
    worker = Worker()
    worker.take("tenants")
    equal(table(ok("channels", "tenants", "--groups"))[1:], [
        ["acme", "3", "0", "3", "-"], ["small", "2", "1", "1", "group-limit"]])
    equal(json.loads(ok("channels", "tenants", "--groups", "--top", "1", "--json")),
          [{"group": "acme", "depth": 3, "running": 0, "ready": 3, "held-by": ""}])


@case("due lets delayed jobs start now")
def _():
    late = ok("push", "later", "x", "--delay", "1h").strip()
    ended = mr("due", late, ok("push", "later", "y").strip())
    check(ended.code == 1 and b"1 of 2 could not be made due" in ended.err, ended)
    equal(json.loads(ok("job", late, "--json"))["status"], "waiting")
    fails(1, "not known", "due", "18446744073709551615")
    late = ok("push", "later", "x", "--delay", "1h").strip()
    equal(ok("due", late), "1 made due\n")


@case("await waits for the end, or as long as it may; cancel takes back once")
def _():
    worker = Worker()
    job = ok("push", "awaited", "b").strip()
    fails(124, "not ended", "await", job, "--wait", "1ms")
    process = start("await", job, "--json")
    taken, token = worker.take("awaited")
    worker.ask("DONE", taken, token, "RESULT", b"\xff")
    equal(json.loads(Ended(process).out), {"result-base64": "/w=="})
    ended = mr("cancel", job)
    check(ended.code == 1 and b"had ended" in ended.err, ended)
    job = ok("push", "awaited", "b").strip()
    equal(ok("cancel", job), "1 cancelled\n")
    fails(1, "cancelled", "await", job)
    fails(1, "not known", "cancel", "18446744073709551615")
    fails(2, "not an id", "job", "seven")


# ---- Lines -------------------------------------------------------------------------------------


def read_source(path):
    with open(os.path.join(SOURCES, path), encoding="utf-8") as file:
        return file.read()


def write(name, lines):
    with open(name, "wb") as file:
        file.write(b"".join(b"%s\n" % str(line).encode() for line in lines))
    return name


@case("push --lines makes a job of each line, in order, with its key")
def _():
    lines = write("keyed", [f"{i} key{i % 3}" for i in range(1, 3001)])
    equal(ok("push", "lines", "--lines", lines, "--key-field", "2"), "3000 pushed\n")
    jobs = read("jobs", "lines", "--key", "key1", "--top", "1000")
    equal(len(jobs), 1000)
    bodies = [read("job", j["id"], "--body")["body"] for j in jobs[:3]]
    equal(bodies, ["1 key1", "4 key1", "7 key1"])
    equal(read("push", "zeros", "--lines", "-0", data=b"a\nb\0c")["pushed"], 2)
    equal(read("push", "semi", "--lines", "--delimiter", ";", data=b"a;b;c")["pushed"], 3)
    equal(read("push", "none", "--lines", "/dev/null")["pushed"], 0)
    ended = mr("push", "keyless", "--lines", "--key-regex", "k=(.)", data=b"k=a\nx\ny\n")
    equal((ended.code, ended.out), (0, b"3 pushed\n"), ended)
    said = ended.err.decode().splitlines()
    check("line 2 has no key: --key-regex finds none" in said[0], said)
    equal(said[1:], ["millrace: push: 2 of them have no key"])


# D4, T16: an epic goes on where it stopped.
@case("D4, T16: with --epic the same command continues, and pushes nothing twice")
def _():
    lines = list(range(1, 1001))
    process = start("push", "story", "--lines", "--epic", "interrupted")
    process.stdin.write(b"".join(b"%d\n" % n for n in lines[:500]))
    process.stdin.flush()
    while mr("epic", "story", "interrupted").code or read("epic", "story", "interrupted")["accepted"] < 500:
        check(process.poll() is None, "it has ended")
    process.send_signal(signal.SIGINT)
    process.wait(TIMEOUT_S)
    equal(process.returncode, 130)
    check(b"500 lines were pushed" in process.stderr.read())
    equal(read("epic", "story", "interrupted")["total"], -1)
    whole = write("whole", lines)
    again = ["push", "story", "--lines", whole, "--epic", "interrupted"]
    equal(ok(*again), "500 pushed, 500 before\n")
    equal(ok(*again), "0 pushed, 1000 before\n")
    epic = read("epic", "story", "interrupted")
    equal((epic["total"], epic["accepted"], epic["waiting"]), (1000, 1000, 1000))


def work_off(worker, stage, count):
    """Takes and ends so many jobs."""
    while count:
        jobs = worker.ask("TAKE", stage, "COUNT", min(count, 500), "WAIT", TIMEOUT_S * 1000)
        for job in jobs:
            worker.send("DONE", *job[:2])
        for job in jobs:
            equal(worker.receive(), b"+OK")
        count -= len(jobs)


def kept_bytes(worker):
    """Of the index and of live entries in the log: how many are dead depends on when it was cleaned."""
    return sum(map(int, re.findall(rb"\n(?:index|live)_bytes:(\d+)", worker.ask("INFO"))))


# D4, T9: an epic is read only as fast as it is worked off; without workers it waits and reports it.
@case("D4, T9: an epic stays 1,024 jobs ahead of its workers, however long it is")
def _():
    worker = Worker()
    ok("stage", "slow", "retention=0s,0")
    process = start("push", "slow", "--lines", write("many", range(1, 20001)), "--epic", "followed")
    said = process.stderr.readline()
    check(b"epic followed waits: no worker takes from stage slow" in said, said)
    epic = read("epic", "slow", "followed")
    equal((epic["accepted"], epic["waiting"], epic["stage"], epic["held-by"], epic["total"]),
          (1024, 1024, "slow", "no-worker", -1))
    check("no-worker" in ok("epics"), "not said")
    check("has no worker" in ok("why", "slow"), "not said")
    work_off(worker, "slow", 3000)
    kept = kept_bytes(worker)
    work_off(worker, "slow", 15000)
    while (epic := read("epic", "slow", "followed"))["accepted"] < 18944:  # 37 halves: 35 are worked off
        check(process.poll() is None, "it has ended")
    equal((epic["accepted"], epic["waiting"]), (18944, 944))
    check(0 < kept_bytes(worker) < kept + (256 << 10), kept_bytes(worker), kept)
    work_off(worker, "slow", 2000)
    ended = Ended(process)
    equal((ended.code, ended.out), (0, b"20000 pushed\n"), ended)
    equal(read("epic", "slow", "followed", "--wait", "1h")["done"], 20000)


@case("D4: an epic that is dropped while it is pushed is not pushed on")
def _():
    process = start("push", "left", "--lines", write("many", range(1, 3001)), "--epic", "left")
    check(b"no worker" in process.stderr.readline())
    ok("epic", "left", "left", "--drop")
    ended = Ended(process)
    check(ended.code == 1 and b"dropped while it was pushed" in ended.err, ended)
    fails(1, "no epic 'left'", "epic", "left", "left")


# T16: the server is killed in the middle of an epic; the same command goes on.
@case("T16: the push of an epic continues after its server was killed and restarted, and pushes every line once")
def _():
    global server
    before = server
    try:
        server = Server("--store", "file:" + os.path.join(top, "killed"))
        process = start("push", "s", "--lines", write("many", range(1, 3001)), "--epic", "e")
        for done in 100, 500, 700:
            work_off(Worker(), "s", done)
            server.kill()
            server.start()
        work_off(Worker(), "s", 1700)
        ended = Ended(process)
        equal((ended.code, ended.out), (0, b"3000 pushed\n"), ended)
        epic = read("epic", "s", "e", "--wait", "1h")
        equal((epic["total"], epic["accepted"], epic["done"]), (3000, 3000, 3000))
        server.kill()
    finally:
        server = before


@case("a line that cannot be pushed is skipped with --skip")
def _():
    name = ["--epic", "gaps"]
    lines = os.path.join(top, "too-long")
    with open(lines, "wb") as file:
        file.write(b"1\n" + b"x" * (16 << 20) + b"\n3\n")
    fails(2, "push: 1 line was pushed; the same", "push", "gaps", "--lines", lines, *name)
    fails(2, "epic gaps gaps --skip 2", "push", "gaps", "--lines", lines, *name)
    equal(read("epic", "gaps", "gaps", "--skip", "2")["resume"], 3)
    equal(ok("push", "gaps", "--lines", lines, *name), "1 pushed, 2 before\n")
    epic = read("epic", "gaps", "gaps")
    equal((epic["total"], epic["accepted"]), (3, 2))
    fails(2, "one after the other", "epic", "gaps", "gaps", "--drop", "--skip", "1")


@case("an epic refuses other lines than it has begun with")
def _():
    name = ["--epic", "changed"]
    process = start("push", "changes", "--lines", *name)
    process.stdin.write(b"1\n2\n3\n")
    process.stdin.flush()
    while mr("epic", "changes", "changed").code or read("epic", "changes", "changed")["accepted"] < 3:
        check(process.poll() is None, "it has ended")
    process.kill()
    process.wait(TIMEOUT_S)
    for lines in ["1", "x", "3", "4"], ["1", "2"], ["1", "2", "33"]:
        fails(2, "not those", "push", "changes", "--lines", write("other", lines), *name)
    elsewhere = mr("push", "changes", "--lines", write("same", [1, 2, 3, 4]), *name,
                   env={"XDG_STATE_HOME": os.path.join(top, "elsewhere")})
    check(elsewhere.code == 0 and b"not compared" in elsewhere.err, elsewhere)
    fails(2, "has ended with line 4", "push", "changes", "--lines", write("more", range(1, 6)), *name)
    equal(read("epic", "changes", "changed", "--drop")["accepted"], 4)
    fails(1, "no epic", "epic", "changes", "changed")


@case("epic --wait ends when all has ended: 0, 1 if any died, 124 if it takes longer")
def _():
    worker = Worker()
    ok("push", "waited", "--lines", write("two", [1, 2]), "--epic", "waited")
    ended = mr("epic", "waited", "waited", "--wait", "1ms")
    check(ended.code == 124 and b"not over" in ended.err, ended)
    process = start("epic", "waited", "waited", "--wait", "1h")
    job, token = worker.take("waited")
    worker.ask("DONE", job, token)
    worker.fail("waited", "broken")
    ended = Ended(process)
    check(ended.code == 1 and b"1 of its jobs died" in ended.err, ended)
    ok("push", "waited", "--lines", "/dev/null", "--epic", "empty")
    equal(read("epic", "waited", "empty", "--wait", "1h")["total"], 0)


@case("lines that cannot be pushed are named; those before them are there")
def _():
    ok("stage", "narrow", "max-jobs=2")
    ended = mr("push", "narrow", "--lines", "--room", "1ms", data=b"1\n2\n3\n4\n")
    check(ended.code == 5 and b"line 3 is refused" in ended.err, ended)
    equal(len(read("jobs", "narrow")), 2)
    fails(5, "narrow", "push", "narrow", "b")
    fails(2, "No such file", "push", "narrow", "--lines", "missing")
    fails(2, "directory", "push", "narrow", "--lines", top)
    fails(2, "--key-field", "push", "narrow", "--lines", "--key", "k")
    fails(2, "--epic", "push", "narrow", "--lines", "--once", "k")
    fails(2, "one of", "push", "narrow", "--lines", "--key-field", "1", "--key-json", "k")
    fails(2, "--delimiter", "push", "narrow", "--lines", "--delimiter", "ab")


# ---- Looking -----------------------------------------------------------------------------------


@case("tables are aligned and have the values of the JSON")
def _():
    worker = Worker()
    worker.ask("CLIENT", "SETNAME", "smith")
    for i in range(12):
        ok("push", "shown", str(i), "--key", f"key{i % 2}")
    dead = worker.fail("shown", "smtp: timed out")
    rows = table(ok("stages"))
    equal(rows[0][:3], ["STAGE", "WAITING", "RUNNING"])
    row = next(r for r in rows if r[0] == "shown")
    stage = next(s for s in read("stages") if s["name"] == "shown")
    equal(row[1:6], [str(stage[f]) for f in ("waiting", "running", "delayed", "parked", "dead")])
    equal([r[:2] for r in table(ok("channels", "shown"))[1:]], [["key1", "6"], ["key0", "5"]])
    equal(table(ok("dead", "shown"))[1][:4], [dead, "shown", "key0", "1"])
    equal(read("dead", "shown")[0]["reasons"][0]["text"], "smtp: timed out")
    check(any(r[1] == "smith" for r in table(ok("workers"))), "no smith")
    equal(len(table(ok("jobs", "shown", "--status", "waiting", "--top", "3"))), 4)
    last = read("jobs", "shown", "--status", "waiting", "--top", "3")[-1]["id"]
    equal(len(read("jobs", "shown", "--status", "waiting", "--from", last)), 8)
    check(["EPIC", "TOTAL"] == table(ok("epics"))[0][:2])
    ok("schedule", "shown", "nightly", "all", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--missed", "one")
    ok("schedule", "shown", "poll", "inbox", "--every", "90s")
    ok("schedule", "shown", "poll", "pause")
    listed = [re.split("  +", line) for line in ok("schedule", "shown").splitlines()]
    equal(listed[0], ["STAGE", "SCHEDULE", "WHEN", "TZ", "NEXT", "LAST", "PUSHED", "PAUSED"])
    equal([row[1:4] + row[5:] for row in listed[1:]],
          [["nightly", "30 2 * * *", "Europe/Berlin", "-", "0", "-"], ["poll", "every 1m30s", "UTC", "-", "0", "yes"]])
    equal([listed[2][4], "0ms" in ok("schedule", "shown", "nightly")], ["-", False])
    equal([(s["cron"], s["every-ms"], s["paused"]) for s in read("schedule", "shown")],
          [("30 2 * * *", 0, 0), ("", 90000, 1)])
    ok("schedule", "shown", "poll", "drop")
    nightly = read("schedule", "shown", "nightly")
    equal((nightly["cron"], nightly["tz"], nightly["missed"], len(nightly["upcoming"])),
          ("30 2 * * *", "Europe/Berlin", "one", 5))
    check(len([line for line in ok("schedule", "shown", "nightly").splitlines() if ":30:00" in line]) == 6, "no times")
    for verb in ("pause", "resume", "drop"):
        ok("schedule", "shown", "nightly", verb)
    equal(read("schedule"), [])
    check(f"attempt 1, " in ok("job", dead) and "smtp: timed out" in ok("job", dead), ok("job", dead))


FILE_OF_SCHEDULES = """\
plan:
  daily:
    cron: 30 2 * * *
    tz: Europe/Berlin
    push: all
  poll: { every: 60s, push: inbox, key: k, deadline: 2h, attempts: 3, meta: trace }
other: { odd: { every: 90s, missed: one, push: "" } }
"""


def applied(text, *options, code=0):
    with open("schedules.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    ended = Ended(start("schedule", "apply", "schedules.yaml", *options))
    equal(ended.code, code, ended)
    return (ended.out if not code else ended.err).decode().splitlines()


@case("schedules are made as a file says, with the difference, and a second time nothing is done")
def _():
    listed = lambda: sorted((s["stage"], s["name"], s["cron"], s["every-ms"]) for s in read("schedule"))
    added = ["+ plan daily: cron 30 2 * * *, tz Europe/Berlin, push all",
             "+ plan poll: every 1m, push inbox, key k, deadline 2h, attempts 3, meta trace",
             "+ other odd: every 90s, missed one"]
    dry = applied(FILE_OF_SCHEDULES, "--dry-run")
    equal(dry, added + ["3 added, 0 changed, 0 removed, 0 unchanged by a dry run: nothing was done"])
    equal(listed(), [])
    equal(applied(FILE_OF_SCHEDULES), added + ["3 added, 0 changed, 0 removed, 0 unchanged"])
    first = listed()
    equal(len(first), 3)
    ok("schedule", "plan", "more", "x", "--every", "1h")
    ok("schedule", "away", "too", "x", "--every", "1h")
    equal(applied(FILE_OF_SCHEDULES, "--keep"), ["0 added, 0 changed, 0 removed, 3 unchanged"])
    changed = FILE_OF_SCHEDULES.replace("60s", "1h").replace("tz: Europe/Berlin", "missed: all") \
        .replace("odd: { every: 90s, missed: one, push: \"\" }", "").replace(", meta: trace", "")
    difference = ["~ plan daily: tz Europe/Berlin → UTC, missed skip → all",
                  "~ plan poll: every 1m → 1h, meta trace → none", "- plan more", "- other odd"]
    equal(applied(changed, "--dry-run")[:-1], difference)
    equal(json.loads(applied(changed, "--json")[0]), {
        "changes": [
            {"change": "changed", "stage": "plan", "name": "daily", "fields": {
                "tz": {"old": "Europe/Berlin", "new": "UTC"}, "missed": {"old": "skip", "new": "all"}}},
            {"change": "changed", "stage": "plan", "name": "poll", "fields": {
                "every": {"old": "1m", "new": "1h"}, "meta": {"old": "trace", "new": ""}}},
            {"change": "removed", "stage": "plan", "name": "more", "fields": {}},
            {"change": "removed", "stage": "other", "name": "odd", "fields": {}}],
        "added": 0, "changed": 2, "removed": 2, "unchanged": 0, "applied": True})
    equal([row[:2] for row in listed()], [("away", "too"), ("plan", "daily"), ("plan", "poll")])
    equal(applied("plan: {}\naway: {}\n")[-1], "0 added, 0 changed, 3 removed, 0 unchanged")
    equal(listed(), [])


@case("a file of schedules with a mistake changes nothing, and the mistake is named with its line")
def _():
    good = "plan:\n  good: { every: 1h, push: x }\n  bad: { %s }\n"
    for fields, place, sentence in [
            ("cron: 0 24 * * *, push: x", "3:16", "cron: the hour '24'"),
            ("cron: 0 0 31 2 *, push: x", "3:16", "never fires"),
            ("every: 30, push: x", "3:17", "every: '30' has no unit"),
            ("every: 1ms, push: x", "3:3", "an interval of 1 ms is not possible: 1000 ms to 100 years"),
            ("every: 1h, cron: 0 0 * * *, push: x", "3:3", "needs cron or every, not both"),
            ("push: x", "3:3", "needs cron or every, and has neither"),
            ("every: 1h", "3:3", "needs push"),
            ("every: 1h, tz: UTC, push: x", "3:3", "tz is the time zone of cron"),
            ("cron: 0 0 * * *, tz: Mars/Base, push: x", "3:3", "no time zone 'Mars/Base' is known"),
            ("every: 1h, missed: two, push: x", "3:29", "missed: 'two' is none of: skip, one, all"),
            ("every: 1h, attempts: many, push: x", "3:31", "'many' is not a number from 1 to 65535"),
            ("every: 1h, psh: x", "3:21", "a schedule has no 'psh'; did you mean push?"),
            ("every: 1h, push: [x]", "3:27", "push is one word or text, not a list"),
            ("every: 1h, push: x, push: y", "3:30", "'push' is here twice"),
            ("every: 1h, push: x }\n  good: { every: 1h, push: y", "4:3", "is in line 2, too"),
            ("every: 1h, push: x }\nno stage:\n  n: { every: 1h, push: y", "5:3", "a stage's name"),
            ("cron: */5 * * * *, push: x", "3:17", "wants quotes")]:
        lines = applied(good % fields, code=2)
        check(any(line.startswith(f"schedules.yaml:{place}: ") and sentence in line for line in lines),
              fields, *lines)
    for text, sentence in [("- a\n", "the file has stages"), ("plan: []\n", "stage 'plan' has schedules"), ("", "empty"),
                           ("a: " + "[" * 40 + "]" * 40, "nested 32 deep at most")]:
        check(sentence in applied(text, code=2)[0], text)
    equal(read("schedule"), [])
    refused = Ended(start("schedule", "apply", "schedules.yaml", "--at", "file:none"))
    check(refused.code != 0 and b"schedules.yaml" in refused.err, refused)


@case("unknown jobs and stages are reported")
def _():
    fails(1, "no stage", "channels", "nowhere")
    fails(1, "no stage", "why", "nowhere")
    fails(1, "not known", "job", "18446744073709551615")
    ended = mr("dead", "bodies")
    check(ended.code == 0 and ended.err and not ended.out, ended)
    equal(read("dead", "bodies"), [])
    fails(2, "1000", "stages", "--top", "1001")
    fails(2, "STATUS", "jobs", "bodies", "--status", "sleeping")


class Terminal:
    """A command whose stderr is a terminal, wide enough for a bar."""

    def __init__(self, *arguments):
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
        environment = dict(os.environ, MILLRACE_URL=server.url, TERM="xterm")
        environment.pop("NO_COLOR")
        self.process = subprocess.Popen([MILLRACE, *arguments], stderr=child,
                                        stdout=subprocess.PIPE, env=environment)
        os.close(child)
        self.text = ""

    def shows(self, *parts):
        """Reads until a line drawn on it has all of these."""
        while not any(all(p in line for p in parts) for line in self.text.split("\r")):
            self.text += os.read(self.fd, 65536).decode()

    def end(self):
        out = self.process.communicate(timeout=TIMEOUT_S)[0]
        os.close(self.fd)
        return self.process.returncode, out


@case("D4, T9: on a terminal a bar shows how an epic gets on, and what it waits for")
def _():
    worker = Worker()
    pushing = Terminal("push", "drawn", "--lines", write("many", range(1, 2001)), "--epic", "drawn")
    pushing.shows("drawn [", "read 1024", "waiting 1024", "running 0", "done 0",
                  "no worker takes from stage drawn")
    worker.fail("drawn", "broken")
    work_off(worker, "drawn", 600)
    pushing.shows("done 600", "dead 1", "/s", " left")
    work_off(worker, "drawn", 500)
    equal(pushing.end(), (0, b"2000 pushed\n"))
    waiting = Terminal("epic", "drawn", "drawn", "--wait", "1h", "--json")
    waiting.shows("drawn [", "waiting 899", "no worker")
    work_off(worker, "drawn", 899)
    code, out = waiting.end()
    equal((code, json.loads(out)["done"]), (1, 1999))


def on_terminal(*arguments):
    """What it writes on a terminal of 80 columns."""
    parent, child = pty.openpty()
    environment = dict(os.environ, MILLRACE_URL=server.url, TERM="xterm")
    environment.pop("NO_COLOR")
    process = subprocess.Popen([MILLRACE, *arguments], stdout=child, env=environment)
    os.close(child)
    text = b""
    try:
        while True:
            text += os.read(parent, 65536)
    except OSError:
        pass  # how a terminal ends
    os.close(parent)
    equal(process.wait(TIMEOUT_S), 0)
    return text.decode()


@case("a terminal gets colours and cut keys; what a key holds does not reach it")
def _():
    for key in "k" * 300, "\x1b[31mred":
        ok("push", "wide", "b", "--key", key)
        ok("push", "wide", "b", "--key", key)
    text = on_terminal("channels", "wide")
    plain = re.sub(r"\x1b\[[01]?m", "", text)
    check("\x1b" not in plain and "\x1b[1m" in text, text)
    check("…" in plain and all(len(line) <= 80 for line in plain.splitlines()), plain)
    check("k" * 300 in ok("channels", "wide") and "\\x1b[31mred" in ok("channels", "wide"))


@case("tables are aligned with any characters in a key, also where one is cut")
def _():
    keys = ["anna", "日本語の鍵", "e\u0301cole", "👩\u200d👧", "日本" * 40, "a" + "日本" * 40]
    for key in keys:
        ok("push", "letters", "b", "--key", key)
    equal([r[1] for r in table(ok("jobs", "letters"))[1:]], [as_shown(key) for key in keys])
    text = re.sub(r"\x1b\[[01]?m", "", on_terminal("jobs", "letters"))
    table(text)
    check(all(len(line) <= 80 for line in as_shown(text).splitlines()) and text.count("…") == 2, text)


@case("what turns the direction of writing is shown, not obeyed")
def _():
    turning = [*range(0x202a, 0x202f), *range(0x2066, 0x206a), 0x200e, 0x200f, 0x061c]
    key = "".join(chr(c) for c in turning)
    for _ in range(2):
        ok("push", "turned", "b", "--key", f"a{key}b\u05d0\u20ac")
    check("a" + "".join(f"\\u{c:04x}" for c in turning) + "b\u05d0\u20ac" in ok("channels", "turned"),
          ok("channels", "turned"))


@case("why names the commands that people type")
def _():
    ok("push", "asked", "b")
    check(": millrace work asked -- COMMAND takes one." in ok("why", "asked"), ok("why", "asked"))
    ok("pause", "asked")
    check("millrace resume asked" in ok("why", "asked"), ok("why", "asked"))
    check("RESUME asked" in read("why", "asked")["why"])


@case("why alone says for each held stage what it waits for, the one with the oldest job first")
def _():
    at = "file:" + os.path.join(top, "held")
    oldest = lambda: {row["name"]: row["oldest-ms"] for row in read("stages", "--at", at)}
    ok("stage", "second", "lease=30s", "--at", at)
    ok("push", "first", "b", "--at", at)
    while oldest()["first"] < 20:
        pass
    ok("push", "second", "b", "--at", at)
    ok("pause", "second", "--at", at)
    ok("stage", "empty", "lease=30s", "--at", at)
    ok("pause", "empty", "--at", at)
    first, second = ok("why", "--at", at).splitlines()
    check("first has no worker" in first and f"millrace work --at {at} first" in first, first)
    check("second is paused" in second and f"millrace resume --at {at} second" in second, second)
    check(read("why", "--at", at) == [{"stage": name, "why": read("why", name, "--at", at)["why"]}
                                      for name in ("first", "second")], read("why", "--at", at))
    for name in "first", "second":
        ok("drop", name, "--waiting", "--at", at)
    ended = mr("why", "--at", at)
    equal((ended.code, ended.out), (0, b""), ended)
    check(b"no stage with jobs is held" in ended.err, ended)
    equal(read("why", "--at", at), [])


# U12: a command that is suggested reaches the engine that was asked.
@case("what is suggested has the --at that was given")
def _():
    at = server.url
    ok("push", "suggested", "b")
    said = ok("why", "suggested", "--at", at)
    check(f": millrace work --at {at} suggested -- COMMAND takes one." in said, said)
    ok("pause", "suggested")
    said = ok("why", "suggested", "--at", at)
    check(f"millrace resume --at {at} suggested starts them" in said, said)
    check("--at" not in ok("why", "suggested"))


# ---- Acting ------------------------------------------------------------------------------------


@case("retry and drop act on ids and on what of a stage is meant, and say how many")
def _():
    worker = Worker()
    for i in range(6):
        ok("push", "acts", str(i), "--key", f"k{i % 2}")
    dead = [worker.fail("acts", reason) for reason in ("timeout a", "timeout b", "broken", "broken")]
    equal(ok("retry", "acts", "--dead", "--reason", "timeout", "--dry-run"), "2 would be retried\n")
    equal(ok("retry", "acts", "--dead", "--reason", "timeout"), "2 retried\n")
    equal(ok("retry", dead[2]), "1 retried\n")
    equal(read("drop", dead[3]), {"count": 1})
    equal(ok("drop", "acts", "--waiting", "--max", "1"), "1 dropped\n")
    equal(ok("drop", "acts", "--waiting", "--key", "k0", "--dry-run").split()[1:], ["would", "be", "dropped"])
    ok("drop", "acts", "--waiting")
    equal(read("jobs", "acts", "--status", "waiting"), [])
    fails(1, "not known", "retry", dead[3])
    waiting = ok("push", "acts", "b").strip()
    fails(1, f"job {waiting} is waiting: only dead jobs are retried", "retry", waiting)
    ended = mr("drop", waiting, dead[3])
    check(ended.code == 1 and ended.out == b"1 dropped\n" and b"1 of 2" in ended.err, ended)
    fails(2, "not an id", "retry", "seven")
    fails(2, "STAGE --dead", "retry", dead[0], "--key", "k")
    fails(2, "one stage", "drop", "acts", "other", "--dead")
    fails(2, "either", "drop", "acts", "--dead", "--waiting")


@case("pause, drain and resume change what a stage does; a draining one refuses")
def _():
    ok("push", "moods", "b")
    held = lambda: next(s for s in read("stages") if s["name"] == "moods")["held-by"]
    check("moods is paused" in ok("pause", "moods"))
    equal(held(), "paused")
    equal(read("resume", "moods"), {"stage": "moods", "ok": True, "new": False})
    equal(held(), "no-worker")
    check("moods drains" in ok("drain", "moods"))
    check("no worker" in ok("why", "moods") and "It is also draining" in ok("why", "moods"))
    fails(4, "draining", "push", "moods", "b")
    check("moods goes on" in ok("resume", "moods"))
    ok("push", "moods", "b")


@case("a stage may be paused before its first job, with a notice; an unknown stage is not resumed")
def _():
    fails(1, "no stage unborn", "resume", "unborn")
    fails(1, "no stage", "why", "unborn")  # nor was it made by that
    equal(ok("pause", "unborn"), "unborn is new: paused before its first job\n")
    check("unborn is paused" in ok("why", "unborn"))
    check("unborn is paused" in ok("pause", "unborn"))
    ok("push", "unborn", "b")
    equal(read("drain", "unborn-too")["new"], True)
    check("drain" in ok("why", "unborn-too"))


@case("stage shows policies with units, and sets all or none")
def _():
    ok("stage", "ruled", "lease=2m", "concurrency=20", "rate=30/m")
    shown = dict(line.split() for line in ok("stage", "ruled").splitlines())
    equal((shown["lease"], shown["concurrency"], shown["rate"]), ("2m", "20", "30/m"))
    equal((shown["backoff"], shown["retention"]), ("1s..5m", "1h,10000"))
    fails(2, "policy on-dead", "stage", "ruled", "lease=9m", "on-dead=maybe")
    equal(read("stage", "ruled")["lease"], "120000")
    fails(2, "NAME=VALUE", "stage", "ruled", "lease")
    fails(2, "no policy", "stage", "ruled", "leese=1m")


@case("U15: the page about the protocol and the header name the defaults that a new stage has")
def _():
    ok("push", "ruled-by-default", "b")
    shown = dict(line.split() for line in ok("stage", "ruled-by-default").splitlines())
    page = read_source("docs/protocol.md").split("## Policies")[1].split("##")[0]
    equal(dict(re.findall(r"^\| `([\w-]+)` \| (\S+) \|", page, re.M)), shown)
    about = read_source("include/millrace.h").split("int mr_stage_set(")[0].rpartition("// Sets a policy of the stage: ")[2]
    some, none = about.replace("\n// ", " ").split(": none.")[0].rsplit(" · ", 1)
    named = dict(policy.split("|")[0].split() for policy in some.split(" · "))
    named.update(dict.fromkeys((policy.split()[0] for policy in none.split(", ")), "none"))
    equal(named, shown)


@case("bench measures a server and an engine in the process")
def _():
    load = ["bench", "--jobs", "500", "--producers", "2", "--workers", "2", "--keys", "7"]
    for url in server.url, "mem:", f"file:{top}/bench":
        figures = read(*load, url=url)
        check(figures["done-per-s"] > 0 and figures["start-p99-us"] >= figures["start-p50-us"], figures)
    equal(len(ok(*load).splitlines()), 6)
    check("done" not in ok("bench", "--jobs", "50", "--workers", "0"))
    equal(read("jobs", "millrace-bench", "--status", "waiting"), [])
    fails(2, "at least 8", "bench", "--body", "7")
    fails(2, "at least 1", "bench", "--producers", "0")


# ---- Engines -----------------------------------------------------------------------------------


@case("file: needs no server, keeps what it was given, and is not made by a look")
def _():
    url = f"file:{top}/own"
    fails(3, "no store", "stages", url=url)
    check(not os.path.exists("own"))
    job = ok("push", "mail", "kept", "--at", url, url="mem:").strip()
    equal(read("job", job, "--body", url=url)["body"], "kept")
    lines = write("file-lines", range(2000))
    equal(ok("push", "mail", "--lines", lines, "--epic", "e", url=url), "2000 pushed\n")
    equal(ok("push", "mail", "--lines", lines, "--epic", "e", url=url), "0 pushed, 2000 before\n")
    equal(table(ok("stages", url=url))[1][:2], ["mail", "2001"])
    equal(ok("drop", "mail", "--waiting", url=url), "2001 dropped\n")
    fails(2, "millrace serve --store", "call", "mail", "b", url=url)
    fails(2, "millrace serve --store", "call", "mail", "b", "--deadline", "1ms", url="mem:")
    job = ok("push", "mail", "kept", url=url).strip()
    fails(124, "millrace serve --store", "await", job, url=url)
    process = start("push", "mail", "--lines", url=url)
    while f"{process.pid} " not in open("own/lock").read():  # until it has the directory
        check(process.poll() is None, "it has ended")
    fails(3, "own", "stages", url=url)
    process.send_signal(signal.SIGTERM)
    equal(process.wait(TIMEOUT_S), 130)
    equal(subprocess.run([MILLRACE, "store", "check", url], capture_output=True).returncode, 0)


@case("an unreachable server is named, without the secret, with the command that starts one")
def _():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and does not listen
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        fails(3, f"cannot reach a server at {where}: Connection refused", "stages",
              url=f"millrace://{where}")
        fails(3, f"started with: millrace serve --listen {where}", "stages", url=f"millrace://{where}")
        ended = mr("stages", url=f"millrace://user:hush@{where}")
        check(ended.code == 3 and b"hush" not in ended.err, ended)
    fails(3, "no address of host 'no.such.host.invalid'", "stages", url="millrace://no.such.host.invalid:1")


@case("U15: an address that cannot be one is answered with all kinds that there are")
def _():
    for url in "http://x", "millrace://", "millrace://h:0", "millrace://h:99999", "file:", "mqtt://a", "millraced://h:1":
        fails(2, "millrace://HOST:PORT", "stages", url=url)
        fails(2, "millraces://", "stages", url=url)


def greeted(listener):
    """The next connection, whose greeting was read and answered as a server does."""
    connection, _ = listener.accept()
    received = b""
    while not received.endswith(b"persistence\r\n"):
        received += connection.recv(4096)
    connection.sendall(b"%1\r\n$6\r\nserver\r\n$8\r\nmillrace\r\n+OK\r\n$9\r\nloading:0\r\n")
    return connection


def connecting_to(port):
    """How many connections of this machine wait for an answer to their first packet."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


def timers_to(port):
    """Which timers the system has set for the connections to that port."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return [row[5][:2] for row in rows if row[2].endswith(f":{port:04X}")]


@case("Ctrl-C ends waiting for a server that does not accept, or does not answer, at once and with 130")
def _():
    with open("waits.yaml", "w") as file:
        file.write("flow: waits\nsource: { lines: waits.yaml }\nsteps:\n"
                   "  - { name: split, flat_map: words }\nsink: { file: waits.out }\n")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        url = f"millrace://127.0.0.1:{port}"
        commands = (["stages"], ["push", "s", "body"], ["call", "s", "body"], ["bench"],
                    ["work", "s", "--", "true"], ["flow", "waits.yaml", "--at", url])

        def interrupted(process):
            process.send_signal(signal.SIGINT)
            ended = Ended(process)
            equal((ended.code, ended.out, ended.err), (130, b"", b""), process.args, ended)

        for command in commands:
            process = start(*command, url=url)
            connection, _ = listener.accept()
            connection.recv(1)  # it has greeted, and waits
            interrupted(process)
            connection.close()
        with socket.create_connection(("127.0.0.1", port)):
            select.select([listener], [], [])  # the queue is full
            for command in commands:
                process = start(*command, url=url)
                while not connecting_to(port):
                    check(process.poll() is None, "it has ended")
                interrupted(process)


@case("a server that speaks HTTP is named at once, and the address that was meant")
def _():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        process = start("push", "s", "body", url=f"millrace://{where}")
        with listener.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            ended = Ended(process)
        said = f"push: {where} does not answer as a Millrace server does; is it the address of --listen?"
        check(ended.code == 3 and said in ended.err.decode(), ended)


@case("a secret is sent, and never printed")
def _():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        for url, env, sent in (
                (f"millrace://hu%73h@{where}", {}, b"default\r\n$4\r\nhush"),
                (f"millrace://ann:hush@{where}", {}, b"ann\r\n$4\r\nhush"),
                (f"millrace://{where}", {"MILLRACE_TOKEN": "hush"}, b"default\r\n$4\r\nhush")):
            process = start("stages", url=url, env=env)
            connection, _ = listener.accept()
            received = b""
            while b"hush\r\n" not in received:
                received += connection.recv(4096)
            connection.sendall(b"-WRONGPASS that is not the secret\r\n")
            ended = Ended(process)
            connection.close()
            check(b"HELLO" in received and b"AUTH" in received and sent in received, received)
            check(ended.code == 4 and b"not the secret" in ended.err, ended)
            check(b"hush" not in ended.err + ended.out, ended)
        process = start("stages", url=f"millrace://hush@{where}")
        connection, _ = listener.accept()
        connection.recv(1)
        connection.sendall(b"-FULL too many are connected\r\n")
        equal(Ended(process).code, 5)
        connection.close()


@case("F3: a server that has gone without a word is noticed, and asked again when it is back")
def _():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        process = start("await", "1", "--wait", "1h", url=f"millrace://127.0.0.1:{port}")
        connections = [greeted(listener), greeted(listener)]  # one of them for what waits
        while timers_to(port) != ["02", "02"]:  # those that ask whether the other is there
            check(process.poll() is None, "it has ended")
        for connection in connections:
            connection.close()
        connections = [greeted(listener), greeted(listener)]
        [waiting], _, _ = select.select(connections, [], [], TIMEOUT_S)
        check(b"AWAIT" in waiting.recv(4096))
        waiting.sendall(b"$4\r\nback\r\n")
        ended = Ended(process)
        equal((ended.code, ended.out), (0, b"back"), ended)


@case("errors of the server have their exit codes; a lost connection is 3")
def _():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"millrace://127.0.0.1:{listener.getsockname()[1]}"
        for reply, code in ((b"-NOPERM may not\r\n", 4), (b"-NOAUTH say who\r\n", 4),
                            (b"-LOADING soon\r\n", 3), (b"-STOPPED disk\r\n", 3), (b"", 3),
                            (b"-FULL no room\r\n", 5), (b"-TOOBIG body\r\n", 2),
                            (b"-GONE unknown\r\n", 1), (b"-DEAD it broke\r\n", 1),
                            (b"-EXPIRED late\r\n", 124), (b"-ERR \x1b[31mred\r\n", 2),
                            (b"?what\r\n", 3)):
            process = start("job", "1", url=url)
            connection = greeted(listener)
            connection.recv(4096)
            connection.sendall(reply)
            connection.close()
            ended = Ended(process)
            check(ended.code == code and ended.err and not ended.out, reply, ended)
            check(b"\x1b" not in ended.err, ended)


@case("the server that all of them asked ends in peace")
def _():
    server.stop()


server = Server("--store", "mem:")
main()
