"""What the benchmarks share: where results go, tables, goals, and how rounds are compared."""
import datetime
import os
import shutil
import socket
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
NODE = os.path.join(BUILD, "peers")  # where peers from npm are installed


def results_folder(name):
    """A new folder for the results of a benchmark: its own, or a part of that of `bench/all`."""
    whole = os.environ.get("MILLRACE_BENCH_RESULTS")
    now = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    folder = os.path.join(whole, name) if whole else os.path.join(ROOT, "bench", "results", f"{now}-{name}")
    os.makedirs(folder)
    return folder


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ratios(ours, theirs):
    """Round by round: they ran next to each other."""
    return [a / b for a, b in zip(ours, theirs) if b]


def cell(values, form):
    """The median, with the least and the most."""
    if not values:
        return "-"
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def verdict(middle, limit, at_most=False, unit=" ×"):
    holds = middle <= limit if at_most else middle >= limit
    return f"{'≤' if at_most else '≥'} {limit:g}{unit}: {'reached' if holds else 'not reached'}"


class Results:
    """A table that is shown as it grows, the raw data behind it, and the goals for the summary (bench/summary)."""

    def __init__(self, name):
        self.folder = results_folder(name)
        self.files = {part: open(os.path.join(self.folder, part), "w", encoding="utf-8")
                      for part in ("table.txt", "raw.tsv", "goals.tsv")}

    def write(self, part, line):
        self.files[part].write(line + "\n")
        self.files[part].flush()

    def say(self, text=""):
        print(text, flush=True)
        self.write("table.txt", text)

    def row(self, widths, *cells):
        self.say("  ".join(f"{one:<{width}}" for one, width in zip(cells, widths)).rstrip())

    def keep(self, title, row, name, values):
        for value in values:
            self.write("raw.tsv", f"{title}\t{row}\t{name}\t{value}")

    def goal(self, number, what, values, limit, peer="", ours="", at_most=False, unit=" ×"):
        """A figure of each round, by default a ratio to the peer; its median decides. Returns the verdict."""
        if not values:
            return ""
        middle, decided = statistics.median(values), verdict(statistics.median(values), limit, at_most, unit)
        self.write("goals.tsv", "\t".join([number, what, ours, peer, f"{middle:g}", f"{min(values):g}", f"{max(values):g}",
                                           f"{limit:g}", "most" if at_most else "least", unit]))
        return decided

    def end(self, seconds):
        self.say(f"\n{seconds:.0f} s, load at the end {os.getloadavg()[0]:.1f}. Table and raw data: "
                 f"{os.path.relpath(self.folder, ROOT)}/")


def why_no_node(program):
    """Installs the peers from npm in NODE, with the program that drives them. Why that is not possible, or None."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "there is no node or npm"
    source, mark = os.path.join(ROOT, "bench/peers"), os.path.join(NODE, "installed")
    with open(os.path.join(source, "package-lock.json"), encoding="utf-8") as file:
        lock = file.read()
    if not os.path.exists(mark) or open(mark, encoding="utf-8").read() != lock:
        shutil.rmtree(NODE, ignore_errors=True)
        shutil.copytree(source, NODE)
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"],
                              cwd=NODE, capture_output=True, text=True)
        if done.returncode != 0:
            return "npm could not install the packages of bench/peers"
        with open(mark, "w", encoding="utf-8") as file:
            file.write(lock)
    shutil.copy(os.path.join(source, program), NODE)
    return None
