#!/usr/bin/env python3
"""soak_test.py BUILD ROOT: make soak for seconds instead of hours, with a kill of the server: nothing is lost, doubled or
out of order. So short a time shows nothing about growth."""
import os
import re
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from postgres import why_no_postgres
from tap import BUILD, TIMEOUT_S, case, check, main, top

SOAK = os.path.join(sys.argv[2], "tools", "soak")


def soak(name, **more):
    done = subprocess.run([SOAK, BUILD, top], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env={**os.environ, "SOAK_SECONDS": "8", **more})
    check(done.returncode in (0, 2), done.returncode, done.stdout, done.stderr)
    with open(os.path.join(top, f"{name}.txt"), encoding="utf-8") as file:
        report = file.read()
    check(int(re.search(r"(\d+) pushes acknowledged", report)[1]) > 0, report)
    check("server killed" in report, report)
    with open(os.path.join(top, f"{name}.svg"), encoding="utf-8") as file:
        check("</svg>" in file.read())


@case
def X_a_server_under_load_and_faults_loses_nothing():
    soak("soak")


@case
def X_three_nodes_under_load_and_faults_lose_nothing():
    return why_no_postgres() or soak("soak-nodes", SOAK_NODES="3")


main()
