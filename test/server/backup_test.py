#!/usr/bin/env python3
"""backup_test.py BUILD: millrace store copy millrace://… copies the store of a server that is being used. Speaks TAP;
nothing waits for time to pass."""
import json
import os
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Server, path, write
from tap import MILLRACE, case, check, equal, main

STAGES = "s2", "s3", "s0"  # with three shards, of each one
KEYS, BATCH, ROUNDS = 7, 50, 3


def copy(server, name, *options, code=0, **more):
    done = subprocess.run([MILLRACE, "store", "copy", server.url, f"file:{path(name)}", *options],
                          capture_output=True, text=True, **more)
    equal(done.returncode, code, done.stdout, done.stderr)
    return done.stderr


def stages_of(name):
    """The stages of a store that no process uses, by name."""
    listed = subprocess.run([MILLRACE, "stages", "--json", "--at", f"file:{path(name)}"], check=True,
                            capture_output=True, text=True).stdout
    return {stage["name"]: stage for stage in json.loads(listed)}


def end_all(client, i, jobs):
    """Ends jobs of the stage with this index; each emits a job to the next stage."""
    for job in jobs:
        emit = ["EMIT", STAGES[i + 1], job[3], job[4]] if i + 1 < len(STAGES) else []
        client.send("DONE", job[0], job[1], *emit)
    for _ in jobs:
        equal(client.receive(), "OK")


class Load:
    """A producer of numbered jobs for the first stage, and for each stage a worker, which emits to the next one. The
    workers end after the producer, which waits for room."""

    def __init__(self, server):
        self.server, self.over, self.failed, self.pushed = server, threading.Event(), [], 0
        self.threads = [threading.Thread(target=self.guarded, args=(self.produce,))]
        self.threads += [threading.Thread(target=self.guarded, args=(self.work, i)) for i in range(len(STAGES))]

    def guarded(self, function, *args):
        try:
            function(Client(self.server), *args)
        except Exception as error:
            self.failed.append(error)

    def produce(self, client):
        client.ask("STAGE", STAGES[0], "max-jobs", 10 * BATCH)
        while not self.over.is_set():
            for n in range(self.pushed, self.pushed + BATCH):
                client.send("PUSH", STAGES[0], n, "KEY", n % KEYS, "ROOM", -1)
            for _ in range(BATCH):
                client.receive()
            self.pushed += BATCH

    def work(self, client, i):
        while self.threads[0].is_alive():
            end_all(client, i, client.ask("TAKE", STAGES[i], "COUNT", BATCH, "WAIT", 20))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        check(not self.failed, *self.failed)


def check_instant(name, least, most):
    """Every job of a stage that is done has emitted one, which is there; and nothing else is."""
    found = stages_of(name)
    for stage, following in zip(STAGES, STAGES[1:]):
        equal(found[stage]["done"], found[following]["pushed"], found)
    check(least <= found[STAGES[0]]["pushed"] <= most, least, found, most)


def work_all_off(name):
    """All that was pushed ends once, in the order of its key, when a server works on the copy."""
    pushed = stages_of(name)[STAGES[0]]["pushed"]
    with Server("--sync", "none", "--store", f"file:{path(name)}") as server:
        client = Client(server)
        for i, stage in enumerate(STAGES):
            last = {}
            while jobs := client.ask("TAKE", stage, "COUNT", BATCH):
                for job in jobs:
                    check(int(job[4]) > last.get(job[3], -1), f"{job} after {last.get(job[3])}")
                    last[job[3]] = int(job[4])
                end_all(client, i, jobs)
    equal(stages_of(name)[STAGES[-1]]["done"], pushed)


def back_up_under_load(name, *options):
    with Server("--sync", "none", *options) as server:
        with Load(server) as load:
            while not load.pushed:
                pass
            for i in range(ROUNDS):
                least = load.pushed
                copy(server, f"{name}-{i}")
                check_instant(f"{name}-{i}", least, load.pushed + 2 * BATCH)
    work_all_off(f"{name}-0")


@case
def G14_a_backup_under_load_is_of_one_instant():
    back_up_under_load("one", "--store", f"file:{path('one')}", "--loops", "1")


@case
def G14_so_it_is_over_shards_and_loops():
    back_up_under_load("three", "--store", f"file:{path('three')}", "--loops", "3", "--shards", "3")


@case
def G14_so_it_is_of_a_store_in_memory():
    back_up_under_load("memory", "--store", "mem:", "--loops", "3", "--shards", "3")


@case("G14: a backup has all that a stage may have: dead jobs with reasons, delayed ones, names, states, results, epics")
def everything():
    with Server("--store", "mem:") as server:
        client = Client(server)
        for n in range(40):
            client.ask("PUSH", "mail", f"{n}" * 200, "KEY", n % 5, "ONCE", n, "ATTEMPTS", 2, "EPIC", "e", n + 1)
        for n in range(20):
            [job] = client.ask("TAKE", "mail")
            if n % 2:
                client.ask("FAIL", job[0], job[1], f"reason {n}", "RETRY", 0)
            else:
                client.ask("DONE", job[0], job[1], "RESULT", "r" * n, "STATE", f"state {n}")
        client.ask("PUSH", "mail", "later", "DELAY", 10**8)
        client.ask("STAGE", "mail", "lease", "77s")
        client.ask("PAUSE", "other")
        shown = [client.ask(*words) for words in looks()]
        copy(server, "all")
    with Server("--store", f"file:{path('all')}") as server:
        client = Client(server)
        for words, before in zip(looks(), shown):
            equal(without_times(client.ask(*words)), without_times(before), words)


def looks():
    yield from (("JOBS", "mail", "STATUS", s, "COUNT", 100) for s in ("waiting", "delayed", "dead", "done"))
    yield from (("STAGE", "mail"), ("STAGE", "other"), ("EPIC", "mail", "e"), ("DEAD",))


def without_times(reply):
    """Rows without what depends on the time at which they are asked for."""
    if not isinstance(reply, list):
        return reply
    if reply and isinstance(reply[0], str) and len(reply) % 2 == 0:
        return [[name, without_times(value)] for name, value in zip(reply[::2], reply[1::2])
                if not str(name).endswith("-ms") and name != "held-by"]
    return [without_times(row) for row in reply]


# ---- Refusals ----------------------------------------------------------------------------------


@case("G14: one backup at a time; it ends with END, and with its connection")
def one_at_a_time():
    with Server("--store", "mem:") as server:
        first, second = Client(server), Client(server)
        first.ask("PUSH", "mail", "x")
        [[shard, head, end, size]] = first.ask("BACKUP", "BEGIN")
        check(shard == 0 and 0 < head < end and size > 0, head, end)
        check("another backup is under way" in second.refused("BUSY", "BACKUP", "BEGIN"))
        check("another backup is under way" in copy(server, "busy", code=3))
        check(not os.path.exists(path("busy")))
        equal(first.ask("BACKUP", "END"), "OK")
        second.refused("ERR", "BACKUP", 0, head)
        second.ask("BACKUP", "BEGIN")
        second.ask("BACKUP", "BEGIN")  # of the same connection: anew
        second.close()
        while True:  # the server notices that soon
            try:
                first.ask("BACKUP", "BEGIN")
                break
            except Exception as error:
                check("BUSY" in str(error), error)
        first.refused("ERR", "BACKUP", 1, head)
        first.refused("ERR", "BACKUP", "x", head)
        first.refused("ERR", "BACKUP", 0, head, "TAILS")
        first.refused("ERR", "BACKUP", "PLEASE")


@case("G14: a token needs the role admin for all stages")
def rights():
    secrets = {}
    for name, role, stages in ("few", "admin", "s2"), ("reader", "read", "*"), ("all", "admin", "*"):
        secrets[name] = subprocess.run(
            [MILLRACE, "auth", "add", name, "--role", role, "--stages", stages, "--auth", path("tokens")], check=True,
            capture_output=True, text=True).stdout.split()[-1]
    with Server("--store", "mem:", "--auth", path("tokens")) as server:
        for name in "few", "reader":
            copy(server, "refused", code=4, env=dict(os.environ, MILLRACE_TOKEN=secrets[name]))
            check(not os.path.exists(path("refused")))
        copy(server, "permitted", env=dict(os.environ, MILLRACE_TOKEN=secrets["all"]))


@case("G14: a target that holds something stays as it is, and so does a server that cannot be copied")
def targets():
    with Server("--store", "mem:") as server:
        Client(server).ask("PUSH", "mail", "x")
        copy(server, "kept")
        before = stages_of("kept")["mail"]["pushed"]
        check("kept" in copy(server, "kept", code=3))
        equal(stages_of("kept")["mail"]["pushed"], before)
        os.mkdir(path("full"))
        write("full/file", "of somebody")
        copy(server, "full", code=3)
        equal(os.listdir(path("full")), ["file"])
        url = server.url
    gone = subprocess.run([MILLRACE, "store", "copy", url, f"file:{path('none')}"], capture_output=True, text=True)
    equal(gone.returncode, 3, gone.stderr)
    check(not os.path.exists(path("none")))


if __name__ == "__main__":
    main()
