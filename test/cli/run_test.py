#!/usr/bin/env python3
"""run_test.py BUILD: millrace run as a shell pipeline meets it: every option, bad commands, bad
input, signals, journals that are interrupted, foreign and damaged. Speaks TAP. Commands wait for each
other through files and pipes, never by time. With MILLRACE_LONG the proofs by chance last
MILLRACE_SECONDS."""
import contextlib
import json
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from running import Running, lines_of, wait_until
from tap import BUILD, LONG, MILLRACE, TIMEOUT_S, SECONDS, case, check, equal, main, sanitized, top

INSTANT = os.path.join(BUILD, "test", "instant")  # the same, but commands take no time
MEMORY_KB = 64 << 10  # resident, at most, whatever goes through
MEMORY_GROWS_KB = 4 << 10  # at most, once all that is needed is there

os.environ["NO_COLOR"] = "1"
os.environ.pop("TMPDIR", None)


class Run(Running):
    def __init__(self, *arguments, stdin=subprocess.PIPE, program=MILLRACE, **more):
        super().__init__(program, "run", *arguments, stdin=stdin, **more)


def run(*arguments, data=b"", **more):
    """With `data` (bytes, or a list of lines) as its input, to the end."""
    if isinstance(data, list):
        data = b"".join(b"%s\n" % str(line).encode() for line in data)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return Run(*arguments, stdin=file, **more).end()


def sh(script):
    return ["--", "sh", "-c", script, "sh"]


def wait_for(path):
    """Until a command has made the file."""
    wait_until(lambda: os.path.exists(path), path)


def wait_in(file, text):
    wait_until(lambda: text in os.pread(file.fileno(), 1 << 20, 0), text)


def read_until(terminal, pattern, seen=b""):
    """What is printed there until it contains this."""
    while not re.search(pattern, seen):
        check(select.select([terminal], [], [], TIMEOUT_S)[0], f"never shown: {pattern}", seen)
        seen += os.read(terminal, 4096)
    return seen


def numbers(out):
    return [int(n) for n in out.split()]


# A shell's part of a meeting: `wait_file NAME` returns when NAME is there.
WAIT = 'wait_file() { until [ -e "$1" ]; do sleep 0.01; done; }; '

# ---- What it is for ----------------------------------------------------------------------------


@case("seq 10 | millrace run -- echo")
def _():
    r = run("--", "echo", data=range_lines(1, 10))
    equal((r.code, sorted(numbers(r.out)), r.err), (0, list(range(1, 11)), b""), r)


def range_lines(first, last):
    return list(range(first, last + 1))


@case("find -print0 | millrace run -0 --key-regex, with {} and {.}")
def _():
    for name in "a/1.png", "a/2.png", "b/x y.png", "b/line\nbreak.png":
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "w") as file:
            file.write(name)
    found = subprocess.run(["find", ".", "-name", "*.png", "-print0"], capture_output=True).stdout
    r = run("-0", "--key-regex", "/([^/]+)/", "--", "cp", "{}", "{.}.jpg", data=found)
    equal(r.code, 0, r)
    for name in "a/1", "a/2", "b/x y", "b/line\nbreak":
        with open(name + ".jpg") as file:
            equal(file.read(), name + ".png")


@case("every placeholder, and the line appended where there is none")
def _():
    show = ["printf", "<%s>"]
    line = b"dir/sub/photo.png\n"
    parts = ["{}", "{.}", "{/}", "{/.}", "{//}", "{key}", "{#}", "a{/}b{#}"]
    r = run("--key-regex", "^[a-z]+", "--", *show, *parts, data=line)
    equal(r.out, b"<dir/sub/photo.png><dir/sub/photo><photo.png><photo><dir/sub><dir><1><aphoto.pngb1>", r)
    equal(run("--", *show, "x", data=b"a b\n").out, b"<x><a b>")
    equal(run("--", *show, "{#}", data=b"a b\n").out, b"<1>")
    equal(run("--", "{}", data=b"true\n").code, 0)


@case("stdin is empty, or with --stdin the line")
def _():
    equal(run("--", "wc", "-c", data=b"/dev/stdin\n").out, b"0 /dev/stdin\n")
    equal(sorted(run("--stdin", "--", "cat", data=b"1\n2\n3").out.split()), [b"1", b"2", b"3"])
    equal(run("--stdin", "--", "od", "-c", "-An", data=b"a\n").out.split(), [b"a", b"\\n"])
    equal(run("--stdin", "-0", "--", "od", "-c", "-An", data=b"a\0").out.split(), [b"a"])
    equal(run("--stdin", "--", "echo", "{#}", data=b"a\n").out, b"1\n")


# ---- Input -------------------------------------------------------------------------------------


@case("no input, empty lines, no final newline")
def _():
    r = run("--", "echo")
    equal((r.code, r.out, r.err), (0, b"", b""), r)
    r = run("--", "printf", "<%s>", data=b"\n\nx\n")
    equal((r.code, sorted(re.findall(b"<.*?>", r.out))), (0, [b"<>", b"<>", b"<x>"]), r)
    equal(sorted(run("--", "echo", data=b"a\nb").out.split()), [b"a", b"b"])


@case("a 0 byte fits no argument, but stdin")
def _():
    r = run("--", "echo", data=b"good\na\0b\nalso\n")
    equal((r.code, sorted(r.out.split())), (1, [b"also", b"good"]), r)
    check(b"line 2 failed: it has a 0 byte" in r.err and b"--stdin" in r.err, r)
    equal(run("--stdin", "--", "cat", data=b"a\0b\n").out, b"a\0b\n")


@case("a line of 100 MB fails by itself, in little memory")
def _():
    with open("long", "wb") as file:
        file.write(b"first\n")
        file.truncate(100 << 20)
        file.seek(0, 2)
        file.write(b"\nlast\n")
    with open("long", "rb") as file:
        r = Run("--", "echo", stdin=file).end()
    os.unlink("long")
    equal((r.code, sorted(r.out.split())), (1, [b"first", b"last"]), r)
    check(re.search(rb"line 2 failed: it has 10485\d\d\d\d bytes", r.err), r)
    check(sanitized() or r.memory_kb < MEMORY_KB + (32 << 10), r.memory_kb)


@case("a line too long for an argument fails, with the way out; --stdin takes it")
def _():
    data = b"x" * 300000 + b"\n"
    r = run("--", "echo", data=data)
    equal(r.code, 1, r)
    check(b"line 1 failed" in r.err and b"--stdin" in r.err, r)
    equal(run("--stdin", "--", "wc", "-c", data=data).out, b"300001\n")


@case("a terminal as input: a hint, then its lines")
def _():
    ours, theirs = pty.openpty()
    r = Run("--", "echo", "got", stdin=theirs)
    os.write(ours, b"line\n\x04")
    os.close(theirs)
    ended = r.end()
    os.close(ours)
    equal((ended.code, ended.out), (0, b"got line\n"), ended)
    check(b"Ctrl-D" in ended.err, ended)


@case("input that cannot be read")
def _():
    directory = os.open(".", os.O_RDONLY)
    r = Run("--", "echo", stdin=directory).end()
    os.close(directory)
    check(r.code == 1 and b"cannot be read" in r.err, r)
    r = subprocess.run([f"exec {MILLRACE} run -- echo <&-"], shell=True, capture_output=True)
    check(r.returncode == 1 and b"cannot be read" in r.stderr, r)


# ---- Order and number --------------------------------------------------------------------------

# Fails if another of its key runs; notes when it began and ended.
ALONE = ('mkdir "alone.$2" || exit 9; echo "begin $1" >>"log.$2"; echo "end $1" >>"log.$2"; '
         'rmdir "alone.$2"')


def check_alone(option, value, line_of):
    keys = ["a", "b", "c", "d"]
    rng = random.Random(7)
    pairs = [(n, rng.choice(keys)) for n in range(120)]
    r = run("--jobs", "6", option, value, "--", "sh", "-c", ALONE, "sh", "{#}", "{key}",
            data=[line_of(n, key) for n, key in pairs])
    equal((r.code, r.err), (0, b""), r)
    for key in keys:
        expected = [f"{what} {n + 1}" for n, k in pairs if k == key for what in ("begin", "end")]
        equal(lines_of(f"log.{key}"), expected)
        os.unlink(f"log.{key}")


@case("C7: lines of one key in order and never together, by field, regex and JSON")
def _():
    check_alone("--key-field", "2", lambda n, key: f"{n} {key} rest")
    check_alone("--key-regex", "key=([a-z])", lambda n, key: f"{n} key={key};")
    check_alone("--key-json", "user", lambda n, key: json.dumps({"n": n, "user": key}))


@case("lines without a key run independently; the first is reported, all are counted")
def _():
    meet = sh(WAIT + 'touch "$2"; wait_file 1; wait_file 3')
    keyed = ["--jobs", "3", "--key-field", "2"]
    data = b"one\nwith key\none\n"
    r = run(*keyed, "--json", *meet, "{}", "{#}", data=data)
    equal((r.code, json.loads(r.err.splitlines()[-1])["keyless"]), (0, 2), r)
    r = run(*keyed, *meet, "{}", "{#}", data=data)
    said = r.err.splitlines()
    check(r.code == 0 and b"line 1 has no key: --key-field finds none" in said[0], r)
    equal(said[1:], [b"millrace: run: 2 of 3 lines had no key"], r)
    r = run(*keyed, "--", "true", data=b"a b\n")
    equal((r.code, r.err), (0, b""), r)


# Counts itself in and out, and notes how many there were.
COUNTED = ('exec 9>lock; flock 9; n=$(($(cat count) + 1)); echo $n >count; echo $n >>counts; '
           'flock -u 9; {}; flock 9; echo $(($(cat count) - 1)) >count')


@case("A2: --jobs 3 runs three at once, and no more; -j and -P are short for it")
def _():
    meet = WAIT + COUNTED.format('touch "at.$1"; wait_file at.1; wait_file at.2; wait_file at.3')
    for three in ["--jobs", "3"], ["-j", "3"], ["-P3"]:
        with open("count", "w") as file:
            file.write("0\n")
        r = run(*three, *sh(meet), "{#}", data=range_lines(1, 30))
        equal(r.code, 0, r)
        equal(max(int(n) for n in lines_of("counts")), 3)
        for name in "at.1", "at.2", "at.3", "counts":
            os.unlink(name)


@case("output of a command is never mixed with another's")
def _():
    script = 'for i in 1 2 3 4; do head -c 9000 /dev/zero | tr "\\0" "$1"; done; echo'
    r = run("--jobs", "4", *sh(script), data=[chr(97 + n % 26) for n in range(60)])
    equal(r.code, 0, r)
    for line in r.out.splitlines():
        equal((len(line), len(set(line))), (36000, 1))
    equal(len(r.out.splitlines()), 60)


@case("stdout and stderr stay apart")
def _():
    r = run(*sh('echo "out $1"; echo "err $1" >&2'), data=[1, 2])
    equal(sorted(r.out.splitlines()), [b"out 1", b"out 2"], r)
    equal(sorted(r.err.splitlines()), [b"err 1", b"err 2"], r)


@case("--keep-order: output in order, workers run ahead of a slow line, but not without bound")
def _():
    script = ('echo "begin $1" >>log; [ $1 = 1000 ] && touch far; '
              '[ $1 = 1 ] && { wait_file far; echo "end 1" >>log; }; echo $1')
    r = run("--jobs", "2", "--keep-order", *sh(WAIT + script), data=range_lines(1, 1200))
    equal((r.code, numbers(r.out)), (0, range_lines(1, 1200)), r)
    log = lines_of("log")
    check(log.index("begin 1000") < log.index("end 1") < log.index("begin 1025"))


@case("--keep-order holds large output in files")
def _():
    script = '[ $1 = 1 ] && wait_file far; head -c 600000 /dev/zero; [ $1 = 60 ] && touch far; :'
    r = run("--jobs", "2", "-k", *sh(WAIT + script + "; echo $1"),
            data=range_lines(1, 60))
    equal(r.code, 0, r)
    equal(numbers(r.out.replace(b"\0", b"")), range_lines(1, 60))
    equal(len(r.out), 60 * 600000 + len("".join(f"{n}\n" for n in range_lines(1, 60))))
    check(sanitized() or r.memory_kb < MEMORY_KB, r.memory_kb)


@case("D4: input is read as it is worked off: endless lines, flat memory")
def _():
    lines = 1000 if sanitized() else 5000  # with a sanitizer a process takes long to start
    if LONG:
        more = ["--deadline", f"{SECONDS}s"]
        script, code = ["--", "true"], 124
    else:
        more = ["--halt", "soon"]
        script, code = ["--", "test", "{#}", "-lt", str(lines)], 1
    endless = subprocess.Popen(["yes", "x" * 1000], stdout=subprocess.PIPE)
    r = Run("--jobs", "2", "--json", *more, *script, stdin=endless.stdout)
    endless.stdout.close()
    ended = r.end()
    endless.wait()
    equal(ended.code, code, ended)
    summary = json.loads(ended.err.splitlines()[-1])
    check(LONG or summary["done"] >= lines - 1, summary)
    check(summary["read"] - summary["done"] < 20000, summary)
    check(sanitized() or ended.memory_kb < MEMORY_KB, ended.memory_kb)


def resident_kb(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 10


@case("D4: a million lines take no more memory than the first of them")
def _():
    lines = 1000000 if LONG and not sanitized() else 100000
    block, early = 1000, max(lines // 10, 50000)  # by then the window has long been full
    out, resident = open("out", "wb"), {}
    r = Run("--jobs", "2", "--key-field", "1", "--json", "--", "echo", program=INSTANT,
                stdout=out)
    for first in range(0, lines, block):
        r.feed(b"".join(b"%d %d\n" % (n % 997, n) for n in range(first, first + block)))
        if first + block in (early, lines):
            resident[first + block] = resident_kb(r.process.pid)
    ended = r.end()
    equal(ended.code, 0, ended)
    summary = json.loads(ended.err.splitlines()[-1])
    equal((summary["read"], summary["done"]), (lines, lines), summary)
    out.close()
    following = list(range(997))  # by key
    with open("out", "rb") as file:  # line by line: our own memory would count for later commands
        for key, n in (map(int, line.split()) for line in file):
            equal(n, following[key], f"of key {key}")
            following[key] += 997
    equal(sum(n // 997 for n in following), lines)
    check(sanitized() or resident[lines] < resident[early] + MEMORY_GROWS_KB, resident)


@case("D7: contexts, create, send: the last step slow, nothing overflows")
def _():
    create = subprocess.Popen([MILLRACE, "run", "--jobs", "2", "--", "echo", "mail"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    send = Run("--jobs", "1", "--", "echo", "sent", stdin=create.stdout)
    create.stdout.close()
    create.communicate(b"".join(b"%d\n" % n for n in range(400)))
    ended = send.end()
    equal((create.returncode, ended.code), (0, 0), ended)
    equal(sorted(int(l.split()[-1]) for l in ended.out.splitlines()), list(range(400)))


# ---- Failures ----------------------------------------------------------------------------------


@case("exit code 1 if any line failed; the others are done")
def _():
    r = run(*sh('echo $1; [ $1 != 2 ]'), data=[1, 2, 3])
    equal((r.code, sorted(numbers(r.out))), (1, [1, 2, 3]), r)
    check(b"line 2 failed: exit code 1" in r.err and b"2 done, 1 failed" in r.err, r)


@case("many failures are not reported one by one")
def _():
    r = run("--", "false", data=range_lines(1, 50))
    equal(r.code, 1, r)
    equal(len(re.findall(rb"line \d+ failed", r.err)), 10)
    check(b"only counted" in r.err and b"0 done, 50 failed" in r.err, r)


@case("A8: --retries: again after a backoff, and not for ever; shown is the last attempt")
def _():
    script = 'echo >>"tries.$1"; n=$(wc -l <"tries.$1"); echo "try $n of $1"; [ $n = 3 ]'
    r = run("--retries", "2", *sh(script), data=["a", "b"])
    equal((r.code, sorted(r.out.splitlines())), (0, [b"try 3 of a", b"try 3 of b"]), r)
    r = run("--retries", "1", "--json", *sh(script), data=["c"])
    equal((r.code, r.out), (1, b"try 2 of c\n"), r)
    equal(json.loads(r.err.splitlines()[-1])["retried"], 1)


@case("a retried line keeps its place among those of its key")
def _():
    script = 'echo $1 >>log; [ $1 != 1 ] || [ "$(grep -c 1 log)" = 2 ]'
    r = run("--jobs", "2", "--retries", "1", "--key-regex", "key", *sh(script), "{#}",
            data=["key"] * 3)
    equal((r.code, lines_of("log")), (0, ["1", "1", "2", "3"]), r)


@case("a missing or not executable command is reported once, before input is read")
def _():
    with open("plain", "w") as file:
        file.write("#!/bin/sh\n")
    for command, said in (("nosuch", b"no command 'nosuch'"), ("./nosuch", b"no command"),
                          ("./plain", b"not executable"), ("", b"no command ''"),
                          ("echo {} >out", b"millrace run -- sh -c 'SCRIPT' sh")):
        ended = Run("--", command).end(close=False)
        equal((ended.code, ended.out, ended.err.count(b"\n")), (2, b"", 1), ended)
        check(said in ended.err, ended)


# What would run a command if a shell ever read it, in each of its ways.
HOSTILE = ["; touch own", "$(touch own)", "`touch own`", "' ; touch own ; '", '" ; touch own ; "',
           "& touch own", "| touch own", "\\\"; touch own; \\'", "a/$(touch own)/b;touch own.c", "-n", "*"]


@case("U1: in a shell's script every placeholder is a variable: nothing of a line or key is run")
def _():
    data = "".join(line + "\0" for line in HOSTILE + ["two\ntouch own"]).encode()
    places = ["{}", "{.}", "{/}", "{//}", "{/.}", "{key}", "{#}", "{id}"]
    for script in [f"printf '%s\\n' {place}" for place in places] + [f'printf "%s\\n" "{place}"' for place in places]:
        for command in (["sh", "-c", script], ["env", "A=1", "bash", "-ec", script], ["/bin/sh", "-c", script, "sh"]):
            r = run("-0", "-k", "--key-regex", ".*", "--", *command, data=data)
            equal(r.code, 0, script, r)
            if "{}" in script or "{key}" in script:
                shown = data if "{}" in script else data.replace(b"two\ntouch own", b"two")
                check(r.out == shown.replace(b"\0", b"\n") or "{key}" in script, script, r)
    check(not os.path.exists("own"), os.listdir("."))


@case("U1: common scripts run as written, in each shell, and run nothing of a line")
def _():
    scripts = {
        "echo {} >>seen; cat seen; : >seen": "{}\n",
        "[ {} = x ] || printf '<%s>' \"a {}\"": "<a {}>",
        "if [ -n {} ]; then (echo {}) | cat; fi": "{}\n",
        "case {} in none) exit 3 ;; *) echo {} ;; esac": "{}\n",
        "echo \"$(printf %s {})\"": "{}\n",
        "for i in 1 2; do { echo {}; }; done | \\\n sort -u": "{}\n",
        "echo a >{#}.in; while read -r l; do echo \"$l {}\"; done <{#}.in; rm -- {#}.in": "a {}\n",
    }
    lines = ["; touch own", "$(touch own)", "`touch own`", "' ; touch own ; '", '" ; touch own ; "', "a[$(touch own)]"]
    for shell in ("sh", "bash"):
        for script, shown in scripts.items():
            r = run("-k", "--jobs", "1", "--", shell, "-c", script, data=lines)
            equal((r.code, r.out.decode()), (0, "".join(shown.replace("{}", line) for line in lines)), script, r)
    check(not os.path.exists("own"), os.listdir("."))


@case("U1: a placeholder that would become part of a script is refused with the way out, which works")
def _():
    for command in (["sh", "-c", "echo '{}'"], ["sh", "-c", "{}"], ["sh", "-c"], ["bash", "-c", "echo $(({}))"],
                    ["python3", "-c", "print('{}')"], ["ssh", "host", "echo", "{}"], ["ssh", "host", "echo"],
                    ["awk", "{}"], ["sh", "-c", "eval echo {}"], ["sh", "-c", "ev\\al {}"],
                    ["sh", "-c", "timeout 5 {}"], ["sh", "-c", "alias x={}\nx"], ["bash", "-c", "x={}; echo ${x@P}"],
                    ["bash", "-c", "PS4={}; set -x; :"], ["sh", "-c", ">out {}"], ["sh", "-c", "for x in {}; do $x; done"]):
        r = run("--", *command, data=HOSTILE)
        check(r.code == 2 and b"sh -c 'SCRIPT' sh {}" in r.err and r.out == b"", command, r)
    r = run("-k", "--", "sh", "-c", "printf '%s\\n' \"$1\"", "sh", "{}", data=HOSTILE)
    equal(r.out.decode().splitlines(), HOSTILE, r)
    r = run("--stdin", "--", "sh", data=["echo this is a script"])
    equal(r.out, b"this is a script\n", r)
    check(not os.path.exists("own"), os.listdir("."))


@case("a command that cannot be started is not reported for each line")
def _():
    with open("odd", "w") as file:
        file.write("#!/nosuch/interpreter\n")
    os.chmod("odd", 0o755)
    r = run("--jobs", "2", "--", "./odd", data=range_lines(1, 100))
    equal((r.code, r.err.count(b"\n")), (2, 1), r)


@case("killed by a signal")
def _():
    r = run(*sh("kill -9 $$"), data=[1])
    equal(r.code, 1, r)
    check(b"killed by signal 9" in r.err, r)


@case("A9: --timeout ends what takes too long, also what is stopped or ignores TERM")
def _():
    scripts = ["sleep 1000", "kill -STOP $$", "trap '' TERM; while :; do sleep 1; done"]
    r = run("--jobs", "3", "--timeout", "300ms", *sh('eval "$1"'), data=scripts)
    equal((r.code, r.err.count(b"timed out after 300 ms")), (1, 3), r)


@case("200 MB of output pass, in little memory")
def _():
    with open("flood", "wb") as file:
        r = run("--", "head", "-c", "200M", data=b"/dev/zero\n", stdout=file)
    equal((r.code, os.path.getsize("flood")), (0, 200 << 20), r)
    os.unlink("flood")
    check(sanitized() or r.memory_kb < MEMORY_KB, r.memory_kb)


@case("a command need not read its stdin")
def _():
    r = run("--stdin", "--", "true", data=b"x" * (15 << 20) + b"\n")
    equal((r.code, r.err), (0, b""), r)


@case("a forked process delays no other line, and a job leaves nothing running")
def _():
    r = run(*sh("sleep 1000 & echo $!"), data=[1])
    equal(r.code, 0, r)
    wait_until(lambda: is_gone(int(r.out)), "its child is gone")
    r = run(*sh(WAIT + "setsid sh -c 'touch away; exec sleep 1000' & wait_file away; echo $!"), data=[1])
    equal(r.code, 0, r)
    check(is_gone(int(r.out)), "it has a session of its own, and ends all the same")


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@case("lines after a failed one of the same key still run")
def _():
    r = run("--jobs", "2", "--key-regex", "key", *sh('echo $1; [ $1 != 1 ]'), "{#}",
            data=["key"] * 3)
    equal((r.code, numbers(r.out)), (1, [1, 2, 3]), r)


@case("--halt soon starts nothing more; now also ends running lines; never continues")
def _():
    r = run("--jobs", "1", "--halt", "soon", *sh('echo $1; [ $1 != 2 ]'), data=range_lines(1, 5))
    equal((r.code, numbers(r.out)), (1, [1, 2]), r)
    both = WAIT + '[ $1 = 1 ] && { touch up; sleep 1000; }; wait_file up; false'
    r = run("--jobs", "2", "--halt", "now", *sh(both), data=[1, 2])
    equal(r.code, 1, r)
    check(b"line 2 failed" in r.err and b"line 1 failed" not in r.err, r)
    r = run("--jobs", "1", "--halt", "never", *sh('echo $1; [ $1 != 2 ]'), data=[1, 2, 3])
    equal((r.code, numbers(r.out)), (1, [1, 2, 3]), r)


@case("--deadline ends all of it, with 124")
def _():
    r = run("--jobs", "2", "--deadline", "300ms", "--", "sleep", data=[1000] * 5)
    equal(r.code, 124, r)
    check(b"deadline" in r.err, r)
    equal(Run("--deadline", "200ms", "--", "true").end(close=False).code, 124)


# ---- Emit and state ----------------------------------------------------------------------------

# Prints how many of the key there were, this one included.
COUNT = 'n=$("$MILLRACE" state); n=$((n + 1)); echo $n | "$MILLRACE" state --set -; echo "$1 $n"'
os.environ["MILLRACE"] = MILLRACE


@case("R11: a key's state goes from line to line, and not from an attempt that failed")
def _():
    script = COUNT + '; echo >>"tries.$2"; [ "$2" != 5 ] || [ "$(wc -l <tries.5)" = 2 ]'
    r = run("--jobs", "2", "--retries", "1", "--key-field", "1", *sh(script), "{key}", "{#}",
            data=["a", "b"] * 6)
    expected = sorted(b"%s %d" % (k, n) for k in (b"a", b"b") for n in range(1, 7))
    equal((r.code, sorted(r.out.splitlines())), (0, expected), r)


@case("R10: what a command emits is run with the same command, once it has ended well")
def _():
    script = 'echo $1; [ $1 = 0 ] || "$MILLRACE" emit run --key k $(($1 - 1))'
    r = run("--jobs", "2", *sh(script), data=[3, 2])
    equal((r.code, sorted(numbers(r.out))), (0, [0, 0, 1, 1, 2, 2, 3]), r)
    r = run("--jobs", "2", *sh(script + "; false"), data=[3])
    equal((r.code, numbers(r.out)), (1, [3]), r)


@case("emits to a stage without a worker are refused")
def _():
    r = run(*sh('"$MILLRACE" emit elsewhere x'), data=[1])
    check(r.code == 1 and b"stage 'elsewhere'" in r.err, r)
    for journal in [], ["--journal", "journal"]:
        r = run("--keep-order", *journal, *sh('echo $1; "$MILLRACE" emit run x'), data=[1])
        check(r.code == 1 and r.out == b"1\n" and b"--keep-order" in r.err, r)


@case("a line whose emit is refused leaves the state of its key as it was")
def _():
    script = '"$MILLRACE" state; [ $2 = 2 ] || { "$MILLRACE" state --set new; "$MILLRACE" emit run x; }; echo $2'
    for more in [], ["--keep-order"], ["--keep-order", "--journal", "journal"]:
        emits = script if more else script.replace("emit run", "emit elsewhere")
        r = run("--jobs", "1", *more, "--key-field", "1", *sh(emits + "; :"), "{key}", "{#}", data=["k 1", "k 2"])
        equal((r.code, r.out), (1, b"1\n2\n"), more, r)


@case("the next run removes the directory of a killed one, and no other")
def _():
    for name in "tmp", "tmp/millrace-other":
        os.mkdir(name)
    left = lambda: sorted(set(os.listdir("tmp")) - {"millrace-other"})
    environment = {**os.environ, "TMPDIR": os.path.abspath("tmp")}
    runs = [Run("--", "echo", env=environment) for _ in range(2)]
    for r in runs:  # both are there, and hold what is theirs
        r.feed(b"1\n")
        wait_in(r.out, b"1\n")
    equal(len(left()), 2)
    runs[0].signal(signal.SIGKILL)
    runs[0].end()
    equal(len(left()), 2)
    equal(run("--", "true", data=[1], env=environment).code, 0)
    equal(len(left()), 1)
    equal(runs[1].end().code, 0)
    equal(os.listdir("tmp"), ["millrace-other"])


# ---- Signals and output ------------------------------------------------------------------------


@case("D6: Ctrl-C, or TERM: starts no more, what runs may finish; 130")
def _():
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        for name in "up", "go":
            if os.path.exists(name):
                os.unlink(name)
        r = Run("--jobs", "1", *sh(WAIT + 'touch up; wait_file go; echo "end $1"'))
        r.feed(b"1\n2\n")
        wait_for("up")
        r.signal(number)
        wait_in(r.err, b"what runs may finish")
        with open("go", "w"):
            pass
        ended = r.end()
        equal((ended.code, ended.out), (130, b"end 1\n"), ended)


@case("a signal that was ignored when it was started (nohup) stays ignored")
def _():
    for number in signal.SIGHUP, signal.SIGINT:
        before = signal.signal(number, signal.SIG_IGN)  # as its children inherit it
        r = Run("--jobs", "1", "--", "echo")
        signal.signal(number, before)
        r.feed(b"1\n")
        wait_in(r.out, b"1\n")
        r.signal(number)
        r.feed(b"2\n")
        ended = r.end()
        equal((ended.code, ended.out, ended.err), (0, b"1\n2\n", b""), ended)


def interrupt_twice(r):
    """Signals that follow one another closely are one: so they are sent until the second counts."""
    def ends():
        r.signal(signal.SIGINT)
        return b"ending what runs" in os.pread(r.err.fileno(), 1 << 20, 0)
    r.signal(signal.SIGINT)
    wait_in(r.err, b"what runs may finish")
    wait_until(ends, "a second signal")


@case("A9: a second Ctrl-C ends what runs, also what ignores TERM")
def _():
    r = Run("--jobs", "2", *sh("trap '' TERM; touch \"up.$1\"; while :; do sleep 1; done"))
    r.feed(b"1\n2\n")
    wait_for("up.1")
    wait_for("up.2")
    interrupt_twice(r)
    ended = r.end()
    equal(ended.code, 130, ended)


@case("U10: what a command leaves in sessions of its own ends with it, and nothing of other commands")
def _():
    leaves = ('setsid sh -c "echo \\$\\$ >>left; sleep 1000 & echo \\$! >>left; touch up.$1; wait" & '
              'wait_file up.$1; ')
    script = WAIT + leaves + '[ $1 = 1 ] && exit; wait_file go; kill -0 $! && echo alive'
    r = Run("--jobs", "2", *sh(script))
    r.feed(b"1\n2\n")
    wait_for("up.2")
    wait_until(lambda: len(lines_of("left")) == 4 and sum(is_gone(int(p)) for p in lines_of("left")) == 2,
               "what the first has left is gone")
    with open("go", "w"):
        pass
    ended = r.end()
    equal((ended.code, ended.out), (0, b"alive\n"), ended)
    check(all(is_gone(int(pid)) for pid in lines_of("left")), lines_of("left"))


@case("Ctrl-C while nothing runs ends at once")
def _():
    r = Run("--", "echo")
    r.feed(b"1\n")
    wait_in(r.out, b"1\n")
    r.signal(signal.SIGINT)
    equal(r.end(close=False).code, 130)


@case("it stops quietly when its output is closed")
def _():
    reader, writer = os.pipe()
    r = Run("--jobs", "1", "--", "echo", stdout=writer)
    os.close(writer)
    os.close(reader)
    r.feed(b"1\n2\n3\n")
    ended = r.end()
    equal((ended.code, ended.err), (130, b""), ended)


@case("a stalled reader delays the end only for a while")
def _():
    reader, writer = os.pipe()
    r = Run("--jobs", "1", *sh("head -c 1000000 /dev/zero"), stdout=writer)
    os.close(writer)
    r.feed(b"1\n2\n")
    os.read(reader, 1)  # it has begun to print
    interrupt_twice(r)
    ended = r.end(close=False)
    os.close(reader)
    check(ended.code == 130 and b"leaving without it" in ended.err, ended)


@case("output that cannot be written is a failure")
def _():
    with open("/dev/full", "wb") as full:
        for order in [], ["--keep-order"]:
            r = run("--jobs", "1", *order, "--", "echo", data=[1, 2, 3], stdout=full)
            check(r.code == 1 and b"could not be written" in r.err, r)


@case("--results: stdout, stderr and status of each line, in a directory of their own")
def _():
    script = 'echo "out $1"; echo "err $1" >&2; exit $1'
    r = run("--results", "results", *sh(script), data=[0, 3])
    equal((r.code, sorted(r.out.splitlines())), (1, [b"out 0", b"out 3"]), r)
    equal(sorted(os.listdir("results")), ["1", "2"])
    equal(lines_of("results/1/stdout"), ["out 0"])
    equal(lines_of("results/2/stderr"), ["err 3"])
    equal(lines_of("results/1/status"), ["0"])
    equal(lines_of("results/2/status"), ["3 exit code 3: err 3"])
    r = run("--results", "results", *sh("kill -9 $$"), data=[1])
    check(r.code == 3 and b"results is not empty" in r.err and b"name a new" in r.err, r)
    equal(lines_of("results/1/status"), ["0"])
    os.mkdir("empty")
    run("--results", "empty", *sh("kill -9 $$"), data=[1])
    equal(lines_of("empty/1/status")[0].split()[0], "137")
    open("file", "w").close()
    r = run("--results", "file", "--", "true", data=[1])
    check(r.code == 3 and b"results: file is no directory" in r.err, r)
    r = run("--results", "/proc/nosuch", "--", "true", data=[1])
    check(r.code == 3 and b"results" in r.err, r)


@case("--json: the summary is the last line of stderr")
def _():
    r = run("--json", "--jobs", "2", *sh('echo noise >&2; [ $1 != 2 ]'), data=[1, 2, 3])
    s = json.loads(r.err.splitlines()[-1])
    equal((s["read"], s["done"], s["failed"], s["complete"], s["exit"]), (3, 2, 1, True, 1), s)
    equal(s["levels"], [2])
    check(s["job-p50-us"] <= s["job-p95-us"], s)
    check(not any("_" in name for name in s), "names are hyphenated, as on the wire", s)


@case("--progress without a terminal is a summary; without it there is nothing to say")
def _():
    r = run("--progress", "--", "true", data=[1, 2])
    check(re.fullmatch(rb"millrace: 2 done, 0 failed in .*\n", r.err), r)
    equal(run("--", "true", data=[1, 2]).err, b"")


@case("a bar on a terminal, cleared before anything else is written there")
def _():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": ""}
    script = WAIT + '[ $1 = 2 ] && wait_file go; echo "word $1" >&2'
    r = Run("--jobs", "1", *sh(script), stderr=theirs, env=environment)
    os.close(theirs)
    r.feed(b"1\n2\n3\n")
    seen = read_until(ours, rb"\r1 done, 3 read  [\d.]+/s  1 at once\x1b\[K")
    with open("go", "w"):
        pass
    r.process.stdin.close()
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the other side is closed
    equal(r.end().code, 0, seen)
    os.close(ours)
    check(re.search(rb"\r\x1b\[Kword 2", seen), seen)
    check(seen.endswith(b"\n") or seen.endswith(b"\r\x1b[K"), seen)


@case("a bar does not write over what a command has left unfinished")
def _():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": ""}
    script = WAIT + 'wait_file go.$1; [ $1 = 1 ] && printf part || echo whole'
    r = Run("--jobs", "1", "--progress", *sh(script), stdout=theirs, stderr=theirs,
                env=environment)
    os.close(theirs)
    r.feed(b"1\n2\n3\n")
    seen = b""
    for number, until in ((1, b" at once"), (2, b"part"), (3, rb"whole\r\n\r\d done, 3 read"), (0, b"3 done")):
        seen = read_until(ours, until, seen)
        with open(f"go.{number}", "w"):
            pass
        if number == 3:
            r.process.stdin.close()
    equal(r.end().code, 0, seen)
    os.close(ours)
    check(b"partwhole\r\n" in seen, seen)


@case("G11: below the bar, running lines whose commands say how far they are: five at most, taken off when they end")
def _():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "", "MILLRACE": MILLRACE}
    script = WAIT + 'set -- $1; "$MILLRACE" progress $2 $3 $4; wait_file go'
    r = Run("--jobs", "7", "--key-field", "1", *sh(script), stderr=theirs, env=environment)
    os.close(theirs)
    r.feed(b"ann 3 12 pages\nbob 7 0\n")
    seen = read_until(ours, rb" at once\x1b\[K\r\n  ann \[#####\.{15}\] 3 of 12 pages\x1b\[K\r\n  bob 7\x1b\[K")
    r.feed(b"".join(b"more%d 1 2\n" % n for n in range(5)))
    lines = rb"(\r\n  (?!ann|bob)\w+ \[#{10}\.{10}\] 1 of 2\x1b\[K)"
    seen = read_until(ours, rb"at once\x1b\[K(\r\n  [^\r\n]*\x1b\[K){5}\r\x1b\[5A", seen)
    check(not re.search(rb"at once\x1b\[K(\r\n  [^\r\n]*\x1b\[K){6}", seen) and re.search(lines, seen), seen)
    before = len(seen)
    with open("go", "w"):
        pass
    r.process.stdin.close()
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the other side is closed
    equal(r.end().code, 0, seen)
    os.close(ours)
    check(b"\x1b[J" in seen[before:] and seen.endswith((b"\x1b[J", b"\x1b[K")), seen)


# ---- Journals ----------------------------------------------------------------------------------


@case("a command that the system cannot start for lack of resources is reported once, and tried again")
def _():
    r = Run("--jobs", "1", "--", "echo")
    r.feed(b"1\n")
    wait_in(r.out, b"1\n")  # shown when all of it was read that its command has left
    limits = resource.prlimit(r.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(r.process.pid, resource.RLIMIT_NOFILE, (8, limits[1]))  # which it keeps open itself
    r.feed(b"2\n3\n")
    wait_in(r.err, b"millrace: run: no command can be started: ")
    resource.prlimit(r.process.pid, resource.RLIMIT_NOFILE, limits)
    r = r.end()
    equal((r.code, r.err.count(b"\n")), (0, 1), r)
    check(b"Too many open files; trying again" in r.err and r.out == b"1\n2\n3\n", r)


def interrupt(*arguments, data, after="up", **more):
    """Ctrl-C when `after` is there; the command then waits for `go`."""
    r = Run(*arguments, **more)
    r.feed(data)
    wait_for(after)
    r.signal(signal.SIGINT)
    wait_in(r.err, b"what runs may finish")
    with open("go", "w"):
        pass
    return r.end()


SLOW = WAIT + 'echo $1 >>log; [ $1 = 3 ] && { touch up; wait_file go; }; echo $1'
SIX = b"1\n2\n3\n4\n5\n6\n"


@case("D5: an interrupted journal continues and repeats no finished line")
def _():
    for order in [], ["--keep-order"]:
        for name in "up", "go", "log":
            if os.path.exists(name):
                os.unlink(name)
        journal = ["--jobs", "1", "--journal", "journal", *order]
        first = interrupt(*journal, *sh(SLOW), data=SIX)
        equal((first.code, numbers(first.out)), (130, [1, 2, 3]), first)
        check(b"goes on from here" in first.err, first)
        second = run(*journal, "--json", *sh(SLOW), data=SIX)
        equal((second.code, numbers(second.out)), (0, [4, 5, 6]), second)
        equal(json.loads(second.err)["ended-before"], 3)
        equal(lines_of("log"), list("123456"))
        check(not os.path.exists("journal"))


@case("a journal continues with its own --results")
def _():
    journal = ["--jobs", "1", "--journal", "journal"]
    interrupt(*journal, "--results", "results", *sh(SLOW), data=SIX)
    equal(sorted(os.listdir("results")), ["1", "2", "3"])
    r = run(*journal, "--results", "others", *sh(SLOW), data=SIX)
    check(r.code == 3 and b"--results others" in r.err, r)
    r = run(*journal, "--results", "results", *sh(SLOW), data=SIX)
    equal((r.code, sorted(os.listdir("results"))), (0, list("123456")), r)


@case("a power cut that takes the mark of --keep-order: lines are shown again, none is run again")
def _():
    journal = ["--jobs", "1", "--journal", "journal", "--keep-order"]
    interrupt(*journal, *sh(SLOW), data=SIX)
    os.unlink("journal/printed")
    r = run(*journal, *sh(SLOW), data=SIX)
    equal((r.code, numbers(r.out)), (0, [1, 2, 3, 4, 5, 6]), r)
    equal(lines_of("log"), list("123456"))


@case("a journal that has finished starts afresh")
def _():
    for _ in range(2):
        r = run("--journal", "journal", "--jobs", "1", "--", "echo", data=[1, 2])
        equal((r.code, numbers(r.out)), (0, [1, 2]), r)


@case("lines that have failed stay failed when a journal continues")
def _():
    for order in [], ["--keep-order"]:
        for name in "up", "go", "log":
            if os.path.exists(name):
                os.unlink(name)
        script = SLOW + "; [ $1 != 2 ]"
        journal = ["--jobs", "1", "--journal", "journal", *order]
        equal(interrupt(*journal, *sh(script), data=SIX).code, 130)
        r = run(*journal, "--json", *sh(script), data=SIX)
        equal((r.code, numbers(r.out)), (1, [4, 5, 6]), r)
        summary = json.loads(r.err.splitlines()[-1])
        equal((summary["done"], summary["failed"], summary["complete"]), (5, 1, True))
        shutil.rmtree("journal")


@case("U13: a journal that has finished with failures keeps them, and the same command tries only those again")
def _():
    script = 'echo $1; [ -e good ] || [ $(($1 % 2)) = 1 ] || { echo "no even $1" >&2; exit 7; }'
    for order in [], ["--keep-order"]:
        arguments = ["--jobs", "1", "--journal", "journal", "--results", "results", *order, *sh(script)]
        for expected in [1, 2, 3, 4, 5], [2, 4], [2, 4]:
            r = run("--json", *arguments, data=[1, 2, 3, 4, 5])
            equal((r.code, numbers(r.out)), (1, expected), order, r)
            check(b"journal/failed lists the lines that failed; the same command tries only those again" in r.err, r)
            equal(lines_of("journal/failed"), [f"{n}\texit code 7: no even {n}\t{n}" for n in (2, 4)])
            summary = json.loads(r.err.splitlines()[-1])
            equal([summary[n] for n in ("read", "done", "failed", "complete")], [5, 3, 2, True], order, r)
        with open("good", "w"):
            pass
        r = run(*arguments, data=[1, 2, 3, 4, 5, 6])
        equal((r.code, numbers(r.out), os.path.exists("journal")), (0, [2, 4, 6], False), order, r)
        equal(sorted(os.listdir("results")), ["1", "2", "3", "4", "5", "6"])
        os.unlink("good")
        shutil.rmtree("results")


@case("U13: with --keep-order many lines are tried again, some fail again, and new ones fail after them")
def _():
    script = 'echo $1; [ $(($1 % $(cat fails))) != 0 ]'
    arguments = ["--keep-order", "--jobs", "4", "--journal", "journal", *sh(script)]
    def fails(n, count, expected):
        with open("fails", "w") as file:
            file.write(str(n))
        r = run(*arguments, data=[*range(1, count + 1)])
        equal((r.code, r.out), (1, b"".join(b"%d\n" % n for n in expected)), r)
    fails(2, 600, range(1, 601))
    fails(4, 600, range(2, 601, 2))
    fails(4, 640, [*range(4, 601, 4), *range(601, 641)])
    fails(640, 640, [*range(4, 601, 4), *range(604, 641, 4)])
    equal([line.split("\t")[0] for line in lines_of("journal/failed")], ["640"])
    r = run(*arguments, data=[*range(1, 640)])
    check(r.code == 3 and b"but this journal has read 640" in r.err, r)


@case("U13: a line that is tried again with --keep-order finds the state of its key")
def _():
    arguments = ["--keep-order", "--jobs", "1", "--journal", "journal", "--key-field", "1",
                 *sh(COUNT + '; [ -e good ] || [ "$1" != "k 2" ]')]
    data = b"k 1\nk 2\nk 3\n"
    r = run(*arguments, data=data)
    equal((r.code, r.out), (1, b"k 1 1\nk 2 2\nk 3 2\n"), r)
    with open("good", "w"):
        pass
    r = run(*arguments, data=data)
    equal((r.code, r.out), (0, b"k 2 3\n"), r)


@case("U13: a round that tries lines again with --keep-order is interrupted, and continues")
def _():
    arguments = ["--keep-order", "--jobs", "1", "--journal", "journal"]
    script = "[ -e second ] || exit 1; " + SLOW
    equal(run(*arguments, *sh(script), data=SIX).code, 1)
    with open("second", "w"):
        pass
    first = interrupt(*arguments, *sh(script), data=SIX)
    equal((first.code, numbers(first.out)), (130, [1, 2, 3]), first)
    second = run(*arguments, *sh(script), data=SIX)
    equal((second.code, numbers(second.out), os.path.exists("journal")), (0, [4, 5, 6], False), second)


@case("U13: a failed line is shown with its text, and what it wrote to stderr once")
def _():
    r = run(*sh("echo complaint of $1 >&2; exit 3"), data=["some text\x1b[2J"])
    said = r.err.decode()
    check("line 1 failed: exit code 3; the line is 'some text\\x1b[2J'\n" in said, r)
    equal(said.count("complaint"), 1, r)


@case("U13: an interrupted run warns that > would empty the output file, and >> would not")
def _():
    for mode, warns in ("wb", True), ("ab", False):
        for name in "up", "go", "log":
            if os.path.exists(name):
                os.unlink(name)
        with open("out", mode) as out:
            r = interrupt("--jobs", "1", "--journal", "journal", *sh(SLOW), data=SIX, stdout=out)
        equal((r.code, b"use >> to keep" in r.err), (130, warns), r)
        shutil.rmtree("journal")


def sums(folder):
    found = {}
    for where, _, names in os.walk(folder):
        for name in set(names) - {"lock"}:  # which names the last process
            with open(os.path.join(where, name), "rb") as file:
                found[os.path.join(where, name)] = file.read()
    return found


@case("a journal of other input, another command or other keys is refused, and continues later")
def _():
    journal = ["--jobs", "1", "--journal", "journal"]
    interrupt(*journal, *sh(SLOW), data=SIX)
    r = run(*journal, *sh(SLOW), data=b"1\n2\nx\n4\n5\n6\n")
    check(r.code == 3 and b"line 3 differs from what this journal has read" in r.err, r)
    r = run(*journal, *sh(SLOW), data=b"1\n2\n")
    check(r.code == 3 and b"ends with line 2" in r.err, r)
    r = run(*journal, "--", "cat", data=SIX)
    check(r.code == 3 and b"another run" in r.err and b"'command cat'" in r.err, r)
    r = run(*journal, "--key-field", "1", *sh(SLOW), data=SIX)
    check(r.code == 3 and b"--key-field 1" in r.err, r)
    r = run(*journal, "--keep-order", *sh(SLOW), data=SIX)
    check(r.code == 3 and b"--keep-order" in r.err, r)
    r = run(*journal, "-0", *sh(SLOW), data=SIX)
    check(r.code == 3, r)
    r = run(*journal, *sh(SLOW), data=SIX + b"7\n")
    equal((r.code, numbers(r.out)), (0, [4, 5, 6, 7]), r)
    equal(lines_of("log"), list("1234567"))


@case("what is no journal is left alone")
def _():
    os.mkdir("foreign")
    with open("foreign/letter", "w") as file:
        file.write("dear")
    r = run("--journal", "foreign", "--", "echo", data=[1])
    check(r.code == 3 and b"no journal" in r.err and b"letter" in r.err, r)
    equal(os.listdir("foreign"), ["letter"])
    r = run("--journal", "foreign/letter", "--", "echo", data=[1])
    equal(r.code, 3, r)
    r = run("--journal", "/proc/nosuch/x", "--", "echo", data=[1])
    equal(r.code, 3, r)


@case("a damaged journal: a sentence with the way out, and nothing lost")
def _():
    journal = ["--jobs", "1", "--journal", "journal"]
    interrupt(*journal, *sh(SLOW), data=SIX)
    segment = next(os.path.join("journal/store", n) for n in os.listdir("journal/store")
                   if n.endswith(".seg"))
    with open(segment, "r+b") as file:
        file.seek(200)
        byte = file.read(1)[0]
        file.seek(200)
        file.write(bytes([byte ^ 0x55]))
    before = sums("journal")
    r = run(*journal, *sh(SLOW), data=SIX)
    check(r.code == 3 and b"millrace store check file:journal/store" in r.err, r)
    equal(sums("journal"), before)
    equal(lines_of("log"), list("123"))
    os.truncate("journal/lines", 8)
    with open(segment, "r+b") as file:
        file.seek(200)
        file.write(bytes([byte]))
    r = run(*journal, *sh(SLOW), data=SIX)
    check(r.code == 3 and b"damaged" in r.err, r)
    equal(lines_of("log"), list("123"))


@case("store check of a journal names its store, which is undamaged")
def _():
    interrupt("--jobs", "1", "--journal", "journal", *sh(SLOW), data=SIX)
    check_store = lambda url: subprocess.run([MILLRACE, "store", "check", url], capture_output=True)
    refused = check_store("file:journal")
    equal(refused.returncode, 3)
    check(b"its store is file:journal/store" in refused.stderr, refused)
    equal(check_store("file:journal/store").returncode, 0)


@case("F31: two runs with one journal: the second is refused")
def _():
    journal = ["--jobs", "1", "--journal", "journal"]
    first = Run(*journal, *sh(SLOW))
    first.feed(SIX)
    wait_for("up")
    r = run(*journal, *sh(SLOW), data=SIX)
    check(r.code == 3 and str(first.process.pid).encode() in r.err, r)
    with open("go", "w"):
        pass
    equal(first.end().code, 0)


def kill_and_resume(rng, data, total, arguments):
    """Runs of one journal, each killed after some output, until one completes, be it that it was killed when
    nothing was left to do but to end. Returns the output of each."""
    outputs = []
    while True:
        r = Run(*arguments, stdout=subprocess.PIPE)
        writer = threading.Thread(target=feed_quietly, args=(r, data))
        writer.start()
        seen, most = b"", rng.randrange(total) + 1
        while len(seen.splitlines()) < most or not outputs:
            chunk = os.read(r.process.stdout.fileno(), 4096)
            if not chunk:
                break
            seen += chunk
            if len(seen.splitlines()) >= most:
                break
        os.killpg(r.process.pid, signal.SIGKILL)
        while chunk := os.read(r.process.stdout.fileno(), 4096):
            seen += chunk
        r.process.stdout.close()
        writer.join()
        ended = r.end()
        outputs.append(seen)
        if ended.code != -signal.SIGKILL or not os.path.exists("journal/store"):
            return outputs, ended


def feed_quietly(r, data):
    try:
        r.feed(data)
        r.process.stdin.close()
    except (BrokenPipeError, ValueError):
        pass


def check_killed(seed, order):
    total = 120
    rng = random.Random(seed)
    data = b"".join(b"%d key%d\n" % (n, n % 7) for n in range_lines(1, total))
    arguments = ["--jobs", "3", "--journal", "journal", "--key-field", "2", *order,
                 *sh('echo $1'), "{#}"]
    outputs, ended = kill_and_resume(rng, data, total, arguments)
    check(ended.code in (0, -signal.SIGKILL), seed, ended)
    check(ended.code != 0 or not os.path.exists("journal"), seed)
    whole = [numbers(o) for o in outputs]
    equal(sorted(set(sum(whole, []))), range_lines(1, total), seed)
    return whole


@case("D5, F4: killed at random and resumed: every line is done, and what was recorded not again")
def _():
    end = time.monotonic() + SECONDS
    seed = 0
    while seed < 8 or (LONG and time.monotonic() < end):
        seed += 1
        for number, out in enumerate(check_killed(seed, [])):
            equal(len(out), len(set(out)), seed, number)  # in one run never twice
        before = 0
        for out in check_killed(seed, ["--keep-order"]):
            if out:
                check(out[0] in (before, before + 1), seed, before, out)
                equal(out, range_lines(out[0], out[-1]), seed)
                before = out[-1]


@case("R11, F4: killed at random and resumed: every line is counted once in its key's state")
def _():
    total, keys = 60, 4
    data = b"".join(b"%d key%d\n" % (n, n % keys) for n in range(total))
    arguments = ["--jobs", "3", "--journal", "journal", "--key-field", "2", *sh(COUNT), "{key}"]
    for seed in range(4):
        outputs, ended = kill_and_resume(random.Random(seed), data, total, arguments)
        check(ended.code in (0, -signal.SIGKILL), seed, ended)
        counted = set(b"".join(outputs).splitlines())
        expected = {b"key%d %d" % (k, n) for k in range(keys)
                    for n in range_lines(1, total // keys)}
        equal(counted, expected, seed)


# ---- What users of xargs and parallel expect ----------------------------------------------------


@case("-n: lines that follow each other are arguments of one command, at the end or in place of {}")
def _():
    for arguments, out in (
            (["--", "echo", "x"], b"x 1 2 3\nx 4 5 6\nx 7\n"),
            (["--", "echo", "{}", "in", "{#}"], b"1 2 3 in 1\n4 5 6 in 2\n7 in 3\n"),
            (["--stdin", "--", "tac"], b"3\n2\n1\n6\n5\n4\n7\n")):
        equal(run("-n", "3", "-k", *arguments, data=range_lines(1, 7)).out, out, arguments)
    equal(run("-n2", "-0", "-k", "--", "printf", "<%s>", data=b"a b\0\0c\nd\0").out, b"<a b><><c\nd>")
    xargs = subprocess.run(["xargs", "-d", "\n", "-n", "4", "printf", "[%s]"], capture_output=True,
                           input=b"a b\n\n'\n\\\n$x\n").stdout
    equal(run("-n", "4", "-k", "--", "printf", "[%s]", data=b"a b\n\n'\n\\\n$x\n").out, xargs)


@case("-n: a command never gets lines of two keys, and fewer lines when they are long")
def _():
    lines = [f"{key} {n}" for n, key in enumerate("aaabbacc")]
    r = run("-n", "2", "-k", "--key-field", "1", "--", "echo", "{}", "key", "{key}", data=lines)
    equal(r.out.decode().splitlines(),
          ["a 0 a 1 key a", "a 2 key a", "b 3 b 4 key b", "a 5 key a", "c 6 c 7 key c"], r)
    long = ["x" * 60000] * 5
    r = run("-n", "5", "-k", *sh('echo $#'), data=long)
    equal(numbers(r.out), [2, 2, 1], r)
    for words in ["echo", "{.}"], ["echo", "a{}"], ["sh", "-c", "echo {}"]:
        r = run("-n", "2", "--", *words, data=[1, 2])
        check(r.code == 2 and b"place for one line" in r.err, words, r)


@case("-n with a journal: a group that failed is listed and tried again, a finished one is not")
def _():
    script = 'echo $1; [ -e good ] || [ $1 != 3 ]'
    for order in [], ["-k"]:
        arguments = ["-n", "2", "--jobs", "1", "--journal", "journal", *order, *sh(script)]
        r = run(*arguments, data=SIX)
        equal((r.code, numbers(r.out)), (1, [1, 3, 5]), r)
        check(b"group 2 failed: exit code 1; its lines are '3 4'" in r.err, r)
        equal(lines_of("journal/failed"), ["2\texit code 1\t3\t4"])
        r = run("-n", "3", *arguments[2:], data=SIX)
        check(r.code == 3 and b"-n 2" in r.err, r)
        with open("good", "w"):
            pass
        r = run(*arguments, data=SIX)
        equal((r.code, numbers(r.out), os.path.exists("journal")), (0, [3], False), r)
        os.unlink("good")


@case("-d: lines end with another character")
def _():
    for delimiter, data in (",", b"a b,c\n"), ("\\t", b"a b\tc\n"), ("\\0", b"a b\0c\n"):
        equal(run("-d", delimiter, "-k", "--", "printf", "[%s]", data=data).out, b"[a b][c\n]", delimiter)


@case("--dry-run prints what a shell runs to the same effect, and runs nothing")
def _():
    data = b"plain\nit's\n-n\n$HOME `id` *\n\n\"\\\n"
    for command in (["printf", "<%s>"], ["sh", "-c", "printf '<%s>' {}"],
                    ["-n", "4", "--", "printf", "<%s>", "a b", "{}"], ["--stdin", "--", "cat"]):
        arguments = command if "--" in command else ["--", *command]
        printed = run("--dry-run", *arguments, data=data)
        equal((printed.code, printed.err), (0, b""), printed)
        equal(subprocess.run(["bash"], input=printed.out, capture_output=True).stdout,
              run("-k", *arguments, data=data).out, printed)
    r = run("--dry-run", *sh("touch ran"), data=[1])
    equal((r.code, r.out, os.path.exists("ran")), (0, b"sh -c 'touch ran' sh 1\n", False))
    r = run("--dry-run", "--", "echo", data=b"a\0b\nc\n")
    check(r.code == 1 and r.out == b"echo c\n" and b"line 1: it has a 0 byte" in r.err, r)


@case("--tag: each line of output, of both kinds, begins with the input line and a tab")
def _():
    script = 'printf "%s\\nmore" "$1"; echo bad >&2'
    for order in [], ["-k"], ["-k", "--journal", "journal"]:
        r = run("--tag", "--jobs", "1", *order, *sh(script), data=["x y", "z"])
        equal(r.out, b"x y\tx y\nx y\tmore\nz\tz\nz\tmore\n", r)
        equal(r.err, b"x y\tbad\nz\tbad\n", r)
    equal(run("--tag", "-n", "2", "-k", "--", "echo", data=[1, 2, 3]).out, b"1 2\t1 2\n3\t3\n")
    r = run("--tag", "--results", "results", "--", "echo", data=[1])
    with open("results/1/stdout") as file:
        equal((r.out, file.read()), (b"1\t1\n", "1\n"))
    r = run("--tag", "--", "seq", data=[200000])
    equal(r.out, b"".join(b"200000\t%d\n" % n for n in range(1, 200001)))


@case("--tag: output of an earlier run that is printed late is tagged")
def _():
    journal = ["--tag", "--jobs", "1", "--journal", "journal", "--keep-order"]
    interrupt(*journal, *sh(SLOW), data=SIX)
    os.unlink("journal/printed")
    r = run(*journal, *sh(SLOW), data=SIX)
    equal((r.code, r.out), (0, b"".join(b"%d\t%d\n" % (n, n) for n in range(1, 7))), r)


@case("--jobs N%: per cent of the processors")
def _():
    count = len(os.sched_getaffinity(0))
    for percent, level in (100, count), (200, 2 * count), (1, 1):
        r = run("--jobs", f"{percent}%", "--json", "--", "true", data=[1])
        equal(json.loads(r.err)["levels"], [level], percent)


@case("--memfree and --load: with too little memory or too much load one command runs at a time")
def _():
    alone = 'mkdir alone || exit 1; echo $1; rmdir alone'
    r = run("--jobs", "4", "--memfree", "1000000T", *sh(alone), data=range_lines(1, 12))
    equal((r.code, sorted(numbers(r.out))), (0, range_lines(1, 12)), r)
    for free in ["--memfree", "1k"], ["--load", "1000000"], ["--load", "100000%"], ["--delay", "1ms"]:
        meet = WAIT + 'touch here$1; wait_file here$((3 - $1))'  # each needs the other
        r = run("--jobs", "2", *free, *sh(meet), data=[1, 2])
        equal(r.code, 0, free, r)
        os.unlink("here1")
        os.unlink("here2")


@case("commands that are held back by --delay do not start after Ctrl-C")
def _():
    r = Run("--jobs", "2", "--delay", "1h", *sh("echo $1 >>log; touch up"))
    r.feed(b"1\n2\n3\n")
    wait_for("up")
    r.signal(signal.SIGINT)
    r = r.end()
    equal((r.code, len(lines_of("log"))), (130, 1), r)


@case("--json lists the lines that failed, with their text and reason")
def _():
    r = run("--json", "--jobs", "1", *sh('[ ${#1} -lt 3 ] || { echo long >&2; exit 4; }'),
            data=["ok", "x" * 1000, "abc"])
    failures = json.loads(r.err.splitlines()[-1])["failures"]
    equal([f["line"] for f in failures], [2, 3], r)
    check(failures[0]["text"].startswith("xxx") and len(failures[0]["text"]) < 300, failures)
    equal((failures[1]["text"], failures[1]["reason"]), ("abc", "exit code 4: long"))
    r = run("--json", "--", "false", data=range_lines(1, 150))
    summary = json.loads(r.err.splitlines()[-1])
    equal((summary["failed"], len(summary["failures"])), (150, 100))


@case("U13: --retry-failed runs failed lines of an interrupted journal again, and needs a journal")
def _():
    script = SLOW + "; [ -e good ] || [ $1 != 2 ]"
    arguments = ["--jobs", "1", "--journal", "journal"]
    r = run("--retry-failed", *arguments, *sh(script), data=SIX)
    check(r.code == 3 and b"there is no journal in journal" in r.err, r)
    check(not os.path.exists("journal"))
    r = run("--retry-failed", *sh(script), data=SIX)
    check(r.code == 2 and b"--journal" in r.err, r)
    equal(interrupt(*arguments, *sh(script), data=SIX).code, 130)
    with open("good", "w"):
        pass
    r = run("--retry-failed", *arguments, *sh(script), data=SIX)
    equal((r.code, sorted(numbers(r.out)), os.path.exists("journal")), (0, [2, 4, 5, 6], False), r)


@case("U13: --retry-failed with --keep-order waits for the end of the run")
def _():
    script = SLOW + "; [ -e good ] || [ $1 != 2 ]"
    arguments = ["--jobs", "1", "--journal", "journal", "--keep-order"]
    equal(interrupt(*arguments, *sh(script), data=SIX).code, 130)
    r = run("--retry-failed", *arguments, *sh(script), data=SIX)
    check(r.code == 3 and b"has ended" in r.err, r)
    equal(run(*arguments, *sh(script), data=SIX).code, 1)
    with open("good", "w"):
        pass
    r = run("--retry-failed", *arguments, *sh(script), data=SIX)
    equal((r.code, numbers(r.out)), (0, [2]), r)


@case("G11: the last words of a failed line are kept in the journal's store with its reason")
def _():
    equal(run("--journal", "journal", *sh("echo one >&2; echo two >&2; exit 3"), data=["x"]).code, 1)
    listed = subprocess.run([MILLRACE, "dead", "run", "--json", "--at", "file:journal/store"],
                            capture_output=True, text=True)
    last = json.loads(listed.stdout)[0]["reasons"][-1]
    equal((last["text"], last["output"]), ("exit code 3: two", "one\ntwo\n"), listed)


@case("the journal of a few lines takes less than a megabyte")
def _():
    equal(run("--journal", "journal", "--", "false", data=range_lines(1, 5)).code, 1)
    blocks = sum(os.stat(os.path.join(folder, name)).st_blocks
                 for folder, _, names in os.walk("journal") for name in names)
    check(blocks * 512 < 1 << 20, blocks)


# ---- Usage -------------------------------------------------------------------------------------


@case("bad usage is reported with the way out, and exits 2")
def _():
    for arguments, said in (
            (["--"], b"usage: millrace run"), ([], b"usage"),
            (["--timeout", "5", "--", "true"], b"5s"),
            (["--timeout", "soon", "--", "true"], b"no duration"),
            (["--deadline", "0s", "--", "true"], b"not possible"),
            (["--jobs", "0", "--", "true"], b"'0': auto, a number from 1 to 4096"),
            (["--jobs", "0%", "--", "true"], b"'0%'"),
            (["-n", "0", "--", "true"], b"at least 1"),
            (["-n", "x", "--", "true"], b"'x'"),
            (["-d", "ab", "--", "true"], b"'ab': one byte"),
            (["-d", ",", "-0", "--", "true"], b"not with -0"),
            (["--delay", "5", "--", "true"], b"--delay: '5' has no unit"),
            (["--load", "-1", "--", "true"], b"'-1'"),
            (["--load", "5x", "--", "true"], b"--load: '5x' is neither a number"),
            (["--memfree", "lots", "--", "true"], b"--memfree: 'lots' is no possible size"),
            (["--memfree", "0", "--", "true"], b"'0'"),
            (["--dry-run", "--journal", "j", "--", "true"], b"leave --journal out"),
            (["-j", "--", "true"], b"a value is missing behind '--jobs'"),
            (["--jobs", "many", "--", "true"], b"'many'"),
            (["--jobs", "5000", "--", "true"], b"4096"),
            (["--retries", "-1", "--", "true"], b"'-1'"),
            (["--halt", "later", "--", "true"], b"never, soon, now"),
            (["--key-field", "0", "--", "true"], b"1, 2, 3"),
            (["--key-regex", "(", "--", "true"], b"--key-regex '('"),
            (["--key-field", "1", "--key-json", "x", "--", "true"], b"one of"),
            (["--keeporder", "--", "true"], b"did you mean --keep-order")):
        r = run(*arguments, data=[1])
        check(r.code == 2 and said in r.err and r.err.startswith(b"millrace: run: "), arguments, r)


@case("a missing -- is reported with the corrected command line")
def _():
    for before, command, quoted in (
            ([], ["echo"], "echo"),
            (["-j4", "--timeout", "5s"], ["echo", "-n", "{.}.jpg"], "echo -n {.}.jpg"),
            (["-0"], ["sh", "-c", "echo it's {} {1..3}", "", "*"], r"sh -c 'echo it'\''s {} {1..3}' '' '*'"),
            ([], ["grep", "--", "x"], "grep -- x")):
        r = run(*before, *command, data=[1])
        first, pasted = r.err.decode().splitlines()
        check(r.code == 2 and "-- is missing before the command" in first, r)
        equal(pasted, "    " + " ".join(["millrace run", *before, "--", quoted]))
        equal(subprocess.check_output(["bash", "-c", f"printf '%s\\n' {pasted}"], text=True).splitlines(),
              ["millrace", "run", *before, "--", *command])


@case("--jobs auto, and what belongs to the command is not ours")
def _():
    equal(run("--jobs", "auto", "--", "echo", "--jobs", "-0", data=[1]).out, b"--jobs -0 1\n")


@contextlib.contextmanager
def place_of_its_own():
    place = os.path.join(top, "place")
    os.mkdir(place)
    os.chdir(place)
    yield
    os.chdir(top)
    shutil.rmtree(place, ignore_errors=True)


main(place_of_its_own)
