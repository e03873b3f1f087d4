#!/usr/bin/env python3
"""config_test.py BUILD: the options of the server from a file: read by the names of the flags, which
win; what is wrong is refused with its place and the way out."""
import json
import os
import re
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Server, path, write
from tap import MILLRACE, case, check, equal, main

HERE = os.path.dirname(os.path.abspath(__file__))


def refused(text, *said, options=(), code=2):
    """The server does not start with a file of this text, and reports this."""
    name = write("wrong.conf", text)
    server = Server("--config", name, *options, listen=None, ready=False)
    received = server.ends(code)
    for words in said:
        check(words.replace("FILE", name) in received, f"not said: {words}", received)
    equal(received.count("\n"), 1, received)


@case
def a_file_has_the_options_of_the_flags():
    name = write("all.conf", """
# a comment, a blank line, and blanks where they do not matter

  listen=127.0.0.1:0
store = mem: # in memory
\tmax-body =  10\t
log-json = yes
""")
    server = Server("--config", name, listen=None)
    check(all(json.loads(line)["level"] == "info" for line in server.said), server.said)
    client = Client(server)
    check("store:mem:" in client.ask("INFO"))
    client.refused("TOOBIG", "PUSH", "s", "eleven byte")
    equal(client.ask("PUSH", "s", "ten bytes!"), "1")
    server.stop()


@case
def a_flag_wins_over_the_file():
    name = write("both.conf", "store = nosuch:\nlisten = 1.2.3.4:1\nlog-json = yes\nlog-level = error\n")
    server = Server("--config", name, "--store", "mem:", "--log-level", "info")
    json.loads(server.said[0])  # what is not given as a flag is the file's
    server.stop()


@case
def what_is_off_is_off():
    name = write("off.conf", "store = mem:\nlog-json = no\n")
    server = Server("--config", name)
    check(not server.said[0].startswith("{"), server.said)
    server.stop()


@case
def a_wrong_line_is_refused_with_its_place():
    refused("store = mem:\n\nlissen = x\n", "FILE:3: ", "'lissen'", "did you mean listen?")
    refused("colour = red", "FILE:1: ", "'colour'", "millrace help serve")
    refused("# fine\nlisten\n", "FILE:2: ", "NAME = VALUE")
    refused("store =\n", "FILE:1: store has no value")
    refused("store = mem:\nstore = mem:\n", "FILE:2: store stands in line 1 already")
    refused("log-json = maybe\n", "FILE:1: ", "yes or no")
    refused("config = other\n", "FILE:1: ", "put its lines here")
    refused("--store = mem:\n", "FILE:1: there is no option '--store'")
    refused("a\0b", "FILE: ", "not text")
    refused("#" * 70000, "FILE: ", "too large")


@case
def a_wrong_value_is_refused_with_its_place():
    refused("\nlisten = nowhere\n", "FILE:2: 'nowhere' cannot be listen", "HOST:PORT")
    refused("listen = 0.0.0.0:0\n", "FILE:1: ", "--insecure")
    refused("store = x\n", "FILE:1: 'x' cannot be store", "file:DIR")
    refused("sync = often\n", "FILE:1: ", "interval:MS")
    refused("poll = 50us\n", "FILE:1: ", "on or off")
    refused("max-body = lots\n", "FILE:1: ", "64k")
    refused("max-bytes = 0\n", "FILE:1: ", "64k")
    refused("max-clients = 0\n", "FILE:1: ", "from 1 to 1000000")
    refused("max-per-address = 10k\n", "FILE:1: ", "from 1 to 1000000")
    refused("max-idle = 10\n", "FILE:1: ", "30s")
    refused("max-unread = never\n", "FILE:1: ", "30s")
    refused("log-level = loud\n", "FILE:1: ", "debug")
    # A flag that is wrong is called by its own name.
    refused("log-level = info\n", "'loud' cannot be --log-level", options=["--log-level", "loud"])


@case
def a_missing_file_is_reported():
    server = Server("--config", path("none.conf"), ready=False)
    check("none.conf: cannot be opened: No such file" in server.ends(2))


@case
def the_file_that_help_prints_is_one_of_defaults():
    text = subprocess.run([MILLRACE, "help", "--config"], check=True, capture_output=True,
                          text=True).stdout
    usage = subprocess.run([MILLRACE, "help", "serve"], check=True, capture_output=True,
                           text=True).stdout
    flags = re.findall(r"^  --(\S+)", usage, re.M)
    equal(re.findall(r"^#(\S+) =", text, re.M), [f for f in flags if f != "config"])
    write("as-it-is.conf", text)
    server = Server("--config", path("as-it-is.conf"), "--store", "mem:")
    server.stop()
    # Every default is a value that is accepted; what has none is in capitals.
    defaults = "".join(line[1:] + "\n" for line in re.findall(r"^#\S+ = .*", text, re.M)
                       if not re.search(r"= [A-Z:]+$", line))
    write("defaults.conf", defaults)
    server = Server("--config", path("defaults.conf"), "--store", "mem:")
    server.stop()


@case
def the_example_is_accepted():
    example = os.path.join(HERE, "../../examples/millrace.conf")
    server = Server("--config", example, "--store", f"file:{path('example')}")
    server.stop()


main()
