#!/usr/bin/env python3
"""fault_test.py BUILD: faults of the machine, met by a real server that is talked to over the wire. It
says what is wrong, goes on with what it can, never pretends that something is kept, and recovers by
itself where that is safe."""
import os
import re
import resource
import socket
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Faulty, Refused, Server, Wire, path, too_few_descriptors
from tap import MILLRACE, TIMEOUT_S, case, check, equal, main

MIB = 1 << 20


def fill(client, stage, size=1000 * 1000):
    """Pushes until it is full; how many jobs went in, and the refusal."""
    body, count = b"x" * size, 0
    while count < 10000:
        client.send("PUSH", stage, body)
        try:
            client.receive()
        except Refused as error:
            return count, str(error)
        count += 1
    raise AssertionError("it is never full")


# ---- Disks -------------------------------------------------------------------------------------

# F25: pushes are refused, what makes room is not, and it goes on by itself when there is room.
@case
def F25_a_full_disk_refuses_pushes_and_recovers():
    server = Faulty("full")
    client = Client(server)
    equal(client.ask("PUSH", "s", "first"), "1")
    server.order("allocate ENOSPC")
    count, said = fill(client, "s", 10 * 1000)  # several fit into the first file, which is small
    check(said.startswith("FULL"), said)
    server.wait_notice("the disk is full: pushes are refused")
    equal(client.info()["log_full"], "1")
    job = client.ask("TAKE", "s")[0]
    equal(client.ask("DONE", job[0], job[1], "RESULT", "r"), "OK")  # commits go through
    equal(client.ask("AWAIT", job[0]), "r")
    equal(client.ask("CANCEL", "2"), 1)
    client.refused("FULL", "PUSH", "s", "another")
    equal(client.ask("PING"), "PONG")
    server.order()
    equal(len(client.work_off("s")), count - 1)  # all that was accepted is there
    while client.info()["log_full"] == "1":
        pass  # it checks once a second whether there is room
    check(client.ask("PUSH", "s", "after"))
    server.wait_notice("the disk has room again")
    server.stop()


# F25: with several loops the notice names the shards that refuse pushes.
@case
def F25_a_notice_names_the_full_shard():
    server = Faulty("full-shard", "--shards", "2", "--loops", "2")
    client = Client(server)
    server.order("allocate ENOSPC")
    fill(client, "s")
    server.wait_notice("the disk is full (shard ")
    server.stop()


# F25, F26: a write that meets a full disk all the same is final; short writes are continued.
@case
def F25_F26_a_write_that_fails_is_final_a_short_one_is_not():
    server = Faulty("short")
    client = Client(server)
    server.order("write short")
    for i in range(20):
        equal(client.ask("PUSH", "s", f"body {i}"), str(i + 1))
    server.order("write ENOSPC")
    client.refused("STOPPED", "PUSH", "s", "lost")
    server.wait_notice("the log has failed")
    server.order()
    client.refused("STOPPED", "PUSH", "s", "again")
    server.stop()
    again = Server("--store", f"file:{path('short')}")
    bodies = Client(again).work_off("s")
    check(bodies[:20] == [f"body {i}" for i in range(20)] and len(bodies) <= 21, bodies)
    again.stop()


# F24: what a failed sync was to keep is not pretended to be kept, also when the next would work.
@case
def F24_a_failed_sync_is_reported_and_final():
    server = Faulty("sync")
    client, other = Client(server), Client(server)
    equal(client.ask("PUSH", "s", "kept"), "1")
    other.send("TAKE", "t", "WAIT", TIMEOUT_S * 1000)
    server.order("sync EIO")
    client.refused("STOPPED", "PUSH", "s", "not kept")
    server.wait_notice("the log has failed")
    try:
        raise AssertionError(other.receive())
    except Refused as error:
        check(str(error).startswith("STOPPED"), error)
    server.order()
    client.refused("STOPPED", "PUSH", "s", "nor this")
    equal(client.ask("STAGES")[0][15], "stopped")
    check("the log has failed" in client.ask("WHY", "s"))
    check("Input/output error" in client.info()["log_stopped"], client.info())
    equal(client.ask("PING"), "PONG")
    server.stop()
    again = Server("--store", f"file:{path('sync')}")
    check("kept" in Client(again).work_off("s"))
    again.stop()


# F27: a store on a file system that is read-only is not opened; one that becomes so stops.
@case
def F27_a_read_only_disk_is_refused():
    Server("--store", f"file:{path('readonly')}").stop()
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    through = ["unshare", "-m", "sh", "-c", script, "sh", path("readonly")]
    if subprocess.run([*through, "true"], capture_output=True).returncode:
        return "no mounts can be made here"
    server = Server("--store", f"file:{path('readonly')}", through=through, ready=False)
    said = server.ends(3)
    check("Read-only file system" in said, said)


@case
def F27_a_disk_that_becomes_read_only_stops_the_log():
    server = Faulty("ro")
    client = Client(server)
    client.ask("PUSH", "s", "kept")
    [[job, token, *_]] = client.ask("TAKE", "s")
    server.order("write EROFS", "sync EROFS", "allocate EROFS")
    client.refused("STOPPED", "DONE", job, token)  # a push may be refused for want of a spare segment
    server.wait_notice("the log has failed")
    check("Read-only file system" in client.info()["log_stopped"], client.info())
    server.stop()


# ---- Descriptors -------------------------------------------------------------------------------

def allow_descriptors(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


# F44: who finds no descriptor waits to be accepted until one is given back; the store keeps its own.
@case
def out_of_descriptors_new_connections_wait():
    server = Server("--store", f"file:{path('few')}", preexec_fn=allow_descriptors(64))
    clients = [Client(server) for _ in range(32)]
    for client in clients:
        equal(client.ask("PING"), "PONG")
    late = [Client(server) for _ in range(3)]
    for client in late:
        client.send("PING")
    server.wait_notice("new ones wait")
    equal(clients[0].ask("PUSH", "s", b"x" * MIB), "1")  # the store works on
    for client, leaver in zip(late, clients):
        leaver.close()
        equal(client.receive(), "PONG")
    equal(late[0].ask("PUSH", "s", "y"), "2")
    server.stop()


IDLE, IDLE_BYTES = 10000, 4096


# F44, P10: idle connections cost little, do not delay others, and cause no wake-ups.
@case
def F44_ten_thousand_idle_connections():
    if too_few := too_few_descriptors(IDLE + 400):
        return too_few
    server = Server("--store", "mem:", "--max-clients", str(IDLE + 1))
    first = Client(server)
    equal(first.ask("PUSH", "s", "x"), "1")
    before = memory_of(server)
    idle = []
    for number in range(IDLE):
        idle.append(socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S))
        if number % 100 == 99:  # it has come so far, and the queue of those not accepted is empty
            idle[-1].sendall(b"PING\r\n")
            equal(idle[-1].recv(7), b"+PONG\r\n")
    equal(first.info()["connected_clients"], str(IDLE + 1))
    for client in idle[::10]:  # what they were lent while they were busy is given back
        client.sendall(b"ECHO " + b"x" * 1000 + b"\r\n")
        equal(receive(client, 1009)[:9], b"$1000\r\nxx")
    each = (memory_of(server) - before) / IDLE
    check(sanitized() or each <= IDLE_BYTES, f"{each} bytes for a connection")
    stays_asleep(server, idle[0])
    equal(first.ask("PUSH", "s", "x"), "2")
    for client in idle:
        client.close()
    server.stop()


def receive(connection, size):
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def stays_asleep(server, connection):
    """No thread of it runs while no client sends anything, checked for a while."""
    before = server.sleeps()
    connection.settimeout(2)
    try:
        raise AssertionError(connection.recv(1))
    except TimeoutError:
        pass
    after = server.sleeps()
    check(sanitized() or after == before, before, after)  # a sanitizer's own thread never sleeps long


# F44: one too many is refused and closed, with one notice; a closed connection makes room.
@case
def F44_more_clients_than_allowed_are_refused():
    server = Server("--store", "mem:", "--max-clients", "3")
    clients = [Client(server) for _ in range(3)]
    for client in clients:
        equal(client.ask("PING"), "PONG")
    for _ in range(50):
        late = Client(server)
        equal(late.file.read(), b"-FULL 3 clients are connected, which is the limit: max-clients\r\n")
        late.close()
    server.wait_notice(": 3 clients are connected")
    equal(clients[0].info()["rejected_connections"], "50")
    clients[1].close()
    while "PONG" != comes_in(server):
        pass  # that it was closed is on its way
    said = server.stop()
    equal(said.count("refused a connection"), 1, said)


def comes_in(server):
    client = Client(server)
    try:
        return client.ask("PING")
    except (Refused, OSError, AssertionError):
        client.close()
        return None


# F44: with max-idle who does nothing has to go, but not who waits or works.
@case
def F44_silent_clients_are_closed_if_so_wished():
    server = Server("--store", "mem:", "--max-idle", "2s", "--log-level", "debug")
    worker, waiter = Client(server), Client(server)
    worker.socket.sendall(b"PUSH s a\r\nTAKE s\r\n")
    waiter.socket.sendall(b"TAKE t WAIT -1\r\n")
    equal((worker.receive(), len(worker.receive())), ("1", 1))
    silent = Client(server)
    silent.socket.sendall(b"*2\r\n$4\r\nECHO\r\n")  # without the argument
    equal(silent.file.read(), b"")
    server.wait_notice("idle for 2000 ms (max-idle)")
    equal(worker.ask("PUSH", "t", "b"), "2")  # these have been silent for longer
    equal(waiter.receive()[0][0], "2")
    server.stop()


def memory_of(server):
    with open(f"/proc/{server.process.pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


# ---- Memory ------------------------------------------------------------------------------------

ALLOWED = 600 * MIB  # of addresses


def allow_memory():
    resource.setrlimit(resource.RLIMIT_AS, (ALLOWED, resource.RLIM_INFINITY))


def sanitized():
    """Sanitizers need more addresses than there is memory."""
    return subprocess.run([MILLRACE, "--version"], preexec_fn=allow_memory,
                          capture_output=True).returncode != 0


def worked_off_makes_room(server, client, count, at_once=1):
    equal(client.ask("PING"), "PONG")
    equal(len(client.work_off("s", at_once)), count)
    check(client.ask("PUSH", "s", b"x" * MIB))
    server.stop()


# F51: what is over the limit is refused before there is no memory; what was worked off makes room.
@case
def a_flood_of_pushes_meets_the_limit_of_bytes():
    if sanitized():
        return "a sanitizer needs the memory"
    server = Server("--store", "mem:", "--max-bytes", "100M", preexec_fn=allow_memory)
    client = Client(server)
    count, said = fill(client, "s")
    check(said.startswith("FULL") and "max-bytes" in said, said)
    check(80 < count <= 105, count)
    info = client.info()
    equal(info["maxmemory"], str(100 * MIB))
    check(int(info["used_memory"]) <= 117 * MIB, info)
    worked_off_makes_room(server, client, count)


@case
def a_flood_of_keys_meets_the_limit_of_bytes():
    server = Server("--store", f"file:{path('flood')}", "--max-bytes", "20M", "--sync", "none")
    client = Client(server)
    count = flood_of_keys(client)
    check(10000 < count < 200000, count)
    check(int(client.info()["index_bytes"]) <= 25 * MIB, client.info())
    worked_off_makes_room(server, client, count, at_once=1000)


def flood_of_keys(client):
    """The index alone reaches the limit: bodies are on disk."""
    count = 0
    while True:
        items = [word for i in range(count, count + 20000) for word in (f"key-{i:0>200}", "")]
        try:
            taken = len(client.ask("PUSHMANY", "s", "ITEMS", *items))
        except Refused as error:
            check(str(error).startswith("FULL"), error)
            return count
        count += taken
        check(count < 2000000, "it is never full")


# F51: the same without a limit: the system refuses, and nothing else happens; what was accepted is
# there when there is memory again.
@case
def F51_a_flood_of_pushes_meets_the_end_of_memory():
    if sanitized():
        return "a sanitizer needs the memory"
    server = Server("--store", "mem:", preexec_fn=allow_memory)
    client = Client(server)
    count = 0
    while count < 10000:
        try:
            client.ask("PUSH", "s", b"x" * 1000000)
            count += 1
        except Refused as error:
            check(str(error).startswith("FULL"), error)
            break
        except (AssertionError, OSError):  # it was refused while it was speaking
            break
    check(100 < count < 10000, count)
    equal(Client(server).ask("PING"), "PONG")
    everything = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, everything)
    worked_off_makes_room(server, Client(server), count)


def send_some(client, data):
    try:
        client.socket.sendall(data)
    except OSError:
        pass  # it was closed already


# U6: an announced length reserves no memory, and the received bytes of many requests are bounded; no
# other client gets FULL because of it.
@case
def U6_many_large_requests_at_once_do_not_fill_memory():
    if sanitized():
        return "a sanitizer needs the memory"
    server = Server("--store", "mem:", "--max-bytes", "100M", preexec_fn=allow_memory)
    control, clients = Client(server), [Client(server) for _ in range(30)]
    for client in clients:
        send_some(client, b"*3\r\n$4\r\nPUSH\r\n$1\r\ns\r\n$%d\r\nx" % (16 * MIB))
    check(int(control.info()["buffer_bytes"]) < 4 * MIB, control.info())
    for client in clients:
        send_some(client, b"x" * (8 * MIB))
        check(control.ask("PUSH", "s", "small"))
        check(int(control.info()["buffer_bytes"]) <= 80 * MIB, control.info())
    server.wait_notice("clients use more than 67108864 bytes")
    equal(control.info()["refused_full"], "0")
    for client in clients:
        client.close()
    server.stop()


# U6: the same for unread replies: the client with most of them is closed.
@case
def U6_clients_that_do_not_read_do_not_fill_memory():
    if sanitized():
        return "a sanitizer needs the memory"
    server = Server("--store", "mem:", "--max-bytes", "256M")
    control = Client(server)
    control.ask("PUSH", "s", b"x" * (8 * MIB))
    before, unresponsive = memory_of(server), [Client(server) for _ in range(30)]
    for client in unresponsive:
        client.socket.sendall(b"JOB 1 BODY\r\n" * 4)
        check(control.ask("PUSH", "s", "small"))
        check(int(control.info()["buffer_bytes"]) <= 80 * MIB, control.info())
    server.wait_notice("of which")
    check(memory_of(server) - before < 160 * MIB, memory_of(server) - before)
    equal(control.info()["refused_full"], "0")
    for client in unresponsive:
        client.close()
    server.stop()


# ---- Clients -----------------------------------------------------------------------------------

# F42: a client that sends a byte at a time delays no other, and gets its reply.
@case
def F42_a_byte_at_a_time():
    server = Server("--store", "mem:")
    slow, other = Client(server), Client(server)
    slow.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in b"*3\r\n$4\r\nPUSH\r\n$1\r\ns\r\n$5\r\nhello\r\n":
        slow.socket.sendall(bytes([byte]))
        equal(other.ask("PING"), "PONG")
    equal(slow.receive(), "1")
    server.stop()


def never_read(client, request):
    """Says it again and again until the server does not listen any more."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    client.socket.setblocking(False)
    said = 0
    try:
        while said < 100 * MIB:
            said += client.socket.send(request * 1000)
    except (BlockingIOError, ConnectionError):  # the latter: it has been cut off already
        return
    raise AssertionError("it listens to whoever does not read")


# F43: a client that never reads is not read from any more; it costs little, and others nothing.
@case
def F43_a_client_that_never_reads():
    server = Server("--store", "mem:")
    unresponsive, other = Client(server), Client(server)
    other.ask("PUSH", "s", b"x" * MIB)
    before = memory_of(server)
    never_read(unresponsive, b"JOB 1 BODY\r\n")
    equal(other.ask("PING"), "PONG")
    check(sanitized() or memory_of(server) - before < 64 * MIB, memory_of(server) - before)
    unresponsive.close()
    equal(other.ask("PING"), "PONG")
    server.stop()


# F43: it is closed in the end; the log has its name and the number of unread bytes.
@case
def F43_a_client_that_never_reads_is_closed():
    server = Server("--store", "mem:", "--max-unread", "500ms")
    unresponsive, other = Client(server), Client(server)
    equal(unresponsive.ask("CLIENT", "SETNAME", "the-unresponsive-one"), "OK")
    other.ask("PUSH", "s", b"x" * MIB)
    address = "%s:%d" % unresponsive.socket.getsockname()
    never_read(unresponsive, b"JOB 1 BODY\r\n")
    said = server.wait_notice("closed the connection")
    check(f"connection of {address} (the-unresponsive-one): it has read none of " in said, said)
    check(int(re.search(r"none of (\d+) bytes", said)[1]) > 256 << 10, said)
    while int(other.info()["connected_clients"]) > 1:
        pass
    check(int(other.info()["buffer_bytes"]) < MIB, other.info())  # nothing is kept for it
    server.stop()


# F43: push messages that the client does not read are written when it does, and take up no memory before.
@case
def F43_unread_push_messages_are_held_back():
    if sanitized():
        return "a sanitizer needs the memory"
    server = Server("--store", "mem:")
    unresponsive, worker = Client(server), Client(server)
    unresponsive.send("HELLO", 3)
    for _ in range(17):  # the end of one job, sent this many times, is more than 256 MiB
        unresponsive.send("CALL", "s", "a", "ONCE", "o", "LATER")
    unresponsive.send("PUSH", "all-calls-are-there", "")
    equal(len(worker.ask("TAKE", "all-calls-are-there", "WAIT", -1)), 1)
    job = worker.ask("TAKE", "s")[0]
    equal(worker.ask("DONE", job[0], job[1], "RESULT", b"r" * (16 * MIB)), "OK")
    check(int(worker.info()["buffer_bytes"]) < 64 * MIB, worker.info())
    ends = 0
    while ends < 17:
        ends += unresponsive.file.readline() == b"ended\r\n"
    equal(worker.ask("PING"), "PONG")
    worker.close()  # no lease is waited for
    server.stop()


# ---- Many ----------------------------------------------------------------------------------------

BUSY, UNRESPONSIVE, ROUNDS = 1000, 20, 10


# U4, U6: large requests that are pipelined are all read, also where their replies or the budget of a
# turn make the server stop reading for a while.
@case
def U4_U6_large_pipelined_requests_go_on():
    server = Server("--store", "mem:")
    large = b"x" * 8 * MIB
    for words, times in (("ECHO", b"x" * 300000), 2), (("ECHO", large), 4), (("BOGUS", large), 4), \
                        (("PUSH", "stage", large), 4), (("PUSH", "stage", large, "BOGUS", "x"), 4):
        client = Wire(server.port)
        sender = threading.Thread(target=lambda: [client.send(*words) for _ in range(times)])
        sender.start()
        replies = [client.receive() for _ in range(times)]
        sender.join()
        check(all(replies), words[0])
        equal(client.ask("PING"), b"+PONG")
        client.close()
    server.stop()


# F43, F44: a thousand busy connections, some that never read and some that go away in the middle of
# a request: all work is done, and those who do not read are cut off.
@case
def F43_F44_a_thousand_busy_connections():
    if too_few := too_few_descriptors(BUSY + 400):
        return too_few
    server = Server("--store", "mem:", "--max-unread", "500ms")
    control = Client(server)
    control.ask("PUSH", "large", b"x" * MIB)
    unresponsive = [Client(server) for _ in range(UNRESPONSIVE)]
    for client in unresponsive:
        never_read(client, b"JOB 1 BODY\r\n")
    busy = [Client(server) for _ in range(BUSY)]
    for _ in range(20):
        gone = Client(server)
        gone.socket.sendall(b"*3\r\n$4\r\nPUSH\r\n$4\r\nwork\r\n$100\r\nhalf of it")
        gone.close()
    bodies = []
    for turn in range(ROUNDS):
        for number, client in enumerate(busy):  # all at once: replies are read afterwards
            client.socket.sendall(f"PUSH work {turn}.{number}\r\nTAKE work\r\nPING\r\n".encode())
        for client in busy:
            check(client.receive())
            job = client.receive()[0]
            bodies.append(job[4])
            equal(client.receive(), "PONG")
            client.send("DONE", job[0], job[1])
        for client in busy:
            equal(client.receive(), "OK")
    equal(sorted(bodies), sorted(f"{t}.{n}" for t in range(ROUNDS) for n in range(BUSY)))
    for _ in unresponsive:
        server.wait_notice("it has read none of")
    equal(control.ask("TAKE", "work"), [])
    while int(control.info()["connected_clients"]) > BUSY + 1:
        pass
    for client in busy + unresponsive:
        client.close()
    server.stop()


main()
