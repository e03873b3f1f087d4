#!/usr/bin/env python3
"""play_test.py BUILD ROOT: make cluster, in short: jobs are done, none is lost, and no process is left behind. Speaks
TAP."""
import os
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from cluster import skip_without_postgres
from running import Running
from tap import BUILD, case, check, equal, main

skip_without_postgres()
PLAY = os.path.join(sys.argv[2], "tools", "cluster")


def start(seconds):
    return Running(PLAY, BUILD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                   env={**os.environ, "CLUSTER_SECONDS": str(seconds), "PYTHONUNBUFFERED": "1"})


def read_to(play, text):
    """The lines up to the one that contains the text."""
    lines = []
    for line in play.process.stdout:
        lines.append(line.decode())
        if text in lines[-1]:
            return lines
    raise AssertionError("".join(lines))


def is_there(pid):
    return os.path.exists(f"/proc/{pid}")


@case
def H3_a_cluster_to_play_with_loses_no_job_and_leaves_no_process():
    play = start(2)
    said = read_to(play, "owner node 1")
    pids = [line.split("kill")[1].split()[1] for line in said if "kill -9" in line or "kill -INT" in line]
    equal((len(pids), all(map(is_there, pids))), (3, True), *said)
    said = "".join(read_to(play, "The summary"))
    check("store ok" in said and "The summary holds." in said, said)
    equal(play.process.wait(), 0)
    check(not any(map(is_there, pids)), pids)


main()
