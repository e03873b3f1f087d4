#!/usr/bin/env python3
"""clients_test.py ROOT BUILD: clients of Redis that others wrote, and our own library, against a real
server: what docs/clients.md says of each of them, in RESP2 and RESP3, and every example for them.
Speaks TAP. Packages of Node come from examples/node/package-lock.json, into BUILD/clients; what
cannot be had here is skipped, with the reason."""
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from serving import Proxy, Server

ROOT, BUILD = map(os.path.realpath, sys.argv[1:3])
NODE = os.path.join(BUILD, "clients")
PATIENCE = 120  # seconds until something that hangs is a failure


def check(condition, *about):
    if not condition:
        raise AssertionError("\n".join(str(a) for a in about))


def equal(a, b, *about):
    check(a == b, f"{a!r:.1000} is not {b!r:.1000}", *about)


class Refused(Exception):
    """An answer that the client made an error of; `kind` is its name for that."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


# ---- Clients -----------------------------------------------------------------------------------


class Client:
    """A client in a process of its own, which is told a command a line and answers with JSON."""
    again = False  # it sends a command again whose answer was lost
    needs_ready = False  # it connects again when it likes, and tells
    map_is_flat = True

    def __init__(self, *command, cwd=None, errors=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=errors, cwd=cwd, text=True)
        self.lines = []  # heard, and not asked for yet
        running.append(self)

    def spell(self, words):
        return json.dumps([str(w) for w in words])

    def say(self, *words):
        self.process.stdin.write(self.spell(words) + "\n")
        self.process.stdin.flush()

    def hear_line(self):
        line = self.process.stdout.readline()
        check(line, "the client has ended")
        return line

    def hear_next(self, is_event):
        """The next event, or the next that is none: they come in any order."""
        while True:
            for line in self.lines:
                if ("event" in line) == is_event:
                    self.lines.remove(line)
                    return line
            self.lines.append(json.loads(self.hear_line()))

    def hear(self):
        line = self.hear_next(False)
        if "error" in line:
            raise Refused(line["class"], line["error"])
        return line["reply"]

    def hear_event(self, name):
        equal(self.hear_next(True), {"event": name})

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def refused(self, text, *words):
        """Asks, which must be answered with an error that begins so; its kind."""
        try:
            reply = self.ask(*words)
        except Refused as refused:
            check(refused.text.startswith(text), refused)
            return refused.kind
        raise AssertionError(f"{words} was answered with {reply}")

    def end(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class RedisCli(Client):
    """Reads commands from stdin."""
    name, package, error = "redis-cli", None, "error"

    def __init__(self, port, resp):
        super().__init__("redis-cli", "-p", str(port), f"-{resp}", "--json",
                         errors=subprocess.STDOUT)
        self.map_is_flat = resp == 2

    def spell(self, words):
        return " ".join(json.dumps(str(w), ensure_ascii=False) for w in words)

    def hear(self):
        line = self.hear_line()
        if line.startswith("error:"):
            raise Refused("error", json.loads(line[6:]))
        if line.startswith("Error: "):
            raise Refused("context", line[7:])
        return json.loads(line)

    @staticmethod
    def handshake(resp):
        return ([["HELLO", "3"]] if resp == 3 else []) + [["COMMAND", "DOCS"]]


class Hiredis(Client):
    name, package, error = "hiredis", None, "reply"

    def __init__(self, port, resp, timeout_ms=0):
        super().__init__(os.path.join(BUILD, "test/clients_hiredis"), str(port), str(timeout_ms))

    @staticmethod
    def handshake(resp):
        return []


class OfNode(Client):
    needs_ready = True

    def __init__(self, port, resp, **options):
        super().__init__("node", "clients_node.mjs", self.package, str(resp), str(port),
                         json.dumps(options), cwd=NODE)
        self.hear_event("ready")


class NodeRedis(OfNode):
    error = "SimpleError"

    def __init__(self, port, resp, **options):
        super().__init__(port, resp, **options)
        self.map_is_flat = resp == 2

    @classmethod
    def handshake(cls, resp):
        return cls.hello[resp] + [["CLIENT", "SETINFO", "LIB-VER", cls.version],
                                  ["CLIENT", "SETINFO", "LIB-NAME", "node-redis"]]


class NodeRedis5(NodeRedis):
    name, package, version = "node-redis 5", "redis", "5.12.1"
    hello = {2: [["HELLO", "2"]], 3: [["HELLO", "3"]]}


class NodeRedis6(NodeRedis):
    name, package, version = "node-redis 6", "redis-6", "6.3.1"
    hello = {2: [], 3: [["HELLO", "3"]]}


class Ioredis5(OfNode):
    name, package, error, again = "ioredis 5", "ioredis", "ReplyError", True

    @staticmethod
    def handshake(resp):
        return [["client", "SETINFO", "LIB-NAME", "ioredis"],
                ["client", "SETINFO", "LIB-VER", "5.11.1"], ["info"]]


class Ioredis6(OfNode):
    name, package, error, again = "ioredis 6", "ioredis-6", "SimpleError", True

    @staticmethod
    def handshake(resp):
        return ([["hello", "3"]] if resp == 3 else []) + [
            ["client", "SETINFO", "LIB-VER", "6.0.0"],
            ["client", "SETINFO", "LIB-NAME", "ioredis"], ["info"]]


# Which client speaks what.
SPOKEN = [(RedisCli, 2), (RedisCli, 3), (Hiredis, 2), (NodeRedis5, 2), (NodeRedis5, 3),
          (NodeRedis6, 2), (NodeRedis6, 3), (Ioredis5, 2), (Ioredis6, 2), (Ioredis6, 3)]


# ---- What is here ------------------------------------------------------------------------------


def read(path):
    with open(path, "rb") as file:
        return file.read()


def install_node():
    """Has the packages in BUILD/clients; why not, or None."""
    for command in "node", "npm":
        if not shutil.which(command):
            return f"there is no {command}"
    source = os.path.join(ROOT, "examples/node")
    lock, mark = read(os.path.join(source, "package-lock.json")), os.path.join(NODE, "installed")
    if not os.path.exists(mark) or read(mark) != lock:
        shutil.rmtree(NODE, ignore_errors=True)
        shutil.copytree(source, NODE, ignore=shutil.ignore_patterns("node_modules"))
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund",
                               "--prefer-offline", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"],
                              cwd=NODE, capture_output=True, text=True)
        if done.returncode != 0:
            said = re.findall(r"npm (?:ERR!|error) (.*)", done.stderr)
            return f"npm could not install its packages: {'; '.join(said[:3])}"
        with open(mark, "wb") as file:
            file.write(lock)
    for name in os.listdir(source):
        if name.endswith(".mjs"):
            shutil.copy(os.path.join(source, name), NODE)
    shutil.copy(os.path.join(ROOT, "test/clients_node.mjs"), NODE)
    return None


def node_major():
    said = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return int(re.match(r"v(\d+)", said)[1])


def why_missing(client):
    """Why this client cannot be tested here, or None."""
    if client is RedisCli:
        return None if shutil.which("redis-cli") else "there is no redis-cli"
    if client is Hiredis:
        built = os.path.exists(os.path.join(BUILD, "test/clients_hiredis"))
        return None if built else "hiredis was not there when this was built"
    if node_missing:
        return node_missing
    if client in (NodeRedis6, Ioredis6) and node_major() < 20:
        return f"{client.name} asks for Node 20"
    return None


# ---- What each of them does --------------------------------------------------------------------

cases, running, pairs = [], [], {}
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


def end_clients(*but):
    for client in [c for c in running if c not in but]:
        client.end()
        running.remove(client)


def own_stage(word, kind, resp):
    """A stage that nobody else uses."""
    return f"{word}-{kind.name.replace(' ', '-')}-{resp}"


def fields(client, reply):
    """A map, however the client gives it."""
    return dict(zip(reply[::2], reply[1::2])) if client.map_is_flat else reply


@case("says hello, and nothing of that is refused")
def _(kind, resp):
    proxy = Proxy(server)
    client = kind(proxy.port, resp)
    equal(client.ask("PING"), "PONG")
    equal(words_of(proxy.said), kind.handshake(resp) + [["PING"]])
    check(not [h for h in proxy.heard if isinstance(h, bytes) and h.startswith(b"-")], proxy.heard)


@case("calls and is answered; beats; bodies stay as they are")
def _(kind, resp):
    caller, worker = pair(kind, resp)
    stage = own_stage("calls", kind, resp)
    worker.say("TAKE", stage, "WAIT", -1)
    caller.say("CALL", stage, "né\r\n\"x\"", "KEY", "k")
    (job,) = worker.hear()
    equal(job[2:8], [stage, "k", "né\r\n\"x\"", 1, -1, None])
    equal(worker.ask("BEAT", job[0], job[1]), [])
    equal(worker.ask("DONE", job[0], job[1], "RESULT", "fine", "STATE", "s"), "OK")
    equal(caller.hear(), "fine")
    equal(caller.ask("AWAIT", job[0]), "fine")
    equal(fields(caller, caller.ask("JOB", job[0]))["status"], "done")


@case("pushes once, fails, and hears of it as its own kind of error")
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


@case("is told of a cancellation by BEAT, and is not confused by a pushed one")
def _(kind, resp):
    client, other = pair(kind, resp)
    if resp == 3:
        equal(client.ask("CLIENT", "CANCELS", "ON"), "OK")
    else:
        client.refused("ERR cancellations are pushed over RESP3 only", "CLIENT", "CANCELS", "ON")
    client.ask("PUSH", "cancels", "b")
    ((job, token, *_),) = client.ask("TAKE", "cancels")
    equal(other.ask("CANCEL", job), 1)
    equal(client.ask("BEAT", job, token), [job])
    equal(client.refused("CANCELLED ", "DONE", job, token), kind.error)
    equal(client.ask("PING"), "PONG")


@case("comes back after a restart of the server")
def _(kind, resp):
    store = tempfile.mkdtemp(dir=top)
    own = Server(MILLRACE, "--store", f"file:{store}")
    client = kind(own.port, resp)
    first = client.ask("PUSH", "restarts", "before")
    own.stop()
    if client.needs_ready:
        client.hear_event("gone")
    own.start(own.port)
    if client.needs_ready:
        client.hear_event("ready")
    elif not client.again:
        equal(client.refused("Server closed the connection", "PING"), "context")
    ((job, token, *_),) = client.ask("TAKE", "restarts")
    equal(job, first)
    equal(client.ask("DONE", job, token), "OK")
    equal(own.stop(), 0)


def lose(client, proxy, command, *words):
    """Asks, and has the answer lost; what the client then gives, and how often it has sent it."""
    before, proxy.lose, reply = len(proxy.said), command.encode(), None
    client.say(command, *words)
    try:
        reply = client.hear()
    except Refused as refused:
        check(refused.kind in ("SocketClosedUnexpectedlyError", "context"), refused)
    if client.needs_ready:
        client.hear_event("gone")
        client.hear_event("ready")
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


def own_case(name, *kinds):
    def add(function):
        own_cases.append((name, function, kinds))
        return function
    return add


@own_case("hiredis: a timeout shorter than the wait ends the connection", Hiredis)
def _():
    client = Hiredis(server.port, 2, timeout_ms=300)
    equal(client.refused("Resource temporarily unavailable", "TAKE", "quiet", "WAIT", -1), "context")
    equal(client.ask("PING"), "PONG")


@own_case("node-redis: a command timeout does not end a TAKE that was sent; a socket timeout does",
          NodeRedis5, NodeRedis6)
def _():
    for kind in NodeRedis5, NodeRedis6:
        if why_missing(kind):
            continue
        client = kind(server.port, 3, commandOptions={"timeout": 500})
        equal(client.ask("TAKE", "quiet", "WAIT", 700), [])
        client = kind(server.port, 3, socket={"socketTimeout": 500, "port": server.port})
        equal(client.refused("Socket timeout", "TAKE", "quiet", "WAIT", -1), "SocketTimeoutError")


@own_case("ioredis: a command timeout ends a TAKE, whose answer then goes nowhere", Ioredis5, Ioredis6)
def _():
    for kind in Ioredis5, Ioredis6:
        if why_missing(kind):
            continue
        client, other = kind(server.port, 2, commandTimeout=300), kind(server.port, 2)
        stage = own_stage("quiet", kind, 2)
        equal(client.refused("Command timed out", "TAKE", stage, "WAIT", -1), "Error")
        job = other.ask("PUSH", stage, "b")
        equal(fields(other, other.ask("JOB", job))["status"], "running")


@own_case("redis-cli: with a command as arguments it sends once, and -e makes errors exit codes", RedisCli)
def _():
    proxy = Proxy(server, lose=b"PUSH")
    cli = lambda *words: subprocess.run(["redis-cli", "-p", str(proxy.port), "-e", *words],
                                        capture_output=True, text=True)
    done = cli("PUSH", "arguments", "b")
    check(done.returncode == 1 and "Server closed the connection" in done.stderr, done)
    equal(words_of(proxy.said), [["PUSH", "arguments", "b"]])
    done = cli("NONSENSE")
    check(done.returncode == 1 and "ERR unknown command" in done.stderr, done)
    equal(cli("PING").stdout, "PONG\n")


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
        code = self.process.wait(PATIENCE)
        os.close(self.terminal)
        return code


@own_case("redis-cli: in a terminal it helps with our commands, and shows pushed cancellations", RedisCli)
def _():
    terminal = Terminal("-p", str(server.port), "-3")
    prompt = f"127.0.0.1:{server.port}> ".encode()
    terminal.read_until(prompt)
    said = terminal.ask("help push", prompt)
    check("PUSH stage body [KEY k]" in said and "hands in a job" in said, said)
    check('"' in terminal.ask("push typed hello key k", prompt))
    terminal.ask("client cancels on", prompt)
    said = terminal.ask("take typed", prompt)
    job = re.search(r'1\) "(\d+)"', said)[1]
    said = terminal.ask(f"cancel {job}", prompt) + terminal.ask("ping", prompt)
    check("cancel" in said.lower() and f'"{job}"' in said, said)
    check("(error) GONE" in terminal.ask("await 999999", prompt))
    equal(terminal.end(), 0)


@own_case("redis-benchmark: pings and pushes, in both protocols, without a warning", RedisCli)
def _():
    for resp in [], ["-3"]:
        for words in ["-t", "ping"], ["PUSH", "benchmark", "x"], ["-P", "16", "PUSH", "benchmark", "x"]:
            command = ["redis-benchmark", "-p", str(server.port), "-q", "-n", "400", "-c", "8", *resp, *words]
            done = subprocess.run(command, capture_output=True, text=True)
            check(done.returncode == 0 and not done.stderr.strip(), command, done)
            check("requests per second" in done.stdout, done)
    done = subprocess.run(["millrace", "stages", "--at", f"millrace://127.0.0.1:{server.port}", "--json"],
                          executable=MILLRACE, capture_output=True, text=True)
    stage = next(s for s in json.loads(done.stdout) if s["name"] == "benchmark")
    equal(stage["waiting"], 1600)


# ---- Our own library, and the examples ---------------------------------------------------------


def example(name, *arguments):
    """The command line of an example, by where it is."""
    if name.endswith(".mjs"):
        return ["node", os.path.join(NODE, name), *arguments]
    folder = os.path.join(ROOT, "examples") if "/" in name else os.path.join(BUILD, "examples")
    return [os.path.join(folder, name), *arguments]


def greeted(worker, producer, where, worker_where=None):
    """Runs a producer beside a worker, which greets; what the worker exits with when it is told to end."""
    working = subprocess.Popen(example(worker, worker_where or where), stdout=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        done = subprocess.run(example(producer, where, "ann"), capture_output=True, text=True,
                              timeout=PATIENCE)
        check(done.returncode == 0 and done.stdout == "hello, ann\n" and not done.stderr, done)
        os.killpg(working.pid, signal.SIGTERM)
        return working.wait(PATIENCE)
    finally:
        if working.poll() is None:
            os.killpg(working.pid, signal.SIGKILL)
            working.wait()


@own_case("our library: says hello in RESP3, and a push whose answer was lost is one job")
def _():
    proxy, direct = Proxy(server, lose=b"PUSH"), f"millrace://127.0.0.1:{server.port}"
    equal(greeted("remote_worker", "remote_producer", f"millrace://127.0.0.1:{proxy.port}", direct), 0)
    said = words_of(proxy.said)
    equal(said[:3], [["HELLO", "3"], ["CLIENT", "CANCELS", "ON"], ["INFO", "persistence"]])
    pushes = [words for words in said if words[0] == "PUSH"]
    equal(len(pushes), 2)
    equal(pushes[0], pushes[1])
    equal(pushes[0][:6], ["PUSH", "greetings", "ann", "KEY", "ann", "SOURCE"])


EXAMPLES = [("redis_worker.mjs", "redis_producer.mjs", "redis://127.0.0.1:{}", 0, NodeRedis5),
            ("ioredis_worker.mjs", "ioredis_producer.mjs", "redis://127.0.0.1:{}", 0, Ioredis5),
            ("hiredis_worker", "hiredis_producer", "{}", -signal.SIGTERM, Hiredis),
            ("shell/worker", "shell/producer", "{}", -signal.SIGTERM, RedisCli),
            ("remote_worker", "remote_producer", "millrace://127.0.0.1:{}", 0, None)]


def add_example(worker, producer, where, code, *kinds):
    @own_case(f"examples: {worker} and {producer}", *kinds)
    def _():
        own = Server(MILLRACE, "--store", "mem:")
        equal(greeted(worker, producer, where.format(own.port)), code)
        equal(own.stop(), 0)


for row in EXAMPLES:
    add_example(*row)


# ---- Running -----------------------------------------------------------------------------------


def planned():
    for kind, resp in SPOKEN:
        for name, function in cases:
            yield (f"{kind.name}, RESP{resp}: {name}", why_missing(kind),
                   lambda f=function, k=kind, r=resp: f(k, r))
    for name, function, kinds in own_cases:
        reasons = [why_missing(kind) for kind in kinds if kind]
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
    if server.stop() != 0:
        failed += 1
        print("# the server did not end in peace")
    shutil.rmtree(top)
    sys.exit(1 if failed else 0)


MILLRACE = os.path.join(BUILD, "millrace")
top = tempfile.mkdtemp(prefix="millrace-clients-")
node_missing = install_node()
server = Server(MILLRACE, "--store", "mem:")
main()
