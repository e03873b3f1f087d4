"""Workers: one connection takes for all slots, another one carries commits, beats and progress."""
from __future__ import annotations

import asyncio
import collections
import contextvars
import inspect
import logging
import math
import os
import queue
import threading
import traceback
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, Union

from .aio import PAUSE_LEAST, PAUSE_MOST, AsyncMillrace, push_words, trace
from .codec import from_bytes, milliseconds, strict_json, to_bytes
from .errors import (BadBody, Dead, Denied, Draining, Full, Incompatible, MillraceError, Snooze,
                     Stopped, Unreachable, Usage)
from .wire import Push, Wire, Word

TAKE_SECONDS = 10.0  # a TAKE waits so long at most
UNBLOCK_SECONDS = 0.05
LEVEL_SECONDS = 0.25
COMMITTED_TOGETHER = 1000
LEVEL_MOST = 1024
RELEASE_SECONDS = 1.0  # for handlers to end whose jobs were given back


class Job:
    """A leased job. What it emits and its state are committed with its result, or not at all."""

    def __init__(self, worker: "Worker", row: List[Any]) -> None:
        text = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in row[:4]]
        self.id, self.token, self.stage, self.key = text
        self.raw: bytes = row[4]
        self.attempt: int = row[5]
        #: Seconds that were left when the job was taken; None: it has no deadline.
        self.deadline: Optional[float] = None if row[6] < 0 else row[6] / 1000
        self._state: Optional[bytes] = row[7]
        self.lease: float = row[8] / 1000
        self.meta: Any = from_bytes(row[9]) if len(row) > 9 and row[9] else None
        self._worker = worker
        self._emits: List[Word] = []
        self._new_state: Optional[bytes] = None
        #: Whether the handler should stop: no caller wants the result, or the lease is lost.
        self.cancelled = False
        self._stop: Optional[threading.Event] = None
        self.task: Optional["asyncio.Task[None]"] = None
        self.started = False

    @property
    def body(self) -> Any:
        """The body as it was pushed: a dict or list if it is JSON of one, else str, else bytes."""
        return from_bytes(self.raw)

    def json(self) -> Any:
        """The body, which must be JSON: BadBody, which makes the job dead, if it is not."""
        return strict_json(self.raw)

    @property
    def state(self) -> Any:
        """The state of the job's key; set it to change it with the commit. None: there is none."""
        return from_bytes(self._state if self._new_state is None else self._new_state or None)

    @state.setter
    def state(self, value: Any) -> None:
        self._new_state = b"" if value is None else to_bytes(value, "state")

    def wait_cancelled(self, seconds: float) -> bool:
        """Waits in a thread; True as soon as the handler should stop."""
        self._stop = self._stop or threading.Event()
        return self.cancelled or self._stop.wait(seconds)

    def emit(self, stage: str, body: Any = b"", *, key: str = "", **options: Any) -> None:
        """Pushes a job with the commit. Options: once, delay, deadline, attempts, meta."""
        self._emits += ["EMIT", stage, key or "", to_bytes(body), *push_words(**options)]

    def progress(self, done: int, total: int = 0, text: str = "") -> None:
        """Says how far the job is, and extends its lease. Returns at once; from any thread."""
        say = ("SAY", text) if text else ()
        self._worker.tell("PROGRESS", self.id, self.token, done, total, *say)

    def commit_words(self, result: Any) -> Tuple[Word, ...]:
        words: List[Word] = ["DONE", self.id, self.token]
        if result is not None:
            words += "RESULT", to_bytes(result, "result")
        if self._new_state is not None:
            words += "STATE", self._new_state
        return (*words, *self._emits)

    def stop(self) -> None:
        self.cancelled = True
        if self._stop:
            self._stop.set()
        if self.task and self.started:
            self.task.cancel()


class Worker:
    """Takes jobs of stages and runs a handler for each, in a thread or, if it is a coroutine
    function, as a task. `concurrency` is a number, or "auto": what the server has learned.

    One connection takes for all slots, another one carries answers, beats and progress. Plain
    commits of one turn of the loop travel in one command, before the TAKE if one is sent then."""

    def __init__(self, client: AsyncMillrace, stages: Union[str, List[str]],
                 handler: Callable[..., Any], *, concurrency: Union[int, str] = "auto",
                 lease: float = 0, grace: float = 30) -> None:
        if concurrency != "auto" and not (isinstance(concurrency, int) and concurrency > 0):
            raise Usage(f"concurrency={concurrency!r} is neither a number from 1 nor 'auto'")
        self.stages = [stages] if isinstance(stages, str) else list(stages)
        self.is_async = inspect.iscoroutinefunction(handler)
        self._client, self._handler, self._grace = client, handler, grace
        self._lease = ("LEASE", milliseconds(lease)) if lease else ()
        self._auto = concurrency == "auto"
        self.level: int = 2 if self._auto else int(concurrency)
        self._running: Dict[str, Job] = {}
        self._plain: List[Job] = []  # to be committed in this turn
        self._unanswered = 0  # answers that were sent and not confirmed
        self._stopping = self._turning = self._connecting = self._takes = False
        self._pause = 0.0  # before the next attempt to take
        self._beat_at = math.inf
        self._beat_timer: Optional[asyncio.TimerHandle] = None
        self._taking = client.link(self._pushed)
        self._answers = client.link()
        self._threads = _Threads(self)

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._over = self.loop.create_future()  # nothing is taken any more
        self._idle = asyncio.Event()
        self.task = self.loop.create_task(self._run())

    def stop(self) -> None:
        """Takes no more; what runs goes on."""
        if not self._stopping:
            self._stopping = True
            self.loop.create_task(self._unblock())

    async def close(self) -> None:
        """Stops taking, waits for what runs for the grace, and gives the rest back."""
        self.stop()
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        level = self.loop.create_task(self._follow_level()) if self._auto else None
        try:
            self._soon()
            await self._over
        finally:
            self._stopping = True
            await self._drain()
            if level:
                level.cancel()
            if self._beat_timer:
                self._beat_timer.cancel()
            self._taking.close()
            self._answers.close()
            self._threads.close()

    # ---- Taking --------------------------------------------------------------------------------

    def _soon(self) -> None:
        if not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Once in a turn of the loop in which jobs have ended."""
        self._turning = False
        free = self.level - len(self._running)
        if not self._takes and not self._stopping and free > 0:
            wire = self._taking.up
            if not wire:
                self._connect()
            else:
                self._takes = True
                self._commit(wire)
                wire.send(("TAKE", *self.stages, "COUNT", free, "WAIT", milliseconds(TAKE_SECONDS),
                           "SLOTS", self.level, *self._lease), self._taken, TAKE_SECONDS)
                wire.flush()
        if self._plain:
            self._commit(self._answers.up)
        if not self._running and not self._unanswered:
            self._idle.set()

    def _taken(self, reply: Any) -> None:
        """Before what follows the reply is read, such as the cancellation of one of its jobs."""
        self._takes = False
        if isinstance(reply, MillraceError):
            self._lost(reply)
            return
        self._pause = 0.0
        for row in reply:
            self._begin(Job(self, row))
        if len(self._running) < self.level:
            self._soon()

    def _lost(self, error: MillraceError) -> None:
        if error.lasting or not isinstance(error, (Unreachable, Stopped, Full)):
            self._end(error)
            return
        self._client.logger.warning("%s; trying again", error)
        self._pause = min(max(2 * self._pause, PAUSE_LEAST), PAUSE_MOST)
        self._connect()

    def _connect(self) -> None:
        if not self._connecting:
            self._connecting = True
            self.loop.create_task(self._connect_after(self._pause))

    async def _connect_after(self, pause: float) -> None:
        await asyncio.sleep(pause)
        self._connecting = False
        if self._stopping:
            return
        known = self._taking.up
        try:
            wire = await self._taking.get()
        except MillraceError as error:
            self._lost(error)
            return
        if wire is not known:
            wire.is_manual = True
            wire.closed.add_done_callback(lambda _: self._stop_all())
        self._soon()

    def _end(self, error: Optional[MillraceError] = None) -> None:
        if error and not self._over.done():
            self._over.set_exception(error)
        elif not self._over.done():
            self._over.set_result(None)

    async def _unblock(self) -> None:
        """Makes the server answer a TAKE that waits; again, for one may overtake the TAKE."""
        while self._takes and self._taking.up:
            await self._tell(("CLIENT", "UNBLOCK", self._taking.up.session))
            if self._takes:
                await asyncio.sleep(UNBLOCK_SECONDS)
        self._end()

    def _stop_all(self) -> None:
        """Leases end with their connection."""
        for job in list(self._running.values()):
            job.stop()
        self._soon()

    def _pushed(self, message: Push) -> None:
        if message[0] in (b"cancel", "cancel"):
            self._stop_jobs(message[1:])

    def _stop_jobs(self, ids: List[bytes]) -> None:
        for job_id in ids:
            job = self._running.get(job_id.decode())
            if job:
                job.stop()

    # ---- Running -------------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        if self._stopping:
            self._answer(job, ("RELEASE", job.id, job.token))
            return
        self._running[job.id] = job
        self._beat_within(job.lease / 3)
        if self.is_async:
            job.task = self.loop.create_task(self._run_async(job))
        else:
            self._threads.run(job)

    async def _run_async(self, job: Job) -> None:
        _enter_trace(job)
        try:
            if self._stopping or job.cancelled:
                raise asyncio.CancelledError
            job.started = True
            words = job.commit_words(await self._handler(job))
        except BaseException as error:  # noqa: B036 - a handler may raise anything
            words = self._failed(job, error)
        job.started = False  # a cancellation that comes now is too late
        self._ended(job, words)
        self._soon()

    def run_sync(self, job: Job) -> Tuple[Word, ...]:
        """In a thread; returns the command that answers the job."""
        _enter_trace(job)
        try:
            if self._stopping or job.cancelled:
                raise asyncio.CancelledError
            return job.commit_words(self._handler(job))
        except BaseException as error:  # noqa: B036 - a handler may raise anything
            return self._failed(job, error)

    def collect(self, ended: Deque[Tuple[Job, Tuple[Word, ...]]]) -> None:
        """Jobs whose handlers have ended in threads."""
        while ended:
            self._ended(*ended.popleft())
        self._turn()

    def _failed(self, job: Job, error: BaseException) -> Tuple[Word, ...]:
        """The command that answers the job of a handler that has raised this."""
        head = (job.id, job.token)
        if isinstance(error, Snooze):
            return ("RELEASE", *head, "DELAY", milliseconds(error.seconds))
        if isinstance(error, Dead):
            if error.job:  # of a job that the handler has called: it may do better next time
                return ("FAIL", *head, f"job {error.job} is dead: {error}")
            return ("FAIL", *head, str(error) or "dead", "NEVER")
        if isinstance(error, BadBody):
            return ("FAIL", *head, f"BadBody: {error}", "NEVER")
        if isinstance(error, asyncio.CancelledError):
            return ("RELEASE", *head)
        self._client.logger.warning("job %s of %s failed: %r", job.id, job.stage, error)
        return ("FAIL", *head, f"{type(error).__name__}: {error}", "OUTPUT",
                traceback.format_exc()[-4096:])

    def _ended(self, job: Job, words: Tuple[Word, ...]) -> None:
        if self._running.get(job.id) is not job:  # it was given back, or was taken again
            return
        del self._running[job.id]
        if len(words) == 3 and words[0] == "DONE":
            self._plain.append(job)
        else:
            self._answer(job, words)

    # ---- Answering -----------------------------------------------------------------------------

    def _commit(self, wire: Optional[Wire]) -> None:
        """Sends plain commits, if possible on this connection."""
        plain, self._plain = self._plain, []
        for first in range(0, len(plain), COMMITTED_TOGETHER):
            some = plain[first:first + COMMITTED_TOGETHER]
            words: List[Word] = ["DONEMANY"]
            for job in some:
                words += job.id, job.token
            self._send(words, lambda reply, some=some: self._committed(some, reply), wire)

    def _committed(self, jobs: List[Job], reply: Any) -> None:
        for job, one in zip(jobs, reply if isinstance(reply, list) else [reply] * len(jobs)):
            if isinstance(one, MillraceError):
                self._refused(job, one)

    def _answer(self, job: Job, words: Sequence[Word]) -> None:
        def done(reply: Any) -> None:
            if isinstance(reply, (Denied, Draining, Full, Usage)) and words[0] != "FAIL":
                self._answer(job, ("FAIL", job.id, job.token, f"{type(reply).__name__}: {reply}"))
            if isinstance(reply, MillraceError):
                self._refused(job, reply)
        self._send(words, done, self._answers.up)

    def _refused(self, job: Job, error: MillraceError) -> None:
        level = logging.WARNING if isinstance(error, Usage) else logging.INFO
        self._client.logger.log(level, "job %s of %s: %s: %s", job.id, job.stage,
                                type(error).__name__, error)

    def _send(self, words: Sequence[Word], done: Callable[[Any], None],
              wire: Optional[Wire]) -> None:
        """Sends an answer; after a loss again on the other connection."""
        self._unanswered += 1

        def settle(reply: Any) -> None:
            if isinstance(reply, (Unreachable, Stopped)):
                self.loop.create_task(again())
            else:
                finish(reply)

        def finish(reply: Any) -> None:
            done(reply)
            self._unanswered -= 1
            if self._stopping and not self._unanswered:
                self._soon()

        async def again() -> None:
            try:
                finish(await self._answers.repeat(*words))
            except MillraceError as error:
                finish(error)
        if wire:
            wire.send(words, settle)
        else:
            self.loop.create_task(again())

    def tell(self, *words: Word) -> None:
        """Sends a command whose reply is a list of jobs to stop; from any thread."""
        self.loop.call_soon_threadsafe(
            lambda: self.loop.create_task(self._tell(words)))

    async def _tell(self, words: Sequence[Word]) -> None:
        try:
            reply = await self._answers.ask(*words)
            self._stop_jobs(reply if isinstance(reply, list) else [])
        except MillraceError as error:
            self._client.logger.info("%s: %s", words[0], error)

    def _beat_within(self, seconds: float) -> None:
        """One timer for all jobs; it is set anew when a job has a shorter lease."""
        at = self.loop.time() + seconds
        if at >= self._beat_at:
            return
        if self._beat_timer:
            self._beat_timer.cancel()
        self._beat_at, self._beat_timer = at, self.loop.call_at(at, self._beat)

    def _beat(self) -> None:
        self._beat_at = math.inf
        jobs = self._running.values()
        if jobs:
            words = [word for job in jobs for word in (job.id, job.token)]
            self.loop.create_task(self._tell(("BEAT", *words)))
            self._beat_within(min(job.lease for job in jobs) / 3)

    async def _follow_level(self) -> None:
        while True:
            try:
                levels = [await self._answers.ask("LEVEL", stage) for stage in self.stages]
                self.level = min(LEVEL_MOST, max(1, *levels))
            except Incompatible:  # the server does not know LEVEL
                self.level = min(32, (os.cpu_count() or 1) + 4)
                return
            except MillraceError as error:
                self._client.logger.debug("LEVEL: %s", error)
            finally:
                self._soon()
            await asyncio.sleep(LEVEL_SECONDS)

    async def _drain(self) -> None:
        await self._settled(self._grace)
        for job in list(self._running.values()):  # what is still running goes back, uncounted
            del self._running[job.id]
            self._answer(job, ("RELEASE", job.id, job.token))
            job.stop()
        await self._settled(RELEASE_SECONDS)

    async def _settled(self, seconds: float) -> None:
        """Until nothing runs and all answers are confirmed, or the time is over."""
        self._idle.clear()
        self._soon()
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except asyncio.TimeoutError:
            pass


def _enter_trace(job: Job) -> None:
    trace.set(job.meta.get("traceparent") if isinstance(job.meta, dict) else None)


class _Threads:
    """Runs handlers in threads, as many as there are jobs. A thread that begins a job wakes another
    one if there are more: so handlers that return at once are run by few threads, without a switch
    for each of them. Ends of jobs are collected by the loop together, too."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ended: Deque[Tuple[Job, Tuple[Word, ...]]] = collections.deque()
        self._collecting = False
        self._wakes: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._jobs: Deque[Job] = collections.deque()
        self._sleeping = 0  # threads, each of which gets one of the wakes
        self._waking = False  # a thread is on its way to the jobs
        self._closed = False

    def run(self, job: Job) -> None:
        with self._lock:
            self._jobs.append(job)
        self._wake()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for _ in range(self._sleeping):
                self._wakes.put(None)

    def _wake(self) -> None:
        with self._lock:
            if self._waking or not self._jobs:
                return
            self._waking = True
            if self._sleeping:
                self._sleeping -= 1
                self._wakes.put(None)
                return
        threading.Thread(target=self._work, daemon=True,
                         name=f"millrace {self._worker.stages[0]}").start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._waking = False
                job = self._jobs.popleft() if self._jobs else None
                more = bool(self._jobs)
                if not job and self._closed:
                    return
                if not job:
                    self._sleeping += 1
            if more:
                self._wake()
            if job:
                self._finish(job, contextvars.copy_context().run(self._worker.run_sync, job))
            else:
                self._wakes.get()

    def _finish(self, job: Job, words: Tuple[Word, ...]) -> None:
        self._ended.append((job, words))
        if not self._collecting:
            self._collecting = True
            self._worker.loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._collecting = False
        self._worker.collect(self._ended)
