#!/usr/bin/env python3
"""unreachable_test.py BUILD: a node to which no connection can even be begun. Speaks TAP."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, skip_without_postgres
from postgres import Postgres
from served import Client, Server
from tap import case, check, main

skip_without_postgres()
postgres = Postgres([])
NOWHERE = "255.255.255.255:7"  # the kernel refuses to connect, at once


@case
def H3_a_node_that_cannot_be_connected_to_is_tried_again_and_its_shards_are_taken_over():
    cluster = Cluster(postgres, nodes=0)
    owner = Server("--store", cluster.url, "--takeover", "3s", "--advertise", NOWHERE)
    other = Server("--store", cluster.url, "--takeover", "3s", ready=False)
    other.listens()
    for _ in range(3):
        other.wait_notice(f"no link to node {NOWHERE}: cannot connect")
    client = Client(other)
    client.send("PUSH", "mail", "hello")  # waits for an owner that can be reached
    owner.kill()
    check(client.receive().isdigit())
    other.stop()


main()
