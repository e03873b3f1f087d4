#!/usr/bin/env python3
"""unix_test.py BUILD: a server on a Unix-domain socket, alone and beside TCP, with its commands, the C library and
a socket of systemd."""
import os
import signal
import socket
import stat
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Server, path, write
from tap import MILLRACE, TIMEOUT_S, case, check, equal, main


def millrace(*words, code=0, **more):
    done = subprocess.run([MILLRACE, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **more)
    equal(done.returncode, code, done.stderr)
    return done.stdout if code == 0 else done.stderr


def serve(listen, *options, store="mem:"):
    server = Server("--store", store, *options, listen=listen, ready=False)
    server.wait_notice("ready")
    return server


def ask(file, text):
    """The reply to a request."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(TIMEOUT_S)
    client.connect(file)
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
