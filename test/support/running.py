"""A command under test, run in the background or to its end, and waiting for what it does."""
import atexit
import os
import select
import subprocess
import tempfile
import threading
import time

from tap import TIMEOUT_S, check


class Ended:
    """How a command ended; what it wrote is text if that was asked for, else bytes."""

    def __init__(self, code, out, err, memory_kb):
        self.code, self.out, self.err, self.memory_kb = code, out, err, memory_kb

    def __str__(self):
        out, err = (t if isinstance(t, str) else repr(t) for t in (self.out[-2000:], self.err[-3000:]))
        return f"exit {self.code}\nstdout {out}\nstderr {err}"


class Running:
    """A command in a session of its own; what it writes is kept. Ended with the test, whatever becomes of
    that."""

    def __init__(self, *command, text=False, **more):
        self.text, self.ended = text, None
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=more.pop("stdout", self.out),
                                        stderr=more.pop("stderr", self.err), start_new_session=True, **more)
        atexit.register(self.kill)

    def feed(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def signal(self, number):
        self.process.send_signal(number)

    def said(self):
        """Its stderr so far."""
        return self.read(self.err)

    def kill(self):
        """As kill -9; how it ended."""
        if not self.ended:
            self.process.kill()
        return self.end(close=False)

    def end(self, close=True):
        """Waits for its end; unless `close` is false, its input ends first."""
        if self.ended:
            return self.ended
        if self.process.stdin and close:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        watchdog = threading.Timer(TIMEOUT_S, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        memory_kb = self.wait()
        watchdog.cancel()
        self.ended = Ended(self.process.returncode, self.read(self.out), self.read(self.err), memory_kb)
        self.out.close()
        self.err.close()
        return self.ended

    def wait(self):
        """Its memory; 0 if another thread has waited for it."""
        if self.process.returncode is not None:
            return 0
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_maxrss

    def read(self, file):
        data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
        return data.decode(errors="replace") if self.text else data


def wait_until(condition, what):
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        check(time.monotonic() < end, f"did not happen in time: {what}")
        select.select([], [], [], 0.005)


def lines_of(path):
    with open(path) as file:
        return file.read().splitlines()
