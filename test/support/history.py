"""A load on a cluster that checks itself: producers push the lines of a few keys, each until it is acknowledged;
workers run a command for each, which emits the line into another stage as it is committed.

    producers ─► stage in ─► millrace work: a lock for each key ─► stage out ─► the check

Nothing acknowledged is lost, nothing is committed twice, the lines of a key keep their order, and no two commands of a
key run at the same time: the second one finds the lock of the first. Where connections of servers that live are lost,
only `overlap never` promises that."""
import os
import signal
import socket
import subprocess
import threading

from cluster import answer, bodies, waiting
from running import Running, wait_until
from served import Client, Refused
from tap import MILLRACE, check, equal, top

PAUSE_S = 0.05  # between pushes of a key, so that workers keep up
REPLY_S = 2  # of a producer with a node that does not answer
WORK = """flock -n -E 75 "$0/$1" sh -c 'sleep 0.02; exec "$0" emit "$2" --key "$1"' "$2" "$1" "$3" || {
    [ $? != 75 ] || echo "$1" >>"$0/overlaps"; exit 1; }"""


class Place:
    """A server to connect to."""

    def __init__(self, port):
        self.port = port


class Producer(threading.Thread):
    """Pushes the lines "KEY 0", "KEY 1", … one after another, each to one place after another until it is
    acknowledged."""

    def __init__(self, key, ports):
        super().__init__(daemon=True)
        self.key, self.ports, self.acknowledged, self.ends = key, ports, 0, threading.Event()
        self.start()

    def run(self):
        client, turn = None, 0
        while not self.ends.is_set():
            try:
                client = client or self.connect(self.ports[turn % len(self.ports)])
                client.ask("PUSH", "in", f"{self.key} {self.acknowledged}", "KEY", self.key,
                           "ONCE", f"{self.key}.{self.acknowledged}")
                self.acknowledged += 1
                self.ends.wait(PAUSE_S)
            except (OSError, AssertionError, Refused):  # closed, silent, or refused for the moment
                if client:
                    client.close()
                client, turn = None, turn + 1
                self.ends.wait(0.05)

    @staticmethod
    def connect(port):
        client = Client(Place(port))
        client.socket.settimeout(REPLY_S)
        return client

    def end(self):
        """How many lines were acknowledged; the last one may have been accepted as well."""
        self.ends.set()
        self.join()
        return self.acknowledged


class History:
    count = 0

    def __init__(self, ports, keys=4, workers=2, policy=(), out="out"):
        """`ports`: where the nodes are reached; `policy`: of the stage `in`; `out`: where the lines are emitted to."""
        History.count += 1
        equal(answer(Place(ports[0]), "STAGE", "in", "attempts", "1000", *policy), b"+OK")
        self.out = out
        self.folder = os.path.join(top, f"history{History.count}")
        os.mkdir(self.folder)
        self.producers = [Producer(f"k{i}", ports) for i in range(keys)]
        at = "millrace://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        self.workers = [Running(MILLRACE, "work", "--at", at, "in", "--jobs", "2", "--", "sh", "-c", WORK, self.folder,
                                "{key}", MILLRACE, out, stdin=subprocess.DEVNULL, text=True) for _ in range(workers)]

    def acknowledged(self):
        return sum(producer.acknowledged for producer in self.producers)

    def goes_on(self, count=20):
        """Waits until so many more pushes were acknowledged."""
        wanted = self.acknowledged() + count
        wait_until(lambda: self.acknowledged() >= wanted, f"{count} more pushes are acknowledged")

    def holds(self, node):
        """Ends the load and checks everything, at a node that is reached."""
        acknowledged = {producer.key: producer.end() for producer in self.producers}
        wait_until(lambda: in_work(node) == 0, "all jobs are done")
        for worker in self.workers:
            worker.signal(signal.SIGINT)
        said = [worker.end().err for worker in self.workers]
        wait_until(lambda: waiting(node, self.out) >= sum(acknowledged.values()), "what was emitted has arrived")
        found = {}
        for line in bodies(node, self.out, waiting(node, self.out)):
            key, number = line.split()
            found.setdefault(key, []).append(int(number))
        for key, count in acknowledged.items():
            numbers = found.get(key, [])
            check(numbers in (list(range(count)), list(range(count + 1))),
                  f"key {key}: {count} were acknowledged; committed:", numbers, *said)
        check(not os.path.exists(f"{self.folder}/overlaps"), "commands of one key ran at the same time", *said)
        return sum(acknowledged.values())


def in_work(node):
    """The number of jobs of the stage `in` that have not ended, with dead ones."""
    stages = answer(node, "STAGES", "NAME", "in")
    fields = stages[0] if stages else []
    names = {fields[i]: fields[i + 1] for i in range(0, len(fields), 2)}
    return sum(int(names[name][1:]) for name in (b"waiting", b"running", b"parked", b"delayed", b"dead") if name in names)


def is_silent(client):
    """Whether nothing has come, not even the end of the connection."""
    client.socket.setblocking(False)
    try:
        client.socket.recv(1, socket.MSG_PEEK)
        return False
    except BlockingIOError:
        return True
    finally:
        client.socket.setblocking(True)


def is_acknowledged(client):
    """Whether the push that was sent last has an id; not: it was refused, or the connection was closed."""
    try:
        return client.file.readline()[:1] in (b"$", b":")
    except OSError:
        return False
