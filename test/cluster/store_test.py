#!/usr/bin/env python3
"""store_test.py BUILD: store check, dump and copy with stores in a PostgreSQL server of the test's own: what was
copied is the same, also while a node serves it; and a copy that ends early leaves nothing. Speaks TAP."""
import json
import os
import signal
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from postgres import Postgres, Transaction, why_no_postgres
from running import wait_until
from served import Client, Server
from tap import BUILD, MILLRACE, TIMEOUT_S, case, check, equal, main, top

os.chdir(top)
os.environ.update(NO_COLOR="1")
URL = None


# ---- What the cases share ----------------------------------------------------------------------


def millrace(*words, code=0):
    """Runs it; its output, or the message if it is refused."""
    done = subprocess.run([MILLRACE, *words], capture_output=True, text=True, timeout=TIMEOUT_S)
    equal(done.returncode, code, words, done.stdout, done.stderr)
    return done.stderr if code else done.stdout


def sql(commands):
    return postgres.sql(commands, database="stores")


def cluster(name):
    return [URL, "--cluster", name]


def story(name):
    """A directory with something of everything in it; its URL."""
    subprocess.run([f"{BUILD}/test/store_story", "make", name], check=True, capture_output=True, timeout=TIMEOUT_S)
    return f"file:{name}"


def content(*store):
    """What a store holds: its entries, in no order, without what depends on the place."""
    found = []
    for line in millrace("store", "dump", *store, "--body", "--json").splitlines():
        entry = json.loads(line)
        for place in "shard", "at", "position":
            entry.pop(place, None)
        if entry["kind"] != "epoch":
            found.append(json.dumps(entry, sort_keys=True))
    return sorted(found)


def held(name):
    """Batches and owners of a cluster."""
    return sql(f"SELECT (SELECT count(*) FROM millrace_{name}.batch), sum(tail), sum(epoch) FROM millrace_{name}.shard")


NOTHING = ["0|0|0"]


# ---- Copies ------------------------------------------------------------------------------------


@case
def H8_a_copy_into_a_cluster_and_back_keeps_everything():
    original = story("original")
    millrace("store", "copy", original, "file:plain")
    millrace("store", "init", *cluster("same"))
    said = millrace("store", "copy", original, *cluster("same"))
    check("copied from file:original to cluster same" in said, said)
    equal(content(*cluster("same")), content("file:plain"))
    check("cluster same is sound" in millrace("store", "check", *cluster("same")))
    found = json.loads(millrace("store", "check", *cluster("same"), "--json"))
    plain = json.loads(millrace("store", "check", "file:plain", "--json"))
    equal([found["store"], found["stages"], found["live"]], ["cluster same", plain["stages"], plain["live"]])
    check(URL not in millrace("store", "copy", *cluster("same"), "file:back", "--json"))
    subprocess.run([f"{BUILD}/test/store_story", "same", "plain", "back"], check=True, timeout=TIMEOUT_S)


@case
def H8_a_copy_changes_the_number_of_shards():
    original = story("single")
    millrace("store", "copy", original, "file:single-copy")
    said = json.loads(millrace("store", "copy", original, *cluster("three"), "--shards", "3", "--json"))
    equal([said["to"], said["shards"]], ["cluster three", 3])
    equal(sql("SELECT shards FROM millrace_three.cluster"), ["3"])
    equal(content(*cluster("three")), content("file:single-copy"))
    millrace("store", "copy", URL, URL, "--cluster", "three", "--to-cluster", "five", "--shards", "5")
    millrace("store", "copy", *cluster("five"), "file:single-back", "--shards", "1")
    subprocess.run([f"{BUILD}/test/store_story", "same", "single-copy", "single-back"], check=True, timeout=TIMEOUT_S)


@case
def H8_a_node_continues_what_was_copied():
    for n in range(6):
        millrace("push", f"s{n}", f"body {n}", "--at", "file:grown")
    millrace("store", "copy", "file:grown", *cluster("grown"), "--shards", "3")
    node = Server("--store", URL, "--cluster", "grown", ready=False)
    node.listens()
    node.wait_notice("ready")
    equal([Client(node).work_off(f"s{n}") for n in range(6)], [[f"body {n}"] for n in range(6)])
    node.stop()


class Load(threading.Thread):
    """Pushes numbers to the stage a and moves them to the stage b, which is in another shard, until it is ended."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.client, self.moved, self.ending, self.error = Client(node), 0, False, None

    def run(self):
        try:
            self.client.ask("STAGE", "b", "high-mark", 10**9)  # nothing works there: else it would hold a back
            while not self.ending:
                for i in range(20):
                    self.client.ask("PUSH", "a", 20 * (self.moved // 10) + i)
                jobs = self.client.ask("TAKE", "a", "COUNT", 10)
                equal(len(jobs), 10)
                for job in jobs:
                    self.client.ask("DONE", job[0], job[1], "EMIT", "b", "", job[4])
                self.moved += len(jobs)
        except Exception as error:  # the case reports it
            self.error = error


@case
def H8_a_copy_of_a_served_cluster_is_of_one_moment():
    millrace("store", "init", *cluster("served"), "--shards", "3")
    node = Server("--store", URL, "--cluster", "served", ready=False)
    node.listens()
    node.wait_notice("ready")
    load = Load(node)
    load.start()
    for turn in range(8):
        before = load.moved
        wait_until(lambda: load.moved > before + 50 or load.error, "the load goes on")
        millrace("store", "copy", *cluster("served"), f"file:moment-{turn}")
        check("sound" in millrace("store", "check", *cluster("served")))
        entries = map(json.loads, millrace("store", "dump", f"file:moment-{turn}", "--body", "--json").splitlines())
        numbers = {"a": [], "b": []}
        for entry in entries:
            if entry["kind"] in ("push", "job"):
                numbers[entry["stage"]].append(int(entry["body"]))
        both = sorted(numbers["a"] + numbers["b"])
        equal(both, list(range(len(both))))  # none is lost, and none is in both
        check(len(numbers["b"]) >= before, turn, before, len(numbers["b"]))
    load.ending = True
    load.join()
    check(load.error is None, load.error)
    node.stop()


# ---- Refusals ----------------------------------------------------------------------------------


@case
def H8_a_copy_never_writes_over_a_store():
    source = story("precious")
    millrace("store", "copy", source, *cluster("precious"), "--shards", "2")
    before = content(*cluster("precious")), held("precious")
    for shards in (), ("--shards", "2"):
        said = millrace("store", "copy", source, *cluster("precious"), *shards, code=3)
        check("holds a store" in said and "--to-cluster" in said and "nothing was copied" in said, said)
    said = millrace("store", "copy", source, *cluster("precious"), "--shards", "3", code=2)
    check("made with 2 shards" in said, said)
    said = millrace("store", "copy", URL, URL, "--cluster", "precious", "--to-cluster", "precious", code=3)
    check("holds a store" in said, said)
    equal((content(*cluster("precious")), held("precious")), before)


@case
def H8_what_cannot_be_opened_is_said_with_the_way_out():
    source = story("source")
    sql("CREATE ROLE guest LOGIN")
    millrace("store", "init", *cluster("closed"))
    guest = [URL.replace("postgres@", "guest@"), "--cluster", "closed"]
    for store, code, words in ((cluster("missing"), 2, "millrace store init"), (guest, 4, "permission denied"),
                               ([URL.replace("/stores", "/absent")], 3, "does not exist"),
                               (["postgres://user@/db?host=/nowhere"], 3, "/nowhere"),
                               (["postgres://u:secret@[/db"], 2, "URL"), (cluster("No"), 2, "a to z")):
        for command in ("check", *store), ("dump", *store), ("copy", source, *store), ("copy", store[0], "file:new", *store[1:]):
            said = millrace("store", *command, code=code)
            check(words in said and "secret" not in said, command, said)
    check(not os.path.exists("new") and not os.path.exists("new.copying"))
    check("file:DIR" in millrace("store", "repair", URL, code=2))
    for wrong in (("check", source), ("dump", source), ("copy", source, "file:new")):
        check("no cluster" in millrace("store", *wrong, "--cluster", "x", code=2))


@case
def an_older_store_is_refused_until_it_is_upgraded():
    millrace("store", "copy", story("older-from"), *cluster("older"), "--shards", "2")
    before = content(*cluster("older"))
    sql("DROP TABLE millrace_older.note; UPDATE millrace_older.cluster SET version = 1")  # as an older version has made it
    advice = "upgrade them with: millrace store init postgres://… --cluster older --shards 2"
    for words in (["store", "check", *cluster("older")],
                  ["serve", "--store", *cluster("older"), "--listen", "127.0.0.1:7411", "--http", "off"]):
        refused = millrace(*words, code=2)
        check("version 1" in refused and advice in refused, refused)
    check("2 shards" in millrace("store", "init", *cluster("older"), code=2))
    equal(millrace("store", "init", *cluster("older"), "--shards", "2"), "upgraded cluster older with 2 shards\n")
    equal(millrace("store", "init", *cluster("older"), "--shards", "2"), "there is cluster older with 2 shards\n")
    equal(content(*cluster("older")), before)


@case
def damage_in_a_cluster_is_found():
    millrace("store", "copy", story("damaged"), *cluster("damaged"), "--shards", "1")
    sql("UPDATE millrace_damaged.batch SET bodies = set_byte(bodies, octet_length(bodies) - 5, "
        "get_byte(bodies, octet_length(bodies) - 5) # 85)")
    done = subprocess.run([MILLRACE, "store", "check", *cluster("damaged")], capture_output=True, text=True)
    equal(done.returncode, 1, done)
    check("cluster damaged is damaged" in done.stdout and "shard 0, offset" in done.stdout, done.stdout)
    said = millrace("store", "copy", *cluster("damaged"), "file:undamaged", code=1)
    check("damaged" in said and not os.path.exists("undamaged"), said)


# ---- Copies that end early ---------------------------------------------------------------------


def bulky(name):
    """A directory whose copy takes several batches."""
    if not os.path.exists(name):
        with open("lines", "w") as lines:
            lines.writelines(f"{n} " + "x" * 100000 + "\n" for n in range(150))
        with open("lines") as lines:
            subprocess.run([MILLRACE, "push", "bulk", "--lines", "--at", f"file:{name}"], stdin=lines, check=True,
                           stdout=subprocess.DEVNULL, timeout=TIMEOUT_S)
    return f"file:{name}"


class Halted:
    """A copy into a new cluster that waits before its Nth batch."""

    def __init__(self, name, batches):
        self.name = name
        source = bulky("bulky")
        millrace("store", "init", *cluster(name), "--shards", "2")
        sql(f"CREATE FUNCTION millrace_{name}.halt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF (SELECT count(*) FROM millrace_{name}.batch) = {batches} THEN "
            "PERFORM set_config('lock_timeout', '0', true); PERFORM pg_advisory_xact_lock(7); END IF; "
            f"RETURN NEW; END $$; CREATE TRIGGER halt BEFORE INSERT ON millrace_{name}.batch "
            f"FOR EACH ROW EXECUTE FUNCTION millrace_{name}.halt()")
        self.gate = Transaction(postgres, "stores")
        self.gate.sql("SELECT pg_advisory_xact_lock(7)")
        self.process = subprocess.Popen([MILLRACE, "store", "copy", source, *cluster(name)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: self.process.poll() is not None or
                   sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == ["1"], "it waits")

    def ends(self):
        """Its exit code and message."""
        said = self.process.communicate(timeout=TIMEOUT_S)[1]
        return self.process.returncode, said

    def leaves_nothing(self):
        wait_until(lambda: sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = "
                               f"'millrace {self.name} transaction'") == ["0"], "its session has ended")
        equal(held(self.name), NOTHING)
        sql(f"DROP TRIGGER halt ON millrace_{self.name}.batch")
        millrace("store", "copy", bulky("bulky"), *cluster(self.name))
        equal(len(content(*cluster(self.name))), len(content(bulky("bulky"))))


@case
def H8_a_copy_that_is_killed_leaves_nothing():
    for batches in 1, 4:
        copy = Halted(f"killed{batches}", batches)
        copy.process.kill()
        equal(copy.ends()[0], -signal.SIGKILL)
        copy.gate.end()
        copy.leaves_nothing()


@case
def H8_a_copy_that_is_interrupted_leaves_nothing():
    copy = Halted("interrupted", 2)
    copy.process.send_signal(signal.SIGINT)
    copy.gate.end()
    code, said = copy.ends()
    equal(code, 130, said)
    copy.leaves_nothing()


@case
def H8_a_copy_whose_database_crashes_leaves_nothing():
    copy = Halted("crashed", 3)
    sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'millrace crashed transaction'")
    code, said = copy.ends()
    check(code in (1, 3) and "the connection was lost" in said and "nothing was copied" in said, code, said)
    copy.gate.end()
    copy.leaves_nothing()


@case
def H8_a_node_of_a_cluster_that_is_being_filled_waits():
    copy = Halted("filling", 2)
    node = Server("--store", URL, "--cluster", "filling", ready=False)
    equal(held("filling"), NOTHING)
    copy.gate.end()
    equal(copy.ends()[0], 0)
    node.listens()
    node.wait_notice("ready")
    equal(len(Client(node).work_off("bulk")), 150)
    node.stop()


why_not = "this build has no PostgreSQL" if "has no PostgreSQL" in subprocess.run(
    [MILLRACE, "store", "init", "postgres://"], capture_output=True, text=True).stderr else why_no_postgres()
if why_not:
    print(f"1..0 # SKIP {why_not}")
    sys.exit(0)
postgres = Postgres()
postgres.sql("CREATE DATABASE stores", database="postgres")
URL = postgres.url("stores")
main()
