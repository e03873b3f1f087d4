#!/usr/bin/env python3
"""stores_test.py BUILD: stores as files. Who may read them; and stores whose sums are right and whose
content cannot be, as in test/data/hostile-stores. Each of them once made a command fault or hang. They are
refused with the way out, and a repair makes stores of them that open."""
import contextlib
import os
import shutil
import stat
import subprocess

from tap import MILLRACE, PATIENCE, case, check, equal, main, top

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "hostile-stores")


def stores():
    """A copy of each, in turn, and its name."""
    for name in sorted(os.listdir(KEPT)):
        copy = os.path.join(top, name)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(os.path.join(KEPT, name), copy)
        yield name, copy


def say(*words):
    """What the command answers, and how it ends: never by a signal."""
    done = subprocess.run([MILLRACE, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    heard = (done.stdout + done.stderr).decode(errors="replace")
    check(done.returncode >= 0, f"{words} died of signal {-done.returncode}", heard)
    return done.returncode, heard


def files(folder):
    return {name: open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))}


@case("U9: hostile stores are examined without a change")
def hostile_stores_are_examined_without_a_change():
    for name, store in stores():
        before = files(store)
        code, heard = say("store", "check", f"file:{store}")
        equal(code, 1, name, heard)
        check("store repair" in heard, name, heard)
        code, heard = say("store", "dump", f"file:{store}", "--body")
        check(code in (0, 1, 3), name, heard)
        code, heard = say("store", "copy", f"file:{store}", f"file:{store}-copy")
        check(code in (1, 3) and not os.path.exists(store + "-copy"), name, heard)
        equal(files(store), before, name)


@case("U9: hostile stores are not opened, and the way out is named")
def hostile_stores_are_not_opened():
    for name, store in stores():
        code, heard = say("push", "s", "x", "--at", f"file:{store}")
        check(code != 0 and f"store repair file:{store}" in heard, name, heard)
        check("offset" in heard or "/store is missing" in heard, name, heard)


@case("U9: a repair makes stores that open")
def a_repair_makes_stores_that_open():
    for name, store in stores():
        code, heard = say("store", "repair", f"file:{store}")
        equal(code, 0, name, heard)
        code, heard = say("store", "check", f"file:{store}")
        equal(code, 0, name, heard)
        for turn in range(2):
            code, heard = say("push", "s", "x", "--at", f"file:{store}")
            equal(code, 0, name, heard)
        code, heard = say("store", "copy", f"file:{store}", f"file:{store}-copy")
        equal(code, 0, name, heard)


@case("U9: a pipe in a store is no reason to wait")
def a_pipe_in_a_store_is_no_reason_to_wait():
    for place in ("store", "0000000000000000.seg", "shards", "running"):
        store = os.path.join(top, "pipes-" + place)
        equal(say("push", "s", "x", "--at", f"file:{store}")[0], 0)
        if os.path.exists(os.path.join(store, place)):
            os.unlink(os.path.join(store, place))
        os.mkfifo(os.path.join(store, place))
        for words in (["store", "check", f"file:{store}"], ["store", "dump", f"file:{store}"],
                      ["store", "repair", f"file:{store}"], ["push", "s", "x", "--at", f"file:{store}"]):
            say(*words)


@case("U9: a lone segment far away is put aside")
def a_lone_segment_far_away_is_put_aside():
    store = os.path.join(top, "far")
    equal(say("push", "s", "x", "--at", f"file:{store}")[0], 0)
    shutil.copy(os.path.join(store, "0" * 16 + ".seg"), os.path.join(store, "f" * 16 + ".seg"))
    code, heard = say("store", "repair", f"file:{store}")
    equal(code, 0, heard)
    equal(say("push", "s", "x", "--at", f"file:{store}")[0], 0)
    check(os.path.exists(os.path.join(store, "f" * 16 + ".seg.damaged")))


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


@case("U10: stores are their owner's only, whatever the umask")
def stores_are_their_owners_only_whatever_the_umask():
    store = os.path.join(top, "private")
    with open_to_all():
        equal(say("push", "s", "x", "--at", f"file:{store}")[0], 0)
        equal(say("store", "copy", f"file:{store}", f"file:{store}-3", "--shards", "3")[0], 0)
        equal(say("push", "s", "x", "--at", f"file:{store}-3")[0], 0)
        with open(os.path.join(store, "0" * 16 + ".seg"), "r+b") as segment:
            segment.seek(80)
            segment.write(b"damage")
        equal(say("store", "repair", f"file:{store}")[0], 0)
    expect_private(store)
    expect_private(store + "-3")
    check(len(modes(store + "-3")) > 10)


@case("U10: journals are their owner's only, whatever the umask")
def journals_are_their_owners_only_whatever_the_umask():
    journal = os.path.join(top, "journal")
    with open_to_all():
        done = subprocess.run([MILLRACE, "run", "--journal", journal, "--", "sh", "-c",
                               f"find {journal} -printf '%m %y\\n'"],
                              input=b"a line\n", capture_output=True, timeout=PATIENCE)
    equal(done.returncode, 0, done.stderr)
    equal(set(done.stdout.split(b"\n")), {b"700 d", b"600 f", b""})


main()
