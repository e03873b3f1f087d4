#!/usr/bin/env python3
"""packages_test.py BUILD ROOT [DIST]: what tools/pack makes can be installed and used. Without DIST only what needs no
build: versions, the list of symbols, and the packages for npm with the command of BUILD. With DIST, the folder of all
packages, each is installed where nothing else is: in an empty folder, an empty root, or a new Debian. Speaks TAP; a case
whose tools are missing is skipped by name."""
import atexit
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from running import Running
from served import Server, path, write
from tap import BUILD, MILLRACE, TIMEOUT_S, case, check, equal, main

ROOT = os.path.realpath(sys.argv[2])
DIST = os.path.realpath(sys.argv[3]) if len(sys.argv) > 3 else None
SERVE = ["serve", "--store", "mem:", "--listen", "127.0.0.1:0", "--http"]
UNPRIVILEGED = 65534
all_packages = case if DIST else lambda function: None


def text(*names):
    with open(os.path.join(*names), encoding="utf-8") as file:
        return file.read()


def run(*command, code=0, **more):
    """What it prints to stdout; if it has to fail, to stderr."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **more)
    equal(done.returncode, code, *command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stderr if code else done.stdout


def version():
    return re.search(r"^  version: '(.*)',$", text(ROOT, "meson.build"), re.M)[1]


class Packaged(Server):
    """A server that was not built here but installed."""

    def __init__(self, *command, **more):
        self.command, self.more, self.process = list(command), more, None
        atexit.register(self.kill)
        self.start()


@case
def every_part_has_the_version_of_meson_build():
    found = {
        "clients/node/package.json": json.loads(text(ROOT, "clients/node/package.json"))["version"],
        "clients/python/pyproject.toml": re.search(r'^version = "(.*)"', text(ROOT, "clients/python/pyproject.toml"), re.M)[1],
        "clients/python": re.search(r'^__version__ = "(.*)"', text(ROOT, "clients/python/millrace/__init__.py"), re.M)[1],
        "debian/changelog": re.match(r"millrace \((.*)\)", text(ROOT, "debian/changelog"))[1],
        "include/millrace.h": re.search(r'mr_version\(void\); // "(.*)"', text(ROOT, "include/millrace.h"))[1],
        "CHANGELOG.md": re.search(r"^## ([0-9.]+)", text(ROOT, "CHANGELOG.md"), re.M)[1],
        "millrace": run(MILLRACE, "--version").split()[1],
    }
    equal(found, {name: version() for name in found})


@case
def the_debian_package_lists_every_symbol_of_the_library():
    symbols = run("nm", "-D", "--defined-only", os.path.join(BUILD, "libmillrace.so"))
    exported = {line.split()[2] for line in symbols.splitlines()}
    listed = set(re.findall(r"^ (\w+)@Base", text(ROOT, "debian/libmillrace0.symbols"), re.M))
    equal((exported - listed, listed - exported), (set(), set()), "missing in, and too many in, debian/libmillrace0.symbols")


# ---- npm ---------------------------------------------------------------------------------------

CALL = """
async function main() {
    const m = new Millrace();
    const worker = m.work('words', (job) => ({ heard: job.body.say }));
    console.log(JSON.stringify(await m.call('words', { say: 'hello' })));
    await worker.close();
    await m.close();
}
main();
"""
PROGRAMS = {"call.mjs": "import { Millrace } from 'millrace';", "call.cjs": "const { Millrace } = require('millrace');"}


def npm_environment(**more):
    """Without settings, packages and caches of the user."""
    return dict(os.environ, npm_config_userconfig=write("npmrc", ""), npm_config_cache=path("npm-cache"),
                npm_config_update_notifier="false", **more)


def npm_packages():
    """The two packages: those of DIST, or made with the command that was built."""
    folder = DIST or path("npm")
    if not DIST and not os.path.isdir(folder):
        run(os.path.join(ROOT, "tools/pack"), "--to", folder, "--binary", MILLRACE, "npm", env=npm_environment())
    return [os.path.join(folder, f"{name}-{version()}.tgz") for name in ("millrace", "millrace-server-linux-x64")]


def installed(name, *packages):
    os.mkdir(path(name))
    run("npm", "install", "--offline", "--no-audit", "--no-fund", *packages, cwd=path(name), env=npm_environment())
    return path(name)


def why_no_npm():
    if not shutil.which("npm") or not shutil.which("node"):
        return "npm is not installed"
    return None if os.uname().machine == "x86_64" else "the package is for x86-64"


@case
def npm_installs_the_client_and_the_command_offline():
    if why := why_no_npm():
        return why
    folder = installed("project", *npm_packages())
    equal(run("npx", "--offline", "millrace", "--version", cwd=folder, env=npm_environment()), f"millrace {version()}\n")
    server = Packaged(os.path.join(folder, "node_modules/.bin/millrace"), *SERVE, "off")
    for name, first in PROGRAMS.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(first + CALL)
        equal(run("node", name, cwd=folder, env=dict(os.environ, MILLRACE_URL=server.url)), '{"heard":"hello"}\n')
    server.stop()  # the command gets the signal, and its exit code is passed on
    run(os.path.join(folder, "node_modules/.bin/millrace"), "nonsense", code=2)
    return None


@case
def npx_starts_a_server_prints_lines_that_work_and_ends_it():
    if why := why_no_npm():
        return why
    folder = installed("first", *npm_packages())
    dev = subprocess.Popen(["npx", "--offline", "millrace", "dev", "--listen", "127.0.0.1:0", "--http", "off"],
                           cwd=folder, env=npm_environment(), stdout=subprocess.PIPE, text=True)
    atexit.register(dev.kill)
    lines = []
    while not lines or not lines[-1].startswith("Paste"):
        lines.append(dev.stdout.readline())
        check(lines[-1], "it has ended", *lines)
    push = next(line.split(maxsplit=1)[1] for line in lines if line.startswith("  push "))
    equal(run("sh", "-c", push), "1\n")
    dev.terminate()
    dev.wait(TIMEOUT_S)
    dev.stdout.read()  # the server has it open, too: until it has ended
    return None


@case
def the_client_finds_the_command_on_the_path_or_says_how_to_get_it():
    if why := why_no_npm():
        return why
    folder = installed("client", npm_packages()[0])
    tools = path("tools")
    os.mkdir(tools)
    for tool in ("node", "env", "sh"):
        os.symlink(shutil.which(tool), os.path.join(tools, tool))
    command = [os.path.join(folder, "node_modules/.bin/millrace"), "--version"]
    near = os.path.join(folder, "node_modules/.bin")  # has millrace, too: itself
    said = run(*command, code=127, env={"PATH": f"{near}:{tools}"})
    check("@millrace/server-linux-x64" in said and "Debian package" in said, said)
    with open(os.path.join(tools, "millrace"), "w", encoding="utf-8", opener=lambda *a: os.open(*a, 0o755)) as file:
        file.write("#!/usr/bin/env sh\necho $@\n")
    equal(run(*command, env={"PATH": f"{near}:{tools}"}), "--version\n")
    equal(run(command[0], env={"PATH": f"{near}:{tools}"}), "dev\n")
    return None


# ---- Tarballs ----------------------------------------------------------------------------------

def unpacked(name):
    """The folder that the tarball in DIST has."""
    with tarfile.open(os.path.join(DIST, f"{name}.tar.gz")) as file:
        file.extractall(path(""), filter="data") if hasattr(tarfile, "data_filter") else file.extractall(path(""))
    return path(name)


@all_packages
def the_source_package_has_all_that_is_needed():
    """Those for Debian and the static command are built from it; here: it configures itself, and has the page."""
    folder = unpacked(f"millrace-{version()}")
    check(os.path.exists(os.path.join(folder, "web/built/index.html")) and not os.path.exists(os.path.join(folder, ".git")))
    run("meson", "setup", path("configured"), folder)


def empty_root():
    """A root with the static command only, and how a command is run in it; why that cannot be."""
    folder = unpacked(f"millrace-{version()}-linux-x64")
    os.mkdir(path("root"))
    shutil.copy(os.path.join(folder, "bin/millrace"), path("root"))
    inside = ["unshare", "--map-root-user", "--user", "chroot", path("root"), "/millrace"]
    tried = subprocess.run(inside[:3] + ["true"], capture_output=True, check=False)
    return inside, f"unshare cannot be used: {tried.stderr.decode().strip()}" if tried.returncode else None


@all_packages
def the_static_command_works_where_there_is_no_other_file():
    inside, why = empty_root()
    parts = run("readelf", "--wide", "--file-header", "--segments", "--dynamic", path("root/millrace"))
    check(re.search(r"Type:\s+DYN", parts) and "GNU_RELRO" in parts, parts)  # loaded at any address
    check("NEEDED" not in parts and "INTERP" not in parts, parts)
    if why:
        return why
    server = Packaged(*inside, *SERVE, "127.0.0.1:0")
    check("page" in "".join(server.said), *server.said)
    equal(run(*inside, "push", "s", "hello", "--at", server.url), "1\n")
    server.stop()
    for url, kind in (("postgres://localhost/a", "PostgreSQL"), ("nats://localhost", "NATS")):
        said = run(*inside, "serve", "--store", url, code=2)
        check(f"this build has no {kind}" in said and "Debian package" in said, said)
    return None


# ---- Debian ------------------------------------------------------------------------------------

def debs():
    return [os.path.join(DIST, f"{name}_{version()}_amd64.deb") for name in ("millrace", "libmillrace0", "libmillrace-dev")]


@all_packages
def lintian_finds_no_fault():
    if not shutil.which("lintian"):
        return "lintian is not installed"
    equal(run("lintian", "--allow-root", "--fail-on", "error,warning", *debs()), "")
    return None


def new_debian():
    """A root with Debian of this release and the packages; why there is none."""
    if os.getuid() or not shutil.which("mmdebstrap"):
        return None, "a new Debian needs mmdebstrap, and root"
    root, release = path("debian"), re.search(r"^VERSION_CODENAME=(\w+)", text("/etc/os-release"), re.M)[1]
    sources = [name for name in ["/etc/apt/sources.list", *glob.glob("/etc/apt/sources.list.d/*.sources")]
               if os.path.exists(name) and re.search(r"^(deb |URIs:)", text(name), re.M)]
    made = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=procps,systemd",
                           "--skip=cleanup/apt/lists", release, root, *sources],
                          capture_output=True, text=True, check=False)
    if made.returncode:
        return None, f"mmdebstrap cannot reach Debian: {made.stderr.strip().splitlines()[-1]}"
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc"))
    for deb in debs():
        shutil.copy(deb, os.path.join(root, "tmp"))
    run("chroot", root, "sh", "-c", "apt-get install -qq -y --no-install-recommends /tmp/*.deb")
    return root, None


def settings_of(unit):
    return dict(re.findall(r"^(\w+)=(.+)$", text(unit), re.M))


def start_service(root):
    """As systemd does by the unit: unprivileged, with a copy of the credentials, in the folder of its state. Returns the
    server, an administrator's token, and a socket that gets its notices for systemd."""
    unit = settings_of(os.path.join(root, "lib/systemd/system/millrace.service"))
    equal((unit["Type"], unit["DynamicUser"], unit["StateDirectory"]), ("notify", "yes", "millrace"))
    for folder in "etc/credstore", "run/credentials/millrace.service", "var/lib/millrace":
        os.makedirs(os.path.join(root, folder), 0o700)
    token = run("chroot", root, "millrace", "auth", "add", "ops", "--role", "admin", "--auth", "/etc/credstore/millrace.tokens")
    credentials = os.path.join(root, "run/credentials/millrace.service")
    shutil.copy(os.path.join(root, "etc/credstore/millrace.tokens"), credentials)
    for name in credentials, os.path.join(credentials, "millrace.tokens"), os.path.join(root, "var/lib/millrace"):
        os.chown(name, UNPRIVILEGED, UNPRIVILEGED)
    with open(os.path.join(root, "etc/millrace.conf"), "a", encoding="utf-8") as file:
        file.write("listen = 127.0.0.1:0\nhttp = off\nauth = /run/credentials/millrace.service/millrace.tokens\n")
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notices.bind(os.path.join(root, "run/notify"))
    os.chmod(os.path.join(root, "run/notify"), 0o666)
    server = Packaged("chroot", f"--userspec={UNPRIVILEGED}:{UNPRIVILEGED}", root, "env", "--chdir=/var/lib/millrace",
                      "NOTIFY_SOCKET=/run/notify", *unit["ExecStart"].split())
    return server, token.strip(), notices


def compile_hello(root):
    """With what libmillrace-dev has installed there."""
    library = os.path.join(root, "usr/lib/x86_64-linux-gnu")
    flags = run("pkg-config", "--cflags", "--libs", "millrace", env=dict(
        os.environ, PKG_CONFIG_SYSROOT_DIR=root, PKG_CONFIG_LIBDIR=os.path.join(library, "pkgconfig")))
    run("cc", os.path.join(ROOT, "examples/hello.c"), "-o", os.path.join(root, "tmp/hello"), *flags.split())


@all_packages
def a_new_debian_runs_the_service_the_command_and_a_program_of_the_library():
    root, why = new_debian()
    if why:
        return why
    inside = ["chroot", root]
    said = run("sh", "-c", f"systemd-analyze verify --man=no --root={root} millrace.service millrace.socket 2>&1")
    check("millrace" not in said, said)
    check(not os.path.exists(os.path.join(root, "etc/systemd/system/multi-user.target.wants/millrace.service")))
    server, token, notices = start_service(root)
    while b"READY=1" not in notices.recv(4096):
        pass
    use = {"env": dict(os.environ, MILLRACE_TOKEN=token, MILLRACE_URL=server.url)}
    worker = Running(*inside, "millrace", "work", "words", "--", "tr", "a-z", "A-Z", **use)
    equal(run(*inside, "millrace", "call", "words", "hello", **use), "HELLO")
    worker.kill()
    server.stop()
    check(os.listdir(os.path.join(root, "var/lib/millrace/data")))
    compile_hello(root)
    equal(run(*inside, "sh", "-c", "cd /tmp && ./hello"), "hello, world\n")
    run(*inside, "dpkg", "--purge", "libmillrace-dev", "libmillrace0", "millrace")
    check(not os.path.exists(os.path.join(root, "etc/millrace.conf")))
    return None


main()
