#!/usr/bin/env python3
"""nats_fault_test.py BUILD: what a cluster does when the NATS servers of its store end, pause, are cut off, lose messages
or have no room, with real processes and three servers. Cases about elections have a load that checks itself
(support/history.py). With MILLRACE_LONG there are more cases. Speaks TAP."""
import contextlib
import functools
import os
import random
import signal
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import answer, bodies, millrace, waiting
from history import History, is_acknowledged, is_silent
from nats import Nats, why_no_nats
from nats_cluster import CutNatsCluster, NatsCluster, NatsServers
from running import wait_until
from served import Client
from tap import LONG, SECONDS, case, check, equal, main

if why_no_nats() or millrace("store", "init", "nats://127.0.0.1:1").returncode == 2:
    print(f"1..0 # SKIP {why_no_nats() or 'this build has no NATS'}")
    sys.exit(0)
TAKEOVER = "5s"  # an election is longer than the owner may be without the store: it gives up, and a node claims again


def long_case(function):
    """A case of the long proofs only."""
    return case(function) if LONG else function


@functools.cache
def three():
    """Three servers, for all cases that leave them as they are."""
    return NatsServers()


def start(nodes=2, of=CutNatsCluster, **more):
    cluster = of(three(), nodes=nodes, **{"takeover": TAKEOVER, **more})
    return cluster, History(cluster.ports())


def end_in_order(cluster):
    """Ends all nodes; none has anything to say against it."""
    for node in cluster.nodes:
        said = node.stop()
        check("ERROR" not in said and "Sanitizer" not in said, said)


def await_other_owner(cluster, than):
    wait_until(lambda: cluster.owner() not in (None, than), "another node owns the store")


# ---- Servers -----------------------------------------------------------------------------------


def restart(server):
    server.stop(signal.SIGKILL)
    server.start()


@case
def F36_H1_followers_restart_and_then_lead_and_nothing_is_lost():
    cluster, load = start()
    for _ in range(2 if LONG else 1):
        leader = three().await_leader(cluster.stream)
        for i in range(three().COUNT):
            if i != leader:
                load.goes_on()
                restart(three()[i])
        load.goes_on()
        leader = three().await_leader(cluster.stream)
        three()[leader].stop(signal.SIGKILL)  # one of those that were restarted leads now
        load.goes_on()
        three()[leader].start()
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@long_case
def F37_H5_all_servers_are_killed_and_started_again():
    cluster, load = start()
    for _ in range(2):
        load.goes_on()
        for server in three():
            server.stop(signal.SIGKILL)
        for server in three():
            server.start()
    load.goes_on()
    load.holds(cluster.nodes[0])
    end_in_order(cluster)


@long_case
def F37_H5_all_servers_and_all_nodes_are_killed_and_started_again():
    cluster, load = start()
    load.goes_on()
    for one in (*three(), *cluster.nodes):
        one.process.kill()
    for server in three():
        server.stop(signal.SIGKILL)
        server.start()
    for node in cluster.nodes:
        node.kill()
        node.start(ready=False)
    load.goes_on()
    load.holds(cluster.nodes[0])
    end_in_order(cluster)


@long_case
def F35_H5_each_server_is_paused_and_resumed_then_all():
    cluster, load = start()
    for paused in *([server] for server in three()), list(three()):
        load.goes_on()
        for server in paused:
            os.kill(server.process.pid, signal.SIGSTOP)
        if len(paused) == 1:
            load.goes_on()
        else:
            wait_until(lambda: any("is lost" in line for node in cluster.nodes for line in node.new_notices()), "an owner gives up")
        for server in paused:
            os.kill(server.process.pid, signal.SIGCONT)
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


def cut_leader(*ways):
    """The leader is cut off from the other servers, and nodes reach all of them: the others elect another leader, and
    what the former one accepts is not acknowledged."""
    cluster, load = start()
    load.goes_on()
    three().isolate(three().await_leader(cluster.stream), *ways)
    load.goes_on()
    three().heal()
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@long_case
def F35_F39_the_leader_is_cut_off_from_the_other_servers():
    cut_leader()


@long_case
def F35_F39_what_the_leader_sends_to_the_other_servers_does_not_arrive():
    cut_leader("up")


@long_case
def F35_F39_what_the_other_servers_send_to_the_leader_does_not_arrive():
    cut_leader("down")


@long_case
def F40_H3_every_server_and_every_node_restart_in_turn_under_load():
    cluster, load = start(nodes=3)
    for server in three():
        load.goes_on()
        server.stop()
        load.goes_on()
        server.start()
    for node in cluster.nodes:
        load.goes_on()
        node.stop()
        load.goes_on()
        node.start(ready=False)
        equal(answer(node, "PING"), b"+PONG")
    load.goes_on()
    load.holds(cluster.nodes[2])
    end_in_order(cluster)


# ---- Nodes -------------------------------------------------------------------------------------


def cut_from_servers(*ways):
    """The owner is cut off from all servers: another node takes over; the first one becomes a standby."""
    cluster, load = start()
    load.goes_on()
    first = cluster.owner()
    for cut in first.store:
        cut.cut(*ways)
    second = next(node for node in cluster.nodes if node is not first)
    second.wait_notice("ready")
    load.goes_on()
    for cut in first.store:
        cut.heal()
    first.wait_notice("owns the store")
    load.goes_on()
    load.holds(first)
    end_in_order(cluster)


@long_case
def F39_F33_what_NATS_answers_to_the_owner_does_not_arrive():
    cut_from_servers("down")


@long_case
def F39_H1_the_owner_is_cut_off_from_NATS():
    cut_from_servers()


@long_case
def F39_H1_what_the_owner_sends_to_NATS_does_not_arrive():
    cut_from_servers("up")


@long_case
def F39_H5_connections_to_NATS_are_reset_again_and_again():
    cluster, load = start(takeover="1h")
    for _ in range(20):
        load.goes_on(5)
        for node in cluster.nodes:
            for cut in node.store:
                cut.reset()
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@long_case
def F39_NATS_is_far_away():
    cluster, load = start()
    for node in cluster.nodes:
        for cut in node.store:
            cut.delay_s = 0.1
    load.goes_on(40)
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@long_case
def F32_an_owner_that_was_paused_until_the_log_was_trimmed_writes_nothing():
    cluster = NatsCluster(three(), takeover=TAKEOVER)
    first, second = cluster.nodes
    client = Client(first)
    client.ask("PUSH", "s", "kept")
    os.kill(first.process.pid, signal.SIGSTOP)
    client.send("PUSH", "s", "late")  # it is read when it wakes up
    second.wait_notice("ready")
    other = Client(second)

    def first_sequence():
        return three()[0].request(f"$JS.API.STREAM.INFO.{cluster.stream}")["state"]["first_seq"]
    before = first_sequence()

    def is_trimmed():
        for _ in range(5):
            other.ask("PUSH", "large", "x" * 1000000)
        equal(len(other.work_off("large", 5)), 5)
        return first_sequence() > before + 1
    wait_until(is_trimmed, "the log is trimmed")
    os.kill(first.process.pid, signal.SIGCONT)
    first.wait_notice("owns the store")
    with contextlib.suppress(ConnectionError):
        client.file.readline()  # its reply; or the connection is closed, and it will not be read
    found = bodies(second, "s", waiting(second, "s"))
    check(found in (["kept"], ["kept", "late"]), found)  # "late" only if it was passed on to the new owner
    equal(waiting(second, "s"), 0)
    end_in_order(cluster)


@long_case
def H2_the_largest_bodies_are_taken_over_from_NATS():
    cluster = NatsCluster(three(), takeover=TAKEOVER)
    owner, standby = cluster.nodes
    large = ["".join(random.choices("abcdefgh", k=1 << 12)) * (1 << 12) for _ in range(3)]
    for body in large:
        Client(standby).ask("PUSH", "s", body)
    owner.kill()
    standby.wait_notice("ready")
    check(bodies(standby, "s", 3) == large)
    standby.stop()


@long_case
def F40_H3_faults_of_NATS_by_chance():
    seed = int(os.environ.get("MILLRACE_SEED", time.time()))
    print(f"# MILLRACE_SEED={seed}", flush=True)
    chance, until = random.Random(seed), time.monotonic() + SECONDS
    cluster, load = start(nodes=3)
    while time.monotonic() < until:
        load.goes_on(10)
        kind, server, node = chance.choice(["kill", "pause", "isolate", "node"]), chance.choice(list(three())), \
            chance.choice(cluster.nodes)
        if kind == "kill":
            server.stop(signal.SIGKILL)
            load.goes_on(10)
            server.start()
        elif kind == "pause":
            os.kill(server.process.pid, signal.SIGSTOP)
            load.goes_on(10)
            os.kill(server.process.pid, signal.SIGCONT)
        elif kind == "isolate":
            three().isolate(three().servers.index(server), *chance.choice([(), ("up",), ("down",)]))
            load.goes_on(10)
            three().heal()
        else:
            node.kill()
            load.goes_on(10)
            node.start(ready=False)
    load.goes_on(10)
    load.holds(cluster.nodes[0])
    cluster.end()


# ---- A store that is not what it should be -----------------------------------------------------


def change(server, subject, body=b""):
    """Changes a stream behind the back of the nodes."""
    found = server.request(f"$JS.API.STREAM.{subject}", body)
    check(found and "error" not in found, subject, found)


@long_case
def F38_H6_a_stream_that_was_emptied_is_refused_by_the_next_owner():
    server = Nats()
    cluster = NatsCluster(server, nodes=1, takeover="1h")
    node, = cluster.nodes
    Client(node).ask("PUSH", "s", "acknowledged")
    change(server, f"PURGE.{cluster.stream}")
    node.kill()
    node.start(ready=False)
    said = node.ends(code=1)
    check("emptied" in said and cluster.stream in said and "restore a backup" in said, said)
    server.stop()


@long_case
def F38_H6_a_node_whose_stream_was_removed_ends():
    server = Nats()
    for is_new in False, True:  # it is believed after 15 s: servers that elect a leader may answer so
        cluster = NatsCluster(server, nodes=1, takeover="1h")
        node, = cluster.nodes
        client = Client(node)
        client.ask("PUSH", "s", "acknowledged")
        os.kill(node.process.pid, signal.SIGSTOP)  # it sees only the outcome
        change(server, f"DELETE.{cluster.stream}")
        if is_new:
            change(server, f"DELETE.millrace-{cluster.name}")
            made = millrace("store", "init", *cluster.store)
            equal(made.returncode, 0, made.stderr)
        os.kill(node.process.pid, signal.SIGCONT)
        client.send("PUSH", "s", "into nothing")
        said = node.ends(code=1)
        check(not is_acknowledged(client), "it was acknowledged")
        check("has lost" in said and ("start the nodes again" if is_new else f"the stream {cluster.stream}") in said, said)
    server.stop()


@case
def H6_a_store_in_NATS_that_is_not_as_it_should_be_is_refused_with_the_way_out():
    server = Nats()
    cluster = NatsCluster(server, nodes=0, shards=2)
    serve = ("serve", "--http", "off", "--listen", "127.0.0.1:0", "--store")
    for words, code, text in (((cluster.url, "--cluster", "other"), 2, "millrace store init"),
                              ((*cluster.store, "--shards", "4"), 2, "has 2 shards, not 4")):
        refused = millrace(*serve, *words)
        equal(refused.returncode, code, refused.stderr)
        check(text in refused.stderr, refused.stderr)
    change(server, f"DELETE.{cluster.stream[:-1]}1")
    refused = millrace(*serve, *cluster.store)
    equal(refused.returncode, 1, refused.stderr)
    check(f"has lost the stream {cluster.stream[:-1]}1" in refused.stderr, refused.stderr)
    server.stop()


@case
def H6_a_user_without_rights_is_refused_with_what_it_needs():
    rights = "{ user: all, password: a }, { user: few, password: f, permissions: { publish: ['_INBOX.>'] } }"
    server = Nats(settings=f"authorization {{ users: [ {rights} ] }}")
    made = millrace("store", "init", server.url("all:a@"))
    equal(made.returncode, 0, made.stderr)
    refused = millrace("serve", "--http", "off", "--listen", "127.0.0.1:0", "--store", server.url("few:f@"))
    equal(refused.returncode, 4, refused.stderr)
    check("$JS.API" in refused.stderr, refused.stderr)
    server.stop()


@case
def F25_H5_a_NATS_server_without_space_refuses_pushes_until_there_is_room():
    server = Nats(limits="max_file_store: 20MB")
    cluster = NatsCluster(server, nodes=1, takeover="1h")
    node, = cluster.nodes
    client, asking, sent = Client(node), Client(node), 0

    def is_full():
        nonlocal sent  # one push waits for its reply
        if not is_silent(client):
            client.receive()
            client.send("PUSH", "s", f"{sent} ".ljust(1000000, "x"))
            sent += 1
        return "log_full:1" in asking.ask("INFO", "PERSISTENCE")
    client.send("PING")
    wait_until(is_full, "the server is full")
    asking.refused("FULL", "PUSH", "s", "one more")
    check("warn" in node.wait_notice("pushes are refused until there is room"))
    check(is_silent(client), "what the server did not accept was acknowledged")
    with open(f"{server.top}/conf", encoding="utf-8") as file:
        settings = file.read()
    with open(f"{server.top}/conf", "w", encoding="utf-8") as file:
        file.write(settings.replace("20MB", "200MB"))
    restart(server)
    client.receive()
    node.wait_notice("pushes are accepted")
    asking = Client(node)
    asking.ask("PUSH", "s", f"{sent} and it goes on")
    node.kill()
    node.start(ready=False)
    node.wait_notice("ready")
    equal([int(body.split()[0]) for body in bodies(node, "s", sent + 1)], list(range(sent + 1)))
    cluster.end()
    server.stop()


main()
