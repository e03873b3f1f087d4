#!/usr/bin/env python3
"""with_postgres PROGRAM [ARGUMENT…]: runs the program beside a PostgreSQL server and its synchronous standby,
which exist only for it. The program finds the folders of their sockets in MILLRACE_POSTGRES and
MILLRACE_POSTGRES_STANDBY, and the pid of the first server in MILLRACE_POSTGRES_PID."""
import os
import subprocess
import sys

from postgres import Postgres, why_no_postgres

if why_no_postgres():
    print(f"1..0 # SKIP {why_no_postgres()}")
    sys.exit(0)
primary = Postgres(["fsync=on", "max_connections=40", "shared_buffers=32MB"])
standby = Postgres(primary.settings, primary)
for command in ("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"):
    primary.sql(command, database="postgres")  # the standby does not have it: promoted, it waits for none
code = subprocess.run(sys.argv[1:], env={
    **os.environ, "MILLRACE_POSTGRES": primary.top, "MILLRACE_POSTGRES_STANDBY": standby.top,
    "MILLRACE_POSTGRES_PID": str(primary.process.pid)}).returncode
sys.exit(code if code >= 0 else 128 - code)
