#!/usr/bin/env python3
"""nats_test.py BUILD: nodes of a cluster with their store in a NATS server of the test's own, and the store
commands on it: as node_test.py, promise_test.py and store_test.py do it with PostgreSQL. Speaks TAP."""
import json
import os
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import answer, bodies, millrace
from nats import Nats, why_no_nats
from nats_cluster import NatsCluster
from running import wait_until
from served import Client, Wire
from tap import BUILD, TIMEOUT_S, case, check, equal, main

if why_no_nats() or millrace("store", "init", "nats://127.0.0.1:1").returncode == 2:
    print(f"1..0 # SKIP {why_no_nats() or 'this build has no NATS'}")
    sys.exit(0)
nats = Nats()


def push(node, *values):
    client = Client(node)
    for value in values:
        client.ask("PUSH", "s", value)
    client.close()


def info_of(node):
    reply = answer(node, "INFO", "CLUSTER").decode()
    return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)


# ---- Nodes -------------------------------------------------------------------------------------


@case
def H1_a_standby_takes_over_in_NATS_when_the_owner_ends_or_is_killed():
    cluster = NatsCluster(nats, nodes=2)
    first, second = cluster.nodes
    push(first, *map(str, range(50)))
    push(second, *map(str, range(50, 60)))  # passed on to the owner
    first.stop()
    second.wait_notice("ready")
    push(second, *map(str, range(60, 100)))
    first.start(ready=False)
    first.wait_notice("owns the store")
    second.kill()
    first.wait_notice("ready")
    equal(bodies(first, "s", 100), [str(n) for n in range(100)])
    equal(info_of(first)["owner"], f"127.0.0.1:{first.port}")
    check(int(info_of(first)["epoch"]) >= 3, info_of(first))
    cluster.end()


@case
def F32_a_paused_owner_in_NATS_writes_nothing_when_it_wakes():
    cluster = NatsCluster(nats, nodes=2, takeover="1s")
    first, second = cluster.nodes
    push(first, "one")
    first.process.send_signal(signal.SIGSTOP)
    second.wait_notice("ready")
    push(second, "two")
    first.process.send_signal(signal.SIGCONT)
    first.wait_notice("owns the store")
    answer(first, "PUSH", "s", "three")  # passed on
    equal(bodies(second, "s", 3), ["one", "two", "three"])
    cluster.end()


@case
def H5_an_outage_of_NATS_loses_nothing():
    cluster = NatsCluster(nats, nodes=1, takeover="10s")
    node, = cluster.nodes
    push(node, "before")
    nats.stop(signal.SIGKILL)
    waiting = Wire(node.port)
    waiting.send("PUSH", "s", "during")
    node.wait_notice("commands wait")
    nats.start()
    node.wait_notice("answers again")
    try:
        reply = waiting.receive()
        acknowledged = bool(reply) and not (isinstance(reply, bytes) and reply.startswith(b"-"))
    except OSError:
        acknowledged = False
    answer(node, "PING")
    push(node, "after")
    taken = bodies(node, "s", 3 if acknowledged else 2)
    check([b for b in taken if b != "during"] == ["before", "after"], taken)
    check("during" in taken or not acknowledged, taken)
    cluster.end()


@case
def H6_a_node_says_what_NATS_promises_and_refuses_less():
    cluster = NatsCluster(nats, nodes=1)
    node, = cluster.nodes
    check(any("warn" in line and "not the loss of its machine" in line for line in node.said), *node.said)
    info = info_of(node)
    equal((info["cluster"], info["replicated"]), (cluster.name, "0"))
    check("NATS server" in info["promise"] and info["promise"].rstrip().endswith("."), info)
    node.stop()
    serve = ("serve", "--http", "off", "--listen", "127.0.0.1:0", "--cluster", cluster.name)
    refused = millrace(*serve, "--store", cluster.url, "--require-replication")
    equal(refused.returncode, 2, refused.stderr)
    check("--require-replication" in refused.stderr and "three servers" in refused.stderr, refused.stderr)
    asked = millrace(*serve, "--store", nats.url(options="?replicas=3"))
    equal(asked.returncode, 2, asked.stderr)
    check("replicas 1, not 3" in asked.stderr, asked.stderr)
    cluster.end()


@case
def H6_a_server_without_JetStream_is_refused():
    plain = Nats(jetstream=False)
    for words in ("store", "init"), ("serve", "--http", "off", "--listen", "127.0.0.1:0", "--store"):
        refused = millrace(*words, plain.url())
        equal(refused.returncode, 2, refused.stderr)
        check("has no JetStream" in refused.stderr, refused.stderr)
    plain.stop()


@case
def a_password_or_token_opens_NATS():
    for settings, user, wrong in (("authorization { user: ann, password: 's:ecret' }", "ann:s%3Aecret@", "ann:0ther@"),
                                  ("authorization { token: s3cret }", "s3cret@", "0ther@")):
        guarded = Nats(settings=settings)
        made = millrace("store", "init", guarded.url(user))
        equal(made.returncode, 0, made.stderr)
        for bad in wrong, "":
            refused = millrace("store", "check", guarded.url(bad))
            equal(refused.returncode, 3, refused.stderr)
            check("0ther" not in refused.stderr, refused.stderr)  # neither a token nor a password
        guarded.stop()


# ---- Store commands ----------------------------------------------------------------------------


def story(name):
    """A directory with something of everything in it; its URL."""
    subprocess.run([f"{BUILD}/test/store_story", "make", name], check=True, capture_output=True, timeout=TIMEOUT_S)
    return f"file:{name}"


def done(*words, code=0):
    ran = millrace("store", *words)
    equal(ran.returncode, code, words, ran.stdout, ran.stderr)
    return ran.stderr if code else ran.stdout


@case
def H8_a_copy_into_NATS_and_back_keeps_everything():
    cluster = NatsCluster(nats, nodes=0, shards=3)
    original = story("original")
    done("copy", original, "file:plain")
    said = done("copy", original, *cluster.store)
    check(f"copied from file:original to cluster {cluster.name}" in said, said)
    check("is sound" in done("check", *cluster.store))
    found, plain = (json.loads(done("check", *store, "--json")) for store in (cluster.store, ("file:plain",)))
    equal(sorted(map(str, found["stages"])), sorted(map(str, plain["stages"])))
    check(done("dump", *cluster.store, "--body"))
    done("copy", *cluster.store, "file:back", "--shards", "1")
    subprocess.run([f"{BUILD}/test/store_story", "same", "plain", "back"], check=True, timeout=TIMEOUT_S)
    check("never written over" in done("copy", original, *cluster.store, code=2))
    done("copy", cluster.url, cluster.url, *cluster.more, "--to-cluster", "other", "--shards", "2")
    check("is sound" in done("check", cluster.url, "--cluster", "other"))
    check("file:DIR" in done("repair", cluster.url, code=2))


@case
def H8_a_cluster_in_NATS_is_copied_while_it_is_served_and_not_written_to():
    cluster = NatsCluster(nats, nodes=1, shards=2)
    node, = cluster.nodes
    push(node, *map(str, range(20)))
    done("copy", *cluster.store, "file:moment")
    check("is sound" in done("check", "file:moment"))
    check("holds a store" in done("copy", "file:moment", *cluster.store, code=2))
    equal(bodies(node, "s", 20), [str(n) for n in range(20)])
    cluster.end()


@case
def a_program_opens_a_store_in_NATS_by_itself():
    cluster = NatsCluster(nats, nodes=0)
    main_store = millrace("store", "init", cluster.url)
    equal(main_store.returncode, 0, main_store.stderr)
    equal(millrace("push", "--at", cluster.url, "s", "x").returncode, 0)
    looked = millrace("stages", "--at", cluster.url, "--json")
    equal(looked.returncode, 0, looked.stderr)
    check('"s"' in looked.stdout, looked.stdout)


main()
