#!/usr/bin/env python3
"""runner_test.py BUILD ROOT: tools/run-tests counts what tests report, notices those that end early, and leaves
nothing of theirs running."""
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from tap import TIMEOUT_S, case, check, equal, main, top

RUNNER = os.path.join(sys.argv[2], "tools", "run-tests")
GOOD = "echo 1..1; echo ok 1 - so it is"


def listed(*scripts):
    """A build folder whose tests are these."""
    build = tempfile.mkdtemp(dir=top)
    os.mkdir(os.path.join(build, "meson-info"))
    tests = [{"name": f"test{i}", "cmd": ["sh", "-c", script], "env": {}, "workdir": build, "timeout": TIMEOUT_S,
              "suite": []} for i, script in enumerate(scripts)]
    with open(os.path.join(build, "meson-info", "intro-tests.json"), "w") as file:
        json.dump(tests, file)
    return build


def run(*scripts):
    """Its output, its last line, and its exit code."""
    done = subprocess.run([RUNNER, listed(*scripts)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=TIMEOUT_S)
    return done.stdout, done.stdout.splitlines()[-1], done.returncode


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@case("the sum of all cases is the last line")
def _():
    said, last, code = run(GOOD, "echo 1..3; echo ok 1; echo ok 2; echo 'ok 3 - later # skip no server'")
    equal((last, code), ("3 passed, 0 failed", 0), said)
    check("skipped test1: later # skip no server" in said, said)


@case("a failing case is reported with the output of its test")
def _():
    said, last, code = run(GOOD, "echo 1..1; echo '# three is not four'; echo not ok 1 - counting; exit 1")
    equal((last, code), ("1 passed, 1 failed", 1), said)
    check("# three is not four" in said and "FAILED test1: counting" in said, said)


@case("a test that ends early, dies, prints nothing or is missing has failed")
def _():
    for script, why in (("echo 1..2; echo ok 1", "ran 1 of 2 cases, then ended with 0"),
                        (f"{GOOD}; kill -9 $$", "died of signal 9"),
                        ("true", "ran 0 of 0 cases"),
                        ("exec /nowhere/test", "then ended with 127")):
        said, last, code = run(script)
        check(why in said and last.endswith(", 1 failed") and code == 1, script, said)


@case("what a test leaves in a session of its own is ended, and what that leaves")
def _():
    path = os.path.join(top, "left")
    leave = (f"setsid sh -c 'setsid sleep {TIMEOUT_S} & echo $$ $! > {path}; exec sleep {TIMEOUT_S}' &"
             f" until test -s {path}; do :; done; {GOOD}")
    said, last, code = run(leave)
    equal((last, code), ("1 passed, 0 failed", 0), said)
    with open(path) as file:
        check(all(is_gone(int(pid)) for pid in file.read().split()), said)


@case("stopped, it stops its tests and exits as one that a signal ended")
def _():
    path = os.path.join(top, "started")
    os.mkfifo(path)
    runner = subprocess.Popen([RUNNER, listed(f"echo $$ > {path}; exec sleep {TIMEOUT_S}")],
                              stdout=subprocess.DEVNULL)
    try:
        with open(path) as fifo:
            test = int(fifo.read())
        runner.send_signal(signal.SIGTERM)
        equal(runner.wait(TIMEOUT_S), 128 + signal.SIGTERM)
        check(is_gone(test))
    finally:
        runner.kill()
        runner.wait()


main()
