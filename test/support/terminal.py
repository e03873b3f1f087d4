"""millrace top in a terminal (tmux), whose screen is looked at."""
import os
import subprocess
import time

from tap import MILLRACE, TIMEOUT_S, check, top

os.environ.pop("NO_COLOR", None)
os.environ.pop("TMUX", None)
os.environ.update(LC_ALL="C.UTF-8")


class Terminal:
    """millrace top in a separate terminal, which stays after it has ended, and shows its exit code."""

    count = 0

    def __init__(self, url, columns=80, rows=24):
        Terminal.count += 1
        self.socket = f"{top}/tmux.{Terminal.count}"
        command = f"{MILLRACE} top --at {url}; echo ended with $?; exec cat"
        self.tmux("new-session", "-d", "-s", "top", "-x", str(columns), "-y", str(rows), command)

    def tmux(self, *words):
        return subprocess.run(["tmux", "-u", "-S", self.socket, "-f", "/dev/null", *words],
                              check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")

    def press(self, *keys):
        for key in keys:
            self.tmux("send-keys", "-t", "top", key)

    def lines(self):
        return self.tmux("capture-pane", "-p", "-t", "top").splitlines()

    def shows(self, *texts):
        """Waits until the screen has all of them; its lines."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            lines = self.lines()
            if all(any(text in line for line in lines) for text in texts):
                return lines
            check(time.monotonic() < end, f"never shown: {texts}", *lines)
            time.sleep(0.02)  # between two samples
