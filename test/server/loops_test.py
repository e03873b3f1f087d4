#!/usr/bin/env python3
"""loops_test.py BUILD: a server with three loops and three shards, each in a thread of its own: what only
threads and sockets can break. Speaks TAP; nothing waits for time to pass."""
import os
import signal
import socket
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
import served
from served import Client, path
from tap import MILLRACE, case, check, equal, main

LOOPS = 3


class Server(served.Server):
    def __init__(self, *options, **more):
        super().__init__("--store", "mem:", "--loops", str(LOOPS), "--shards", str(LOOPS), *options, **more)


def token(file, name, role, stages="*"):
    return subprocess.run([MILLRACE, "auth", "add", name, "--role", role, "--stages", stages, "--auth", path(file)],
                          check=True, capture_output=True, text=True).stdout.split()[-1]


STAGES = "s2", "s3", "s0"  # of each shard one, in order


def fields(reply):
    return dict(zip(reply[::2], reply[1::2]))


# ---- Without a token ---------------------------------------------------------------------------

def talk_and_be_closed(server, count):
    """So many connections, one after another, that send all the time, also while they are closed for others."""
    open_ones = []
    for _ in range(count):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.setblocking(False)
        open_ones.append(s)
        for one in {*open_ones[:40], *open_ones[-40:]}:
            try:
                one.send(b"PING\r\n" * 20)
            except BlockingIOError:
                pass
            except OSError:  # it was closed
                open_ones.remove(one)
                one.close()
    for one in open_ones:
        one.close()


# U8: one that is closed for another may be speaking just then.
@case
def U8_unauthenticated_clients_may_send_while_they_are_closed():
    secret = token("talkers", "someone", "admin")
    with Server("--auth", path("talkers")) as server:
        talkers = [threading.Thread(target=talk_and_be_closed, args=(server, 500)) for _ in range(4)]
        for t in talkers:
            t.start()
        for t in talkers:
            t.join()
        client = Client(server)
        equal(client.ask("AUTH", secret), "OK")
        equal(client.ask("PUSH", "s", "x"), "1")


# ---- Rights ------------------------------------------------------------------------------------

# U10: a TAKE that names one stage too many takes nothing, in no loop.
@case
def U10_a_TAKE_with_a_stage_out_of_bounds_takes_nothing():
    secret = token("bounds", "few", "push,work,read", "s2,s3")
    with Server("--auth", path("bounds")) as server:
        for _ in range(LOOPS):
            client = Client(server)
            equal(client.ask("AUTH", secret), "OK")
            check(client.ask("PUSH", "s2", "x"))
            client.refused("NOPERM", "TAKE", "s2", "s0", "s3")
            client.refused("NOPERM", "TAKE", "s2", "s3", "s0", "WAIT", -1)
            client.refused("NOPERM", "EPICS", "STAGE", "s2", "FROM", "s0 e")
            equal(client.work_off("s2"), ["x"])


# U10: a loop without shards knows no jobs; rights are checked where the job is.
@case
def U10_loops_without_shards_look_at_no_job():
    admin, few = token("many", "all", "admin"), token("many", "few", "admin", "s2,s3")
    with served.Server("--store", "mem:", "--loops", "4", "--shards", "2", "--auth", path("many")) as server:
        client = Client(server)
        equal(client.ask("AUTH", admin), "OK")
        theirs, others = client.ask("PUSH", "s2", "x"), client.ask("PUSH", "s0", "x")
        for _ in range(8):
            client = Client(server)
            equal(client.ask("AUTH", few), "OK")
            equal([client.ask("MULTI"), client.ask("JOB", theirs), client.ask("PING")], ["OK", "QUEUED", "QUEUED"])
            equal(fields(client.ask("EXEC")[0])["status"], "waiting")
            client.refused("GONE", "JOB", others)


# U10: tokens that are read again hold in every loop, for connections that are there and for new ones.
@case
def U10_tokens_are_reloaded_in_every_loop():
    stays, leaves = token("reload", "stays", "push,work"), token("reload", "leaves", "push,work")
    with Server("--auth", path("reload")) as server:
        kept, closed = [], []
        for clients, secret in ((kept, stays), (closed, leaves)):
            for i in range(LOOPS):
                clients.append(Client(server))
                equal(clients[-1].ask("AUTH", secret), "OK")
                check(clients[-1].ask("PUSH", STAGES[i], "x"))  # in another loop
                clients[-1].send("TAKE", *STAGES, "COUNT", 9)
                clients[-1].receive()
        subprocess.run([MILLRACE, "auth", "remove", "leaves", "--auth", path("reload")], check=True, capture_output=True)
        server.signal(signal.SIGHUP)
        server.wait_notice("reloaded 1 token ")
        for client in closed:
            equal(client.file.read(), b"")
        for i in range(LOOPS):
            client = Client(server)
            client.refused("WRONGPASS", "AUTH", leaves)
            equal(kept[i].ask("PING"), "PONG")
        taken = [job for _ in range(9) for job in kept[0].ask("TAKE", *STAGES, "COUNT", 9, "WAIT", 100)]
        equal(len(taken), LOOPS)  # those of the connections that were closed


# U10: a number is the id of a job, or the name of a stage, in whichever loop.
@case
def U10_WHY_of_a_number_finds_a_job_or_a_stage_of_any_loop():
    with Server() as server:
        clients = [Client(server) for _ in range(LOOPS)]
        for client in clients:
            for number in range(1, 20):
                client.refused("GONE", "WHY", number)
        for number in range(100, 110):
            clients[0].ask("STAGE", number, "lease", "1m")
        job = clients[0].ask("PUSH", "s1", "x", "DELAY", 3600000)
        for client in clients:
            check(client.ask("WHY", job).startswith(f"Job {job} is delayed"))
            for number in range(100, 110):
                check(str(number) in client.ask("WHY", number))


# ---- Memory ------------------------------------------------------------------------------------

# U6: what clients leave unread counts wherever it is kept: also in the loops that have answered.
@case
def U6_unread_replies_of_other_loops_do_not_fill_memory():
    with Server("--max-client-bytes", str(64 << 20)) as server:
        client = Client(server)
        ids = [client.ask("PUSH", stage, b"x" * (8 << 20)) for stage in STAGES for _ in range(2)]
        unresponsive = [Client(server) for _ in range(12)]
        for one in unresponsive:
            for job in ids:
                one.send("JOB", job, "BODY")
        for _ in range(4):
            server.wait_notice(f"clients use more than {64 << 20} bytes")
        equal(client.ask("PING"), "PONG")
        while int(client.info()["buffer_bytes"]) > 64 << 20:
            pass
        for one in unresponsive:
            one.close()


# U6: the limit is one for all loops: what one client may send does not depend on how many there are.
@case
def U6_a_large_body_reaches_every_loop():
    with Server("--max-client-bytes", str(64 << 20)) as server:
        clients = [Client(server) for _ in range(LOOPS)]
        for client in clients:
            for stage in STAGES:
                check(client.ask("PUSH", stage, b"x" * (16 << 20)))
        equal(clients[0].info()["maxbuffers"], str(64 << 20))


main()
