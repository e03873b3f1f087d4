"""Workers: one connection takes jobs for all slots, and slots run them.

A slot is a thread or a task. It runs a job that was taken; if there is none and no other slot takes,
it takes; else it ends. So a handler that returns at once needs no switch between threads or tasks.
Before a handler blocks its thread, or when it waits in its task, the slot begins another one if
there is more to do.

What answers a job waits in a queue. If a TAKE is sent next, the queue leaves before it in the same
write; if one waits in the server already, the queue leaves on the connection of the client.

Where handlers are short a worker takes ahead: as many jobs beyond its free slots as a handler ends
in about AHEAD_SECONDS. They are held until a slot is free. A handler that takes long all at once
delays no other job: what has ended before it is committed at the next look, and what is held behind
it goes back after HELD_SECONDS.
"""
from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import json
import logging
import threading
import time
import traceback
from functools import lru_cache, partial
from typing import Any, Callable

from .client import FOREVER_SECONDS, PAUSE_LEAST, PAUSE_MOST, Client, push_words, trace
from .errors import (BadBody, Dead, Denied, Draining, Full, MillraceError, Snooze, Stopped,
                     Unreachable, Usage)
from .wire import (SILENCE_SECONDS, Push, Request, Wire, Word, encode, from_bytes, milliseconds,
                   readable, to_bytes)

TAKE_SECONDS = 10.0  # a TAKE waits so long at most
TICK_SECONDS, DRAIN_TICK_SECONDS = 0.05, 0.005  # between looks at the jobs that run
LOOK_SECONDS = 0.002  # the same, while jobs are taken ahead
AHEAD_SECONDS, AHEAD_MOST, HELD_SECONDS = 0.001, 16, 0.005
LEVEL_SECONDS = 0.25
COMMITTED_TOGETHER = 1000
LEVEL_MOST = 1024
RELEASE_SECONDS = 1.0  # for handlers to end whose jobs were given back
Words = tuple[Word, ...]
encode_once = lru_cache(maxsize=1024)(encode)  # a worker says the same TAKE again and again


class Job:
    """A leased job. What it emits and its state are committed with its result, or not at all."""

    def __init__(self, worker: Worker, row: list[Any]) -> None:
        self.id: str = row[0].decode()
        self.token: str = row[1].decode()
        self.stage: str = row[2].decode()
        self.key: str = row[3].decode("utf-8", "replace")
        self.raw: bytes = row[4]
        self.attempt: int = row[5]
        #: Seconds that were left when the job was taken; None: it has no deadline.
        self.deadline: float | None = None if row[6] < 0 else row[6] / 1000
        self._state: bytes | None = row[7]
        self.lease: float = row[8] / 1000
        self.meta: Any = from_bytes(row[9]) if row[9] else None
        #: Whether the handler should stop: no caller wants the result, or the lease is lost.
        self.cancelled = False
        self.on_stop: Callable[[], Any] | None = None
        self._worker = worker
        self._emits: list[Word] = []
        self._new_state: bytes | None = None

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

    def done(self, result: Any) -> Words:
        """The command that commits it."""
        words: list[Word] = ["DONE", self.id, self.token]
        if result is not None:
            words += "RESULT", to_bytes(result, "result")
        if self._new_state is not None:
            words += "STATE", self._new_state
        return (*words, *self._emits)

    def released(self, *words: Word) -> Words:
        return ("RELEASE", self.id, self.token, *words)

    def failed(self, reason: str, *words: Word) -> Words:
        return ("FAIL", self.id, self.token, reason, *words)

    def raised(self, error: BaseException) -> Words:
        """The command for a handler that has raised this."""
        if isinstance(error, Snooze):
            return self.released("DELAY", error.milliseconds)
        if isinstance(error, asyncio.CancelledError):
            return self.released()
        reason, log = f"{type(error).__name__}: {error}", self._worker._client._logger.warning
        is_dead = isinstance(error, Dead) and not error.remote
        if is_dead or isinstance(error, BadBody):
            reason = str(error) or "dead" if is_dead else reason
            log("job %s of %s is dead (attempt %s): %s", self.id, self.stage, self.attempt, reason)
            return self.failed(reason, "NEVER")
        log("job %s of %s failed (attempt %s): %s", self.id, self.stage, self.attempt, reason,
            exc_info=error)
        return self.failed(reason, "OUTPUT", traceback.format_exc()[-4096:])


def check_options(concurrency: int | str = "auto", lease: float = 0, grace: float = 30,
                  **unknown: Any) -> None:
    """Refuses wrong options of a worker."""
    for name in unknown:
        raise Usage(f"a worker has no option {name}; it has concurrency lease grace")
    if concurrency != "auto" and not (isinstance(concurrency, int) and concurrency > 0):
        raise Usage(f"concurrency is a number from 1 on, or 'auto', not {concurrency!r}")
    milliseconds(lease or 0, "lease")
    milliseconds(0 if grace == float("inf") else grace, "grace")


class Worker:
    """Takes jobs of stages and runs a handler for each. `concurrency` is a number, or "auto": what
    the server has learned."""

    def __init__(self, client: Client, stages: str | list[str], handler: Callable[..., Any], *,
                 concurrency: int | str = "auto", lease: float = 0, grace: float = 30,
                 **unknown: Any) -> None:
        check_options(concurrency, lease, grace, **unknown)
        self.stages = [stages] if isinstance(stages, str) else list(stages)
        self._client, self._handler, self._grace = client, handler, grace
        self._lease: list[Word] = ["LEASE", milliseconds(lease, "lease")] if lease else []
        self._auto = concurrency == "auto"
        self.is_async = inspect.iscoroutinefunction(handler)
        self.level: int = 2 if self._auto else int(concurrency)
        self._levels: dict[Word, int] = {}  # of each stage
        self.stopping = False
        self._error: Exception | None = None  # that has ended it
        #: Commands that are not sent yet, with the job that each of them ends.
        self.answers: collections.deque[tuple[Job | None, Words]] = collections.deque()
        self._flushing = False
        self._wire: Wire | None = None
        self._pause = 0.0  # before the next attempt to take
        self._beat_at = self._level_at = 0.0
        self._bell = client._bell()
        self._tick = FOREVER_SECONDS  # until the next look
        self._took = self._ahead = False  # a job, or more than slots were free, since the last look
        self._average = 8 * AHEAD_SECONDS  # of the time that handlers took lately
        self._begun_at = self._flush_at = 0.0  # the latest job; when answers leave in any case
        self._lock = threading.Lock()  # guards what follows
        self.jobs: dict[str, Job] = {}  # that are leased
        self._held: collections.deque[Job] = collections.deque()  # those that no slot has begun
        self._active = 0  # those that run
        self._taking = self._beginning = False  # a slot takes; a slot is on its way

    def stop(self) -> None:
        """Takes no more; what runs goes on. From any thread."""
        self.stopping = True
        self._bell.ring()

    async def run(self) -> None:
        """The whole life of the worker; raises what has ended it before it was stopped."""
        try:
            while not self.stopping:
                await self._keep()
                self._tick = FOREVER_SECONDS  # so that a job that is taken from now on rings
                if self.jobs or self.answers or self._took:
                    self._tick = LOOK_SECONDS if self._ahead else TICK_SECONDS
                self._took, self._ahead = False, bool(self._held)
                await self._bell.wait(self._tick)
        finally:
            await self._drain()
        if self._error:
            raise self._error

    # ---- Slots ---------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        return 0 if self.stopping else self.level - self._active

    def more(self) -> None:
        """Begins a slot if there is something to do that no slot does; it may begin the next one."""
        with self._lock:
            if self._beginning or self.free <= 0 or (self._taking and not self._held):
                return
            self._beginning = True
        self._client._spawn(self._slot())

    async def _slot(self) -> None:
        self._beginning = False
        while True:
            with self._lock:
                if self.free <= 0 or (self._taking and not self._held):
                    return
                job = self._held.popleft() if self._held else None
                self._taking |= not job
                self._active += job is not None
            if not job:
                await self._take()
                continue
            began = self._begun_at = time.monotonic()
            words = await self._handle(job)
            now = time.monotonic()
            self._average += (now - began - self._average) / 8
            with self._lock:
                self._active -= 1
            self._ended(job, words)
            if self._taking or self.free <= 0 or (self._held and now > self._flush_at):
                await self._flush()
                self._flush_at = time.monotonic() + AHEAD_SECONDS
            if job.cancelled:  # so that no other job has the task that was cancelled
                return self.more()

    async def _handle(self, job: Job) -> Words:
        try:
            if job.cancelled:
                return job.released()
            trace.set(job.meta.get("traceparent") if isinstance(job.meta, dict) else None)
            return job.done(await self._client._invoke(self._handler, job))
        except BaseException as error:  # noqa: B036 - a handler may raise anything
            return job.raised(error)

    def _ended(self, job: Job, words: Words) -> None:
        with self._lock:
            if self.jobs.get(job.id) is job:  # else it was given back, or was taken again
                self.answers.append((job, words))
                del self.jobs[job.id]

    def _give_back(self) -> None:
        """Releases what is held."""
        with contextlib.suppress(IndexError):  # a slot may begin the last one
            while True:
                job = self._held.popleft()
                self._ended(job, job.released())

    # ---- Taking --------------------------------------------------------------------------------

    async def _take(self) -> None:
        """One TAKE; after a passing error it waits for a while."""
        answered = False
        try:
            if not self._wire or self._wire.why:
                self._wire = await self._client._dial(self._pushed)
            ahead = min(AHEAD_MOST, int(AHEAD_SECONDS / self._average))
            take = encode_once("TAKE", *self.stages, "COUNT", max(1, self.free) + ahead, "WAIT",
                               int(1000 * TAKE_SECONDS), "SLOTS", self.level, *self._lease)
            await self._wire.exchange([*self._requests(), (take, self._taken)],
                                      TAKE_SECONDS + SILENCE_SECONDS)
            self._pause, answered = 0.0, True
        except Exception as error:
            if not isinstance(error, (Unreachable, Stopped, Full)) or error.lasting:
                self._error, about = error, " ".join(self.stages)
                self._client._logger.warning("the worker of %s ends: %s", about, error)
                self.stop()
                return
            self._client._lost(error)
            self._pause = min(max(2 * self._pause, PAUSE_LEAST), PAUSE_MOST)
            await self._client._sleep(0 if self.stopping else self._pause)
        finally:
            if not answered:  # else another slot may take already
                self._taking = False

    def _taken(self, reply: Any) -> None:
        """Before what follows the reply is read, such as the cancellation of one of its jobs."""
        if isinstance(reply, MillraceError):
            return
        self._taking = False
        now = time.monotonic()
        self._begun_at, self._flush_at = now, now + AHEAD_SECONDS
        for row in reply:
            job = Job(self, row)
            self.jobs[job.id] = job
            self._held.append(job)
            self._beat_at = min(self._beat_at, now + job.lease / 3)
            self._took = True
        self._ahead |= len(self._held) > self.free
        if self._took and self._tick > (LOOK_SECONDS if self._ahead else TICK_SECONDS):
            self._bell.ring()

    def _pushed(self, message: Push) -> None:
        if message[0] == "closed":  # leases end with their connection
            self._stop_jobs(list(self.jobs))
        elif readable(message[0]) == "cancel":
            self._stop_jobs(message[1:])

    def _stop_jobs(self, ids: list[Any]) -> None:
        for job in filter(None, map(self.jobs.get, map(readable, ids))):
            job.stop()

    # ---- Answering -----------------------------------------------------------------------------

    def _requests(self) -> list[Request]:
        """What waits to be sent; plain commits together."""
        requests: list[Request] = []
        plain: list[Job] = []
        with contextlib.suppress(IndexError):  # another slot may have the last ones
            while True:
                job, words = self.answers.popleft()
                if (job and words[0] == "DONE" and len(words) == 3
                        and len(plain) < COMMITTED_TOGETHER):
                    plain.append(job)
                else:
                    requests.append((encode(*words), partial(self._answered, job, words)))
        if plain:
            ids = [word for job in plain for word in (job.id, job.token)]
            requests.append((encode("DONEMANY", *ids), partial(self._committed, plain)))
        return requests

    def _committed(self, jobs: list[Job], reply: Any) -> None:
        for job, one in zip(jobs, reply if isinstance(reply, list) else [reply] * len(jobs)):
            self._answered(job, job.done(None), one)

    def _answered(self, job: Job | None, words: Words, reply: Any) -> None:
        if isinstance(reply, list):  # to BEAT and PROGRESS: the jobs to stop
            self._stop_jobs(reply)
        elif words[0] == "LEVEL" and isinstance(reply, int):
            self._levels[words[1]] = reply
            self.level = max(1, min(LEVEL_MOST, max(self._levels.values())))
        elif job and isinstance(reply, (Unreachable, Stopped)):
            self.answers.append((job, words))
            self._bell.ring()
        elif isinstance(reply, MillraceError):
            about = (f"job {job.id} of {job.stage} failed (attempt {job.attempt})" if job
                     else f"{words[0]} failed")
            is_fault = isinstance(reply, (Denied, Draining, Full, Usage))  # of the handler
            self._client._logger.log(logging.WARNING if is_fault else logging.INFO,
                                     "%s: %s: %s", about, type(reply).__name__, reply)
            if job and is_fault and words[0] != "FAIL":
                self.answers.append((job, job.failed(f"{type(reply).__name__}: {reply}")))

    async def _flush(self) -> None:
        """Sends the queue and waits for its replies, unless another slot does."""
        while self.answers and not self._flushing:
            self._flushing = True
            try:
                wire = await self._client._shared()
                requests = self._requests()
                if requests:  # else they have left with a TAKE
                    await wire.exchange(requests)
            except MillraceError as error:  # what is left is sent later
                self._client._logger.info("answers of jobs: %s", error)
                return
            finally:
                self._flushing = False

    # ---- What happens by time ------------------------------------------------------------------

    async def _keep(self) -> None:
        """Beats, asks for the level, ends a TAKE, sends what is left in the queue, reads what no
        slot reads: to be called again and again."""
        now = time.monotonic()
        if self._wire:
            self._wire.poll()
        if self.stopping:
            await self._unblock()
        if self.stopping or now - self._begun_at > HELD_SECONDS:
            self._give_back()
        jobs = list(self.jobs.values()) if now >= self._beat_at else []
        if jobs:  # a slot may end the last one meanwhile
            beat = ("BEAT", *(word for job in jobs for word in (job.id, job.token)))
            self.answers.append((None, beat))
            self._beat_at = now + min(job.lease for job in jobs) / 3
        if self._auto and now >= self._level_at and not self.answers:
            self._level_at = now + LEVEL_SECONDS
            self.answers.extend((None, ("LEVEL", stage)) for stage in self.stages)
        if self.stopping or now - self._begun_at > AHEAD_SECONDS:  # else they leave with a TAKE
            await self._flush()
        self.more()

    async def _unblock(self) -> None:
        """Ends a TAKE that waits, at its node: another one has other sessions."""
        if not self._taking or not self._wire or self._wire.why:
            return
        try:
            other = await self._client._dial_node(*self._wire.node)
            await other.ask("CLIENT", "UNBLOCK", self._wire.session)
            other.close()
        except MillraceError as error:
            self._client._logger.info("CLIENT UNBLOCK: %s", error)

    async def _drain(self) -> None:
        """Stops taking, waits for what runs for the grace, and gives the rest back."""
        self.stopping = True
        for seconds in self._grace, RELEASE_SECONDS:
            until = time.monotonic() + seconds
            while time.monotonic() < until and (self.jobs or self._taking or self._flushing
                                                or (self.answers and not self._error)):
                await self._keep()
                await self._bell.wait(DRAIN_TICK_SECONDS)
            for job in list(self.jobs.values()):  # what still runs goes back, uncounted
                self._ended(job, job.released())
                job.stop()
        if self._wire:
            self._wire.close()
