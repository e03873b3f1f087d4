"""Nodes of a cluster whose store is in a PostgreSQL server of the test's own, and what tests ask them."""
import binascii
import os
import subprocess
import sys

from postgres import why_no_postgres
from running import wait_until
from served import Client, Refused, Server, Wire
from tap import MILLRACE, TIMEOUT_S, check, equal, top

os.chdir(top)
for name in "MILLRACE_TOKEN", "MILLRACE_TOKEN_FILE", "MILLRACE_URL":
    os.environ.pop(name, None)
os.environ.update(NO_COLOR="1")


def millrace(*words):
    return subprocess.run([MILLRACE, *words], capture_output=True, text=True, timeout=TIMEOUT_S)


class Cluster:
    """A store in a database of its own, and its nodes. Takeovers after a loss are quick."""
    count = 0

    def __init__(self, postgres, nodes=2, takeover="3s", more=(), http="off", others=(), shards=1):
        """`more`: further options of the nodes; `http`: where the first one has its page; `others`: servers that may
        become the database's primary."""
        Cluster.count += 1
        self.postgres, self.more, self.http, self.shards = postgres, more, http, shards
        self.database = f"jobs{Cluster.count}"
        postgres.sql(f"CREATE DATABASE {self.database}", database="postgres")
        self.url, self.takeover = postgres.url(self.database, others=others), takeover
        made = millrace("store", "init", self.url, "--shards", str(shards))
        equal((made.returncode, made.stdout), (0, f"made cluster main with {shards} shard{'s' * (shards > 1)}\n"), made.stderr)
        self.nodes = [self.add(first=i == 0) for i in range(nodes)]

    def add(self, first=False):
        http = self.http if first else "off"
        node = Server("--store", self.url, "--takeover", self.takeover, *self.more, ready=False, http=http)
        node.http = http
        node.port = int(node.command[node.command.index("--listen") + 1].split(":")[1])
        node.wait_notice("ready" if first or self.shards > 1 else "owns the store")
        return node

    def sql(self, commands):
        return self.postgres.sql(commands, database=self.database)

    def owners(self):
        """The node of each shard, as the database has it; None: a node that is not one of these, or none."""
        rows = self.sql("SELECT owner FROM millrace_main.shard ORDER BY shard")
        nodes = {node.address if hasattr(node, "address") else f"127.0.0.1:{node.port}": node for node in self.nodes}
        return [nodes.get(row.split(" ")[0]) for row in rows]

    def wait_spread(self, *counts):
        """Waits until the nodes own so many shards, the first node as the first number says."""
        wait_until(lambda: [self.owners().count(node) for node in self.nodes] == list(counts), f"nodes own {counts} shards")

    def end(self):
        for node in self.nodes:  # all at once: none waits for another to take its shards
            node.process.terminate()
        for node in self.nodes:
            node.end()


def shard_of(stage, shards):
    """As src/core/route.h."""
    return binascii.crc_hqx(stage.encode(), 0) % 16384 * shards // 16384


def stages_of(shard, shards, count=1, prefix="s"):
    """Names of stages of this shard."""
    found, number = [], 0
    while len(found) < count:
        name, number = f"{prefix}{number}", number + 1
        if shard_of(name, shards) == shard:
            found.append(name)
    return found


def ask(node, *words):
    """The reply; None: the connection was closed, or the node does not serve now."""
    try:
        wire = Wire(node.port)
        reply = wire.ask(*words)
        wire.close()
    except OSError:
        return None
    refused = not reply or (isinstance(reply, bytes) and reply.startswith((b"-LOADING", b"-STOPPED")))
    return None if refused else reply


def answer(node, *words):
    """The reply once the node serves."""
    found = []
    wait_until(lambda: found.append(ask(node, *words)) or found[-1] is not None, f"{words} is answered")
    return found[-1]


def bodies(node, stage, count):
    """Takes and ends as many jobs; their bodies. A shard may change its owner meanwhile: what was not ended then is
    taken again."""
    taken = {}  # by id

    def take_all():
        try:
            client = Client(node)
            while len(taken) < count:
                for job in client.ask("TAKE", stage, "COUNT", min(count, 1000), "WAIT", 1000 * TIMEOUT_S):
                    taken[job[0]] = job[4]
                    client.ask("DONE", job[0], job[1])
            client.close()
        except (OSError, AssertionError, Refused):  # closed, or refused for the moment
            return False
        return True

    wait_until(take_all, f"{count} jobs of {stage} are taken")
    return list(taken.values())


def waiting(node, stage):
    """The number of its jobs that wait."""
    stages = answer(node, "STAGES", "NAME", stage)
    if not isinstance(stages, list) or not stages:
        return 0  # there is no such stage yet
    return int(stages[0][stages[0].index(b"waiting") + 1][1:])


def skip_without_postgres():
    """Ends the test if this build or this machine has no PostgreSQL."""
    why = why_no_postgres()
    if "has no PostgreSQL" in millrace("store", "init", "postgres://").stderr:
        why = "this build has no PostgreSQL"
    if why:
        print(f"1..0 # SKIP {why}")
        sys.exit(0)
