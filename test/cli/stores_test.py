#!/usr/bin/env python3
"""stores_test.py BUILD: stores as files. Who may read them; and stores whose sums are right and whose
content cannot be, as in test/data/hostile-stores. Each of them once made a command fault or hang. They are
refused with the way out, and a repair makes stores of them that open."""
import contextlib
import os
import select
import shutil
import signal
import stat
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Server
from tap import BUILD, MILLRACE, TIMEOUT_S, case, check, equal, main, top

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/hostile-stores")


def stores():
    """A copy of each, in turn, and its name."""
    for name in sorted(os.listdir(KEPT)):
        copy = os.path.join(top, name)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(os.path.join(KEPT, name), copy)
        yield name, copy


def run_command(*words):
    """Runs a command; returns its exit code and output. It must not end by a signal."""
    done = subprocess.run([MILLRACE, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S)
    output = (done.stdout + done.stderr).decode(errors="replace")
    check(done.returncode >= 0, f"{words} died of signal {-done.returncode}", output)
    return done.returncode, output


def files(folder):
    return {name: open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))}


@case("U9: hostile stores are examined without a change")
def hostile_stores_are_examined_without_a_change():
    for name, store in stores():
        before = files(store)
        code, output = run_command("store", "check", f"file:{store}")
        equal(code, 1, name, output)
        check("store repair" in output, name, output)
        code, output = run_command("store", "dump", f"file:{store}", "--body")
        check(code in (0, 1, 3), name, output)
        code, output = run_command("store", "copy", f"file:{store}", f"file:{store}-copy")
        check(code in (1, 3) and not os.path.exists(store + "-copy"), name, output)
        equal(files(store), before, name)


@case("U9: hostile stores are not opened, and the way out is named")
def hostile_stores_are_not_opened():
    for name, store in stores():
        code, output = run_command("push", "s", "x", "--at", f"file:{store}")
        check(code != 0 and f"store repair file:{store}" in output, name, output)
        check("offset" in output or "/store is missing" in output, name, output)


@case("U9: a repair makes stores that open")
def a_repair_makes_stores_that_open():
    for name, store in stores():
        code, output = run_command("store", "repair", f"file:{store}")
        equal(code, 0, name, output)
        code, output = run_command("store", "check", f"file:{store}")
        equal(code, 0, name, output)
        for turn in range(2):
            code, output = run_command("push", "s", "x", "--at", f"file:{store}")
            equal(code, 0, name, output)
        code, output = run_command("store", "copy", f"file:{store}", f"file:{store}-copy")
        equal(code, 0, name, output)


@case("U9: a pipe in a store is no reason to wait")
def a_pipe_in_a_store_is_no_reason_to_wait():
    for place in ("store", "0000000000000000.seg", "shards", "running"):
        store = os.path.join(top, "pipes-" + place)
        equal(run_command("push", "s", "x", "--at", f"file:{store}")[0], 0)
        if os.path.exists(os.path.join(store, place)):
            os.unlink(os.path.join(store, place))
        os.mkfifo(os.path.join(store, place))
        for words in (["store", "check", f"file:{store}"], ["store", "dump", f"file:{store}"],
                      ["store", "repair", f"file:{store}"], ["push", "s", "x", "--at", f"file:{store}"]):
            run_command(*words)


@case("U9: a lone segment far away is put aside")
def a_lone_segment_far_away_is_put_aside():
    store = os.path.join(top, "far")
    equal(run_command("push", "s", "x", "--at", f"file:{store}")[0], 0)
    shutil.copy(os.path.join(store, "0" * 16 + ".seg"), os.path.join(store, "f" * 16 + ".seg"))
    code, output = run_command("store", "repair", f"file:{store}")
    equal(code, 0, output)
    equal(run_command("push", "s", "x", "--at", f"file:{store}")[0], 0)
    check(os.path.exists(os.path.join(store, "f" * 16 + ".seg.damaged")))


class Halted:
    """A command that waits whenever it opens a segment, as for a slow disk, see faulty.c."""

    def __init__(self, *words):
        orders = os.path.join(top, "orders")
        with open(orders, "w") as file:
            file.write("open gate\n")
        for pipe in ("arrived", "gate"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{orders}.{pipe}")
            os.mkfifo(f"{orders}.{pipe}")
        self.arrived, self.gate = (os.open(f"{orders}.{pipe}", os.O_RDWR) for pipe in ("arrived", "gate"))
        environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "test", "libfaulty.so"), MILLRACE_FAULTS=orders,
                           ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
        self.process = subprocess.Popen([MILLRACE, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, env=environment, cwd=top)
        self.ended = os.pidfd_open(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        for fd in self.arrived, self.gate, self.ended:
            os.close(fd)

    def arrives(self):
        """Until it opens a segment, or ends: whether it has opened one."""
        ready = select.select([self.arrived, self.ended], [], [], TIMEOUT_S)[0]
        check(ready, "it neither opens a segment nor ends")
        if self.arrived in ready:
            os.read(self.arrived, 1)
        return self.arrived in ready

    def let_go(self):
        os.write(self.gate, b".")


def interrupted(number, tidies, *words):
    """Signals the command at each segment that it opens, in a run of its own. It has to end while it still waits
    there; or, if it `tidies`, soon after. Returns at how many."""
    for at in range(1000):
        with Halted(*words) as command:
            came = [command.arrives() and (command.let_go() or True) for _ in range(at)]
            if not all(came) or not command.arrives():
                equal(command.process.wait(TIMEOUT_S), 0, words, command.process.stderr.read())
                return at
            command.process.send_signal(number)
            if tidies:
                command.let_go()
                while command.arrives():
                    command.let_go()
            code = command.process.wait(TIMEOUT_S)
            check(code in (130, -number), words, at, code, command.process.stderr.read())
    raise AssertionError("it opens segments without an end")


def lay_out(name):
    """A store of three shards with jobs in each."""
    single, store = os.path.join(top, "single"), os.path.join(top, name)
    for folder in single, store:
        shutil.rmtree(folder, ignore_errors=True)
    for n in range(12):
        equal(run_command("push", f"s{n}", "x", "--at", f"file:{single}")[0], 0)
    equal(run_command("store", "copy", f"file:{single}", f"file:{store}", "--shards", "3")[0], 0)
    return store


@case("U9: a signal ends what reads a store, and changes nothing")
def a_signal_ends_what_reads_a_store():
    for number in signal.SIGTERM, signal.SIGINT:
        store = lay_out("read")
        before = files(os.path.join(store, "shard-0"))
        for words in ["store", "check", f"file:{store}"], ["store", "dump", f"file:{store}"]:
            check(interrupted(number, False, *words) >= 3, words)
        equal(files(os.path.join(store, "shard-0")), before)


@case("U9: a signal ends a copy of a store, of which nothing is left")
def a_signal_ends_a_copy():
    for number in signal.SIGTERM, signal.SIGINT:
        store = lay_out("from")
        shutil.rmtree(os.path.join(top, "to"), ignore_errors=True)
        left = set(os.listdir(top))
        check(interrupted(number, True, "store", "copy", f"file:{store}", "file:to") >= 3)
        equal(set(os.listdir(top)) - left, {"to"})


@case("U9: a signal ends a run and a flow that open their journals, which continue later")
def a_signal_ends_what_opens_a_journal():
    with open(os.path.join(top, "plan.yaml"), "w") as file:
        file.write("flow: plan\nsource: { lines: in.txt }\nsteps: [{ name: a, map: ['false'], attempts: 1, on-dead: halt }]\n"
                   "sink: nothing\n")
    with open(os.path.join(top, "in.txt"), "w") as file:
        file.write("a line\n")
    run = ["run", "--journal", "run.journal", "--", "false"]
    for words in run, ["flow", "plan.yaml"]:
        with open(os.path.join(top, "in.txt")) as lines:
            begun = subprocess.run([MILLRACE, *words], stdin=lines, capture_output=True, timeout=TIMEOUT_S, cwd=top)
        equal(begun.returncode, 1, begun)
    for number in signal.SIGTERM, signal.SIGINT:
        for words in run, ["flow", "plan.yaml"]:
            with Halted(*words) as command:
                check(command.arrives())
                command.process.send_signal(number)
                equal(command.process.wait(TIMEOUT_S), 130, words)
    for words in run, ["flow", "plan.yaml"]:
        with open(os.path.join(top, "in.txt")) as lines:
            again = subprocess.run([MILLRACE, *words], stdin=lines, capture_output=True, timeout=TIMEOUT_S, cwd=top)
        equal(again.returncode, 1, again)


@case("U9: a signal ends a server that opens its store")
def a_signal_ends_a_server_that_opens_its_store():
    for number in signal.SIGTERM, signal.SIGINT:
        store = lay_out("served")
        with Halted("serve", "--store", f"file:{store}", "--listen", "127.0.0.1:0", "--http", "off") as command:
            check(command.arrives(), "it has ended")
            command.process.send_signal(number)
            command.let_go()
            while command.arrives():
                command.let_go()
            said = command.process.stderr.read()
            check(command.process.wait(TIMEOUT_S) in (0, 130, -number), command.process.returncode, said)
            check(b"ready" not in said, said)


@case("jobs of a copied store are found by their ids, whichever loop has them")
def jobs_of_a_copied_store_are_found_by_their_ids():
    store = os.path.join(top, "copied")
    for stage in "abcdef":
        equal(run_command("push", stage, f"body of {stage}", "--at", f"file:{store}")[0], 0)
    equal(run_command("store", "copy", f"file:{store}", f"file:{store}-3", "--shards", "3")[0], 0)
    server = Server("--store", f"file:{store}-3", "--loops", "3")
    for _ in range(3):  # connections are handed out in turn
        client = Client(server)
        stages = {client.ask("JOB", job)[3] for job in range(1, 7)}
        equal(stages, set("abcdef"))
        client.close()
    client = Client(server)
    equal([client.ask("CANCEL", job) for job in range(1, 7)], [1] * 6)
    server.kill()


@contextlib.contextmanager
def open_to_all():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    """Of a folder and all that is in it, in octal, by name."""
    found = {folder: stat.S_IMODE(os.stat(folder).st_mode)}
    for where, folders, names in os.walk(folder):
        for name in folders + names:
            found[os.path.join(where, name)] = stat.S_IMODE(os.lstat(os.path.join(where, name)).st_mode)
    return {name: oct(mode) for name, mode in found.items()}


def expect_private(folder):
    for name, mode in modes(folder).items():
        equal(mode, oct(0o700 if os.path.isdir(name) else 0o600), name)


@case("U10: only the owner can read a store, with any umask")
def stores_are_their_owners_only_whatever_the_umask():
    store = os.path.join(top, "private")
    with open_to_all():
        equal(run_command("push", "s", "x", "--at", f"file:{store}")[0], 0)
        equal(run_command("store", "copy", f"file:{store}", f"file:{store}-3", "--shards", "3")[0], 0)
        equal(run_command("push", "s", "x", "--at", f"file:{store}-3")[0], 0)
        with open(os.path.join(store, "0" * 16 + ".seg"), "r+b") as segment:
            segment.seek(80)
            segment.write(b"damage")
        equal(run_command("store", "repair", f"file:{store}")[0], 0)
    expect_private(store)
    expect_private(store + "-3")
    check(len(modes(store + "-3")) > 10)


@case("U10: only the owner can read a journal, with any umask")
def journals_are_their_owners_only_whatever_the_umask():
    journal = os.path.join(top, "journal")
    with open_to_all():
        done = subprocess.run([MILLRACE, "run", "--journal", journal, "--", "sh", "-c",
                               f"find {journal} -printf '%m %y\\n'"],
                              input=b"a line\n", capture_output=True, timeout=TIMEOUT_S)
    equal(done.returncode, 0, done.stderr)
    equal(set(done.stdout.split(b"\n")), {b"700 d", b"600 f", b""})


main()
