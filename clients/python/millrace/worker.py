"""Workers: one connection takes for all slots, another one carries answers, beats and progress.

What answers a job waits in a queue. If a TAKE is sent next, the queue leaves before it in the same
write; if one waits in the server already, the queue leaves on the other connection.
"""
from __future__ import annotations

import asyncio
import collections
import functools
import json
import logging
import os
import threading
import time
import traceback
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple, Union

from .client import PAUSE_LEAST, PAUSE_MOST, Client, Link, push_words, trace
from .errors import (BadBody, Dead, Denied, Draining, Full, Incompatible, MillraceError, Snooze,
                     Stopped, Unreachable, Usage)
from .wire import (Command, Push, Wire, Word, from_bytes, milliseconds, readable, to_bytes)

TAKE_SECONDS = 10.0  # a TAKE waits so long at most
TICK_SECONDS, IDLE_SECONDS = 0.05, 0.2  # between looks at the jobs that run, or at an idle worker
LEVEL_SECONDS = 0.25
COMMITTED_TOGETHER = 1000
LEVEL_MOST = 1024
RELEASE_SECONDS = 1.0  # for handlers to end whose jobs were given back


class Job:
    """A leased job. What it emits and its state are committed with its result, or not at all."""

    def __init__(self, worker: "BaseWorker", row: List[Any]) -> None:
        self.id: str = row[0].decode()
        self.token: str = row[1].decode()
        self.stage: str = row[2].decode()
        self.key: str = row[3].decode("utf-8", "replace")
        self.raw: bytes = row[4]
        self.attempt: int = row[5]
        #: Seconds that were left when the job was taken; None: it has no deadline.
        self.deadline: Optional[float] = None if row[6] < 0 else row[6] / 1000
        self._state: Optional[bytes] = row[7]
        self.lease: float = row[8] / 1000
        self.meta: Any = from_bytes(row[9]) if len(row) > 9 and row[9] else None
        #: Whether the handler should stop: no caller wants the result, or the lease is lost.
        self.cancelled = False
        self.on_stop: Optional[Callable[[], Any]] = None
        self._worker = worker
        self._emits: List[Word] = []
        self._new_state: Optional[bytes] = None

    @property
    def body(self) -> Any:
        """The body as it was pushed: a dict or list if it is JSON of one, else str, else bytes."""
        return from_bytes(self.raw)

    def json(self) -> Any:
        """The body, which must be JSON: BadBody, which makes the job dead, if it is not."""
        try:
            return json.loads(self.raw)
        except ValueError as error:
            raise BadBody(f"the body is not JSON: {error}") from None

    @property
    def state(self) -> Any:
        """The state of the job's key; set it to change it with the commit. None: there is none."""
        return from_bytes(self._state if self._new_state is None else self._new_state or None)

    @state.setter
    def state(self, value: Any) -> None:
        self._new_state = b"" if value is None else to_bytes(value, "state")

    def wait_cancelled(self, seconds: float) -> bool:
        """Waits in a thread; True as soon as the handler should stop."""
        stopped = threading.Event()
        self.on_stop = stopped.set
        return self.cancelled or stopped.wait(seconds)

    def emit(self, stage: str, body: Any = b"", *, key: str = "", **options: Any) -> None:
        """Pushes a job with the commit. Options: once, delay, deadline, attempts, meta."""
        self._emits += ["EMIT", stage, key or "", to_bytes(body), *push_words(options)]

    def progress(self, done: int, total: int = 0, text: str = "") -> None:
        """Says how far the job is, and extends its lease. Returns at once; from any thread."""
        say = ("SAY", text) if text else ()
        self._worker.answers.append((None, ("PROGRESS", self.id, self.token, done, total, *say)))

    def stop(self) -> None:
        self.cancelled = True
        if self.on_stop:
            self.on_stop()

    # ---- How it is answered --------------------------------------------------------------------

    def done(self, result: Any) -> Tuple[Word, ...]:
        """The command that commits it."""
        words: List[Word] = ["DONE", self.id, self.token]
        if result is not None:
            words += "RESULT", to_bytes(result, "result")
        if self._new_state is not None:
            words += "STATE", self._new_state
        return (*words, *self._emits)

    def released(self, *words: Word) -> Tuple[Word, ...]:
        return ("RELEASE", self.id, self.token, *words)

    def failed(self, reason: str, *words: Word) -> Tuple[Word, ...]:
        return ("FAIL", self.id, self.token, reason, *words)

    def raised(self, error: BaseException) -> Tuple[Word, ...]:
        """The command for a handler that has raised this."""
        if isinstance(error, Snooze):
            return self.released("DELAY", milliseconds(error.seconds))
        if isinstance(error, asyncio.CancelledError):
            return self.released()
        if isinstance(error, Dead) and error.job:  # that the handler has called: it may do better
            return self.failed(f"job {error.job} is dead: {error}")
        if isinstance(error, Dead):
            return self.failed(str(error) or "dead", "NEVER")
        if isinstance(error, BadBody):
            return self.failed(f"BadBody: {error}", "NEVER")
        self._worker.logger.warning("job %s of %s failed: %r", self.id, self.stage, error)
        return self.failed(f"{type(error).__name__}: {error}", "OUTPUT",
                           traceback.format_exc()[-4096:])


class BaseWorker:
    """Takes jobs of stages and runs a handler for each. `concurrency` is a number, or "auto": what
    the server has learned. Subclasses decide where handlers run."""

    def __init__(self, client: Client, stages: Union[str, List[str]], handler: Callable[..., Any],
                 *, concurrency: Union[int, str] = "auto", lease: float = 0,
                 grace: float = 30) -> None:
        if concurrency != "auto" and not (isinstance(concurrency, int) and concurrency > 0):
            raise Usage(f"concurrency={concurrency!r} is neither a number from 1 nor 'auto'")
        self.stages = [stages] if isinstance(stages, str) else list(stages)
        self.logger = client.logger
        self._client, self._handler, self._grace = client, handler, grace
        self._lease: List[Word] = ["LEASE", milliseconds(lease)] if lease else []
        self._auto = concurrency == "auto"
        self.level: int = 2 if self._auto else int(concurrency)
        self.stopping = False
        self.running: Dict[str, Job] = {}
        #: Commands that are not sent yet, with the job that each of them ends.
        self.answers: Deque[Tuple[Optional[Job], Tuple[Word, ...]]] = collections.deque()
        self._again: List[Tuple[Job, Tuple[Word, ...]]] = []  # those whose reply was lost
        self._unconfirmed = 0  # commands of that kind that were sent
        self._takes = False
        self._pause = 0.0  # before the next attempt to take
        self._beat_at = self._level_at = 0.0
        self._taking = Link(client, self._pushed)
        self._answering = Link(client)

    def begin(self, job: Job) -> None:
        """Starts the handler; does not wait."""
        raise NotImplementedError

    def more(self) -> None:
        """There is more to take or to send than before."""
        raise NotImplementedError

    # ---- Taking --------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        return 0 if self.stopping else self.level - len(self.running)

    async def take(self) -> None:
        """One TAKE. Raises what ends the worker; after a passing error it waits for a while."""
        try:
            wire = self._taking.up or await self._taking.get()
            reply = wire.future()
            words: List[Word] = ["TAKE", *self.stages, "COUNT", max(1, self.free), "WAIT",
                                 milliseconds(TAKE_SECONDS), "SLOTS", self.level, *self._lease]
            self._takes = True
            wire.send([*self._commands(), Command(words, self._taken, reply, TAKE_SECONDS)])
            await reply
            self._pause = 0.0
        except (Unreachable, Stopped, Full) as error:
            if error.lasting:
                raise
            self.logger.warning("%s; trying again", error)
            self._pause = min(max(2 * self._pause, PAUSE_LEAST), PAUSE_MOST)
            await self._client.sleep(0 if self.stopping else self._pause)
        finally:
            self._takes = False

    def _taken(self, _: Wire, reply: Any) -> None:
        """Before what follows the reply is read, such as the cancellation of one of its jobs."""
        for row in reply if isinstance(reply, list) else ():
            job = Job(self, row)
            if self.stopping:
                self.answers.append((job, job.released()))
                continue
            self.running[job.id] = job
            self._beat_at = min(self._beat_at, time.monotonic() + job.lease / 3)
            self.begin(job)

    def _pushed(self, message: Push) -> None:
        if message[0] == "closed":  # leases end with their connection
            self._stop_jobs(list(self.running))
        elif readable(message[0]) == "cancel":
            self._stop_jobs(message[1:])

    def _stop_jobs(self, ids: List[Any]) -> None:
        for job in filter(None, (self.running.get(readable(job_id)) for job_id in ids)):
            job.stop()

    # ---- Answering -----------------------------------------------------------------------------

    def enter(self, job: Job) -> None:
        """Before a handler is called: its trace; raises if it should not be called any more."""
        trace.set(job.meta.get("traceparent") if isinstance(job.meta, dict) else None)
        if self.stopping or job.cancelled:
            raise asyncio.CancelledError

    def ended(self, job: Job, words: Tuple[Word, ...]) -> None:
        if self.running.get(job.id) is job:  # else it was given back, or was taken again
            self.answers.append((job, words))
            del self.running[job.id]

    def _commands(self) -> Iterator[Command]:
        """What waits to be sent; plain commits together."""
        plain: List[Job] = []
        while self.answers:
            job, words = self.answers.popleft()
            self._unconfirmed += 1
            if job and len(words) == 3 and words[0] == "DONE":
                plain.append(job)
            else:
                yield Command(words, functools.partial(self._answered, job, words))
            if plain and (len(plain) == COMMITTED_TOGETHER or not self.answers):
                commits: List[Word] = ["DONEMANY"]
                for one in plain:
                    commits += one.id, one.token
                yield Command(commits, functools.partial(self._committed, plain))
                plain = []

    def _committed(self, jobs: List[Job], wire: Wire, reply: Any) -> None:
        for job, one in zip(jobs, reply if isinstance(reply, list) else [reply] * len(jobs)):
            self._answered(job, ("DONE", job.id, job.token), wire, one)

    def _answered(self, job: Optional[Job], words: Tuple[Word, ...], _: Wire, reply: Any) -> None:
        self._unconfirmed -= 1
        if not isinstance(reply, MillraceError):
            if isinstance(reply, list):  # to BEAT and PROGRESS: the jobs to stop
                self._stop_jobs(reply)
        elif not job:
            self.logger.info("%s: %s", words[0], reply)
        elif isinstance(reply, (Unreachable, Stopped)):
            self._again.append((job, words))
        else:
            level = logging.WARNING if isinstance(reply, Usage) else logging.INFO
            self.logger.log(level, "job %s of %s: %s: %s", job.id, job.stage,
                            type(reply).__name__, reply)
            if isinstance(reply, (Denied, Draining, Full, Usage)) and words[0] != "FAIL":
                self.answers.append((job, job.failed(f"{type(reply).__name__}: {reply}")))

    async def flush(self) -> None:
        """Sends the queue on its own connection, and waits until all of it is answered."""
        wire = self._answering.up or await self._answering.get()
        commands = list(self._commands())
        if commands:
            last = wire.future()
            wire.send([*commands[:-1], commands[-1]._replace(future=last)])
            await last

    # ---- What happens by time ------------------------------------------------------------------

    async def keep(self) -> None:
        """Beats, asks for the level, ends a TAKE, sends what is left in the queue: to be called
        again and again."""
        now = time.monotonic()
        again, self._again = self._again, []
        self.answers.extend(again)
        if self.stopping and self._takes and self._taking.up:
            self.answers.append((None, ("CLIENT", "UNBLOCK", self._taking.up.session)))
        try:
            if now >= self._beat_at and self.running:
                jobs = list(self.running.values())
                beat = ("BEAT", *(word for job in jobs for word in (job.id, job.token)))
                self.answers.append((None, beat))
                self._beat_at = now + min(job.lease for job in jobs) / 3
            if self._auto and now >= self._level_at and not self.stopping:
                self._level_at = now + LEVEL_SECONDS
                await self._ask_level()
            if self.answers:
                await self.flush()
        except MillraceError as error:
            self.logger.info("%s; trying again", error)

    async def _ask_level(self) -> None:
        try:
            levels = [await self._answering.ask("LEVEL", stage) for stage in self.stages]
            self.level = min(LEVEL_MOST, max(1, *levels))
        except Incompatible:  # the server does not know LEVEL
            self.level, self._auto = min(32, (os.cpu_count() or 1) + 4), False
        self.more()

    async def drain(self) -> None:
        """Stops taking, waits for what runs for the grace, and gives the rest back."""
        self.stopping = True
        await self._settle(self._grace, lambda: self.running or self._takes)
        for job in list(self.running.values()):  # what is still running goes back, uncounted
            self.ended(job, job.released())
            job.stop()
        await self._settle(RELEASE_SECONDS, lambda: False)

    async def _settle(self, seconds: float, waits: Callable[[], Any]) -> None:
        """Until this does not wait any more and all is answered, or the time is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (
                waits() or self.answers or self._again or self._unconfirmed):
            await self.keep()
            await self._client.sleep(0.005)

    def close_links(self) -> None:
        self._taking.close()
        self._answering.close()
