"""What the demo shows: a panel that is drawn again and again on a terminal, plain lines elsewhere, and the
report at the end. Figures come from the acts (tools/demo); nothing here runs a process."""
import collections
import os
import shutil
import sys
import time

BARS = " ▁▂▃▄▅▆▇█"
RECENT = 20  # letters that the panel's times are means of
ROWS, COLUMNS = 24, 80  # the least that the panel needs
METERS = [("queue", "letters wait", "%.0f"), ("level", "may run at once", "%.0f"),
          ("throughput", "a second", "%.1f"), ("waiting", "s before its start", "%.2f"),
          ("running", "s to its answer", "%.2f")]


class Meter:
    """The figures of one way of working, now and over time."""

    def __init__(self):
        self.begun = time.monotonic()
        self.queue = self.level = self.answered = 0
        self.ends = collections.deque(maxlen=400)  # (when, letters)
        self.times = collections.deque(maxlen=RECENT)  # (waiting, running)
        self.past = {name: [] for name, _, _ in METERS}

    def passed(self):
        return time.monotonic() - self.begun

    def end(self, waiting_s, running_s, letters=1):
        """So many letters were answered, with these means."""
        self.answered += letters
        self.ends.append((time.monotonic(), letters))
        self.times.append((waiting_s, running_s))

    def now(self):
        span = min(2.0, max(self.passed(), 0.5))
        since = time.monotonic() - span
        rate = sum(count for at, count in self.ends if at >= since) / span
        mean = lambda i: sum(pair[i] for pair in self.times) / len(self.times) if self.times else 0.0
        return {"queue": self.queue, "level": self.level, "throughput": rate, "waiting": mean(0), "running": mean(1)}

    def sample(self):
        now = self.now()
        for name, past in self.past.items():
            past.append(now[name])
        return now


def spark(values, width):
    """The values as a row of bars, the latest at the right."""
    values = values[-width:]
    most = max(values, default=0) or 1
    return "".join(BARS[min(8, max(int(8 * v / most + 0.999), 0))] for v in values).rjust(width)


class Panel:
    """Draws on a terminal, five times a second; elsewhere, a line every two seconds."""

    def __init__(self, log):
        size = shutil.get_terminal_size()
        self.log, self.drawn, self.last, self.events = log, 0, 0.0, []
        self.rich = (sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and
                     size.columns >= COLUMNS and size.lines >= ROWS)
        self.width = min(size.columns, 100) if self.rich else COLUMNS
        self.begun, self.act, self.way = time.monotonic(), ("", []), ""
        self.finished = []  # rows of ways that are over
        if self.rich:
            print("\033[?25l\033[2J\033[H", end="")  # no cursor; an empty screen

    def begin_act(self, title, *about):
        self.act, self.finished, self.events, self.way = (title, about), [], [], ""
        if not self.rich:
            print("\n" + "\n".join([title, *about]), flush=True)

    def begin_way(self, name, means):
        self.way, self.last = f"{name}: {means}", 0.0
        if not self.rich:
            print(f"{name}: {means}", flush=True)

    def end_way(self, row):
        self.finished.append(row)
        if not self.rich:
            print(row, flush=True)

    def event(self, text):
        """Something that happened, which stays on the panel."""
        self.log(text)
        self.events.append(text)
        if not self.rich:
            print(text, flush=True)

    def show(self, meter, force=False):
        now = time.monotonic()
        if not force and now - self.last < (0.2 if self.rich else 2.0):
            return
        self.last = now
        figures = meter.sample()
        if self.rich:
            self.draw(self.frame(meter, figures))
        else:
            print(f"  {meter.passed():5.1f} s  queue {figures['queue']:3d}  level {figures['level']:3d}  "
                  f"{figures['throughput']:5.1f} a second  waiting {figures['waiting']:5.2f} s  "
                  f"running {figures['running']:5.2f} s", flush=True)

    def frame(self, meter, figures):
        title, about = self.act
        passed = f"{time.monotonic() - self.begun:.0f} s"
        yield f"\033[1m{title}\033[0m" + passed.rjust(self.width - len(title))
        yield from ("", *about, "", f"\033[1m{self.way}\033[0m")
        yield ""
        bars = self.width - 41
        for name, unit, form in METERS:
            yield (f"{name:10s} \033[36m{spark(meter.past[name], bars)}\033[0m "
                   f"{form % figures[name]:>7s} {unit}")
        yield from ("", f"answered {meter.answered}; waiting and running are means of the last {RECENT} letters", "")
        yield from (*self.finished, *self.events)

    def draw(self, lines):
        lines = list(lines)
        print("\033[H" + "".join(f"{line}\033[K\n" for line in lines) + "\033[J", end="", flush=True)

    def close(self, clear=True):
        if self.rich:
            print(("\033[2J\033[H" if clear else "") + "\033[?25h", end="", flush=True)
        self.rich = False


# ---- The report --------------------------------------------------------------------------------

HEAD = f"{'Act 1, processors':22s}{'letters':>7s} {'a second':>9s} {'mean s':>7s} {'p95 s':>7s} {'waiting':>8s} {'running':>8s} {'level':>6s}"


class Row:
    """What became of a way: from the table of the program that ran it."""

    def __init__(self, name, letters, wall, mean, p95, waiting, running, level):
        self.name, self.letters, self.wall, self.mean, self.p95 = name, letters, wall, mean, p95
        self.waiting, self.running, self.level = waiting, running, level
        self.rate = letters / max(wall, 1e-3)

    def __str__(self):
        return (f"  {self.name:20s}{self.letters:7d} {self.rate:9.1f} {self.mean:7.2f} {self.p95:7.2f} "
                f"{self.waiting:8.2f} {self.running:8.2f} {self.level:6d}")


def bar(value, most, width=40):
    eighths = round(8 * width * value / (most or 1))
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8] or "▏"


class Measure:
    """What an act compares its ways by: as a chart, and as factors to the best way, which are at least 1."""

    def __init__(self, title, unit, of, more_is_better):
        self.title, self.unit, self.of, self.more_is_better = title, unit, of, more_is_better

    def chart(self, rows):
        most = max(map(self.of, rows))
        yield self.title
        for row in rows:
            yield f"  {row.name:11s}{bar(self.of(row), most):40s} {self.of(row):.2f} {self.unit}"

    def factors(self, rows):
        values = {row.name: max(self.of(row), 1e-3) for row in rows}
        best = (max if self.more_is_better else min)(values.values())
        return {name: max(best / value, value / best) for name, value in values.items()}


TIME = Measure("Act 1: seconds from the arrival of a letter to its answer, mean", "s", lambda row: row.mean, False)
RATE = Measure("Act 2: letters answered a second", "a second", lambda row: row.rate, True)


def verdict(first, second):
    """How far each way is from the best one, in the act that suits it less."""
    one, two = TIME.factors(first), RATE.factors(second)
    worst = {name: max(one[name], two[name]) for name in one}
    ranked = sorted(worst, key=worst.get)
    yield f"Verdict: behind the best, at worst: {', '.join(f'{n} {worst[n]:.1f}x' for n in ranked)}."
    if ranked[0] == "tuned":
        yield "Neither all at once nor one for each processor suits both acts; the worker did."
    else:
        yield f"Over both acts '{ranked[0]}' did best here."
