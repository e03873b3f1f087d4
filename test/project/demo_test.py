#!/usr/bin/env python3
"""demo_test.py BUILD ROOT: make demo, in short: its three acts, their figures and its check, without a terminal and on one;
nothing is left behind, also when it is interrupted."""
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from running import wait_until
from tap import BUILD, TIMEOUT_S, case, check, equal, main, top

DEMO = os.path.join(sys.argv[2], "tools", "demo")
os.environ.update(TMPDIR=top, PYTHONUNBUFFERED="1", LC_ALL="C.UTF-8")
os.environ.pop("TMUX", None)


def start(seconds, **more):
    demo = subprocess.Popen([DEMO, BUILD], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "DEMO_SECONDS": str(seconds), **more})
    atexit.register(end, demo)
    return demo


def end(demo):
    if demo.poll() is None:
        demo.terminate()
        demo.wait(TIMEOUT_S)


def run(seconds, **more):
    demo = start(seconds, **more)
    out, _ = demo.communicate(timeout=TIMEOUT_S)
    check_nothing_left()
    return demo.returncode, out


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


def check_report(out):
    """The last screen: three ways in each of two acts, the kills, charts, and a verdict that fits them."""
    report = out[out.rindex("Act 1, processors"):]
    check(all(len(line) <= 80 for line in report.splitlines()) and report.count("\n") <= 23, report)
    rows = re.findall(r"^  (unbounded|fixed|tuned) +(\d+)((?: +[\d.]+){5}) +\d+$", report, re.M)
    equal([row[0] for row in rows], ["unbounded", "fixed", "tuned"] * 2, report)
    equal(len({(row[1]) for row in rows[:3]}), 1, "the ways of an act have the same letters")
    check(re.search(r"^Act 3, kills: \d+ letters, \d+ begun again; 0 lost, 0 twice, order kept\.$", report, re.M), report)
    check(re.search(r"^Verdict: behind the best, at worst: \w+ [\d.]+x, \w+ [\d.]+x, \w+ [\d.]+x\.$", report, re.M), report)
    factors = [float(f) for f in re.findall(r"([\d.]+)x", report)]
    equal(factors, sorted(factors), report)


@case("B1, B2, B6: three acts, in plain lines without a terminal; a server and a worker are killed, nothing is lost")
def _():
    code, out = run(3)
    equal(code, 0, out[-3000:])
    for line in ("Act 1: ", "Act 2: ", "Act 3: ", "unbounded: all letters at once", "SIGKILL to the server; it serves again",
                 "SIGKILL to a worker"):
        check(line in out, line, out[-3000:])
    check("\033" not in out, "escapes without a terminal")
    check_report(out)
    with open(f"{BUILD}/demo/log.txt", encoding="utf-8") as log:
        text = log.read()
    check("|Completed batch 0 job 0" in text and "answer: street " in text, text[:500])
    for act in "act1", "act2":
        check(os.path.exists(f"{BUILD}/demo/{act}/ways.svg"), act)


@case("its check fails if a letter is lost, or answered twice")
def _():
    for how, found in ("lost", "; 1 lost, 0 twice"), ("twice", "; 0 lost, 1 twice"):
        code, out = run(2, DEMO_BREAK=how)
        equal(code, 1, out[-3000:])
        check(found in out, found, out[-3000:])


@case("B6: on a terminal there is one panel of 80 columns and 24 rows, then the report")
def _():
    if not shutil.which("tmux"):
        return "there is no tmux"
    tmux = lambda *words: subprocess.run(["tmux", "-u", "-S", f"{top}/tmux", "-f", "/dev/null", *words], check=True,
                                         capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    tmux("new-session", "-d", "-s", "demo", "-x", "80", "-y", "24",
         f"DEMO_SECONDS=3 {DEMO} {BUILD}; echo ended with $?; exec cat")
    screen = lambda: tmux("capture-pane", "-p", "-t", "demo")
    meters = r"^queue .*\nlevel .*\nthroughput .*\nwaiting .*\nrunning "
    try:
        wait_until(lambda: re.search(meters, screen(), re.M) or "ended with" in screen(), "the panel")
        check("ended with" not in screen(), screen())
        wait_until(lambda: "ended with" in screen(), "the end")
        check("ended with 0" in screen(), screen())
        check_report(screen().split("ended with")[0])
    finally:
        tmux("kill-server")
    check_nothing_left()
    return None


def interrupt(demo, number):
    demo.send_signal(number)
    demo.communicate(timeout=TIMEOUT_S)
    equal(demo.returncode, 128 + number)
    check_nothing_left()


@case("its page answers while it runs; interrupted it ends with 128 + signal and leaves no process or file")
def _():
    demo = start(60)
    read_to(demo, "unbounded: ")
    interrupt(demo, signal.SIGINT)
    demo = start(3)
    page = re.search(r"http://\S+", read_to(demo, "watch it at"))[0]
    with urllib.request.urlopen(page + "healthz") as reply:
        equal(reply.status, 200)
    interrupt(demo, signal.SIGTERM)


main()
