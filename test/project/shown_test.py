#!/usr/bin/env python3
"""shown_test.py BUILD ROOT: what help, README.md and docs/*.md show is run as it is printed. A case is a
command line; it finds the files, jobs and servers that it speaks of (see `prepare`), and only addresses,
paths of the system and numbers of jobs are put in their places. It must exit with 0; what goes on until it
is ended (serve, work) must do its work first."""
import atexit
import functools
import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from nats import Nats, why_no_nats
from postgres import Postgres, why_no_postgres
from running import Running, wait_until
from served import Client, Server, lasting_address, write
from tap import MILLRACE, TIMEOUT_S, case, cases, check, equal, main, top

ROOT = os.path.realpath(sys.argv[2] if len(sys.argv) > 2 else ".")
STANDS_IN = {  # for programs that it is not about; those that are there are not run
    "wget": 'touch "fetched-${2##*/}"', "convert": 'if [ "$1" = - ]; then cat; else cp "$1" "$2"; fi'}
if not shutil.which("jq"):
    STANDS_IN["jq"] = "cat"

os.chdir(top)
os.environ.update(NO_COLOR="1", XDG_STATE_HOME=os.path.join(top, "state"),
                  PATH=f"{top}/bin:{os.environ['PATH']}")
for name in "MILLRACE_TOKEN", "MILLRACE_TOKEN_FILE", "MILLRACE_SIDE_FILE":
    os.environ.pop(name, None)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def bash(line, **more):
    return subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True,
                          timeout=TIMEOUT_S, **more)


def ok(line):
    ended = bash(line)
    check(ended.returncode == 0, line, ended)
    return ended.stdout


# ---- What is shown -----------------------------------------------------------------------------


def joined(lines):
    """Command lines, each with what goes on in the next line; `id=` belongs to what follows."""
    whole = ""
    for line in lines:
        whole = f"{whole}{line}\n"
        if not re.search(r"(\\|\|)$", line) and not re.match(r"\w+=\$\(", line):
            yield whole.strip()
            whole = ""


def shown_by_help():
    overview = ok("millrace help")
    for name in re.findall(r"^  ((?:auth|cluster|inbox|schedule|store) \w+|(?!millrace)[a-z]+) ", overview, re.M):
        printed = ok(f"millrace help {name}").split("\nExamples:\n")[1]
        lines = [line[2:] for line in printed.splitlines() if not line.startswith("      ")]
        for line in joined(line.strip() for line in lines):
            yield f"help {name}", line


def shown_by(path):
    """The lines in the indented blocks of a page that run our command or ask our server, without their
    comments."""
    blocks = re.findall(r"(?:^    .*\n)+", read(path), re.M)
    lines = [re.sub(r"\s+#.*", "", line[4:]) for block in blocks for line in block.splitlines()]
    for line in joined(lines):
        if re.search(r"^curl |(^|[|&(] *|\w=\S+ )millrace [a-z]", line):
            yield path, line


# ---- What it needs -----------------------------------------------------------------------------


def make_files():
    os.makedirs("bin")
    os.symlink(MILLRACE, "bin/millrace")
    for name, script in [*STANDS_IN.items(), ("../send", "cat")]:
        write(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        os.chmod(f"bin/{name}", 0o755)
    os.makedirs("photos/summer")
    for name in "big.jpg", "small.jpg", "photos/one.png", "photos/summer/two.png":
        write(name, f"picture {name}\n")
    write("urls.txt", "http://one.example/1\nhttp://one.example/2\n")
    write("letters.jsonl", "".join(f'{{"to": "{name}"}}\n' for name in ("ann", "bob", "ann")))
    write("text.txt", "one two\ntwo\n")
    write("words.yaml", re.search(r"^flow: words\n(?:.+\n)+?(?=```)", read("docs/flows.md"), re.M)[0])
    ok("sed 's/flow: words/flow: campaign/' words.yaml >campaign.yaml")
    shutil.copytree(os.path.join(ROOT, "examples/flows"), "examples/flows")
    schedules = re.search(r"^    reports:.*\n(?:    .*\n)+", read("docs/schedules.md"), re.M)[0]
    write("schedules.yaml", re.sub(r"^    ", "", schedules, flags=re.M))
    write("millrace.conf", ok("millrace help --config"))
    write("secret.txt", "Authorization: Bearer secret\n")
    write("hooks.key", "whsec_YSBrZXkgZm9yIHRlc3RzIG9ubHk=\n")
    ok("openssl req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 2 "
       "-subj /CN=localhost")


def make_job(line):
    delay = ("DELAY", 60000) if "millrace due" in line else ()
    job = client.ask("PUSH", "mail", "to: ann", "KEY", "ann", *delay)
    if delay or "cancel" in line:
        return job
    while (taken := client.ask("TAKE", "mail")[0])[0] != job:
        client.ask("DONE", *taken[:2])
    client.ask("FAIL", *taken[:2], "timeout", "NEVER")
    return job


def ended_epic():
    bash("millrace epic mail june --drop")
    ok("millrace push mail --lines letters.jsonl --key-json to --epic june")
    client.work_off("mail")


def prepare(line):
    """Makes what the line uses; the placeholders in it, with their values."""
    ok("rm -rf data spread copy-of-* millrace.auth *.token")
    ok("millrace push mail hello --at file:./data && millrace resume mail && millrace resume mail --key ann")
    if "channels reports" in line:
        client.ask("STAGE", "reports", "group", "on")
    if re.search("auth list|auth remove|--auth|_FILE", line):
        ok("millrace auth add ci --role push,read --stages 'mail.*' --out ci.token")
    if re.search("epic mail june", line) and "push" not in line:
        ended_epic()
    elif "epic" in line:
        bash("millrace epic mail june --drop")
    if "inbox:app" in line:
        client.ask("EPIC", "mail", "inbox:app", "SKIP", 1)
    if "--remove" in line:
        client.ask("STAGE", "empty", "lease", "30s")
    return {"/etc/millrace.conf": "millrace.conf", "/backup/": "./copy-of-", "/var/lib/millrace/": "./",
            "--at unix:/run/millrace/sock": f"--at {server.url}", "/run/millrace/sock": "./served.sock",
            "/etc/credstore/": "./", "stage mail --remove": "stage empty --remove",
            "$(pidof millrace)": str(server.process.pid), "0.0.0.0:7411": "127.0.0.1:0",
            "--jobs 1000000": "--jobs 1000", "https://mill.example:7412": web,
            "curl -s ": "curl -sf ",  # a refusal is a failure
            "localhost:7412": web.replace("http://", ""),
            "http://localhost:8080/jobs": receiver_url(), "https://app.example/": receiver_url(),
            **{number: make_job(line) for number in ("4711", "4712") if number in line},
            **dict.fromkeys(re.findall(r"millraces?://[\w.]+:7411", line), server.url)}


# ---- Running it --------------------------------------------------------------------------------


def run_serve(line):
    """The words that Server adds go to bash, which leaves them alone."""
    line = re.sub(r"127.0.0.1:74\d1", lambda _: lasting_address(), line)  # which others may use
    more = ("" if "--http" in line else "--http off") + ("" if "--listen" in line else f" --listen {lasting_address()}")
    shown_server = Server(ready=False, through=["bash", "-c", f"exec {line} {more}", "bash"])
    shown_server.wait_notice("ready")
    shown_server.stop()


def run_dev(line):
    """It prints lines to paste, and ends by itself when it is asked to."""
    dev = Running("bash", "-c", f"exec {line}", text=True)
    wait_until(lambda: dev.process.poll() is not None or "millrace://" in dev.read(dev.out) or
               "Only warnings follow" in dev.read(dev.out), line)
    dev.signal(signal.SIGINT)
    equal(dev.end().code, 0, line, dev.end())


def until_done(words, stage, options=()):
    """A worker, which ends a job of the stage."""
    until(words, stage, options, lambda job: client.ask("AWAIT", job, "WAIT", TIMEOUT_S * 1000) is not None)


def until_snoozed(words, stage):
    """A worker, which gives a job of the stage back, and lets it wait."""
    def is_parked(job):
        wait_until(lambda: client.ask("JOBS", stage, "PARKED"), words)
        return client.ask("CANCEL", job) == 1
    until(words, stage, (), is_parked)


def until(words, stage, options, happens):
    job = client.ask("PUSH", stage, "1\n", "KEY", "ann", *options)
    worker = subprocess.Popen(["bash", "-c", f"exec {words}"], stderr=subprocess.PIPE, text=True)
    atexit.register(worker.kill)
    check(happens(job), words)
    worker.send_signal(signal.SIGTERM)
    said = worker.communicate(timeout=TIMEOUT_S)[1]
    equal(worker.returncode, 130, words, said)


class Receiver(http.server.BaseHTTPRequestHandler):
    """What jobs are sent to."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@functools.cache
def receiver_url():
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{receiver.server_port}/jobs"


def run_inside(line):
    quoted = line.replace("'", r"'\''")
    words = f"millrace work inside --shell -- '{quoted}'"
    if line.startswith("millrace snooze"):
        until_snoozed(words, "inside")
    else:
        until_done(words, "inside", ("ATTEMPTS", "1"))


def run_work(line):
    """Why it was skipped, or None."""
    if "--http" in line and "this build has no HTTP" in bash("millrace work mail --http ftp://x/").stderr:
        return "this build has no libcurl"
    until_done(line.rstrip("& "), line.split()[2])
    return None


def run_with_token(line):
    with Server("--store", "mem:", "--auth", "millrace.auth") as asked:
        ended = bash(line.replace(server.url, asked.url), env={**os.environ, "MILLRACE_URL": asked.url})
        check(ended.returncode == 0, ended)


@functools.cache
def database():
    """One with an inbox."""
    postgres = Postgres()
    postgres.sql("CREATE DATABASE app", database="postgres")
    ok(f"millrace inbox install '{postgres.url()}'")
    return postgres


@functools.cache
def why_no_servers():
    without = "no NATS" in bash("millrace store init nats://127.0.0.1:1").stderr
    return "this build has no NATS" if without else why_no_nats()


@functools.cache
def nats():
    """A server with a cluster in it."""
    started = Nats()
    ok(f"millrace store init {started.url()}")
    return started


def make_clusters(line):
    """New ones for each line; a copy makes its own."""
    url = f"'{database().url()}'"
    database().sql("SET client_min_messages = error; "
                   "DROP SCHEMA IF EXISTS millrace_main, millrace_eu, millrace_restored CASCADE")
    if "copy file:" not in line and "--shards" not in line:
        ok(f"millrace store init {url}")
    elif "copy-of-today" in line:
        ok("millrace store copy file:./data file:./copy-of-today")
    if "store check" in line:
        ok(f"millrace store init {url} --cluster eu")


def run_cluster(line):
    """On two nodes of their own, the second being that of the line. Why it was skipped, or None."""
    if why_not := why_no_database():
        return why_not
    url = database().url()
    database().sql("SET client_min_messages = error; DROP SCHEMA IF EXISTS millrace_main CASCADE")
    ok(f"millrace store init '{url}' --shards 4")
    first, second = nodes = [Server("--store", url, "--takeover", "3s") for _ in range(2)]
    line = line.replace("127.0.0.1:7421", f"127.0.0.1:{second.port}").replace(server.url, first.url)
    wait_until(lambda: f":{second.port}" in ok(f"millrace cluster status --at {first.url}"), "both are seen")
    ended = bash(line, env={**os.environ, "MILLRACE_URL": first.url})
    for node in nodes:
        node.kill()
    check(ended.returncode == 0, line, ended)
    return None


def run_inbox(line):
    """A runner goes on until it is ended. Why it was skipped, or None."""
    if why_not := why_no_database():
        return why_not
    line = line.rstrip("& ")
    if "inbox run" not in line or "--until-empty" in line:
        ok(line)
        return None
    runner = Running("bash", "-c", f"exec {line}", text=True)
    wait_until(lambda: "ready" in runner.said() or runner.process.poll() is not None, line)
    runner.signal(signal.SIGTERM)
    equal(runner.end().code, 0, line, runner.end())
    return None


@functools.cache
def why_no_database():
    without = "no PostgreSQL support" in bash("millrace inbox run").stderr
    return "this build has no PostgreSQL support" if without else why_no_postgres()


def run_shown(line):
    for word, stands in prepare(line).items():
        line = line.replace(word, stands)
    if "millrace cluster " in line:
        return run_cluster(line)
    if "postgres://localhost/app" in line:
        if why_not := why_no_database():
            return why_not
        make_clusters(line)
        line = line.replace("postgres://localhost/app", f"'{database().url()}'")
    if "nats://a,b,c" in line:
        if why_not := why_no_servers():
            return why_not
        line = line.replace("nats://a,b,c", nats().url())
    if "millrace serve" in line:
        return run_serve(line.rstrip("& "))
    if "millrace dev" in line:
        return run_dev(line.rstrip("& "))
    if "millrace work " in line:
        return run_work(line)
    if "millrace inbox " in line:
        return run_inbox(line)
    if re.search("millrace (emit|state|snooze|progress)", line):
        return run_inside(line)
    if "TOKEN_FILE" in line:
        return run_with_token(line)
    if "millrace bench" in line and "--jobs" not in line:
        line += " --jobs 1000"
    ok(line)
    return None


def add(where, line):
    @case(f"{where}: {' '.join(line.split())}")
    def _():
        return run_shown(line)


make_files()
server = Server("--store", "mem:", http="127.0.0.1:0")
web = re.search(r"http://[\d.:]+", "".join(server.said))[0]
client = Client(server)
client.ask("PUSH", "mail", "the stage is there")
os.environ["MILLRACE_URL"] = server.url
resizing = subprocess.Popen([MILLRACE, "work", "resize", "--", "cat"])  # whom call and await wait for
atexit.register(resizing.kill)
pages = ["README.md", *(f"docs/{name}" for name in sorted(os.listdir(f"{ROOT}/docs")) if name.endswith(".md"))]
for shown in [*shown_by_help(), *(found for page in pages for found in shown_by(page))]:
    add(*shown)


@case("every command shows something, and so do the pages")
def _():
    names = re.findall(r"^\.SS millrace ((?:auth|cluster|inbox|store) \w+|\w+)", ok("millrace help --man"), re.M)
    for name in names:
        check(any(place.startswith(f"help {name}:") for place, _ in cases), name)
    for page in "README.md", "docs/flows.md", "docs/operating.md", "docs/security.md":
        check(any(place.startswith(page) for place, _ in cases), page)


main()
