#!/usr/bin/env python3
"""inbox_test.py BUILD: millrace inbox, with a PostgreSQL server and a millrace server of its own: a row becomes
a job once, if and only if its transaction commits, whatever is killed or restarted. Speaks TAP."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys

for folder in "../support", "../server":
    sys.path.append(os.path.join(os.path.dirname(__file__), folder))
from clients import NODE, why_no_node
from postgres import Postgres, Transaction, why_no_postgres
from running import Running, wait_until
from served import Client, Server, path
from tap import MILLRACE, TIMEOUT_S, case, check, equal, main, top

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))

os.chdir(top)
for name in "MILLRACE_TOKEN", "MILLRACE_TOKEN_FILE", "MILLRACE_URL":
    os.environ.pop(name, None)
os.environ.update(NO_COLOR="1")


# ---- What the cases share ----------------------------------------------------------------------


class World:
    """A database with an inbox, and a server: cases have their own, so that none sees another's rows."""
    count = 0

    def __init__(self, *options, installed=True, store=None, **more):
        World.count += 1
        self.name = f"app{World.count}"
        postgres.sql(f"CREATE DATABASE {self.name}", database="postgres")
        self.url = postgres.url(self.name)
        self.server = Server("--store", f"file:{path(self.name)}", *options, **more)
        if installed:
            equal(self.millrace("inbox", "install", self.url).returncode, 0)

    def millrace(self, *words, at=None):
        return subprocess.run([MILLRACE, *words], capture_output=True, text=True, timeout=TIMEOUT_S,
                              env={**os.environ, "MILLRACE_URL": at or self.server.url})

    def sql(self, commands):
        return postgres.sql(commands, database=self.name)

    def transaction(self):
        return Transaction(postgres, self.name)

    def insert(self, *bodies, stage="mail", key=""):
        rows = ", ".join(f"('{stage}', '{key}', '{body}')" for body in bodies)
        self.sql(f"INSERT INTO millrace.inbox (stage, key, body) VALUES {rows}")

    def rows(self, table="inbox"):
        return int(self.sql(f"SELECT count(*) FROM millrace.{table}")[0])

    def runner(self, *words, ready="ready", **more):
        """A runner in the background, which has printed that it is ready."""
        runner = Running(MILLRACE, "inbox", "run", self.url, *words, text=True,
                         env={**os.environ, "MILLRACE_URL": self.server.url, **more})
        wait_until(lambda: ready in runner.said() or runner.process.poll() is not None, ready)
        check(ready in runner.said(), runner.said())
        return runner

    def drain(self, code=0):
        """Runs it until the inbox is empty; its figures."""
        done = self.millrace("inbox", "run", self.url, "--until-empty", "--json")
        equal(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def empty(self):
        wait_until(lambda: self.rows() == 0, "the inbox is empty")

    def bodies(self, stage="mail"):
        """Of all jobs that wait, in their order, which are then done."""
        return Client(self.server).work_off(stage, 100)

    def waiting(self, stage="mail"):
        stages = json.loads(self.millrace("stages", "--json").stdout)
        return sum(s["waiting"] for s in stages if s["name"] == stage)


def ended(runner, code=0):
    runner.signal(signal.SIGTERM)
    end = runner.end()
    equal(end.code, code, end)
    return end


# ---- Cases -------------------------------------------------------------------------------------


@case("H7: a row becomes a job once its transaction commits, and not before")
def _():
    world = World()
    runner = world.runner()
    one = world.transaction()
    one.sql("INSERT INTO millrace.inbox (stage, body) VALUES ('mail', 'uncommitted')")
    world.insert("committed")
    world.empty()
    equal(world.bodies(), ["committed"])
    one.end("COMMIT")
    world.empty()
    equal(world.bodies(), ["uncommitted"])
    equal(ended(runner).out, "2 pushed, 0 dead\n")


@case("H7: a row of a transaction that is rolled back becomes no job")
def _():
    world = World()
    one = world.transaction()
    one.sql("INSERT INTO millrace.inbox (stage, body) VALUES ('mail', 'rolled back'), ('mail', 'too')")
    one.end("ROLLBACK")
    world.insert("kept")  # its id is not the next one
    equal(world.drain(), {"pushed": 1, "dead": 0})
    equal(world.bodies(), ["kept"])


@case("rows of one stage keep their order, within a transaction and between transactions")
def _():
    world = World()
    world.sql("INSERT INTO millrace.inbox (stage, key, body) SELECT 'mail', 'k', convert_to('a' || i, 'UTF8')"
              " FROM generate_series(1, 2500) i")
    world.sql("BEGIN; INSERT INTO millrace.inbox (stage, key, body) VALUES ('mail', 'k', 'b1'), ('mail', 'k', 'b2');"
              " INSERT INTO millrace.inbox (stage, key, body) VALUES ('mail', 'k', 'b3'); COMMIT")
    world.insert("c1", key="k")
    equal(world.drain()["pushed"], 2504)
    equal(world.bodies(), [f"a{i}" for i in range(1, 2501)] + ["b1", "b2", "b3", "c1"])


@case("every option of a row reaches the job; delay and deadline count from the insertion")
def _():
    world = World()
    world.sql("INSERT INTO millrace.inbox (stage, key, body, attempts, delay, deadline, created) VALUES"
              " ('mail', 'ann', '\\x00ff0a', 3, '1 hour', '2 hours', now() - interval '30 minutes')")
    world.sql("INSERT INTO millrace.inbox (stage, body, once) VALUES ('mail', 'x', 'o'), ('mail', 'x', 'o')")
    world.sql("INSERT INTO millrace.inbox (stage, body, deadline, created) VALUES"
              " ('late', 'x', '1 second', now() - interval '1 hour')")
    equal(world.drain()["pushed"], 4)
    jobs = json.loads(world.millrace("jobs", "mail", "--json").stdout)
    equal(len(jobs), 2, jobs)
    (job,) = [j for j in jobs if j["key"] == "ann"]
    equal((job["status"], job["attempts"]), ("delayed", 3))
    check(1700000 < job["due-ms"] <= 1800000, job)
    check(5300000 < job["left-ms"] <= 5400000, job)
    equal(world.bodies("late"), [])


@case("rows that cannot be pushed are kept with the reason, and hold up no others")
def _():
    world = World("--max-body", "1K")
    world.sql("INSERT INTO millrace.inbox (stage, key, body) VALUES ('mail', '', 'one'),"
              " ('no stage', '', 'x'), ('mail', repeat('k', 1025), 'x'),"
              " ('mail', '', convert_to(repeat('x', 2000), 'UTF8')), ('mail', '', 'two'),"
              " ('mail', '', convert_to(repeat('x', 17000000), 'UTF8')), ('mail', '', 'three')")
    equal(world.drain(), {"pushed": 3, "dead": 4})
    equal(world.bodies(), ["one", "two", "three"])
    reasons = world.sql("SELECT reason FROM millrace.inbox_dead ORDER BY id")
    for found, wanted in zip(reasons, ("stage's name", "TOOBIG the key has 1025", "TOOBIG", "17000000 bytes"), strict=True):
        check(wanted in found, found, wanted)
    equal(world.sql("SELECT next, batch FROM millrace.inbox_stage"), ["7|{}"])
    world.insert("four")
    equal(world.drain(), {"pushed": 1, "dead": 0})


@case("what no job could have is refused when the row is inserted")
def _():
    world = World()
    for column, value in (("delay", "-1 s"), ("deadline", "200 years"), ("attempts", "0"), ("attempts", "70000")):
        done = postgres.psql(f"INSERT INTO millrace.inbox (stage, {column}) VALUES ('mail', '{value}')", world.name)
        check(done.returncode != 0 and "check" in done.stderr, column, done.stderr)


@case("rows for a stage that the token may not push to are kept with the reason")
def _():
    auth = ["--auth", path("inbox.auth")]
    made = subprocess.run([MILLRACE, "auth", "add", "ci", "--role", "push", "--stages", "mail", *auth],
                          capture_output=True, text=True)
    equal(made.returncode, 0, made.stderr)
    token = made.stdout.split()[-1]
    world = World(*auth)
    refused = world.millrace("inbox", "run", world.url)
    equal(refused.returncode, 4, refused.stderr)
    world.insert("secret", stage="other")
    world.insert("letter")
    runner = world.runner(MILLRACE_TOKEN=token)
    world.empty()
    equal(ended(runner).out, "1 pushed, 1 dead\n")
    (reason,) = world.sql("SELECT reason FROM millrace.inbox_dead")
    check(reason.startswith("NOPERM"), reason)


@case("a full stage makes its own rows wait; nothing is lost or doubled")
def _():
    world = World()
    equal(world.millrace("stage", "mail", "max-jobs=3").returncode, 0)
    runner = world.runner()
    world.insert(*(f"m{i}" for i in range(10)))
    wait_until(lambda: "FULL" in runner.said(), "the stage is full")
    world.insert("other", stage="free")
    wait_until(lambda: world.waiting("free") == 1, "another stage goes on")
    found = []
    while len(found) < 10:
        found += world.bodies()
    equal(found, [f"m{i}" for i in range(10)])
    world.empty()
    check("rows of stage mail go on" in runner.said(), runner.said())
    equal(ended(runner).out, "11 pushed, 0 dead\n")


@case("rows that are deleted while their stage is full are waited for no longer")
def _():
    world = World()
    equal(world.millrace("stage", "mail", "max-jobs=1").returncode, 0)
    world.insert("one", "two", "three")
    runner = world.runner("--until-empty")
    wait_until(lambda: "FULL" in runner.said(), "the stage is full")
    world.sql("DELETE FROM millrace.inbox")
    end = runner.end()
    equal((end.code, end.out), (0, "1 pushed, 0 dead\n"), end)
    equal(world.millrace("stage", "mail", "max-jobs=none").returncode, 0)
    world.insert("four")
    world.drain()
    equal(world.bodies(), ["one", "four"])


@case("more stages than one round has, and more bytes, all get their turn")
def _():
    world = World()
    world.sql("INSERT INTO millrace.inbox (stage, body) SELECT 's' || i % 80, convert_to(i::text, 'UTF8')"
              " FROM generate_series(0, 399) i")
    world.sql("INSERT INTO millrace.inbox (stage, body) SELECT 'large', convert_to(repeat('x', 5000000), 'UTF8')"
              " FROM generate_series(1, 9)")
    equal(world.drain(), {"pushed": 409, "dead": 0})
    equal(world.bodies("s79"), ["79", "159", "239", "319", "399"])
    equal([len(body) for body in world.bodies("large")], [5000000] * 9)


@case("a runner that is killed between push and delete doubles nothing")
def _():
    world = World()
    world.insert("one", "two", "three", key="k")
    lock = world.transaction()
    lock.sql("SELECT id FROM millrace.inbox FOR UPDATE")  # deletion waits for it, reading does not
    runner = world.runner()
    wait_until(lambda: world.waiting() == 3, "the rows are pushed")
    wait_until(lambda: world.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == ["1"],
               "the deletion waits")
    runner.kill()
    lock.end("ROLLBACK")
    equal(world.rows(), 3)
    equal(world.drain()["pushed"], 0)
    equal((world.rows(), world.bodies()), (0, ["one", "two", "three"]))


@case("a runner that is killed before its push loses nothing, and keeps the order")
def _():
    world = World()
    equal(world.millrace("stage", "mail", "max-jobs=1").returncode, 0)
    runner = world.runner()
    world.insert("one", "two", "three", key="k")
    wait_until(lambda: "FULL" in runner.said(), "rows have numbers and wait")
    runner.kill()
    world.insert("four", key="k")
    equal(world.millrace("stage", "mail", "max-jobs=none").returncode, 0)
    world.drain()
    equal(world.bodies(), ["one", "two", "three", "four"])


@case("runners that are killed at any instant lose and double nothing")
def _():
    world = World()
    rows, chance = 0, random.Random(7)
    for _ in range(10):
        world.sql(f"INSERT INTO millrace.inbox (stage, key, body) SELECT 's' || i % 3, 'k', convert_to(i::text, 'UTF8')"
                  f" FROM generate_series({rows}, {rows + 599}) i")
        rows += 600
        runner = world.runner()
        before = world.rows()
        wait_until(lambda: world.rows() < before - chance.randrange(500) or world.rows() == 0, "some rows are gone")
        runner.kill()
    world.drain()
    for stage in range(3):
        equal(world.bodies(f"s{stage}"), [str(i) for i in range(rows) if i % 3 == stage])


@case("of two runners one works; the other stands by and takes over")
def _():
    world = World()
    first = world.runner()
    second = world.runner(ready="stands by")
    world.insert("one")
    world.empty()
    first.kill()
    world.insert("two")
    world.empty()
    check("this one works now" in second.said(), second.said())
    equal(world.bodies(), ["one", "two"])
    equal(ended(second).out, "1 pushed, 0 dead\n")


@case("the server's restart is survived, and reported once")
def _():
    world = World()
    runner = world.runner()
    world.insert("one")
    world.empty()
    world.server.kill()
    world.insert("two", "three")
    wait_until(lambda: "trying again" in runner.said(), "the notice")
    world.server.start()
    world.empty()
    equal(world.bodies(), ["one", "two", "three"])
    end = ended(runner)
    equal((end.err.count("trying again"), end.err.count("connected again")), (1, 1), end)


@case("the database's restart and crash are survived, and reported once each")
def _():
    world = World()
    runner = world.runner()
    for number in signal.SIGINT, signal.SIGQUIT:
        world.insert(f"before {number}")
        world.empty()
        count = runner.said().count("trying again")
        postgres.stop(number)
        wait_until(lambda: runner.said().count("trying again") > count, "the notice")
        postgres.start()
        world.insert(f"after {number}")
        world.empty()
    equal(world.bodies(), ["before 2", "after 2", "before 3", "after 3"])
    end = ended(runner)
    equal((end.err.count("trying again"), end.err.count("can be used again")), (2, 2), end)


@case("a replaced store is noticed; nothing is pushed until a person begins anew")
def _():
    world = World()
    world.insert("one", "two")
    world.drain()
    world.server.stop()
    shutil.rmtree(path(world.name))
    world.server.start()
    world.insert("three")
    done = world.millrace("inbox", "run", world.url, "--until-empty")
    equal(done.returncode, 1, done.stderr)
    check("its store was replaced" in done.stderr and "DELETE FROM millrace.inbox_stage" in done.stderr, done.stderr)
    equal(world.rows(), 1)
    world.sql("DELETE FROM millrace.inbox_stage WHERE stage = 'mail'")
    world.drain()
    equal(world.bodies(), ["three"])


@case("another database of the same name is noticed, and --name helps")
def _():
    world = World()
    world.insert("one")
    world.drain()
    world.sql("DELETE FROM millrace.inbox_stage")  # as a database that knows nothing of the first
    world.insert("two")
    done = world.millrace("inbox", "run", world.url, "--until-empty")
    equal(done.returncode, 1, done.stderr)
    check("another database has its name" in done.stderr, done.stderr)
    world.sql("DROP SCHEMA millrace CASCADE")
    equal(world.millrace("inbox", "install", world.url, "--name", "elsewhere").returncode, 0)
    world.insert("two")
    world.drain()
    equal(world.bodies(), ["one", "two"])


@case("install makes the tables once; --print prints commands that do the same, any number of times")
def _():
    world = World(installed=False)
    done = world.millrace("inbox", "run", world.url)
    equal((done.returncode, "millrace inbox install" in done.stderr), (1, True), done.stderr)
    printed = world.millrace("inbox", "install", "--print").stdout
    world.sql(printed)
    world.sql(printed)
    for flag in (world.url,), ("--db", world.url):
        done = world.millrace("inbox", "install", *flag, "--json")
        equal(json.loads(done.stdout), {"installed": False, "version": 1, "epic": f"inbox:{world.name}"})
    world.insert("one")
    equal(world.drain()["pushed"], 1)


@case("what is wrong with the database is reported, with the way out")
def _():
    world = World(installed=False)
    postgres.sql(f"CREATE ROLE nobody{World.count} LOGIN", database="postgres")
    unprivileged = postgres.url(world.name, f"nobody{World.count}")
    run = lambda *words: (lambda done: (done.returncode, done.stderr))(world.millrace("inbox", *words))
    for code, wanted, words in (
            (4, "GRANT CREATE ON DATABASE", ("install", unprivileged)),
            (3, "cannot be used", ("install", f"postgres://postgres@/none?host={top}")),
            (3, "does not exist", ("install", postgres.url("no_such_database"))),
            (2, "is missing", ("install",)), (2, "no URL", ("run", "mysql://x")),
            (2, "name one database", ("run", unprivileged, "--db", unprivileged)),
            (2, "--name", ("install", world.url, "--name", "a b"))):
        got, said = run(*words)
        check(got == code and wanted in said, words, got, said)
    equal(run("install", world.url)[0], 0)
    code, said = run("run", unprivileged)
    check(code == 4 and "needs USAGE on schema millrace" in said, code, said)
    world.sql("UPDATE millrace.inbox_about SET version = 9")
    for command in "install", "run":
        code, said = run(command, world.url)
        check(code == 1 and "has version 9" in said, code, said)
    equal(world.millrace("inbox", "run", world.url, "--at", "file:./x").returncode, 2)


# ---- The recipes of docs/inbox.md --------------------------------------------------------------


def recipes(language):
    with open(f"{ROOT}/docs/inbox.md", encoding="utf-8") as file:
        return re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.M | re.S)


def shop():
    """A world with the table that the recipes speak of."""
    world = World()
    world.sql("CREATE TABLE orders (id integer, customer text)")
    return world


def ordered(world, number, customer):
    """The order is there, and its job, once."""
    equal(world.sql("SELECT id, customer FROM orders"), [f"{number}|{customer}"])
    equal(world.drain()["pushed"], 1)
    (job,) = Client(world.server).ask("TAKE", "mail")
    equal((job[3], json.loads(job[4])), (customer, {"order": number}))


def python_with_psycopg():
    for python in sys.executable, "/usr/bin/python3":
        if subprocess.run([python, "-c", "import psycopg2"], capture_output=True).returncode == 0:
            return python
    return None


@case("the recipe for SQL")
def _():
    world = shop()
    world.sql(recipes("sql")[0])
    ordered(world, 1, "ann")


@case("the recipe for Python")
def _():
    if not (python := python_with_psycopg()):
        return "there is no psycopg2"
    world = shop()
    (recipe,) = recipes("python")
    done = subprocess.run([python, "-c", recipe.replace("postgres://localhost/app", world.url)], capture_output=True,
                          text=True, timeout=TIMEOUT_S)
    equal(done.returncode, 0, done.stderr)
    ordered(world, 2, "bob")
    return None


@case("the recipe for Node")
def _():
    if why_not := why_no_node():
        return why_not
    world = shop()
    (recipe,) = recipes("js")
    with open(f"{NODE}/inbox.mjs", "w", encoding="utf-8") as file:
        file.write(recipe.replace("postgres://localhost/app", world.url))
    done = subprocess.run(["node", "inbox.mjs"], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=NODE)
    equal(done.returncode, 0, done.stderr)
    ordered(world, 3, "cid")
    return None


@case("the rights that the page names suffice; dead rows can be tried again, in their order")
def _():
    grants = [r for r in recipes("sql") if r.startswith("GRANT")]
    (again,) = [r for r in recipes("sql") if "inbox_dead WHERE" in r]
    equal(len(grants), 2)
    world = World("--max-body", "8")
    postgres.sql("CREATE ROLE app LOGIN; CREATE ROLE runner LOGIN", database="postgres")
    for grant in grants:
        world.sql(grant)
    done = postgres.psql("INSERT INTO millrace.inbox (stage, key, body) VALUES ('mail', 'k', 'too long 1'),"
                         " ('mail', 'k', 'too long 2'), ('mail', 'k', 'short')", world.name, "app")
    equal(done.returncode, 0, done.stderr)
    world.url = postgres.url(world.name, "runner")
    equal(world.drain(), {"pushed": 1, "dead": 2})
    world.server.stop()
    world.server.command[-1] = "1K"
    world.server.start()
    world.sql(again)
    equal(world.drain(), {"pushed": 2, "dead": 0})
    equal(world.bodies(), ["short", "too long 1", "too long 2"])


@case("what the page says about monitoring works")
def _():
    world = World()
    world.insert("one", "two")
    counts = [r for r in recipes("sql") if "GROUP BY" in r]
    check(world.sql(counts[0])[0].startswith("mail|2|"), counts)


postgres = None
if "no PostgreSQL support" in subprocess.run([MILLRACE, "inbox", "run"], capture_output=True, text=True).stderr:
    why_not = "this build has no PostgreSQL support"
else:
    why_not = why_no_postgres()
if why_not:
    print(f"1..0 # SKIP {why_not}")
    sys.exit(0)
postgres = Postgres()
main()
