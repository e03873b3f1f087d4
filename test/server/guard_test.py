#!/usr/bin/env python3
"""guard_test.py BUILD: servers that ask for tokens or certificates, and those who come: redis-cli,
openssl s_client, the commands and a program of a user. Certificates are made here. Speaks TAP;
nothing waits for time to pass, but a wrong secret does take its second."""
import http.client as http_client
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
import served
from served import Wire
from tap import BUILD, MILLRACE, TIMEOUT_S, case, check, equal, main, top

STORY = os.path.join(BUILD, "test/secure_story")
os.chdir(top)
for name in [n for n in os.environ if n.startswith(("MILLRACE_", "REDISCLI_", "SSL_"))]:
    if name not in ("MILLRACE_LONG", "MILLRACE_SECONDS"):
        del os.environ[name]
os.environ.update(NO_COLOR="1")


class Ended:
    def __init__(self, command, data=b"", **environment):
        process = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S,
                                 env={**os.environ, **environment})
        self.out, self.err, self.code = process.stdout, process.stderr, process.returncode

    def __str__(self):
        return f"exit {self.code}\nstdout {self.out[-2000:]!r}\nstderr {self.err[-2000:]!r}"


def mr(*arguments, data=b"", **environment):
    return Ended([MILLRACE, *arguments], data, **environment)


def ok(*arguments, **more):
    ended = mr(*arguments, **more)
    check(ended.code == 0, arguments, ended)
    return ended.out.decode().rstrip("\n")


def fails(code, said, *arguments, **more):
    ended = mr(*arguments, **more)
    check(ended.code == code and said in ended.err.decode(), arguments, ended)
    return ended


class Server(served.Server):
    def __init__(self, *options, **more):
        super().__init__("--store", "mem:", "--log-level", "debug", *options, **more)

    def reload(self, *texts):
        self.signal(signal.SIGHUP)
        for text in texts:
            self.wait_notice(text)


def write(name, text):
    with open(name, "w") as file:
        file.write(text)
    os.chmod(name, 0o600)
    return name


def token(file, name, role, *more):
    return ok("auth", "add", name, "--role", role, "--auth", file, *more)


# ---- Certificates ---------------------------------------------------------------------------------

def openssl(*words, data=b""):
    ended = Ended(["openssl", *words], data)
    check(ended.code == 0, words, ended)
    return ended.out.decode()


KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def authority(name):
    openssl("req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "30",
            "-subj", f"/CN={name}")


def certificate(name, by="ca", names="DNS:localhost,IP:127.0.0.1", days=30):
    openssl("req", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey", f"{by}.key",
            "-CAcreateserial", "-out", f"{name}.pem", "-days", str(days), "-extfile",
            write("extension", f"subjectAltName={names}\n"))


def shown(name):
    return ["--tls-cert", f"{name}.pem", "--tls-key", f"{name}.key"]


def trusting(certificate=None, ca="ca.pem"):
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(f"{certificate}.pem", f"{certificate}.key")
    return context


def s_client(server, *options, data=b"PING\r\nQUIT\r\n"):
    return Ended(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-CAfile", "ca.pem",
                  "-verify_return_error", "-quiet", *options], data)  # until the server closes


def redis(server, *words, **environment):
    return Ended(["redis-cli", "-h", "localhost", "-p", str(server.port), *words], **environment)


authority("ca")
authority("unknown")
certificate("server")
certificate("elsewhere", names="DNS:elsewhere.example,IP:127.9.9.9")
certificate("expired", days=-1)
certificate("client", names="DNS:client")
certificate("foreign", by="unknown", names="DNS:client")


# ---- Where it listens -----------------------------------------------------------------------------

@case("without tokens it listens on this machine only, and names the way out")
def _():
    for address in "0.0.0.0:0", "[::]:0", "192.0.2.1:0":
        ended = fails(2, "every client that connects could do everything", "serve", "--store", "mem:", "--listen", address)
        check(b"--auth FILE" in ended.err and b"--insecure" in ended.err, ended)
    token("open.auth", "a", "admin")
    with Server("--auth", "open.auth", listen="0.0.0.0:0") as server:
        equal(Wire(server.port).ask("PING")[:7], b"-NOAUTH")
        check("in the clear" in "".join(server.said), *server.said)
    with Server("--insecure", listen="0.0.0.0:0") as server:
        equal(Wire(server.port).ask("PING"), b"+PONG")


@case("a server does not start with tokens or certificates that cannot be used")
def _():
    start = ["serve", "--store", "mem:", "--listen", "127.0.0.1:0"]
    fails(4, "cannot read missing.auth", *start, "--auth", "missing.auth")
    fails(4, "bad.auth: line 2: ", *start, "--auth", write("bad.auth", "# so\nx y z\n"))
    fails(4, "no-such.pem", *start, "--tls-cert", "no-such.pem", "--tls-key", "server.key")
    fails(4, "client.key", *start, "--tls-cert", "server.pem", "--tls-key", "client.key")
    fails(4, "extension", *start, *shown("server"), "--tls-ca", "extension")
    fails(2, "both --tls-cert and --tls-key", *start, "--tls-cert", "server.pem")
    openssl("ec", "-in", "server.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key")
    fails(4, "locked.key", *start, "--tls-cert", "server.pem", "--tls-key", "locked.key")


# ---- Tokens ---------------------------------------------------------------------------------------

# U12: a command that is suggested names the server, and no secret.
@case("what is suggested has the --at that was given, without its secret")
def _():
    secret = token("hint.auth", "hint", "admin")
    with Server("--auth", "hint.auth") as server:
        place = f"127.0.0.1:{server.port}"
        ok("push", "mail", "x", "--at", f"millrace://hint:{secret}@{place}")
        said = ok("why", "mail", "--at", f"millrace://hint:{secret}@{place}")
        check(f"millrace work --at millrace://{place} mail -- COMMAND" in said and secret not in said, said)


@case("U10: auth add, list and remove keep a file that only its owner can read")
def _():
    first = token("t.auth", "first", "push,read", "--stages", "mail.*,sms.*")
    check(re.fullmatch(r"mrt_[\w-]{43}", first), first)
    equal(stat.S_IMODE(os.stat("t.auth").st_mode), 0o600)
    with open("t.auth", "a") as file:
        file.write("# a comment of mine")  # without an end of line
    second = token("t.auth", "second", "admin")
    text = open("t.auth").read()
    check("# a comment of mine\nsecond admin * sha256:" in text, text)
    check(first not in text and second not in text and first != second, text)
    equal(json.loads(ok("auth", "list", "--json", "--auth", "t.auth")),
          [{"name": "first", "roles": "push,read", "stages": "mail.*,sms.*"},
           {"name": "second", "roles": "admin", "stages": "*"}])
    check("mail.*,sms.*" in ok("auth", "list", "--auth", "t.auth"))
    add = ["auth", "add", "--auth", "t.auth"]
    fails(2, "'first' already", *add, "first", "--role", "push")
    fails(2, "'pull' is not a role", *add, "third", "--role", "pull")
    fails(2, "which --role", *add, "third")
    fails(2, "a name has", *add, "default", "--role", "push")
    fails(2, "stages must be", *add, "third", "--role", "push", "--stages", "a b")
    ok("auth", "remove", "first", "--auth", "t.auth")
    fails(1, "no token 'first'", "auth", "remove", "first", "--auth", "t.auth")
    check("# a comment of mine\nsecond" in open("t.auth").read())
    equal(sorted(f for f in os.listdir() if f.startswith("t.auth")), ["t.auth"])
    os.chmod("t.auth", 0o620)
    fails(3, "can be written by users other than its owner", "auth", "list", "--auth", "t.auth")


@case("G13: auth add writes quotas into the file, and refuses what is none")
def _():
    add = ["auth", "add", "--auth", "q.auth", "acme", "--role", "push"]
    for words, said in ((["--max-jobs", "0"], "'max-jobs=0' is not possible: a quota is a number from 1 to 1000000000000000"),
                        (["--max-jobs", "many"], "'max-jobs=many' is not possible"),
                        (["--max-epics", "-1"], "'max-epics=-1' is not possible"),
                        (["--max-stages", "1K"], "'max-stages=1K' is not possible"),
                        (["--max-bytes", "64MB"], "or with a unit: 512K, 64M, 2G, 1T"),
                        (["--max-bytes", "9" * 30], "not possible"),
                        (["--max-sources", "1 max-jobs=1"], "not possible")):
        fails(2, said, *add, *words)
        check(not os.path.exists("q.auth"))
    token("q.auth", "acme", "push", "--max-jobs", "10", "--max-bytes", "64M", "--max-connections", "3")
    check(re.search(r"^acme push \* sha256:[0-9a-f]{64} max-jobs=10 max-bytes=64M max-connections=3$",
                    open("q.auth").read(), re.M))
    token("q.auth", "other", "push")
    equal(json.loads(ok("auth", "list", "--json", "--auth", "q.auth")),
          [{"name": "acme", "roles": "push", "stages": "*", "max-jobs": 10, "max-bytes": 64 << 20,
            "max-connections": 3}, {"name": "other", "roles": "push", "stages": "*"}])
    check(" max-jobs=10 max-bytes=67108864 max-connections=3" in ok("auth", "list", "--auth", "q.auth"))


def http(port, path, secret):
    """The response to a GET on a connection that stays open, and the connection."""
    client = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n".encode())
    response = http_client.HTTPResponse(client)
    response.begin()
    return response.status, response.read().decode(), client


@case("G13: quotas hold for RESP and HTTP together, over loops, and change on SIGHUP")
def _():
    quotas = ["--max-jobs", "2", "--max-connections", "2"]
    acme, other = token("tenants.auth", "acme", "push,read", *quotas), token("tenants.auth", "other", "admin")
    with Server("--auth", "tenants.auth", "--loops", "2", "--shards", "3", http="127.0.0.1:0") as server:
        port = int(re.search(r"http://\S*:(\d+)/", "".join(server.said))[1])
        first = Wire(server.port)
        equal(first.ask("AUTH", acme), b"+OK")
        status, text, second = http(port, "/api/info", acme)
        equal((status, json.loads(text)["info"]["used_connections"]), (200, 2))
        third = Wire(server.port)
        check(third.ask("AUTH", acme).startswith(b"-FULL token 'acme' has 2 connections, and its max-connections is 2"))
        status, text, refused = http(port, "/api/info", acme)
        check(status in (429, 503) and "max-connections" in text, status, text)
        equal(third.ask("AUTH", other), b"+OK")
        for stage in "a", "b":
            check(first.ask("PUSH", stage, "x").isdigit())
        check(first.ask("PUSH", "c", "x").startswith(b"-FULL token 'acme' has 2 jobs, and its max-jobs is 2: jobs must end"))
        for stage in "a", "b", "c":
            check(third.ask("PUSH", stage, "x").isdigit())
        status, text, _ = http(port, "/metrics", other)
        check('millrace_quota_used{token="acme",quota="jobs"} 2\n' in text, text)
        check('millrace_quota_limit{token="acme",quota="connections"} 2\n' in text, text)
        check('token="other"' not in text, text)
        lines = open("tenants.auth").read()
        write("tenants.auth", lines.replace("max-jobs=2", "max-jobs=1"))
        server.reload("token 'acme' has 2 jobs, above its max-jobs of 1: it keeps them, and gets FULL until it has fewer")
        write("tenants.auth", lines.replace("max-jobs=2", "max-jobs=0"))
        server.reload("the old tokens stay in use: tenants.auth: line ")
        write("tenants.auth", lines.replace("max-jobs=2", "max-jobs=3"))
        server.reload("reloaded 2 tokens")
        equal(http(port, "/api/stages", other)[0], 200)  # every loop has the tokens when it answers
        check(first.ask("PUSH", "c", "x").isdigit())
        check(first.ask("PUSH", "c", "x").startswith(b"-FULL token 'acme' has 3 jobs"))
        second.close()


@case("U10: auth add --out writes the secret to a new private file, with any umask")
def _():
    add = ["auth", "add", "--auth", "out.auth", "--role", "push", "--out"]
    before = os.umask(0)
    equal(ok(*add, "out.token", "first"), "")
    os.umask(before)
    equal(stat.S_IMODE(os.stat("out.token").st_mode), 0o600)
    check(re.fullmatch(r"mrt_[\w-]{43}\n", open("out.token").read()))
    kept = open("out.auth").read()
    fails(2, "exists already", *add, "out.token", "second")
    fails(3, "cannot write --out", *add, "missing/out.token", "second")
    fails(2, "'first' already", *add, "second.token", "first")
    equal(open("out.auth").read(), kept)
    check(not os.path.exists("second.token"))


@case("redis-cli comes with user and password, and is held to its roles")
def _():
    push = token("r.auth", "push", "push")
    admin = token("r.auth", "admin", "admin")
    with Server("--auth", "r.auth") as server:
        check(b"NOAUTH" in redis(server, "STAGES").out)
        ended = redis(server, "--user", "push", "--pass", push, "PUSH", "s", "a")
        check(ended.out.strip() == b"1", ended)
        ended = redis(server, "STAGES", REDISCLI_AUTH=push)
        check(ended.out.startswith(b"NOPERM"), ended)
        ended = redis(server, "-3", "STAGES", REDISCLI_AUTH=admin)
        check(b"waiting" in ended.out, ended)
        ended = redis(server, "--user", "admin", "--pass", push, "PING")
        check(b"WRONGPASS" in ended.out + ended.err, ended)


@case("commands find their secret in the environment, a file or the URL, and exit 4 without")
def _():
    secret = token("c.auth", "ci", "push,work", "--stages", "mail")
    write("ci.token", secret + "\n")
    with Server("--auth", "c.auth") as server:
        url = f"millrace://127.0.0.1:{server.port}"
        write("some.yaml", "flow: some\nsource: { lines: some.yaml }\nsink: { file: some.out }\n")
        for command in (["push", "mail", "a"], ["push", "mail", "--lines"], ["flow", "some.yaml"]):
            fails(4, "asks for a token: it comes from MILLRACE_TOKEN", *command, "--at", url)
        fails(4, "asks for a token: it comes from MILLRACE_TOKEN", "work", "mail", "--at", url, "--", "true")
        fails(4, "no token has that secret", "push", "mail", "a", "--at", url,
              MILLRACE_TOKEN="nonsense")
        equal(ok("push", "mail", "a", "--at", url, MILLRACE_TOKEN=secret), "1")
        equal(ok("push", "mail", "a", "--at", url, MILLRACE_TOKEN_FILE="ci.token"), "2")
        write("empty.token", "\n")
        for name, why in ("no", "No such file"), (".", "Is a directory"), ("empty.token", "its first line is empty"):
            fails(2, f"cannot read MILLRACE_TOKEN_FILE {name}: {why}", "push", "mail", "a", "--at", url,
                  MILLRACE_TOKEN_FILE=name)
        for who in secret, f"ci:{secret}", f"c%69:%6d{secret[1:]}":
            ok("push", "mail", "a", "--at", f"millrace://{who}@127.0.0.1:{server.port}")
        fails(4, "does not include the stage 'sms'", "push", "sms", "a", "--at", url, MILLRACE_TOKEN=secret)
        fails(4, "does not have the role read", "stages", "--at", url, MILLRACE_TOKEN=secret)
        fails(4, "no token has", "work", "mail", "--at", url, "--", "true", MILLRACE_TOKEN="no")
        fails(4, "does not include the stage 'sms'", "work", "sms", "--at", url, "--", "true", MILLRACE_TOKEN=secret)
        said = server.stop()
        check(" 1 wrong secret from 127.0.0.1:" in said and secret not in said, said)


def of_process(process, what):
    with open(f"/proc/{process.pid}/{what}", "rb") as file:
        return file.read()


@case("a secret is neither in the list of processes nor in any output")
def _():
    secret = token("p.auth", "all", "admin")
    server = Server("--auth", "p.auth")
    worker = Wire(server.port)
    equal(worker.ask("AUTH", "all", secret), b"+OK")
    url = f"millrace://all:{secret}@127.0.0.1:{server.port}"
    for words in ["call", "s", "a", "--at", url], ["call", "s", "a", f"--at={url}"]:
        caller = subprocess.Popen([MILLRACE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        job = worker.ask("TAKE", "s", "WAIT", TIMEOUT_S * 1000)[0]  # it has come so far
        line = of_process(caller, "cmdline")
        check(b"@127.0.0.1" in line and secret.encode() not in line, line)
        equal(worker.ask("DONE", job[0], job[1], "RESULT", "r"), b"+OK")
        out, err = caller.communicate(timeout=TIMEOUT_S)
        equal((out, err), (b"r\n" if out.endswith(b"\n") else b"r", b""))
    working = subprocess.Popen([MILLRACE, "work", "s", "--at", url, "--", "sh", "-c", "cat"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(worker.ask("CALL", "s", "hello"), b"hello")
    check(secret.encode() not in of_process(working, "cmdline"))
    working.send_signal(signal.SIGTERM)
    out, err = working.communicate(timeout=TIMEOUT_S)
    check(secret.encode() not in out + err, out, err)
    port = server.port
    said = server.stop()
    check(secret not in said, said)
    for words in ["push", "s", "a"], ["work", "s", "--", "true"]:
        ended = fails(3, "", *words[:2], "--at", url, *words[2:])  # the server has ended
        check(secret.encode() not in ended.err and str(port).encode() in ended.err, ended)
    for bad in f"nonsense://{secret}@h", f"millrace://{secret}@:x", f"millrace://{secret}@h:0":
        for words in ["push", "s", "a"], ["work", "s", "--", "true"]:
            ended = fails(2, "", *words[:2], "--at", bad, *words[2:])
            check(secret.encode() not in ended.err, ended)


@case("SIGHUP: tokens come and go without a restart, and what is wrong changes nothing")
def _():
    stays = token("h.auth", "stays", "admin")
    goes = token("h.auth", "goes", "work")
    with Server("--auth", "h.auth") as server:
        one, other = Wire(server.port), Wire(server.port)
        equal(one.ask("AUTH", stays), b"+OK")
        equal(other.ask("AUTH", goes), b"+OK")
        other.send("TAKE", "s", "WAIT", -1)
        comes = token("h.auth", "comes", "push")
        ok("auth", "remove", "goes", "--auth", "h.auth")
        server.reload("reloaded 2 tokens of h.auth")
        equal(other.receive(), b"")  # closed
        equal(one.ask("PUSH", "s", "a"), b"1")
        equal(Wire(server.port).ask("AUTH", comes), b"+OK")
        whole = open("h.auth").read()
        write("h.auth", whole + "nonsense\n")
        server.reload("the old tokens stay in use: h.auth: line ")
        equal(Wire(server.port).ask("AUTH", comes), b"+OK")
        os.chmod(write("h.auth", whole), 0o666)
        server.reload("stay in use: h.auth can be written by users other than its owner")
        os.unlink("h.auth")
        server.reload("stay in use: cannot read h.auth")
        equal(one.ask("PUSH", "s", "a"), b"2")
        write("h.auth", "# no entries\n")
        server.reload("no client can authenticate", "reloaded 0 tokens")
        equal(one.receive(), b"")
    with Server() as server:
        server.reload("there are no tokens and no certificates")


def come(server, count, *words, source="127.0.0.1"):
    """So many connections that have sent this: at once, because unauthenticated ones have little time."""
    wires = [Wire(server.port, source=source) for _ in range(count)]
    for wire in wires:
        wire.send(*words)
    return wires


@case("F45: unauthenticated connections of one address are few, and do not close authenticated ones")
def _():
    if too_few := served.too_few_descriptors(500):
        return too_few
    secret = token("s.auth", "a", "push")
    with Server("--auth", "s.auth") as server:
        known = come(server, 100, "AUTH", secret)
        equal([wire.receive() for wire in known], [b"+OK"] * 100)
        unauthenticated = come(server, 128, "PING")
        equal([wire.receive()[:7] for wire in unauthenticated], [b"-NOAUTH"] * 128)
        equal(Wire(server.port).ask("AUTH", secret), b"+OK")  # one too many: the oldest is closed
        closed, _, _ = select.select([wire.socket for wire in unauthenticated], [], [], TIMEOUT_S)
        equal(len(closed), 1)
        # Loops accept connections at the same time, so the oldest need not be the first one made.
        check(served.LOOPS or closed[0] is unauthenticated[0].socket)
        unauthenticated = [wire for wire in unauthenticated if wire.socket is not closed[0]]
        server.wait_notice("1 unauthenticated connection was closed in favour of newer ones")
        check(b"rejected_connections:1\r" in known[0].ask("INFO", "stats"))
        equal(unauthenticated[0].ask("PING")[:7], b"-NOAUTH")
        for wire in known:
            equal(wire.ask("PING"), b"+PONG")


@case("U8: idle connections of eight addresses do not keep out a client with a token")
def _():
    if too_few := served.too_few_descriptors(1400):
        return too_few
    secret = token("e.auth", "a", "push")
    with Server("--auth", "e.auth") as server:
        known = come(server, 100, "AUTH", secret)
        equal([wire.receive() for wire in known], [b"+OK"] * 100)
        idle = [come(server, 128, source=f"127.0.0.{n}") for n in range(2, 10)]
        for source in "127.0.0.1", "127.0.0.2", "127.0.0.10":
            for wire in come(server, 20, "AUTH", secret, source=source):
                equal(wire.receive(), b"+OK")
        equal(idle[0][0].file.read(), b"")  # the oldest were closed in their favour
        for wire in known:
            equal(wire.ask("PING"), b"+PONG")
        check("closed in favour of newer ones" in server.stop())


@case("U8: connections that are closed for newer ones are counted in one notice a second")
def _():
    secret = token("n.auth", "a", "push")
    began = time.monotonic()
    with Server("--auth", "n.auth") as server:
        idle = [come(server, 128) for _ in range(4)]
        equal(come(server, 1, "AUTH", secret)[0].receive(), b"+OK")  # all before it were accepted
        equal(sum(map(len, idle)), 512)
        said = re.findall(r"\d+ unauthenticated connections? (?:was|were) closed in favour of newer", server.stop())
        took = time.monotonic() - began
        check(1 <= len(said) <= took + 1, f"{len(said)} notices in {took} s")


# ---- TLS ------------------------------------------------------------------------------------------

# Clients on loopback are not counted by address; so these are in a network of their own.
APART = ["unshare", "--map-root-user", "--net", "sh", "-c",
         'ip link set lo up && ip address add 198.51.100.1 dev lo && exec "$@"', "sh"]


@case("--max-per-address: one connection too many is refused, and accepted when another was closed")
def _():
    if Ended([*APART, "true"]).code:
        return "no networks of one's own here"
    with Server("--insecure", "--max-per-address", "1", listen="198.51.100.1:0",
                through=APART) as server:
        there = ["nsenter", "--target", str(server.process.pid), "--user", "--preserve-credentials",
                 "--net", "redis-cli", "-h", "198.51.100.1", "-p", str(server.port)]
        first = subprocess.Popen(there, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first.stdin.write(b"PING\n")
        first.stdin.flush()
        equal(first.stdout.readline(), b"PONG\n")
        said = Ended([*there, "PING"])
        check(b"max-per-address" in said.out + said.err, said)
        first.communicate(timeout=TIMEOUT_S)
        while Ended([*there, "PING"]).out != b"PONG\n":
            pass  # the close is still on its way


@case("a Unix-domain socket is not encrypted where TCP is")
def _():
    file = os.path.join(top, "plain.sock")
    with Server(*shown("server"), listen=f"127.0.0.1:0,unix:{file}") as server:
        equal(ok("push", "s", "hello", "--at", f"unix:{file}"), "1")
        url = f"millraces://localhost:{server.port}"
        equal(ok("push", "s", "hello", "--at", url, "--tls-ca", "ca.pem"), "2")
        ended = Ended(["redis-cli", "-s", file, "PUSH", "s", "hello"])
        check(ended.out.strip() == b"3", ended)


@case("openssl s_client, redis-cli, the commands and a program of a user talk over TLS")
def _():
    with Server(*shown("server")) as server:
        for options in [], ["-tls1_2"], ["-tls1_3"]:
            ended = s_client(server, *options)
            check(b"+PONG\r\n+OK" in ended.out, options, ended)
        ended = redis(server, "--tls", "--cacert", "ca.pem", "PUSH", "s", "hello")
        check(ended.out.strip() == b"1", ended)
        url = f"millraces://localhost:{server.port}"
        equal(ok("push", "s", "hello", "--at", url, "--tls-ca", "ca.pem"), "2")
        ended = ok("stages", "--json", "--at", url, MILLRACE_TLS_CA="ca.pem")
        equal(json.loads(ended)[0]["waiting"], 2)
        ended = Ended([STORY, url, "ca.pem"])
        check(ended.code == 0, ended)
        ended = Ended([STORY, f"millraces://127.0.0.1:{server.port}", "ca.pem"])
        check(ended.code == 0, ended)


@case("F41, F42: over TLS, requests come in any pieces and replies of any size")
def _():
    with Server(*shown("server")) as server:
        wire = Wire(server.port, trusting())
        for byte in b"PING\r\nECHO slow\r\n":
            wire.socket.sendall(bytes([byte]))
        equal((wire.receive(), wire.receive()), (b"+PONG", b"slow"))
        body = os.urandom(5 << 20)
        equal(wire.ask("ECHO", body), body)
        wire.socket.sendall(b"PING\r\n" * 50000)
        equal([wire.receive() for _ in range(50000)], [b"+PONG"] * 50000)
        wire.socket.sendall(b"PUSH s x\r\n" * 5000 + b"JOBS s COUNT 1000\r\n" * 20 + b"PING\r\n")
        for number in range(5000):
            equal(wire.receive(), b"%d" % (number + 1))
        for _ in range(20):  # more than a session stores unread
            equal(len(wire.receive()), 1000)
        equal(wire.receive(), b"+PONG")


@case("old protocols, weak ciphers, renegotiation and what is no TLS are refused")
def _():
    with Server(*shown("server")) as server:
        weak = ["-cipher", "ALL:@SECLEVEL=0"]
        for options in ["-tls1", *weak], ["-tls1_1", *weak], ["-tls1_2", "-cipher", "AES128-SHA"]:
            ended = s_client(server, *options)
            check(ended.code != 0 and b"PONG" not in ended.out, options, ended)
        again = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}",
                                  "-CAfile", "ca.pem", "-tls1_2"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        again.stdin.write(b"R\n")  # and no end of it, which would end the client, too
        again.stdin.flush()
        said = again.stdout.read()
        again.stdin.close()
        again.wait(TIMEOUT_S)
        check(b"RENEGOTIATING" in said and b"no renegotiation" in said, said)
        plain = Wire(server.port)
        plain.send("PUSH", "s", "a")
        check(not plain.file.read().startswith(b"+"))  # an alert, then closed
        equal(Wire(server.port, trusting()).ask("STAGES"), [])


@case("a client that ends TLS in order gets its commands run and the end of TLS in order")
def _():
    with Server(*shown("server")) as server:
        wire = Wire(server.port, trusting())
        wire.send("PUSH", "s", "a")
        equal(wire.receive(), b"1")
        wire.send("QUIT")
        equal(wire.receive(), b"+OK")
        equal(wire.socket.recv(1), b"")  # not a truncation, which would be an error
        waits = Wire(server.port, trusting())
        waits.send("TAKE", "t", "WAIT", -1)
        watch = Wire(server.port, trusting())
        while b"blocked_clients:1" not in watch.ask("INFO", "clients"):
            pass
        waits.socket.unwrap()  # sends the end of TLS, and receives the server's
        while b"connected_clients:1" not in watch.ask("INFO", "clients"):
            pass


@case("F50: a client that half-closes TLS gets its replies")
def _():
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    with Server(*shown("server")) as server:
        end = trusting().wrap_bio(came, goes, server_hostname="localhost")
        line = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)
        while not end.version() or goes.pending:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                line.sendall(goes.read())
                came.write(line.recv(1 << 16))
            line.sendall(goes.read())
        end.write(b"PUSH s a\r\nTAKE s\r\nPING\r\nTAKE s WAIT -1\r\nPING\r\n")
        try:
            end.unwrap()  # the reply to that is read later
        except ssl.SSLWantReadError:
            line.sendall(goes.read())
        line.shutdown(socket.SHUT_WR)
        while piece := line.recv(1 << 16):
            came.write(piece)
        said = end.read(1 << 16)
        check(said.startswith(b"$1\r\n1\r\n*1\r\n") and said.endswith(b"+PONG\r\n"), said)
        equal(said.count(b"PONG"), 1)  # the other command is not awaited: the client may have left
        wire = Wire(server.port, trusting())
        equal(wire.ask("TAKE", "s")[0][5], b":2")  # the lease went with the connection


def refused(said, url, *options, **environment):
    """By the commands and by the library alike."""
    fails(3, said, "push", "s", "a", "--at", url, *options, **environment)
    files = [options[options.index(o) + 1] if o in options else ""
             for o in ("--tls-ca", "--tls-cert", "--tls-key")]
    ended = Ended([STORY, url, *[f for f in files if f]])
    check(ended.code == 1 and said.encode() in ended.err, ended)


@case("a client refuses a server of another name, an expired certificate, and an unknown authority")
def _():
    ca = ["--tls-ca", "ca.pem"]
    with Server(*shown("elsewhere")) as server:
        refused("ostname mismatch", f"millraces://localhost:{server.port}", *ca)
        refused("IP address mismatch", f"millraces://127.0.0.1:{server.port}", *ca)
    with Server(*shown("expired")) as server:
        refused("has expired", f"millraces://localhost:{server.port}", *ca)
    with Server(*shown("server")) as server:
        url = f"millraces://localhost:{server.port}"
        refused("unable to get local issuer", url, "--tls-ca", "unknown.pem")
        fails(3, "certificate is refused", "push", "s", "a", "--at", url)  # by the system's
        equal(ok("push", "s", "a", "--at", url, SSL_CERT_FILE="ca.pem"), "1")
        fails(3, "no-such.pem", "push", "s", "a", "--at", url, "--tls-ca", "no-such.pem")
        fails(2, "no use without TLS", "push", "s", "a", "--at", url.replace("s:", ":"), *ca)
        fails(3, f"encrypts is at {url}", "push", "s", "a", "--at", url.replace("s:", ":"))
        equal(server.url, f"millraces://127.0.0.1:{server.port}")
    with Server() as server:
        refused("TLS has failed", f"millraces://localhost:{server.port}", *ca)


@case("with --tls-ca a client has to show a certificate of these")
def _():
    with Server(*shown("server"), "--tls-ca", "ca.pem") as server:
        url, ca = f"millraces://localhost:{server.port}", ["--tls-ca", "ca.pem"]
        for who in [], shown("foreign"):
            ended = fails(3, "is lost", "push", "s", "a", "--at", url, *ca, *who)
            check(b"alert" in ended.err, ended)
        ended = Ended([STORY, url, "ca.pem"])
        check(ended.code == 1 and b"alert" in ended.err, ended)
        equal(ok("push", "s", "a", "--at", url, *ca, *shown("client")), "1")
        ended = Ended([STORY, url, "ca.pem", "client.pem", "client.key"])
        check(ended.code == 0, ended)
        tls = ["--tls", "--cacert", "ca.pem"]
        ended = redis(server, *tls, "--cert", "client.pem", "--key", "client.key", "PING")
        check(ended.out == b"PONG\n", ended)
        ended = redis(server, *tls, "PING")
        check(b"PONG" not in ended.out, ended)
        check(b"PONG" not in s_client(server).out)
        ended = s_client(server, "-cert", "client.pem", "-key", "client.key")
        check(b"+PONG" in ended.out, ended)


@case("tokens and TLS together: redis-cli, the commands, the library")
def _():
    secret = token("b.auth", "both", "admin")
    with Server(*shown("server"), "--auth", "b.auth", listen="0.0.0.0:0") as server:
        ended = redis(server, "--tls", "--cacert", "ca.pem", "--user", "both", "--pass", secret, "PING")
        check(b"PONG" in ended.out, ended)
        url = f"millraces://both:{secret}@localhost:{server.port}"
        equal(ok("push", "s", "a", "--at", url, "--tls-ca", "ca.pem"), "1")
        ended = Ended([STORY, url, "ca.pem"])
        check(ended.code == 0, ended)
        ended = Ended([STORY, f"millraces://localhost:{server.port}", "ca.pem"])
        check(ended.code == 1 and b"requires a token" in ended.err, ended)
        check("in the clear" not in "".join(server.said), *server.said)


@case("SIGHUP: a new certificate for new connections, the old one if the new is wrong")
def _():
    for end in ".pem", ".key":
        shutil.copy("server" + end, "live" + end)
    serial = lambda: ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", server.port)))
    with Server(*shown("live")) as server:
        wire, before = Wire(server.port, trusting()), serial()
        certificate("live")
        server.reload("reloaded the certificate live.pem")
        check(serial() != before)
        equal(wire.ask("PING"), b"+PONG")  # over the old one
        now = serial()
        shutil.copy("client.key", "live.key")
        server.reload("the old certificate stays in use: ")
        write("live.pem", "nonsense")
        server.reload("the old certificate stays in use: the certificate live.pem cannot be used")
        equal(serial(), now)
        equal(Wire(server.port, trusting()).ask("PING"), b"+PONG")


main()
