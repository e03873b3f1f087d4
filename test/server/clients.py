"""The clients that clients_test.py tries, each in a process of its own, and what is needed to have them
here. Packages of Node come from examples/node/package-lock.json, into BUILD/clients."""
import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from tap import BUILD

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
NODE = os.path.join(BUILD, "clients")
running = []  # clients


class Refused(Exception):
    """An answer that the client made an error of; `kind` is its name for that."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class Client:
    """A client in a separate process, which reads a command per line and answers with JSON."""
    again = False  # it sends a command again whose answer was lost
    needs_ready = False  # it reconnects by itself, and reports that
    map_is_flat = True

    def __init__(self, *command, cwd=None, errors=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=errors, cwd=cwd, text=True)
        self.lines = []  # received and not yet read by the test
        running.append(self)

    def spell(self, words):
        return json.dumps([w if isinstance(w, list) else str(w) for w in words])

    def send(self, *words):
        self.process.stdin.write(self.spell(words) + "\n")
        self.process.stdin.flush()

    def read_line(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the client has ended")
        return line

    def read_next(self, is_event):
        """The next event, or the next that is none: they come in any order."""
        while True:
            for line in self.lines:
                if ("event" in line) == is_event:
                    self.lines.remove(line)
                    return line
            self.lines.append(json.loads(self.read_line()))

    def receive(self):
        line = self.read_next(False)
        if "error" in line:
            raise Refused(line["class"], line["error"])
        return line["reply"]

    def read_event(self, name):
        received = self.read_next(True)["event"]
        if received != name:
            raise AssertionError(f"it is {received}, not {name}")

    def ask(self, *words):
        self.send(*words)
        return self.receive()

    def refused(self, text, *words):
        """Asks, which must be answered with an error that begins so; its kind."""
        try:
            reply = self.ask(*words)
        except Refused as refused:
            if refused.text.startswith(text):
                return refused.kind
            raise
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

    def receive(self):
        line = self.read_line()
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
        self.read_event("ready")


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


@functools.cache
def python_with_redis():
    """An interpreter that has redis-py with clusters; None: there is none."""
    for python in sys.executable, "/usr/bin/python3":
        tried = subprocess.run([python, "-c", "import redis.cluster"], capture_output=True) if os.path.exists(python) else None
        if tried and tried.returncode == 0:
            return python
    return None


class RedisPy(Client):
    """It knows clusters only."""
    name, package = "redis-py", None

    def __init__(self, port, resp, cluster=True):
        super().__init__(python_with_redis(), os.path.join(ROOT, "test/server/clients_python.py"), str(port))


# Clients that only the examples use: what they need, and what they send at connect.


class RedisPyAlone:
    name, handshake, needs = "redis-py", [], None


class RedisRb:
    name, handshake, needs = "redis-rb", [], ["ruby", "-e", "require 'redis'"]


class PhpRedis:
    name, handshake, needs = "phpredis", [], ["php", "-r", "new Redis();"]


class Redigo:
    name, handshake, needs = "redigo", [], ["go", "version"]


REDIGO = "/usr/share/gocode"  # where Debian has it


@functools.cache
def redigo_program(name):
    """Builds a program of examples/redigo without a network; where it is."""
    out = os.path.join(BUILD, f"redigo_{name}")
    subprocess.run(["go", "build", "-o", out, "."], cwd=os.path.join(ROOT, "examples/redigo", name), check=True,
                   env={"HOME": BUILD, **os.environ, "GO111MODULE": "off", "GOPATH": REDIGO})
    return out


def end_clients(*but):
    """Ends all that run, but those."""
    for client in [c for c in running if c not in but]:
        client.end()
        running.remove(client)


# Which client uses which protocol.
SPOKEN = [(RedisCli, 2), (RedisCli, 3), (Hiredis, 2), (NodeRedis5, 2), (NodeRedis5, 3),
          (NodeRedis6, 2), (NodeRedis6, 3), (Ioredis5, 2), (Ioredis6, 2), (Ioredis6, 3)]


# ---- What is here ------------------------------------------------------------------------------


def read(path):
    with open(path, "rb") as file:
        return file.read()


def npm_ci():
    """Installs what the lock file in NODE lists; the error, or None."""
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
               "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    try:
        done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "it took longer than two minutes"
    said = re.findall(r"npm (?:ERR!|error) (.*)", done.stderr)
    return "; ".join(said[:3]) or "it failed" if done.returncode != 0 else None


@functools.cache
def why_no_node():
    """Has the packages in BUILD/clients; why not, or None. Several tests that run at once need them: the first
    installs them, the others wait for it."""
    for command in "node", "npm":
        if not shutil.which(command):
            return f"there is no {command}"
    with open(NODE + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return install_node()


def install_node():
    source = os.path.join(ROOT, "examples/node")
    lock, mark = read(os.path.join(source, "package-lock.json")), os.path.join(NODE, "installed")
    if not os.path.exists(mark) or read(mark) != lock:
        shutil.rmtree(NODE, ignore_errors=True)
        shutil.copytree(source, NODE, ignore=shutil.ignore_patterns("node_modules"))
        failure = npm_ci()
        if failure:
            return f"npm could not install its packages: {failure}"
        with open(mark, "wb") as file:
            file.write(lock)
    scripts = [os.path.join(source, name) for name in os.listdir(source) if name.endswith(".mjs")]
    for script in scripts + [os.path.join(ROOT, "test/server/clients_node.mjs")]:
        copy_changed(script, os.path.join(NODE, os.path.basename(script)))
    return None


def copy_changed(source, target):
    """Copies unless that is there: another test may be reading it."""
    if not os.path.exists(target) or read(source) != read(target):
        shutil.copy(source, target)


@functools.cache
def node_major():
    said = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return int(re.match(r"v(\d+)", said)[1])


def why_missing(client):
    """Why this client cannot be tested here, or None."""
    if client is RedisCli:
        return None if shutil.which("redis-cli") else "there is no redis-cli"
    if client is RedisPy:
        return None if python_with_redis() else "there is no redis-py with clusters"
    if client is RedisPyAlone:
        return None if python_with_redis() else "there is no redis-py"
    if client is Redigo and not os.path.exists(os.path.join(REDIGO, "src/github.com/gomodule/redigo")):
        return "there is no redigo"
    if client in (RedisRb, PhpRedis, Redigo):
        there = shutil.which(client.needs[0]) and subprocess.run(client.needs, capture_output=True).returncode == 0
        return None if there else f"there is no {client.needs[0]} with {client.name}"
    if client is Hiredis:
        built = os.path.exists(os.path.join(BUILD, "test/clients_hiredis"))
        return None if built else "hiredis was not there when this was built"
    if why_no_node():
        return why_no_node()
    if client in (NodeRedis6, Ioredis6) and node_major() < 20:
        return f"{client.name} asks for Node 20"
    return None
