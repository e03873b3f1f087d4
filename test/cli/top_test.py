#!/usr/bin/env python3
"""top_test.py BUILD: millrace top in a terminal (tmux) of 80 by 24, and without one. What is on the screen
is looked at until it is what it should be; TIMEOUT_S ends what never is."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Server
from tap import MILLRACE, TIMEOUT_S, as_shown, case, check, equal, main, top
from terminal import Terminal

server = Server("--store", "mem:")
client = Client(server)
os.environ.update(MILLRACE_URL=server.url)


def push(stage, count, *options):
    for number in range(count):
        client.ask("PUSH", stage, f"body {number}", *options)


push("mail", 3, "KEY", "anna")
push("mail", 2, "KEY", "bert")
push("sms", 12)
push("reports/a-name-that-is-rather-long/daily", 1)
job = client.ask("TAKE", "sms")[0]
client.ask("FAIL", job[0], job[1], "no such number", "NEVER")


def held_by(stage):
    fields = client.ask("STAGES", "NAME", stage)[0]
    return dict(zip(fields[::2], fields[1::2]))["held-by"]


def row(lines, name):
    return next(line for line in lines if line.startswith(name)).split()


@case("the stages fill 80 columns and no more; figures are aligned with their titles")
def _():
    with Terminal(server.url) as terminal:
        lines = terminal.shows("STAGE", "mail", "sms", "q quit")
        check(max(map(len, lines)) <= 80, *lines)
        equal(row(lines, "mail")[1:4], ["5", "0", "0"])
        equal(row(lines, "sms")[1:4], ["11", "0", "1"])
        check("no-worker" in " ".join(row(lines, "mail")), *lines)
        title = next(line for line in lines if line.startswith("STAGE"))
        end = title.index("WAITING") + len("WAITING")
        for name in "mail", "sms", "report":
            check(next(line for line in lines if line.startswith(name))[end - 1].isdigit(), *lines)
        check(any("waiting 17" in line and "dead 1" in line for line in lines), *lines)
        check(any("reports" in line and "…" in line and "daily" in line for line in lines), *lines)


@case("keys sort, select, open and go back; an unknown key is reported")
def _():
    with Terminal(server.url) as terminal:
        terminal.shows("sort: name")
        terminal.press("s")
        lines = terminal.shows("sort: waiting")
        order = [line.split()[0] for line in lines if line.startswith(("mail", "sms", "report"))]
        equal([name[:4] for name in order], ["sms", "mail", "repo"])
        terminal.press("Up", "Up", "Up", "Down", "Enter")  # mail, the second
        lines = terminal.shows("KEY", "anna", "no worker takes from this stage", "Esc back")
        equal(row(lines, "anna")[:2], ["anna", "3"])
        equal(row(lines, "bert")[:2], ["bert", "2"])
        check(lines[0].startswith("mail "), *lines)
        terminal.press("x")
        terminal.shows("that key does nothing here")
        terminal.press("Escape")
        terminal.shows("Enter open", "sms")


@case("p pauses, r resumes, and the reason of a wait is shown with the command to type")
def _():
    with Terminal(server.url) as terminal:
        terminal.shows("mail", "sort: name")
        terminal.press("Enter")
        terminal.shows("anna")
        terminal.press("p")
        terminal.shows("mail is paused", "millrace resume mail")
        equal(held_by("mail"), "paused")
        terminal.press("r")
        terminal.shows("mail goes on")
        equal(held_by("mail"), "no-worker")


@case("a worker and what is worked off are seen as they come and go")
def _():
    with Terminal(server.url) as terminal:
        terminal.shows("mail")
        terminal.press("Enter")
        terminal.shows("no worker takes from this stage")
        worker = Client(server)
        worker.ask("CLIENT", "SETNAME", "postman")
        job = worker.ask("TAKE", "mail")[0]
        terminal.shows("postman", "running 1")
        worker.ask("DONE", job[0], job[1])
        terminal.shows("done 1", "running 0")
        worker.close()
        terminal.shows("no worker takes from this stage")


@case("G11: running jobs that say how far they are have a bar each")
def _():
    with Terminal(server.url) as terminal, contextlib.closing(Client(server)) as worker:
        terminal.shows("mail")
        terminal.press("Enter")
        terminal.shows("no worker takes from this stage")
        job = worker.ask("TAKE", "mail")[0]
        worker.ask("PROGRESS", job[0], job[1], "3", "10", "SAY", "attach\x1bments")
        lines = terminal.shows("RUNNING", "attach ments")
        check(any(line.startswith(job[3]) and "███░░░░░░░ 3 of 10 attach ments" in line for line in lines), *lines)
        check(max(map(len, lines)) <= 80, *lines)
        worker.ask("PROGRESS", job[0], job[1], "99", "10", "SAY", "more than there is")
        terminal.shows("██████████ 99 of 10 more")
        worker.ask("PROGRESS", job[0], job[1], "7", "0")
        terminal.shows("░░░░░░░░░░ 7")
        worker.ask("RELEASE", job[0], job[1])
        check("PROGRESS" not in " ".join(terminal.shows("running 0")))


@case("it fits other sizes, and shows that there are no stages")
def _():
    with Terminal(server.url, 40, 8) as terminal:
        lines = terminal.shows("STAGE", "mail")
        check(max(map(len, lines)) <= 40 and len(lines) <= 8, *lines)
    empty = Server("--store", "mem:")
    with Terminal(empty.url) as terminal:
        terminal.shows("There are no stages yet")
    empty.stop()


@case("names that would move the cursor are shown as they are spelled, long ones are cut between letters")
def _():
    keys = "\033[2J\033]0;mine\a", "ü" * 40, "水" * 40, "u\u0308" * 40, "-" + "水" * 40
    for key in keys:
        push("odd", 2, "KEY", key)
    with Terminal(server.url) as terminal:
        terminal.shows("odd")
        terminal.press("Down", "Enter")
        lines = terminal.shows(r"\x1b[2J\x1b]0;mine\x07", "ü" * 32 + " ", "q quit")
        check(lines[0].startswith("odd ") and not any("\ufffd" in line for line in lines), *lines)
        shown = [as_shown(line) for line in lines]
        end = next(line for line in shown if line.startswith("KEY")).index("DEPTH") + len("DEPTH")
        figures = [line[32:end] for line in shown if re.match(r"\\x1b|[üu水_-]{3}", line)]
        equal(figures, [f"{2:{end - 32}}"] * len(keys), *lines)
        terminal.tmux("resize-window", "-t", "top", "-x", "50", "-y", "30")
        lines = terminal.shows("水" * 16, "q quit")
        check(lines[0].startswith("odd ") and len(lines) == 30, *lines)
    client.work_off("odd")


@case("a small terminal still shows the keys and the selected stage")
def _():
    for rows in range(1, 9):
        with Terminal(server.url, 80, rows) as terminal:
            lines = terminal.shows("q quit", *(["mail "] if rows > 3 else []))
            check("q quit" in lines[-1] and len(lines) <= rows, *lines)
            if rows > 3:
                terminal.press("NPage")
                terminal.shows("sms ", "q quit")
            terminal.press("Enter")
            check("q quit" in terminal.shows("Esc back")[-1])


@case("a lost server is reported and waited for; then it continues by itself")
def _():
    other = Server("--store", "mem:")
    with Terminal(other.url) as terminal:
        terminal.shows("There are no stages yet")
        other.kill()
        terminal.shows("trying again: cannot reach a server at ", "There are no stages yet")
        terminal.press("p", "Enter", "s")
        terminal.shows("trying again: ", "sort: waiting", "q quit")
        other.start()
        terminal.shows("connected again")
        Client(other).ask("PUSH", "letters", "body")
        lines = terminal.shows("letters")
        check(not any("trying again" in line for line in lines), *lines)
        other.signal(signal.SIGSTOP)
        terminal.shows("no answer for ", "letters")
        other.signal(signal.SIGCONT)
        terminal.press("x")
        terminal.shows("that key does nothing here")
        other.signal(signal.SIGSTOP)
        terminal.shows("no answer for ")
        terminal.press("q")
        terminal.shows("ended with 0")
        other.kill()
    with Terminal(other.url) as terminal:
        terminal.shows("millrace: top: cannot reach a server at ", "ended with 3")


@case("it ends when a server that comes back does not know its token")
def _():
    token = subprocess.check_output([MILLRACE, "auth", "add", "ops", "--role", "read,push", "--auth",
                                     f"{top}/auth"], text=True).strip()
    other = Server("--store", "mem:", "--auth", f"{top}/auth")
    with Terminal(other.url.replace("://", f"://:{token}@")) as terminal:
        terminal.shows("There are no stages yet")
        other.stop()
        subprocess.run([MILLRACE, "auth", "remove", "ops", "--auth", f"{top}/auth"], check=True,
                       capture_output=True)
        again = Server("--store", "mem:", "--auth", f"{top}/auth", listen=f"127.0.0.1:{other.port}")
        terminal.shows("ended with 4")
        again.stop()


@case("it fits a terminal that becomes larger and smaller")
def _():
    with Terminal(server.url) as terminal:
        terminal.shows("STAGE", "mail", "q quit")
        for columns, rows in (120, 40), (30, 8), (80, 24):
            terminal.tmux("resize-window", "-t", "top", "-x", str(columns), "-y", str(rows))
            end = time.monotonic() + TIMEOUT_S
            while not ((lines := terminal.lines())[-1:] and "↑↓ choose" in lines[-1] and len(lines) == rows
                       and sum("↑↓" in line for line in lines) == 1 and lines[0].startswith("millrace top")):
                check(time.monotonic() < end, columns, rows, *lines)
                time.sleep(0.02)  # between two samples


@case("Ctrl-Z leaves no shell in a terminal that shows nothing of what is typed")
def _():
    with Terminal(server.url) as terminal:
        terminal.shows("sms")
        terminal.press("C-z")
        terminal.shows("that key does nothing here", "sms")


@case("q ends it with 0, Ctrl-C with 130; the terminal is as before")
def _():
    for keys, code in (["q"], 0), (["C-c"], 130):
        with Terminal(server.url) as terminal:
            terminal.shows("sms")
            terminal.press(*keys)
            lines = terminal.shows(f"ended with {code}")
            check(not any("sms" in line for line in lines), *lines)


@case("without a terminal it is the table of stages, once")
def _():
    ended = subprocess.run([MILLRACE, "top"], capture_output=True, text=True, timeout=TIMEOUT_S)
    plain = subprocess.run([MILLRACE, "stages"], capture_output=True, text=True, timeout=TIMEOUT_S)
    equal((ended.returncode, ended.stderr), (0, ""))
    equal([line.split()[:6] for line in ended.stdout.splitlines()],
          [line.split()[:6] for line in plain.stdout.splitlines()])


@case("the server that all of them watched ends in peace")
def _():
    server.stop()


main()
