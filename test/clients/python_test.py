#!/usr/bin/env python3
"""python_test.py BUILD: what library_test.py cannot see of the Python library: replies that come in pieces, replies that
make no sense, asyncio, the package, and its guide. Speaks TAP."""
import asyncio
import contextvars
import gc
import os
import re
import socket
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
LIBRARY = os.path.realpath(os.path.join(os.path.dirname(__file__), "../../clients/python"))
sys.path.insert(0, LIBRARY)
from millrace import AsyncMillrace, BadBody, Cancelled, Full, Millrace, Timeout, Unreachable, Usage
from millrace import sync
from millrace.aio import LoopWire
from millrace.wire import Push, Wire, address_of, encode
from millrace.worker import Worker
from running import Running, wait_until
from served import Client, Server, path, write
from tap import TIMEOUT_S, case, check, equal, main

REPLIES = (b"+OK\r\n", b"$5\r\na\r\nbc\r\n", b"$-1\r\n", b"_\r\n", b":-12\r\n", b",1.5\r\n", b"#t\r\n",
           b"*3\r\n:1\r\n*0\r\n$0\r\n\r\n", b"%1\r\n+name\r\n$1\r\nx\r\n", b">2\r\n+cancel\r\n$1\r\n7\r\n",
           b"-FULL stage s has 1 job\r\n")
VALUES = ["OK", b"a\r\nbc", None, None, -12, 1.5, True, [1, [], b""], {"name": b"x"}]


class Unsent(Wire):
    """A connection without a socket."""

    def write(self, data, alone):
        pass

    def shut(self):
        pass


def receive(*pieces):
    """What a connection makes of bytes that arrive in these pieces."""
    values, pushed = [], []
    wire = Unsent(pushed.append)
    wire.send([(encode("PING"), values.append) for _ in range(10)])
    for piece in pieces:
        wire.feed(piece)
    return wire, values, pushed


@case
def replies_may_be_cut_at_any_byte():
    stream = b"".join(REPLIES)
    for at in range(len(stream)):
        _, values, pushed = receive(stream[:at], stream[at:])
        equal(values[:9], VALUES, at)
        equal((type(values[9]), values[9].reason), (Full, "stage s has 1 job"))
        equal(pushed, [Push(["cancel", b"7"])])


@case
def replies_that_make_no_sense_end_the_connection():
    for bad in b"!\r\n", b"$x\r\n", b"*z\r\n", b":\r\n", b"+OK\r\n" * 11, b"%1\r\n*0\r\n+x\r\n", \
            b"*1\r\n" * 2000, b"$99999999999\r\n", b"+" + b"x" * 100000, b"*99999999999\r\n":
        wire, values, _ = receive(bad)
        check(wire.why, bad)
        check(all(v == "OK" or isinstance(v, Unreachable) for v in values), bad, values)


@case
def addresses_are_read_and_bad_ones_refused():
    address = address_of("millrace://ci:a%3Ab@a,b:7500/", None, None)
    equal((address.nodes, address.user, address.secret, address.tls),
          ((("a", 7411), ("b", 7500)), "ci", "a:b", None))
    equal(address_of("millrace://[::1]:7412", "t", None)[0], (("::1", 7412),))
    equal(address_of("unix:/run/a@b", "t", None), ((("/run/a@b", 0),), None, "default", "t"))
    equal(address_of("unix://ci:s@/run/sock", None, None), ((("/run/sock", 0),), None, "ci", "s"))
    equal(address_of("millrace://ci:first@a", "second", None).secret, "second")
    for bad in "unix:", "redis://ci:hidden@x", "millrace://hidden@a:x", "redis://x", "millrace://", "127.0.0.1:7411", "millrace://a,,b", "millrace://a:x", "millrace://a:99999":
        try:
            address_of(bad, None, None)
        except ValueError as error:
            check("hidden" not in str(error), error)
            continue
        check(False, f"{bad} was taken")


@case
def wrong_options_are_refused_as_they_were_written():
    m = Millrace("millrace://127.0.0.1:1")
    worker = lambda **options: m.worker("s", **options)
    push = lambda **options: m.push("s", "x", **options)
    for call, options, reason in (
            (push, {"delay": "5s"}, "delay is a number of seconds, not '5s'"),
            (push, {"room": "5s"}, "room is a number of seconds, not '5s'"),
            (push, {"deadline": float("nan")}, "deadline is a number of seconds, not nan"),
            (push, {"delay": -5}, "delay is a number of seconds from 0 on, not -5"),
            (push, {"often": 2}, "a push has no option often; it has "
                                 "key once last delay deadline attempts room meta"),
            (worker, {"lease": "1m"}, "lease is a number of seconds, not '1m'"),
            (worker, {"concurrency": 0}, "concurrency is a number from 1 on, or 'auto', not 0"),
            (worker, {"count": 2}, "a worker has no option count; it has concurrency lease grace")):
        try:
            check(False, f"{options} were taken: {call(**options)}")
        except Usage as error:
            equal(str(error), reason)
    for right in {"grace": float("inf")}, {"lease": None}, {"concurrency": 1, "lease": 0.5, "grace": 0}:
        worker(**right)
    try:
        check(False, m.push("s", {"a": float("nan")}))
    except BadBody as error:
        check("JSON" in str(error), error)


@case
def a_connection_that_is_interrupted_is_not_used_again():
    def interrupt(message):
        raise KeyboardInterrupt
    ours, theirs = socket.socketpair()
    wire, replies = sync.ThreadWire(ours, interrupt), []
    wire.send([(encode("PING"), replies.append)])
    theirs.sendall(b">1\r\n+cancel\r\n+OK\r\n")
    try:
        wire.poll()
        check(False, "the interrupt is gone")
    except KeyboardInterrupt:
        pass
    equal([type(reply) for reply in replies], [Unreachable])
    check(not wire.is_open())


@case
def a_caller_does_not_wait_for_ever_if_its_reply_cannot_be_used():
    def refuse(reply):
        raise ValueError(reply)
    ours, theirs = socket.socketpair()
    wire, outcome = sync.ThreadWire(ours, None), []
    theirs.sendall(b"+OK\r\n")
    caller = threading.Thread(daemon=True, target=lambda: outcome.append(
        sync.finish(wire.exchange([(encode("PING"), refuse)]))))
    caller.start()
    caller.join(TIMEOUT_S)
    equal(outcome, ["OK"])
    check(not wire.is_open())


@case
def a_server_that_reads_nothing_is_given_up():
    sync.SILENCE_SECONDS, before = 1, sync.SILENCE_SECONDS
    ours, theirs = socket.socketpair()
    wire, replies = sync.ThreadWire(ours, None), []
    sync.SILENCE_SECONDS = before
    wire.send([(bytes(64 << 20), replies.append)])
    equal([type(reply) for reply in replies], [Unreachable])


@case
def a_connection_that_fails_leaves_nothing():
    async def run():
        m = AsyncMillrace(f"millraces://127.0.0.1:{server.port}")
        try:
            check(False, await m.command("PING"))
        except Unreachable:
            pass
        gc.collect()
        equal([wire for wire in gc.get_objects() if isinstance(wire, LoopWire)], [])
    with Server("--store", "mem:") as server:
        asyncio.run(run())


@case
def a_worker_ends_with_any_error():
    class Odd(Millrace):
        async def _connect(self, *_):
            raise RuntimeError("out of luck")
    m = Odd()
    m.worker("s", concurrency=1)(lambda job: None)
    try:
        m.run(signals=False)
        check(False, "it has not ended")
    except RuntimeError as error:
        equal(str(error), "out of luck")


changed = contextvars.ContextVar("changed", default=False)


class Held:
    """A handler that waits until its job is cancelled."""

    def __init__(self):
        self.started, self.stopped, self.seen = asyncio.Event(), asyncio.Event(), []

    async def handle(self, job):
        self.seen.append(changed.get())
        changed.set(True)
        if job.body != "hold":
            return job.body
        self.started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.stopped.set()


@case
def a_worker_goes_on_when_its_last_job_ends_while_it_is_about_to_beat():
    class Ending(dict):
        """Jobs, the last of which ends after they were looked at."""

        def __bool__(self):
            return True

    worker = Worker(Millrace("millrace://127.0.0.1:1"), "s", print, concurrency=1)
    worker.jobs, worker.stopping = Ending(), True  # so that no slot begins
    sync.finish(worker._keep())
    equal(len(worker.answers), 0)


@case
def coroutines_are_cancelled_and_have_contexts_of_their_own():
    async def run():
        held = Held()
        async with AsyncMillrace(server.url) as m:
            m.work("s", held.handle, concurrency=2)
            calls = [m.call("s", {"n": n}) for n in range(20)]
            equal(await asyncio.gather(*calls), [{"n": n} for n in range(20)])
            equal(set(held.seen), {False})
            job = await m.push("s", "hold")
            await held.started.wait()
            equal(await m.cancel(job), 1)
            await held.stopped.wait()
            try:
                check(False, await m.wait(job))
            except Cancelled:
                pass
            held.started.clear(), held.stopped.clear()
            calling = asyncio.ensure_future(m.call("s", "hold"))
            await held.started.wait()
            calling.cancel()
            await held.stopped.wait()
            try:
                check(False, await m.call("none", "x", timeout=0.1, deadline=60))
            except Timeout:
                pass
            m.work("thread", lambda job: str(threading.current_thread() is threading.main_thread()))
            equal(await m.call("thread", "x"), "False")

    async def leave():
        held, m = Held(), AsyncMillrace(server.url)
        m.work("left", held.handle)
        job = await m.push("left", "hold")
        await held.started.wait()
        return job
    with Server("--store", "mem:") as server:
        asyncio.run(run())
        with Millrace(server.url) as m:
            shown = m.job(asyncio.run(leave()))
            equal((shown["status"], shown["attempt"]), ("waiting", 0))


@case
def coroutines_and_functions_work_side_by_side():
    with Server("--store", "mem:") as server, Millrace(server.url) as m:
        async def inner(job):
            return f"inner {job.body}"
        m.worker("inner", concurrency=2)(inner)
        m.worker("outer", concurrency=2)(lambda job: "outer " + m.call("inner", job.body))
        for _ in range(2):
            working = threading.Thread(target=m.run)
            working.start()
            equal(m.call("outer", "x", timeout=TIMEOUT_S), "outer inner x")
            m.stop()
            working.join()


@case
def a_program_may_end_while_a_thread_works():
    program = """
import threading
from millrace import Millrace
m = Millrace("millrace://127.0.0.1:1")
m.worker("s")(print)
threading.Thread(target=m.run, daemon=True).start()
while not m._workers:
    pass
"""
    ended = Running(sys.executable, "-c", program, text=True, env=dict(os.environ, PYTHONPATH=LIBRARY)).end()
    equal(ended.code, 0, ended)


@case
def it_is_installed_without_a_network():
    venv = path("venv")
    made = subprocess.run([sys.executable, "-m", "venv", venv], capture_output=True, text=True)
    equal(made.returncode, 0, made.stdout, made.stderr)
    installed = subprocess.run([f"{venv}/bin/pip", "install", "--no-index", LIBRARY], capture_output=True, text=True)
    equal(installed.returncode, 0, installed.stdout, installed.stderr)
    where = subprocess.run([f"{venv}/bin/python", "-c", "import millrace; print(millrace.__file__)"], cwd=path(""),
                           capture_output=True, text=True, check=True).stdout
    check(where.startswith(venv), where)


@case
def its_guide_runs_as_it_stands():
    with open(os.path.join(LIBRARY, "README.md"), encoding="utf-8") as file:
        guide = re.findall(r"```python\n(.*?)```", file.read(), re.S)
    equal(len(guide), 4, "the guide has other snippets: run them here")
    server = Server("--store", "mem:")
    write("file-7", "one\ntwo\n")
    environment = dict(os.environ, MILLRACE_URL=server.url, PYTHONPATH=LIBRARY)
    run = lambda n, more="": Running(sys.executable, "-c", guide[n].replace("millrace://127.0.0.1:7411", server.url) + more,
                                     text=True, env=environment, cwd=path(""))
    worker = run(1)
    ended = run(0).end()
    equal((ended.code, ended.out), (0, "['2', '3'] {'ok': True}\n"), ended)
    worker.signal(15)
    equal(worker.end().code, 0)
    ended = run(2).end()
    equal((ended.code, ended.out), (0, "{'ok': True}\n"), ended)
    importer = run(3)
    client = Client(server)
    wait_until(lambda: any("import" in stage for stage in client.ask("STAGES")), "the import has begun")
    while importer.process.poll() is None and len(client.work_off("import")) < 3:
        pass
    equal(importer.end().out, "2\n")
    server.stop()


main()
