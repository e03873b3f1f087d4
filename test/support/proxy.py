"""A proxy that stands between a server and a client: it remembers what the client says, and can lose a reply.
It listens on a free loopback port and ends with the test."""
import socket
import threading


def read_frame(file):
    """One RESP frame as lists and bytes, errors and the like with their sign; None at the end."""
    try:
        line = file.readline()
    except OSError:
        return None
    if not line.endswith(b"\r\n"):
        return None
    sign, rest = line[:1], line[1:-2]
    if sign in b"*>%~":
        count = int(rest) * (2 if sign == b"%" else 1)
        return [read_frame(file) for _ in range(count)]
    if sign == b"$" and int(rest) >= 0:
        return file.read(int(rest) + 2)[:-2]
    return line[:-2]


class Tee:
    """A file of a socket that passes on what it reads, when asked."""

    def __init__(self, source):
        self.file, self.passed = source.makefile("rb"), b""

    def readline(self):
        line = self.file.readline()
        self.passed += line
        return line

    def read(self, size):
        data = self.file.read(size)
        self.passed += data
        return data

    def frame(self):
        """The next frame and its bytes."""
        self.passed = b""
        frame = read_frame(self)
        return frame, self.passed


class Proxy:
    """`said` has every request, as words; `received` every reply that was forwarded. The reply to the next
    request that begins with `lose` is dropped, and the connection closed."""

    def __init__(self, server, lose=None):
        self.server, self.lose = server, lose
        self.said, self.received = [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                upstream = socket.create_connection(("127.0.0.1", self.server.port))
            except OSError:  # as if no server listened
                client.close()
                continue
            losing = threading.Event()
            for work in self.ask, self.answer:
                threading.Thread(target=work, args=(client, upstream, losing), daemon=True).start()

    def ask(self, client, upstream, losing):
        requests = Tee(client)
        while True:
            words, data = requests.frame()
            if words is None:
                break
            self.said.append(words)
            if self.lose and words[0].upper() == self.lose:
                self.lose = None
                losing.set()
            try:
                upstream.sendall(data)
            except OSError:
                break
        hang_up(upstream)

    def answer(self, client, upstream, losing):
        replies = Tee(upstream)
        while True:
            reply, data = replies.frame()
            if reply is None or losing.is_set():
                break
            self.received.append(reply)
            try:
                client.sendall(data)
            except OSError:
                break
        hang_up(client)


def hang_up(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it was closed
