"""A server with HTTP, and what tests ask it."""
import contextlib
import http.client
import json
import re
import socket
import ssl
import subprocess

from served import Server, path
from tap import MILLRACE, TIMEOUT_S, check, equal


class Web(Server):
    """A server whose HTTP is on a free port."""

    def __init__(self, *options, store="mem:", http="127.0.0.1:0", **more):
        super().__init__("--store", store, *options, http=http, **more)
        said = next(line for line in self.said if "page, metrics" in line)
        self.secure = "https://" in said
        self.http = int(re.search(r"https?://\S*:(\d+)/", said)[1])
        self.host = f"127.0.0.1:{self.http}"

    def connect(self):
        if not self.secure:
            return http.client.HTTPConnection("127.0.0.1", self.http, timeout=TIMEOUT_S)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.http, timeout=TIMEOUT_S, context=context)

    def ask(self, method, target, body=None, token=None, headers=None, connection=None):
        """The status, the headers, and what the body says."""
        given = {"Host": self.host}
        if method == "POST":
            given |= {"Content-Type": "application/json", "Origin": f"http://{self.host}"}
            body = json.dumps({} if body is None else body) if not isinstance(body, (str, bytes)) else body
        if token:
            given["Authorization"] = f"Bearer {token}"
        given |= headers or {}
        with contextlib.closing(self.connect()) if not connection else contextlib.nullcontext(connection) as c:
            c.request(method, target, body, {k: v for k, v in given.items() if v is not None})
            answer = c.getresponse()
            text = answer.read()
        is_json = "json" in answer.getheader("Content-Type", "") and text
        return answer.status, answer, json.loads(text) if is_json else text

    def get(self, target, **more):
        status, _, said = self.ask("GET", target, **more)
        equal(status, 200, target, said)
        return said

    def post(self, target, body=None, **more):
        status, _, said = self.ask("POST", target, body, **more)
        equal(status, 200, target, body, said)
        return said

    def refuses(self, status, code, text, method, target, body=None, **more):
        found, answer, said = self.ask(method, target, body, **more)
        equal((found, said.get("error")), (status, code), method, target, said)
        check(text in said["message"], said, text)
        return answer

    def raw(self, data, whole=True):
        """What is answered to these bytes until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.http), TIMEOUT_S) as s:
            s.sendall(data)
            if whole:
                s.shutdown(socket.SHUT_WR)
            received = b""
            while piece := s.recv(65536):
                received += piece
        return received


def token_of(file, name, role, stages=None, *more):
    return subprocess.run([MILLRACE, "auth", "add", name, "--role", role, "--auth", path(file),
                           *(["--stages", stages] if stages else []), *more],
                          check=True, capture_output=True, text=True).stdout.split()[-1]
