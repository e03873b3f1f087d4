"""A proxy for TCP that can be cut, as a network is: each way by itself, both, or with connections that are reset or
delayed. What is sent over a cut is not lost but held, as TCP does it: it arrives when the cut is mended, unless the
connection was closed meanwhile. After a cut of one way the other one passes on as if its packets were still
acknowledged, unless `one_way_s` says for how long: then TCP sends nothing new."""
import contextlib
import select
import socket
import struct
import threading
import time


class Cut:
    """Listens on a free loopback port and passes connections on to `target`: a port, or the path of a Unix socket."""

    def __init__(self, target, one_way_s=None):
        self.one_way_s, self.cut_at = one_way_s, 0
        self.target, self.delay_s, self.pairs, self.left, self.passed = target, 0, [], None, None
        self.ways = {"up": threading.Event(), "down": threading.Event()}  # from the client, and to it; set: open
        self.heal()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def cut(self, *ways):
        """Nothing passes these ways any more; by default neither."""
        self.cut_at = time.monotonic()
        for way in ways or self.ways:
            self.ways[way].clear()

    def heal(self):
        self.delay_s = 0
        for way in self.ways.values():
            way.set()

    def reset(self):
        """Ends all connections as a crashed router does."""
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def reset_after(self, size):
        """Does so once as many more bytes have passed."""
        self.left = size

    def connect(self):
        if isinstance(self.target, int):
            return socket.create_connection(("127.0.0.1", self.target))
        one = socket.socket(socket.AF_UNIX)
        one.connect(self.target)
        return one

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.join, args=(client,), daemon=True).start()

    def join(self, client):
        self.ways["up"].wait()  # nothing answers behind a cut
        try:
            target = self.connect()
        except OSError:
            client.close()
            return
        self.pairs.append((client, target))
        back = threading.Thread(target=self.pass_on, args=(target, client, "down"), daemon=True)
        back.start()
        self.pass_on(client, target, "up")
        back.join()
        for end in client, target:
            end.close()

    def wait_open(self, way):
        self.ways[way].wait()
        while self.one_way_s is not None and time.monotonic() - self.cut_at >= self.one_way_s and \
                not all(each.is_set() for each in self.ways.values()):
            for each in self.ways.values():
                each.wait()

    def pass_on(self, source, sink, way):
        with contextlib.suppress(OSError, ValueError):
            while True:
                data = source.recv(65536)
                self.wait_open(way)
                if self.delay_s:
                    select.select([], [], [], self.delay_s)
                if not data:
                    break
                if self.passed is not None:  # what passes is kept
                    self.passed.append(data)
                left = self.left
                sink.sendall(data[:left])
                if left is not None and left <= len(data):
                    self.left = None
                    self.reset()
                elif left is not None:
                    self.left = left - len(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
