#!/usr/bin/env python3
"""release_test.py BUILD: this version opens the stores that earlier releases have written, and finds everything in them.
test/data/release-0.2/make.py has made them; what it did is what is expected here."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(os.path.join(HERE, "../support"))
from format_reader import Format, read_store
from running import wait_until
from served import Client, Server, path
from tap import MILLRACE, case, check, equal, main

KEPT = os.path.join(HERE, "../data/release-0.2")
PAGE = os.path.join(HERE, "../../docs/format.md")
STORES = ["written", "copied"]
ONLY_READ = {9}  # kinds that only versions before 0.2 have written
AGES_MS = 90 * 365 * 24 * 3600 * 1000  # jobs were delayed for 100 years
times = iter(range(1000))


def a_copy(name):
    """The stores stay as they are."""
    copy = path(f"{name}-{next(times)}")
    shutil.copytree(os.path.join(KEPT, name), copy)
    return copy


def as_map(flat):
    return dict(zip(flat[::2], flat[1::2]))


def jobs(client, stage):
    """Key, status and body of each job, in the order of JOBS."""
    found = [as_map(client.ask("JOB", as_map(job)["id"], "BODY")) for job in client.ask("JOBS", stage)]
    return [(job["key"], job["status"], job["result" if job["status"] == "done" else "body"]) for job in found]


def of_each(sentence):
    """A case for each store, with a client of a server that has opened a copy of it."""
    def add(function):
        for name in STORES:
            @case(f"{sentence} ({name})")
            def _(name=name):
                with Server("--store", f"file:{a_copy(name)}") as server:
                    function(Client(server))
    return add


def add_check(name):
    @case(f"store check finds no damage ({name})")
    def _():
        checked = subprocess.run([MILLRACE, "store", "check", f"file:{a_copy(name)}"], capture_output=True, text=True)
        equal(checked.returncode, 0, checked)


for each in STORES:
    add_check(each)


@case("every record is as docs/format.md describes it, and every kind occurs")
def _():
    found = {record["kind number"] for name in STORES for record, _ in read_store(PAGE, os.path.join(KEPT, name))}
    equal(found, set(Format(PAGE).kinds) - ONLY_READ)


@of_each("jobs are there in their order, with bodies, delays and attempts")
def _(client):
    later = [("", "delayed", "later")] * 3
    equal(jobs(client, "mail"), [
        *[("ann", "waiting", "first")] * 3, ("jan", "waiting", "called"), ("kim", "waiting", "new"), ("nightly", "waiting", "all"),
        *later, ("bob", "done", "yes")])
    delayed = [as_map(job) for job in client.ask("JOBS", "mail", "STATUS", "delayed")]
    equal({job["attempts"] for job in delayed}, {7})
    check(all(job["due-ms"] > AGES_MS for job in delayed), delayed)
    equal(jobs(client, "print"), [("lea", "waiting", "emitted"), ("lea", "waiting", "emitted"), ("nat", "waiting", "emitted")])
    equal([job[9] for job in client.ask("TAKE", "mail", "COUNT", 9, "BATCH", 9)][:3], ["", "trace", ""])


@of_each("dead, retried, released, paused and cancelled jobs are what they were")
def _(client):
    found = {job["key"]: job for job in map(as_map, client.ask("JOBS", "orders"))}
    equal({key: job["status"] for key, job in found.items()},
          {"carl": "dead", "dora": "waiting", "fred": "waiting", "gus": "waiting", "hugo": "waiting", "": "cancelled"})
    reason = as_map(found["carl"]["reasons"][0])
    equal((reason["text"], reason["output"]), ("no dead", "line one\nline two"))
    check(found["gus"]["due-ms"] > AGES_MS, "a snooze holds")
    equal(sorted(job[3] for job in client.ask("TAKE", "orders", "COUNT", 9)), ["dora", "fred"], "hugo is paused, gus snoozes")
    client.ask("RESUME", "orders", "KEY", "hugo")
    equal(client.ask("TAKE", "orders")[0][4], "paused")
    client.ask("PUSH", "orders", "behind", "KEY", "carl")
    equal(client.ask("TAKE", "orders"), [], "a dead job halts its key")


@of_each("a job whose engine was killed has one attempt more, a detached one its own")
def _(client):
    killed, detached = (as_map(client.ask("JOBS", stage)[0]) for stage in ("killed", "detached"))
    equal((killed["status"], killed["attempt"]), ("waiting", 1))
    equal(as_map(killed["reasons"][0])["text"], "the engine died while it ran")
    equal(detached["attempt"], 1)


@of_each("results and states are kept")
def _(client):
    done = next(as_map(job) for job in client.ask("JOBS", "mail", "STATUS", "done"))
    equal(client.ask("AWAIT", done["id"]), "yes")
    equal([client.ask("AWAIT", as_map(job)["id"]) for job in client.ask("JOBS", "post")], ["sent"] * 3)
    client.ask("PUSH", "post", "next", "KEY", "lea")
    equal(client.ask("TAKE", "post")[0][7], "1 letter")


@of_each("names of pushes and numbers of sources are remembered")
def _(client):
    count = len(client.ask("JOBS", "mail"))
    done = next(as_map(job) for job in client.ask("JOBS", "mail", "STATUS", "done"))
    equal(client.ask("PUSH", "mail", "x", "KEY", "bob", "ONCE", "bob-1"), done["id"])
    client.ask("PUSH", "mail", "x", "KEY", "kim", "ONCE", "debounced")
    equal(len(client.ask("JOBS", "mail")), count)
    client.ask("PUSH", "named", "x", "KEY", "quinn", "ONCE", "kept")
    equal(client.ask("JOBS", "named"), [], "its job is forgotten, its name is not")
    before = len(client.ask("JOBS", "lines"))
    client.ask("PUSH", "lines", "x", "EPIC", "june", 2)
    equal(len(client.ask("JOBS", "lines")), before)


@of_each("an epic goes on, and pushes its job at its end")
def _(client):
    epic = as_map(client.ask("EPIC", "lines", "june"))
    equal([epic[name] for name in ("resume", "total", "accepted", "waiting", "done", "then", "then-pushed")], [4, 3, 3, 2, 1, "report", 0])
    client.refused("GONE", "EPIC", "lines", "july")
    equal(client.work_off("lines"), ["line 2", "line 3", "gone", "numbered"])
    equal(as_map(client.ask("EPIC", "lines", "june"))["then-pushed"], 1)
    equal(jobs(client, "report"), [("r", "waiting", "june is over")])
    equal(as_map(client.ask("EPIC", "acme.mail", "acme"))["accepted"], 1)


@of_each("schedules are there, with their times and pauses")
def _(client):
    nightly, hourly = map(as_map, client.ask("SCHEDULES"))
    equal([nightly[name] for name in ("stage", "name", "cron", "tz", "missed", "paused", "pushed", "key")],
          ["mail", "nightly", "30 2 * * *", "Europe/Berlin", "skip", 1, 1, "nightly"])
    equal([hourly[name] for name in ("stage", "name", "every-ms", "paused", "pushed")], ["acme.mail", "hourly", 3600000, 1, 0])
    client.ask("SCHEDULE", "acme.mail", "hourly", "NOW")
    wait_until(lambda: ("", "waiting", "tick") in jobs(client, "acme.mail"), "the tick")  # its body may have to be read first


@of_each("policies are those that were set")
def _(client):
    policy = as_map(client.ask("STAGE", "tuned"))
    expected = {"max-jobs": "9", "max-channel": "8", "lease": "120000", "attempts": "3", "backoff": "2000..60000", "overlap": "never",
                "concurrency": "5", "rate": "100/s", "max-states": "7", "state-ttl": "3600000", "high-mark": "77", "group": "on",
                "group-concurrency": "2", "group-rate": "50/s"}
    equal({name: policy[name] for name in expected}, expected)
    check("removed" not in [as_map(stage)["name"] for stage in client.ask("STAGES")], "a stage that was removed")


def add_quota(name):
    @case(f"jobs still count for the token that has pushed them ({name})")
    def _():
        added = subprocess.run([MILLRACE, "auth", "add", "acme", "--role", "admin", "--max-jobs", "9", "--auth", path(f"{name}.tokens")],
                               capture_output=True, text=True, check=True)
        with Server("--store", f"file:{a_copy(name)}", "--auth", path(f"{name}.tokens")) as server:
            client = Client(server)
            client.ask("AUTH", added.stdout.split()[-1])
            wait_until(lambda: client.info()["used_jobs"] == "7", "the count of 7")  # when emits have arrived


for each in STORES:
    add_quota(each)

main()
