#!/usr/bin/env python3
"""unix_test.py BUILD: a server on a Unix-domain socket, alone and beside TCP, with its commands, the C library and
a socket of systemd."""
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Server, Wire, path, write
from tap import MILLRACE, TIMEOUT_S, case, check, equal, main


def millrace(*words, code=0, **more):
    done = subprocess.run([MILLRACE, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **more)
    equal(done.returncode, code, done.stderr)
    return done.stdout if code == 0 else done.stderr


def serve(listen, *options, store="mem:"):
    server = Server("--store", store, *options, listen=listen, ready=False)
    server.wait_notice("ready")
    return server


def connect(file):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(TIMEOUT_S)
    client.connect(file)
    return client


def ask(file, text):
    """The reply to a request."""
    client = connect(file)
    client.sendall(text + b"\r\nQUIT\r\n")
    with client.makefile() as replies:
        return replies.read().removesuffix("+OK\n")


@case
def commands_and_the_library_connect_by_the_file():
    file = path("sock")
    server = serve(f"unix:{file}", "--loops", "2")
    check(f"clients connect to unix:{file}\n" in "".join(server.said), *server.said)
    equal(stat.S_IMODE(os.stat(file).st_mode), 0o600)
    for at in (f"unix:{file}", f"unix://{file}", "unix:" + os.path.relpath(file)):
        millrace("push", "mail", "hello", "--at", at)
    with subprocess.Popen([MILLRACE, "work", "echo", "--at", f"unix:{file}", "--", "echo", "done"]) as worker:
        equal(millrace("call", "echo", "it", "--at", f"unix:{file}"), "done\n")
        check(f"unix:uid={os.getuid()},pid={worker.pid}" in (said := ask(file, b"WORKERS")), said)
        worker.terminate()
    info = ask(file, b"INFO server")
    check(f"unix_socket:{file}" in info and "tcp_port:0" in info, info)
    said = millrace("push", "mail", "hello", "--at", f"unix://secret@{file}", code=3)
    check("no token" in said and "secret@" not in said, said)
    server.stop()
    check(not os.path.exists(file))
    said = millrace("push", "mail", "hello", "--at", f"unix:{file}", code=3)
    check(f"millrace serve --listen unix:{file}" in said, said)


@case
def a_file_and_TCP_serve_the_same_store():
    file = path("both")
    server = Server("--store", "mem:", "--unix-mode", "660", listen=f"unix:{file},127.0.0.1:0", ready=False)
    server.port = int(server.wait_notice("listens on ").split(" and ")[0].rpartition(":")[2])
    server.wait_notice(f"or unix:{file}")
    equal(stat.S_IMODE(os.stat(file).st_mode), 0o660)
    equal(ask(file, b"PUSH mail one"), "$1\n1\n")
    equal(Client(server).ask("PUSH", "mail", "two"), "2")
    server.stop()


@case
def a_killed_server_leaves_a_file_that_the_next_replaces():
    file, store = path("killed"), f"file:{path('kept')}"
    server = serve(f"unix:{file}", store=store)
    equal(ask(file, b"PUSH mail one"), "$1\n1\n")
    said = millrace("serve", "--store", "mem:", "--http", "off", "--listen", f"unix:{file}", code=3)
    check("another server listens there" in said, said)
    server.signal(signal.SIGKILL)
    server.process.wait(TIMEOUT_S)
    check(os.path.exists(file))
    server = serve(f"unix:{file}", store=store)
    check("mail" in (said := ask(file, b"STAGES")), said)
    server.stop()


@case
def addresses_of_no_use_are_refused():
    for listen, options, code, text in (
            ("unix:" + path("no/sock"), [], 3, "its directory must exist"),
            ("unix:" + write("taken", ""), [], 2, "no socket"),
            ("unix:" + "a" * 108, [], 2, "1 to 107 bytes"),
            ("unix:", [], 2, "1 to 107 bytes"),
            ("unix:a,unix:b", [], 2, "one of each"),
            ("unix:" + path("x"), ["--unix-mode", "68"], 2, "octal"),
            ("127.0.0.1:0", ["--unix-mode", "660"], 2, "unix:PATH only"),
            ("unix:" + path("x"), ["--store", "postgres://h"], 2, "over TCP")):
        said = millrace("serve", "--http", "off", "--listen", listen, *(options or ["--store", "mem:"]), code=code)
        check(text in said, listen, said)
    equal(os.listdir(os.path.dirname(path("taken"))).count("x"), 0)


@case
def a_token_is_asked_for_as_over_TCP():
    file = path("guarded")
    secret = millrace("auth", "add", "ci", "--role", "push", "--auth", path("tokens")).split()[-1]
    server = serve(f"unix:{file}", "--auth", path("tokens"))
    equal(ask(file, b"PUSH mail one").split()[0], "-NOAUTH")
    equal(ask(file, b"AUTH " + secret.encode()), "+OK\n")
    millrace("push", "mail", "two", "--at", f"unix://{secret}@{file}")
    server.stop()


@contextlib.contextmanager
def another_user(uid, gid, *groups):
    """Connects as another user; for root only."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


def guarded(name, *options, **more):
    """A server that every user of the machine can connect to, with the tokens of a file; the path of its socket."""
    os.chmod(os.path.dirname(path(name)), 0o711)
    server = Server("--store", "mem:", "--auth", path(f"{name}.auth"), "--unix-mode", "666", *options,
                    listen=f"unix:{path(name)},127.0.0.1:0", ready=False, **more)
    server.port = int(server.wait_notice("listens on ").split(" and ")[0].rpartition(":")[2])
    server.wait_notice("ready")
    return server, path(name)


def reload(server):
    server.signal(signal.SIGHUP)
    server.wait_notice("reloaded ")


@case("U10: a user of the machine has a token without a secret on a Unix-domain socket, and only there")
def _():
    add = ["auth", "add", "--auth", path("users.auth"), "--role"]
    equal(millrace(*add, "push,read", "self", "--user", str(os.getuid()), "--stages", "mail.*"), "")
    secret = millrace(*add, "admin", "ops").strip()
    server, file = guarded("users", "--loops", "2")
    for _ in range(4):  # connections of both loops
        check("token:self\n" in ask(file, b"INFO quotas"))
        equal(ask(file, b"PUSH sms one").split()[0], "-NOPERM")
        equal(ask(file, b"PAUSE mail.a").split()[0], "-NOPERM")
    millrace("push", "mail.a", "one", "--at", f"unix:{file}")
    said = ask(file, b"AUTH ops " + secret.encode() + b"\r\nPAUSE mail.a\r\nINFO quotas")
    check(said.startswith("+OK\n+OK\n") and "token:ops\n" in said, said)
    said = ask(file, b"AUTH self self\r\nINFO quotas")
    check("-WRONGPASS" in said and "token:self\n" in said, said)  # a user is no secret, and stays the user
    check(Wire(server.port).ask("PUSH", "mail.a", "two").startswith(b"-NOAUTH"))  # over TCP
    server.stop()


@case("U10: users, then groups, decide; other users are asked for a secret")
def _():
    if os.getuid():
        return "only root can connect as other users"
    add = ["auth", "add", "--auth", path("groups.auth"), "--role", "push"]
    user, group, other = 64001, 64002, 64003
    for name, option, number in (("u", "--user", user), ("g", "--group", group), ("h", "--group", other)):
        millrace(*add, name, option, str(number))
    server, file = guarded("groups")
    for (uid, gid, *more), name in (((user, 1), "u"), ((user, group), "u"), ((1, group), "g"), ((1, 1, group), "g"),
                                    ((1, 1, 2, other), "h"), ((1, other, group), "g"), ((1, 1, *range(2000)), None),
                                    ((group, user), None), ((0, 0), None)):
        with another_user(uid, gid, *more):
            said = ask(file, b"INFO quotas")
        check(f"token:{name}\n" in said if name else said.startswith("-NOAUTH"), uid, gid, more[:3], said)
    server.stop()


@case("U10: a reload changes what users may do, and ends the connections of those that may nothing any more")
def _():
    uid = os.getuid()
    millrace("auth", "add", "self", "--role", "push", "--user", str(uid), "--auth", path("changes.auth"),
             "--max-connections", "1")
    server, file = guarded("changes")
    first = connect(file)
    first.sendall(b"PUSH mail one\r\n")
    equal(first.recv(100), b"$1\r\n1\r\n")
    said = connect(file).recv(1000)
    check(said.startswith(b"-FULL token 'self' has 1 connection, and its max-connections is 1"), said)
    reload(server)
    first.sendall(b"PUSH mail two\r\n")
    equal(first.recv(100), b"$1\r\n2\r\n")
    with open(path("changes.auth"), encoding="utf-8") as text:
        write("changes.auth", text.read().replace(f"uid:{uid} ", f"uid:{uid + 1} "))
    reload(server)
    equal(first.recv(100), b"")
    equal(ask(file, b"PUSH mail three").split()[0], "-NOAUTH")
    server.stop()


@case("U10: auth add refuses users and groups that are none, and lists those that are")
def _():
    add = ["auth", "add", "--auth", path("list.auth"), "--role", "push"]
    for words, said in ((["--user", "no-such-user"], "this machine has no user 'no-such-user'"),
                        (["--group", "no-such-group"], "this machine has no group 'no-such-group'"),
                        (["--user", ""], "this machine has no user ''"),
                        (["--user", "4294967295"], "'4294967295' is not a number up to 4294967294"),
                        (["--user", "12x"], "'12x' is not a number"),
                        (["--user", "0", "--group", "0"], "make two tokens"),
                        (["--user", "0", "--out", path("x.token")], "there is no secret")):
        check(said in (found := millrace(*add, "a", *words, code=2)), words, found)
        check(not os.path.exists(path("list.auth")) and not os.path.exists(path("x.token")))
    millrace(*add, "a", "--user", "root", "--stages", "mail.*", "--max-jobs", "5")
    millrace(*add, "b", "--group", "0")
    check("has a token of uid:0 already: 'a'" in millrace(*add, "c", "--user", "0", code=2))
    with open(path("list.auth"), encoding="utf-8") as text:
        check("\na push mail.* uid:0 max-jobs=5\nb push * gid:0\n" in text.read())
    check("mail.* uid:0 max-jobs=5\n" in millrace("auth", "list", "--auth", path("list.auth")))
    equal(json.loads(millrace("auth", "list", "--json", "--auth", path("list.auth"))),
          [{"name": "a", "roles": "push", "stages": "mail.*", "uid": 0, "max-jobs": 5},
           {"name": "b", "roles": "push", "stages": "*", "gid": 0}])


@case
def a_socket_of_systemd_may_be_a_file():
    listener = socket.socket(socket.AF_UNIX)
    file = path("passed")
    listener.bind(file)
    listener.listen()
    passing = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""
    number = listener.fileno()
    server = Server("--store", "mem:", listen=None, ready=False, pass_fds=[number],
                    through=[sys.executable, "-c", passing, str(number)])
    server.wait_notice(f"clients connect to unix:{file}")
    equal(ask(file, b"PING"), "+PONG\n")
    server.stop()
    check(os.path.exists(file))  # it is systemd's


main()
