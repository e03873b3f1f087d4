"""client.py PEER ROLE URL JOBS AT_ONCE: pushes, or works off, so many jobs with 64-byte bodies and an empty handler.
PEER is millrace, millrace-async, rq or celery, ROLE push or work; AT_ONCE is 1 (each push is awaited, one job runs at a
time) or more (pushes travel together, so many jobs run at once, as far as the peer can do that). Prints "ready", begins
with a line from stdin, and prints "done", the seconds it took by the clock, and of CPU time with its children.

client.py io URL SECONDS AT_ONCE: works for so many seconds with a handler that waits for a service, 20 ms a request and
at most 16 of them at once, and prints the jobs a second of the second half; AT_ONCE 0: tuned by LEVEL; -1 if the server
does not know that."""
import asyncio
import os
import resource
import sys
import time

BODY = {"text": "x" * 53}  # 64 bytes of JSON
if sys.argv[1] == "io":
    peer, role, url = "io", "work", sys.argv[2]
else:
    peer, role, url = sys.argv[1:4]
jobs, at_once = map(int, sys.argv[-2:])
if peer in ("io", "millrace", "millrace-async"):
    sys.path.insert(0, os.path.join(os.environ["MILLRACE_ROOT"], "clients/python"))


OUT = os.dup(1)  # Celery writes a banner
os.dup2(2, 1)


def say(*words):
    os.write(OUT, (" ".join(map(str, words)) + "\n").encode())


def cpu_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def begin():
    global began
    say("ready")
    sys.stdin.readline()
    began = time.monotonic(), cpu_seconds()


def end():
    say("done", time.monotonic() - began[0], cpu_seconds() - began[1])
    os._exit(0)


class Count:
    """A handler that does nothing but count, and notice the last job."""

    def __init__(self, last):
        self.left, self.last = jobs, last

    def __call__(self, *_):
        self.left -= 1
        if not self.left:
            self.last()


def portions():
    return [min(at_once, jobs - first) for first in range(0, jobs, at_once)]


def millrace():
    from millrace import Millrace
    m = Millrace(url)
    m.command("PING")
    if role == "push":
        begin()
        for size in portions():
            if size == 1:
                m.push("bench", BODY)
            else:
                m.push_many("bench", [BODY] * size)
        return
    m.worker("bench", concurrency=at_once)(Count(m.stop))
    begin()
    m.run()


async def millrace_async():
    from millrace import AsyncMillrace
    async with AsyncMillrace(url) as m:
        await m.command("PING")
        if role == "push":
            begin()
            for size in portions():
                if size == 1:
                    await m.push("bench", BODY)
                else:
                    await m.push_many("bench", [BODY] * size)
            return
        left, over = jobs, asyncio.Event()

        async def handler(job):
            nonlocal left
            left -= 1
            if not left:
                over.set()
        begin()
        worker = m.work("bench", handler, concurrency=at_once)
        await over.wait()
        await worker.close()


def io():
    import threading
    from millrace import Incompatible, Millrace
    m, service, ended = Millrace(url), threading.Semaphore(16), []
    try:
        m.command("LEVEL", "bench")
    except Incompatible:
        say(-1)
        os._exit(0)

    @m.worker("bench", concurrency=at_once or "auto")
    def handler(job):
        with service:
            time.sleep(0.02)
        ended.append(time.monotonic())
    half = time.monotonic() + jobs / 2
    threading.Timer(jobs, m.stop).start()
    m.run()
    say(sum(t > half for t in ended) / (ended[-1] - half))
    os._exit(0)


def nothing(body):
    """The task of RQ, which finds it by its name."""


def rq():
    from redis import Redis
    from rq import Queue, SimpleWorker
    sys.modules["client"] = sys.modules["__main__"]
    nothing.__module__ = "client"
    redis = Redis.from_url(url)
    queue = Queue("bench", connection=redis)
    if role == "work":
        worker = SimpleWorker([queue], connection=redis)
        begin()
        worker.work(burst=True, max_jobs=jobs, logging_level="ERROR")
        return
    begin()
    for size in portions():
        if size == 1:
            queue.enqueue(nothing, BODY, result_ttl=0)
        else:
            queue.enqueue_many([Queue.prepare_data(nothing, (BODY,), result_ttl=0) for _ in range(size)])


def celery():
    from celery import Celery
    app = Celery("bench", broker=url)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=max(4, at_once), worker_send_task_events=False)
    task = app.task(name="bench")(Count(end).__call__)
    if role == "push":
        with app.connection_for_write() as connection:
            producer = app.amqp.Producer(connection)
            begin()
            for _ in range(jobs):
                task.apply_async((BODY,), producer=producer)
        return
    pool = ["-P", "solo"] if at_once == 1 else ["-P", "threads", "-c", str(at_once)]
    begin()
    app.worker_main(["worker", "-l", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat", *pool])


if peer == "millrace-async":
    asyncio.run(millrace_async())
else:
    {"io": io, "millrace": millrace, "rq": rq, "celery": celery}[peer]()
end()
