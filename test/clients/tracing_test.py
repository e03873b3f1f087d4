#!/usr/bin/env python3
"""tracing_test.py BUILD: the programs of docs/tracing.md run as they stand: a traceparent reaches the handler and what it
emits, and with OpenTelemetry for Node (BUILD/tracing has its packages) the spans of both are one trace. Speaks TAP."""
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from running import Running, wait_until
from served import Server, path, write
from tap import BUILD, case, check, equal, main

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
PACKAGES = os.path.join(BUILD, "tracing")
with open(os.path.join(ROOT, "docs/tracing.md"), encoding="utf-8") as page:
    PROGRAMS = re.findall(r"```(\w+)\n(.*?)```", page.read(), re.S)


def program(language, name, server):
    """Writes the only program of this language, or the one that begins with its name; its path."""
    text, = [text for kind, text in PROGRAMS if kind == language and (language != "js" or text.startswith(f"// {name}\n"))]
    return write(name, text.replace("millrace://127.0.0.1:7411", server.url))


def why_no_packages():
    """Has OpenTelemetry's packages in BUILD/tracing; why not, or None."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "there is no node or npm"
    source, mark = os.path.join(ROOT, "test/clients/tracing"), os.path.join(PACKAGES, "installed")
    lock = open(os.path.join(source, "package-lock.json"), encoding="utf-8").read()
    with open(PACKAGES + ".lock", "w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if os.path.exists(mark) and open(mark, encoding="utf-8").read() == lock:
            return None
        shutil.rmtree(PACKAGES, ignore_errors=True)
        shutil.copytree(source, PACKAGES, ignore=shutil.ignore_patterns("node_modules"))
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
                               "--fetch-retries=1", "--fetch-retry-mintimeout=1000"], cwd=PACKAGES, capture_output=True)
        if done.returncode != 0:
            return "npm could not install OpenTelemetry"
        write(mark, lock)
    return None


def lines_of(process, count):
    """So many lines of its output; then it is stopped, and ends without an error."""
    wait_until(lambda: process.read(process.out).count("\n") >= count, "it has written all lines")
    process.signal(15)
    ended = process.end()
    equal(ended.code, 0, ended)
    return ended.out.splitlines()


@case
def a_traceparent_reaches_the_handler_and_what_it_emits():
    with Server("--store", "mem:") as server:
        process = Running(sys.executable, program("python", "trace.py", server), text=True,
                          env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "clients/python")))
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        equal(lines_of(process, 2), [f"mail {parent}", f"sent {parent}"])


@case
def spans_of_producer_handler_and_emit_are_one_trace():
    if why_no_packages():
        return why_no_packages()
    with Server("--store", "mem:") as server:
        modules = path("node_modules")
        os.mkdir(modules)
        os.symlink(os.path.join(PACKAGES, "node_modules/@opentelemetry"), os.path.join(modules, "@opentelemetry"))
        os.symlink(os.path.join(ROOT, "clients/node"), os.path.join(modules, "millrace"))
        shutil.copy(os.path.join(ROOT, "test/clients/tracing/spans.mjs"), path("spans.mjs"))
        program("js", "tracing.mjs", server)
        process = Running("node", "--preserve-symlinks", "--import", path("spans.mjs"), program("js", "jobs.mjs", server),
                          text=True, cwd=path(""))
        spans = {span["name"]: span for span in map(json.loads, lines_of(process, 3))}
        equal(sorted(spans), ["order", "process mail", "process sent"])
        equal([spans[name]["parent"] for name in ("order", "process mail", "process sent")],
              [None, spans["order"]["id"], spans["process mail"]["id"]])
        check(len({span["trace"] for span in spans.values()}) == 1, spans)
    return None


main()
