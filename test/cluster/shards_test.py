#!/usr/bin/env python3
"""shards_test.py BUILD: a cluster whose shards live on several nodes, with real processes: they are spread evenly, any
node takes any command, and nothing is lost or done twice when nodes end, are killed or are paused. With MILLRACE_LONG
there are more cases. Speaks TAP."""
import os
import re
import select
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, answer, bodies, millrace, skip_without_postgres, stages_of
from cut import Cut
from history import History
from postgres import Postgres
from running import wait_until
from served import Client, Refused, Server, Wire, lasting_address, too_few_descriptors
from tap import BUILD, LONG, case, check, equal, main

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


shared_ones = []


def shared():
    """A cluster for all cases that leave it as it is. A machine that is busy takes no shard from a node of it."""
    if not shared_ones:
        shared_ones.append(start(takeover="1h"))
    return shared_ones[0]


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
        check("is in use by" not in said, "a shard was taken over later than --takeover says", said)


# ---- Spreading and routing -------------------------------------------------------------------------


@case
def H3_shards_are_spread_evenly_and_a_node_that_joins_gets_its_share():
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
    cluster = shared()
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


@case
def H2_a_TAKE_of_stages_of_several_nodes_takes_in_their_order_and_waits_at_all():
    cluster = shared()
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


@case
def H2_jobs_that_a_TAKE_of_several_nodes_gets_too_much_go_back_at_once_uncounted():
    cluster = shared()
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
    cluster = shared()
    for name in [stages_of(shard, SHARDS, prefix="call")[0] for shard in range(SHARDS)]:
        caller, worker = Client(cluster.nodes[0]), Client(cluster.nodes[1])
        caller.send("CALL", name, "question")
        (job, token, *_), = worker.ask("TAKE", name, "WAIT", -1)
        waiter = Client(cluster.nodes[2])
        waiter.send("AWAIT", job, "WAIT", -1)
        worker.ask("DONE", job, token, "RESULT", "reply")
        equal([caller.receive(), waiter.receive()], ["reply", "reply"])
        caller.send("CALL", name, "unwanted")
        (job, token, *_), = worker.ask("TAKE", name, "WAIT", -1)
        caller.close()
        wait_until(lambda: worker.ask("BEAT", job, token) == [job], "the worker learns that the call is cancelled")
        worker.refused("CANCELLED", "DONE", job, token)


@case
def H2_MULTI_and_EPIC_span_nodes():
    cluster = shared()
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


# ---- What is no node -------------------------------------------------------------------------------


def is_closed_after(node, *words, then=b"", waits_for_ok=True):
    """What is answered to words, and to bytes after them, until the node closes the connection; `waits_for_ok`: those
    are sent when LINK was answered."""
    wire, found = Wire(node.port), b""
    wire.send(*words)
    try:
        if then and words[0] == "LINK" and waits_for_ok:
            found += wire.file.readline()
        wire.socket.sendall(then)
        while data := wire.socket.recv(65536):
            found += data
    except (ConnectionResetError, BrokenPipeError):
        pass  # it was closed while there was more to read
    wire.close()
    return found


def frame(kind, number, rest=b""):
    return struct.pack("<IBQ", 9 + len(rest), kind, number) + rest


@case
def F41_a_link_without_the_secret_of_the_cluster_is_refused_and_closed():
    cluster = shared()
    secret, = cluster.sql("SELECT value FROM millrace_main.note WHERE key = 'secret'")
    node, address = cluster.nodes[0], "127.0.0.1:9"
    for words in ("wrong", 1, "main", SHARDS, address), ("", 1, "main", SHARDS, address):
        check(is_closed_after(node, "LINK", *words).startswith(b"-WRONGPASS"), words)
    for words, why in (((2, "main", SHARDS), b"same release"), ((1, "other", SHARDS), b"cluster main"),
                       ((1, "main", SHARDS + 1), b"4 shards"), (("x", "main", SHARDS), b"4 shards")):
        reply = is_closed_after(node, "LINK", secret, *words, address)
        check(reply.startswith(b"-ERR") and why in reply, words, reply)
    hello = ("LINK", secret, 1, "main", SHARDS, address)
    for rest in (b"\xff" * 4096, struct.pack("<I", 1 << 31) + b"x", struct.pack("<I", 0), frame(0, 1, b"\0" * 10),
                 frame(12, 0, b"\xff" * 100), frame(1, 1, b"\xff" * 20), frame(13, 1), frame(200, 1), b"PING\r\n" * 100):
        for waits_for_ok in True, False:
            check(is_closed_after(node, *hello, then=rest, waits_for_ok=waits_for_ok) in (b"", b"+OK\r\n"), rest)
    identity = struct.pack("<IBQBI", 2, 1, 7, 0, 0) + b"\0" * 4
    for slot in 0, 1 << 20, (1 << 32) - 1:
        check(is_closed_after(node, *hello, then=frame(0, slot, identity)) in (b"", b"+OK\r\n"), slot)
    check(is_closed_after(node, *hello, then=2 * frame(0, 1, identity)).startswith((b"+OK\r\n", b"")), "a session twice")
    check(b"+OK" not in is_closed_after(node, "PING", then=20 * frame(0, 1, identity)), "frames without LINK")
    for one in cluster.nodes:
        equal(answer(one, "PING"), b"+PONG")
        equal(answer(one, "PUSH", stages_of(2, SHARDS)[0], "x")[:1].isdigit(), True)


def refuses_to_join(cluster, *words):
    node = Server("--store", cluster.url, "--takeover", cluster.takeover, *words, ready=False)
    return node.ends(code=2)


@case
def H3_H6_a_node_of_another_version_or_number_of_shards_is_refused_and_disturbs_no_other():
    cluster = Cluster(postgres, takeover="1h", shards=SHARDS)
    first, second = cluster.nodes
    cluster.wait_spread(2, 2)
    epochs = cluster.sql("SELECT epoch FROM millrace_main.shard ORDER BY shard")
    said = refuses_to_join(cluster, "--shards", str(SHARDS + 1))
    check(f"has {SHARDS} shards, not {SHARDS + 1}" in said, said)
    cluster.sql("INSERT INTO millrace_main.note (key, value, put_at) VALUES "
                "('node 127.0.0.1:9', '- 9.8.7 serving 0 0 2', clock_timestamp())")  # as a node of later links writes it
    said = refuses_to_join(cluster)
    check("127.0.0.1:9 runs millrace 9.8.7, which links with version 2" in said and "same release" in said, said)
    for node in first, second:  # these have read both notes
        wait_until(lambda n=node: b"9.8.7" in repr(answer(n, "CLUSTER", "STATUS")).encode(), "the note is read")
        for shard in range(SHARDS):
            check(answer(node, "PUSH", stages_of(shard, SHARDS)[0], "x")[:1].isdigit(), shard)
    equal(cluster.sql("SELECT epoch FROM millrace_main.shard ORDER BY shard"), epochs)
    cluster.wait_spread(2, 2)
    cluster.end()


# ---- Faults ----------------------------------------------------------------------------------------


# With `overlap brief` the owner of a shard starts a job again as soon as the link over which it was taken is lost, while
# the worker is about to end its command.
NO_OVERLAP = ("overlap", "never", "lease", "2s")


def load_on(cluster, out=1, policy=()):
    """Jobs of the stage `in`, which is in shard 3, emit into a stage of the shard `out`."""
    return History([node.port for node in cluster.nodes], policy=policy, out=stages_of(out, SHARDS, prefix="out")[0])


@case
def F37_H3_each_node_is_killed_in_turn_under_load():
    cluster = start()
    load = load_on(cluster, policy=NO_OVERLAP)
    for node in cluster.nodes if LONG else cluster.nodes[:2]:
        load.goes_on()
        node.kill()
        load.goes_on()
        node.start(ready=False)
        wait_until(lambda: is_even(cluster), "it has its share again")
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@case
def F40_H3_each_node_is_restarted_in_turn_under_load():
    cluster = start(takeover="1h")  # no takeover is by silence
    load = load_on(cluster)
    for node in cluster.nodes if LONG else cluster.nodes[:2]:
        load.goes_on()
        node.stop()
        load.goes_on()
        node.start(ready=False)
        wait_until(lambda: is_even(cluster), "it has its share again")
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


def address(node):
    return f"127.0.0.1:{node.port}"


@case
def H3_each_node_is_drained_in_turn_under_load():
    cluster = start(takeover="1h")  # no takeover is by silence
    load = load_on(cluster)
    for node in cluster.nodes if LONG else cluster.nodes[:1]:
        load.goes_on()
        equal(answer(node, "CLUSTER", "DRAIN", address(node)), b"+OK")
        wait_until(lambda: node not in cluster.owners() and None not in cluster.owners(), "others own its shards")
        load.goes_on()
        node.stop()
        node.start(ready=False)
        wait_until(lambda: is_even(cluster), "it has its share again")
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@case
def H4_what_is_emitted_arrives_once_while_both_shards_move():
    cluster = start(takeover="1h")
    load = load_on(cluster)
    for turn in range(12 if LONG else 3):
        load.goes_on(10)
        moves = {3: cluster.nodes[turn % 3], 1: cluster.nodes[(turn + turn // 3 + 1) % 3]}  # from where, and to where
        for shard, node in moves.items():
            equal(answer(cluster.nodes[turn % 3], "CLUSTER", "MOVE", shard, address(node)), b"+OK")
        wait_until(lambda: all(cluster.owners()[shard] is node for shard, node in moves.items()), "the shards have moved")
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@case
def F32_H1_a_node_is_paused_and_resumed_under_load():
    cluster = start()
    load = load_on(cluster, policy=NO_OVERLAP)
    node = cluster.nodes[1]
    for is_long in (True, False) if LONG else (False,):
        load.goes_on()
        os.kill(node.process.pid, signal.SIGSTOP)
        if is_long:
            wait_until(lambda: node not in cluster.owners(), "others own its shards")
        else:
            select.select([], [], [], 2)  # longer than it may answer without the store, shorter than the takeover
        os.kill(node.process.pid, signal.SIGCONT)
        wait_until(lambda: is_even(cluster), "it has its share again")
        wait_linked(cluster)
    load.goes_on()
    load.holds(node)
    end_in_order(cluster)


class LinkedCluster(Cluster):
    """Other nodes reach a node through a proxy (`node.front`), clients directly."""

    def add(self, first=False):
        listen = lasting_address()
        front = Cut(int(listen.split(":")[1]))
        node = Server("--store", self.url, "--takeover", self.takeover, "--advertise", front.address, *self.more,
                      listen=listen, ready=False)
        node.front, node.address, node.port = front, front.address, int(listen.split(":")[1])
        node.wait_notice("ready")
        return node


def start_linked(nodes=3, **more):
    cluster = LinkedCluster(postgres, nodes=nodes, shards=SHARDS, **more)
    wait_until(lambda: is_even(cluster), "the shards are spread evenly")
    wait_linked(cluster)
    return cluster


@case
def F39_links_between_nodes_are_cut_each_way_and_both():
    cluster = start_linked()
    load = load_on(cluster, policy=NO_OVERLAP)
    for ways in ("up",), ("down",), ():
        load.goes_on()
        cluster.nodes[0].front.cut(*ways)
        load.goes_on(3)
        cluster.nodes[0].front.heal()
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


def cut_from_clients(*ways):
    """Clients do not reach a node which other nodes reach: it keeps its shards, and clients go on through the others."""
    cluster = start()
    fronts = [Cut(node.port) for node in cluster.nodes]
    load = History([front.port for front in fronts], out=stages_of(1, SHARDS, prefix="out")[0])
    for front in fronts if LONG else fronts[:1]:
        load.goes_on()
        owners = cluster.owners()
        front.cut(*ways)
        load.goes_on(40)
        equal(cluster.owners(), owners)
        front.heal()
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@case
def F39_clients_are_cut_off_from_one_node_and_go_on_with_others():
    cut_from_clients()


@long_case
def F39_what_clients_send_to_one_node_does_not_arrive():
    cut_from_clients("up")


@long_case
def F39_what_one_node_answers_to_clients_does_not_arrive():
    cut_from_clients("down")


@case
def F39_links_between_nodes_are_lost_in_the_middle_of_messages():
    cluster = start_linked()
    load = load_on(cluster, policy=NO_OVERLAP)
    for size in (1, 3, 7, 50, 333, 1000, 4096) if LONG else (1, 50, 1000):
        for node in cluster.nodes:
            node.front.reset_after(size)
        load.goes_on(10)
    load.goes_on()
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@case
def H4_emits_to_another_node_arrive_once_and_in_order_while_shards_move_and_links_are_cut():
    cluster = start_linked()
    owners = cluster.owners()
    shard = next(i for i, node in enumerate(owners) if node is not owners[3])  # the stage `in` is in shard 3
    load = load_on(cluster, out=shard, policy=NO_OVERLAP)
    ends = ((Server.kill, shard), (Server.stop, 3), (Server.kill, 3), (Server.stop, shard))
    for end, moved in ends if LONG else ends[:2]:
        load.goes_on()
        cluster.owners()[shard].front.cut()
        load.goes_on(5)
        for node in cluster.nodes:
            node.front.heal()
        node = cluster.owners()[moved]
        end(node)
        load.goes_on()
        node.start(ready=False)
        wait_until(lambda: is_even(cluster), "it has its share again")
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


@long_case
def F39_links_between_nodes_are_slow():
    cluster = start_linked()
    load = load_on(cluster)
    for node in cluster.nodes:
        node.front.delay_s = 0.1
    load.goes_on(60)
    load.holds(cluster.nodes[1])
    end_in_order(cluster)


# ---- Clocks ----------------------------------------------------------------------------------------


class ShiftedCluster(Cluster):
    """The wall clocks of its nodes differ by an hour each."""
    SHIFTS = iter((0, 3600, -3600))

    def add(self, first=False):
        environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "test", "libshifted_clock.so"),
                           MILLRACE_CLOCK_S=str(next(self.SHIFTS)),
                           ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
        node = Server("--store", self.url, "--takeover", self.takeover, ready=False, env=environment)
        node.port = int(node.command[node.command.index("--listen") + 1].split(":")[1])
        node.wait_notice("ready")
        return node


@case
def F30_H4_shards_of_nodes_whose_wall_clocks_differ_by_hours_work_together():
    cluster = ShiftedCluster(postgres, nodes=3, shards=SHARDS)
    wait_until(lambda: is_even(cluster), "the shards are spread evenly")
    wait_linked(cluster)
    load = load_on(cluster)
    load.goes_on()
    for shard in range(SHARDS):
        stage, target = stages_of(shard, SHARDS, prefix="early")[0], stages_of((shard + 1) % SHARDS, SHARDS, prefix="late")[0]
        client = Client(cluster.nodes[shard % 3])
        client.ask("PUSH", stage, "x", "DELAY", 100, "DEADLINE", 600000)
        (job, token, *_), = client.ask("TAKE", stage, "WAIT", -1)
        client.ask("DONE", job, token, "EMIT", target, "", "y", "DELAY", 100)
        equal(bodies(cluster.nodes[(shard + 1) % 3], target, 1), ["y"])  # an hour later would be too late
        client.close()
    load.holds(cluster.nodes[2])
    end_in_order(cluster)


# ---- Handing over ----------------------------------------------------------------------------------


def longest_pause(load, act):
    """Seconds between two acknowledgements of one connection-keeping producer while `act` is done; printed only."""
    client, longest, done = None, 0.0, threading.Event()
    helper = threading.Thread(target=lambda: (act(), done.set()))
    helper.start()
    since = time.monotonic()
    while not done.is_set():
        try:
            client = client or Client(load)
            client.ask("PUSH", stages_of(2, SHARDS, prefix="pause")[0], "x")
            longest, since = max(longest, time.monotonic() - since), time.monotonic()
        except (OSError, AssertionError, Refused):
            client = None
    helper.join()
    return longest


@case
def H3_a_node_that_ends_in_order_hands_its_shards_over():
    cluster = start(takeover="1h")
    owner = cluster.owners()[2]
    third = [node for node in cluster.nodes if node is not owner][0]
    pause = longest_pause(third, owner.stop)
    print(f"# handing shards over stopped pushes through another node for {1000 * pause:.0f} ms")
    cluster.nodes.remove(owner)
    wait_until(lambda: is_even(cluster), "the others own its shards")
    end_in_order(cluster)


# ---- Large and many --------------------------------------------------------------------------------


def memory_kb(node):
    with open(f"/proc/{node.process.pid}/status", encoding="utf-8") as file:
        return int(re.search(r"VmRSS:\s*(\d+)", file.read())[1])


def remote_pair(cluster):
    """A node, and a stage that another node owns, with that node."""
    owner = cluster.owners()[2]
    return [node for node in cluster.nodes if node is not owner][0], stages_of(2, SHARDS, prefix="far")[0], owner


@case
def H2_bodies_of_16_MiB_pass_between_nodes():
    cluster = shared()
    node, stage, _ = remote_pair(cluster)
    client = Client(node)
    sizes = [16 << 20, (16 << 20) - 1, 1]
    for size in sizes:
        client.ask("PUSH", stage, "x" * size)
    client.refused("TOOBIG", "PUSH", stage, "x" * ((16 << 20) + 1))
    found = []
    while len(found) < len(sizes):
        for job in client.ask("TAKE", stage, "COUNT", 3, "WAIT", 10000):
            found.append(len(job[4]))
            equal(client.ask("DONE", job[0], job[1], "RESULT", job[4]), "OK")
            equal(len(client.ask("AWAIT", job[0])), len(job[4]))
    equal(found, sizes)
    client.close()


@case
def H2_a_client_that_does_not_read_costs_neither_node_much_memory():
    cluster = shared()
    node, stage, owner = remote_pair(cluster)
    client, reader = Client(node), Client(node)
    ident = client.ask("PUSH", stage, "x" * 100000)
    (job, token, *_), = client.ask("TAKE", stage, "WAIT", 10000)
    client.ask("DONE", job, token, "RESULT", "x" * 100000)
    before = memory_kb(node), memory_kb(owner)
    idle = Client(node)
    idle.socket.setblocking(False)
    asked = 0
    try:
        while asked < 100000:
            asked += idle.socket.send(b"AWAIT %s\r\n" % ident.encode()) > 0
    except BlockingIOError:
        pass  # the node reads no more
    for _ in range(100):  # others go on
        equal(len(reader.ask("AWAIT", ident)), 100000)
    after = memory_kb(node), memory_kb(owner)
    check(asked > 100 and max(a - b for a, b in zip(after, before)) < 100 << 10, asked, before, after)
    idle.close()


@case
def H2_many_connections_of_one_node_use_shards_of_another():
    count = 2000 if LONG else 300
    short = too_few_descriptors(3 * count)
    if short:
        return short
    cluster = shared()
    node, stage, _ = remote_pair(cluster)
    clients = [Client(node) for _ in range(count)]
    for i, client in enumerate(clients):
        client.send("PUSH", stage, f"{i}", "KEY", f"{i % 7}")
    equal(len({client.receive() for client in clients}), count)
    for client in clients:
        client.send("TAKE", stage, "COUNT", 1)
    held = 0
    for client in clients:
        for job in client.receive():
            held += 1
            client.ask("DONE", job[0], job[1])
    equal(held, 7)
    for client in clients:
        client.close()
    found = bodies(node, stage, count - held)
    for key in range(7):
        of_key = [int(body) for body in found if int(body) % 7 == key]
        equal(len(of_key), len(set(of_key)))
    return None


# ---- Tokens and certificates -----------------------------------------------------------------------


def make_token(file, name, role, *more):
    made = millrace("auth", "add", name, "--role", role, "--auth", file, *more)
    check(made.returncode == 0, made.stderr)
    return made.stdout.split()[-1]


def with_token(node, secret, context=None):
    wire = Wire(node.port, context)
    check(wire.ask("AUTH", secret).startswith(b"+OK"), "AUTH")
    return wire


def wait_linked_with(cluster, secret, context=None):
    for node in cluster.nodes:
        with_token(node, secret, context).ask("STAGES")


@case
def H2_tokens_have_the_rights_that_the_owner_of_a_shard_gives_them():
    everyone, only_here = os.path.abspath("all.auth"), os.path.abspath("here.auth")
    admin = make_token(everyone, "boss", "admin")
    pusher = make_token(everyone, "pusher", "push", "--stages", "far*")
    shutil.copy(everyone, only_here)
    unknown = make_token(only_here, "unknown", "admin")
    cluster = Cluster(postgres, nodes=1, shards=SHARDS, more=("--auth", only_here))
    cluster.more = ("--auth", everyone)
    cluster.nodes.append(cluster.add())
    cluster.wait_spread(2, 2)
    wait_linked_with(cluster, admin)
    here, there = cluster.nodes
    far = stages_of(cluster.owners().index(there), SHARDS, prefix="far")[0]
    near = stages_of(cluster.owners().index(here), SHARDS, prefix="far")[0]
    for node in cluster.nodes:
        for stage in near, far:
            wire = with_token(node, pusher)
            check(wire.ask("PUSH", stage, "x").isdigit(), stage)
            check(wire.ask("TAKE", stage).startswith(b"-NOPERM"), stage)
            check(wire.ask("PUSH", f"not{stage}", "x").startswith(b"-NOPERM"), stage)
            equal(len(with_token(node, admin).ask("TAKE", stage)), 1)
    wire = with_token(here, unknown)
    check(wire.ask("PUSH", near, "x").isdigit(), "its node knows the token")
    check(wire.ask("PUSH", far, "x").startswith((b"-NOAUTH", b"-NOPERM")), "the owner does not")
    for node in cluster.nodes:
        check(Wire(node.port).ask("PUSH", far, "x").startswith(b"-NOAUTH"), "no token")
    cluster.end()


def openssl(*words):
    done = subprocess.run(["openssl", *words], capture_output=True, text=True)
    check(done.returncode == 0, words, done.stderr)


def make_certificates():
    """An authority and a certificate for this machine; the options of a node."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "30", "-subj", "/CN=ca")
    openssl("req", *key, "-keyout", "node.key", "-out", "node.csr", "-subj", "/CN=node")
    with open("names", "w", encoding="utf-8") as file:
        file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "node.pem",
            "-days", "30", "-extfile", "names")
    return [word for option in ("cert node.pem", "key node.key", "ca ca.pem")
            for word in (f"--tls-{option.split()[0]}", os.path.abspath(option.split()[1]))]


@case
def links_between_nodes_are_encrypted_if_the_nodes_have_certificates():
    cluster = LinkedCluster(postgres, nodes=1, shards=SHARDS, more=make_certificates())
    cluster.nodes[0].front.passed = []
    cluster.nodes.append(cluster.add())
    cluster.wait_spread(2, 2)
    context = ssl.create_default_context(cafile="ca.pem")
    context.load_cert_chain("node.pem", "node.key")
    stage = stages_of(cluster.owners().index(cluster.nodes[0]), SHARDS)[0]
    wire = Wire(cluster.nodes[1].port, context)
    for _ in range(20):
        check(wire.ask("PUSH", stage, "plain text").isdigit(), "it was pushed")
    (job, token, *_, body), = [found[:5] for found in wire.ask("TAKE", stage)]
    equal(body, b"plain text")
    equal(wire.ask("DONE", job, token), b"+OK")
    passed = b"".join(cluster.nodes[0].front.passed)
    check(len(passed) > 1000 and b"plain text" not in passed and b"LINK" not in passed, len(passed))
    cluster.end()


main()
