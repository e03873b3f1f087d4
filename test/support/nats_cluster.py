"""Three NATS servers that replicate to each other, and clusters of nodes on one server or on three."""
import json

from cluster import Cluster, ask, millrace
from cut import Cut
from nats import Nats
from running import wait_until
from served import Server, lasting_address
from tap import check, equal


class NatsServers:
    """Three servers that replicate to each other. Between any two there is a proxy for each way of connecting."""
    COUNT = 3

    def __init__(self):
        routes = [lasting_address() for _ in range(self.COUNT)]
        self.links = {(i, j): Cut(int(routes[j].split(":")[1]), one_way_s=0.2) for i in range(self.COUNT)
                      for j in range(self.COUNT) if i != j}
        self.servers = []
        for i, route in enumerate(routes):
            others = ", ".join(f"'nats://{link.address}'" for (a, _), link in self.links.items() if a == i)
            # Servers tell each other where the others are, and clients where servers are: neither is of use behind proxies.
            self.servers.append(Nats(settings=f"server_name: n{i}, ping_interval: 1s, cluster {{ name: three, "
                                     f"listen: '{route}', advertise: '127.0.0.1:1', no_advertise: true, routes: [{others}] }}"))
        wait_until(self.can_replicate, "the servers know each other")

    def can_replicate(self):
        """Whether streams with three replicas can be made now, at every server."""
        wanted = json.dumps({"name": "probe", "subjects": ["probe"], "num_replicas": self.COUNT}).encode()
        answers = [self.servers[0].request("$JS.API.STREAM.CREATE.probe", wanted)]
        answers += [server.request("$JS.API.STREAM.INFO.probe") for server in self.servers]
        if not all(answers) or any("error" in each for each in answers):
            return False
        self.servers[0].request("$JS.API.STREAM.DELETE.probe")
        return True

    def __iter__(self):
        return iter(self.servers)

    def __getitem__(self, i):
        return self.servers[i]

    def isolate(self, i, *ways):
        """Cuts a server off from the others: what it sends ("up"), what it receives ("down"), or both."""
        opposite = {"up": "down", "down": "up"}
        for (a, b), link in self.links.items():
            if i in (a, b):
                link.cut(*(way if a == i else opposite[way] for way in ways or opposite))

    def heal(self):
        """Connections that were cut are reset: nats-server 2.9 does not notice that a route is dead while it sends
        something itself, and takes the answers to old vote requests, which then arrive, for votes of its present term;
        so two servers may lead."""
        for link in self.links.values():
            if not all(way.is_set() for way in link.ways.values()):
                link.reset()
            link.heal()

    def leader(self, stream):
        """The number of the server that leads a stream; None: none does now, or another has not caught up with it."""
        for server in self.servers:
            try:
                found = server.request(f"$JS.API.STREAM.INFO.{stream}")
            except OSError:
                continue
            group = (found or {}).get("cluster", {})
            if group.get("leader"):
                is_current = all(replica["current"] for replica in group["replicas"])
                return int(group["leader"][1:]) if is_current else None
        return None

    def await_leader(self, stream):
        """Two servers that have not caught up elect none of them, as long as the third is away."""
        found = []
        wait_until(lambda: found.append(self.leader(stream)) or found[-1] is not None, f"{stream} has a leader")
        return found[-1]

    def url(self):
        return "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)


class NatsCluster(Cluster):
    """A cluster of its own name in one server or in three, and its nodes."""

    def __init__(self, nats, nodes=2, takeover="3s", shards=1, more=()):
        Cluster.count += 1
        self.nats, self.name, self.http, self.url, self.takeover = nats, f"jobs{Cluster.count}", "off", nats.url(), takeover
        self.more, self.shards = ("--cluster", self.name, *more), shards
        self.store = (self.url, "--cluster", self.name)
        self.stream = f"millrace-{self.name}-0"  # of shard 0
        if isinstance(nats, NatsServers):
            wait_until(nats.can_replicate, "the servers have a leader")
        made = millrace("store", "init", *self.store, "--shards", str(shards))
        equal(made.returncode, 0, made.stderr)
        check(f"made cluster {self.name} with {shards} shard" in made.stdout, made.stdout)
        self.nodes = [self.add(first=i == 0) for i in range(nodes)]

    def ports(self):
        return [node.port for node in self.nodes]

    def owner(self):
        """The node that owns shard 0, as the nodes say that answer; None: none does."""
        for node in self.nodes:
            reply = node.process.poll() is None and ask(node, "INFO", "CLUSTER")
            if not reply:
                continue
            address = dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)["owner"]
            return next((one for one in self.nodes if address.endswith(f":{one.port}")), None)
        return None


class CutNatsCluster(NatsCluster):
    """Each node reaches each server through a proxy of its own (`node.store`, a list)."""

    def add(self, first=False):
        store = [Cut(server.port) for server in self.nats]
        node = Server("--store", "nats://" + ",".join(cut.address for cut in store), "--takeover", self.takeover, *self.more,
                      ready=False)
        node.store = store
        node.port = int(node.command[node.command.index("--listen") + 1].split(":")[1])
        node.wait_notice("ready" if first else "owns the store")
        return node
