#!/usr/bin/env python3
"""command_test.py BUILD: CLUSTER and millrace cluster: what they show of a cluster of three nodes and four shards, and
draining nodes and moving shards under load. Speaks TAP."""
import json
import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, millrace, skip_without_postgres, stages_of
from postgres import Postgres
from running import wait_until
from served import Client, Server
from tap import case, check, equal, main

skip_without_postgres()
postgres = Postgres()
SHARDS = 4


def four_shards(nodes=3):
    cluster = Cluster(postgres, nodes, shards=SHARDS)
    wait_spread(cluster)
    return cluster


def address(node):
    return f"127.0.0.1:{node.port}"


def pairs(flat):
    return dict(zip(flat[::2], flat[1::2]))


def status(node):
    """The nodes by their addresses, and the shards in order."""
    client = Client(node)
    reply = pairs(client.ask("CLUSTER", "STATUS"))
    client.close()
    nodes = [pairs(n) for n in reply["nodes"]]
    return {n["address"]: n for n in nodes}, [pairs(s) for s in reply["shards"]]


def owned(cluster, at=0):
    """How many shards each node serves, in the order of the nodes."""
    shards = [s for s in status(cluster.nodes[at])[1] if s["state"] == "serves"]
    return [sum(s["owner"] == address(n) for s in shards) for n in cluster.nodes]


def wait_spread(cluster, counts=None):
    """Waits until all nodes see that all shards are served, by so many nodes each."""
    def spread(at):
        found = owned(cluster, at)
        return found == counts if counts else sum(found) == SHARDS and max(found) - min(found) <= 1
    for at in range(len(cluster.nodes)):
        wait_until(lambda: spread(at), f"shards are spread: {counts}")


def stage_of(shard):
    return stages_of(shard, SHARDS)[0]


# ---- What is shown -----------------------------------------------------------------------------


@case
def a_server_that_is_no_node_says_so():
    with Server() as server:
        client = Client(server)
        check("no node of a cluster" in client.refused("ERR", "CLUSTER", "INFO"))
        equal((client.info()["cluster_enabled"], client.info()["redis_mode"]), ("0", "standalone"))
        ended = millrace("cluster", "status", "--at", server.url)
        equal(ended.returncode, 2)
        check("no node of a cluster" in ended.stderr, ended.stderr)


@case
def every_node_shows_the_same_owners_of_all_slots():
    cluster = four_shards()
    ids = {address(n): Client(n).ask("CLUSTER", "MYID") for n in cluster.nodes}
    equal(len(set(ids.values())), 3)
    replies = []
    for node in cluster.nodes:
        client = Client(node)
        slots = client.ask("CLUSTER", "SLOTS")
        equal([(first, last) for first, last, _ in slots], [(0, 4095), (4096, 8191), (8192, 12287), (12288, 16383)])
        for first, last, (host, port, name) in slots:
            equal(ids[f"{host}:{port}"], name)
        shards = [pairs(s) for s in client.ask("CLUSTER", "SHARDS")]
        equal([s["slots"] for s in shards], [[first, last] for first, last, _ in slots])
        equal([pairs(s["nodes"][0])["id"] for s in shards], [owner[2] for _, _, owner in slots])
        info = dict(line.split(":") for line in client.ask("CLUSTER", "INFO").splitlines())
        equal((info["cluster_state"], info["cluster_slots_assigned"], info["cluster_known_nodes"], info["cluster_size"]),
              ("ok", "16384", "3", "3"))
        lines = [line.split(" ") for line in client.ask("CLUSTER", "NODES").splitlines()]
        equal({line[0]: line[1].split("@")[0] for line in lines}, {v: k for k, v in ids.items()})
        equal([line[0] for line in lines if "myself" in line[2]], [ids[address(node)]])
        ranges = [tuple(map(int, r.split("-"))) for line in lines for r in line[8:]]
        equal(sorted(ranges), [(first, last) for first, last, _ in slots])
        replies.append(slots)
        said = client.info()
        equal((said["cluster_enabled"], said["redis_mode"], said["nodes"], said["shards_unowned"]),
              ("1", "cluster", "3", "0"))
        for shard in range(SHARDS):
            slot = client.ask("CLUSTER", "KEYSLOT", stage_of(shard))
            check(slots[shard][0] <= slot <= slots[shard][1], shard, slot)
    check(replies[0] == replies[1] == replies[2], replies)
    cluster.end()


@case
def mistakes_are_refused_with_what_there_is():
    cluster = four_shards(2)
    client = Client(cluster.nodes[0])
    check(address(cluster.nodes[1]) in client.refused("ERR", "CLUSTER", "DRAIN", "10.0.0.1:1"))
    check("0 to 3" in client.refused("ERR", "CLUSTER", "MOVE", "4", "ANY"))
    check("0 to 3" in client.refused("ERR", "CLUSTER", "MOVE", "x", "ANY"))
    check(address(cluster.nodes[1]) in client.refused("ERR", "CLUSTER", "MOVE", "0", "elsewhere"))
    for words in (), ("STATUS", "x"), ("MEET", "a", "1"), ("DRAIN",):
        client.refused("ERR", "CLUSTER", *words)
    equal(client.ask("CLUSTER", "DRAIN", address(cluster.nodes[1])), "OK")
    wait_spread(cluster, [4, 0])
    check("no other node serves" in client.refused("ERR", "CLUSTER", "DRAIN", address(cluster.nodes[0])))
    check("drains" in client.refused("ERR", "CLUSTER", "MOVE", "0", address(cluster.nodes[1])))
    cluster.end()


# ---- What is changed ---------------------------------------------------------------------------


@case
def a_shard_moves_and_its_jobs_with_it():
    cluster = four_shards()
    first, second, third = cluster.nodes
    for shard in range(SHARDS):
        Client(first).ask("PUSH", stage_of(shard), "kept")
    for shard in range(SHARDS):
        equal(Client(second).ask("CLUSTER", "MOVE", shard, address(third)), "OK")
    wait_spread(cluster, [0, 0, 4])
    equal([s["moved-to"] for s in status(first)[1]], [address(third)] * SHARDS)
    for shard in range(SHARDS):
        equal(Client(first).ask("TAKE", stage_of(shard), "WAIT", 10000)[0][4], "kept")
    node_id = Client(first).ask("CLUSTER", "MYID")
    equal(Client(third).ask("CLUSTER", "MOVE", 2, node_id), "OK")
    wait_spread(cluster, [1, 0, 3])
    for shard in range(SHARDS):
        equal(Client(third).ask("CLUSTER", "MOVE", shard, "ANY"), "OK")
    wait_spread(cluster)
    cluster.end()


@case
def a_drained_node_serves_clients_without_shards_until_it_is_restarted():
    cluster = four_shards()
    first, second, third = cluster.nodes
    equal(Client(first).ask("CLUSTER", "DRAIN", address(second)), "OK")
    wait_until(lambda: owned(cluster)[1] == 0, "it has no shards")
    wait_until(lambda: status(first)[0][address(second)]["state"] == "drains", "the other nodes see that it drains")
    for shard in range(SHARDS):
        Client(second).ask("PUSH", stage_of(shard), "through it")
        equal(Client(second).ask("TAKE", stage_of(shard), "WAIT", 10000)[0][4], "through it")
    second.stop()
    second.start(ready=False)
    second.wait_notice("ready")
    wait_spread(cluster)
    equal(status(first)[0][address(second)]["state"], "serves")
    cluster.end()


@case
def the_command_line_shows_and_changes_the_same():
    cluster = four_shards()
    first, second, third = map(address, cluster.nodes)
    at = ("--at", f"millrace://{first}")
    shown = millrace("cluster", "status", *at)
    equal(shown.returncode, 0, shown.stderr)
    lines = [line.split() for line in shown.stdout.splitlines()]
    equal(lines[0], ["NODE", "VERSION", "STATE", "SHARDS", "SEEN", "PAGE"])
    equal({line[0]: line[2] for line in lines[1:4]}, dict.fromkeys((first, second, third), "serves"))
    equal(lines[5][:4], ["SHARD", "OWNER", "STATE", "EPOCH"])
    equal([(line[0], line[2]) for line in lines[6:]], [(str(i), "serves") for i in range(SHARDS)])
    status = json.loads(millrace("cluster", "status", *at, "--json").stdout)
    equal((status["cluster"], status["state"], len(status["nodes"]), len(status["shards"])), ("main", "ok", 3, SHARDS))
    for shard in range(SHARDS):
        moved = millrace("cluster", "move", str(shard), second, *at)
        equal((moved.returncode, moved.stdout), (0, f"shard {shard} goes to {second}\n"), moved.stderr)
    wait_spread(cluster, [0, 4, 0])
    drained = millrace("cluster", "drain", second, *at, "--json")
    equal((drained.returncode, json.loads(drained.stdout)), (0, {"node": second, "ok": True}), drained.stderr)
    wait_spread(cluster, [2, 0, 2])
    for words in ("drain", "10.0.0.1:1"), ("move", "9", first), ("move", "0", "nowhere"):
        refused = millrace("cluster", *words, *at)
        equal(refused.returncode, 2, refused)
        check("there is no" in refused.stderr, refused.stderr)
    cluster.end()


@case
def a_node_that_was_killed_is_lost_and_its_shards_are_not():
    cluster = four_shards()
    first, second, third = cluster.nodes
    second.kill()
    cluster.nodes = [first, third]
    wait_spread(cluster, [2, 2])
    equal(status(first)[0][address(second)]["state"], "lost")
    check("has not written to the store" in Client(first).refused("ERR", "CLUSTER", "MOVE", "0", address(second)))
    fail = [line for line in Client(first).ask("CLUSTER", "NODES").splitlines() if address(second) in line]
    check("master,fail" in fail[0] and "disconnected" in fail[0], fail)
    cluster.end()


main()
