"""What tests of the server as it is run share: a server in a process of its own on a free port, whose
notices are heard; clients that speak RESP; cases that speak TAP. Nothing waits for time to pass: a
test waits for a notice, a reply or the end of a process, and PATIENCE ends what hangs."""
import atexit
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

BUILD = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else "build")
MILLRACE = os.path.join(BUILD, "millrace")
PATIENCE = 240  # seconds until something that hangs is a failure

top = tempfile.mkdtemp(prefix="millrace-served-")
atexit.register(shutil.rmtree, top, ignore_errors=True)
cases = []


def case(function):
    """The name of the function is that of the test."""
    cases.append(function)
    return function


def check(condition, *about):
    if not condition:
        raise AssertionError("\n".join(str(a) for a in about) or "it does not hold")


def equal(a, b, *about):
    check(a == b, f"{a!r:.1000} is not {b!r:.1000}", *about)


def path(name):
    return os.path.join(top, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)
    return path(name)


class Server:
    """millrace serve, started `through` another command if that is given; `hear` waits for a notice.
    Ended with the test, whatever becomes of that."""

    def __init__(self, *options, listen="127.0.0.1:0", ready=True, through=(), **more):
        where = ["--listen", listen] if listen else []
        self.process = subprocess.Popen([*through, MILLRACE, "serve", *where, *options],
                                        stderr=subprocess.PIPE, text=True, **more)
        atexit.register(self.process.kill)
        self.notices, self.said = queue.Queue(), []
        threading.Thread(target=self.listen, daemon=True).start()
        if ready:
            address = self.hear("listens on ")
            self.port = int(re.search(r"listens on \S*:(\d+)", address)[1])
            self.hear("ready")

    def listen(self):
        for line in self.process.stderr:
            self.notices.put(line)
        self.notices.put(None)

    def hear(self, text):
        """Waits for a notice that contains the text."""
        while True:
            try:
                line = self.notices.get(timeout=PATIENCE)
            except queue.Empty:
                line = None
            check(line is not None, f"never said: {text}", *self.said)
            self.said.append(line)
            if text in line:
                return line

    def signal(self, number):
        self.process.send_signal(number)

    def ends(self, code=0):
        """Waits for its end; everything it has said."""
        equal(self.process.wait(PATIENCE), code, *self.said)
        while (line := self.notices.get(timeout=PATIENCE)) is not None:
            self.said.append(line)
        return "".join(self.said)

    def stop(self):
        self.process.terminate()
        return self.ends()


class Refused(Exception):
    """An error reply."""


class Client:
    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def say(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(words) +
                            b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def hear(self):
        line = self.file.readline()
        check(line.endswith(b"\r\n"), "the connection was closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b"*":
            return [self.hear() for _ in range(int(rest))]
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2].decode() if int(rest) >= 0 else None
        return int(rest) if kind == b":" else rest.decode()

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def refused(self, code, *words):
        """It is refused with this code; the sentence."""
        try:
            reply = self.ask(*words)
        except Refused as error:
            check(str(error).startswith(code), f"{error}, not {code}")
            return str(error)
        raise AssertionError(f"{words} was answered with {reply!r:.200}, not {code}")

    def info(self):
        return dict(line.split(":", 1) for line in self.ask("INFO").splitlines() if ":" in line)

    def work_off(self, stage, count=1):
        """Takes, so many at a time, and ends every job that is waiting; their bodies."""
        bodies = []
        while jobs := self.ask("TAKE", stage, "COUNT", count):
            for job in jobs:
                self.say("DONE", job[0], job[1])
                bodies.append(job[4])
            for _ in jobs:
                equal(self.hear(), "OK")
        return bodies


def main():
    print(f"1..{len(cases)}")
    failed = 0
    for number, function in enumerate(cases, 1):
        try:
            skip = function()
            print(f"ok {number} - {function.__name__}" + (f" # SKIP {skip}" if skip else ""),
                  flush=True)
        except Exception as error:  # whatever it is, the other cases run
            failed += 1
            print(f"not ok {number} - {function.__name__}")
            for line in f"{type(error).__name__}: {error}".splitlines():
                print(f"# {line}", flush=True)
    sys.exit(1 if failed else 0)
