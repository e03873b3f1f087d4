#!/usr/bin/env python3
"""demo_test.py BUILD ROOT: make demo, in short: what it says of itself is so, its page is there, and nothing
is left behind, also when it is interrupted."""
import atexit
import os
import re
import signal
import subprocess
import sys
import urllib.request

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from tap import BUILD, TIMEOUT_S, case, check, equal, main, top

DEMO = os.path.join(sys.argv[2], "tools", "demo")
os.environ.update(TMPDIR=top, NO_COLOR="1", PYTHONUNBUFFERED="1")


def start(seconds):
    demo = subprocess.Popen([DEMO, BUILD], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "DEMO_SECONDS": str(seconds)})
    atexit.register(end, demo)
    return demo


def end(demo):
    if demo.poll() is None:
        demo.terminate()
        demo.wait(TIMEOUT_S)


def read_to(demo, text):
    said = []
    for line in demo.stdout:
        said.append(line)
        if text in line:
            return line
    raise AssertionError("".join(said[-30:]))


def processes_of_store():
    """Command lines that name a folder of the demo's."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                line = file.read()
        except OSError:
            continue
        if f"{top}/millrace-demo" in line:
            found.append(line)
    return found


def check_nothing_left():
    equal([name for name in os.listdir(top) if name.startswith("millrace-demo")], [])
    equal(processes_of_store(), [])


@case("B1, B2, B6: the story runs in process and on a server, and both summaries hold")
def _():
    demo = start(6)
    out, _ = demo.communicate(timeout=TIMEOUT_S)
    equal(demo.returncode, 0, out[-3000:])
    equal(out.count("The summary holds."), 2)
    figures = re.search(r"(\d+) letters, (\d+) pushed, (\d+) done, (\d+) answered by 3 elves, 0 wrong,\n"
                        r"0 overlaps, 0 overtakings", out)
    check(figures and len(set(figures.groups())) == 1, out[-3000:])
    check(re.search(r"level \d+ while letters waited; best are \d+", out), out[-3000:])
    check_nothing_left()


def interrupt(demo, number):
    demo.send_signal(number)
    demo.communicate(timeout=TIMEOUT_S)
    equal(demo.returncode, 128 + number)
    check_nothing_left()


@case("its page answers while it runs; interrupted it ends with 128 + signal and leaves no process or file")
def _():
    for number in signal.SIGTERM, signal.SIGINT:
        demo = start(60)
        read_to(demo, "--- unbounded")
        interrupt(demo, number)
    demo = start(6)
    page = re.search(r"http://\S+", read_to(demo, "The page:"))[0]
    with urllib.request.urlopen(page + "healthz") as reply:
        equal(reply.status, 200)
    interrupt(demo, signal.SIGHUP)


main()
