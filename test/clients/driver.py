"""driver.py [asyncio]: the Python library in the hands of library_test.py, with handlers for threads or coroutines. Reads a request a line as JSON, runs each in a thread
of its own, and writes a line for each reply and each thing that happens; library_test.py has the requests."""
import asyncio
import json
import logging
import os
import ssl
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../clients/python"))
import millrace

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
written = threading.Lock()
context = ssl.create_default_context(cafile=os.environ["MILLRACE_CA"]) if "MILLRACE_CA" in os.environ else None
m = millrace.Millrace(context=context, name=os.environ.get("MILLRACE_NAME"))
gates, snoozed, active = {}, set(), []
ASYNC = "asyncio" in sys.argv


def say(**line):
    with written:
        print(json.dumps(line), flush=True)


async def pause(gate, seconds=0.01):
    """Waits a little: a thread for the gate, a task for its loop."""
    if not ASYNC:
        gate.wait(seconds)
    else:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            pass  # the job says so, too


async def hold(job):
    """Until the test lets it go on, or it must stop."""
    gate = gates.setdefault(job.id, threading.Event())
    while not job.cancelled and not gate.is_set():
        await pause(gate)
    if job.cancelled:
        say(event="stopped", id=job.id)


def handle_in_thread(job):
    try:
        handle(job).send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the handler has waited for a loop")


async def handle(job):
    body = job.body if isinstance(job.body, dict) else {}
    say(event="start", id=job.id, stage=job.stage, key=job.key, body=job.body, attempt=job.attempt, meta=job.meta)
    act = body.get("act")
    if act == "fail" and job.attempt <= body["times"]:
        raise RuntimeError(body["reason"])
    if act == "dead":
        raise millrace.Dead(body["reason"])
    if act == "snooze" and job.id not in snoozed:
        snoozed.add(job.id)
        raise millrace.Snooze(body["seconds"])
    if job.stage == "json":
        return job.json()
    if act == "hang":  # whatever is asked of it
        gate = gates.setdefault(job.id, threading.Event())
        while not gate.is_set():
            await pause(gate)
        say(event="hung", id=job.id)
    if act == "alone":  # no other handler runs meanwhile
        active.append(job.id)
        await pause(threading.Event(), 0)
        if active != [job.id]:
            say(event="together", ids=active)
        active.remove(job.id)
    if act == "stop":
        m.stop()
    if act == "hold":
        await hold(job)
    if act == "progress":
        job.progress(3, 10, "attachments")
        await hold(job)
    if act == "count":
        job.state = {"count": (job.state or {"count": 0})["count"] + 1}
        return job.state
    if act == "emit":
        job.emit(body["stage"], body["body"], key=job.key)
        job.state = "emitted"
        if job.attempt <= body.get("times", 0):
            raise RuntimeError("after its emit")
    if act == "push":
        m.push(body["stage"], body["body"])
    if act == "unencodable":
        return {"a": float("nan")}
    return body.get("result")


def do_work(stages, **options):
    m.worker(stages, **options)(handle if ASYNC else handle_in_thread)
    m.run(signals=False)


REQUESTS = {
    "push": m.push, "push_many": lambda stage, items, **o: m.push_many(stage, [tuple(i) for i in items], **o),
    "call": m.call, "wait": m.wait, "cancel": m.cancel, "job": m.job, "work": do_work, "stop": m.stop,
    "let": lambda job: gates.setdefault(job, threading.Event()).set(),
    "epic_push": lambda stage, name, n, body, **o: m.epic(stage, name).push(n, body, **o),
    "epic_look": lambda stage, name: m.epic(stage, name).look()["resume"],
    "epic_end": lambda stage, name, n: m.epic(stage, name).end(n),
    "epic_left": lambda stage, name, left: m.epic(stage, name).wait(left=left)["waiting"],
    "epic_then": lambda stage, name, *then, **o: m.epic(stage, name).then(*then, **o),
    "epic_cancel": lambda stage, name: m.epic(stage, name).cancel(),
    "epic_forget": lambda stage, name, seconds: m.epic(stage, name).forget(seconds),
    "epic_wait": lambda stage, name: m.epic(stage, name).wait()["done"],
    "work_again": lambda: m.run(signals=False),
    "unencodable": lambda: m.push("s", {"a": object()}),
    "level": lambda stage: m.command("LEVEL", stage),
}


def run(request):
    try:
        reply = REQUESTS[request["do"]](*request["args"], **request["options"])
        say(n=request["n"], reply=reply)
    except Exception as error:
        say(n=request["n"], error=type(error).__name__, reason=str(error))


for line in sys.stdin:
    threading.Thread(target=run, args=(json.loads(line),), daemon=True).start()
