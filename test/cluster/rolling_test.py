#!/usr/bin/env python3
"""rolling_test.py BUILD: every node of a cluster is restarted in turn, as for an upgrade, while a producer pushes and
a worker works through any of them: each job has its effect once, in the order of its key. Speaks TAP."""
import os
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import Cluster, answer, bodies, skip_without_postgres, waiting
from postgres import Postgres
from running import Running, wait_until
from tap import MILLRACE, case, equal, main

skip_without_postgres()
postgres = Postgres()
KEYS, PART = 5, 60  # keys, and jobs of each part of the load


class Load:
    """A producer, fed by the test, and a worker; a job emits its line into the stage `out` as it is committed."""

    def __init__(self, cluster):
        self.cluster, self.lines = cluster, []
        at = ["--at", "millrace://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)]
        state = {**os.environ, "XDG_STATE_HOME": os.path.join(os.getcwd(), "state")}
        self.producer = Running(MILLRACE, "push", *at, "in", "--lines", "--epic", "load", "--key-field", "1",
                                stdin=subprocess.PIPE, text=True, env=state)
        self.worker = Running(MILLRACE, "work", *at, "in", "--jobs", "4", "--", MILLRACE, "emit", "out", "--key", "{key}",
                              stdin=subprocess.DEVNULL, text=True)

    def push(self, count=PART):
        for _ in range(count):
            self.lines.append(f"{len(self.lines) % KEYS} {len(self.lines)}")
            self.producer.feed(f"{self.lines[-1]}\n".encode())

    def done(self):
        """How many jobs have had their effect."""
        return waiting(self.cluster.nodes[0], "out")

    def wait_done(self, count):
        wait_until(lambda: self.done() >= count, f"{count} jobs are done")


def keep_order(lines):
    """For each key its numbers, in order."""
    found = {}
    for line in lines:
        key, number = line.split()
        found.setdefault(key, []).append(int(number))
    return found


@case
def F40_H3_every_node_is_restarted_under_load_and_each_job_has_its_effect_once():
    cluster = Cluster(postgres, nodes=3, takeover="1h")  # no takeover is by silence
    load = Load(cluster)
    load.push()
    load.wait_done(1)
    for node in cluster.nodes:
        load.push()
        node.stop()
        load.push()
        node.start(ready=False)
        equal(answer(node, "PING"), b"+PONG")
        load.wait_done(len(load.lines) - PART)
    ended = load.producer.end()
    equal(ended.code, 0, ended)
    load.wait_done(len(load.lines))
    load.worker.signal(signal.SIGINT)
    ended = load.worker.end()
    equal(ended.code, 130, ended)
    effects = bodies(cluster.nodes[-1], "out", len(load.lines))
    equal(sorted(effects), sorted(load.lines))
    equal(keep_order(effects), keep_order(load.lines))
    equal(waiting(cluster.nodes[0], "out"), 0)
    cluster.end()


main()
