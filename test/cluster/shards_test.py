#!/usr/bin/env python3
"""shards_test.py BUILD: a cluster whose shards live on several nodes, with real processes: they are spread evenly, any
node takes any command, and nothing is lost or done twice when nodes end, are killed or are paused. With MILLRACE_LONG
there are more cases. Speaks TAP."""
import os
import signal
import socket
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, answer, bodies, millrace, shard_of, skip_without_postgres, stages_of, waiting
from history import History
from postgres import Postgres
from running import wait_until
from served import Client, Server
from tap import LONG, case, check, equal, main

skip_without_postgres()
postgres = Postgres()
SHARDS = 4


def long_case(function):
    """A case of the long proofs only."""
    return case(function) if LONG else function


def start(nodes=3, **more):
    """A cluster of `SHARDS` shards that are spread over all nodes."""
    cluster = Cluster(postgres, nodes=nodes, shards=SHARDS, **more)
    wait_until(lambda: is_even(cluster), "the shards are spread evenly")
    wait_linked(cluster)
    return cluster


def wait_linked(cluster):
    """Waits until every node reaches every shard."""
    for node in cluster.nodes:
        client = Client(node)
        client.ask("STAGES")
        client.close()


def is_even(cluster):
    owners = cluster.owners()
    counts = [owners.count(node) for node in cluster.nodes]
    return None not in owners and max(counts) - min(counts) <= 1


def stage_on(cluster, node, prefix="s", count=1):
    """Stages whose shard this node owns."""
    return stages_of(cluster.owners().index(node), SHARDS, count, prefix)


def end_in_order(cluster):
    """Ends all nodes; none has anything to say against it."""
    for node in cluster.nodes:
        said = node.stop()
        check("ERROR" not in said and "Sanitizer" not in said, said)


def attempts(client, job):
    """How many attempts of a job were counted."""
    fields = client.ask("JOB", job)
    return fields[fields.index("attempts") + 1]


# ---- Spreading and routing -------------------------------------------------------------------------


@case
def F32_shards_are_spread_evenly_and_a_node_that_joins_gets_its_share():
    cluster = Cluster(postgres, nodes=1, shards=SHARDS)
    cluster.wait_spread(4)
    names = [stages_of(shard, SHARDS)[0] for shard in range(SHARDS)]
    for name in names:
        Client(cluster.nodes[0]).ask("PUSH", name, f"of {name}")
    cluster.nodes.append(cluster.add())
    cluster.wait_spread(2, 2)
    cluster.nodes.append(cluster.add())
    wait_until(lambda: is_even(cluster), "three nodes share four shards")
    for node, name in zip(cluster.nodes, names):
        equal(bodies(node, name, 1), [f"of {name}"])
    end_in_order(cluster)


@case
def H2_every_command_is_taken_by_every_node():
    cluster = start()
    for shard in range(SHARDS):
        stage, = stages_of(shard, SHARDS, prefix="any")
        clients = [Client(node) for node in cluster.nodes]
        ids = [client.ask("PUSH", stage, f"body {i}", "KEY", "k") for i, client in enumerate(clients)]
        equal([(int(i) - 1) % SHARDS for i in ids], 3 * [shard])
        for i, client in enumerate(clients):
            (job, token, *_, body), = [j[:5] for j in clients[i - 1].ask("TAKE", stage)]
            equal((job, body), (ids[i], f"body {i}"))
            equal(clients[i - 1].ask("BEAT", job, token), [])
            equal(client.ask("STAGES", "NAME", stage)[0][1], stage)
            equal(clients[i - 2].ask("DONE", job, token, "RESULT", "r"), "OK")
            equal([c.ask("AWAIT", job) for c in clients], 3 * ["r"])
        everything = [sorted(row[1] for row in client.ask("STAGES")) for client in clients]
        check(stage in everything[0] and everything[0] == everything[1] == everything[2], everything)
        for client in clients:
            client.close()
    end_in_order(cluster)


@case
def H2_a_TAKE_of_stages_of_several_nodes_takes_in_their_order_and_waits_at_all():
    cluster = start()
    names = [stages_of(shard, SHARDS, prefix="take")[0] for shard in range(SHARDS)]
    client, other = Client(cluster.nodes[0]), Client(cluster.nodes[1])
    for name in names:
        other.ask("PUSHMANY", name, "ITEMS", "", f"{name} 0", "", f"{name} 1")
    equal([job[4] for job in client.ask("TAKE", *names[::-1], "COUNT", 5)],
          [f"{name} {i}" for name in names[:1:-1] for i in range(2)] + [f"{names[1]} 0"])
    equal(sorted(job[4] for job in client.ask("TAKE", *names, "COUNT", 100)),
          sorted([f"{names[0]} 0", f"{names[0]} 1", f"{names[1]} 1"]))
    equal(client.ask("TAKE", *names), [])
    equal(client.ask("TAKE", *names, "WAIT", 50), [])
    for name in names:
        client.send("TAKE", *names, "WAIT", -1)
        other.ask("PUSH", name, "late")
        (job, token, *_), = client.receive()
        equal(other.ask("DONE", job, token), "OK")
    client.close()
    end_in_order(cluster)


@case
def H2_jobs_that_a_TAKE_of_several_nodes_gets_too_much_go_back_at_once_uncounted():
    cluster = start()
    names = [stages_of(shard, SHARDS, prefix="surplus")[0] for shard in range(SHARDS)]
    takers, pushers = [Client(node) for node in cluster.nodes], [Client(node) for node in cluster.nodes]
    for round_ in range(40):
        taker = takers[round_ % 3]
        taker.send("TAKE", *names, "WAIT", -1)
        for i, name in enumerate(names):
            pushers[i % 3].send("PUSH", name, f"{round_}")
        ids = {pushers[i % 3].receive() for i in range(SHARDS)}
        (job, token, *_), = taker.receive()
        found = {}
        while len(found) < SHARDS - 1:
            for other in pushers[0].ask("TAKE", *names, "COUNT", SHARDS, "WAIT", 1000):
                found[other[0]] = other
        equal({job, *found}, ids)
        equal({other[5] for other in found.values()}, {1}, "the attempt of a job that went back is not counted")
        for other in [(job, token), *found.values()]:
            equal(takers[0].ask("DONE", other[0], other[1]), "OK")
    end_in_order(cluster)


@case
def H2_a_TAKE_waits_for_a_shard_that_is_nowhere_and_is_served_by_the_others():
    cluster = start(takeover="1h")
    dead, alive = cluster.nodes[2], cluster.nodes[0]
    lost, there = stage_on(cluster, dead)[0], stage_on(cluster, cluster.nodes[1])[0]
    dead.kill()
    client, other = Client(alive), Client(cluster.nodes[1])
    for _ in range(3):
        client.send("TAKE", lost, there, "WAIT", -1)
        other.ask("PUSH", there, "x")
        (job, token, *_), = client.receive()
        equal(client.ask("DONE", job, token), "OK")
    equal(client.ask("TAKE", lost, there, "WAIT", 20), [])
    dead.start(ready=False)
    wait_until(lambda: is_even(cluster), "its shards are served again")
    client.send("TAKE", there, lost, "WAIT", -1)
    other.ask("PUSH", lost, "back")
    equal(client.receive()[0][4], "back")
    client.close()
    end_in_order(cluster)


@case
def F34_H2_calls_and_their_callers_may_be_on_different_nodes():
    cluster = start()
    for name in [stages_of(shard, SHARDS, prefix="call")[0] for shard in range(SHARDS)]:
        caller, worker = Client(cluster.nodes[0]), Client(cluster.nodes[1])
        caller.send("CALL", name, "question")
        (job, token, *_), = worker.ask("TAKE", name, "WAIT", -1)
        waiter = Client(cluster.nodes[2])
        waiter.send("AWAIT", job, "WAIT", -1)
        worker.ask("DONE", job, token, "RESULT", "reply")
        equal([caller.receive(), waiter.receive()], ["reply", "reply"])
        caller.send("CALL", name, "nobody wants it")
        (job, token, *_), = worker.ask("TAKE", name, "WAIT", -1)
        caller.close()
        wait_until(lambda: worker.ask("BEAT", job, token) == [job], "the worker learns that the call is cancelled")
        worker.refused("CANCELLED", "DONE", job, token)
    end_in_order(cluster)


@case
def H2_MULTI_and_EPIC_span_nodes():
    cluster = start()
    names = [stages_of(shard, SHARDS, prefix="multi")[0] for shard in range(SHARDS)]
    client, other = Client(cluster.nodes[0]), Client(cluster.nodes[2])
    client.ask("MULTI")
    for name in names:
        equal(client.ask("PUSH", name, "in exec"), "QUEUED")
    equal(len(set(client.ask("EXEC"))), SHARDS)
    for name in names:
        equal(bodies(cluster.nodes[1], name, 1), ["in exec"])
        for number in 1, 2:
            client.ask("PUSH", name, "x", "EPIC", "e", number)
        client.ask("EPIC", name, "e", "END", 2)
        other.send("EPIC", name, "e", "WAIT", -1)
        equal(len(bodies(cluster.nodes[1], name, 2)), 2)
        fields = other.receive()
        equal(fields[fields.index("total") + 1], 2)
    end_in_order(cluster)


main()
