#!/usr/bin/env python3
"""node_test.py BUILD: nodes of a cluster with their store in a PostgreSQL server of the test's own: one serves
the store, the others pass their clients on to it and take over when it ends, is killed or is paused, and
nothing that was acknowledged is lost. Speaks TAP."""
import os
import signal
import socket
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, answer, bodies, millrace, skip_without_postgres
from cut import Cut
from postgres import Postgres
from served import Client, Server, lasting_address
from tap import TIMEOUT_S, case, check, equal, main

skip_without_postgres()
postgres = Postgres()


def first_line(client):
    """Of the next reply; empty if the connection is closed."""
    try:
        return client.file.readline()
    except ConnectionResetError:
        return b""


# ---- Making a cluster --------------------------------------------------------------------------


@case
def a_store_is_made_once_and_refused_if_it_is_another():
    cluster = Cluster(postgres, nodes=0)
    again = millrace("store", "init", cluster.url)
    equal((again.returncode, again.stdout), (0, "there is cluster main with 1 shard\n"))
    other = millrace("store", "init", cluster.url, "--shards", "4")
    equal(other.returncode, 2)
    check("shard" in other.stderr, other.stderr)
    second = millrace("store", "init", cluster.url, "--cluster", "second", "--shards", "2")
    equal((second.returncode, second.stdout), (0, "made cluster second with 2 shards\n"))


@case
def H6_a_node_says_what_is_wrong_with_its_store():
    cluster = Cluster(postgres, nodes=0)
    for words, code, text in (
            (("--store", cluster.url, "--cluster", "missing"), 2, "millrace store init"),
            (("--store", cluster.url, "--listen", "0.0.0.0:7411", "--insecure"), 2, "--advertise"),
            (("--store", "mem:", "--cluster", "x"), 2, "--cluster"),
            (("--store", cluster.url, "--takeover", "5ms"), 2, "--takeover")):
        where = () if "--listen" in words else ("--listen", "127.0.0.1:7411")
        done = millrace("serve", "--http", "off", *where, *words)
        equal(done.returncode, code, words, done.stderr)
        check(text in done.stderr, words, done.stderr)


@case
def a_node_without_a_free_address_for_its_page_runs_without_it_unless_that_was_chosen():
    cluster = Cluster(postgres)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = "127.0.0.1:%d" % other.getsockname()[1]
        chosen = millrace("serve", "--store", cluster.url, "--listen", lasting_address(), "--http", taken)
        equal(chosen.returncode, 3, chosen.stderr)
        check(f"cannot listen on {taken}" in chosen.stderr and "--http sets another" in chosen.stderr, chosen.stderr)
    try:
        held = socket.create_server(("127.0.0.1", 7412))  # the default
    except OSError:
        held = None  # another program has it
    with Server("--store", cluster.url, http=None, ready=False) as node:
        node.wait_notice("running without the page")
        node.wait_notice("owns the store")
    if held:
        held.close()
    cluster.end()


# ---- One node ----------------------------------------------------------------------------------


@case
def H1_a_node_keeps_its_jobs_over_a_restart_and_a_crash():
    cluster = Cluster(postgres, nodes=1)
    node, = cluster.nodes
    Client(node).ask("PUSH", "s", "one")
    node.stop()
    node.start(ready=False)
    node.wait_notice("ready")
    Client(node).ask("PUSH", "s", "two")
    node.kill()
    node.start(ready=False)
    node.wait_notice("ready")
    equal(bodies(node, "s", 2), ["one", "two"])
    cluster.end()


@case
def H1_a_store_in_use_is_not_taken_by_another_process():
    cluster = Cluster(postgres, nodes=1)
    refused = millrace("push", "--at", cluster.url, "s", "x")
    equal(refused.returncode, 3, refused.stderr)
    check(f"in use by 127.0.0.1:{cluster.nodes[0].port}" in refused.stderr, refused.stderr)
    equal(answer(cluster.nodes[0], "PING"), b"+PONG")
    cluster.nodes[0].stop()
    equal(millrace("push", "--at", cluster.url, "s", "x").returncode, 0)
    cluster.nodes[0].start(ready=False)
    cluster.nodes[0].wait_notice("ready")
    equal(bodies(cluster.nodes[0], "s", 1), ["x"])
    cluster.end()


@case
def a_dump_of_the_database_restores_its_jobs():
    cluster = Cluster(postgres, nodes=1)
    Client(cluster.nodes[0]).ask("PUSH", "s", "kept")
    dump = subprocess.run(["pg_dump", "-n", "millrace_main", cluster.url], capture_output=True, text=True, check=True)
    cluster.nodes[0].stop()
    postgres.sql("CREATE DATABASE again", database="postgres")
    postgres.sql(dump.stdout, database="again")
    with Server("--store", postgres.url("again"), "--takeover", "1s", ready=False) as node:
        node.listens()
        node.wait_notice("ready")
        equal(bodies(node, "s", 1), ["kept"])


# ---- Two nodes ---------------------------------------------------------------------------------


@case
def H2_clients_of_any_node_are_served():
    cluster = Cluster(postgres)
    owner, standby = cluster.nodes
    Client(standby).ask("PUSH", "s", "x" * 1000000)
    Client(owner).ask("PUSH", "s", "small")
    for number in signal.SIGHUP, signal.SIGPIPE:
        os.kill(standby.process.pid, number)  # neither ends it
    equal([len(body) for body in bodies(standby, "s", 2)], [1000000, 5])
    cluster.end()


@case
def H1_a_standby_takes_over_at_once_when_the_owner_ends_in_order():
    cluster = Cluster(postgres, takeover="1h")  # it cannot be by silence
    owner, standby = cluster.nodes
    for i in range(100):
        Client(owner).ask("PUSH", "s", i) if i % 10 == 0 else Client(standby).ask("PUSH", "s", i)
    owner.stop()
    standby.wait_notice("ready")
    equal(bodies(standby, "s", 100), [str(i) for i in range(100)])
    owner.start(ready=False)
    owner.wait_notice("owns the store")
    Client(owner).ask("PUSH", "s", "back")
    equal(bodies(standby, "s", 1), ["back"])
    cluster.end()


@case
def H1_a_standby_takes_over_from_an_owner_that_was_killed():
    cluster = Cluster(postgres)
    owner, standby = cluster.nodes
    acknowledged = [Client(standby).ask("PUSH", "s", i) for i in range(50)]
    owner.kill()
    equal(len(set(acknowledged)), 50)
    answer(standby, "PING")
    standby.wait_notice("ready")
    equal(bodies(standby, "s", 50), [str(i) for i in range(50)])
    cluster.end()


@case
def H1_an_owner_that_was_paused_answers_nothing_afterwards():
    cluster = Cluster(postgres)
    owner, standby = cluster.nodes
    paused = Client(owner)
    paused.ask("PUSH", "s", "before")
    os.kill(owner.process.pid, signal.SIGSTOP)
    paused.send("TAKE", "s")  # it arrives, but is read only later
    standby.wait_notice("ready")
    equal(bodies(standby, "s", 1), ["before"])
    os.kill(owner.process.pid, signal.SIGCONT)
    check(first_line(paused) in (b"*0\r\n", b""))  # the new owner's answer, or none: not the job
    owner.wait_notice("owns the store")
    equal(answer(owner, "PUSH", "s", "after")[:1].isdigit(), True)
    cluster.end()


@case
def H3_a_node_that_stops_waits_for_jobs_that_its_clients_have_taken_from_others():
    cluster = Cluster(postgres)
    owner, standby = cluster.nodes
    worker = Client(standby)
    worker.ask("PUSH", "s", "a")
    (job,) = worker.ask("TAKE", "s")
    standby.process.send_signal(signal.SIGTERM)
    standby.wait_notice("handing over shards")
    equal(worker.ask("DONE", job[0], job[1]), "OK")
    equal(standby.process.wait(TIMEOUT_S), 0)
    cluster.end()


@case
def H3_jobs_that_still_run_when_a_node_stops_go_back_without_a_counted_attempt():
    cluster = Cluster(postgres)
    owner, standby = cluster.nodes
    Client(owner).ask("STAGE", "s", "attempts", 1)
    worker = Client(standby)
    worker.ask("PUSH", "s", "a")
    worker.ask("TAKE", "s")
    standby.process.send_signal(signal.SIGTERM)
    standby.wait_notice("handing over shards")
    standby.process.send_signal(signal.SIGTERM)  # does not wait any longer
    equal(standby.process.wait(TIMEOUT_S), 0)
    equal(bodies(owner, "s", 1), ["a"])  # with a counted attempt it would be dead
    cluster.end()


@case
def H5_a_short_outage_of_the_database_delays_commands_only():
    cluster = Cluster(postgres, nodes=1, takeover="1h")
    node, = cluster.nodes
    client = Client(node)
    client.ask("PUSH", "s", "before")
    postgres.stop(signal.SIGQUIT)
    client.send("PUSH", "s", "meanwhile")
    postgres.start()
    client.receive()
    equal(bodies(node, "s", 2), ["before", "meanwhile"])
    cluster.end()


@case
def H5_a_node_that_does_not_reach_the_store_for_long_stops_and_comes_back():
    cluster = Cluster(postgres, nodes=1)
    node, = cluster.nodes
    client = Client(node)
    client.ask("PUSH", "s", "before")
    postgres.stop(signal.SIGQUIT)
    node.wait_notice("shard 0 is lost")
    postgres.start()
    node.wait_notice("ready")
    equal(bodies(node, "s", 1), ["before"])
    cluster.end()


@case
def H1_a_client_with_several_nodes_goes_on_with_another():
    cluster = Cluster(postgres, nodes=2, takeover="1h")
    owner, standby = cluster.nodes
    at = f"millrace://127.0.0.1:{owner.port},127.0.0.1:{standby.port}"
    equal(millrace("push", "--at", at, "s", "one").returncode, 0)
    owner.stop()
    standby.wait_notice("ready")
    done = millrace("push", "--at", at, "s", "two")
    equal(done.returncode, 0, done.stderr)
    equal(bodies(standby, "s", 2), ["one", "two"])
    cluster.end()


@case
def H1_a_client_passes_over_a_proxy_whose_node_has_ended():
    cluster = Cluster(postgres, nodes=1)
    node, = cluster.nodes
    proxy = Cut(int(lasting_address().split(":")[1]))  # it accepts connections, and closes them
    done = millrace("push", "--at", f"millrace://{proxy.address},127.0.0.1:{node.port}", "s", "one")
    equal(done.returncode, 0, done.stderr)
    equal(bodies(node, "s", 1), ["one"])
    cluster.end()


main()
