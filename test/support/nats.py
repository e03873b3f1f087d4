"""NATS servers of the test's own, on free ports of the loopback, with their files in a folder of their own. They
are ended with the test in any case."""
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile

from running import wait_until
from tap import TIMEOUT_S

SERVER = "/usr/sbin/nats-server"


def why_no_nats():
    """Why there can be none, or None."""
    return None if os.access(SERVER, os.X_OK) else "nats-server is not installed"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S).close()
        return True
    except OSError:
        return False


class Nats:
    def __init__(self, jetstream=True, settings="", limits=""):
        """One server; `settings` are further lines of its configuration, `limits` of its JetStream."""
        self.top = tempfile.mkdtemp(prefix="millrace-nats-", dir="/tmp")
        atexit.register(shutil.rmtree, self.top, ignore_errors=True)
        self.port, self.process = free_port(), None
        with open(f"{self.top}/conf", "w", encoding="utf-8") as file:
            file.write(f"listen: 127.0.0.1:{self.port}\n{settings}\n")
            if jetstream:
                file.write(f"jetstream {{ store_dir: '{self.top}/data', {limits} }}\n")
        atexit.register(self.stop, signal.SIGKILL)
        self.start()

    def start(self):
        """What it writes is dropped."""
        self.process = subprocess.Popen([SERVER, "-c", f"{self.top}/conf"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        wait_until(lambda: answers(self.port), "NATS is ready")

    def stop(self, number=signal.SIGTERM):
        if self.process:
            self.process.send_signal(number)
            self.process.wait(TIMEOUT_S)
        self.process = None

    def url(self, user="", options=""):
        return f"nats://{user}127.0.0.1:{self.port}{options}"

    def request(self, subject, body=b""):
        """What a service of the server answers, from JSON; None: nothing within two seconds, or no such service now."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as wire, wire.makefile("rb") as file:
            wire.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.test 1\r\n'
                         b"PUB %s _INBOX.test %d\r\n%s\r\n" % (subject.encode(), len(body), body))
            try:
                while line := file.readline():
                    if line.startswith(b"HMSG"):
                        return None  # its headers say that there is no such service
                    if line.startswith(b"MSG"):
                        return json.loads(file.read(int(line.split()[-1])))
            except TimeoutError:
                pass
            return None
