#!/usr/bin/env python3
"""operate_test.py BUILD: operation of the server: notifications to systemd, socket activation, reloading,
the log and its level."""
import json
import os
import resource
import signal
import socket
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Server, path, write
from tap import BUILD, MILLRACE, TIMEOUT_S, case, check, equal, main, top


# ---- systemd -----------------------------------------------------------------------------------

class Manager:
    """Plays systemd: a socket for the server's notifications."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.bind(address.replace("@", "\0"))
        self.environment = dict(os.environ, NOTIFY_SOCKET=address)

    def wait_notice(self, text):
        """Waits for a message that contains the text; its lines."""
        while text not in (message := self.socket.recv(4096).decode()):
            pass
        return message.split("\n")


def reports_start_and_stop(address):
    manager = Manager(address)
    server = Server("--store", f"file:{path('life')}", env=manager.environment)
    equal(manager.wait_notice("STATUS=Reading"), [f"STATUS=Reading the store file:{path('life')}"])
    equal(manager.wait_notice("READY=1"), ["READY=1", "STATUS=Ready"])
    server.signal(signal.SIGHUP)
    equal([line.split("=")[0] for line in manager.wait_notice("RELOADING")],
          ["RELOADING", "MONOTONIC_USEC"])
    manager.wait_notice("READY=1")
    server.signal(signal.SIGTERM)
    equal(manager.wait_notice("STOPPING")[0], "STOPPING=1")
    server.ends()


@case
def systemd_is_notified_of_start_and_stop():
    reports_start_and_stop(path("notify"))


@case
def systemd_may_listen_on_an_abstract_socket():
    reports_start_and_stop(f"@millrace-test-{os.getpid()}")


@case
def systemd_gets_watchdog_messages():
    manager = Manager(path("watchdog"))
    server = Server("--store", "mem:", env=dict(manager.environment, WATCHDOG_USEC="20000"))
    for _ in range(3):
        manager.wait_notice("WATCHDOG=1")
    server.stop()


@case
def a_notify_socket_that_is_none_changes_nothing():
    for address in path("nobody-there"), "nonsense", "@", "/" + "x" * 200:
        Server("--store", "mem:", env=dict(os.environ, NOTIFY_SOCKET=address)).stop()


@case
def closed_standard_descriptors_are_not_reused():
    manager = Manager(path("closed"))
    server = Server("--store", f"file:{path('mute')}", ready=False, env=manager.environment,
                    through=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
    manager.wait_notice("READY=1")
    fds = f"/proc/{server.process.pid}/fd/"
    equal([os.readlink(fds + str(fd)) for fd in range(3)], 3 * ["/dev/null"])
    server.signal(signal.SIGHUP)  # which it reports
    manager.wait_notice("RELOADING")
    manager.wait_notice("READY=1")
    server.stop()


# ---- The unit ----------------------------------------------------------------------------------

NOBODY = 65534


def unit():
    """What the shipped unit sets: lists of values by name."""
    found = {}
    with open(os.path.join(BUILD, "millrace.service"), encoding="utf-8") as file:
        for line in file:
            name, equals, value = line.strip().partition("=")
            if equals and not line.startswith("#"):
                found.setdefault(name, []).append(value)
    return found


def unprivileged():
    """How a command is run as the service runs it; why it cannot be, or None."""
    if os.getuid():
        return [], None  # a process that has ended meanwhile
    through = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs",
               "--bounding-set=-all"]
    os.chmod(top, 0o711)  # it may be entered, but not listed
    tried = subprocess.run([*through, MILLRACE, "--version"], capture_output=True, check=False)
    return through, tried.stderr if tried.returncode else None


def own(name, mode):
    """As systemd gives it to the service."""
    os.chmod(name, mode)
    if not os.getuid():
        os.chown(name, NOBODY, NOBODY)
    return name


def make_certificate(cert, key):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", key, "-out", cert, "-days", "30", "-subj", "/CN=localhost"],
                   check=True, capture_output=True)


def made_token(file, name):
    made = subprocess.run([MILLRACE, "auth", "add", name, "--role", "admin", "--auth", file],
                          capture_output=True, text=True, check=False)
    return made.stdout.split()[-1] if made.returncode == 0 else None


# U11: tokens and keys are files of root; the service, an unprivileged user, reads the copies that systemd made.
@case
def U11_the_service_reads_its_credentials_unprivileged():
    through, why = unprivileged()
    names = unit()["LoadCredential"]
    equal(names, ["millrace.tokens", "millrace.tls-cert", "millrace.tls-key", "millrace.tls-ca"])
    if why:
        return "no command can be run as nobody here"
    for folder in "credstore", "credentials", "state":
        os.mkdir(path(folder), 0o700)
    secret = made_token(path("credstore/millrace.tokens"), "ops")
    if not secret:
        return "this build has no tokens"
    make_certificate(path("credstore/millrace.tls-cert"), path("credstore/millrace.tls-key"))
    for name in names[:3]:
        with open(path(f"credstore/{name}"), "rb") as source, open(path(f"credentials/{name}"), "wb") as copy:
            copy.write(source.read())
        os.chmod(path(f"credstore/{name}"), 0o600)
        own(path(f"credentials/{name}"), 0o400)
    own(path("credentials"), 0o500)
    own(path("state"), 0o700)
    lines = "store = file:./data\nauth = {0}/millrace.tokens\ntls-cert = {0}/millrace.tls-cert\n" \
            "tls-key = {0}/millrace.tls-key\n"
    os.chmod(write("service.conf", lines.format(path("credentials"))), 0o644)
    server = Server("--config", path("service.conf"), through=through, cwd=path("state"))
    asked = subprocess.run([MILLRACE, "push", "s", "hello", "--at", f"millraces://localhost:{server.port}",
                            "--tls-ca", path("credentials/millrace.tls-cert")],
                           env=dict(os.environ, MILLRACE_TOKEN=secret), capture_output=True, check=False)
    equal((asked.returncode, asked.stdout), (0, b"1\n"), asked)
    server.signal(signal.SIGHUP)
    server.wait_notice("reloaded 1 token ")
    server.stop()
    if os.getuid():
        return None
    os.chmod(write("refused.conf", lines.format(path("credstore"))), 0o644)  # as it was before
    said = Server("--config", path("refused.conf"), through=through, cwd=path("state"), ready=False).ends(4)
    check("Permission denied" in said, said)
    check("4" in unit()["RestartPreventExitStatus"][0].split())
    return None


# U11: faults that a restart cannot correct have separate exit codes, for which the unit does not restart.
@case
def U11_faults_that_a_restart_cannot_correct_are_not_restarted():
    prevented = set(map(int, unit()["RestartPreventExitStatus"][0].split()))
    store = path("damaged")
    Server("--store", f"file:{store}").stop()
    taken = socket.create_server(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % taken.getsockname()[1]
    owner = Server("--store", f"file:{store}")
    for code, options, listen in ((2, ["--store", "nonsense:"], None), (2, ["--config", path("no.conf")], None),
                                  (2, ["--store", f"file:{store}x", "--sync", "often"], None),
                                  (4, ["--store", "mem:", "--auth", path("no.auth")], None),
                                  (4, ["--store", "mem:", "--auth", write("wrong.auth", "nonsense\n")], None),
                                  (4, ["--store", "mem:", "--tls-cert", path("no.pem"), "--tls-key", path("no.key")], None),
                                  (3, ["--store", "mem:"], address), (3, ["--store", f"file:{store}"], None)):
        more = {"listen": listen} if listen else {}
        said = Server(*options, ready=False, **more).ends(code)
        check("serve: " in said, said)
        equal(code in prevented, code != 3)
    owner.stop()
    segment = max(name for name in os.listdir(store) if name.endswith(".seg"))
    with open(os.path.join(store, segment), "r+b") as file:
        file.write(b"damage")
    said = Server("--store", f"file:{store}", ready=False).ends(1)
    check("store repair" in said, said)
    check(1 in prevented)
    limits = unit()
    equal((limits["Restart"], limits["StartLimitBurst"], limits["LimitCORE"]), (["on-failure"], ["20"], ["0"]))
    check(int(limits["StartLimitIntervalSec"][0]) > 20 * (int(limits["RestartSec"][0]) + 1))


# U10: a crash leaves no core file with jobs and secrets.
@case
def U10_a_server_leaves_no_core():
    before, most = resource.getrlimit(resource.RLIMIT_CORE)
    if most == 0:
        return "no process may leave a core here"
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))  # the server inherits it, and lowers it
    server = Server("--store", "mem:")
    resource.setrlimit(resource.RLIMIT_CORE, (before, most))
    with open(f"/proc/{server.process.pid}/limits", encoding="utf-8") as file:
        found = next(line for line in file if line.startswith("Max core file size"))
    equal(found.split()[4], "0")
    server.stop()


# U12: an address that stands for all cannot be connected to, so it is not offered.
@case
def U12_the_log_offers_addresses_that_work():
    server = Server("--store", "mem:", "--insecure", listen="0.0.0.0:0", http="0.0.0.0:0")
    equal(server.url, f"millrace://127.0.0.1:{server.port}")
    said = "".join(server.said)
    check("from elsewhere: any address or name of this machine" in said, said)
    check("API: http://127.0.0.1:" in said or "page" not in said, said)
    server.stop()
    server = Server("--store", "mem:")
    check("from elsewhere" not in server.stop())


# The environment has the pid of the server, which is known before this becomes the server.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=sys.argv[2])
os.execv(sys.argv[3], sys.argv[3:])
"""


def server_with_socket(listener, *options, count=1, ready=True):
    """As systemd starts it: the socket is descriptor 3."""
    number = listener.fileno()
    return Server(*options, listen=None, ready=ready, pass_fds=[number],
                  through=[sys.executable, "-c", HAND_OVER, str(number), str(count)])


@case
def a_socket_that_listens_already_is_used():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    early = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)  # before the server is there
    early.sendall(b"PING\r\n")
    server = server_with_socket(listener, "--store", "mem:", "--listen", "127.0.0.1:1")
    equal(server.port, port)
    equal(early.recv(100), b"+PONG\r\n")
    equal(Client(server).ask("PING"), "PONG")
    server.stop()


@case
def a_socket_for_another_process_is_not_taken():
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server("--store", "mem:", pass_fds=[listener.fileno()],
                    env=dict(os.environ, LISTEN_PID="1", LISTEN_FDS="1"))
    check(server.port != listener.getsockname()[1])
    server.stop()


@case
def sockets_of_no_use_are_refused():
    everywhere = socket.create_server(("0.0.0.0", 0))
    said = server_with_socket(everywhere, "--store", "mem:", ready=False).ends(2)
    check("--insecure" in said, said)
    Client(server := server_with_socket(everywhere, "--store", "mem:", "--insecure")).ask("PING")
    server.stop()
    unlistening = socket.socket()
    said = server_with_socket(unlistening, "--store", "mem:", ready=False).ends(2)
    check("does not listen" in said, said)
    local = socket.socket(socket.AF_UNIX)
    local.bind("\0" + path("local"))
    local.listen()
    said = server_with_socket(local, "--store", "mem:", ready=False).ends(2)
    check("neither a TCP address nor a path" in said, said)
    said = server_with_socket(everywhere, "--store", "mem:", count=2, ready=False).ends(2)
    check("2 sockets" in said, said)


@case
def without_stdin_and_stdout_it_lives_and_ends():
    server = Server("--store", "mem:", through=["sh", "-c", 'exec "$@" <&- >&-', "sh"])
    equal(Client(server).ask("PUSH", "s", "x"), "1")
    server.stop()


# ---- Reloading ---------------------------------------------------------------------------------

@case
def a_reload_takes_over_what_may_change():
    name = write("reload.conf", "store = mem:\nlog-level = error\n")
    server = Server("--config", name, "--log-level", "info")
    server.signal(signal.SIGHUP)
    server.wait_notice("reloaded")
    server.stop()  # the flag has won, as it did at the start

    server = Server("--config", write("reload.conf", "store = mem:\nlog-level = info\n"))
    write("reload.conf", "store = mem:\nlog-level = debug\nlog-json = yes\nmax-body = 1M\n")
    server.signal(signal.SIGHUP)
    changed = json.loads(server.wait_notice("max-body has changed"))
    equal(changed["level"], "warn")
    check("restarted" in changed["text"], changed)
    server.wait_notice("reloaded")
    equal(Client(server).ask("CONFIG", "GET", "log-json", "log-level"),
          ["log-level", "debug", "log-json", "yes"])
    server.stop()


@case
def a_reload_of_what_is_wrong_changes_nothing():
    name = write("wrong.conf", "store = mem:\n")
    server = Server("--config", name)
    write("wrong.conf", "log-level = debug\nlog-level = debug\n")
    server.signal(signal.SIGHUP)
    check(f"{name}:2: " in server.wait_notice("not reloaded"), server.said)
    os.unlink(name)
    server.signal(signal.SIGHUP)
    check("cannot be opened" in server.wait_notice("not reloaded"), server.said)
    equal(Client(server).ask("CONFIG", "GET", "log-level"), ["log-level", "info"])
    server.stop()


# ---- Notices -----------------------------------------------------------------------------------

@case
def the_level_of_notices_changes_while_it_runs():
    server = Server("--store", "mem:", "--log-level", "info")
    client = Client(server)
    equal(client.ask("CONFIG", "SET", "log-level", "debug"), "OK")
    server.wait_notice("a client has set log-level to debug")
    equal(client.ask("CONFIG", "SET", "log-json", "yes"), "OK")
    json.loads(server.wait_notice("a client has set log-json to yes"))
    client.refused("ERR log-level must be error, warn, info or debug",
                   "CONFIG", "SET", "log-level", "loud")
    client.refused("ERR log-json must be yes or no", "CONFIG", "SET", "log-json", "perhaps")
    client.refused("ERR only log-level", "CONFIG", "SET", "maxmemory", "1")
    client.refused("ERR syntax", "CONFIG", "SET", "log-level")
    client.refused("ERR syntax", "CONFIG", "REWRITE", "now")
    equal(client.ask("CONFIG", "GET", "maxmemory"), [])
    equal(client.ask("CONFIG", "GET", "log-level"), ["log-level", "debug"])
    equal(client.ask("CONFIG", "SET", "log-level", "error"), "OK")
    said = server.stop()
    check("closed" not in said, said)


def token_of(name, role):
    return subprocess.run([MILLRACE, "auth", "add", name, "--role", role, "--auth", path("tokens")],
                          check=True, capture_output=True, text=True).stdout.split()[-1]


@case
def only_an_admin_changes_what_is_logged():
    pusher, admin = token_of("pusher", "push"), token_of("admin", "admin")
    server = Server("--store", "mem:", "--auth", path("tokens"))
    client = Client(server)
    client.refused("NOAUTH", "CONFIG", "SET", "log-level", "debug")
    client.ask("AUTH", pusher)
    equal(client.ask("CONFIG", "GET", "log-level"), ["log-level", "info"])
    client.refused("NOPERM", "CONFIG", "SET", "log-level", "debug")
    client.ask("AUTH", admin)
    equal(client.ask("CONFIG", "SET", "log-level", "debug"), "OK")
    server.stop()


main()
