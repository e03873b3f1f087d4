#!/usr/bin/env python3
"""make.py BUILD: made the stores beside it with the command of 0.2.0, once: `written`, as a server left it that was
killed, and `copied`, which millrace store copy made of that. They are kept as they are, so that later versions must open them:
test/cli/release_test.py says what is in them. A store of a later format gets a folder of its own."""
import collections
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(os.path.join(HERE, "../../support"))
from format_reader import Format, read_store
from running import wait_until
from served import Client, Server, path
from tap import BUILD, MILLRACE

PAGE = os.path.join(HERE, "../../../docs/format.md")
AGES = "36500d"  # so that nothing ends by itself before the store is opened again
STORE = path("written")
NEAR, FAR = "mail", "print"  # stages of different shards
ONLY_READ = {9}  # numbers of kinds


def ended(client, stage, *more):
    """Takes a job and ends it."""
    job = client.ask("TAKE", stage)[0]
    client.ask("DONE", job[0], job[1], *more)
    return job[0]


def keep_for_ages(client, *stages):
    for stage in stages:
        client.ask("STAGE", stage, "retention", f"{AGES},1000", "dedupe-window", AGES)


def make_empty():
    for shard in range(2):
        os.makedirs(f"{STORE}/shard-{shard}")
        subprocess.run([f"{BUILD}/test/store_story", "small", f"{STORE}/shard-{shard}"], check=True)
    with open(f"{STORE}/shards", "w", encoding="ascii") as file:
        file.write("2 shards by stage\n")


def live_jobs(client, meta):
    """Jobs that the cleaner will copy."""
    client.ask("PUSH", NEAR, "first", "KEY", "ann", *meta)
    client.ask("PUSH", NEAR, "later", "DELAY", AGES, "ATTEMPTS", "7", *meta)
    client.ask("PUSH", NEAR, "answered", "KEY", "bob", "ONCE", "bob-1", *meta)


def forgotten_job(client):
    """Its name is remembered for longer."""
    client.ask("STAGE", "named", "retention", "0ms,0", "dedupe-window", AGES)
    client.ask("PUSH", "named", "forgotten", "ONCE", "kept", "KEY", "quinn")
    ended(client, "named")


def fill(client):
    """Writes what is not needed any more, until the first segments are removed."""
    first = [f"{STORE}/shard-{shard}/{0:016x}.seg" for shard in range(2)]
    for stage in "quiet", "noise":
        client.ask("STAGE", stage, "retention", "0ms,0", "dedupe-window", "0ms")

    def removed():
        for stage in "quiet", "noise":
            client.ask("PUSH", stage, "x" * 1000)
            ended(client, stage)
        return not any(map(os.path.exists, first))
    wait_until(removed, "the first segments are removed")


def events(client):
    """One of each that changes a job."""
    client.ask("STAGE", "orders", "attempts", "1", "on-dead", "halt")
    keep_for_ages(client, "orders")
    for body, key in ("dead", "carl"), ("dropped", "emil"), ("retried", "dora"):
        client.ask("PUSH", "orders", body, "KEY", key)
        job = client.ask("TAKE", "orders")[0]
        client.ask("FAIL", job[0], job[1], f"no {body}", "OUTPUT", "line one\nline two")
        if body != "dead":
            client.ask("RETRY" if body == "retried" else "DROP", job[0])
    due = client.ask("PUSH", "orders", "due now", "DELAY", AGES, "KEY", "fred")
    client.ask("DUE", due)
    client.ask("PUSH", "orders", "snoozed", "KEY", "gus")
    for job in client.ask("TAKE", "orders", "COUNT", "10"):
        client.ask("RELEASE", job[0], job[1], *(("DELAY", AGES) if job[4] == "snoozed" else ()))
    client.ask("CANCEL", client.ask("PUSH", "orders", "cancelled"))
    client.ask("PUSH", "orders", "paused", "KEY", "hugo")
    client.ask("PAUSE", "orders", "KEY", "hugo")
    client.ask("PAUSE", "orders", "KEY", "ida")
    client.ask("RESUME", "orders", "KEY", "ida")


def names(server, client):
    """`once`: a call that is then pushed, and a job that is replaced."""
    caller = Client(server)
    caller.send("CALL", NEAR, "called", "ONCE", "call-1", "KEY", "jan")
    wait_until(lambda: client.ask("JOBS", NEAR, "KEY", "jan"), "the call is there")
    client.ask("PUSH", NEAR, "called", "ONCE", "call-1", "KEY", "jan")
    client.ask("PUSH", NEAR, "old", "ONCE", "debounced", "KEY", "kim")
    client.ask("PUSH", NEAR, "new", "ONCE", "debounced", "KEY", "kim", "LAST")


def streams(client):
    keep_for_ages(client, "lines")
    for number in 1, 2, 3:
        client.ask("PUSH", "lines", f"line {number}", "EPIC", "june", number)
    client.ask("EPIC", "lines", "june", "END", 3)
    client.ask("EPIC", "lines", "june", "THEN", "report", "r", "june is over")
    ended(client, "lines", "RESULT", "one")
    client.ask("PUSH", "lines", "gone", "EPIC", "july", 1)
    client.ask("EPIC", "lines", "july", "DROP")
    client.ask("PUSH", "lines", "numbered", "SOURCE", "importer", 1)
    when = ("CRON", "30 2 * * *", "TZ", "Europe/Berlin", "MISSED", "skip")
    client.ask("SCHEDULE", NEAR, "nightly", *when, "PUSH", "all", "KEY", "nightly")
    client.ask("SCHEDULE", NEAR, "nightly", "NOW")
    client.ask("SCHEDULE", NEAR, "nightly", "PAUSE")
    client.ask("SCHEDULE", NEAR, "dropped", "EVERY", "1h", "PUSH", "x")
    client.ask("SCHEDULE", NEAR, "dropped", "DROP")


def emit(client, stage, key, *more):
    client.ask("PUSH", stage, "emits", "KEY", key, *more)
    job = client.ask("TAKE", stage)[0]
    client.ask("DONE", job[0], job[1], "RESULT", "sent", "STATE", "1 letter", "EMIT", FAR, key, "emitted", *more)


def without_tokens():
    with Server("--store", f"file:{STORE}") as server:
        client = Client(server)
        keep_for_ages(client, NEAR, FAR, "post")
        live_jobs(client, ())
        live_jobs(client, ("META", "trace"))
        for job in client.ask("TAKE", NEAR, "COUNT", "9"):
            end = ("DONE", "RESULT", "yes") if job[4] == "answered" else ("RELEASE",)
            client.ask(end[0], job[0], job[1], *end[1:])
        forgotten_job(client)
        fill(client)
        events(client)
        names(server, client)
        streams(client)
        emit(client, "post", "lea")
        emit(client, "post", "lea", "META", "trace")
        client.ask("PUSH", "short", "x")
        client.ask("STAGE", "short", "retention", "0ms,0")
        ended(client, "short")
        client.ask("STAGE", "tuned", "lease", "2m", "attempts", "3", "backoff", "2s..1m", "concurrency", "5", "rate", "100/s",
                   "max-jobs", "9", "max-channel", "8", "overlap", "never", "max-states", "7", "state-ttl", "1h", "high-mark", "77", "group", "on",
                   "group-concurrency", "2", "group-rate", "50/s")
        client.ask("STAGE", "removed", "lease", "1m")
        client.ask("STAGE", "removed", "REMOVE")
        wait_until(lambda: client.ask("JOBS", FAR), "the emits have arrived")


def add_token():
    made = subprocess.run([MILLRACE, "auth", "add", "acme", "--role", "admin", "--max-jobs", "1000", "--auth", path("tokens")],
                          capture_output=True, text=True, check=True)
    return made.stdout.split()[-1]


def with_token():
    """What a token with a quota makes counts for it. Killed while jobs run."""
    secret = add_token()
    server = Server("--store", f"file:{STORE}", "--auth", path("tokens"))
    client = Client(server)
    client.ask("AUTH", secret)
    live_jobs(client, ())
    client.ask("STAGE", "acme.mail", "lease", "49d")
    client.ask("PUSH", "acme.mail", "old", "ONCE", "again", "KEY", "lu")
    client.ask("PUSH", "acme.mail", "new", "ONCE", "again", "KEY", "lu", "LAST")
    client.ask("SCHEDULE", "acme.mail", "hourly", "EVERY", "1h", "PUSH", "tick")
    client.ask("SCHEDULE", "acme.mail", "hourly", "PAUSE")
    client.ask("PUSH", "acme.mail", "numbered", "EPIC", "acme", 1, "KEY", "mo")
    emit(client, "post", "nat")
    wait_until(lambda: len(client.ask("JOBS", FAR)) >= 3, "the emit has arrived")
    client.ask("PUSH", "detached", "detached", "KEY", "ole")
    client.ask("TAKE", "detached", "DETACHED", "LEASE", "1h")
    client.ask("PUSH", "killed", "killed", "KEY", "pia")
    client.ask("TAKE", "killed")
    fill(client)
    server.kill()


def keep(name):
    """Without what is not part of the store."""
    target = os.path.join(HERE, name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(path(name), target, ignore=shutil.ignore_patterns("spare-*", "*.idx*", "lock"))
    for shard in range(2):
        os.truncate(f"{target}/shard-{shard}/running", 4096)  # the rest is empty


make_empty()
without_tokens()
with_token()
subprocess.run([MILLRACE, "store", "copy", f"file:{STORE}", f"file:{path('copied')}"], check=True)
found = collections.Counter(record["kind number"] for store in (STORE, path("copied")) for record, _ in read_store(PAGE, store))
print(dict(sorted(found.items())))
missing = set(Format(PAGE).kinds) - set(found) - ONLY_READ
if missing:
    sys.exit(f"no records of kinds {sorted(missing)}: nothing was kept")
for each in "written", "copied":
    keep(each)
