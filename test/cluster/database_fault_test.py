#!/usr/bin/env python3
"""database_fault_test.py BUILD: what a cluster does when its database is replaced, stops to replicate, is full, read-only,
paused, or not what it should be, with real processes. Speaks TAP."""
import atexit
import os
import shutil
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, answer, bodies, millrace, skip_without_postgres, waiting
from cut import Cut
from history import History, is_acknowledged, is_silent
from postgres import Postgres
from running import wait_until
from served import Client, Server
from tap import LONG, case, check, equal, main, top

skip_without_postgres()


def long_case(function):
    """A case of the long proofs only."""
    return case(function) if LONG else function


def make_pair(synchronous=True):
    """A primary and its standby, which reaches it through a proxy (`standby.link`); a standby that is promoted waits for
    none."""
    primary = Postgres(["fsync=on"])
    link = Cut(f"{primary.top}/.s.PGSQL.5432")
    conninfo = f"primary_conninfo=host=127.0.0.1 port={link.port} user=postgres"
    standby = Postgres([*primary.settings, conninfo], primary)
    standby.link = link
    if synchronous:
        primary.configure("synchronous_standby_names", "*")
    return primary, standby


def ports(cluster):
    return [node.port for node in cluster.nodes]


# ---- Promotions --------------------------------------------------------------------------------


@case
def H1_a_synchronous_standby_is_promoted_and_nothing_is_lost():
    primary, standby = make_pair()
    cluster = Cluster(primary, others=[standby])
    load = History(ports(cluster))
    load.goes_on()
    primary.stop(signal.SIGQUIT)  # as if its machine were lost
    standby.promote()
    load.goes_on()
    load.holds(cluster.nodes[1])
    cluster.end()


@case
def F35_F38_a_promotion_that_loses_commits_ends_the_nodes():
    primary, standby = make_pair(synchronous=False)
    cluster = Cluster(primary, others=[standby])
    owner, other = cluster.nodes
    client = Client(owner)
    client.ask("PUSH", "s", "old")
    behind = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()"
    wait_until(lambda: primary.sql(behind, database="postgres") == [], "the standby has everything")
    standby.stop()
    for i in range(10):
        client.ask("PUSH", "s", i)
    tail = cluster.sql("SELECT tail FROM millrace_main.shard")
    now, = cluster.sql("SELECT clock_timestamp() + interval '1.5 s'")  # a look has several statements
    looked = f"""SELECT count(*) FROM pg_stat_activity WHERE application_name = 'millrace main board' AND
        query_start > '{now}'"""
    wait_until(lambda: cluster.sql(looked) == ["2"], "both nodes have looked at the store")
    primary.stop(signal.SIGQUIT)
    standby.start()
    standby.promote()
    for node in owner, other:
        node.wait_notice("has lost")
        said = node.ends(code=1)
        check("the store has lost acknowledged entries" in said and tail[0] in said, said)
    owner.start(ready=False)  # an operator decides to go on without them
    owner.wait_notice("ready")
    equal(bodies(owner, "s", 1), ["old"])
    cluster.end()


@case
def F35_a_node_that_finds_a_former_primary_acknowledges_nothing():
    primary, standby = make_pair()
    cluster = Cluster(primary, others=[standby])
    owner, _ = cluster.nodes
    Client(owner).ask("PUSH", "s", "before")
    primary.stop(signal.SIGQUIT)
    standby.promote()
    answer(owner, "PUSH", "s", "after")
    primary.start()  # it does not know that it is one no more, and is the first in the URL
    late = Server(*owner.command[owner.command.index("--store"):], ready=False)
    late.listens()
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name LIKE 'millrace main%'"
    wait_until(lambda: primary.sql(waits, database="postgres"), "what the node writes waits for a standby")
    client = Client(late)
    client.send("PUSH", "s", "late")
    Client(owner).ask("PUSH", "s", "meanwhile")
    check(is_silent(client), "what only a former primary has was acknowledged")
    primary.stop(signal.SIGQUIT)
    late.wait_notice("owns the store")
    answer(late, "PUSH", "s", "passed on")
    found = bodies(owner, "s", waiting(owner, "s"))
    equal([body for body in found if body != "late"], ["before", "after", "meanwhile", "passed on"])
    late.stop()
    cluster.end()


# ---- Replication -------------------------------------------------------------------------------


@case
def F36_the_standby_restarts_and_has_everything_afterwards():
    primary, standby = make_pair()
    cluster = Cluster(primary, others=[standby])
    load = History(ports(cluster))
    for end in (standby.stop, standby.crash, standby.crash) if LONG else (standby.crash,):
        load.goes_on()
        end()
        standby.start()
    load.goes_on()
    primary.crash()  # the one that has restarted has to serve now
    standby.promote()
    load.goes_on()
    load.holds(cluster.nodes[1])
    cluster.end()


def cut_from_standby(*ways):
    """Primary and standby do not reach each other: commits wait, and nothing is acknowledged that only one of them has."""
    primary, standby = make_pair()
    cluster = Cluster(primary)
    load = History(ports(cluster))
    load.goes_on()
    standby.link.cut(*ways)
    client = Client(cluster.nodes[0])
    client.send("PUSH", "s", "waits")
    wait_until(lambda: any("is lost" in line for node in cluster.nodes for line in node.new_notices()), "an owner gives up")
    check(is_silent(client) or not is_acknowledged(client), "what the standby does not have was acknowledged")
    standby.link.heal()
    load.goes_on()
    load.holds(cluster.nodes[1])
    cluster.end()


@long_case
def F39_H5_what_the_primary_sends_to_the_standby_does_not_arrive():
    cut_from_standby("down")


@long_case
def F39_H5_what_the_standby_answers_does_not_arrive():
    cut_from_standby("up")


@long_case
def F39_H5_primary_and_standby_are_cut_off():
    cut_from_standby()


@long_case
def F37_H5_primary_standby_and_all_nodes_are_killed_at_once():
    primary, standby = make_pair()
    cluster = Cluster(primary, nodes=3)
    load = History(ports(cluster))
    for _ in range(3):
        load.goes_on()
        for one in primary, standby:
            one.crash()
        for node in cluster.nodes:
            node.kill()
        for one in primary, standby:
            one.start()
        for node in cluster.nodes:
            node.start(ready=False)
    load.goes_on()
    load.holds(cluster.nodes[1])
    cluster.end()


@long_case
def F32_H5_primary_standby_and_all_nodes_are_paused_and_resumed():
    primary, standby = make_pair()
    cluster = Cluster(primary, nodes=3)
    load = History(ports(cluster))
    load.goes_on()
    silent = "SELECT clock_timestamp() - seen_at > interval '4 s' FROM millrace_main.shard"
    for node in cluster.nodes:
        node.signal(signal.SIGSTOP)
    standby.signal_all(signal.SIGSTOP)
    wait_until(lambda: cluster.sql(silent) == ["t"], "no node was seen for longer than the takeover")
    primary.signal_all(signal.SIGSTOP)
    for one in primary, standby:
        one.signal_all(signal.SIGCONT)
    for node in cluster.nodes:
        node.signal(signal.SIGCONT)
    load.goes_on()
    load.holds(cluster.nodes[1])
    cluster.end()


@long_case
def F40_everything_restarts_in_turn_under_load():
    primary, standby = make_pair()
    cluster = Cluster(primary, nodes=3)
    load = History(ports(cluster))
    for part in standby, primary:
        load.goes_on()
        part.stop()
        part.start()
    for node in cluster.nodes:
        load.goes_on()
        node.stop()
        load.goes_on()
        node.start(ready=False)
        equal(answer(node, "PING"), b"+PONG")
    load.goes_on()
    load.holds(cluster.nodes[2])
    cluster.end()

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'millrace main/0'"


@case
def F33_a_commit_whose_wait_for_the_standby_was_cancelled_is_not_acknowledged():
    primary, standby = make_pair()
    cluster = Cluster(primary, nodes=1, takeover="1h")
    node, = cluster.nodes
    client = Client(node)
    client.ask("PUSH", "s", "before")
    standby.signal_all(signal.SIGSTOP)
    client.send("PUSH", "s", "doubtful")
    for _ in range(3):  # the append, then claims that would settle it
        wait_until(lambda: primary.sql(WAITING, database="postgres"), "a commit waits for the standby")
        pid, = primary.sql(WAITING, database="postgres")
        epoch = primary.sql("SELECT epoch FROM millrace_main.shard", database=cluster.database)
        primary.sql(f"SELECT pg_cancel_backend({pid})", database="postgres")
        wait_until(lambda: primary.sql("SELECT epoch FROM millrace_main.shard", database=cluster.database) != epoch or
                   primary.sql(WAITING, database="postgres"), "the node tries again")
        check(is_silent(client), "what the standby does not have was acknowledged")
    standby.signal_all(signal.SIGCONT)
    client.receive()
    equal(bodies(node, "s", 2), ["before", "doubtful"])
    cluster.end()


@case
def H5_the_database_is_paused_and_resumed():
    primary, standby = make_pair()
    cluster = Cluster(primary)
    load = History(ports(cluster))
    for one in (primary, standby):
        load.goes_on()
        one.signal_all(signal.SIGSTOP)
        wait_until(lambda: any("is lost" in line for node in cluster.nodes for line in node.new_notices()), "an owner gives up")
        one.signal_all(signal.SIGCONT)
    load.goes_on()
    load.holds(cluster.nodes[1])
    cluster.end()


# ---- Space and rights --------------------------------------------------------------------------


class SmallDisk:
    """A file system of a few megabytes for tables of a database."""

    def __init__(self, postgres, size):
        self.folder = os.path.join(postgres.top, "small")
        os.mkdir(self.folder)
        self.mount(f"size={size}")
        atexit.register(subprocess.run, ["umount", "-l", self.folder])
        shutil.chown(self.folder, "postgres", "postgres")

    def mount(self, options):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.folder], check=True)

    def grow(self, size):
        self.mount(f"remount,size={size}")


def why_no_small_disk():
    if os.geteuid() != 0:
        return "only root can mount a small file system"
    folder = os.path.join(top, "mount")
    os.mkdir(folder)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode == 0:
        subprocess.run(["umount", folder], check=True)
    return mounted.stderr.strip() or None


@case
def F25_H5_a_database_without_space_refuses_pushes_until_there_is_room():
    if why := why_no_small_disk():
        return why
    own = Postgres()
    disk = SmallDisk(own, "40m")
    cluster = Cluster(own, nodes=0, takeover="1h")
    own.sql(f"CREATE TABLESPACE small LOCATION '{disk.folder}'", database="postgres")
    own.sql(f"ALTER DATABASE {cluster.database} SET TABLESPACE small", database="postgres")
    cluster.nodes = [cluster.add(first=True)]
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
    wait_until(is_full, "the disk is full")
    check("no space left" in asking.refused("FULL", "PUSH", "s", "one more"))
    check("warn" in node.wait_notice("pushes are refused until there is room"))
    check(is_silent(client), "what the database did not accept was acknowledged")
    disk.grow("200m")
    client.receive()
    asking.ask("PUSH", "s", f"{sent} and it goes on")
    node.wait_notice("pushes are accepted")
    node.kill()
    node.start(ready=False)
    node.wait_notice("ready")
    equal([int(body.split()[0]) for body in bodies(node, "s", sent + 1)], list(range(sent + 1)))
    cluster.end()


@long_case
def H5_a_database_that_is_read_only_for_a_while_delays_commands_only():
    own = Postgres()
    cluster = Cluster(own, nodes=1, takeover="1h")
    node, = cluster.nodes
    client = Client(node)
    client.ask("PUSH", "s", "before")
    own.configure("default_transaction_read_only", "on")
    client.send("PUSH", "s", "meanwhile")
    check("read-only" in node.wait_notice("commands wait"))
    check(is_silent(client), "a read-only database has accepted something")
    own.sql("SET default_transaction_read_only = off; ALTER SYSTEM SET default_transaction_read_only = off;",
            database="postgres")
    own.sql("SELECT pg_reload_conf()", database="postgres")
    client.receive()
    equal(bodies(node, "s", 2), ["before", "meanwhile"])
    cluster.end()


# ---- A database that is not what it should be --------------------------------------------------


def refused(cluster, *words, code=2, url=None):
    """What a node says that does not start."""
    done = millrace("serve", "--http", "off", "--listen", "127.0.0.1:0", "--store", url or cluster.url, *words)
    equal(done.returncode, code, words, done.stderr)
    return done.stderr


@case
def H6_a_store_that_is_not_as_it_should_be_is_refused_with_the_way_out():
    own = Postgres()
    cluster = Cluster(own, nodes=0)
    check("millrace store init" in refused(cluster, "--cluster", "other"))
    check("has 1 shard" in refused(cluster, "--shards", "4"))
    own.sql("CREATE ROLE guest LOGIN", database="postgres")
    check("grant" in refused(cluster, code=4, url=own.url(cluster.database, user="guest")))
    cluster.sql("UPDATE millrace_main.cluster SET version = 99")
    said = refused(cluster)
    check("version 99" in said and "use a program of that version" in said, said)
    cluster.sql("DROP SCHEMA millrace_main CASCADE")
    check("millrace store init" in refused(cluster))


@case
def F38_H6_a_node_ends_when_its_tables_are_gone_or_made_anew():
    own = Postgres()
    for is_new in False, True:
        cluster = Cluster(own, nodes=2)
        Client(cluster.nodes[0]).ask("PUSH", "s", "acknowledged")
        tail = cluster.sql("SELECT tail FROM millrace_main.shard")[0]
        seen = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'millrace main board' AND query_start > '{}'"
        now, = cluster.sql("SELECT clock_timestamp() + interval '1.5 s'")
        wait_until(lambda: cluster.sql(seen.format(now)) == ["2"], "both nodes have looked at the store")
        for node in cluster.nodes:
            node.signal(signal.SIGSTOP)  # they see only the outcome
        cluster.sql("DROP SCHEMA millrace_main CASCADE")
        if is_new:
            made = millrace("store", "init", cluster.url)
            equal(made.returncode, 0, made.stderr)
        for node in cluster.nodes:
            node.signal(signal.SIGCONT)
        for node in cluster.nodes:
            said = node.ends(code=1 if is_new else 2)
            check(("has lost acknowledged entries" in said and tail in said) if is_new else "millrace store init" in said, said)


@case
def H6_a_node_ends_when_its_store_is_changed_by_another_version():
    own = Postgres()
    cluster = Cluster(own, nodes=2)
    owner, other = cluster.nodes
    cluster.sql("UPDATE millrace_main.cluster SET version = 99")
    own.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'millrace%'",
            database="postgres")
    for node in cluster.nodes:
        check("version 99" in node.ends(code=2), *node.said)


main()
