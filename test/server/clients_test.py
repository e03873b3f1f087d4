#!/usr/bin/env python3
"""clients_test.py BUILD: clients of Redis that others wrote, and our own library, against a real
server: what docs/clients.md says of each of them, in RESP2 and RESP3, and every example for them.
Speaks TAP; what cannot be had here is skipped, with the reason."""
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from clients import (NODE, ROOT, SPOKEN, Hiredis, Ioredis5, Ioredis6, NodeRedis5, NodeRedis6, PhpRedis, Redigo,
                     RedisCli, RedisPyAlone, RedisRb, Refused, end_clients, python_with_redis, read, redigo_program,
                     why_missing)
from proxy import Proxy
from served import Server
from tap import BUILD, MILLRACE, TIMEOUT_S, check, equal, top

TIMEOUT_MS = 2000  # of clients: what else they ask is answered by then, also where much runs


# ---- What each of them does --------------------------------------------------------------------

cases, pairs = [], {}
words_of = lambda frames: [[w.decode() for w in words] for words in frames]


def case(name):
    def add(function):
        cases.append((name, function))
        return function
    return add


def pair(kind, resp):
    """Two of a kind, which those cases share that do not harm them: Node takes long to begin."""
    if not pairs.get((kind, resp)):
        end_clients()
        pairs.clear()
        pairs[kind, resp] = kind(server.port, resp), kind(server.port, resp)
    return pairs[kind, resp]


def own_stage(word, kind, resp):
    """A stage that no other case uses."""
    return f"{word}-{kind.name.replace(' ', '-')}-{resp}"


def fields(client, reply):
    """A map, however the client gives it."""
    return dict(zip(reply[::2], reply[1::2])) if client.map_is_flat else reply


@case("connects, and none of its first commands is refused")
def _(kind, resp):
    proxy = Proxy(server)
    client = kind(proxy.port, resp)
    equal(client.ask("PING"), "PONG")
    equal(words_of(proxy.said), kind.handshake(resp) + [["PING"]])
    check(not [h for h in proxy.received if isinstance(h, bytes) and h.startswith(b"-")], proxy.received)


@case("calls and is answered; beats; bodies stay as they are")
def _(kind, resp):
    caller, worker = pair(kind, resp)
    stage = own_stage("calls", kind, resp)
    worker.send("TAKE", stage, "WAIT", -1)
    caller.send("CALL", stage, "né\r\n\"x\"", "KEY", "k")
    (job,) = worker.receive()
    equal(job[2:8], [stage, "k", "né\r\n\"x\"", 1, -1, None])
    equal(worker.ask("BEAT", job[0], job[1]), [])
    equal(worker.ask("DONE", job[0], job[1], "RESULT", "fine", "STATE", "s"), "OK")
    equal(caller.receive(), "fine")
    equal(caller.ask("AWAIT", job[0]), "fine")
    equal(fields(caller, caller.ask("JOB", job[0]))["status"], "done")


@case("pushes once, fails, and gets its own kind of error")
def _(kind, resp):
    client, _ = pair(kind, resp)
    stage = own_stage("fails", kind, resp)
    first = client.ask("PUSH", stage, "b", "ONCE", "name")
    equal(client.ask("PUSH", stage, "b", "ONCE", "name"), first)
    ((job, token, *_),) = client.ask("TAKE", stage, "COUNT", 2)
    equal(job, first)
    equal(client.ask("AWAIT", job), None)
    equal(client.ask("FAIL", job, token, "no luck", "NEVER"), "OK")
    for text, words in (("DEAD no luck", ["AWAIT", job]), ("STALE ", ["DONE", job, "no-token"]),
                        ("ERR unknown command 'NONSENSE'", ["NONSENSE"]),
                        ("ERR wrong number of arguments for PUSH", ["PUSH", "s"]),
                        ("ERR LPUSH is a command of Redis", ["LPUSH", "l", "x"]),
                        ("GONE ", ["AWAIT", 2**63])):
        equal(client.refused(text, *words), kind.error, text)
    equal(client.ask("PING"), "PONG")


@case("gets a cancellation by BEAT, and is not confused by a push message")
def _(kind, resp):
    client, other = pair(kind, resp)
    if resp == 3:
        equal(client.ask("CLIENT", "CANCELS", "ON"), "OK")
    else:
        client.refused("ERR cancellations are pushed in RESP3 only", "CLIENT", "CANCELS", "ON")
    client.ask("PUSH", "cancels", "b")
    ((job, token, *_),) = client.ask("TAKE", "cancels")
    equal(other.ask("CANCEL", job), 1)
    equal(client.ask("BEAT", job, token), [job])
    equal(client.refused("CANCELLED ", "DONE", job, token), kind.error)
    equal(client.ask("PING"), "PONG")


@case("comes back after a restart of the server")
def _(kind, resp):
    store = tempfile.mkdtemp(dir=top)
    own = Server("--store", f"file:{store}")
    client = kind(own.port, resp)
    first = client.ask("PUSH", "restarts", "before")
    own.stop()
    if client.needs_ready:
        client.read_event("gone")
    own.start()
    if client.needs_ready:
        client.read_event("ready")
    elif not client.again:
        equal(client.refused("Server closed the connection", "PING"), "context")
    ((job, token, *_),) = client.ask("TAKE", "restarts")
    equal(job, first)
    equal(client.ask("DONE", job, token), "OK")
    own.stop()


def lose(client, proxy, command, *words):
    """Asks, and has the answer lost; what the client then gives, and how often it has sent it."""
    before, proxy.lose, reply = len(proxy.said), command.encode(), None
    client.send(command, *words)
    try:
        reply = client.receive()
    except Refused as refused:
        check(refused.kind in ("SocketClosedUnexpectedlyError", "context"), refused)
    if client.needs_ready:
        client.read_event("gone")
        client.read_event("ready")
    return reply, sum(said[0] == command.encode() for said in proxy.said[before:])


@case("sends again by itself, or not, when an answer is lost; ONCE and tokens make that harmless")
def _(kind, resp):
    stage, often = own_stage("lost", kind, resp), 2 if kind.again else 1
    proxy = Proxy(server)
    client = kind(proxy.port, resp)
    equal(lose(client, proxy, "PUSH", stage, "b")[1], often)
    jobs = client.ask("TAKE", stage, "COUNT", 10, "DETACHED")
    equal(len(jobs), often)

    first, sent = lose(client, proxy, "PUSH", stage, "b", "ONCE", "name")
    equal(sent, often)
    repeat = client.ask("PUSH", stage, "b", "ONCE", "name")
    equal(first, repeat if kind.again else None)
    ((job, token, *_),) = client.ask("TAKE", stage, "COUNT", 10, "DETACHED")
    equal(job, repeat)

    equal(lose(client, proxy, "DONE", job, token, "RESULT", "r"), ("OK" if kind.again else None, often))
    equal(client.ask("DONE", job, token, "RESULT", "r"), "OK")
    equal(client.ask("AWAIT", job), "r")


# ---- What one of them does ---------------------------------------------------------------------

own_cases = []


def waiting(stage):
    """How many jobs of it wait."""
    printed = subprocess.run([MILLRACE, "stages", "--at", server.url, "--json"],
                          capture_output=True, text=True, check=True).stdout
    return next(s["waiting"] for s in json.loads(printed) if s["name"] == stage)


def own_case(name, *kinds):
    def add(function):
        own_cases.append((name, function, kinds))
        return function
    return add


@own_case("hiredis: a timeout shorter than the wait ends the connection", Hiredis)
def _():
    client = Hiredis(server.port, 2, timeout_ms=TIMEOUT_MS)
    equal(client.refused("Resource temporarily unavailable", "TAKE", "quiet", "WAIT", -1), "context")
    equal(client.ask("PING"), "PONG")


@own_case("node-redis: a command timeout does not end a TAKE that was sent; a socket timeout does",
          NodeRedis5, NodeRedis6)
def _():
    for kind in NodeRedis5, NodeRedis6:
        if why_missing(kind):
            continue
        client = kind(server.port, 3, commandOptions={"timeout": TIMEOUT_MS})
        equal(client.ask("TAKE", "quiet", "WAIT", TIMEOUT_MS + 200), [])
        client = kind(server.port, 3, socket={"port": server.port, "socketTimeout": TIMEOUT_MS,
                                              "reconnectStrategy": 1})
        equal(client.refused("Socket timeout", "TAKE", "quiet", "WAIT", -1), "SocketTimeoutError")
        client.read_event("gone")
        client.read_event("ready")


@own_case("ioredis: a command timeout ends a TAKE, whose answer then goes nowhere", Ioredis5, Ioredis6)
def _():
    for kind in Ioredis5, Ioredis6:
        if why_missing(kind):
            continue
        client, other = kind(server.port, 2, commandTimeout=TIMEOUT_MS), kind(server.port, 2)
        stage = own_stage("quiet", kind, 2)
        equal(client.refused("Command timed out", "TAKE", stage, "WAIT", -1), "Error")
        job = other.ask("PUSH", stage, "b")
        equal(fields(other, other.ask("JOB", job))["status"], "running")


@own_case("U3: multi() of node-redis and ioredis runs all of it, or none if one is refused", NodeRedis5,
          NodeRedis6, Ioredis5, Ioredis6)
def _():
    for kind, resp in SPOKEN:
        if kind not in (NodeRedis5, NodeRedis6, Ioredis5, Ioredis6) or why_missing(kind):
            continue
        client, stage = pair(kind, resp)[0], own_stage("multi", kind, resp)
        first, second, pong = client.ask(["PUSH", stage, "a", "KEY", "k"],
                                         ["PUSH", stage, "b", "KEY", "k"], ["PING", "x"])
        equal(pong, "x")
        jobs = client.ask("TAKE", stage, "COUNT", "2", "BATCH", "2")
        equal([job[0] for job in jobs], [first, second])
        client.refused("", ["PUSH", stage, "c"], ["PUSH", stage], ["PUSH", stage, "d"])
        equal(client.ask("TAKE", stage), [])
        equal(client.ask("PING"), "PONG")


REDIS_PY = """
import redis
client = redis.Redis(port=PORT, decode_responses=True)
stage = "multi-redis-py"
pipe = client.pipeline()
for body in "ab":
    pipe.execute_command("PUSH", stage, body, "KEY", "k")
ids = pipe.execute()
jobs = client.execute_command("TAKE", stage, "COUNT", 2, "BATCH", 2)
assert [job[0] for job in jobs] == ids, (ids, jobs)
pipe.execute_command("PUSH", stage, "c")
pipe.execute_command("PUSH", stage)
try:
    pipe.execute()
    raise SystemExit("a refused command went unnoticed")
except redis.ResponseError as error:
    assert "wrong number of arguments" in str(error), error
assert client.execute_command("TAKE", stage) == []
pipe = client.pipeline(transaction=False)
pipe.execute_command("PING")
assert pipe.execute() == [True], "without MULTI"
"""


@own_case("U3: pipeline() of redis-py runs all of it, or none if one is refused")
def _():
    python = "/usr/bin/python3"  # the system's, which has the system's packages
    if subprocess.run([python, "-c", "import redis"], capture_output=True).returncode:
        print("# there is no redis-py: python3-redis")
        return
    done = subprocess.run([python, "-c", REDIS_PY.replace("PORT", str(server.port))],
                          capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)


@own_case("redis-cli: with a command as arguments it sends once, and -e makes errors exit codes", RedisCli)
def _():
    proxy = Proxy(server, lose=b"PUSH")
    cli = lambda *words, body=None: subprocess.run(
        ["redis-cli", "-p", str(proxy.port), "-e", *words], input=body, capture_output=True, text=True)
    done = cli("PUSH", "arguments", "b")
    check(done.returncode == 1 and "Server closed the connection" in done.stderr, done)
    equal(words_of(proxy.said), [["PUSH", "arguments", "b"]])
    done = cli("NONSENSE")
    check(done.returncode == 1 and "ERR unknown command" in done.stderr, done)
    equal(cli("PING").stdout, "PONG\n")
    job = cli("-X", "body", "PUSH", "arguments", "body", body="of two\nlines").stdout.strip()
    check("of two\nlines\n" in cli("JOB", job, "BODY").stdout)


@own_case("redis-cli: --pipe pushes all commands of a file", RedisCli)
def _():
    commands = "".join(f"PUSH piped {i} KEY {i % 7}\r\n" for i in range(5000))
    done = subprocess.run(["redis-cli", "-p", str(server.port), "--pipe"], input=commands,
                          capture_output=True, text=True)
    check(done.returncode == 0 and "errors: 0, replies: 5000" in done.stdout, done)
    equal(waiting("piped"), 5000)


class Terminal:
    """redis-cli as a person has it."""

    def __init__(self, *arguments):
        environment = dict(os.environ, TERM="dumb", HOME=top)
        parent, child = pty.openpty()
        self.process = subprocess.Popen(["redis-cli", *arguments], stdin=child, stdout=child,
                                        stderr=child, env=environment, start_new_session=True)
        os.close(child)
        self.terminal = parent

    def read_until(self, end):
        text = b""
        while not text.endswith(end):
            text += os.read(self.terminal, 4096)
        return re.sub(r"\x1b\[\d*m", "", text.decode())  # without colours

    def ask(self, line, prompt):
        os.write(self.terminal, line.encode() + b"\n")
        return self.read_until(prompt)

    def end(self):
        os.write(self.terminal, b"quit\n")
        code = self.process.wait(TIMEOUT_S)
        os.close(self.terminal)
        return code


@own_case("redis-cli: in a terminal it helps with our commands, and shows pushed cancellations", RedisCli)
def _():
    terminal = Terminal("-p", str(server.port), "-3")
    prompt = f"127.0.0.1:{server.port}> ".encode()
    terminal.read_until(prompt)
    said = terminal.ask("help push", prompt)
    check("PUSH stage body [KEY k]" in said and "pushes a job" in said, said)
    check('"' in terminal.ask("push typed hello key k", prompt))
    terminal.ask("client cancels on", prompt)
    said = terminal.ask("take typed", prompt)
    job = re.search(r'1\) "(\d+)"', said)[1]
    said = terminal.ask(f"cancel {job}", prompt) + terminal.ask("ping", prompt)
    check('1) "cancel"' in said and f'2) "{job}"' in said, said)
    check("(error) GONE" in terminal.ask("await 999999", prompt))
    equal(terminal.end(), 0)


@own_case("redis-benchmark: pings and pushes without a warning; a lost reply ends it", RedisCli)
def _():
    for resp in [], ["-3"]:
        for words in ["-t", "ping"], ["PUSH", "benchmark", "x"], ["-P", "16", "PUSH", "benchmark", "x"]:
            command = ["redis-benchmark", "-p", str(server.port), "-q", "-n", "400", "-c", "8", *resp, *words]
            done = subprocess.run(command, capture_output=True, text=True)
            check(done.returncode == 0 and not done.stderr.strip(), command, done)
            check("requests per second" in done.stdout, done)
        proxy = Proxy(server, lose=b"PUSH")
        done = subprocess.run(["redis-benchmark", "-p", str(proxy.port), "-q", "-n", "1", "-c", "1", *resp,
                               "PUSH", "benchmark", "x"], capture_output=True, text=True)
        check(done.returncode == 1 and "Server closed the connection" in done.stderr, done)
        equal(words_of(proxy.said), [["CONFIG", "GET", "save"], ["CONFIG", "GET", "appendonly"]] +
              ([["HELLO", "3"]] if resp else []) + [["PUSH", "benchmark", "x"]])
    equal(waiting("benchmark"), 1602)


# ---- Our own library, and the examples ---------------------------------------------------------


def example(name, *arguments):
    """The command line of an example, by where it is."""
    if name.endswith(".mjs"):
        return ["node", os.path.join(NODE, name), *arguments]
    if name.startswith("redigo/"):
        return [redigo_program(name.split("/")[1]), *arguments]
    folder = os.path.join(ROOT, "examples") if "/" in name else os.path.join(BUILD, "examples")
    interpreter = {".py": python_with_redis, ".rb": lambda: "ruby", ".php": lambda: "php"}.get(os.path.splitext(name)[1])
    return [*([interpreter()] if interpreter else []), os.path.join(folder, name), *arguments]


def address(name, port):
    """The arguments that give an example the address of the server."""
    if name.endswith((".mjs", ".py", ".rb")) or name.startswith("redigo/"):
        return f"redis://127.0.0.1:{port}"
    if name.endswith(".php"):
        return f"127.0.0.1:{port}"
    return f"millrace://127.0.0.1:{port}" if name.startswith("remote") else str(port)


def greeted(worker, producer, worker_port, producer_port):
    """Runs a producer beside a worker, which greets; returns the exit code of the worker after SIGTERM."""
    working = subprocess.Popen(example(worker, address(worker, worker_port)),
                               stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        done = subprocess.run(example(producer, address(producer, producer_port), "ann"),
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        check(done.returncode == 0 and done.stdout == "hello, ann\n" and not done.stderr, done)
        os.killpg(working.pid, signal.SIGTERM)
        return working.wait(TIMEOUT_S)
    finally:
        if working.poll() is None:
            os.killpg(working.pid, signal.SIGKILL)
            working.wait()


@own_case("our library: connects in RESP3, and a push whose reply was lost is one job")
def _():
    proxy = Proxy(server, lose=b"PUSH")
    equal(greeted("remote_worker", "remote_producer", server.port, proxy.port), 0)
    said = words_of(proxy.said)
    equal(said[:3], [["HELLO", "3"], ["CLIENT", "CANCELS", "ON"], ["INFO", "persistence"]])
    pushes = [words for words in said if words[0] == "PUSH"]
    equal(len(pushes), 2)
    equal(pushes[0], pushes[1])
    equal(pushes[0][:6], ["PUSH", "greetings", "ann", "KEY", "ann", "SOURCE"])


# Worker, producer, what the worker exits with, and what they need.
EXAMPLES = [("redis_worker.mjs", "redis_producer.mjs", 0, NodeRedis5),
            ("ioredis_worker.mjs", "ioredis_producer.mjs", 0, Ioredis5),
            ("hiredis_worker", "hiredis_producer", -signal.SIGTERM, Hiredis),
            ("shell/worker", "shell/producer", -signal.SIGTERM, RedisCli),
            ("remote_worker", "remote_producer", 0),
            ("remote_worker", "shell/producer", 0, RedisCli)]


def add_example(worker, producer, code, *kinds):
    @own_case(f"examples: {worker} and {producer}", *kinds)
    def _():
        own = Server("--store", "mem:")
        equal(greeted(worker, producer, own.port, own.port), code)
        own.stop()


for row in EXAMPLES:
    add_example(*row)


# As above. A lost reply makes one job: redis-rb sends the push again itself, with the others the producer does.
OTHERS = [("python/redis_worker.py", "python/redis_producer.py", 0, RedisPyAlone),
          ("ruby/worker.rb", "ruby/producer.rb", 0, RedisRb),
          ("php/worker.php", "php/producer.php", -signal.SIGTERM, PhpRedis),
          ("redigo/worker", "redigo/producer", 0, Redigo)]


def add_other(worker, producer, code, kind):
    @own_case(f"{kind.name}: its examples work, and a push whose reply was lost is one job", kind)
    def _():
        own = Server("--store", "mem:")
        proxy = Proxy(own, lose=b"PUSH")
        equal(greeted(worker, producer, own.port, proxy.port), code)
        said = words_of(proxy.said)
        equal(said[:len(kind.handshake)], kind.handshake)
        pushes = [words for words in said if words[0] == "PUSH"]
        equal((len(pushes), said[len(kind.handshake)]), (2, pushes[0]))
        equal(pushes[0], pushes[1])
        own.stop()


for row in OTHERS:
    add_other(*row)


@own_case("U15: docs/clients.md's program for Node ends, every time", NodeRedis5)
def _():
    own = Server("--store", "mem:")
    text = read(os.path.join(ROOT, "docs/clients.md")).decode()
    program = re.search(r"```js\n(.*?)```", text, re.S)[1].replace(":7411", f":{own.port}")
    for _ in range(2):
        done = subprocess.run(["node", "--input-type=module"], input=program, cwd=NODE,
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        check(done.returncode == 0 and done.stdout == "sent to: ann\n" and not done.stderr, done)
    own.stop()


@own_case("docs/clients.md has a row for each client, with the behaviour seen here")
def _():
    rows = {cells[1].strip(): cells for cells in (
        line.split("|") for line in read(os.path.join(ROOT, "docs/clients.md")).decode().splitlines())
        if len(cells) == 8}
    for *_, kind in OTHERS:
        check([n for n in rows if n.startswith(kind.name)], f"no row of {kind.name}")
    for kind in dict.fromkeys(kind for kind, _ in SPOKEN):
        name = next((n for n in rows if n.startswith(kind.name)), None)
        check(name, f"no row of {kind.name}")
        _, _, hello, resp, again, error, *_ = rows[name]
        spoken = [str(r) for k, r in SPOKEN if k is kind]
        equal(resp.strip(), ", ".join(spoken), name)
        equal(again.strip(), "yes" if kind.again else "no", name)
        said = {words[0].upper() for r in spoken for words in kind.handshake(int(r))}
        equal(set(re.findall(r"`([A-Z]+)", hello)), said, name)


# ---- Running -----------------------------------------------------------------------------------


def planned():
    for kind, resp in SPOKEN:
        for name, function in cases:
            yield (f"{kind.name}, RESP{resp}: {name}", why_missing(kind),
                   lambda f=function, k=kind, r=resp: f(k, r))
    for name, function, kinds in own_cases:
        reasons = [why_missing(kind) for kind in kinds]
        yield name, reasons[0] if reasons and all(reasons) else None, function


def run(number, name, function):
    try:
        function()
        print(f"ok {number} - {name}", flush=True)
        return 0
    except Exception as error:  # whatever it is, the other cases run
        pairs.clear()  # they may be out of step
        print(f"not ok {number} - {name}")
        for line in f"{type(error).__name__}: {error}".splitlines():
            print(f"# {line}", flush=True)
        return 1
    finally:
        end_clients(*(client for both in pairs.values() for client in both))


def main():
    plan, failed = list(planned()), 0
    print(f"1..{len(plan)}")
    for number, (name, missing, function) in enumerate(plan, 1):
        if missing:
            print(f"ok {number} - {name} # SKIP {missing}", flush=True)
        else:
            failed += run(number, name, function)
    end_clients()
    server.stop()
    sys.exit(1 if failed else 0)


server = Server("--store", "mem:")
main()
