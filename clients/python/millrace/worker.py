"""Workers: one connection takes for all slots, another one carries commits, beats and progress."""
from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import os
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Union

from .aio import PAUSE_LEAST, PAUSE_MOST, AsyncMillrace, push_words, trace
from .codec import from_bytes, milliseconds, strict_json, to_bytes
from .errors import (BadBody, Dead, Denied, Draining, Full, Incompatible, MillraceError, Snooze,
                     Stopped, Unreachable, Usage)
from .wire import Push, Word

TAKE_SECONDS = 10.0  # a TAKE waits so long at most
UNBLOCK_SECONDS = 0.05
LEVEL_SECONDS = 0.25
COMMITTED_TOGETHER = 1000
THREADS_MOST = 1024


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
        self._worker, self._emits, self._new_state = worker, [], None  # type: ignore[var-annotated]
        self._stop = threading.Event()
        self.started = False
        self._task: Optional["asyncio.Task[None]"] = None

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

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: no caller wants the result, or the lease is lost."""
        return self._stop.is_set()

    def wait_cancelled(self, seconds: float) -> bool:
        """Waits in a thread; True as soon as the handler should stop."""
        return self._stop.wait(seconds)

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
        self._stop.set()
        if self.started and self._task and self._worker.is_async:
            self._task.cancel()


class Worker:
    """Takes jobs of stages and runs a handler for each, in a thread or, if it is a coroutine
    function, as a task. `concurrency` is a number, or "auto": what the server has learned."""

    def __init__(self, client: AsyncMillrace, stages: Union[str, List[str]],
                 handler: Callable[..., Any], *, concurrency: Union[int, str] = "auto",
                 lease: float = 0, grace: float = 30) -> None:
        if concurrency != "auto" and not (isinstance(concurrency, int) and concurrency > 0):
            raise ValueError(f"concurrency={concurrency!r} is neither a number from 1 nor 'auto'")
        self.stages = [stages] if isinstance(stages, str) else list(stages)
        self.is_async = inspect.iscoroutinefunction(handler)
        self._client, self._handler, self._grace = client, handler, grace
        self._lease = ("LEASE", milliseconds(lease)) if lease else ()
        self._auto = concurrency == "auto"
        self.level: int = 2 if self._auto else int(concurrency)
        self._running: Dict[str, Job] = {}
        self._tasks: Set["asyncio.Task[None]"] = set()  # also while a commit is on its way
        self._plain: List[Tuple[Job, "asyncio.Future[Any]"]] = []
        self._stopping = False
        self._cancelled: Set[str] = set()
        self._take_reply: Optional["asyncio.Future[Any]"] = None
        self._taking = self._client.link(self._pushed)
        self._answers = self._client.link()
        self._free, self._beat = asyncio.Event(), asyncio.Event()
        self._threads = None if self.is_async else ThreadPoolExecutor(
            THREADS_MOST, thread_name_prefix=f"millrace {self.stages[0]}")

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(self._run())

    def stop(self) -> None:
        """Takes no more; what runs goes on."""
        if not self._stopping:
            self._stopping = True
            self._free.set()
            self._loop.create_task(self._unblock())

    async def close(self) -> None:
        """Stops taking, waits for what runs for the grace, and gives the rest back."""
        self.stop()
        await asyncio.wait([self.task])

    # ---- Taking --------------------------------------------------------------------------------

    async def _run(self) -> None:
        helpers = [self._loop.create_task(self._beat_on())]
        if self._auto:
            helpers.append(self._loop.create_task(self._follow_level()))
        try:
            await self._take_on()
            await self._drain()
        finally:
            for helper in helpers:
                helper.cancel()
            self._taking.close()
            self._answers.close()
            if self._threads:
                self._threads.shutdown(wait=False)

    async def _take_on(self) -> None:
        pause = PAUSE_LEAST
        while not self._stopping:
            if len(self._running) >= self.level:
                self._free.clear()
                await self._free.wait()
                continue
            try:
                for row in await self._take(self.level - len(self._running)):
                    self._begin(Job(self, row))
                self._cancelled.clear()
                pause = PAUSE_LEAST
            except (Unreachable, Stopped) as error:
                self._client.logger.warning("%s; trying again", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST)

    async def _take(self, count: int) -> List[List[Any]]:
        known, wire = self._taking.wire, await self._taking.get()
        if wire is not known:
            wire.closed.add_done_callback(lambda _: self._stop_all())
        if self._stopping:
            return []
        self._take_reply = wire.ask("TAKE", *self.stages, "COUNT", count, "WAIT",
                                    milliseconds(TAKE_SECONDS), *self._lease, wait=TAKE_SECONDS)
        return list(await self._take_reply)

    async def _unblock(self) -> None:
        """Makes the server answer a TAKE that waits; again, for one may overtake the TAKE."""
        reply, wire = self._take_reply, self._taking.wire
        while reply and wire and not reply.done():
            await self._tell(("CLIENT", "UNBLOCK", wire.session))
            await asyncio.wait([reply], timeout=UNBLOCK_SECONDS)

    def _stop_all(self) -> None:
        """Leases end with their connection."""
        for job in list(self._running.values()):
            job.stop()

    def _pushed(self, message: Push) -> None:
        if message[0] in (b"cancel", "cancel"):
            self._stop_jobs(message[1:])

    def _stop_jobs(self, ids: List[bytes]) -> None:
        for job_id in ids:
            job = self._running.get(job_id.decode())
            if job:
                job.stop()
            else:  # the reply to TAKE may have come with this, and not be handled yet
                self._cancelled.add(job_id.decode())

    # ---- Running -------------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        self._running[job.id] = job
        job._task = self._loop.create_task(self._run_job(job))
        self._tasks.add(job._task)
        job._task.add_done_callback(self._tasks.discard)
        if job.id in self._cancelled:
            job.stop()  # before it starts
        self._beat.set()  # its lease may be the shortest

    async def _run_job(self, job: Job) -> None:
        try:
            words = await self._handle(job)
        finally:
            job.started = False
            if self._running.get(job.id) is job:  # it may have been taken again
                del self._running[job.id]
            self._free.set()
        try:
            await self._answer(job, words)
        except (Denied, Draining, Full, Usage) as error:  # what the handler commits is refused
            self._client.logger.warning("job %s of %s failed: %s", job.id, job.stage, error)
            await self._tell(("FAIL", job.id, job.token, f"{type(error).__name__}: {error}"))
        except MillraceError as error:
            self._client.logger.info("job %s of %s: %s: %s", job.id, job.stage,
                                     type(error).__name__, error)

    async def _handle(self, job: Job) -> Tuple[Word, ...]:
        """Runs the handler; returns the command that answers the job."""
        head = (job.id, job.token)
        if self._stopping or job.cancelled:
            return ("RELEASE", *head)
        job.started = True
        if isinstance(job.meta, dict):
            trace.set(job.meta.get("traceparent"))
        try:
            return job.commit_words(await self._call(job))
        except Snooze as snooze:
            return ("RELEASE", *head, "DELAY", milliseconds(snooze.seconds))
        except Dead as error:
            if error.job:  # of a job that the handler has called: it may do better next time
                return ("FAIL", *head, f"job {error.job} is dead: {error}")
            return ("FAIL", *head, str(error) or "dead", "NEVER")
        except BadBody as error:
            return ("FAIL", *head, f"BadBody: {error}", "NEVER")
        except asyncio.CancelledError:
            return ("RELEASE", *head)
        except BaseException as error:  # noqa: B036 - a handler may raise anything
            self._client.logger.warning("job %s of %s failed: %r", job.id, job.stage, error)
            return ("FAIL", *head, f"{type(error).__name__}: {error}", "OUTPUT",
                    traceback.format_exc()[-4096:])

    async def _call(self, job: Job) -> Any:
        if self.is_async:
            return await self._handler(job)
        context = contextvars.copy_context()
        return await self._loop.run_in_executor(self._threads, context.run, self._handler, job)

    # ---- Answering -----------------------------------------------------------------------------

    async def _answer(self, job: Job, words: Tuple[Word, ...]) -> None:
        if len(words) > 3 or words[0] != "DONE":
            await self._answers.repeat(lambda wire: wire.ask(*words))
            return
        if not self._plain:
            self._loop.call_soon(lambda: self._loop.create_task(self._commit_plain()))
        committed = self._loop.create_future()
        self._plain.append((job, committed))
        await committed

    async def _commit_plain(self) -> None:
        """Plain commits of one turn of the loop travel in one command."""
        plain, self._plain = self._plain, []
        for first in range(0, len(plain), COMMITTED_TOGETHER):
            some = plain[first:first + COMMITTED_TOGETHER]
            words = [word for job, _ in some for word in (job.id, job.token)]
            try:
                replies = await self._answers.repeat(lambda w: w.ask("DONEMANY", *words))
            except MillraceError as error:
                replies = [error] * len(some)
            for (_, committed), reply in zip(some, replies):
                if isinstance(reply, MillraceError):
                    committed.set_exception(reply)
                else:
                    committed.set_result(None)

    def tell(self, *words: Word) -> None:
        """Sends a command whose reply is a list of jobs to stop; from any thread."""
        self._loop.call_soon_threadsafe(
            lambda: self._loop.create_task(self._tell(words)))

    async def _tell(self, words: Tuple[Word, ...]) -> None:
        try:
            reply = await self._answers.ask(*words)
            self._stop_jobs(reply if isinstance(reply, list) else [])
        except MillraceError as error:
            self._client.logger.info("%s: %s", words[0], error)

    async def _beat_on(self) -> None:
        beat_at, loop = 0.0, self._loop
        while True:
            self._beat.clear()
            if self._running:
                beat_at = min(beat_at or math.inf,
                              loop.time() + min(j.lease for j in self._running.values()) / 3)
            else:
                beat_at = 0.0
            left = beat_at - loop.time()
            if not self._running or left > 0:
                await asyncio.wait([loop.create_task(self._beat.wait())],
                                   timeout=left if self._running else None)
                continue
            beat_at = 0.0
            words = [w for job in self._running.values() for w in (job.id, job.token)]
            await self._tell(("BEAT", *words))

    async def _follow_level(self) -> None:
        while True:
            try:
                levels = [await self._answers.ask("LEVEL", stage) for stage in self.stages]
                self.level = min(THREADS_MOST, max(1, *levels) if levels else 1)
                self._free.set()
            except Incompatible:
                self.level = min(32, (os.cpu_count() or 1) + 4)
                return
            except MillraceError as error:
                self._client.logger.debug("LEVEL: %s", error)
            await asyncio.sleep(LEVEL_SECONDS)

    async def _drain(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._grace)
        for job in list(self._running.values()):  # what is still running goes back, uncounted
            job.stop()
            await self._tell(("RELEASE", job.id, job.token))
        if self._tasks and self.is_async:
            await asyncio.wait(self._tasks, timeout=1)
