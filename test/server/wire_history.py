#!/usr/bin/env python3
"""wire_history.py BUILD: producers, workers and callers talk to a real server over the wire while
workers drop their connections and the server is killed (SIGKILL) and started again. Everybody keeps
a history; from these the checker tells whether anything acknowledged was lost, done twice, done out
of order, done under two leases at once, or answered to the wrong caller. The checker itself is shown
to notice each of these in histories spoilt on purpose. TAP on stdout."""
import collections
import copy
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Server
from tap import LONG, TIMEOUT_S, SECONDS

KEYS, PRODUCERS, WORKERS, CALLERS = 5, 3, 4, 2
PUSHED_LEAST = 200  # however slow the machine: a history to be spoilt needs some pairs


# ---- Talking ----------------------------------------------------------------------------------

class Refused(Exception):
    """An error reply."""


class Gone(Exception):
    """The connection ended: whether the last request has arrived is not known."""


class Client:
    def __init__(self, port):
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=2 * TIMEOUT_S)
        except OSError as error:
            raise Gone(str(error)) from error
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def ask(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        try:
            self.socket.sendall(request)
            return self.read()
        except OSError as error:
            raise Gone(str(error)) from error

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Gone("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        if int(rest) < 0:
            return None
        body = self.file.read(int(rest) + 2)
        if len(body) != int(rest) + 2:
            raise Gone("closed")
        return body[:-2]


# ---- Who talks --------------------------------------------------------------------------------

class Run:
    """One run: its server, its clients, and what they have seen."""

    def __init__(self, seed, shards):
        self.folder = tempfile.mkdtemp(prefix="millrace-history-")
        self.server = Server("--store", f"file:{self.folder}/store", "--shards", str(shards),
                             "--loops", "1" if shards == 1 else "2")
        self.lock, self.over, self.enough = threading.Lock(), threading.Event(), threading.Event()
        self.seed, self.failed = seed, []
        self.pushed, self.taken, self.commits, self.called = [], [], [], []

    def note(self, history, entry):
        with self.lock:
            history.append(entry)

    def forever(self, body, name):
        """Connects again and again until the run is over."""
        chance = random.Random(f"{self.seed} {name}")
        try:
            while not self.over.is_set():
                try:
                    client = Client(self.server.port)
                except Gone:
                    self.over.wait(0.01)
                    continue
                try:
                    body(client, chance)
                    return
                except Gone:
                    pass
                except Refused as error:
                    if not str(error).startswith(("LOADING", "STOPPED")):
                        raise
                    self.over.wait(0.01)
                finally:
                    client.close()
        except Exception as error:  # a thread's failure must not be silent
            self.note(self.failed, f"{name}: {error!r}")
            self.enough.set()
            self.over.set()


class Producer:
    """Pushes until it has enough; a push whose reply was lost is sent again, with the same name."""

    def __init__(self, run, name):
        self.run, self.name, self.number, self.key = run, name, 0, None

    def __call__(self, client, chance):
        while not self.run.enough.is_set() or self.key is not None:
            if self.key is None:
                self.key = f"k{chance.randrange(KEYS)}"
            once = f"{self.name}-{self.number}"
            job = client.ask("PUSH", "work", once, "KEY", self.key, "ONCE", once)
            self.run.note(self.run.pushed, (once, self.key, int(job)))
            self.number, self.key = self.number + 1, None


def work(run, client, chance):
    """Takes, and commits: the channel's count goes up by one and one job is emitted. Sometimes it
    fails, gives back, or drops its connection instead."""
    while not run.over.is_set():
        for job, token, _, key, body, attempt, _, state, *_ in client.ask(
                "TAKE", "work", "WAIT", "50", "COUNT", "3"):
            run.note(run.taken, (int(job), key.decode(), body.decode(), attempt, token))
            whim = chance.random()
            if whim < 0.03:
                raise Gone("dropped on purpose")
            if whim < 0.06:
                answer(client, "FAIL", job, token, "a whim", "RETRY", 0)
                continue
            if whim < 0.09:
                answer(client, "RELEASE", job, token)
                continue
            count = int(state or b"0") + 1
            keeps = ("STATE", count) if key else ()
            if answer(client, "DONE", job, token, "RESULT", b"did " + body, *keeps,
                      "EMIT", "out", key, body):
                run.note(run.commits, (int(job), key.decode(), body.decode(), count))


def answer(client, *words):
    """Ends a job; False: its lease is over, or its caller has left."""
    try:
        return client.ask(*words) == b"OK"
    except Refused as error:
        if str(error).split()[0] in ("STALE", "GONE", "CANCELLED", "EXPIRED"):
            return False
        raise


class Caller:
    def __init__(self, run, name):
        self.run, self.name, self.number = run, name, 0

    def __call__(self, client, chance):
        while not self.run.enough.is_set():
            once = f"{self.name}-{self.number}"
            key = f"k{self.number % KEYS}" if self.number % 2 else ""  # the same when sent again
            try:
                result = client.ask("CALL", "work", once, "KEY", key, "ONCE", once, "DEADLINE", 20000)
            except Refused as error:
                if str(error).split()[0] in ("LOADING", "STOPPED"):
                    raise
                result = str(error)  # its caller was away too long: cancelled, and sent again
            if isinstance(result, bytes):
                self.run.note(self.run.called, (once, result.decode()))
            self.number += 1


def prepare(run):
    """Every kill costs what runs an attempt: there are enough of them, and the next comes soon. What
    is emitted gathers until the end."""
    client = Client(run.server.port)
    client.ask("STAGE", "out", "high-mark", "none")
    client.ask("STAGE", "work", "attempts", 60000, "backoff", "10ms", "retention", "1h,1000000")
    client.close()


def waiting(client, stage):
    fields = client.ask("STAGES", "NAME", stage)[0]
    return fields[fields.index(b"waiting") + 1]


def observe(run):
    """What the server reports once everything has ended."""
    client = Client(run.server.port)
    results = {}
    for once, _, job in run.pushed:
        reply = client.ask("AWAIT", job, "WAIT", TIMEOUT_S * 1000)
        results[once] = None if reply is None else reply.decode()
    emitted = []
    while waiting(client, "out"):  # some may be on their way from another shard
        jobs = client.ask("TAKE", "out", "COUNT", "500", "BATCH", "500", "WAIT", "1000")
        for job, token, _, key, body, *_ in jobs:
            emitted.append((key.decode(), body.decode()))
            client.ask("DONE", job, token)
    client.close()
    return results, emitted


def record(seed, shards, seconds):
    run = Run(seed, shards)
    chance = random.Random(seed)
    kills = 0
    try:
        prepare(run)
        talkers = [(Producer(run, f"p{i}"), f"p{i}") for i in range(PRODUCERS)]
        talkers += [(Caller(run, f"c{i}"), f"c{i}") for i in range(CALLERS)]
        workers = [(lambda client, chance: work(run, client, chance), f"w{i}") for i in range(WORKERS)]
        threads = {name: threading.Thread(target=run.forever, args=(body, name), daemon=True)
                   for body, name in talkers + workers}
        for thread in threads.values():
            thread.start()
        end = time.monotonic() + seconds
        while (time.monotonic() < end or len(run.pushed) < PUSHED_LEAST) and not run.over.is_set():
            run.over.wait(chance.uniform(0.1, 1.0))
            run.server.kill()
            run.server.start()
            kills += 1
        run.enough.set()
        for _, name in talkers:
            threads[name].join()
        results, emitted = ({}, []) if run.failed else observe(run)
        run.over.set()
        for thread in threads.values():
            thread.join()
        run.server.process.terminate()
        stopped = run.server.process.wait(TIMEOUT_S)
    finally:
        run.enough.set()
        run.over.set()
        run.server.kill()
        shutil.rmtree(run.folder, ignore_errors=True)
    return {"pushed": run.pushed, "taken": run.taken, "commits": run.commits, "called": run.called,
            "results": results, "emitted": emitted, "failed": run.failed, "stopped": stopped,
            "kills": kills}


# ---- The checker ------------------------------------------------------------------------------

def numbers_in_order(entries):
    """Of entries (key, body) in time, whether each pusher's numbers grow within each key."""
    last = {}
    for key, body in entries:
        pusher, number = body.rsplit("-", 1)
        if key and last.get((key, pusher), -1) >= int(number):
            return f"{body} of {key} came after {pusher}-{last[key, pusher]}"
        last[key, pusher] = int(number)
    return None


def check(history):
    """Every promise that this history breaks, in words."""
    wrong = list(history["failed"])
    if history["stopped"] != 0:
        wrong.append(f"the server ended with {history['stopped']}")
    once = [name for name, _, _ in history["pushed"]]
    if len(set(once)) != len(once) or len({job for _, _, job in history["pushed"]}) != len(once):
        wrong.append("two pushes got one id, or one push two")
    for name, _, job in history["pushed"]:
        if history["results"].get(name) != f"did {name}":
            wrong.append(f"lost: {name} (job {job}) ended with {history['results'].get(name)!r}")
    for name, result in history["called"]:
        if result != f"did {name}":
            wrong.append(f"wrong caller: {name} received {result!r}")
    emitted = collections.Counter(body for _, body in history["emitted"])
    wrong += [f"twice: {body} was emitted {n} times" for body, n in emitted.items() if n > 1]
    for name in set(once) - set(emitted):
        wrong.append(f"lost: what {name} emitted")
    disorder = numbers_in_order(history["emitted"])
    if disorder:
        wrong.append(f"order: {disorder}")
    wrong += check_counts(history)
    return wrong


def check_counts(history):
    """A channel's state counts its commits: two commits of one count ran side by side."""
    wrong, seen = [], {}
    for job, key, _, count in history["commits"]:
        if key and seen.setdefault((key, count), job) != job:
            wrong.append(f"overlap: jobs {seen[key, count]} and {job} of {key} both were number {count}")
    for key in {key for key, _ in history["emitted"] if key}:
        ended = sum(1 for other, _ in history["emitted"] if other == key)
        counts = [count for _, other, _, count in history["commits"] if other == key]
        if counts and max(counts) > ended:
            wrong.append(f"twice: {key} counted {max(counts)} commits of {ended} jobs")
    return wrong


def spoil(history):
    """Histories in which one thing went wrong, by what the checker has to report."""
    def changed(change):
        other = copy.deepcopy(history)
        change(other)
        return other

    keyed = [i for i, (key, _) in enumerate(history["emitted"]) if key]
    pusher = lambda i: (history["emitted"][i][0], history["emitted"][i][1].rsplit("-", 1)[0])
    a, b = next((i, j) for i in keyed for j in keyed if i < j and pusher(i) == pusher(j))

    def swap(h):
        h["emitted"][a], h["emitted"][b] = h["emitted"][b], h["emitted"][a]

    def overlap(h):
        job, key, body, count = next(c for c in h["commits"] if c[1])
        h["commits"].append((job + 10**9, key, body, count))

    name = history["pushed"][0][0]
    return {
        "lost": changed(lambda h: h["results"].update({name: None})),
        "twice": changed(lambda h: h["emitted"].append(h["emitted"][keyed[0]])),
        "order": changed(swap),
        "overlap": changed(overlap),
        "wrong caller": changed(lambda h: h["called"].append(("c9-0", "did c9-1"))),
    }


# ---- TAP --------------------------------------------------------------------------------------

def checked(seed, shards, seconds):
    """One run: its cases. With several shards the same promises hold: what is emitted travels from
    one to another."""
    history = record(seed, shards, seconds)
    wrong = check(history)
    print(f"# seed {seed}, shards {shards}: {len(history['pushed'])} pushes, "
          f"{len(history['called'])} calls, {len(history['taken'])} leases, {history['kills']} kills")
    for text in wrong[:20]:
        print(f"# {text}")
    where = "" if shards == 1 else f"_between_{shards}_shards"
    cases = [(f"F1_F2_F4_kills_lose_and_double_nothing{where}", not wrong and history["kills"] > 0)]
    for what, spoilt in ({} if wrong or shards > 1 else spoil(history)).items():
        noticed = any(text.startswith(what) for text in check(spoilt))
        cases.append((f"the_checker_notices_{what.replace(' ', '_')}", noticed))
    return cases


def main():
    seed, seconds = int(os.environ.get("MILLRACE_SEED", time.time_ns() % 10**9)), SECONDS if LONG else 4
    cases = checked(seed, 1, seconds / 2) + checked(seed, 3, seconds / 2)
    print(f"1..{len(cases)}")
    for i, (name, good) in enumerate(cases, 1):
        print(f"{'ok' if good else 'not ok'} {i} - {name}")
    sys.exit(0 if all(good for _, good in cases) else 1)


main()
