#!/usr/bin/env python3
"""http_work_test.py BUILD ROOT: a worker that has HTTP and nothing else: the whole life of a job, leases that
are over, rights, waits and clients that leave them, binary bodies, refusals. Speaks TAP; nothing waits for
time to pass."""
import base64
import contextlib
import json
import os
import re
import socket
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, path
from tap import TIMEOUT_S, case, check, equal, main
from web import Web, token_of

ROOT = os.path.realpath(sys.argv[2] if len(sys.argv) > 2 else ".")
BINARY = bytes(range(256))
WRAPPED = {"base64": base64.b64encode(BINARY).decode()}


def take(stage="mail", **more):
    return web.post("/api/take", {"stage": stage, **more})["jobs"]


def take_one(stage="mail", **more):
    [job] = take(stage, **more)
    return job


def lease(job):
    return {"id": job["id"], "token": job["token"]}


def push(stage="mail", body="x", **more):
    return web.post("/api/jobs", {"stage": stage, "body": body, **more})["id"]


def request(target, body, **headers):
    """A request whose response is not awaited."""
    connection = web.connect()
    connection.request("POST", target, json.dumps(body),
                       {"Content-Type": "application/json", "Origin": f"http://{web.host}", **headers})
    return connection


def wait_blocked(count):
    while int(client.info()["blocked_clients"]) != count:
        pass


@case
def a_job_lives_and_ends_over_HTTP():
    job = push(key="ann", body={"to": "ann"}, meta="trace 1", deadline="1h")
    taken = take_one(lease="20s", name="curl-1")
    equal({**taken, "token": "", "deadline-ms-left": 0},
          {"id": job, "token": "", "stage": "mail", "key": "ann", "body": '{"to": "ann"}', "attempt": 1,
           "deadline-ms-left": 0, "state": None, "lease-ms": 20000, "meta": "trace 1"})
    check(0 < taken["deadline-ms-left"] <= 3600000, taken)
    equal(take(), [])
    equal(web.post("/api/beat", lease(taken)), {"stop": []})
    equal(web.post("/api/done", {**lease(taken), "result": {"ok": [1, 2.50]}, "state": "seen 1", "emits": [
        {"stage": "sent", "key": "ann", "body": "one", "meta": "m"}, {"stage": "sent", "body": {"n": 2}, "delay": "1h"}]}),
          {"ok": True})
    equal(web.get(f"/api/await/{job}"), {"result": '{"ok": [1, 2.5]}'})
    sent = take_one("sent", count=5)
    equal((sent["key"], sent["body"], sent["meta"]), ("ann", "one", "m"))
    equal([each["status"] for each in web.get("/api/jobs?stage=sent")["jobs"]], ["running", "delayed"])
    web.post("/api/done", lease(sent))
    push(key="ann")
    again = take_one()
    equal(again["state"], "seen 1")
    web.post("/api/done", {**lease(again), "state": ""})
    push(key="ann")
    last = take_one()
    equal(last["state"], None)
    web.post("/api/done", {**lease(last), "state": None, "result": None})
    equal(web.get(f"/api/await/{last['id']}"), {"result": ""})


@case
def F7_a_lease_that_is_over_changes_nothing():
    job = push("late")
    first = take_one("late")
    equal(web.post("/api/release", {**lease(first), "delay": 0}), {"ok": True})
    second = take_one("late", wait=TIMEOUT_S * 1000)
    for target, more in (("done", {"result": "first"}), ("fail", {"reason": "first"}), ("release", {})):
        web.refuses(409, "STALE", "lease", "POST", f"/api/{target}", {**lease(first), **more})
    equal(web.post("/api/beat", {"jobs": [lease(first), lease(second)]}), {"stop": [job]})
    equal(web.post("/api/beat", {"jobs": [lease(second)]}), {"stop": []})
    web.post("/api/done", {**lease(second), "result": "second"})
    web.post("/api/done", {**lease(second), "result": "again"})  # its first answer again
    equal(web.get(f"/api/await/{job}"), {"result": "second"})
    web.refuses(404, "GONE", "99999", "POST", "/api/done", {"id": "99999", "token": second["token"]})


@case
def F13_failed_attempts_are_counted_and_end():
    job = push("fails", attempts=3)
    first = take_one("fails")
    equal(web.post("/api/fail", {**lease(first), "reason": "no such host", "retry": 0, "output": "trace"}), {"ok": True})
    second = take_one("fails", wait=-1)
    equal(second["attempt"], 2)
    web.post("/api/release", lease(second))
    third = take_one("fails", wait=-1)
    equal(third["attempt"], 2)  # a release counts none
    web.post("/api/fail", {**lease(third), "reason": "bad address", "never": True})
    web.refuses(409, "DEAD", "bad address", "GET", f"/api/await/{job}")
    equal([reason["text"] for reason in web.get(f"/api/jobs/{job}")["job"]["reasons"]],
          ["no such host", "bad address"])


@case
def G9_a_release_with_a_delay_keeps_place_and_attempts():
    push("snoozed", "first", key="k")
    push("snoozed", "second", key="k")
    web.post("/api/release", {**lease(take_one("snoozed")), "delay": "1h"})
    equal(take("snoozed", count=10), [])
    equal([job["attempt"] for job in web.get("/api/jobs?stage=snoozed")["jobs"]], [0, 0])


@case
def F47_bodies_keys_and_states_may_be_any_bytes():
    for given in {"body": WRAPPED}, {"body-base64": WRAPPED["base64"]}:
        web.post("/api/jobs", {"stage": "binary", "key": WRAPPED, **given})
    jobs = take("binary", count=10, batch=2)
    equal([(job["key"], job["body"]) for job in jobs], [(WRAPPED, WRAPPED)] * 2)
    for job in jobs:
        web.post("/api/done", {**lease(job), "result": WRAPPED, "state-base64": WRAPPED["base64"],
                               "emits": [{"stage": "copies", "key": WRAPPED, "body": WRAPPED}]})
        equal(web.get(f"/api/await/{job['id']}"), {"result": WRAPPED})
    [copy] = take("copies")
    equal((copy["key"], copy["body"]), (WRAPPED, WRAPPED))
    web.post("/api/jobs", {"stage": "binary", "key": WRAPPED, "body": ""})
    [empty] = take("binary")
    equal((empty["body"], empty["state"]), ("", WRAPPED))


@case
def several_stages_are_served_in_order_and_counts_hold():
    for stage in "low", "high":
        for number in range(3):
            push(stage, f"{stage} {number}")
    jobs = web.post("/api/take", {"stages": ["high", "low"], "count": 4})["jobs"]
    equal([job["stage"] for job in jobs], ["high"] * 3 + ["low"])
    equal(web.post("/api/beat", {"jobs": [lease(job) for job in jobs]}), {"stop": []})
    client.ask("CANCEL", jobs[1]["id"])
    equal(web.post("/api/beat", {"jobs": [lease(job) for job in jobs]}), {"stop": [jobs[1]["id"]]})
    web.refuses(409, "CANCELLED", "cancelled", "POST", "/api/done", lease(jobs[1]))


@case
def a_commit_has_as_many_emits_as_on_the_wire():
    push("wide")
    job = take_one("wide")
    emits = [{"stage": "narrow", "key": "k", "body": str(i), "attempts": 3, "delay": 0, "deadline": "1h", "meta": "m",
              "once": str(i)} for i in range(1000)]
    web.refuses(413, "TOOBIG", "1000", "POST", "/api/done", {**lease(job), "emits": [*emits, {**emits[0], "once": "more"}]})
    web.post("/api/done", {**lease(job), "emits": emits})
    equal(web.get("/api/stage?stage=narrow")["stage"]["waiting"], 1000)


# F50: also where the client has HTTP.
@case
def F50_a_take_waits_and_ends_when_its_client_leaves():
    waiting = request("/api/take", {"stage": "waits", "wait": -1, "name": "curl-2"})
    wait_blocked(1)
    equal([(worker["name"], worker["stages"]) for worker in web.get("/api/workers")["workers"] if worker["waits"]],
          [("curl-2", "waits")])
    push("waits", "now")
    equal([job["body"] for job in json.loads(waiting.getresponse().read())["jobs"]], ["now"])
    waiting.close()
    for leave in (lambda c: c.close(), lambda c: c.sock.shutdown(socket.SHUT_WR)):
        gone = request("/api/take", {"stage": "waits", "wait": -1})
        wait_blocked(1)
        leave(gone)
        wait_blocked(0)
    job = push("waits", "later")
    equal(take_one("waits")["id"], job)
    equal(take("waits", wait=1), [])


@case
def await_waits_for_the_end_of_a_job():
    job = push("answers")
    equal(web.get(f"/api/await/{job}"), {"result": None})
    equal(web.get(f"/api/await/{job}?wait=1"), {"result": None})
    with contextlib.closing(web.connect()) as waiting:
        waiting.request("GET", f"/api/await/{job}?wait=10m")
        wait_blocked(1)
        web.post("/api/done", {**lease(take_one("answers")), "result": "42"})
        equal(json.loads(waiting.getresponse().read()), {"result": "42"})
    job = push("answers")
    with contextlib.closing(web.connect()) as waiting:
        waiting.request("GET", f"/api/await/{job}?wait=10m")
        wait_blocked(1)
        client.ask("CANCEL", job)
        answer = waiting.getresponse()
        equal((answer.status, json.loads(answer.read())["error"]), (409, "CANCELLED"))
    web.refuses(404, "GONE", "99999", "GET", "/api/await/99999")
    web.refuses(400, "ERR", "WAIT", "GET", f"/api/await/{job}?wait=soon")
    web.refuses(400, "ERR", "wait", "GET", f"/api/await/{job}?weight=1")


@case
def wrong_requests_name_the_field_and_what_is_allowed():
    push("wrong")
    job = lease(take_one("wrong"))
    for status, text, target, body in (
            (400, "'stage' is missing", "take", {}),
            (400, "not both", "take", {"stage": "a", "stages": ["b"]}),
            (400, "must be a list", "take", {"stages": "a"}),
            (400, "empty list", "take", {"stages": []}),
            (400, "single value", "take", {"stage": ["a"]}),
            (400, "'x' is not a value of COUNT", "take", {"stage": "a", "count": "x"}),
            (400, "WAIT", "take", {"stage": "a", "wait": "soon"}),
            (400, "'who' is not a parameter of this path, which has stage stages count batch wait lease name",
             "take", {"stage": "a", "who": "me"}),
            (400, "name", "take", {"stage": "a", "name": "a b"}),
            (400, "'name' must be text", "take", {"stage": "a", "name": ["n"]}),
            (400, "stage", "take", {"stage": "no blanks"}),
            (400, "'token' is missing", "done", {"id": job["id"]}),
            (400, "'reason' is missing", "fail", job),
            (400, "not both", "fail", {**job, "reason": "x", "never": True, "retry": 1}),
            (400, "DELAY", "release", {**job, "delay": "soon"}),
            (400, "list of objects", "done", {**job, "emits": [1]}),
            (400, "list of objects", "done", {**job, "emits": ["x"]}),
            (400, "empty list", "done", {**job, "emits": []}),
            (400, "'body' is missing in an object of 'emits'", "done", {**job, "emits": [{"stage": "a"}]}),
            (400, "'keys' is not a parameter of an object in this list, which has stage key body", "done",
             {**job, "emits": [{"stage": "a", "body": "", "keys": 1}]}),
            (400, "'key' in 'emits' must be text", "done", {**job, "emits": [{"stage": "a", "body": "", "key": {}}]}),
            (400, "base64", "done", {**job, "result": {"base64": "*"}}),
            (400, "'token' is missing in an object of 'jobs'", "beat", {"jobs": [{"id": "1"}]}),
            (400, "'id' is missing", "beat", {}),
            (413, "at most", "beat", {"jobs": [{"id": "1", "token": "t" * 200}] * 2000})):
        web.refuses(status, "TOOBIG" if status == 413 else "ERR", text, "POST", f"/api/{target}", body)
    for method, target, allow in ("GET", "/api/take", "POST"), ("PUT", "/api/done", "POST"), ("POST", "/api/await/1", "GET, HEAD"):
        equal(web.refuses(405, "ERR", allow, method, target).getheader("Allow"), allow)
    web.refuses(403, "NOPERM", "Origin", "POST", "/api/take", {"stage": "a"}, headers={"Origin": None})
    web.refuses(415, "ERR", "application/json", "POST", "/api/take", {"stage": "a"}, headers={"Content-Type": "text/plain"})
    equal(web.post("/api/done", job), {"ok": True})  # nothing of that has ended it


@case
def F45_rights_hold_as_on_the_wire():
    worker, pusher = token_of("tokens", "worker", "work", "mail"), token_of("tokens", "pusher", "push", "mail")
    other = token_of("tokens", "other", "work,push", "other")
    with Web("--auth", path("tokens")) as locked:
        def refuses(status, code, target, body, token, method="POST"):
            locked.refuses(status, code, "", method, target, body, token=token, headers={"Origin": None})
        job = locked.post("/api/jobs", {"stage": "mail", "body": "x"}, token=pusher, headers={"Origin": None})["id"]
        refuses(403, "NOPERM", "/api/take", {"stage": "mail"}, pusher)
        refuses(403, "NOPERM", "/api/take", {"stages": ["other", "mail"]}, other)
        [taken] = locked.post("/api/take", {"stage": "mail"}, token=worker, headers={"Origin": None})["jobs"]
        for target, more in (("done", {}), ("fail", {"reason": "x"}), ("release", {})):
            refuses(404, "GONE", f"/api/{target}", {**lease(taken), **more}, other)
            refuses(403, "NOPERM", f"/api/{target}", {**lease(taken), **more}, pusher)
        refuses(404, "GONE", f"/api/await/{job}", None, other, "GET")
        refuses(403, "NOPERM", f"/api/await/{job}", None, worker, "GET")
        equal(locked.post("/api/beat", lease(taken), token=other), {"stop": [job]})
        refuses(403, "NOPERM", "/api/done", {**lease(taken), "emits": [{"stage": "other", "body": ""}]}, worker)
        equal(locked.post("/api/done", {**lease(taken), "result": "r"}, token=worker, headers={"Origin": None}), {"ok": True})
        equal(locked.get(f"/api/await/{job}", token=pusher), {"result": "r"})


@case
def leases_taken_over_HTTP_outlive_connection_and_server():
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Web(store=f"file:{path('outlives')}"))
        first.post("/api/jobs", {"stage": "mail", "body": "x"})
        [job] = first.post("/api/take", {"stage": "mail", "lease": "1h"})["jobs"]
        first.stop()
        second = stack.enter_context(Web(store=f"file:{path('outlives')}"))
        equal(second.post("/api/take", {"stage": "mail"}), {"jobs": []})
        equal(second.post("/api/done", {**lease(job), "result": "r"}), {"ok": True})
        equal(second.get(f"/api/await/{job['id']}"), {"result": "r"})


@case
def a_shell_with_curl_works_as_the_page_shows():
    with open(os.path.join(ROOT, "docs/http.md"), encoding="utf-8") as file:
        shown = re.search(r"^    at=.*\n(?:(?:    .*)?\n)*", file.read(), re.M)[0]
    script = re.sub("^    ", "", shown, flags=re.M)
    check("localhost:7412" in script, script)
    script = script.replace("http://localhost:7412", f"http://{web.host}")
    good, bad = push("resize", "big.jpg"), push("resize", "bad.jpg")
    for working in script, script.replace("resized $body", "$body").replace("echo", "false", 1):
        ended = subprocess.run(["sh", "-euc", working], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        equal(ended.returncode, 0, working, ended)
    equal(web.get(f"/api/await/{good}"), {"result": "resized big.jpg"})
    equal([reason["text"] for reason in web.get(f"/api/jobs/{bad}")["job"]["reasons"]], ["exit code 1"])


web = Web()
client = Client(web)
main()
