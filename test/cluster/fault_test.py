#!/usr/bin/env python3
"""fault_test.py BUILD: what a cluster does when its network, its nodes and its database fail, with real processes. Every
case has a load that checks itself (support/history.py). With MILLRACE_LONG there are more cases. Speaks TAP."""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, answer, bodies, skip_without_postgres, waiting
from cut import Cut
from history import History, is_silent
from postgres import Postgres
from running import Running, lines_of, wait_until
from served import Client, Server, lasting_address
from tap import BUILD, LONG, MILLRACE, SECONDS, case, check, equal, main, sanitized, top

skip_without_postgres()
postgres = Postgres()


def long_case(function):
    """A case of the long proofs only."""
    return case(function) if LONG else function


class CutCluster(Cluster):
    """Each node reaches the database through a proxy (`node.store`), and is reached by clients and other nodes through
    another one (`node.front`)."""

    def add(self, first=False):
        store = Cut(f"{self.postgres.top}/.s.PGSQL.5432")
        listen = lasting_address()
        front = Cut(int(listen.split(":")[1]))
        node = Server("--store", f"postgres://postgres@{store.address}/{self.database}", "--takeover", self.takeover,
                      "--advertise", front.address, *self.more, listen=listen, ready=False)
        node.store, node.front, node.port = store, front, front.port
        node.wait_notice("ready" if first else "owns the store")
        return node

    def ports(self):
        return [node.port for node in self.nodes]

    def owner(self):
        """The node that owns the store, as the database has it."""
        address = self.sql("SELECT owner FROM millrace_main.shard WHERE shard = 0")[0].split(" ")[0]
        found = [node for node in self.nodes if node.front.address == address]
        return found[0] if found else None

    def await_owner(self, other_than):
        """Waits until another node owns the store and serves it; that one."""
        wait_until(lambda: self.owner() not in (None, other_than), "another node owns the store")
        owner = self.owner()
        equal(answer(owner, "PING"), b"+PONG")
        return owner


def end_in_order(cluster):
    """Ends all nodes; none has anything to say against it."""
    for node in cluster.nodes:
        said = node.stop()
        check("ERROR" not in said and "Sanitizer" not in said, said)


# ---- The network -------------------------------------------------------------------------------


def cut_from_store(*ways):
    """The owner is cut off from the database: another node takes over; the first one becomes a standby."""
    cluster = CutCluster(postgres, nodes=3)
    load = History(cluster.ports())
    load.goes_on()
    first = cluster.nodes[0]
    first.store.cut(*ways)
    second = cluster.await_owner(first)
    load.goes_on()
    first.store.heal()
    first.wait_notice("owns the store")
    load.goes_on()
    second.store.cut(*ways)
    cluster.await_owner(second)
    load.goes_on()
    second.store.heal()
    load.holds(first)
    end_in_order(cluster)


@case
def F39_H1_a_node_is_cut_off_from_the_database():
    cut_from_store()


@long_case
def F39_H1_what_a_node_sends_to_the_database_does_not_arrive():
    cut_from_store("up")


@case
def F39_F33_what_the_database_answers_does_not_arrive():
    cut_from_store("down")


@case
def F39_H5_connections_to_the_database_are_reset_again_and_again():
    cluster = CutCluster(postgres, nodes=2, takeover="1h")
    load = History(cluster.ports())
    for _ in range(30 if LONG else 10):
        load.goes_on(5)
        for node in cluster.nodes:
            node.store.reset()
    load.goes_on()
    load.holds(cluster.nodes[1])
    equal(cluster.owner(), cluster.nodes[0])
    end_in_order(cluster)


@long_case
def F39_the_database_is_far_away():
    cluster = CutCluster(postgres, nodes=2)
    load = History(cluster.ports())
    for node in cluster.nodes:
        node.store.delay_s = 0.2
    load.goes_on(40)
    load.holds(cluster.nodes[1])
    equal(cluster.owner(), cluster.nodes[0])
    end_in_order(cluster)


def cut_from_clients(*ways):
    """The owner is reached neither by clients nor by other nodes, but reaches the database: it stays the owner, and
    clients wait."""
    cluster = CutCluster(postgres, nodes=2)
    load = History(cluster.ports(), policy=("overlap", "never", "lease", "2s"))
    load.goes_on()
    first = cluster.nodes[0]
    first.front.cut(*ways)
    client = Client(cluster.nodes[1])
    client.send("PUSH", "s", "x")
    silent = cluster.sql("SELECT seen_at FROM millrace_main.shard")
    wait_until(lambda: cluster.sql("SELECT seen_at FROM millrace_main.shard") != silent, "the owner is seen again")
    check(is_silent(client), "nothing can be answered")
    equal(cluster.owner(), first)
    first.front.heal()
    load.goes_on()
    load.holds(first)
    end_in_order(cluster)


@long_case
def F39_a_node_is_cut_off_from_clients_and_other_nodes():
    cut_from_clients()


@long_case
def F39_what_clients_send_does_not_arrive():
    cut_from_clients("up")


@long_case
def F39_what_a_node_answers_does_not_arrive():
    cut_from_clients("down")


@long_case
def F39_connections_of_clients_are_reset_again_and_again():
    cluster = CutCluster(postgres, nodes=2, takeover="1h")
    load = History(cluster.ports(), policy=("overlap", "never", "lease", "2s"))
    for _ in range(30 if LONG else 8):
        load.goes_on(5)
        for node in cluster.nodes:
            node.front.reset()
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


def pause(process):
    os.kill(process.pid, signal.SIGSTOP)


def resume(process):
    os.kill(process.pid, signal.SIGCONT)


# ---- Processes ---------------------------------------------------------------------------------


@long_case
def F37_all_nodes_are_killed_at_once_and_started_again():
    cluster = CutCluster(postgres, nodes=3)
    load = History(cluster.ports())
    for _ in range(5 if LONG else 2):
        load.goes_on()
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start(ready=False)
    load.goes_on()
    load.holds(cluster.nodes[0])
    end_in_order(cluster)


@case
def F37_the_database_and_all_nodes_are_killed_at_once():
    own = Postgres(["fsync=on"])
    cluster = CutCluster(own, nodes=2)
    load = History(cluster.ports())
    load.goes_on()
    own.stop(signal.SIGQUIT)
    for node in cluster.nodes:
        node.kill()
        node.start(ready=False)
    own.start()
    load.goes_on()
    load.holds(cluster.nodes[0])
    end_in_order(cluster)


@case
def F32_H1_the_owner_is_paused_and_resumed():
    cluster = CutCluster(postgres, nodes=3)
    load = History(cluster.ports())
    for _ in range(4 if LONG else 1):
        load.goes_on()
        first = cluster.owner()
        pause(first.process)
        cluster.await_owner(first)
        load.goes_on()
        resume(first.process)
        first.wait_notice("owns the store")
    load.goes_on()
    load.holds(first)
    end_in_order(cluster)


@long_case
def F32_all_nodes_are_paused_and_resumed():
    cluster = CutCluster(postgres, nodes=2)
    load = History(cluster.ports())
    load.goes_on()
    silent = "SELECT clock_timestamp() - seen_at > interval '4 s' FROM millrace_main.shard"
    for node in cluster.nodes:
        pause(node.process)
    wait_until(lambda: cluster.sql(silent) == ["t"], "no node was seen for longer than the takeover")
    for node in cluster.nodes:
        resume(node.process)
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


def backends(cluster, where="true"):
    """The processes of the database that serve nodes."""
    return [int(pid) for pid in cluster.sql(f"""SELECT pid FROM pg_stat_activity WHERE datname = '{cluster.database}' AND
        application_name = 'millrace main/0' AND {where}""")]


def writing_backend(cluster, client):
    """The one that the owner's appends go to."""
    found = []
    wait_until(lambda: client.ask("PUSH", "s", "kept") and
               found.extend(backends(cluster, "query LIKE '%INSERT INTO batch%'")) or found, "an append is seen")
    return found[0]


def trim_log(cluster, node):
    """Works off so much that the head of the log moves."""
    head, client = cluster.sql("SELECT head FROM millrace_main.shard"), Client(node)

    def is_trimmed():
        for _ in range(5):
            client.ask("PUSH", "large", "x" * 1000000)
        equal(len(client.work_off("large", 5)), 5)
        return cluster.sql("SELECT head FROM millrace_main.shard") != head
    wait_until(is_trimmed, "the log is trimmed")


@case
def F32_an_append_that_has_sat_in_the_database_until_the_log_was_trimmed_is_refused():
    cluster = CutCluster(postgres, nodes=2)
    first, second = cluster.nodes
    client = Client(first)
    writing = writing_backend(cluster, client)
    kept = int(client.ask("STAGES", "NAME", "s")[0][3])
    os.kill(writing, signal.SIGSTOP)
    client.send("PUSH", "s", "late")  # its append waits in the socket of that process
    wait_until(lambda: cluster.sql("SELECT epoch > 1 FROM millrace_main.shard") == ["t"], "the store is claimed anew")
    trim_log(cluster, second)
    of_first = "SELECT at FROM millrace_main.batch WHERE epoch = 1"
    before = cluster.sql(of_first)
    os.kill(writing, signal.SIGCONT)
    wait_until(lambda: writing not in backends(cluster), "the process has run what it had received, and ended")
    check(set(cluster.sql(of_first)) <= set(before), "nothing was written by the first owner")
    equal(bodies(second, "s", kept), kept * ["kept"])
    equal(waiting(second, "s"), 0)
    end_in_order(cluster)


# ---- Workers -----------------------------------------------------------------------------------

HOLD = """echo >>"$0/starts"; flock -n -E 75 "$0/lock" sh -c 'while [ -d "$0" -a ! -e "$0/go" ]; do sleep 0.05; done
    exec "$1" emit out' "$0" "$1" || { [ $? != 75 ] || echo >>"$0/overlaps"; exit 1; }"""


def work_at(folder, *nodes):
    at = "millrace://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    return Running(MILLRACE, "work", "--at", at, "in", "--", "sh", "-c", HOLD, folder, MILLRACE,
                   stdin=subprocess.DEVNULL, text=True)


def starts(folder):
    return len(lines_of(f"{folder}/starts")) if os.path.exists(f"{folder}/starts") else 0


def hold_a_job(disturb, mend):
    """A command runs when its worker hears no more from the owner; another worker runs it after the takeover. The lease
    is long, so it is not its end that stops the first one."""
    cluster = CutCluster(postgres, nodes=2)
    first, second = cluster.nodes
    folder = tempfile.mkdtemp(dir=top)
    equal(answer(first, "STAGE", "in", "lease", "1h"), b"+OK")
    Client(first).ask("PUSH", "in", "held", "KEY", "k")
    workers = [work_at(folder, first, second)]
    wait_until(lambda: starts(folder) == 1, "the first worker has begun")
    workers.append(work_at(folder, second, first))
    disturb(first)
    equal(cluster.await_owner(first), second)
    wait_until(lambda: starts(folder) >= 2, "the job has begun again")
    check(not os.path.exists(f"{folder}/overlaps"), "both commands ran at the same time", *(w.said() for w in workers))
    open(f"{folder}/go", "w", encoding="utf-8").close()
    equal(bodies(second, "out", 1), ["held"])
    mend(first)
    first.wait_notice("owns the store")
    equal(waiting(second, "out"), 0)
    for worker in workers:
        worker.signal(signal.SIGINT)
        worker.end()
    end_in_order(cluster)


@case
def H1_F39_a_command_ends_before_a_new_owner_starts_its_job_again_if_the_old_one_is_paused():
    hold_a_job(lambda node: pause(node.process), lambda node: resume(node.process))


@long_case
def H1_F39_a_command_ends_before_a_new_owner_starts_its_job_again_if_the_old_one_is_cut_off():
    def cut(node):
        node.store.cut()
        node.front.cut()

    def heal(node):
        node.store.heal()
        node.front.heal()
    hold_a_job(cut, heal)


@case
def H5_a_running_command_survives_a_short_outage_of_the_database():
    cluster = CutCluster(postgres, nodes=1, takeover="10s")
    node, = cluster.nodes
    folder = tempfile.mkdtemp(dir=top)
    Client(node).ask("PUSH", "in", "held")
    worker = work_at(folder, node)
    wait_until(lambda: starts(folder) == 1, "the worker has begun")
    node.store.cut()
    client = Client(node)
    client.send("PUSH", "s", "waits")
    node.wait_notice("commands wait")
    wait_until(lambda: int(info(node, b"outage_ms")) > 4500, "the outage is longer than a worker waits for a reply")
    node.store.heal()
    client.receive()
    open(f"{folder}/go", "w", encoding="utf-8").close()
    equal(bodies(node, "out", 1), ["held"])
    equal(starts(folder), 1)
    worker.signal(signal.SIGINT)
    worker.end()
    end_in_order(cluster)


def info(node, name):
    return re.search(rb"^%s:(.*)\r$" % name, answer(node, "INFO", "CLUSTER"), re.M)[1]


# ---- Clocks and sizes --------------------------------------------------------------------------


def start_shifted(cluster, address, shift_s):
    """A node whose wall clock is so many seconds ahead."""
    environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "test", "libshifted_clock.so"),
                       MILLRACE_CLOCK_S=str(shift_s),
                       ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
    node = Server("--store", cluster.url, "--takeover", "1h", listen=address, ready=False, env=environment)
    node.port = int(address.split(":")[1])
    node.wait_notice("owns the store" if cluster.nodes else "ready")
    cluster.nodes.append(node)
    return node


@case
def F30_the_wall_clocks_of_nodes_differ_by_hours():
    cluster = Cluster(postgres, nodes=0, takeover="1h")
    addresses = [lasting_address() for _ in range(3)]
    owner = start_shifted(cluster, addresses[0], 0)
    load = History([int(address.split(":")[1]) for address in addresses])
    for address, shift_s in zip(addresses[1:], (3600, -3600)):
        load.goes_on()
        following = start_shifted(cluster, address, shift_s)
        owner.stop()
        following.wait_notice("ready")
        client, owner = Client(following), following
        client.ask("PUSH", "delayed", "x", "DELAY", 200)
        equal(bodies(following, "delayed", 1), ["x"])  # neither the past nor the future keeps it
        client.close()
    load.goes_on()
    load.holds(owner)
    owner.stop()


@case
def F30_H1_no_node_takes_over_because_the_clock_of_the_database_jumps_ahead():
    own = Postgres(has_clock=True)
    cluster = CutCluster(own, nodes=2, takeover="1h")
    load = History(cluster.ports())
    first, second = cluster.nodes
    load.goes_on()
    first.store.cut()  # its last sign is that of the clock before
    own.set_clock(7200)
    after, = cluster.sql("SELECT clock_timestamp() + interval '1.5 s'")  # a look has several statements
    looked = f"""SELECT count(*) FROM pg_stat_activity WHERE application_name = 'millrace main board' AND
        query_start > '{after}'"""
    wait_until(lambda: cluster.sql(looked) == ["1"], "the other node has looked at the store")
    first.store.heal()
    load.goes_on()
    equal((cluster.owner(), cluster.sql("SELECT epoch FROM millrace_main.shard")), (first, ["1"]))
    load.holds(second)
    end_in_order(cluster)


@long_case
def F30_H1_a_node_takes_over_although_the_clock_of_the_database_jumps_back():
    own = Postgres(has_clock=True)
    cluster = CutCluster(own, nodes=2)
    load = History(cluster.ports())
    first, second = cluster.nodes
    load.goes_on()
    first.kill()
    own.set_clock(-3600)  # the last sign of the owner is in the future
    equal(cluster.await_owner(first), second)
    load.goes_on()
    load.holds(second)
    second.stop()


@case
def H2_the_largest_bodies_pass_a_relay_and_a_takeover():
    cluster = CutCluster(postgres, nodes=2)
    owner, standby = cluster.nodes
    large = ["".join(random.choices("abcdefgh", k=1 << 12)) * (1 << 12) for _ in range(3)]
    for body in large:
        Client(standby).ask("PUSH", "s", body)
    owner.kill()
    cluster.await_owner(owner)
    check(bodies(standby, "s", 3) == large)
    standby.stop()


@long_case
def H1_a_backlog_that_is_larger_than_memory_is_taken_over():
    cluster = CutCluster(postgres, nodes=2, more=("--max-bytes", "100m"))
    owner, standby = cluster.nodes
    client, count = Client(standby), 600
    for i in range(count):
        client.ask("PUSH", "s", f"{i} ".ljust(1000000, "x"))
    owner.kill()
    cluster.await_owner(owner)
    equal([int(body.split()[0]) for body in bodies(standby, "s", count)], list(range(count)))
    with open(f"/proc/{standby.process.pid}/status", encoding="utf-8") as file:
        most_kb = int(re.search(r"VmHWM:\s*(\d+)", file.read())[1])
    check(sanitized() or most_kb < 400000, f"{most_kb} KiB for {count} MB")
    standby.stop()


@long_case
def H1_a_million_jobs_are_taken_over():
    if sanitized():
        return "too slow with sanitizers"
    cluster = CutCluster(postgres, nodes=2)
    owner, standby = cluster.nodes
    client, count, part = Client(owner), 1000000, 1000
    for first in range(0, count, part):
        items = [word for i in range(first, first + part) for word in (f"k{i % 5000}", f"{i}")]
        equal(len(client.ask("PUSHMANY", "s", "ITEMS", *items)), part)
    owner.kill()
    begun = time.monotonic()
    cluster.await_owner(owner)
    print(f"# a million jobs were taken over {time.monotonic() - begun:.1f} s after the end of their owner", flush=True)
    equal(waiting(standby, "s"), count)
    found = [int(body) for body in bodies(standby, "s", 2 * part)]
    equal(sorted(set(found)), sorted(found))
    for key in range(5000):
        of_key = [i for i in found if i % 5000 == key]
        equal(of_key, list(range(key, key + 5000 * len(of_key), 5000)))
    equal(waiting(standby, "s"), count - 2 * part)
    standby.stop()
    return None


# ---- By chance ---------------------------------------------------------------------------------


def disturb_by_chance(cluster, chance):
    """Does something to a node; what undoes it, and whether pushes are accepted meanwhile."""
    node = chance.choice(cluster.nodes)

    def restart():
        node.start(ready=False)
    kind = chance.choice(["kill", "stop", "pause", "cut", "reset", "front"])
    if kind == "kill":
        node.kill()
        return restart, True
    if kind == "stop":
        node.stop()
        return restart, True
    if kind == "pause":
        pause(node.process)
        return lambda: resume(node.process), True
    if kind == "cut":
        node.store.cut(*chance.choice([(), ("up",), ("down",)]))
        return node.store.heal, True
    if kind == "reset":
        node.store.reset()
        return lambda: None, True
    node.front.cut()
    return node.front.heal, False


@long_case
def F40_H3_faults_by_chance():
    seed = int(os.environ.get("MILLRACE_SEED", time.time()))
    print(f"# MILLRACE_SEED={seed}", flush=True)
    chance, until = random.Random(seed), time.monotonic() + SECONDS
    cluster = CutCluster(postgres, nodes=3)
    load = History(cluster.ports(), policy=("overlap", "never", "lease", "3s"))
    while time.monotonic() < until:
        load.goes_on(10)
        undo, goes_on = disturb_by_chance(cluster, chance)
        if goes_on:
            load.goes_on(10)
        undo()
    load.goes_on(10)
    load.holds(cluster.nodes[0])
    cluster.end()


main()
