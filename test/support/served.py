"""What tests of the server as it is run share: a server in a process of its own on a free port, whose
notices are read, and clients that speak RESP. A test waits for a notice, a reply or the end of a
process."""
import atexit
import os
import queue
import re
import resource
import select
import socket
import subprocess
import threading

from tap import BUILD, MILLRACE, TIMEOUT_S, check, equal, top

END_S = 5  # that a server has for an orderly end


def path(name):
    return os.path.join(top, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)
    return path(name)


def too_few_descriptors(needed):
    """Has as many as the system allows, here and in servers; why that is too few, or None."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return f"only {most} descriptors are allowed" if most < needed else None


held = []  # sockets


def lasting_address():
    """An address for a server that is restarted. It is also bound here, so that the system gives it to no other
    program and to no client (which could connect to itself); a server, which may reuse addresses, can listen
    there."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    held.append(holder)
    return "127.0.0.1:%d" % holder.getsockname()[1]


# So that a test can be run with several loops as well: connections are then spread over them.
LOOPS = os.environ.get("MILLRACE_LOOPS")


class Server:
    """millrace serve, started `through` another command if that is given; `wait_notice` waits for one.
    It is ended with the test in any case; `start` starts it again, by default at the same address. Without HTTP,
    whose port may be in use."""

    def __init__(self, *options, listen=lasting_address, http="off", ready=True, through=(), **more):
        listen = listen() if listen is lasting_address else listen
        where = ["--listen", listen] if listen else []
        where += ["--http", http] if http else []
        if LOOPS and "--loops" not in options:
            where += ["--loops", LOOPS]
        self.command, self.more = [*through, MILLRACE, "serve", *where, *options], more
        self.process = None
        atexit.register(self.end)
        self.start(ready)

    def start(self, ready=True):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True, **self.more)
        self.notices, self.said = queue.Queue(), []
        threading.Thread(target=self.listen, args=(self.process, self.notices), daemon=True).start()
        if ready:
            self.listens()
            self.url = re.search(r"millrace\S*://\S+|$", self.wait_notice("ready"))[0]

    def listens(self):
        """Waits until it can be connected to, which may be before it is ready."""
        self.port = int(re.search(r"listens on \S*:(\d+)", self.wait_notice("listens on "))[1])

    @staticmethod
    def listen(process, notices):
        for line in process.stderr:
            notices.put(line)
        notices.put(None)

    def wait_notice(self, text):
        """Waits for a notice that contains the text."""
        while True:
            try:
                line = self.notices.get(timeout=TIMEOUT_S)
            except queue.Empty:
                line = None
            check(line is not None, f"no notice contains: {text}", *self.said)
            self.said.append(line)
            if text in line:
                return line

    def new_notices(self):
        """The notices that no caller has waited for so far; they count as waited for."""
        new = []
        while not self.notices.empty() and (line := self.notices.get()) is not None:
            new.append(line)
        if self.process.poll() is not None:
            self.notices.put(None)  # for the next call
        self.said += new
        return new

    def signal(self, number):
        self.process.send_signal(number)

    def sleeps(self):
        """Waits until all of its threads do; how often each has slept by then."""
        while True:
            found = self.threads()
            if all(state == "S" for state, _ in found.values()):
                return {task: count for task, (_, count) in found.items()}
            select.select([], [], [], 0.005)

    def threads(self):
        tasks, found = f"/proc/{self.process.pid}/task", {}
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/status", encoding="utf-8") as file:
                text = file.read()
            found[task] = (re.search(r"^State:\s*(\w)", text, re.M)[1],
                           int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", text, re.M)[1]))
        return found

    def ends(self, code=0):
        """Waits for its end; everything it has printed."""
        ended = self.process.wait(TIMEOUT_S)
        while (line := self.notices.get(timeout=TIMEOUT_S)) is not None:
            self.said.append(line)
        self.notices.put(None)  # for the next call
        equal(ended, code, *self.said)
        return "".join(self.said)

    def stop(self):
        """Stops it with SIGTERM; everything it has printed."""
        self.process.terminate()
        return self.ends()

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def end(self):
        """Ends it in whatever state it is: with SIGTERM, since a build for coverage writes its counts at an orderly
        end; without its store it may not get there."""
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if not kind:
            self.stop()
        else:
            self.kill()


class Faulty(Server):
    """A server whose disk fails as `order` describes, see faulty.c."""

    def __init__(self, name, *options, orders=(), **more):
        self.orders = path(f"{name}.orders")
        self.order(*orders)
        for pipe in ("arrived", "gate"):
            os.mkfifo(f"{self.orders}.{pipe}")
        self.arrived, self.gate = (os.open(f"{self.orders}.{pipe}", os.O_RDWR) for pipe in ("arrived", "gate"))
        environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "test", "libfaulty.so"),
                           MILLRACE_FAULTS=self.orders,
                           ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
        super().__init__("--store", f"file:{path(name)}", *options, env=environment, **more)

    def order(self, *lines):
        new = write(os.path.basename(self.orders) + ".new", "".join(f"{line}\n" for line in lines))
        os.rename(new, self.orders)

    def arrives(self):
        """Waits until a call waits at the gate."""
        check(select.select([self.arrived], [], [], TIMEOUT_S)[0], "no call came to the gate", *self.said)
        os.read(self.arrived, 1)

    def let_go(self):
        """Lets one call go on that waits at the gate."""
        os.write(self.gate, b".")


class Refused(Exception):
    """An error reply."""


class Wire:
    """A connection that sends words and receives replies unparsed, RESP2."""

    def __init__(self, port, context=None, host="localhost", source="127.0.0.1"):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, (source, 0))
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(words) +
                            b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def receive(self):
        line = self.file.readline()[:-2]
        if line[:1] == b"*":
            return [self.receive() for _ in range(int(line[1:]))]
        if line[:1] != b"$":
            return line
        size = int(line[1:])
        return self.file.read(size + 2)[:-2] if size >= 0 else None

    def ask(self, *words):
        self.send(*words)
        return self.receive()


class Client(Wire):
    """Replies are text, numbers and lists of them; a refusal is raised."""

    def __init__(self, server):
        super().__init__(server.port)

    def receive(self):
        line = self.file.readline()
        check(line.endswith(b"\r\n"), "the connection was closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b"*":
            return [self.receive() for _ in range(int(rest))]
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2].decode() if int(rest) >= 0 else None
        return int(rest) if kind == b":" else rest.decode()

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
                self.send("DONE", job[0], job[1])
                bodies.append(job[4])
            for _ in jobs:
                equal(self.receive(), "OK")
        return bodies
