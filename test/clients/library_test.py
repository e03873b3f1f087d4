#!/usr/bin/env python3
"""library_test.py BUILD: our client libraries against a real server. Each language has a driver, which reads requests and
writes replies and events as JSON; the cases are the same for all of them. Speaks TAP; a language whose tools are missing
is skipped by name; nothing waits for time to pass."""
import atexit
import functools
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from proxy import Proxy, read_frame
from running import Running, wait_until
from served import Client, Server, lasting_address, path, write
from tap import LONG, MILLRACE, TIMEOUT_S, cases, check, equal, main

HERE = os.path.dirname(os.path.abspath(__file__))


class Failed(Exception):
    """What the library raised: the name of the type, and the reason."""

    def __init__(self, error, reason):
        super().__init__(f"{error}: {reason}")
        self.error, self.reason = error, reason


class Driver:
    """A process that uses the library of a language."""

    made = 0

    def __init__(self, language, url, **environment):
        Driver.made += 1
        self.log_path = path(f"{Driver.made}.err")
        self.process = subprocess.Popen(
            DRIVERS[language], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=open(self.log_path, "w"),
            env=dict(os.environ, GORACE="halt_on_error=1", MILLRACE_URL=url,
                     MILLRACE_TOKEN=environment.pop("token", ""), **environment))
        atexit.register(self.kill)
        self.count, self.replies, self.events = 0, {}, queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            said = json.loads(line)
            if "event" in said:
                self.events.put(said)
            else:
                self.replies[said["n"]].put(said)

    def begin(self, do, *args, **options):
        """Sends a request; a function that waits for its reply."""
        self.count += 1
        n, replies = self.count, queue.Queue()
        self.replies[n] = replies
        self.process.stdin.write(json.dumps({"n": n, "do": do, "args": args, "options": options}) + "\n")
        self.process.stdin.flush()

        def reply():
            said = replies.get(timeout=TIMEOUT_S)
            if "error" in said:
                raise Failed(said["error"], said["reason"])
            return said["reply"]
        return reply

    def do(self, *request, **options):
        return self.begin(*request, **options)()

    def fails(self, error, *request, **options):
        """The request fails with an error of this type; its reason."""
        try:
            reply = self.do(*request, **options)
        except Failed as failed:
            equal(failed.error, error, failed)
            return failed.reason
        raise AssertionError(f"{request} was answered with {reply!r:.200}, not {error}")

    def next(self, event="start"):
        said = self.events.get(timeout=TIMEOUT_S)
        equal(said["event"], event, said)
        return said

    def stop(self, working):
        """Stops its workers; waits until they have left."""
        self.do("stop")
        working()

    def signal(self, number):
        self.process.send_signal(number)

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def kill(self):
        self.process.kill()
        self.process.wait()


DRIVERS = {"python": [sys.executable, os.path.join(HERE, "driver.py")],
           "asyncio": [sys.executable, os.path.join(HERE, "driver.py"), "asyncio"],
           "node": ["node", os.path.join(HERE, "driver.mjs")],
           "go": [path("driver_go")]}
TOOLS = {"node": "node", "go": "go"}
MISSING = {language: f"{tool} is not installed" for language, tool in TOOLS.items() if not shutil.which(tool)}
if os.environ.get("MILLRACE_LIBRARY"):  # only these languages
    DRIVERS = {language: DRIVERS[language] for language in os.environ["MILLRACE_LIBRARY"].split()}


def go(*words, folder="../../clients/go"):
    """Runs a tool of Go without a network; what it builds is kept in the user's cache. Returns what it prints."""
    cache = {} if "HOME" in os.environ else {"GOCACHE": path("go-cache")}
    alone = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    done = subprocess.run(words, cwd=os.path.join(HERE, folder), capture_output=True, text=True,
                          env={**cache, **os.environ, **alone})
    equal(done.returncode, 0, done.stdout, done.stderr)
    return done.stdout


def race():
    """The detector of data races needs a C compiler."""
    return ["-race"] if shutil.which("cc") else []


if "go" in DRIVERS and "go" not in MISSING:
    go("go", "build", *(race() if LONG else []), "-o", DRIVERS["go"][0], ".", folder="driver_go")


def case(function, languages=("python", "node", "go")):
    """The same case for each language."""
    for language in [name for name in languages if name in DRIVERS]:
        def run(language=language):
            return MISSING.get(language) or function(language)
        cases.append((f"{function.__name__} ({language})", run))


def works(function):
    """The same for handlers of asyncio, too, whose client is that of Python in all else."""
    case(function, ("python", "asyncio", "node", "go"))


def holds(text, reason):
    check(text in reason, f"{text!r} is not in: {reason}")


class memory_server(Server):
    """It ends at once, also if jobs are leased."""

    def __init__(self, *options):
        super().__init__("--store", "mem:", *options)

    def __exit__(self, *_):
        self.kill()


def waiting(server, stage):
    """The number of jobs of a stage that have not ended."""
    found = [s for s in map(as_map, Client(server).ask("STAGES")) if s["name"] == stage]
    return found[0]["waiting"] + found[0]["running"] if found else 0


def as_map(flat):
    return dict(zip(flat[::2], flat[1::2]))


# ---- Pushing ------------------------------------------------------------------------------------


@case
def K1_a_lost_reply_never_doubles_a_push(language):
    with memory_server() as server:
        proxy = Proxy(server)
        driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")
        driver.do("push", "s", "first")
        proxy.lose = b"PUSH"
        driver.do("push", "s", "second", key="k")
        proxy.lose = b"PUSHMANY"
        ids = driver.do("push_many", "s", [["k", {"n": n}] for n in range(300)])
        equal((len(set(ids)), proxy.lose), (300, None))
        bodies = Client(server).work_off("s", 1000)
        equal(bodies[:2], ["first", "second"])
        equal([json.loads(b) for b in bodies[2:]], [{"n": n} for n in range(300)])


@case
def K1_a_lost_reply_never_doubles_a_call(language):
    with memory_server() as server:
        proxy = Proxy(server, lose=b"CALL")
        driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")
        driver.begin("work", "s", concurrency=1)
        equal(driver.do("call", "s", {"result": {"ok": True}}, timeout=60), {"ok": True})
        stage = as_map(Client(server).ask("STAGES")[0])
        equal((stage["done"], stage["waiting"], proxy.lose), (1, 0, None))


@case
def K2_a_killed_server_is_survived_by_producers_and_workers(language):
    server = Server("--store", f"file:{path('killed-' + language)}")
    driver = Driver(language, server.url)
    working = driver.begin("work", "s", concurrency=3)
    ids = [driver.do("push", "s", {"n": n}, key=str(n % 3)) for n in range(20)]
    server.kill()
    pushes = [driver.begin("push", "s", {"n": n}, key=str(n % 3)) for n in range(20, 40)]
    server.start()
    ids += [push() for push in pushes]
    equal(len(set(ids)), 40)
    client = Client(server)
    for job in ids:
        client.ask("AWAIT", job, "WAIT", TIMEOUT_S * 1000)
    equal(as_map(client.ask("STAGES")[0])["waiting"], 0)
    driver.stop(working)
    server.stop()


@case
def K7_errors_are_types_with_the_reason(language):
    with memory_server("--max-body", "1000") as server:
        driver, client = Driver(language, server.url), Client(server)
        client.ask("STAGE", "full", "max-jobs", 1)
        driver.do("push", "full", "x")
        holds("full", driver.fails("Full", "push", "full", "x"))
        client.ask("DRAIN", "closed")
        holds("closed", driver.fails("Draining", "push", "closed", "x"))
        holds("1000", driver.fails("TooBig", "push", "s", "x" * 1001))
        holds("stage's name", driver.fails("Usage", "push", "a b", "x"))
        holds("99", driver.fails("Gone", "wait", "99"))
        holds("JSON", driver.fails("BadBody", "unencodable"))
        driver.fails("Expired", "call", "idle", "x", timeout=0.1)
        driver.begin("work", ["s"], concurrency=1)
        equal(driver.fails("Dead", "call", "s", {"act": "dead", "reason": "no such street"}), "no such street")
        called = driver.begin("call", "s", {"act": "hold"}, timeout=60)
        driver.next()
        job = driver.next()["id"]
        equal(driver.do("cancel", job), 1)
        try:
            called()
            check(False, "a cancelled call was answered")
        except Failed as failed:
            equal(failed.error, "Cancelled")
        held = driver.do("push", "none", "x")
        driver.fails("Timeout", "wait", held, timeout=0.05)


@case
def K7_no_server_another_server_and_a_wrong_token(language):
    with memory_server() as server:
        address = server.url
    reason = Driver(language, address).fails("Unreachable", "level", "s")
    holds("millrace serve --listen " + address.split("//")[1], reason)
    redis = shutil.which("redis-server")
    if redis:
        port = address.rsplit(":", 1)[1]
        process = subprocess.Popen([redis, "--port", port, "--save", ""], stdout=subprocess.DEVNULL)
        atexit.register(process.kill)
        wait_until(lambda: listens(int(port)), "redis-server listens")
        Driver(language, address).fails("Incompatible", "cancel", "1")
        process.kill()
        process.wait()
    tokens = path("tokens-" + language)
    made = subprocess.run([MILLRACE, "auth", "add", "ci", "--role", "push", "--stages", "s", "--auth", tokens],
                          capture_output=True, text=True, check=True)
    with memory_server("--auth", tokens) as server:
        secret = made.stdout.split()[-1]
        Driver(language, server.url, token="wrong").fails("Denied", "push", "s", "x")
        holds("MILLRACE_TOKEN", Driver(language, server.url).fails("Denied", "push", "s", "x"))
        driver = Driver(language, server.url.replace("://", f"://ci:{secret}@"))
        driver.do("push", "s", "x")
        holds("other", driver.fails("Denied", "push", "other", "x"))


@case
def a_server_that_is_away_is_logged_once_and_when_it_is_back(language):
    server = memory_server()
    server.kill()
    driver = Driver(language, server.url)
    pushes = [driver.begin("push", "s", {"n": n}) for n in range(20)]
    wait_until(lambda: "trying again" in driver.log(), "a push is tried again")
    server.start()
    for push in pushes:
        push()
    log = driver.log()
    holds("cannot connect to " + server.url.split("//")[1], log)
    holds("connected again to " + server.url.split("//")[1], log)
    check(log.count("trying again") <= 2, log)  # one attempt may fail just before another one succeeds
    server.kill()


class Fake:
    """A server that answers HELLO with this, and everything else with an error."""

    def __init__(self, hello):
        self.hello, self.listener = hello, socket.create_server(("127.0.0.1", 0))
        self.url = f"millrace://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client):
        file = client.makefile("rb")
        while words := read_frame(file):
            client.sendall(self.hello if words[0] == b"HELLO" else b"-ERR unknown command\r\n")


@case
def K7_servers_of_another_kind_or_version(language):
    for hello in (b"+OK\r\n", b"-ERR unknown command 'HELLO'\r\n", b"-NOPROTO unsupported\r\n",
                  b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n", b"%1\r\n$6\r\nserver\r\n$8\r\nmillrace\r\n"):
        driver = Driver(language, Fake(hello).url)
        holds("version 0.2", driver.fails("Incompatible", "cancel", "1"))
        holds("version 0.2", driver.fails("Incompatible", "work", "s"))
        holds("the worker of s ends: ", driver.log())
        driver.kill()
    driver = Driver(language, Fake(b"HTTP/1.1 400 Bad Request\r\n").url)
    holds("is it the address of --listen?", driver.fails("Unreachable", "level", "s"))


class Scripted(Fake):
    """A server that answers pushes with these replies, one after another; None: it closes the connection."""

    def __init__(self, *replies):
        self.replies, self.pushes, self.connections = iter(replies), [], 0
        super().__init__(b"%2\r\n$6\r\nserver\r\n$8\r\nmillrace\r\n$2\r\nid\r\n:1\r\n")

    def answer(self, client):
        file = client.makefile("rb")
        self.connections += 1
        while words := read_frame(file):
            reply = self.hello if words[0] == b"HELLO" else b"+OK\r\n"
            if words[0] == b"PUSH":
                self.pushes.append(words)
                reply = next(self.replies)
            if reply is None:
                return client.shutdown(socket.SHUT_RDWR)
            client.sendall(reply)


@case
def K1_a_number_that_a_lost_push_may_have_used_is_not_used_again(language):
    server = Scripted(None, b"-FULL stage s has 1 job\r\n", b"$1\r\n7\r\n")
    driver = Driver(language, server.url)
    driver.fails("Full", "push", "s", "x")
    equal(driver.do("push", "s", "y"), "7")
    lost, again, other = [words[words.index(b"SOURCE") + 1:][:2] for words in server.pushes]
    equal(lost, again)
    check(other[0] != lost[0], other)


@case
def K1_a_push_leaves_a_connection_that_accepts_no_more_numbers(language):
    server = Scripted(b"-LOADING the log is read\r\n", b"-FULL 16 were refused: connect again\r\n", b"$1\r\n7\r\n")
    equal(Driver(language, server.url).do("push", "s", "x"), "7")
    equal([words[-3:] for words in server.pushes], [server.pushes[0][-3:]] * 3)
    equal(server.connections, 2)


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@case
def K7_a_node_that_is_down_is_passed_over(language):
    with memory_server() as gone:
        port = gone.port
    with memory_server() as server:
        driver = Driver(language, f"millrace://127.0.0.1:{port},127.0.0.1:{server.port}")
        driver.do("push", "s", "x")
        equal(waiting(server, "s"), 1)


@case
def a_socket_file_is_connected_to(language):
    file = path("socket-" + language)
    server = Server("--store", "mem:", listen=f"{lasting_address()},unix:{file}")
    driver = Driver(language, f"unix:{file}")
    driver.begin("work", "s", concurrency=1)
    equal(driver.do("call", "s", {"result": "near"}, timeout=TIMEOUT_S), "near")
    server.kill()


@case
def K7_many_refused_pushes_spoil_no_other(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        for n in range(20):
            driver.fails("Usage", "push", f"s{n}", "x", attempts=-3)
        driver.do("push", "s", "x")
        equal(waiting(server, "s"), 1)


@case
def pushes_at_once_use_their_sources_again(language):
    """A server keeps 10,000 of them."""
    with memory_server() as server:
        proxy = Proxy(server)
        driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")
        sources = lambda: [words[words.index(b"SOURCE") + 1] for words in proxy.said if words[0] == b"PUSH"]
        driver.do("push", "s", "x")
        for n in range(1, 4):
            server.process.send_signal(signal.SIGSTOP)
            pushes = [driver.begin("push", "s", "x") for _ in range(100)]
            wait_until(lambda: len(sources()) == 100 * n + 1, "all are on their way")
            server.process.send_signal(signal.SIGCONT)
            for push in pushes:
                push()
        check(len(set(sources())) <= 100, f"{len(set(sources()))} sources")
        equal(waiting(server, "s"), 301)


@case
def a_server_that_does_not_know_the_numbers_gets_new_ones(language):
    server = memory_server()
    proxy = Proxy(server)
    driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")
    driver.do("push", "s", "x")
    for n in range(1, 6):  # two sources come beyond 1,024
        server.process.send_signal(signal.SIGSTOP)
        pushes = [driver.begin("push_many", "s", [["", "x"]] * 250) for _ in range(2)]
        wait_until(lambda: sum(words[0] == b"PUSHMANY" for words in proxy.said) == 2 * n, "both are on their way")
        server.process.send_signal(signal.SIGCONT)
        equal([len(push()) for push in pushes], [250, 250])
    server.kill()
    lost = driver.begin("push", "s", "lost")
    wait_until(lambda: "trying again" in driver.log(), "it is sent again")
    server.start()
    lost()
    driver.do("push", "s", "next")
    equal(Client(server).work_off("s", 10), ["lost", "next"])
    server.kill()


@case
def a_push_that_waits_for_room_delays_no_other(language):
    with memory_server() as server:
        driver, client = Driver(language, server.url), Client(server)
        client.ask("STAGE", "full", "max-jobs", 1)
        driver.do("push", "full", "first")
        waits = driver.begin("push", "full", "second", room=TIMEOUT_S)
        wait_until(lambda: "blocked_clients:1" in client.ask("INFO"), "a push waits for room")
        driver.do("push", "s", "x")
        equal(waiting(server, "s"), 1)
        client.ask("DONE", *client.ask("TAKE", "full")[0][:2])
        waits()
        equal(client.ask("TAKE", "full")[0][4], "second")


@case
def the_secret_of_the_url_comes_before_the_variable(language):
    tokens = path("tokens-first-" + language)
    made = subprocess.run([MILLRACE, "auth", "add", "ci", "--role", "push", "--auth", tokens],
                          capture_output=True, text=True, check=True)
    with memory_server("--auth", tokens) as server:
        secret = made.stdout.split()[-1]
        Driver(language, server.url.replace("://", f"://ci:{secret}@"), token="wrong").do("push", "s", "x")


@case
def an_epic_goes_on_where_it_stopped(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        equal(driver.do("epic_look", "s", "e"), 1)
        for n in (1, 2, 2, 3):
            driver.do("epic_push", "s", "e", n, {"n": n})
        equal(driver.do("epic_look", "s", "e"), 4)
        driver.do("epic_end", "s", "e", 3)
        equal(waiting(server, "s"), 3)
        driver.begin("work", "s", concurrency=2)
        equal(driver.do("epic_wait", "s", "e"), 3)


@case
def an_epic_is_followed_waited_for_cancelled_and_forgotten(language):
    with memory_server() as server:
        driver, client = Driver(language, server.url), Client(server)
        for n in 1, 2, 3:
            driver.do("epic_push", "s", "e", n, {})
        driver.do("epic_then", "s", "e", "after", {"all": True}, key="k")
        driver.do("epic_end", "s", "e", 3)
        left = driver.begin("epic_left", "s", "e", 2)
        wait_until(lambda: "blocked_clients:1" in client.ask("INFO"), "the producer waits")
        client.ask("DONE", *client.ask("TAKE", "s")[0][:2])
        equal(left(), 2)
        driver.begin("work", "s", concurrency=2)
        equal(driver.do("epic_wait", "s", "e"), 3)
        equal([(job[3], json.loads(job[4])) for job in client.ask("TAKE", "after", "COUNT", 9)], [("k", {"all": True})])
        for n in 1, 2:
            driver.do("epic_push", "none", "e", n, {})
        driver.do("epic_forget", "none", "e", 3600)
        driver.do("epic_cancel", "none", "e")
        equal(driver.do("epic_wait", "none", "e"), 0)
        shown = as_map(client.ask("EPIC", "none", "e"))
        equal((shown["cancelled"], shown["forget-ms"]), (2, 3600000))
        driver.fails("Cancelled", "epic_push", "none", "e", 3, {})


@case
def calls_of_one_name_have_one_job_and_one_answer(language):
    with memory_server() as server:
        proxy = Proxy(server)
        driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")
        calls = [driver.begin("call", "s", {"result": "one"}, once="name", timeout=TIMEOUT_S) for _ in range(2)]
        wait_until(lambda: sum(words[0] == b"CALL" for words in proxy.said) == 2, "both calls are on their way")
        wait_until(lambda: waiting(server, "s") == 1, "the job is there")
        driver.begin("work", "s", concurrency=1)
        equal([call() for call in calls], ["one", "one"])


@case
def a_call_that_gives_up_leaves_the_job_to_others(language):
    with memory_server() as server:
        driver, other = Driver(language, server.url), Driver(language, server.url)
        driver.begin("work", "s", concurrency=1)
        kept = driver.begin("call", "s", {"act": "hold", "result": "kept"}, once="name", timeout=TIMEOUT_S)
        job = driver.next()["id"]
        for client in driver, other:
            client.fails("Timeout", "call", "s", "x", once="name", timeout=0.2, deadline=TIMEOUT_S)
        driver.do("let", job)
        equal(kept(), "kept")
        check(driver.events.empty())
        driver.fails("Timeout", "call", "t", {}, once="alone", timeout=0.2, deadline=TIMEOUT_S)
        wait_until(lambda: waiting(server, "t") == 0, "the job that no caller wants is cancelled")


# ---- Working ------------------------------------------------------------------------------------


@case
def jobs_of_a_key_end_in_order_although_the_first_one_fails_twice(language):
    with memory_server() as server:
        Client(server).ask("STAGE", "s", "backoff", "1ms")
        driver = Driver(language, server.url)
        for name, times in ("A", 2), ("B", 0), ("C", 0):
            last = driver.do("push", "s", {"act": "fail", "times": times, "reason": "not yet", "name": name}, key="k")
        driver.begin("work", "s", concurrency=3)
        driver.do("wait", last, timeout=TIMEOUT_S)
        ran = [driver.next() for _ in range(5)]
        equal([(r["body"]["name"], r["attempt"]) for r in ran], [("A", 1), ("A", 2), ("A", 3), ("B", 1), ("C", 1)])


@case
def the_reason_of_a_failure_is_kept(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        half = r'{"act": "fail", "times": 9, "reason": "half \ud83d"}'  # of a pair, which is not UTF-8
        odd = Client(server).ask("PUSH", "s", half, "ATTEMPTS", 1)
        job = driver.do("push", "s", {"act": "fail", "times": 9, "reason": "no such street"}, attempts=1)
        bad = driver.do("push", "s", {"act": "unencodable"}, attempts=1)
        keyless = driver.do("push", "s", {"act": "count"}, attempts=1)  # a state needs a key
        shown = driver.do("push", "s", {"act": "fail", "times": 9, "reason": "no such town"}, attempts=1)
        text, strict = driver.do("push", "text", "{no JSON"), driver.do("push", "json", "{no JSON")
        driver.begin("work", ["s", "text", "json"], concurrency=2)
        holds("half", driver.fails("Dead", "wait", odd))
        holds("no such street", driver.fails("Dead", "wait", job))
        check(driver.fails("Dead", "wait", bad).startswith("BadBody: "))
        holds("key", driver.fails("Dead", "wait", keyless))
        equal(driver.do("wait", text), "")
        holds("JSON", driver.fails("Dead", "wait", strict))
        equal(driver.do("job", strict)["attempt"], 1)
        driver.fails("Dead", "wait", shown)
        final = driver.do("push", "s", {"act": "dead", "reason": "no such number"})
        driver.fails("Dead", "wait", final)
        log = driver.log()
        for failed, how in ((job, "failed (attempt 1): "),
                            (keyless, "failed (attempt 1): Usage: "),
                            (bad, "is dead (attempt 1): BadBody: "),
                            (final, "is dead (attempt 1): no such number")):
            holds(f"job {failed} of s {how}", log)
        holds(f"job {strict} of json is dead (attempt 1): BadBody: ", log)
        holds("no such town", json.dumps(driver.do("job", shown)["reasons"]))
        starts = [driver.next()["body"] for _ in range(8)]
        check("{no JSON" in starts, starts)


@case
def a_snoozed_job_comes_back_and_counts_no_attempt(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        job = driver.do("push", "s", {"act": "snooze", "seconds": 0.05, "result": {"ok": 1}})
        driver.begin("work", "s", concurrency=2)
        equal(driver.do("wait", job, timeout=TIMEOUT_S), {"ok": 1})
        equal([driver.next()["attempt"] for _ in range(2)], [1, 1])


@case
def K3_cancellation_reaches_the_handler(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        driver.begin("work", "s", concurrency=2)
        job = driver.do("push", "s", {"act": "hold"})
        equal(driver.next()["id"], job)
        equal(driver.do("cancel", job), 1)
        equal(driver.next("stopped")["id"], job)
        driver.fails("Timeout", "call", "s", {"act": "hold"}, timeout=0.2, deadline=60)
        job = driver.next()["id"]
        equal(driver.next("stopped")["id"], job)


@case
def K4_result_emits_and_state_commit_together(language):
    with memory_server() as server:
        Client(server).ask("STAGE", "s", "backoff", "1ms")
        driver = Driver(language, server.url)
        driver.begin("work", "s", concurrency=4)
        counted = [driver.do("push", "s", {"act": "count"}, key="c") for _ in range(3)]
        equal([driver.do("wait", job) for job in counted], [{"count": n} for n in (1, 2, 3)])
        emit = {"act": "emit", "stage": "t", "body": {"a": [1, "ü"]}, "times": 1, "result": "done"}
        equal(driver.do("wait", driver.do("push", "s", emit, key="e")), "done")
        taken = Client(server).ask("TAKE", "t", "COUNT", 10)
        equal([(job[3], json.loads(job[4])) for job in taken], [("e", {"a": [1, "ü"]})])


@case
def K5_a_stop_drains(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        working = driver.begin("work", "s", concurrency=1)
        held, left = driver.do("push", "s", {"act": "hold", "result": "held"}), driver.do("push", "s", {})
        equal(driver.next()["id"], held)
        driver.do("stop")
        driver.do("let", held)
        working()
        equal(driver.do("wait", held), "held")
        equal((driver.do("job", left)["status"], driver.do("job", left)["attempt"]), ("waiting", 0))
        check(driver.events.empty())


HANGING = {
    "python": [sys.executable, "-c", """
import threading
from millrace import Millrace
m = Millrace()
m.worker("s")(lambda job: threading.Event().wait())
m.run()
"""],
    "node": ["node", "-e", """
const { Millrace } = require('./index.js');
const m = new Millrace();
m.work('s', () => new Promise(() => {}));
m.run();
"""]}


@functools.partial(case, languages=("python", "node"))  # in Go, signals are the program's
def K5_a_second_signal_ends_a_worker_at_once(language):
    with memory_server() as server:
        client = Client(server)
        job = client.ask("PUSH", "s", "x")
        worker = Running(*HANGING[language], text=True, cwd=os.path.join(HERE, "../../clients", language),
                         env=dict(os.environ, MILLRACE_URL=server.url))
        wait_until(lambda: as_map(client.ask("JOB", job))["status"] == "running", "it runs")
        worker.signal(signal.SIGINT)
        wait_until(lambda: "taking no more; what runs may finish (again to end it)" in worker.said(), "it says so")
        worker.signal(signal.SIGINT)
        equal(worker.end().code, -signal.SIGINT, worker.end())


@case
def K5_what_outlasts_the_grace_goes_back_uncounted(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        working = driver.begin("work", "s", concurrency=1, grace=0.05)
        held = driver.do("push", "s", {"act": "hold"})
        equal(driver.next()["id"], held)
        driver.stop(working)
        equal(driver.next("stopped")["id"], held)
        shown = driver.do("job", held)
        equal((shown["status"], shown["attempt"]), ("waiting", 0))


@case
def what_hangs_is_given_back_and_commits_nothing_later(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        working = driver.begin("work", "s", concurrency=1, grace=0.05)
        held = driver.do("push", "s", {"act": "hang", "result": "too late"})
        equal(driver.next()["id"], held)
        driver.stop(working)
        driver.do("let", held)
        equal(driver.next("hung")["id"], held)
        driver.do("push", "s", {})
        shown = driver.do("job", held)
        equal((shown["status"], shown["attempt"]), ("waiting", 0))


@case
def K6_a_worker_asks_the_server_how_many_jobs_to_run_at_once(language):
    with memory_server() as server:
        driver, client = Driver(language, server.url), Client(server)
        working = driver.begin("work", "s", concurrency="auto")
        levels = {2}  # with which a worker begins
        while levels == {2}:  # the server tries others
            driver.do("push_many", "s", [["", {}] for _ in range(200)])
            wait_until(lambda: waiting(server, "s") == 0, "all jobs have ended")
            levels |= {as_map(row)["level"] for row in client.ask("WORKERS")}
        driver.stop(working)


# ---- Taking ahead -------------------------------------------------------------------------------


def most_taken(proxy):
    """The highest COUNT of a TAKE."""
    return max([0] + [int(words[words.index(b"COUNT") + 1]) for words in proxy.said if words[0] == b"TAKE"])


@works
def jobs_that_are_taken_ahead_run_one_at_a_time_and_each_once(language):
    with memory_server() as server:
        proxy = Proxy(server)
        driver, ids = Driver(language, f"millrace://127.0.0.1:{proxy.port}"), []
        working = driver.begin("work", "s", concurrency=1)
        while most_taken(proxy) < 4:  # until the worker has learned that the handlers are short
            ids += driver.do("push_many", "s", [[str(n % 50), {"act": "alone"}] for n in range(200)])
            wait_until(lambda: waiting(server, "s") == 0, "all jobs have ended")
        check(most_taken(proxy) <= 17, most_taken(proxy))
        driver.stop(working)
        started = [driver.next()["id"] for _ in ids]
        check(driver.events.empty())
        for key in range(50):
            of_key = set(ids[key::50])
            equal([job for job in started if job in of_key], ids[key::50])
        equal(len(set(started)), len(ids))


def in_the_middle_of_a_batch(language, act, look):
    """A worker has a job that does `act`, among short ones, until it has given some back. look() gets the ids of those that
    it began before, of that job, and of the rest."""
    with memory_server() as server:
        proxy = Proxy(server)
        driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")
        while not any(words[0] == b"RELEASE" for words in proxy.said):  # it may be the last one of its batch
            working = driver.begin("work", "s", concurrency=1)
            ids = driver.do("push_many", "s", [["", {}]] * 150 + [["", {"act": act}]] + [["", {}]] * 40)
            begun = [driver.next()["id"]]
            while begun[-1] != ids[150]:
                begun.append(driver.next()["id"])
            look(driver, server, begun[:-1], ids[150], [job for job in ids if job not in begun], working)
            driver.kill()
            driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")


@works
def a_slow_handler_holds_up_no_job_that_was_taken_with_it(language):
    def look(driver, server, before, slow, behind, working):
        for job in before:
            equal(driver.do("wait", job, timeout=TIMEOUT_S), "")
        client, seen = Client(server), []
        while len(seen) < len(behind):  # by another worker
            taken = client.ask("TAKE", "s", "COUNT", 40, "WAIT", TIMEOUT_S * 1000)
            check(taken, "some are held")
            seen += [job[0] for job in taken]
            equal({job[5] for job in taken}, {1})
            for job in taken:
                client.ask("DONE", *job[:2])
        equal(sorted(seen), sorted(behind))
        equal(driver.do("job", slow)["status"], "running")
        check(driver.events.empty())
        driver.do("let", slow)
        driver.do("wait", slow)
        driver.stop(working)
    in_the_middle_of_a_batch(language, "hold", look)


@works
def K5_a_stop_gives_back_what_was_taken_ahead(language):
    def look(driver, server, before, stopper, behind, working):
        working()
        check(driver.events.empty())
        for job in before + [stopper]:
            equal(driver.do("job", job)["status"], "done")
        for job in behind:
            shown = driver.do("job", job)
            equal((shown["status"], shown["attempt"]), ("waiting", 0))
        driver.do("cancel", *behind)
    in_the_middle_of_a_batch(language, "stop", look)


class Granting(Fake):
    """A server that grants three jobs at once, and cancels the second one."""

    def __init__(self):
        self.said = queue.Queue()
        super().__init__(b"%2\r\n$6\r\nserver\r\n$8\r\nmillrace\r\n$2\r\nid\r\n:1\r\n")

    def answer(self, client):
        file, takes = client.makefile("rb"), 0
        row = b"*10\r\n$1\r\n%d\r\n$1\r\nt\r\n$1\r\ns\r\n$0\r\n\r\n$2\r\n{}\r\n:1\r\n:-1\r\n_\r\n:30000\r\n$0\r\n\r\n"
        while words := read_frame(file):
            reply = self.hello if words[0] == b"HELLO" else b"+OK\r\n"
            if words[0] == b"TAKE":
                takes += 1
                reply = b"*3\r\n" + row % 1 + row % 2 + row % 3 + b">2\r\n+cancel\r\n$1\r\n2\r\n" if takes == 1 else b""
            if words[0] in (b"DONE", b"DONEMANY", b"RELEASE"):
                self.said.put(words)
            if words[0] == b"DONEMANY":
                reply = b"*%d\r\n" % (len(words) // 2) + b"+OK\r\n" * (len(words) // 2)
            client.sendall(reply)


@functools.partial(case, languages=("python", "asyncio", "node"))  # Go reads a cancellation while handlers run
def K3_a_job_that_is_cancelled_before_it_begins_is_not_run(language):
    server = Granting()
    driver = Driver(language, server.url)
    driver.begin("work", "s", concurrency=1)
    ended = {}
    while len(ended) < 3:  # the others are given back, too, if the machine is slow
        name, *words = server.said.get(timeout=TIMEOUT_S)
        ended.update((job, name) for job in words[::2])
    equal(ended[b"2"], b"RELEASE")
    ran = [driver.next()["id"] for name in ended.values() if name != b"RELEASE"]
    check("2" not in ran, ran)
    check(driver.events.empty())


# ---- What else a worker promises ----------------------------------------------------------------


@functools.partial(case, languages=("python", "node"))  # in Go, a worker is a call of Work
def a_worker_is_started_once(language):
    with memory_server() as server:
        driver = Driver(language, server.url)
        driver.begin("work", "s", concurrency=1)
        job = driver.do("push", "s", {"act": "hold", "result": "once"})
        equal(driver.next()["id"], job)
        driver.fails("Usage", "work_again")
        driver.do("let", job)
        equal(driver.do("wait", job), "once")
        check(driver.events.empty())


@case
def a_worker_that_is_busy_notices_a_lost_connection(language):
    server = memory_server()
    driver = Driver(language, server.url)
    driver.begin("work", "s", concurrency=1)
    held = driver.do("push", "s", {"act": "hold"})
    equal(driver.next()["id"], held)
    server.kill()
    equal(driver.next("stopped")["id"], held)
    driver.kill()


@case
def a_commit_that_is_refused_is_a_failed_attempt(language):
    tokens = path("worker-tokens-" + language)
    made = subprocess.run([MILLRACE, "auth", "add", "ci", "--role", "push,work", "--stages", "s", "--auth", tokens],
                          capture_output=True, text=True, check=True)
    with memory_server("--auth", tokens) as server:
        driver = Driver(language, server.url.replace("://", f"://ci:{made.stdout.split()[-1]}@"))
        driver.begin("work", "s", concurrency=1)
        job = driver.do("push", "s", {"act": "emit", "stage": "other", "body": {}}, key="k", attempts=1)
        holds("other", driver.fails("Dead", "wait", job, timeout=TIMEOUT_S))
        holds(f"job {job} of s failed (attempt 1): Denied: ", driver.log())


def beats(proxy, job):
    """How often the lease of a job was extended."""
    return sum(words[0] == b"BEAT" and job.encode() in words for words in proxy.said)


@case
def each_stage_has_its_lease(language):
    with memory_server() as server:
        proxy, client = Proxy(server), Client(server)
        driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")
        for stage, lease in ("long", "1h"), ("short", "5s"):
            client.ask("STAGE", stage, "lease", lease)
        driver.begin("work", ["long", "short"], concurrency=2)
        for stage in "long", "short":
            job = driver.do("push", stage, {"act": "hold", "result": stage})
            equal(driver.next()["id"], job)
        wait_until(lambda: beats(proxy, job), "the shorter lease is extended in time")
        driver.do("let", job)
        equal(driver.do("wait", job), "short")
        check(driver.events.empty())


@case
def a_lost_lease_commits_nothing_and_stops_the_handler(language):
    with memory_server() as server:
        driver, client = Driver(language, server.url), Client(server)
        driver.begin("work", "s", concurrency=1, lease=0.5)
        job = driver.do("push", "s", {"act": "hold", "result": "first"})
        equal(driver.next()["id"], job)
        driver.signal(signal.SIGSTOP)
        taken = client.ask("TAKE", "s", "WAIT", TIMEOUT_S * 1000)[0]
        equal(taken[0], job)
        driver.signal(signal.SIGCONT)
        equal(driver.next("stopped")["id"], job)
        equal(client.ask("DONE", *taken[:2], "RESULT", "second"), "OK")
        equal(driver.do("wait", job), "second")


@case
def a_job_that_runs_longer_than_its_lease_keeps_it(language):
    with memory_server() as server:
        proxy, client = Proxy(server), Client(server)
        driver = Driver(language, f"millrace://127.0.0.1:{proxy.port}")
        driver.begin("work", "s", concurrency=1, lease=2)
        job = driver.do("push", "s", {"act": "progress", "result": "late"})
        equal(driver.next()["id"], job)
        wait_until(lambda: "progress" in as_map(client.ask("JOB", job)), "the job says its progress")
        shown = as_map(as_map(client.ask("JOB", job))["progress"])
        equal([str(shown[name]) for name in ("done", "total", "text")], ["3", "10", "attachments"])
        wait_until(lambda: beats(proxy, job) > 3, "the lease is extended for longer than it was")
        driver.do("let", job)
        equal(driver.do("wait", job), "late")
        check(driver.events.empty())


@case
def a_trace_is_carried_on(language):
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with memory_server() as server:
        driver, client = Driver(language, server.url), Client(server)
        driver.begin("work", "s", concurrency=1)
        body = {"act": "emit", "stage": "t", "body": {}}
        driver.do("wait", driver.do("push", "s", body, key="k", meta={"traceparent": parent, "other": "x"}))
        equal(driver.next()["meta"], {"traceparent": parent, "other": "x"})
        equal(json.loads(client.ask("TAKE", "t")[0][9]), {"traceparent": parent})
        body = {"act": "push", "stage": "t", "body": {}}
        driver.do("wait", driver.do("push", "s", body, meta={"traceparent": parent}))
        equal(json.loads(client.ask("TAKE", "t")[0][9]), {"traceparent": parent})
        driver.do("wait", driver.do("push", "s", body))
        equal(client.ask("TAKE", "t")[0][9], "")


@case
def tls_is_verified(language):
    key, certificate = path("key.pem"), path("cert.pem")
    if not os.path.exists(certificate):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                       capture_output=True, check=True)
    with memory_server("--tls-cert", certificate, "--tls-key", key) as server:
        url = f"millraces://localhost:{server.port}"
        driver = Driver(language, url, MILLRACE_CA=certificate)
        driver.begin("work", "s", concurrency=1)
        equal(driver.do("call", "s", {"result": "safe"}), "safe")
        for other in Driver(language, url), Driver(language, url.replace("localhost", "127.0.0.1"), MILLRACE_CA=certificate):
            holds("certificate", other.fails("Unreachable", "cancel", "1").lower())
            holds("certificate", other.fails("Unreachable", "work", "s").lower())


# ---- Only for Node ------------------------------------------------------------------------------


def node_guide():
    """The snippets of the README run as they stand, beside one worker: the one that never ends."""
    folder, library = path("guide"), os.path.join(HERE, "../../clients/node")
    os.makedirs(os.path.join(folder, "node_modules"))
    os.symlink(os.path.abspath(library), os.path.join(folder, "node_modules", "millrace"))
    write("guide/file-7", "a\nb\nc\n")
    with open(os.path.join(library, "README.md"), encoding="utf-8") as file:
        snippets = re.findall(r"```js\n(.*?)```", file.read(), re.S)
    equal(len(snippets), 4)
    with memory_server() as server:
        worker, client = None, Client(server)
        for n, text in enumerate(snippets):
            name = write(f"guide/{n}." + ("cjs" if "require(" in text else "mjs"),
                         text.replace("millrace://127.0.0.1:7411", server.url))
            process = Running("node", name, text=True, cwd=folder, env=dict(os.environ, MILLRACE_URL=server.url))
            if "m.run()" in text:
                worker = process
            else:
                equal(process.end().code, 0, process.end())
        mail = client.ask("PUSH", "mail", '{"to": "bob"}', "KEY", "bob")
        equal(json.loads(client.ask("AWAIT", mail, "WAIT", TIMEOUT_S * 1000)), {"ok": True})
        worker.signal(signal.SIGTERM)
        equal(worker.end().code, 0, worker.end())
        equal(waiting(server, "import"), 3)


def node_units():
    ended = Running("node", os.path.join(HERE, "node_units.mjs"), text=True).end()
    equal(ended.code, 0, ended)


if "node" in DRIVERS:
    for function, name in (node_guide, "the_guide_runs_as_it_stands (node)"), (node_units, "units (node)"):
        cases.append((name, lambda function=function: MISSING.get("node") or function()))


# ---- Only for Go --------------------------------------------------------------------------------


def go_is_formatted_and_holds_its_unit_tests():
    if "go" in MISSING:
        return MISSING["go"]
    equal(go("gofmt", "-l", ".", "../../test/clients/driver_go"), "")
    for folder in "../../clients/go", "driver_go":
        go("go", "vet", ".", folder=folder)
    go("go", "test", *race(), ".")
    with open(os.path.join(HERE, "../../clients/go/README.md"), encoding="utf-8") as readme:
        snippets = re.findall(r"```go\n(.*?)```", readme.read(), re.S)
    check(snippets)
    for number, text in enumerate(snippets):
        folder = path(f"snippet-{number}")
        os.mkdir(folder)
        write(f"snippet-{number}/main.go", text)
        go("go", "mod", "init", "snippet", folder=folder)
        go("go", "mod", "edit", "-require=millrace@v0.2.0",
           "-replace=millrace=" + os.path.realpath(os.path.join(HERE, "../../clients/go")), folder=folder)
        equal(go("gofmt", "-l", ".", folder=folder), "")
        go("go", "vet", ".", folder=folder)


if "go" in DRIVERS:
    cases.append(("its sources are formatted, and its units hold (go)", go_is_formatted_and_holds_its_unit_tests))

main()
