#!/usr/bin/env python3
"""flow_test.py BUILD: millrace flow: its file and messages about mistakes in it, the flows
of examples/flows checked by other programs, steps that misbehave, and runs that are interrupted,
killed and continued, with a journal and on a server. Speaks TAP. Nothing waits by time. With
MILLRACE_LONG the proofs by chance last MILLRACE_SECONDS."""
import collections
import contextlib
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from running import Running, lines_of, wait_until
from served import Server
from tap import BUILD, LONG, MILLRACE, TIMEOUT_S, SECONDS, case, check, equal, main, sanitized, top

EXAMPLES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../examples/flows")
MEMORY_KB = 64 << 10  # resident, at most, whatever goes through

os.environ["NO_COLOR"] = "1"
os.environ["XDG_STATE_HOME"] = os.path.join(top, "state")
os.environ["PATH"] = BUILD + ":" + os.environ["PATH"]
os.environ.pop("TMPDIR", None)
os.environ.pop("MILLRACE_URL", None)


class Flow(Running):
    def __init__(self, *arguments, stdin=subprocess.DEVNULL, **more):
        super().__init__(MILLRACE, "flow", *arguments, stdin=stdin, text=True, **more)


def flow(*arguments, data=None, **more):
    if data is None:
        return Flow(*arguments, **more).end()
    with tempfile.TemporaryFile() as file:
        file.write(data.encode())
        file.seek(0)
        return Flow(*arguments, stdin=file, **more).end()


def write(path, text, executable=False):
    with open(path, "w") as file:
        file.write(text)
    if executable:
        os.chmod(path, 0o755)


def read(path):
    with open(path) as file:
        return file.read()


def shell(script):
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout


def size_of(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def plan(text, name="plan.yaml"):
    write(name, text)
    return name


def simple(steps, source="{ lines: in.txt }", sink="{ file: out.txt }", name="simple"):
    """A flow of some steps, one a line."""
    listed = "".join(f"  - {{ {s} }}\n" for s in steps)
    return plan(f"flow: {name}\nsource: {source}\nsteps:\n{listed}sink: {sink}\n")


def numbers_file(path, count):
    write(path, "".join(f"{n}\n" for n in range(1, count + 1)))


def example(name):
    for file in os.listdir(EXAMPLES):
        if os.path.isfile(os.path.join(EXAMPLES, file)):
            shutil.copy(os.path.join(EXAMPLES, file), ".")
    return name + ".yaml"


# ---- What its file may contain -----------------------------------------------------------------

CONTRACT = """flow: words
source: { lines: text.txt }
steps:
  - { name: split, flat_map: [./split], mode: filter }     # mode: job | filter
  - { name: count, aggregate: sum, key: field 1, window: { size: 100, slide: 100 } }
sink: { file: out.tsv }
"""


@case("E1: the flow of the manual counts words, by a filter and a sum")
def _():
    plan(CONTRACT)
    write("text.txt", "a b a\nb\n\nc a\n" * 100)
    write("split", '#!/bin/sh\nwhile read -r line; do\n    for word in $line; do echo "$word 1"; done\n'
                   "    echo\ndone\n", True)
    r = flow("--check", "plan.yaml")
    equal((r.code, r.out), (0, "plan.yaml: flow words is good: 1 source, 2 steps, 1 sink\n"), r)
    check(not os.path.exists("out.tsv"), "a check runs nothing")
    r = flow("plan.yaml")
    equal((r.code, r.out, r.err), (0, "", ""), r)
    equal(sorted(lines_of("out.tsv")), ["a\t100"] * 3 + ["b\t100"] * 2 + ["c\t100"], r)
    check(not os.path.exists("words.journal"), "a flow that has finished leaves no journal")


HEAD = "flow: f\nsource: { lines: in.txt }\n"
TAIL = "sink: { file: out.txt }\n"


def with_step(step):
    return HEAD + "steps:\n  - " + step + "\n" + TAIL


# A file, and the error it causes: every mistake has its line and column.
MISTAKES = [
    ("", "plan.yaml: the file is empty"),
    ("a: [1\n", "plan.yaml:2:1: this is no YAML"),
    # U10: nesting and the number of nodes are bounded.
    ("[" * 200000, "plan.yaml:1:33: lists and mappings are nested 32 deep at most"),
    ("a: " + "{a: " * 200000, "are nested 32 deep at most"),
    ("a: [" + "b," * 300000 + "]", "a file has 100000 texts, lists and mappings at most"),
    ("flow: f\n\tx: 1\n", "plan.yaml:2:1: this is no YAML: found a tab"),
    ("flow: f\n---\nflow: g\n", "plan.yaml:3:1: a file is one document"),
    ("- a\n", "plan.yaml:1:1: a flow is a mapping"),
    (HEAD + TAIL + "stpes: []\n", "4:1: a flow has no 'stpes'; did you mean steps?"),
    (HEAD + TAIL + "xyzzy: 1\n", "4:1: a flow has no 'xyzzy'; it has: flow, source, steps, sink"),
    ("source: stdin\nsink: stdout\n", "1:1: the flow has no name"),
    (HEAD + "sink: { file: x, key: field 1 }\n", "3:23: a key belongs to a stage, not to file"),
    (with_step("{ name: a--b, map: fields 1 }"), "4:13: a name 'a--b'"),
    (with_step("{ name: a, map: [cat], loop: 'a:x y' }"), "4:34: an output 'x y'"),
    ("flow: a/b\nsource: stdin\nsink: stdout\n", "1:7: the name of a flow 'a/b': up to 55 letters"),
    ("flow: f\n" + TAIL, "1:1: there is no source"),
    (HEAD, "1:1: there is no sink"),
    (HEAD + HEAD + TAIL, "3:1: 'flow' is here twice"),
    ("flow: f\nsource: { line: a }\n" + TAIL, "2:11: a source has no 'line'; did you mean lines?"),
    ("flow: f\nsource: file\n" + TAIL, "2:9: a source is a mapping"),
    ("flow: f\nsource: { name: a }\n" + TAIL, "2:9: a source is one of { lines: FILE }"),
    ("flow: f\nsource: { lines: [] }\n" + TAIL, "2:18: this list is empty"),
    ("flow: f\nsource: { stage: 'a b' }\n" + TAIL, "2:18: stage: "),
    (HEAD + "sink: { fiel: x }\n", "3:9: a sink has no 'fiel'; did you mean file?"),
    (HEAD + "sink: { file: '' }\n", "3:15: file is empty"),
    (HEAD + "sink: { file: \"a\\0b\" }\n", "3:15: file has a 0 byte"),
    (HEAD + "sink: { file: x, stdout: }\n", "3:18: it is a file already"),
    (HEAD + "steps: { a: b }\n" + TAIL, "3:8: steps is a list"),
    (with_step("{ name: a, flat_mp: words }"), "4:16: a step has no 'flat_mp'; did you mean flat_map?"),
    (with_step("{ name: a }"), "4:5: this step has no operator"),
    (with_step("{ map: fields 1 }"), "4:5: this step has no name"),
    (with_step("{ name: a b, map: fields 1 }"), "4:13: a name 'a b'"),
    (with_step("{ name: source, map: fields 1 }"), "4:5: there is a source called 'source' already"),
    (with_step("{ name: a, map: fields 1, filter: regex x }"), "4:31: it is a map already"),
    (with_step("{ name: a, map: upper }"), "4:21: map: 'upper' is neither fields N"),
    (with_step("{ name: a, map: fields x }"), "4:21: 'fields x': up to 16 numbers from 1"),
    (with_step("{ name: a, map: fields 0 }"), "4:21: 'fields 0'"),
    (with_step("{ name: a, map: [] }"), "4:21: this list is empty: the command is missing"),
    (with_step("{ name: a, map: [[x]] }"), "4:22: the command is one word or text, not a list"),
    (with_step("{ name: a, flat_map: wrods }"), "4:26: flat_map: there is no 'wrods'; did you mean words?"),
    (with_step("{ name: a, filter: grep x }"), "4:24: filter: 'grep x' is none of: regex RE"),
    (with_step("{ name: a, filter: 'regex (x' }"), "4:24: filter: 'regex (x': Unmatched"),
    (with_step("{ name: a, crash: 1 }"), "4:23: crash: '1' is no probability"),
    (with_step("{ name: a, crash: -0.1 }"), "4:23: crash: '-0.1' is no probability"),
    (with_step("{ name: a, aggregate: summ, key: all }"), "4:27: aggregate: there is no 'summ'; did you mean sum?"),
    (with_step("{ name: a, aggregate: [x], key: all }"), "4:27: aggregate: count, sum, min, max or mean"),
    (with_step("{ name: a, aggregate: sum }"), "4:16: an aggregate is per key, and its lines have none"),
    (with_step("{ name: a, aggregate: sum, key: feild 1 }"), "4:37: key: 'feild 1' is none of: field N, regex RE, json NAME"),
    (with_step("{ name: a, aggregate: sum, key: field 0 }"), "4:37: key: field '0': fields are numbered 1, 2, 3"),
    (with_step("{ name: a, aggregate: sum, key: 'regex [' }"), "4:37: key: regex '[': "),
    (with_step("{ name: a, aggregate: count, key: all, value: field 1 }"), "4:51: count counts lines"),
    (with_step("{ name: a, aggregate: sum, key: all, window: 3 }"), "4:50: a window is a mapping, as in { size: "),
    (with_step("{ name: a, aggregate: sum, key: all, window: { slide: 3 } }"), "4:50: a window has a size"),
    (with_step("{ name: a, aggregate: sum, key: all, window: { size: 0 } }"), "4:58: size: '0' is not a number from 1"),
    (with_step("{ name: a, aggregate: sum, key: all, window: { size: 9999, slide: 1 } }"), "4:50: windows of 9999 that slide by 1 are too many"),
    (with_step("{ name: a, aggregate: sum, key: all, window: { sise: 3 } }"), "4:52: a window has no 'sise'; did you mean size?"),
    (with_step("{ name: a, map: [cat], window: { size: 3 } }"), "4:36: a window belongs to an aggregate"),
    (with_step("{ name: a, map: fields 1, value: field 1 }"), "4:38: a value belongs to an aggregate"),
    (with_step("{ name: a, map: fields 1, mode: job }"), "4:37: a mode belongs to a command"),
    (with_step("{ name: a, map: [cat], mode: filtr }"), "4:34: mode: there is no 'filtr'; did you mean filter?"),
    (with_step("{ name: a, filter: [cat], mode: filter }"), "4:37: a filter's command decides by its exit code"),
    (with_step("{ name: a, map: [cat], timeout: 5 }"), "4:37: timeout: '5' has no unit"),
    (with_step("{ name: a, map: [cat], attempts: 0 }"), "4:38: attempts: '0' is not a number from 1"),
    (with_step("{ name: a, map: [cat], backoff: 1s }"), "4:37: backoff: '1s' is not FIRST..MOST"),
    (with_step("{ name: a, map: [cat], on-dead: perish }"), "4:37: on-dead: 'perish' is none of: skip, halt"),
    (with_step("{ name: a, map: [cat], jobs: many }"), "4:34: jobs: 'many' is not a number"),
    (with_step("{ name: a, aggregate: sum, key: all, partitions: 0 }"), "4:54: partitions: '0' is not a number from 1 to 256"),
    (with_step("{ name: a, aggregate: sum, key: all, partitions: 257 }"), "4:54: partitions: '257' is not a number from 1 to 256"),
    (with_step("{ name: a, map: fields 1, partitions: 4 }"), "4:43: partitions belong to an aggregate, not to map"),
    (with_step("{ name: " + "a" * 56 + ", map: fields 1 }"), "4:13: a name 'aaa"),
    (with_step("{ name: a, map: [cat], from: b }"), "4:34: there is no step 'b'"),
    (with_step("{ name: abc, map: [cat], from: [sourcee] }"), "4:37: there is no step 'sourcee'; did you mean source?"),
    (with_step("{ name: a, map: [cat], from: [source, source] }"), "4:43: 'source' is named twice"),
    (with_step("{ name: a, map: [cat], from: a }"), "4:34: 'a' feeds itself; if that is intended: loop: a"),
    (with_step("{ name: a, map: [cat], from: sink }"), "4:34: 'sink' is a sink"),
    (with_step("{ name: a, map: [cat], loop: source }"), "4:34: a loop comes from a step, and 'source' is a source"),
    (with_step("{ name: a, map: [cat], from: source:x }"), "4:34: 'source' has no outputs with names"),
    (with_step("{ name: a, aggregate: sum, key: all, loop: a }"), "4:16: in a loop there is no end"),
    (HEAD + "steps:\n  - { name: a, map: fields 1, from: b }\n  - { name: b, map: fields 1, from: source }\n" + TAIL,
     "4:37: 'b' comes after 'a', so this is a cycle; if that is intended: loop: b"),
    (HEAD + "steps:\n  - { name: a, map: fields 1 }\n  - { name: b, map: fields 1, from: source }\n" + TAIL,
     "4:5: no step or sink takes the lines of 'a'"),
    (HEAD + "sink: [stdout, { file: x }]\n", "3:8: one of several sinks needs a name"),
    (HEAD + "sink: [{ name: a, file: x }, { name: b, file: x }]\n", "3:41: 'a' and 'b' write to the same place"),
    (HEAD + "sink: [{ name: a, file: x }, { name: b, file: ./x }]\n", "3:41: 'a' and 'b' write to the same place"),
    # The world.
    ("flow: f\nsource: { lines: [in.txt, gone.txt] }\n" + TAIL, "2:27: gone.txt: No such file"),
    ("flow: f\nsource: { lines: . }\n" + TAIL, "2:18: . is a directory"),
    (HEAD + "sink: { file: none/out }\n", "3:15: none/out: cannot write into none"),
    (HEAD + "sink: { file: ./in.txt }\n", "3:15: ./in.txt is read by the flow, too"),
    (HEAD + "sink: { file: /dev/null }\n", "3:15: /dev/null is no regular file, so it cannot be written exactly once"),
    (with_step("{ name: a, map: [no-such-command] }"), "4:22: there is no command 'no-such-command'"),
    (with_step("{ name: a, map: [./in.txt] }"), "4:22: './in.txt' is not executable"),
]


@case("every mistake in the file is reported by line and column, and nothing runs")
def _():
    numbers_file("in.txt", 3)
    for text, said in MISTAKES:
        plan(text)
        for arguments in ["--check", "plan.yaml"], ["plan.yaml"]:
            r = flow(*arguments)
            equal(r.code, 2, said, text, r)
            check(said in r.err, said, text, r)
    equal(sorted(os.listdir(".")), ["in.txt", "plan.yaml"])


@case("all mistakes are reported at once, twenty at most, and how many more there are")
def _():
    numbers_file("in.txt", 3)
    simple(['name: "x y", map: nonsense', "name: b, crash: 2", "name: c, flat_map: 3"])
    equal(len(flow("--check", "plan.yaml").err.splitlines()), 4)
    simple(["crash: 2"] * 60)
    said = flow("--check", "plan.yaml").err.splitlines()
    equal((len(said), said[20]), (21, "plan.yaml: and 40 mistakes more"), *said)


@case("a file that is not there, a directory, binary, and bad options")
def _():
    write("plan.yaml", "\x00\x01")
    for arguments, said in [(["gone.yaml"], "gone.yaml: No such file"), (["."], "this is a directory"),
                            (["plan.yaml"], "plan.yaml"), ([], "an argument is missing"),
                            (["--at", "mem:", "--journal", "x", "plan.yaml"], "give one of them")]:
        r = flow(*arguments)
        equal(r.code, 2, r)
        check(said in r.err, said, r)
    numbers_file("in.txt", 3)
    simple(["name: a, map: fields 1"])
    r = flow("--at", "millrace://127.0.0.1:1", "plan.yaml")
    equal(r.code, 3, r)
    simple(["name: a, map: fields 1"], source="{ stage: orders }")
    r = flow("plan.yaml")
    equal(r.code, 2, r)
    check("plan.yaml:2:11: a stage is shared with other programs: --at URL" in r.err, r)


@case("files with bytes changed, cut and doubled are understood or refused, never a crash")
def _():
    example("words")
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    texts = [read(f).encode() for f in ("words.yaml", "campaign.yaml", "readings.yaml")]
    end, count = time.monotonic() + SECONDS, 0
    while count < 100 or (LONG and time.monotonic() < end):
        count += 1
        text = bytearray(chance.choice(texts))
        for _ in range(chance.randint(1, 8)):
            at, size = chance.randrange(len(text)), chance.randint(1, 12)
            piece = chance.choice([b"", text[at:at + size] * 2, bytes([chance.randrange(256)]), b"&a ", b"*a",
                                   b"{", b"]", b"\n- ", b": ", b"!!int ", b"|\n", b"<<: ", b"99999999999999999999"])
            text[at:at + chance.choice([0, size])] = piece
        with open("plan.yaml", "wb") as file:
            file.write(text)
        for option in "--check", "--graph":
            r = flow(option, "plan.yaml")
            check(r.code in (0, 2), f"seed {seed}", bytes(text), r)
            check(r.code == 0 or r.err.startswith("plan.yaml:"), f"seed {seed}", bytes(text), r)


# ---- Drawings ----------------------------------------------------------------------------------


@case("--graph draws chains, splits, merges and loops")
def _():
    equal(flow("--graph", os.path.join(EXAMPLES, "words.yaml")).out, """\
○ source   lines text.txt
│
● split    flat_map words
│
● stumble  crash 0.5
│
● count    aggregate count, key field 1
│
■ sink     file words.tsv
""")
    plan("""flow: web
source:
  - { name: web, lines: [a.log, b.log] }
  - { name: api, stdin: }
steps:
  - { name: all, filter: 'not regex ^#', from: [web, api] }
  - { name: hits, aggregate: count, key: field 7 }
  - { name: errors, filter: regex 50., from: all }
  - { name: slow, filter: [./slow, "{}"], from: all }
  - { name: again, map: [./again], from: [errors, slow], loop: again:more }
  - { name: top, map: fields 2 1, from: hits }
sink:
  - { name: report, file: report.tsv, from: top }
  - { name: alarms, stdout: , from: [again, errors] }
""")
    r = flow("--graph", "plan.yaml")
    equal(r.out, """\
○ web           lines a.log b.log
│
│ ○ api         lines stdin
├─╯
● all           filter not regex ^#
├─┬─╮
● │ │ hits      aggregate count, key field 7
│ │ │
│ ● │ errors    filter regex 50.
│ ├─│─╮
│ │ ● │ slow    filter ./slow {}
│ ├─╯ │
│ ●   │ again   map ./again  ↺ from again:more
│ ╰───┤
●     │ top     map fields 2 1
│     │
■     │ report  file report.tsv
      │
      ■ alarms  stdout
""", r)
    nodes = json.loads(flow("--graph", "--json", "plan.yaml").out)["nodes"]
    equal([n["name"] for n in nodes], "web api all hits errors slow again top report alarms".split())
    equal((nodes[6]["from"], nodes[6]["loop"], nodes[6]["line"]), (["errors", "slow"], ["again:more"], 10))


# ---- Stories -----------------------------------------------------------------------------------


def words_by_others(path):
    return shell(f"tr -cs 'A-Za-z0-9' '\\n' <{path} | grep . | LC_ALL=C sort | uniq -c |"
                 " awk '{ print $2 \"\\t\" $1 }'").splitlines()


@case("E6: words are counted as uniq counts them, although steps crash")
def _():
    r = flow(example("words"))
    equal((r.code, r.err), (0, ""), r)
    equal(sorted(lines_of("words.tsv")), sorted(words_by_others("text.txt")))


@case("D7: the email campaign: slow sending, nothing overflows, nothing twice")
def _():
    r = flow("--json", example("campaign"))
    equal(r.code, 0, r)
    addresses = shell("awk '{ print $2 }' contexts.tsv").split()
    bad = [a for a in addresses if a.endswith("nowhere.example")]
    equal(sorted(lines_of("failed.tsv")), sorted(f"failed\t{a}\tthere is no such host" for a in bad))
    equal(sorted(lines_of("sent.tsv")), sorted(f"sent\t{a}" for a in set(addresses) - set(bad)))
    report = json.loads(r.err.splitlines()[-1])
    equal((report["flow"], report["complete"], report["exit"], report["read"], report["dead"]),
          ("campaign", True, 0, 60, 0), r)
    equal([n["name"] for n in report["nodes"]][:4], ["source", "create", "stumble", "send"], r)


# Windows as documented: one begins every `slide` values; those that have begun are written at the end.
WINDOWS = r"""
awk -v size=%d -v slide=%d '!/^#|broken/ {
    at = count[$1]++
    if (at %% slide == 0) begun[$1, windows[$1]++] = at
    value[$1, at] = $2
}
END {
    for (key in count)
        for (w = 0; w < windows[key]; w++) {
            from = begun[key, w]; to = from + size; if (to > count[key]) to = count[key]
            sum = 0; max = value[key, from]
            for (i = from; i < to; i++) { sum += value[key, i]; if (value[key, i] > max) max = value[key, i] }
            print key "\t" (%s)
        }
}' readings.txt
"""


@case("E6: windows per key are those of awk, although steps crash")
def _():
    r = flow(example("readings"))
    equal((r.code, r.err), (0, ""), r)
    means = shell(WINDOWS % (10, 10, "sprintf(\"%.15g\", sum / (to - from))")).splitlines()
    equal(sorted(lines_of("means.tsv")), sorted(means))
    equal(sorted(lines_of("peaks.tsv")), sorted(shell(WINDOWS % (10, 5, "max")).splitlines()))
    for key in "boiler", "roof":  # of one key in order
        own = [line for line in lines_of("means.tsv") if line.startswith(key)]
        equal(own, [line for line in means if line.startswith(key)])


# ---- Steps -------------------------------------------------------------------------------------


@case("every aggregate, over all lines and per key; whole numbers stay exact")
def _():
    values = [(n * 7919 % 1000) - 300 for n in range(2000)]
    write("in.txt", "".join(f"k{i % 7} x {v}\n" for i, v in enumerate(values)))
    for how, whole in [("count", len(values)), ("sum", sum(values)), ("min", min(values)),
                       ("max", max(values)), ("mean", sum(values) / len(values))]:
        simple([f"name: a, aggregate: {how}, key: all"])
        r = flow("plan.yaml")
        equal(r.code, 0, r)
        equal(float(read("out.txt")), float(whole), how)
    simple(["name: a, aggregate: sum, key: 'regex ^k[0-9]', value: field 3"])
    equal(flow("plan.yaml").code, 0)
    sums = collections.Counter()
    for i, v in enumerate(values):
        sums[f"k{i % 7}"] += v
    equal(dict(line.split("\t") for line in lines_of("out.txt")), {k: str(v) for k, v in sums.items()})
    write("in.txt", "9007199254740993\n1\n")
    simple(["name: a, aggregate: sum, key: all"])
    equal(flow("plan.yaml").code, 0)
    equal(read("out.txt"), "9007199254740994\n")
    write("in.txt", "99999999999999999999\n1\n")
    simple(["name: a, aggregate: mean, key: all"])
    equal(flow("plan.yaml").code, 0)
    equal(float(read("out.txt")), 5e19)


@case("a number or a sum of more than 64 bits dies at once, and is named with its step")
def _():
    write("in.txt", f"a 1\na {10**20}\na 2\nb {2**63 - 1}\nb 5\n")
    simple(["name: s, aggregate: sum, key: field 1"])
    r = flow("plan.yaml")
    equal(r.code, 1, r)
    equal(sorted(lines_of("out.txt")), ["a\t3", f"b\t{2**63 - 1}"], r)
    check(re.search(rf"flow: plan\.yaml:4: s: '{10**20}' is not a number of 64 bits \(job \d+ of simple/s\)", r.err), r)
    check("the sum does not fit into 64 bits" in r.err, r)


@case("fields, words and lines; filters; keys and values of JSON; several files and stdin")
def _():
    write("a", "one two\tthree\n\n#x\n")
    write("b", "four, five\n")
    simple(["name: s, flat_map: fields", "name: f, filter: 'not regex ^#'"], source="{ lines: [a, b] }")
    equal(flow("plan.yaml").code, 0)
    equal(sorted(lines_of("out.txt")), sorted(["one", "two", "three", "four,", "five"]))
    simple(["name: w, flat_map: words"], source="{ lines: [a, b] }")
    equal(flow("plan.yaml").code, 0)
    equal(sorted(lines_of("out.txt")), sorted(["one", "two", "three", "x", "four", "five"]))
    simple(["name: m, map: fields 3 1"], source="{ lines: [a] }")
    equal(flow("plan.yaml").code, 0)
    equal(sorted(lines_of("out.txt")), sorted(["three\tone", "\t", "\t#x"]))
    simple(["name: s, aggregate: sum, key: json user, value: json n"], source="stdin", sink="stdout")
    data = "".join(json.dumps({"user": u, "n": n}) + "\n" for u, n in [("a", 1), ("b", 2), ("a", 5)])
    r = flow("plan.yaml", data=data)
    equal((r.code, sorted(r.out.splitlines())), (0, ["a\t6", "b\t2"]), r)


@case("no lines, no final newline, and a result of nothing empties the file")
def _():
    write("in.txt", "")
    simple(["name: a, map: fields 1"])
    write("out.txt", "old\n")
    equal(flow("plan.yaml").code, 0)
    equal(read("out.txt"), "")
    write("in.txt", "x")
    equal(flow("plan.yaml").code, 0)
    equal(read("out.txt"), "x\n")


@case("commands: stdin or {}, {key}, one line or many, long-lived or not; filters by exit code")
def _():
    numbers_file("in.txt", 20)
    simple(["name: a, map: [sed, s/$/x/]", "name: b, filter: [grep, -q, 1]",
            'name: c, map: [echo, "{}", "{key}"], key: field 1',
            "name: d, flat_map: [sh, -c, 'cat; echo more'], jobs: 2"])
    r = flow("plan.yaml")
    equal(r.code, 0, r)
    with_one = [n for n in range(1, 21) if "1" in str(n)]
    equal(sorted(lines_of("out.txt")), sorted([f"{n}x {n}x" for n in with_one] + ["more"] * len(with_one)))
    simple(["name: a, map: [sed, -u, s/$/y/], mode: filter"])
    equal(flow("plan.yaml").code, 0)
    equal(sorted(lines_of("out.txt")), sorted(f"{n}y" for n in range(1, 21)))


@case("U1: a flow's shell gets lines and keys as variables; where that is impossible, --check reports it")
def _():
    hostile = ["; touch own", "$(touch own)", "`touch own`", "' ; touch own ; '"]
    write("in.txt", "".join(line + "\n" for line in hostile))
    simple(["""name: a, map: [sh, -c, 'echo {} "<{key}>"'], key: regex .*"""])
    r = flow("plan.yaml")
    equal(r.code, 0, r)
    equal(sorted(lines_of("out.txt")), sorted(f"{line} <{line}>" for line in hostile))
    simple(["""name: a, map: [sh, -c, "echo '{}'"]"""])
    r = flow("--check", "plan.yaml")
    check(r.code == 2 and "plan.yaml:4:" in r.err and "single quotes" in r.err, r)
    check(not os.path.exists("own"), os.listdir("."))


@case("lines of one key keep their order through commands, and state is the key's own")
def _():
    write("in.txt", "".join(f"k{n % 3} {n}\n" for n in range(60)))
    write("number", "#!/bin/sh\nread -r line\nn=$(millrace state)\nn=$((${n:-0} + 1))\n"
                    "echo $n | millrace state --set -\necho \"$line $n\"\n", True)
    simple(["name: a, map: [./number], key: field 1", "name: b, crash: 0.3"])
    r = flow("plan.yaml")
    equal(r.code, 0, r)
    for key in range(3):
        own = [line.split() for line in lines_of("out.txt") if line.startswith(f"k{key}")]
        equal([int(n) for _, n, _ in own], list(range(key, 60, 3)))
        equal([int(count) for _, _, count in own], list(range(1, 21)))


@case("a command emits to outputs with names, in the commit of its line")
def _():
    numbers_file("in.txt", 12)
    write("sort-out", "#!/bin/sh\nread -r n\nmillrace emit even --key k \"half $((n / 2))\"\n"
                      "[ $((n % 2)) = 0 ] || exit 3\necho $n\n", True)
    plan("flow: outputs\nsource: { lines: in.txt }\nsteps:\n"
         "  - { name: a, flat_map: [./sort-out], attempts: 1 }\n"
         "sink:\n  - { name: all, file: all.txt, from: a }\n"
         "  - { name: halves, file: halves.txt, from: a:even }\n")
    r = flow("plan.yaml")
    equal(r.code, 1, r)  # the odd ones fail, with what they emitted
    equal(sorted(map(int, lines_of("all.txt"))), [2, 4, 6, 8, 10, 12])
    equal(sorted(lines_of("halves.txt")), sorted(f"half {n}" for n in range(1, 7)))


@case("a loop goes round until nothing is left")
def _():
    numbers_file("in.txt", 9)
    write("count-down", "#!/bin/sh\nread -r n\necho $n\n[ $n -le 1 ] || millrace emit less $((n - 1))\n", True)
    simple(["name: a, map: [./count-down], loop: a:less"])
    r = flow("plan.yaml")
    equal(r.code, 0, r)
    equal(sorted(map(int, lines_of("out.txt"))), sorted(m for n in range(1, 10) for m in range(1, n + 1)))


@case("split and merge: a line goes to all steps that read it, and comes back from each")
def _():
    numbers_file("in.txt", 500)
    simple(["name: a, filter: 'regex [02468]$'", "name: b, filter: 'regex [13579]$', from: source",
            "name: both, map: fields 1, from: [a, b, source]",
            "name: sum, aggregate: sum, key: all"])
    equal(flow("plan.yaml").code, 0)
    equal(read("out.txt"), f"{2 * sum(range(501))}\n")


# ---- Steps that misbehave ----------------------------------------------------------------------


@case("a dead line is reported with its step and the step's line in the file; the others are processed")
def _():
    numbers_file("in.txt", 10)
    for step, said in [
            ("map: [sh, -c, 'read n; [ $n != 7 ] || exit 5; echo $n']", "exit code 5"),
            ("map: [sh, -c, 'read n; [ $n != 7 ] || { echo no such host >&2; exit 1; }; echo $n']", "no such host"),
            ("map: [sh, -c, 'read n; [ $n = 7 ] || echo $n']", "it wrote nothing, and a map answers with one line"),
            ("map: [sh, -c, 'read n; echo $n; [ $n != 7 ] || echo $n']", "it wrote more than one line"),
            ("map: [sh, -c, 'read n; [ $n != 7 ] || kill -9 $$; echo $n']", "killed by signal 9"),
            ("map: [sh, -c, 'read n; [ $n != 7 ] || sleep 100; echo $n'], timeout: 100ms", "timed out after 100 ms"),
            ("map: [sh, -c, 'read n; [ $n != 7 ] || millrace emit nowhere x; echo $n']", "it emits to 'nowhere', and no step has from: a:nowhere"),
            ("map: [sh, -c, 'read n; [ $n != 7 ] || echo x | millrace state --set - || exit 6; echo $n']", "a job without a key has no channel to keep state"),
            ("key: field 1, map: [sh, -c, 'read n; [ $n != 7 ] || head -c 1100000 /dev/zero | millrace state --set - || exit 6; echo $n']", "the limit is 1048576"),
            ("filter: [sh, -c, 'read n; [ $n != 7 ] || exit 2']", "exit code 2")]:
        simple([f"name: a, {step}, attempts: 2, backoff: 1ms..1ms"])
        r = flow("plan.yaml")
        equal(r.code, 1, step, r)
        equal(sorted(map(int, lines_of("out.txt"))), [1, 2, 3, 4, 5, 6, 8, 9, 10], step, r)
        check(re.search(r"flow: plan\.yaml:4: a: [^\n]*" + re.escape(said)
                        + r"[^\n]*; the line is '7'(, its key '7')? \(job \d+ of simple/a\)\n", r.err), said, r)
        check("millrace dead --at file:" in r.err, r)
        check(os.path.exists("simple.journal/finished"), "what died is kept")
    listed = subprocess.run([MILLRACE, "dead", "--at", "file:simple.journal/finished"],
                            capture_output=True, text=True)
    check("simple/a" in listed.stdout and "exit code 2" in listed.stdout, listed)


@case("a line without a number or a key dies alone; sums are of the rest")
def _():
    write("in.txt", "".join(f"a {n}\n" for n in range(100)) + "a x\n\n" + "b 1e2\nb 0.5\nc 1\r\n")
    simple(["name: s, aggregate: sum, key: field 1"])
    r = flow("plan.yaml")
    equal(r.code, 1, r)
    equal(sorted(lines_of("out.txt")), [f"a\t{sum(range(100))}", "b\t100.5"], r)
    check("flow: plan.yaml:4: s: 'x' (the last field) is no number; the line is 'a x', its key 'a' (job " in r.err, r)
    check("flow: plan.yaml:4: s: there is no key (field 1); the line is '' (job " in r.err, r)
    check(r"s: '1\x0d' (the last field) is no number; the line is 'c 1\x0d', its key 'c' (job " in r.err, r)
    listed = subprocess.run([MILLRACE, "dead", "--at", "file:simple.journal/finished"],
                            capture_output=True, text=True).stdout
    check("plan.yaml:4: s: 'x' (the last field) is no number" in listed and "--in" not in listed, listed)


@case("an aggregate with too many keys for its partitions is reported; with more partitions it works")
def _():
    write("in.txt", "".join(f"somebody-with-a-long-name-{n} 1\n" for n in range(60000)))
    simple(["name: s, aggregate: sum, key: field 1, partitions: 1"])
    r = flow("plan.yaml")
    equal(r.code, 1, r)
    check(re.search(r"flow: plan\.yaml:4: s: what its keys keep .* 1 MiB .* it has 1, 256 at most", r.err), r)
    simple(["name: s, aggregate: sum, key: field 1, partitions: 256"])
    r = flow("plan.yaml")
    equal((r.code, len(lines_of("out.txt"))), (0, 60000), r)


@case("what is too large is not tried again: the output of a command, what a server takes")
def _():
    numbers_file("in.txt", 3)
    simple(["name: a, flat_map: [sh, -c, 'read n; [ $n != 2 ] || head -c 9000000 /dev/zero; echo $n']"])
    r = flow("plan.yaml")
    equal((r.code, sorted(lines_of("out.txt"))), (1, ["1", "3"]), r)
    check(re.search(r"plan\.yaml:4: a: wrote more than \d+ bytes; the line is '2'", r.err), r)
    check("; 1 failed attempt, 1 dead job" in r.err, r)
    server = Server("--store", "mem:", "--max-body", "65536")
    r = flow("--at", server.url, simple(
        ["name: a, flat_map: [sh, -c, 'read n; [ $n != 2 ] || head -c 100000 /dev/zero; echo $n']"]))
    equal((r.code, sorted(lines_of("out.txt"))), (1, ["1", "3"]), r)
    check("; 1 failed attempt, 1 dead job" in r.err and "65536" in r.err, r)
    server.stop()


@case("a filter that buffers its answers is reported, with its current line")
def _():
    numbers_file("in.txt", 3)
    write("step", "#!/bin/sh\nread n\necho >started.x\nuntil [ -e go ]; do sleep 0.01; done\n"
                  "echo $n\nexec cat\n", True)
    simple(["name: a, map: [./step], mode: filter, jobs: 1"])
    r = Flow("plan.yaml")
    wait_until(lambda: "does it hold back what it writes?" in r.said(), "the notice")
    write("go", "")
    r = r.end()
    equal((r.code, sorted(lines_of("out.txt"))), (0, ["1", "2", "3"]), r)
    check(re.search(r"flow: plan\.yaml:4: a: it has had the line '1' for \d+ s and not answered", r.err), r)


@case("on-dead: halt stops the flow; corrected, it continues, and nothing is lost or doubled")
def _():
    numbers_file("in.txt", 400)
    write("step", "#!/bin/sh\nread n; [ $n != 77 ] || exit 9; echo $n\n", True)
    simple(["name: a, map: [./step], attempts: 1, on-dead: halt", "name: s, aggregate: sum, key: all"])
    r = flow("plan.yaml")
    equal(r.code, 1, r)
    check("halted, because of on-dead: halt" in r.err and "exit code 9; the line is '77'" in r.err, r)
    check("millrace drop --at file:" in r.err, r)
    check("the same command goes on from here" in r.err, r)
    equal(size_of("out.txt"), 0)
    write("step", "#!/bin/sh\ncat\n", True)
    r = flow("plan.yaml")
    equal((r.code, read("out.txt")), (0, f"{sum(range(401))}\n"), r)


@case("E5: a filter that ends again and again is given up, and its lines stay")
def _():
    numbers_file("in.txt", 50)
    write("bad", "#!/bin/sh\nexit 4\n", True)
    simple(["name: a, map: [./bad], mode: filter, attempts: 1000, backoff: 1ms..1ms", "name: s, aggregate: sum, key: all"])
    r = flow("plan.yaml")
    equal(r.code, 1, r)
    check(re.search(r"plan\.yaml:4: a: more than 10 restarts in 10000 ms: .*exit code 4", r.err), r)
    write("bad", "#!/bin/sh\nexec cat\n", True)
    r = flow("plan.yaml")
    equal((r.code, read("out.txt")), (0, f"{sum(range(51))}\n"), r)


# ---- Interrupted, killed, continued ------------------------------------------------------------


def meeting_step(name):
    """A step whose lines wait for the file `go`, after they have reported that they run."""
    write(name, "#!/bin/sh\nread -r n\n: >started.$n\nuntil [ -e go ]; do sleep 0.01; done\necho $n\n", True)


def started():
    return [f for f in os.listdir(".") if f.startswith("started.")]


@case("Ctrl-C lets running jobs finish, reads no more, and the same command continues")
def _():
    numbers_file("in.txt", 600)
    meeting_step("step")
    simple(["name: a, map: [./step], jobs: 2", "name: s, aggregate: sum, key: all"])
    r = Flow("plan.yaml")
    wait_until(lambda: len(started()) == 2, "two lines run")
    r.signal(signal.SIGINT)
    wait_until(lambda: "what runs may finish" in r.said(), "it hears")
    write("go", "")
    r = r.end()
    equal(r.code, 130, r)
    check("the same command goes on from here" in r.err and "is not finished" in r.err, r)
    equal(len(started()), 2)
    write("step", "#!/bin/sh\ncat\n", True)
    r = flow("plan.yaml")
    equal((r.code, read("out.txt")), (0, f"{sum(range(601))}\n"), r)


@case("U14: after one SIGTERM a filter that never answers is ended, and its lines go back uncounted")
def _():
    numbers_file("in.txt", 20)
    write("step", "#!/bin/sh\ntouch up\nwhile read line; do :; done\n", True)
    simple(["name: a, map: [./step], mode: filter, jobs: 1, attempts: 1"])
    r = Flow("plan.yaml")
    wait_until(lambda: os.path.exists("up"), "the filter runs")
    r.signal(signal.SIGTERM)
    r = r.end()
    equal(r.code, 130, r)
    check("plan.yaml:4: a: it does not answer" in r.err and "goes on from here" in r.err, r)
    write("step", "#!/bin/sh\nwhile read line; do echo $line; done\n", True)
    r = flow("plan.yaml")
    equal((r.code, len(lines_of("out.txt"))), (0, 20), r)


@case("U14: the summary of a continued flow counts the lines of all its runs")
def _():
    numbers_file("in.txt", 600)
    meeting_step("step")
    simple(["name: a, map: [./step], jobs: 2"])
    r = Flow("plan.yaml")
    wait_until(lambda: len(started()) == 2, "two lines run")
    r.signal(signal.SIGINT)
    wait_until(lambda: "what runs may finish" in r.said(), "it hears")
    write("go", "")
    equal(r.end().code, 130)
    write("step", "#!/bin/sh\ncat\n", True)
    r = flow("--json", "plan.yaml")
    summary = json.loads(r.err.splitlines()[-1])
    equal((r.code, summary["read"], summary["written"]), (0, 600, 600), r)
    check(summary["read-before"] > 0, r)


@case("U14: a flow that comes through a pipe has its names and its journal in the current directory")
def _():
    write("in.txt", "1\n2\n")
    simple(["name: a, filter: [grep, -q, '1'], attempts: 1", "name: b, filter: ['false', '{}'], attempts: 1"])
    os.mkdir("elsewhere")
    with open("plan.yaml") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as cat:
        fd = cat.stdout.fileno()
        r = flow(f"/dev/fd/{fd}", pass_fds=[fd])
    equal((r.code, read("out.txt"), os.path.exists("simple.journal")), (0, "", False), r)


@case("U14: a dead letter is listed with the key of its line, or with none as the line")
def _():
    write("in.txt", "ann 1\nbob x\n\n")
    simple(["name: a, map: [grep, -v, ann], key: field 1, attempts: 1", "name: s, aggregate: sum, key: field 1"])
    r = flow("plan.yaml")
    equal(r.code, 1, r)
    check("the line is 'ann 1', its key 'ann'" in r.err and "the line is 'bob x', its key 'bob'" in r.err, r)
    listed = subprocess.run([MILLRACE, "dead", "--json", "--at", "file:simple.journal/finished"],
                            capture_output=True, text=True)
    rows = {row["key"]: row["stage"] for row in json.loads(listed.stdout)}
    equal(rows, {"ann": "simple/a", "bob": "simple/a", "": "simple/a"}, listed)


@case("G11: the last words of the command of a dead letter are kept with its reason")
def _():
    write("in.txt", "ann\n")
    write("step", "#!/bin/sh\necho one >&2; echo two >&2; exit 3\n")
    os.chmod("step", 0o755)
    simple(["name: a, map: [./step], attempts: 2", "name: s, aggregate: sum, key: all"])
    r = flow("plan.yaml")
    equal(r.code, 1, r)
    listed = subprocess.run([MILLRACE, "dead", "--json", "--at", "file:simple.journal/finished"],
                            capture_output=True, text=True)
    last = json.loads(listed.stdout)[0]["reasons"][-1]
    check("exit code 3: two" in last["text"], listed)
    equal(last["output"], "one\ntwo\n", listed)


@case("U14: on a server, too: dead letters are listed, picked and retried by the key of their line")
def _():
    server = Server("--store", "mem:")
    write("in.txt", "ann 1\nbob x\ncid 2\ncid y\n")
    r = flow("--at", server.url, simple(["name: s, aggregate: sum, key: field 1, attempts: 1"]))
    equal(r.code, 1, r)
    def millrace(*words):
        return subprocess.run([MILLRACE, *words, "--at", server.url], capture_output=True, text=True)
    listed = millrace("jobs", "--json", "--status", "dead", "simple/source")
    equal(sorted(row["key"] for row in json.loads(listed.stdout)), ["bob", "cid"], listed)
    picked = millrace("retry", "simple/source", "--dead", "--key", "cid", "--json")
    equal((picked.returncode, picked.stdout.strip()), (0, '{"count": 1}'), picked)
    server.stop()


@case("U16: Ctrl-C ends a flow whose server does not answer")
def _():
    server = Server("--store", "mem:")
    numbers_file("in.txt", 20)
    meeting_step("step")
    simple(["name: a, map: [./step], jobs: 2"])
    r = Flow("--at", server.url, "plan.yaml")
    wait_until(lambda: len(started()) == 2, "two lines run")
    server.signal(signal.SIGSTOP)
    while r.process.poll() is None:  # the first may come before it waits for the server
        r.signal(signal.SIGINT)
        select.select([], [], [], 0.05)
    r = r.end()
    equal(r.code, 130, r)
    check("the engine does not answer; leaving without it" in r.err, r)
    server.signal(signal.SIGCONT)
    server.stop()


@case("U16: one Ctrl-C ends a flow whose server has gone")
def _():
    meeting_step("step")
    for step in "./step", "cat":
        server = Server("--store", "mem:")
        simple([f"name: a, map: [{step}], jobs: 2"], source="stdin")
        r = Flow("--at", server.url, "plan.yaml", stdin=subprocess.PIPE)
        r.process.stdin.write(b"1\n2\n")
        r.process.stdin.flush()
        if step == "cat":
            wait_until(lambda: size_of("out.txt") == 4, "both lines go through")
        else:
            wait_until(lambda: len(started()) == 2, "two lines run")
        server.kill()
        r.signal(signal.SIGINT)
        ended = r.end()
        equal(ended.code, 130, step, ended)
        check("the engine does not answer; leaving without it" in ended.err, step, ended)


@case("F3: a flow reports once that its server is lost, once that it is back, and continues")
def _():
    server = Server("--store", "file:store")
    simple(["name: a, filter: 'regex .'"], source="stdin")
    r = Flow("--at", server.url, "plan.yaml", stdin=subprocess.PIPE)
    r.process.stdin.write(b"before\n")
    r.process.stdin.flush()
    wait_until(lambda: size_of("out.txt") == len("before\n"), "the line goes through")
    server.kill()
    wait_until(lambda: "flow: trying again: " in r.said(), "the notice")
    server.start()
    wait_until(lambda: "flow: connected again" in r.said(), "the notice")
    r.process.stdin.write(b"after\n")
    r.process.stdin.close()
    ended = r.end()
    equal((ended.code, read("out.txt")), (0, "before\nafter\n"), ended)
    equal((ended.err.count("trying again: "), ended.err.count("connected again")), (1, 1), ended)
    server.stop()


@case("Ctrl-C twice ends what runs, which counts no attempt")
def _():
    numbers_file("in.txt", 20)
    meeting_step("step")
    simple(["name: a, map: [./step], jobs: 2, attempts: 1", "name: s, aggregate: sum, key: all"])
    r = Flow("plan.yaml")
    wait_until(lambda: len(started()) == 2, "two lines run")
    r.signal(signal.SIGINT)
    wait_until(lambda: "what runs may finish" in r.said(), "it hears")
    while r.process.poll() is None:  # signals that come too soon count once
        r.signal(signal.SIGINT)
        select.select([], [], [], 0.05)
        if "ending what runs" in r.said():
            break
    r = r.end()
    equal(r.code, 130, r)
    write("go", "")
    r = flow("plan.yaml")
    equal((r.code, read("out.txt")), (0, f"{sum(range(21))}\n"), r)


@case("changed input is refused; --fresh starts again; so does a finished flow")
def _():
    numbers_file("in.txt", 500)
    write("step", "#!/bin/sh\nexit 1\n", True)
    simple(["name: a, map: [./step], jobs: 2, attempts: 1, on-dead: halt", "name: s, aggregate: sum, key: all"])
    equal(flow("plan.yaml").code, 1)
    write("step", "#!/bin/sh\ncat\n", True)
    write("in.txt", "".join(f"{n}\n" for n in range(2, 502)))
    r = flow("plan.yaml")
    equal(r.code, 2, r)
    check("plan.yaml:2: these lines are not those that the flow has begun with; --fresh" in r.err, r)
    simple(["name: a, map: [./step]", "name: s, aggregate: sum, key: all, window: { size: 3 }"])
    r = flow("plan.yaml")
    equal(r.code, 2, r)
    check("was begun with" in r.err and "begin anew: --fresh" in r.err, r)
    simple(["name: a, map: [./step]", "name: s, aggregate: sum, key: all"], sink="{ file: other.txt }")
    r = flow("plan.yaml")
    equal(r.code, 2, r)
    check("now it has 'sink file partitions 1 other.txt'" in r.err, r)
    simple(["name: a, map: [./step]", "name: s, aggregate: sum, key: all"])
    r = flow("--fresh", "plan.yaml")
    equal((r.code, read("out.txt")), (0, f"{sum(range(2, 502))}\n"), r)
    write("in.txt", "5\n")
    r = flow("plan.yaml")
    equal((r.code, read("out.txt")), (0, "5\n"), r)


@case("lines of a slow stdin are processed as they arrive")
def _():
    simple(["name: a, map: [sed, s/^/x/]"], source="stdin")
    r = Flow("plan.yaml", stdin=subprocess.PIPE)
    for n in range(3):
        r.process.stdin.write(b"%d\n" % n)
        r.process.stdin.flush()
        wait_until(lambda: size_of("out.txt") == 3 * (n + 1), "a line goes through")
    r.process.kill()
    r.process.stdin.close()
    equal(r.end().code, -9)
    r = flow("plan.yaml", data="".join(f"{n}\n" for n in range(6)))
    equal((r.code, sorted(lines_of("out.txt"))), (0, [f"x{n}" for n in range(6)]), r)


@case("names in the file are relative to it, those on the command line are not")
def _():
    os.makedirs("there")
    write("there/in.txt", "a\n")
    write("there/step", "#!/bin/sh\nsed s/a/b/\n", True)
    write("there/plan.yaml", "flow: f\nsource: { lines: in.txt }\nsteps: [{ name: s, map: [./step] }]\n"
                             "sink: { file: out.txt }\n")
    r = flow("--journal", "here", "--progress", "there/plan.yaml")
    equal((r.code, read("there/out.txt")), (0, "b\n"), r)
    check("1 line read, 1 written to there/out.txt in " in r.err, r)
    equal(sorted(os.listdir(".")), ["here", "there"])


@case("the summary names the sinks, unless they are many")
def _():
    write("in.txt", "a\n")
    sinks = [f"{{ name: s{i}, file: {os.path.join(top, f'out{i}') if i == 1 else f'out{i}'} }}" for i in range(3)]
    plan(f"flow: f\nsource: {{ lines: in.txt }}\nsink: [{', '.join(sinks)}]\n")
    r = flow("--progress", "plan.yaml")
    check(f" written to out0, {top}/out1, out2 in " in r.err, r)
    plan(f"flow: f\nsource: {{ lines: in.txt }}\nsink: [{', '.join(sinks)}, {{ name: t, stdout: }}]\n")
    r = flow("--progress", "plan.yaml")
    equal((r.code, r.out), (0, "a\n"), r)
    check(" written to 4 sinks in " in r.err, r)
    plan("flow: f\nsource: { lines: in.txt }\nsink: stdout\n")
    check(" written to stdout in " in flow("--progress", "plan.yaml").err)


@case("another journal, one that is none, and one in use are refused")
def _():
    numbers_file("in.txt", 20)
    meeting_step("step")
    simple(["name: a, map: [./step]"])
    os.makedirs("foreign")
    write("foreign/letter", "x")
    r = flow("--journal", "foreign", "plan.yaml")
    check(r.code in (2, 3) and "foreign is no journal" in r.err, r)
    first = Flow("plan.yaml")
    wait_until(started, "a line runs")
    r = flow("plan.yaml")
    equal(r.code, 3, r)
    write("go", "")
    equal(first.end().code, 0)
    equal(sorted(map(int, lines_of("out.txt"))), list(range(1, 21)))


# ---- Killed at any instant ---------------------------------------------------------------------

CHAOS = """flow: chaos
source: { lines: in.txt, key: field 1 }
steps:
  - { name: words, flat_map: [./double], mode: filter }
  - { name: stumble, crash: 0.3 }
  - { name: sums, aggregate: sum, key: field 1, value: field 2 }
  - { name: windows, aggregate: count, window: { size: 10, slide: 5 }, from: stumble }
sink:
  - { name: totals, file: totals.tsv, from: sums }
  - { name: counts, file: counts.tsv, from: windows }
  - { name: copies, file: copies.tsv, from: stumble }
"""


def chaos_files(count):
    plan(CHAOS)
    write("double", "#!/bin/sh\nexec sed -u 'p;s/.*/&\\n/'\n", True)
    write("in.txt", "".join(f"k{n % 11} {n}\n" for n in range(count)))


def chaos_check(count, about):
    sums, lines = collections.Counter(), collections.Counter()
    for n in range(count):
        sums[f"k{n % 11}"] += 2 * n
        lines[f"k{n % 11} {n}"] += 2
    equal(dict(line.split("\t") for line in lines_of("totals.tsv")), {k: str(v) for k, v in sums.items()}, about)
    equal(collections.Counter(lines_of("copies.tsv")), lines, about)
    windows = collections.Counter()
    for key in range(11):
        values = 2 * len(range(key, count, 11))
        for begin in range(0, values, 5):
            windows[f"k{key}\t{min(10, values - begin)}"] += 1
    equal(collections.Counter(lines_of("counts.tsv")), windows, about)


@case("E4: kill -9 at any instant: sums, windows and files are those without a fault")
def _():
    seed = random.randrange(1 << 32)
    random.seed(seed)
    count = 20000 if LONG else 4000
    chaos_files(count)
    end = time.monotonic() + (SECONDS if LONG else 3)
    kills = 0
    while True:
        r = Flow("plan.yaml")
        killed = time.monotonic() < end
        if killed:
            select.select([], [], [], random.uniform(0.02, 0.5))
            r.process.kill()
            kills += 1
        ended = r.end()
        if ended.code != -9:
            break
    equal(ended.code, 0, f"seed {seed}, {kills} kills", ended)
    chaos_check(count, f"seed {seed}, {kills} kills")
    print(f"# {kills} kills, seed {seed}")


# ---- On a server -------------------------------------------------------------------------------


@case("a flow on a server: others see its stages; when finished, it starts again")
def _():
    server = Server("--store", "file:store")
    url = server.url
    for count in 300, 200:
        numbers_file("in.txt", count)
        simple(["name: a, map: [cat], mode: filter", "name: s, aggregate: sum, key: all"])
        r = flow("--at", url, "plan.yaml")
        equal((r.code, read("out.txt")), (0, f"{sum(range(count + 1))}\n"), r)
    stages = subprocess.run([MILLRACE, "stages", "--at", url], capture_output=True, text=True).stdout
    check("simple/a" in stages and "simple/s" in stages, stages)
    server.stop()


@case("a file that has grown since its end was read is refused, in words")
def _():
    server = Server("--store", "mem:")
    url = server.url
    look = [MILLRACE, "epic", "simple/source", "simple/source/1", "--json", "--at", url]
    numbers_file("in.txt", 10)
    simple(["name: a, map: [sleep, '1000']"])
    r = Flow("--at", url, "plan.yaml")
    wait_until(lambda: '"total": 1,' in subprocess.run(look, capture_output=True, text=True).stdout,
               "all is read")
    r.kill()
    numbers_file("in.txt", 11)
    simple(["name: a, map: [cat]"])
    r = flow("--at", url, "plan.yaml")
    equal(r.code, 2, r)
    check("plan.yaml:2: there are more lines than the flow has begun with; another name of the flow" in r.err, r)
    server.stop()


@case("stages as source and sink: jobs that others push reach the worker of the sink")
def _():
    server = Server("--store", "mem:")
    url = server.url
    simple(["name: a, map: [sed, -u, s/^/got /], mode: filter"], source="{ stage: orders }",
           sink="{ stage: done }")
    r = Flow("--at", url, "plan.yaml")
    pushed = subprocess.run([MILLRACE, "push", "orders", "--lines", "--at", url, "--key-field", "1"],
                            input="x 1\nx 2\ny 3\n", text=True, capture_output=True)
    equal(pushed.returncode, 0, pushed)

    worker = subprocess.Popen([MILLRACE, "work", "done", "--at", url, "--jobs", "1", "--", "tee", "-a", "got"],
                              stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_until(lambda: size_of("got") == 3 * len("got x 1"), "all have gone through")
    worker.send_signal(signal.SIGINT)
    equal(worker.wait(), 130)
    equal(sorted(re.findall(r"got \w \d", read("got"))), ["got x 1", "got x 2", "got y 3"])
    check(read("got").index("x 1") < read("got").index("x 2"), "of one key in order")
    r.signal(signal.SIGINT)
    ended = r.end()
    check(ended.code == 130 and " 3 written to stage done in " in ended.err, ended)
    server.stop()


@case("a flow from a stage into a file continues where it was stopped, and nothing is lost")
def _():
    server = Server("--store", "mem:")
    url = server.url
    write("out.txt", "of another time\n")
    simple(["name: a, map: fields 1"], source="{ stage: orders, key: all }")
    expected = ""
    for name in "one", "two", "three":
        r = Flow("--at", url, "plan.yaml")
        subprocess.run([MILLRACE, "push", "orders", name, "--at", url], check=True, capture_output=True)
        expected += name + "\n"
        wait_until(lambda: read("out.txt") == expected, f"{name} is in the file")
        r.signal(signal.SIGINT)
        r = r.end()
        equal((r.code, read("out.txt")), (130, expected), r)
    server.stop()


def killed_for_a_while(victims):
    """Kills one of them at a time, -9, and starts it again."""
    end = time.monotonic() + (SECONDS if LONG else 4)
    kills = 0
    while time.monotonic() < end:
        select.select([], [], [], random.uniform(0.05, 0.4))
        kills += random.choice(victims)()
    return kills


def killer_of(server):
    def kill():
        server.kill()
        server.start()
        return 1
    return kill


def killer_in(commands, name, start):
    """Of a command that has not ended by itself; who finds no server (3) has to be started again, too."""
    def kill():
        if commands[name].process.poll() not in (None, 3):
            return 0
        commands[name].kill()
        commands[name] = start()
        return 1
    return kill


def end_of(command, start):
    """The last run, without a kill."""
    ended = command.end()
    return start().end() if ended.code == 3 else ended


@case("F2, F4, F19: a server and two processes of a flow killed at random: nothing lost, nothing twice")
def _():
    seed = random.randrange(1 << 32)
    random.seed(seed)
    count = 20000 if LONG else 3000
    chaos_files(count)
    server = Server("--store", "file:store")
    url = server.url

    def start():
        return Flow("--at", url, "plan.yaml")
    runners = {n: start() for n in range(2)}
    kills = killed_for_a_while([killer_of(server), *(killer_in(runners, n, start) for n in runners)])
    about = f"seed {seed}, {kills} kills"
    for n in runners:
        ended = end_of(runners[n], start)
        equal(ended.code, 0, about, ended)
    chaos_check(count, about)
    print(f"# {about}")
    server.stop()


INTO_STAGE = """flow: into
source: { lines: in.txt, key: field 1 }
sink: { stage: jobs }
"""
OUT_OF_STAGE = """flow: out
source: { stage: made }
sink: { file: out.txt }
"""


@case("D1, D5, F1: workers between two flows, all killed at random with their server: every line once")
def _():
    seed = random.randrange(1 << 32)
    random.seed(seed)
    count = 3000 if LONG else 200
    plan(INTO_STAGE, "into.yaml")
    plan(OUT_OF_STAGE, "out.yaml")
    write("in.txt", "".join(f"k{n % 5} {n}\n" for n in range(count)))
    server = Server("--store", "file:store")
    url = server.url
    for stage in "jobs", "made":
        subprocess.run([MILLRACE, "stage", stage, "attempts=60000", "backoff=0ms", "--at", url],
                       check=True, capture_output=True)
    starts = {"into": lambda: Flow("--at", url, "into.yaml"), "out": lambda: Flow("--at", url, "out.yaml")}
    for n in range(2):
        starts[f"worker {n}"] = lambda: Running(
            MILLRACE, "work", "jobs", "--at", url, "--jobs", "2", "--", "sh", "-c",
            'millrace emit made --key "$MILLRACE_KEY"', stdin=subprocess.DEVNULL, text=True)
    running = {name: start() for name, start in starts.items()}
    kills = killed_for_a_while([killer_of(server), *(killer_in(running, n, s) for n, s in starts.items())])
    about = f"seed {seed}, {kills} kills"

    def runs():
        """Runs of the first flow: killed between its end and its exit, it correctly starts again."""
        listed = subprocess.run([MILLRACE, "epics", "--json", "--at", url], check=True, capture_output=True)
        return max((int(e["name"].split("/")[-1]) for e in json.loads(listed.stdout)
                    if e["name"].startswith("into/")), default=0)

    def all_is_through():
        for name, start in starts.items():
            if running[name].process.poll() == 3:
                running[name] = start()
        return running["into"].process.poll() is not None and len(lines_of("out.txt")) >= count * runs()
    wait_until(all_is_through, f"all have gone through, {about}")
    ended = running["into"].end()
    equal(ended.code, 0, about, ended)
    for name in "worker 0", "worker 1", "out":
        running[name].kill()
    lines, times = lines_of("out.txt"), runs()
    for key in range(5):  # once each time, and in order
        equal([line for line in lines if line.startswith(f"k{key} ")],
              [f"k{key} {n}" for n in range(key, count, 5)] * times, about)
    equal(len(lines), count * times, about)
    print(f"# {about}, {times} runs")
    server.stop()


# ---- Much --------------------------------------------------------------------------------------


@case("a failed source is reported while a command still runs, and Ctrl-C ends the command")
def _():
    os.mkfifo("in")
    write("step", "#!/bin/sh\necho >started.x; exec sleep 1000\n", True)
    simple(["name: a, map: [./step]"], source="{ lines: [in, more] }")
    write("more", "x\n")
    r = Flow("plan.yaml")
    with open("in", "w") as pipe:
        pipe.write("x\n")
        pipe.flush()
        wait_until(started, "the command runs")
        os.remove("more")
    wait_until(lambda: "more: No such file" in r.said(), "the notice")
    r.signal(signal.SIGINT)
    r = r.end()
    equal(r.code, 1, r)
    check("ending what runs" in r.err and "the same command goes on" in r.err, r)


@case("a closed stdout ends the flow, which continues later")
def _():
    numbers_file("in.txt", 30000)  # more than a pipe holds
    simple(["name: a, filter: 'regex .'"], sink="stdout")
    first, last = os.pipe()
    r = Flow("plan.yaml", stdout=last)
    os.close(last)
    got = os.read(first, 1)
    os.close(first)
    r = r.end()
    equal((got, r.code, "could not be written" in r.err), (b"1", 130, False), r)
    with open("/dev/full", "w") as full:
        r = flow("plan.yaml", stdout=full)
    check(r.code == 1 and r.err.count("No space left") == 1 and "could not be written" not in r.err, r)
    r = flow("plan.yaml")
    equal((r.code, max(map(int, r.out.split()))), (0, 30000), r)


@case("a million lines are counted in 64 MB" if LONG else "many lines are counted in 64 MB")
def _():
    count = 1000000 if LONG else 60000
    vocabulary = [f"w{n * 7919 % 5003}" for n in range(5003)]

    def words(n):
        return vocabulary[n % 5003], vocabulary[n * n % 5003]

    def run(out, *steps, line):
        with open("in.txt", "w") as file:
            file.writelines(line(n) + "\n" for n in range(count))
        simple(steps)
        r = flow("plan.yaml")
        equal(r.code, 0, r)
        os.rename("out.txt", out)
        check(sanitized() or r.memory_kb < MEMORY_KB, f"{out}: {r.memory_kb} KiB")
    # Both before anything is counted here: who starts a command hands it the most memory it ever had itself.
    run("keys.txt", "name: c, aggregate: count, key: field 1",
        line=lambda n: f"user{n * 7919 % 1000003} {n % 100}")
    run("words.txt", "name: split, flat_map: words", "name: c, aggregate: count, key: field 1",
        line=lambda n: " ".join(words(n)))
    equal(len(set(lines_of("keys.txt"))), count)
    counted = collections.Counter(word for n in range(count) for word in words(n))
    equal(dict(line.split("\t") for line in lines_of("words.txt")), {k: str(v) for k, v in counted.items()})


# ---- What people see ---------------------------------------------------------------------------


@case("on a terminal the progress of each step is shown")
def _():
    numbers_file("in.txt", 200)
    meeting_step("step")
    simple(["name: first, filter: 'regex .'", "name: second, map: [./step], jobs: 1"])
    main, side = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    r = Flow("plan.yaml", stderr=side, env={**environment, "TERM": "xterm"})
    os.close(side)
    seen = b""
    while b"waiting  1 running" not in seen:
        ready, _, _ = select.select([main], [], [], TIMEOUT_S)
        check(ready, "nothing more is drawn", seen)
        seen += os.read(main, 4096)
    check(re.search(rb"\[#*\.*\] \d+ %  \d+ lines/s", seen), seen)
    check(re.search(rb"first +\d+ in +\d+ out", seen), seen)
    write("go", "")
    while True:
        try:
            piece = os.read(main, 4096)
        except OSError:
            break
        seen += piece
        if not piece:
            break
    equal(r.end().code, 0)
    check(re.search(rb"flow simple has finished: 200 lines read, 200 written to \S+ in ", seen), seen)
    os.close(main)


@contextlib.contextmanager
def folder():
    """Each case is in an empty one."""
    here = tempfile.mkdtemp(dir=top)
    os.chdir(here)
    yield
    os.chdir(top)
    shutil.rmtree(here, ignore_errors=True)


main(folder)
