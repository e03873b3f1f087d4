"""What tests in Python share: where the programs are, a folder of their own, checks, and cases that print
TAP. Nothing waits for time to pass; TIMEOUT_S ends what hangs."""
import atexit
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import unicodedata

BUILD = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else "build")
MILLRACE = os.path.join(BUILD, "millrace")
LONG = bool(os.environ.get("MILLRACE_LONG"))  # proofs by chance last SECONDS
TIMEOUT_S = 2400 if LONG else 240  # seconds until something that hangs is a failure
SECONDS = int(os.environ.get("MILLRACE_SECONDS", "30"))

# Sockets are made in there, whose names have at most 107 bytes.
top = tempfile.mkdtemp(prefix="millrace-test-", dir="/tmp" if len(tempfile.gettempdir()) > 60 else None)
atexit.register(shutil.rmtree, top, ignore_errors=True)
cases = []
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts this in the background has it ignored,
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who does so with nohup this; commands would inherit that


def case(name):
    """A case is named by a sentence, @case("so it is"), or by its function, @case."""
    if callable(name):
        cases.append((name.__name__, name))
        return name

    def add(function):
        cases.append((name, function))
        return function
    return add


def sanitized():
    with open(os.path.join(BUILD, "meson-info", "intro-buildoptions.json")) as file:
        options = {o["name"]: o["value"] for o in json.load(file)}
    return options["b_sanitize"] not in ("none", [])


def check(condition, *about):
    if not condition:
        raise AssertionError("\n".join(str(a) for a in about) or "it does not hold")


def equal(a, b, *about):
    check(a == b, f"{a!r:.1000} is not {b!r:.1000}", *about)


def as_shown(text):
    """As a terminal has it: a wide letter is followed by _, what has no column of its own is left out."""
    wide = lambda letter: letter + "_" * (unicodedata.east_asian_width(letter) in "WF")
    return "".join(wide(letter) for letter in text if unicodedata.category(letter) not in ("Mn", "Cf"))


def run(number, name, function):
    """Runs one case and prints the outcome; returns whether it held. A case may return why it was skipped."""
    try:
        skip = function()
        print(f"ok {number} - {name}" + (f" # SKIP {skip}" if skip else ""), flush=True)
        return True
    except Exception as error:  # whatever it is, the other cases run
        print(f"not ok {number} - {name}")
        for line in f"{type(error).__name__}: {error}".splitlines():
            print(f"# {line}", flush=True)
        return False


def main(around=contextlib.nullcontext):
    """Runs all cases, each within `around()`."""
    print(f"1..{len(cases)}")
    held = True
    for number, (name, function) in enumerate(cases, 1):
        with around():
            held = run(number, name, function) and held
    sys.exit(0 if held else 1)
