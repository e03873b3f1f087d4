#!/usr/bin/env python3
"""clients_test.py BUILD: clients of Redis Cluster that others wrote push, take and end jobs of all shards of a cluster
of three nodes, and go on when a shard has moved. Speaks TAP; what cannot be had here is skipped, with the reason."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
sys.path.append(os.path.join(os.path.dirname(__file__), "../server"))
from clients import Ioredis5, Ioredis6, NodeRedis5, NodeRedis6, RedisPy, end_clients, why_missing
from cluster import Cluster, skip_without_postgres, stages_of
from postgres import Postgres
from running import wait_until
from served import Client
from tap import TIMEOUT_S, case, equal, main

skip_without_postgres()
SHARDS = 4
cluster = Cluster(Postgres(), nodes=3, shards=SHARDS)
for each in cluster.nodes:
    wait_until(lambda: Client(each).info()["nodes"] == "3", "it has seen all nodes")
count = 0


def run_jobs(ask):
    """One in a stage of each shard."""
    global count
    for shard in range(SHARDS):
        count += 1
        stage = stages_of(shard, SHARDS, prefix=f"c{count}-")[0]
        job = ask("PUSH", stage, "body", "KEY", "k")
        (taken,) = ask("TAKE", stage, "WAIT", 1000 * TIMEOUT_S)
        equal(taken[:1] + taken[2:5], [job, stage, "k", "body"])
        equal(ask("DONE", taken[0], taken[1], "RESULT", "fine"), "OK")
        equal(ask("AWAIT", job), "fine")


def move_shard():
    """To a node that does not own it."""
    client = Client(cluster.nodes[0])
    owners = cluster.owners()
    node = next(n for n in cluster.nodes if n is not owners[0])
    client.ask("CLUSTER", "MOVE", 0, f"127.0.0.1:{node.port}")
    client.close()


def add(kind, resp):
    @case(f"{kind.name}, RESP{resp}, knows the nodes of a cluster")
    def _():
        if why := why_missing(kind):
            return why
        client = kind(cluster.nodes[1].port, resp, cluster=True)
        run_jobs(client.ask)
        move_shard()  # while it runs: commands are passed on, wherever they arrive
        run_jobs(client.ask)
        end_clients()
        return None


for spoken in (NodeRedis5, 2), (NodeRedis6, 3), (Ioredis5, 2), (Ioredis6, 2), (RedisPy, 2):
    add(*spoken)


main()
