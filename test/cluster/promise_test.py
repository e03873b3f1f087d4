#!/usr/bin/env python3
"""promise_test.py BUILD: a node asks its store what an acknowledged job survives, and says so; it refuses a store
that promises less than was demanded; it reports when the store does not answer. Speaks TAP."""
import json
import os
import signal
import sys
import urllib.request

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, ask, millrace, skip_without_postgres
from postgres import Postgres
from running import wait_until
from served import Client, lasting_address
from tap import TIMEOUT_S, case, check, equal, main
from terminal import Terminal

skip_without_postgres()
primary = Postgres(["fsync=on"])
REQUIRED = ("--require-replication",)


def set_standby_names(value):
    primary.configure("synchronous_standby_names", value)


def info_lines(reply):
    return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)


def get_json(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        return json.load(response)


def info_of(node):
    return info_lines(ask(node, "INFO", "CLUSTER").decode())


@case
def H6_a_node_reports_a_store_that_is_not_replicated():
    cluster = Cluster(primary, nodes=2)
    owner, standby = cluster.nodes
    check(any("warn" in line and "synchronous_standby_names is empty" in line for line in owner.said), *owner.said)
    for node in owner, standby:  # any node is asked; the owner answers
        info = info_of(node)
        equal((info["cluster"], info["owner"], info["replicated"]), ("main", f"127.0.0.1:{owner.port}", "0"))
        check("not the loss of its machine" in info["promise"], info)
        equal((info["outage_ms"], info["outage"]), ("0", ""))
    equal(info_of(owner)["epoch"], "1")
    owner.stop()
    standby.wait_notice("ready")
    equal(info_of(standby)["owner"], f"127.0.0.1:{standby.port}")
    wait_until(lambda: info_of(standby)["epoch"] == "2", "it has read the store again")
    cluster.end()


@case
def H6_a_store_that_is_not_replicated_is_refused_if_replication_is_required():
    cluster = Cluster(primary, nodes=0)
    refused = millrace("serve", "--http", "off", "--listen", "127.0.0.1:0", "--store", cluster.url, *REQUIRED)
    equal(refused.returncode, 2, refused.stderr)
    check("synchronous_standby_names" in refused.stderr and "reload PostgreSQL" in refused.stderr, refused.stderr)
    local = millrace("serve", "--store", "mem:", *REQUIRED)
    equal(local.returncode, 2, local.stderr)
    check("postgres://" in local.stderr, local.stderr)


@case
def H6_a_node_reports_a_synchronous_standby():
    standby = Postgres(primary.settings, primary)  # connected until the end
    set_standby_names("*")
    cluster = Cluster(primary, nodes=1, takeover="1h", more=REQUIRED)
    node, = cluster.nodes
    check(any("a synchronous standby has it on disk" in line for line in node.said), *node.said)
    equal(info_of(node)["replicated"], "1")
    Client(node).ask("PUSH", "s", "kept")
    wait_until(lambda: standby.psql("SELECT 1 FROM millrace_main.batch", cluster.database).stdout,
               "the standby has replayed what it has on disk")
    cluster.end()


@case
def H6_a_node_that_takes_over_checks_the_promise_again():
    cluster = Cluster(primary, nodes=2, takeover="1h", more=REQUIRED)
    first, second = cluster.nodes
    set_standby_names("")
    first.stop()
    said = second.ends(code=2)
    check("--require-replication" in said, said)


@case
def H5_an_outage_of_the_store_is_reported():
    cluster = Cluster(primary, nodes=1, takeover="1h", http=lasting_address())  # it does not give up meanwhile
    node, = cluster.nodes
    pushing, asking, looking = Client(node), Client(node), Client(node)
    with Terminal(f"millrace://127.0.0.1:{node.port}") as terminal:
        terminal.shows("cluster main: nodes 1, shards 1 (1 here)")
        primary.stop(signal.SIGQUIT)
        pushing.send("PUSH", "s", "meanwhile")
        looking.send("STAGES")
        check("warn" in node.wait_notice("commands wait"))
        info = info_lines(asking.ask("INFO", "CLUSTER"))  # at once, although the push waits
        check(int(info["outage_ms"]) > 0 and info["outage"], info)
        health = get_json(f"http://{node.http}/healthz")
        check(health["health"] == "waiting" and health["waiting-ms"] > 0, health)
        equal(millrace("push", "--at", cluster.url, "s", "x").returncode, 3)
        terminal.shows("the store has not answered for")
        primary.start()
        terminal.shows("1 stage ")
    node.wait_notice("the store answers again")
    pushing.receive()
    equal(len(looking.receive()), 1)  # it shows jobs, so it has waited
    wait_until(lambda: info_of(node)["outage"] == "", "the node looks at the store again")
    equal(info_of(node)["outage_ms"], "0")
    equal(get_json(f"http://{node.http}/healthz"), {"health": "ok"})
    cluster.end()


main()
