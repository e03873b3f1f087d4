#!/usr/bin/env python3
"""durable_test.py BUILD: what a real server keeps when it is killed at any instant: numbers that were sent
ahead of the replies, leases that hold over a restart, a token's share. Clients say everything over the wire.
The disk waits where a test wants it to (faulty.c), so that the same happens in every run."""
import binascii
import itertools
import json
import os
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Faulty, Refused, Server, path
from tap import MILLRACE, TIMEOUT_S, case, check, equal, main

NUMBERS = 3000


def killed(server):
    """Ends a server at once, and starts it again on its store and address."""
    server.signal(signal.SIGKILL)
    server.ends(-signal.SIGKILL)
    server.start()


# ---- Numbers sent ahead of the replies ---------------------------------------------------------

def send_ahead(client, kind, numbers):
    """Sends all of these pushes without reading a reply."""
    for number in numbers:
        client.send("PUSH", "s", f"body {number}", kind, "e", number)


def receive_accepted(client):
    """How many were accepted, of the replies that came before the connection was lost."""
    count = 0
    try:
        while True:
            client.receive()
            count += 1
    except (AssertionError, OSError):
        return count


def push_again(client, kind, first):
    """Pushes from this number on, and reads every reply."""
    send_ahead(client, kind, range(first, NUMBERS + 1))
    for _ in range(first, NUMBERS + 1):
        client.receive()


def kill_while_sending(kind, syncs):
    """Sends all numbers ahead, in as many pieces as the disk syncs meanwhile and one more, and kills the
    server in the middle of the next sync. The server that came back, and how many it had accepted."""
    server = Faulty(f"ahead-{kind}-{syncs}")
    client = Client(server)
    client.ask("STAGE", "s", "max-jobs", NUMBERS)  # the stage is on disk
    server.order("sync gate")
    size = NUMBERS // (syncs + 1)
    for piece in range(syncs):
        send_ahead(client, kind, range(piece * size + 1, piece * size + size + 1))
        server.arrives()
        server.let_go()
    send_ahead(client, kind, range(syncs * size + 1, NUMBERS + 1))
    server.arrives()
    server.order()
    killed(server)
    return server, receive_accepted(client)


def resume_of(client):
    try:
        reply = client.ask("EPIC", "s", "e")
    except Refused as error:
        check(str(error).startswith("GONE"), error)
        return 1
    return reply[reply.index("resume") + 1]


def has_each_once(server):
    equal(Client(server).work_off("s", 100), [f"body {n}" for n in range(1, NUMBERS + 1)])
    server.stop()


# U17: whatever was sent ahead of the replies, an epic goes on at its resume point.
@case
def U17_an_epic_sent_ahead_of_its_replies_survives_a_kill():
    for syncs in (0, 1, 2, 5):
        server, accepted = kill_while_sending("EPIC", syncs)
        client = Client(server)
        resume = resume_of(client)
        check(accepted < resume <= NUMBERS + 1, f"{accepted} were accepted, and it goes on with {resume}")
        push_again(client, "EPIC", resume)
        equal(resume_of(client), NUMBERS + 1)
        has_each_once(server)


# U17: a client's source goes on behind the last reply that it has read.
@case
def U17_a_source_sent_ahead_of_its_replies_survives_a_kill():
    for syncs in (0, 1, 2, 5):
        server, accepted = kill_while_sending("SOURCE", syncs)
        push_again(Client(server), "SOURCE", accepted + 1)
        has_each_once(server)


# ---- Leases that hold over a restart -----------------------------------------------------------

LEASE = 3000  # ms


def fields_of(client, job):
    reply = client.ask("JOB", job)
    return dict(zip(reply[::2], reply[1::2]))


def stays_leased_until_its_end(server, stage, take):
    """A job taken with these options is not taken again before the end of its lease, measured by the time since
    its push, which was before the take."""
    client = Client(server)
    job = client.ask("PUSH", stage, "a", "KEY", "k")
    client.ask("PUSH", stage, "b", "KEY", "k")
    [[taken, *_]] = client.ask("TAKE", stage, "LEASE", LEASE, *take)
    equal(taken, job)
    killed(server)
    client = Client(server)
    [[again, *_]] = client.ask("TAKE", stage, "WAIT", TIMEOUT_S * 1000)
    equal(again, job)  # nothing overtakes it either
    age = fields_of(client, job)["age-ms"]
    check(age >= LEASE, f"taken again {age} ms after its push, before its lease of {LEASE} ms has ended")


# U21: a job taken DETACHED is not handed out again before its lease ends.
@case
def U21_a_detached_lease_holds_over_a_kill():
    server = Server("--store", f"file:{path('detached')}")
    stays_leased_until_its_end(server, "s", ["DETACHED"])
    server.stop()


# U21: nor is one of a stage whose leases never overlap, whose connection went with the server.
@case
def U21_overlap_never_holds_over_a_kill():
    server = Server("--store", f"file:{path('never')}")
    Client(server).ask("STAGE", "s", "overlap", "never")
    stays_leased_until_its_end(server, "s", [])
    server.stop()


# U21: the worker has not noticed, and its commit counts.
@case
def U21_a_token_is_good_after_a_kill():
    server = Server("--store", f"file:{path('token')}")
    client = Client(server)
    client.ask("STAGE", "never", "overlap", "never")
    for stage, take in (("s", ["DETACHED"]), ("never", [])):
        client = Client(server)
        job = client.ask("PUSH", stage, "a", "KEY", "k")
        client.ask("PUSH", stage, "b", "KEY", "k")
        [[_, token, *_]] = client.ask("TAKE", stage, "LEASE", TIMEOUT_S * 1000, *take)
        killed(server)
        client = Client(server)
        equal(client.ask("TAKE", stage), [])
        equal(client.ask("DONE", job, token, "RESULT", "r"), "OK")
        equal(client.ask("AWAIT", job), "r")
        equal(client.work_off(stage), ["b"])
    server.stop()


# ---- Refusals before the store is there --------------------------------------------------------

def refuse_while_loading(name, *options):
    server = Faulty(name, *options)
    Client(server).ask("PUSH", "s", "there before")
    server.stop()
    server.order("open gate")
    server.start(ready=False)
    server.listens()
    server.arrives()
    epic, source, called = Client(server), Client(server), Client(server)
    epic.refused("LOADING", "PUSH", "s", "1", "EPIC", "e", 1)
    source.refused("LOADING", "PUSH", "s", "1", "SOURCE", "c", 1)
    called.refused("LOADING", "CALL", "s", "1", "SOURCE", "d", 1)
    server.order()
    server.let_go()
    server.wait_notice("ready")
    for client, words in ((epic, ("PUSH", "s", "x", "EPIC", "e")), (source, ("PUSH", "s", "x", "SOURCE", "c")),
                          (called, ("CALL", "s", "x", "SOURCE", "d"))):
        client.refused("GAP 1", *words, 2)
    equal(epic.ask("PUSH", "s", "1", "EPIC", "e", 1), "2")
    equal(epic.ask("PUSH", "s", "2", "EPIC", "e", 2), "3")
    equal(source.ask("PUSH", "s", "1", "SOURCE", "c", 1), "4")
    equal(source.ask("PUSH", "s", "2", "SOURCE", "c", 2), "5")
    worker = Client(server)
    equal(worker.work_off("s"), ["there before", "1", "2", "1", "2"])
    for number in (1, 2):
        called.send("CALL", "s", f"call {number}", "SOURCE", "d", number)
        [[job, token, _, _, body, *_]] = worker.ask("TAKE", "s", "WAIT", TIMEOUT_S * 1000)
        equal(body, f"call {number}")
        equal(worker.ask("DONE", job, token, "RESULT", "r"), "OK")
        equal(called.receive(), "r")
    server.stop()


# U18: a number that is refused because the store is still being read holds its source.
@case
def U18_a_refusal_while_loading_holds_its_source():
    refuse_while_loading("loading")


# U18: also where another loop than the connection's has the stage.
@case
def U18_a_refusal_while_loading_holds_its_source_in_every_loop():
    refuse_while_loading("loading-loops", "--shards", "1", "--loops", "3")


# ---- The job of an epic's THEN -----------------------------------------------------------------

def end_at(server, client, job, gate, passed):
    """Commits the last job, and kills the server before a call to the disk: as many of these calls have gone on."""
    server.order(f"{gate} gate")
    client.send("DONE", *job)
    for _ in range(passed):
        server.arrives()
        server.let_go()
    server.arrives()
    server.order()
    killed(server)


def kill_before_then(name, shards, gate, passed):
    """Kills a server on the way from the commit that ends an epic to the job of its THEN. Whether the commit is kept."""
    server = Faulty(name, "--shards", str(shards))
    target = next(stages_in([shards - 1], "then-", shards))
    client = Client(server)
    for number in (1, 2):
        client.ask("PUSH", "b", "x", "EPIC", "e", number)  # b is in shard 0
    client.ask("EPIC", "b", "e", "END", 2)
    client.ask("EPIC", "b", "e", "THEN", target, "k", "it is over")
    [[job, token, *_], last] = client.ask("TAKE", "b", "COUNT", 2)
    client.ask("DONE", job, token)
    client.ask("PUSH", target, "before", "KEY", "k")  # its stage is known, too
    end_at(server, client, last[:2], gate, passed)
    client = Client(server)
    kept = fields_of(client, last[0])["status"] == "done"
    if not kept:
        equal(client.work_off("b"), ["x"])
    # What is emitted to a shard arrives in order, so nothing comes behind this any more.
    client.ask("PUSH", "b", "y")
    [[job, token, *_]] = client.ask("TAKE", "b")
    client.ask("DONE", job, token, "EMIT", target, "k", "after")
    bodies = []
    while "after" not in bodies:
        [[job, token, _, _, body, *_]] = client.ask("TAKE", target, "WAIT", TIMEOUT_S * 1000)
        client.ask("DONE", job, token)
        bodies.append(body)
    equal(bodies, ["before", "it is over", "after"])
    killed(server)
    client = Client(server)
    equal(client.ask("TAKE", target), [])
    epic = client.ask("EPIC", "b", "e")
    equal(epic[epic.index("then-pushed") + 1], 1)
    server.stop()
    return kept


# G4: wherever the server is killed after the last commit of an epic, its THEN is pushed once.
@case
def G4_a_kill_before_THEN_pushes_it_once():
    for shards, gates in (1, ("write 0", "sync 0")), (2, ("write 0", "sync 0", "write 1", "sync 1")):
        kept = [kill_before_then(f"then-{shards}-{gate.replace(' ', '-')}", shards, *gate.split()[:1], int(gate[-1]))
                for gate in gates]
        equal(kept, [gate != "write 0" for gate in gates])  # else it was not killed where it should be


# ---- A token's share ---------------------------------------------------------------------------

SHARE = 2500  # of 10,000 sources


def make_token(name, roles="push,read", *more):
    done = subprocess.run([MILLRACE, "auth", "add", name, "--role", roles, "--auth", path("tokens"), *more],
                          capture_output=True, text=True, timeout=TIMEOUT_S)
    equal(done.returncode, 0, done.stderr)
    return done.stdout.split()[-1]


def makers_in(store):
    """The creator of each stage and epic, as the store's dump says: by kind and name."""
    done = subprocess.run([MILLRACE, "store", "dump", f"file:{path(store)}", "--json"], capture_output=True,
                          text=True, timeout=TIMEOUT_S)
    equal(done.returncode, 0, done.stderr)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return {(r["kind"], r["name"] if r["kind"] == "source" else r["stage"]): r["made-by"]
            for r in records if "made-by" in r}


# U7, U22: what a token has made counts after a restart, and for no other.
@case
def U7_U22_a_tokens_share_counts_over_restarts():
    greedy, other = make_token("greedy"), make_token("other")
    server = Server("--store", f"file:{path('share')}", "--auth", path("tokens"))
    client = Client(server)
    equal(client.ask("AUTH", greedy), "OK")
    for number in range(SHARE):
        client.send("PUSH", "s", "x", "EPIC", f"e{number}", 1)
    for _ in range(SHARE):
        client.receive()
    for _ in range(2):
        client.refused("FULL this token uses 2500", "PUSH", "s", "x", "EPIC", "another", 1)
        killed(server)
        client = Client(server)
        equal(client.ask("AUTH", greedy), "OK")
    client.refused("FULL this token uses 2500", "PUSH", "s", "x", "EPIC", "another", 1)
    client = Client(server)
    equal(client.ask("AUTH", other), "OK")
    check(client.ask("PUSH", "s", "x", "EPIC", "another", 1))
    server.stop()
    made = makers_in("share")
    equal(made.pop(("stage", "s")), made[("source", "e0")])
    check(made.pop(("source", "another")) not in made.values(), "both tokens are one in the store")
    equal((len(made), len(set(made.values()))), (SHARE, 1))


# G13: jobs count for the token that has pushed them, also after the server was killed.
@case
def G13_a_quota_counts_over_restarts():
    tenant = make_token("tenant", "push,work", "--max-jobs", "3", "--max-bytes", "100")
    server = Server("--store", f"file:{path('quota')}", "--shards", "2", "--auth", path("tokens"))
    client = Client(server)
    equal(client.ask("AUTH", tenant), "OK")
    for stage in "abc":
        client.ask("PUSH", stage, "x" * 10)
    for _ in range(2):
        client.refused("FULL token 'tenant' has 3 jobs, and its max-jobs is 3", "PUSH", "a", "x")
        killed(server)
        client = Client(server)
        equal(client.ask("AUTH", tenant), "OK")
    client.work_off("b")
    killed(server)
    client = Client(server)
    equal(client.ask("AUTH", tenant), "OK")
    client.refused("FULL token 'tenant' has 20 bytes, this job has 81", "PUSH", "a", "x" * 81)
    client.ask("PUSH", "a", "x" * 80)
    server.stop()


SHARDS = 3
COMMITS = 120  # before each kill
EMITS = 16  # in a commit: as many empty stages as a push removes at once


def stages_in(shards, prefix, count=SHARDS):
    """Ever new names of stages in these shards, of so many."""
    for number in itertools.count():
        name = f"{prefix}{number}"
        if binascii.crc_hqx(name.encode(), 0) % 16384 * count // 16384 in shards:
            yield name


def emit_to_new_stages(client, here, elsewhere):
    """Emits to other shards. Pushes to the shard of the worker remove what is empty there. The last commit is not answered."""
    for number in range(COMMITS):
        client.ask("PUSH", "b", "x")
        ((job, token, *_),) = client.ask("TAKE", "b")
        client.send("DONE", job, token, *(word for _ in range(EMITS) for word in ("EMIT", next(elsewhere), "", "x")))
        client.send("PUSH", next(here), "x")
        for _ in range(2 if number < COMMITS - 1 else 0):
            try:
                client.receive()
            except Refused as refused:
                check("FULL this token has made" in str(refused), refused)


def count_stages(client):
    rows = client.ask("STAGES")
    count = 0
    while rows:
        count += len(rows)
        rows = client.ask("STAGES", "FROM", rows[-1][1])
    return count


# U7, U22: with several shards, too, a token that emits has no more than its share, wherever the server is killed.
@case
def U7_U22_a_share_of_several_shards_counts_over_restarts():
    greedy = make_token("emitter", "push,work,read")
    server = Server("--store", f"file:{path('shards')}", "--shards", str(SHARDS), "--auth", path("tokens"))
    here, elsewhere = stages_in([0], "here-"), stages_in([1, 2], "there-")  # b is in shard 0
    for _ in range(4):
        client = Client(server)
        equal(client.ask("AUTH", greedy), "OK")
        emit_to_new_stages(client, here, elsewhere)
        killed(server)
    client = Client(server)
    equal(client.ask("AUTH", greedy), "OK")
    made = count_stages(client)
    check(SHARE / 2 < made <= SHARE, made)
    server.stop()


main()
