#!/usr/bin/env python3
"""readme_test.py BUILD ROOT: the programs of README.md run as they stand, and all of them print A B C although A
fails twice; the one in C is run by test/project/package. Other command lines are run by shown_test.py."""
import os
import re
import shutil
import signal
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from running import Running, wait_until
from served import Client, Server, path, write
from tap import MILLRACE, case, check, equal, main, top

ROOT = os.path.realpath(sys.argv[2])
IMAGE_MOST = 150_000  # bytes: the page of the project has to load quickly
with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()


def snippet(language):
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.S | re.M)
    equal(len(found), 1, language)
    return found[0]


def prepare():
    os.makedirs(path("bin"))
    os.symlink(MILLRACE, path("bin/millrace"))
    os.makedirs(path("node_modules"))
    os.symlink(os.path.join(ROOT, "clients/node"), path("node_modules/millrace"))
    os.environ.update(PATH=f"{path('bin')}:{os.environ['PATH']}", PYTHONPATH=os.path.join(ROOT, "clients/python"))


def run(language, command, name):
    """What the program prints of A, B and C, in order; it goes on until it is ended."""
    with Server("--store", "mem:") as server:
        client = Client(server)
        client.ask("STAGE", "letters", "backoff", "10ms")
        file = write(name, snippet(language).replace("millrace://127.0.0.1:7411", server.url))
        program = Running(command, file, text=True, cwd=top, env={**os.environ, "MILLRACE_URL": server.url})
        printed = lambda: re.findall("^[ABC]$", program.read(program.out) + program.said(), re.M)
        wait_until(lambda: len(printed()) >= 3 or program.process.poll() is not None, language)
        equal(printed(), ["A", "B", "C"], program.said())
        wait_until(lambda: stage(client)["done"] == 3, "the last commit")
        equal(stage(client)["failed"], 2, "attempts of A")
        os.killpg(program.process.pid, signal.SIGINT)
        program.end()


def stage(client):
    flat = client.ask("STAGES")[0]
    return dict(zip(flat[::2], flat[1::2]))


def add(language, command, name):
    @case(f"U15: the README's program for {language} prints A B C, with A failing twice")
    def _():
        if not shutil.which(command):
            return f"there is no {command}"
        return run(language, command, name)


prepare()
add("sh", "sh", "abc.sh")
add("python", "python3", "abc.py")
add("js", "node", "abc.mjs")


@case("what the README links to is there, and its pictures are small")
def _():
    for link in re.findall(r"\]\(([^)]+)\)", README):
        check(os.path.exists(os.path.join(ROOT, link)), link)
    for image in re.findall(r"!\[[^]]+\]\(([^)]+)\)", README):
        check(os.path.getsize(os.path.join(ROOT, image)) < IMAGE_MOST, image)


main()
