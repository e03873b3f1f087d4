"""A PostgreSQL server of the test's own, in a folder of its own, reached by a Unix socket; it does not run as
root, which it would refuse. It is ended with the test in any case."""
import atexit
import glob
import os
import shutil
import signal
import subprocess
import tempfile

from running import wait_until
from tap import BUILD, TIMEOUT_S, check

BIN = (sorted(glob.glob("/usr/lib/postgresql/*/bin")) or [""])[-1]


def why_no_postgres():
    """Why there can be none, or None."""
    if not os.path.exists(f"{BIN}/initdb") or not shutil.which("psql"):
        return "PostgreSQL is not installed"
    return None


class Postgres:
    def __init__(self, settings=("fsync=off",), primary=None, has_clock=False):
        """`settings`: what it must be started with; fsync protects from a crash of the machine only. With
        `primary` it is a standby of that. `has_clock`: `set_clock` can change its wall clock."""
        self.settings, self.environment = settings, None
        self.top = tempfile.mkdtemp(prefix="millrace-pg-", dir="/tmp")
        atexit.register(shutil.rmtree, self.top, ignore_errors=True)
        self.user = {}
        if os.geteuid() == 0:
            self.user = {"user": "postgres", "group": "postgres", "extra_groups": [], "cwd": self.top}
            shutil.chown(self.top, "postgres", "postgres")
        os.chmod(self.top, 0o755)  # for clients of other users
        if has_clock:
            library = shutil.copy(os.path.join(BUILD, "test", "libshifted_clock.so"), self.top)  # it may read that
            self.environment = {**os.environ, "LD_PRELOAD": library, "MILLRACE_CLOCK_FILE": f"{self.top}/clock"}
            self.set_clock(0)
        data = ["-D", f"{self.top}/data", "-U", "postgres", "--no-sync"]
        if primary:
            self.make("pg_basebackup", *data, "-R", "-c", "fast", "-h", primary.top)
        else:
            self.make("initdb", *data, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        self.process = None
        atexit.register(self.stop, signal.SIGQUIT)
        self.start()

    def make(self, program, *arguments):
        made = subprocess.run([f"{BIN}/{program}", *arguments], capture_output=True, text=True, **self.user)
        check(made.returncode == 0, made.stdout, made.stderr)

    def start(self):
        """What it writes is dropped."""
        settings = ["listen_addresses=", f"unix_socket_directories={self.top}", *self.settings]
        self.process = subprocess.Popen(
            [f"{BIN}/postgres", "-D", f"{self.top}/data", *(f"--{s}" for s in settings)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=self.environment, **self.user)
        wait_until(lambda: self.psql("SELECT 1", "postgres").returncode == 0, "PostgreSQL is ready")

    def stop(self, number=signal.SIGINT):
        """SIGINT ends sessions and transactions; SIGQUIT is as a crash."""
        if self.process:
            self.signal_all(signal.SIGCONT)  # a case that has failed may have paused it
            self.process.send_signal(number)
            self.process.wait(TIMEOUT_S)
        self.process = None

    def crash(self):
        """Kills all its processes at once."""
        self.signal_all(signal.SIGKILL)
        self.process.wait(TIMEOUT_S)
        self.process = None

    def set_clock(self, shift_s):
        """Its clock is so many seconds ahead of the system's."""
        with open(f"{self.top}/clock.new", "w", encoding="utf-8") as file:
            file.write(f"{shift_s}\n")
        os.rename(f"{self.top}/clock.new", f"{self.top}/clock")

    def pids(self):
        """Of all its processes."""
        mine = [self.process.pid]
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == mine[0]:
                mine.append(int(name))
        return mine

    def signal_all(self, number):
        """Pauses (SIGSTOP) or resumes (SIGCONT) it."""
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def promote(self):
        """A standby becomes a primary."""
        self.sql("SELECT pg_promote()", database="postgres")

    def configure(self, name, value):
        """Changes a setting, and waits until it is in force."""
        self.sql(f"ALTER SYSTEM SET {name} = '{value}'", database="postgres")
        self.sql("SELECT pg_reload_conf()", database="postgres")
        wait_until(lambda: self.sql(f"SHOW {name}", database="postgres") == [value], "PostgreSQL has read its settings")

    def url(self, database="app", user="postgres", others=()):
        """`others`: further servers, any of which may be the primary."""
        return f"postgres://{user}@/{database}?host=" + ",".join(one.top for one in (self, *others))

    def psql(self, commands, database="app", user="postgres"):
        return subprocess.run(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", self.url(database, user)], input=commands,
                              capture_output=True, text=True, timeout=TIMEOUT_S)

    def sql(self, commands, **more):
        """Its rows, as lines; columns are divided by |."""
        done = self.psql(commands, **more)
        check(done.returncode == 0, commands, done.stderr)
        return done.stdout.splitlines()


class Transaction:
    """A session that stays open between commands."""

    def __init__(self, postgres, database="app"):
        self.process = subprocess.Popen(["psql", "-XqAt", postgres.url(database)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        atexit.register(self.process.kill)
        self.sql("BEGIN")

    def sql(self, commands):
        """Runs them; what they print."""
        self.process.stdin.write(f"{commands};\n\\echo over\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline().rstrip("\n")) != "over":
            check("ERROR" not in line and self.process.poll() is None, commands, line)
            lines.append(line)
        return lines

    def end(self, how="COMMIT"):
        self.sql(how)
        self.process.stdin.close()
        self.process.wait(TIMEOUT_S)
