#!/usr/bin/env python3
"""http_test.py BUILD: the server over HTTP: every path and every refusal, who may do what, browsers that
were sent by somebody else, clients that mean no good, and what it costs. Speaks TAP; nothing waits for
time to pass, but deadlines that are tested do take theirs."""
import base64
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from served import Client, Server, path, too_few_descriptors, write
from tap import BUILD, MILLRACE, TIMEOUT_S, case, check, equal, main
from web import Web, token_of

FAULTY = os.path.join(BUILD, "test/libfaulty.so")


class Stream:
    """Listens to events."""

    def __init__(self, web, token=None):
        self.connection = web.connect()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.connection.request("GET", "/api/events", headers=headers)
        self.answer = self.connection.getresponse()
        equal(self.answer.status, 200)

    def event(self):
        lines = []
        while (line := self.answer.readline()) not in (b"\n", b""):
            lines.append(line.decode().rstrip("\n"))
        check(lines, "the stream has ended")
        equal(lines[0], "event: stages")
        return json.loads(lines[1].removeprefix("data: "))

    def until(self, holds):
        while not holds(event := self.event()):
            pass
        return event

    def close(self):
        self.answer.close()
        self.connection.close()


def fail(client, job, reason="it broke"):
    equal(client.ask("FAIL", job[0], job[1], reason, "NEVER"), "OK")


def status_of(received):
    return int(received.split(b" ", 2)[1]) if received else 0


# ---- Looks -------------------------------------------------------------------------------------

# A3: the queue can be inspected: depth, age, order, each job.
@case
def every_look_answers():
    web = Web()
    client = Client(web)
    client.ask("PUSH", "mail", "hello", "KEY", "ann")
    client.ask("PUSH", "mail", "again", "KEY", "ann")
    client.ask("PUSH", "raw", b"\xff\x00", "KEY", b"\xfe", "DEADLINE", 3600000)
    client.ask("PUSH", "late", "x", "DELAY", 3600000)
    client.ask("PUSH", "mail", "one", "EPIC", "import", 1)
    fail(client, client.ask("TAKE", "mail")[0])
    worker = client.ask("TAKE", "mail", "SLOTS", 7)[0]
    equal(client.ask("DONE", worker[0], worker[1], "RESULT", "fine"), "OK")

    stages = web.get("/api/stages")["stages"]
    equal([s["name"] for s in stages], ["mail", "raw", "late"])
    equal((stages[0]["waiting"], stages[0]["dead"], stages[0]["done"], stages[0]["level"]), (1, 1, 1, 7))
    equal((stages[2]["delayed"], stages[2]["held-by"]), (1, "delay"))
    equal([s["name"] for s in web.get("/api/stages?count=1")["stages"]], ["mail"])
    equal([s["name"] for s in web.get("/api/stages?from=raw")["stages"]], ["late"])

    detail = web.get("/api/stage?stage=mail")
    equal((detail["stage"]["name"], detail["policy"]["attempts"]), ("mail", "10"))
    columns = detail["series"]
    equal(set(columns), {"time-ms", "waiting", "running", "delayed", "dead", "pushed", "done", "failed",
                         "wait-p50-ms", "wait-p99-ms", "run-p50-ms", "run-p99-ms", "level"})
    equal({len(column) for column in columns.values()}, {len(columns["time-ms"])})
    equal(web.get("/api/stages/mail/policy")["policy"], detail["policy"])
    rows = {row["name"]: row for row in web.get("/api/policies")["policies"]}
    equal(list(rows), list(detail["policy"]))
    equal((rows["lease"]["form"], rows["attempts"]["form"], rows["overlap"]["choices"]),
          ("duration", "count", ["brief", "never"]))
    check(all(row["takes"] and row["about"] for row in rows.values()), rows)

    channels = web.get("/api/channels?stage=mail&top=5")["channels"]
    check(all(set(c) >= {"state", "depth", "oldest-ms"} for c in channels), channels)
    equal([j["id"] for j in web.get("/api/jobs?stage=mail")["jobs"]], ["2", "1", "5"])
    equal([j["id"] for j in web.get("/api/jobs?stage=mail&from=2&count=1")["jobs"]], ["1"])
    equal([j["id"] for j in web.get("/api/jobs?stage=mail&status=waiting&count=10")["jobs"]], ["2"])
    equal([j["status"] for j in web.get("/api/jobs?stage=mail&key=ann")["jobs"]], ["waiting", "dead"])
    raw = web.get("/api/jobs?stage=raw&key=%fe")["jobs"]
    equal([j["key-base64"] for j in raw], [base64.b64encode(b"\xfe").decode()])

    job = web.get("/api/jobs/3?body=1")["job"]
    equal((job["body-base64"], job["status"]), ("/wA=", "waiting"))
    check(0 < job["left-ms"] <= 3600000, job)
    equal(web.get("/api/jobs/5?body=true")["job"]["result"], "fine")
    check("body" not in web.get("/api/jobs/1")["job"])
    equal(web.get("/api/dead")["dead"][0]["reasons"][0]["text"], "it broke")
    equal([j["id"] for j in web.get("/api/dead?stage=mail")["dead"]], ["1"])
    equal(web.get("/api/workers")["workers"][0]["level"], 7)
    equal((web.get("/api/epics")["epics"][0]["name"], web.get("/api/epics")["epics"][0]["resume"]), ("import", 2))
    which = {"stage": "mail", "name": "import"}
    epic = web.post("/api/epics/then", {**which, "then": "report", "key": "", "body": "done"})["epic"]
    equal((epic["then"], epic["then-pushed"]), ("report", 0))
    equal(web.post("/api/epics/forget", {**which, "after": "7d"})["epic"]["forget-ms"], 7 * 86400000)
    web.refuses(400, "ERR", "1000 ms to 100 years", "POST", "/api/epics/forget", {**which, "after": 5})
    web.refuses(400, "ERR", "stage's name", "POST", "/api/epics/then", {**which, "then": "no stage", "key": "", "body": ""})
    equal(web.post("/api/epics/forget", {**which, "after": 0})["epic"]["forget-ms"], 0)
    check("mail" in web.get("/api/why?of=mail")["why"])
    equal(web.post("/api/schedules", {"stage": "mail", "name": "nightly", "body": "b", "cron": "30 2 * * *",
                                      "tz": "Europe/Berlin", "missed": "one", "key": "k"}), {"ok": True})
    nightly = web.get("/api/schedules?stage=mail")["schedules"][0]
    equal((nightly["name"], nightly["tz"], nightly["missed"], nightly["pushed"]), ("nightly", "Europe/Berlin", "one", 0))
    for verb in ("pause", "now", "resume"):
        equal(web.post(f"/api/schedules/{verb}", {"stage": "mail", "name": "nightly"}), {"ok": True})
    shown = web.get("/api/schedule?stage=mail&name=nightly&body=1")["schedule"]
    equal((shown["pushed"], shown["body"], len(shown["upcoming"])), (1, "b", 5))
    web.refuses(400, "ERR", "0 to 23", "POST", "/api/schedules",
                {"stage": "mail", "name": "x", "body": "b", "cron": "0 24 * * *"})
    equal(web.post("/api/schedules/drop", {"stage": "mail", "name": "nightly"}), {"ok": True})
    equal(web.get("/api/schedules")["schedules"], [])

    info = web.get("/api/info")
    equal(info["info"]["tcp_port"], web.port)
    equal((info["health"], info["who"]["name"], info["who"]["stages"]), ("ok", None, "*"))
    equal(info["who"]["roles"], ["push", "work", "read", "admin"])
    equal((info["info"]["store"], info["info"]["dead"]), ("mem:", 1))
    equal(web.get("/healthz"), {"health": "ok"})
    web.stop()


@case
def heads_are_as_browsers_need_them():
    web = Web()
    status, answer, page = web.ask("GET", "/", headers={"Accept-Encoding": "gzip"})
    equal(status, 200)
    check(answer.getheader("Content-Type").startswith("text/html"), page)
    status, _, page = web.ask("GET", "/", headers={"Accept-Encoding": "gzip",
                                                   "If-None-Match": answer.getheader("ETag")})
    equal((status, page), (304, b""))
    for target in "/", "/api/stages", "/nowhere", "/metrics":
        status, answer, _ = web.ask("GET", target, headers={"Accept-Encoding": "gzip"})
        policy = answer.getheader("Content-Security-Policy")
        check("default-src 'none'" in policy and "frame-ancestors 'none'" in policy, policy)
        check("unsafe" not in policy, policy)
        equal(answer.getheader("X-Content-Type-Options"), "nosniff")
        equal(answer.getheader("Access-Control-Allow-Origin"), None)
        check(answer.getheader("Cache-Control") in ("no-store", "no-cache"), target)
        status_of_head, head, nothing = web.ask("HEAD", target, headers={"Accept-Encoding": "gzip"})
        equal((status_of_head, nothing), (status, b""))
        equal(int(head.getheader("Content-Length")) > 0, True)
    web.stop()


@case
def a_connection_serves_one_request_after_another():
    web = Web()
    with contextlib.closing(web.connect()) as one:
        for _ in range(3):
            equal(web.get("/healthz", connection=one), {"health": "ok"})
            web.refuses(404, "GONE", "nope", "GET", "/api/stage?stage=nope", connection=one)
    ask = f"GET /healthz HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode()
    last = ask.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    received = web.raw(ask * 50 + last, whole=False)
    equal(received.count(b"HTTP/1.1 200 OK"), 51)
    old = web.raw(f"GET /healthz HTTP/1.0\r\nHost: {web.host}\r\n\r\n".encode(), whole=False)
    check(b"Connection: close" in old, old)
    web.stop()


# ---- Acts --------------------------------------------------------------------------------------

@case
def every_act_acts():
    web = Web()
    client = Client(web)
    equal(web.post("/api/jobs", {"stage": "mail", "body": "hello", "key": "ann", "once": "o"}), {"id": "1"})
    equal(web.post("/api/jobs", {"stage": "mail", "body": "hello", "key": "ann", "once": "o"}), {"id": "1"})
    equal(web.post("/api/jobs", {"stage": "mail", "body-base64": "AAE=", "delay": None}), {"id": "2"})
    equal(web.post("/api/jobs", {"stage": "mail", "body": {"to": ["ann", 7]}, "attempts": 3}), {"id": "3"})
    equal(web.post("/api/jobs", {"stage": "late", "body": "", "delay": 3600000, "deadline": 7200000}), {"id": "4"})
    equal(web.post("/api/jobs", {"stage": "mail", "body": "nul \0 byte \u00e9"}), {"id": "5"})
    equal(web.get("/api/jobs/3?body=1")["job"]["body"], '{"to": ["ann", 7]}')
    debounced = {"stage": "debounced", "body": "a", "once": "o", "last": True}  # G10
    first = web.post("/api/jobs", debounced)["id"]
    equal(web.post("/api/jobs", {**debounced, "body": "b"})["id"], first)
    equal(web.get(f"/api/jobs/{first}?body=1")["job"]["body"], "b")
    traced = web.post("/api/jobs", {"stage": "traced", "body": "hello", "meta": "trace 7"})["id"]  # G12
    equal(web.get(f"/api/jobs/{traced}?body=1")["job"]["meta"], "trace 7")
    equal(client.ask("TAKE", "traced")[0][9], "trace 7")
    equal(web.get("/api/jobs/5?body=1")["job"]["body"], "nul \0 byte \u00e9")
    for body in None, False, True, [], 7:
        job = web.post("/api/jobs", {"stage": "json", "body": body})["id"]
        equal(web.get(f"/api/jobs/{job}?body=1")["job"]["body"], json.dumps(body))
    equal(web.get("/api/jobs/3")["job"]["attempts"], 3)
    equal(web.post("/api/jobs/5/cancel"), {"changed": 1})
    equal(web.post("/api/jobs/5/cancel"), {"changed": 0})

    equal(web.post("/api/stages/mail/pause"), {"ok": True})
    equal(web.get("/api/stages")["stages"][0]["held-by"], "paused")
    equal(web.post("/api/stages/mail/drain"), {"ok": True})
    web.refuses(409, "DRAINING", "mail", "POST", "/api/jobs", {"stage": "mail", "body": "x"})
    equal(web.post("/api/stages/mail/resume"), {"ok": True})
    equal(web.post("/api/stages/mail/policy", {"max-jobs": 100, "lease": "45s"}), {"ok": True})
    equal(web.get("/api/stages/mail/policy")["policy"]["lease"], "45000")
    web.refuses(400, "ERR", "nonsense", "POST", "/api/stages/mail/policy", {"lease": "1s", "nonsense": 1})
    equal(web.get("/api/stages/mail/policy")["policy"]["lease"], "45000")
    equal(web.post("/api/stages/a%2Fb/pause"), {"ok": True})
    equal(web.post("/api/stages/a/b/resume"), {"ok": True})

    while jobs := client.ask("TAKE", "mail"):
        fail(client, jobs[0], "it broke here")
    equal(web.post("/api/dead/retry", {"stage": "mail", "dry": True}), {"count": 3})
    equal(web.post("/api/dead/retry", {"stage": "mail", "reason": "nothing"}), {"count": 0})
    equal(web.post("/api/dead/retry", {"stage": "mail", "reason": "broke", "max": 1}), {"count": 1})
    equal(web.post("/api/jobs/2/retry"), {"count": 1})
    equal(web.post("/api/jobs/drop", {"ids": ["3", 1000000]}), {"count": 1})
    web.refuses(404, "GONE", "3", "POST", "/api/jobs/3/drop")
    equal(web.post("/api/dead/drop", {"stage": "mail"}), {"count": 0})
    equal(web.post("/api/waiting/drop", {"stage": "mail", "key": "ann", "dry": True}), {"count": 1})
    equal(web.post("/api/waiting/drop", {"stage": "mail"}), {"count": 2})
    equal(web.post("/api/jobs/4/drop"), {"count": 1})
    job = web.post("/api/jobs", {"stage": "mail", "body": "later", "delay": 60000})["id"]
    equal(web.post("/api/stages/mail/cancel", {"status": "delayed", "dry": True}), {"count": 1})
    equal([web.post(f"/api/jobs/{job}/due") for _ in range(2)], [{"changed": 1}, {"changed": 0}])
    web.stop()


# G11: what a worker says of a job is part of the job while it runs.
@case
def progress_is_shown_and_said():
    web = Web()
    client = Client(web)
    client.ask("PUSH", "mail", "x")
    [job, token, *_], = client.ask("TAKE", "mail")
    check("progress" not in web.get(f"/api/jobs/{job}")["job"])
    said = {"id": job, "token": token, "done": 3, "total": 10}
    equal(web.post("/api/progress", {**said, "say": "attachments"}), {"stop": []})
    equal(web.get(f"/api/jobs/{job}")["job"]["progress"], {"done": 3, "total": 10, "text": "attachments"})
    equal(web.get("/api/jobs?stage=mail&status=running")["jobs"][0]["progress"]["done"], 3)
    web.refuses(400, "ERR", "not a value of total, which needs a number", "POST", "/api/progress", {**said, "total": "ten"})
    web.refuses(400, "ERR", "'total' is missing", "POST", "/api/progress", {k: said[k] for k in ("id", "token", "done")})
    equal(web.post(f"/api/jobs/{job}/cancel"), {"changed": 1})
    equal(web.post("/api/progress", said), {"stop": [job]})
    web.stop()


# G7, G8: groups are listed, the deepest first; metrics have so many of them at most.
@case
def groups_are_listed_and_counted():
    web = Web()
    client = Client(web)
    client.ask("PUSH", "plain", "x", "KEY", "a/1")
    web.refuses(400, "ERR", "stage plain has no groups", "GET", "/api/groups?stage=plain")
    client.ask("STAGE", "mail", "group", "on", "group-concurrency", "1")
    equal(web.get("/api/groups?stage=mail"), {"groups": []})
    for number in range(30):
        for key in range(2 + (number == 7) * 3):
            client.ask("PUSH", "mail", "x", "KEY", f'g"{number}/{key}')
    [job, token, _, key, *_], = client.ask("TAKE", "mail")
    equal(key, 'g"0/0')
    groups = web.get("/api/groups?stage=mail&top=1000")["groups"]
    equal(groups[0], {"group": 'g"7', "depth": 5, "running": 0, "ready": 5, "held-by": ""})
    equal(len(groups), 30)
    held, = (g for g in groups if g["held-by"])
    equal(held, {"group": 'g"0', "depth": 2, "running": 1, "ready": 1, "held-by": "group-limit"})
    equal(len(web.get("/api/groups?stage=mail")["groups"]), 10)
    web.refuses(400, "ERR", "stage", "GET", "/api/groups")
    shown = web.ask("GET", "/metrics")[2].decode()
    check('millrace_groups{stage="mail"} 30\n' in shown, shown)
    samples = [line for line in shown.splitlines() if line.startswith("millrace_group_jobs{")]
    equal(samples[0], 'millrace_group_jobs{stage="mail",group="g\\"7"} 5')
    equal(len(samples), 5, *samples)
    web.stop()


@case
def bodies_that_are_no_strings_stay_as_they_were_sent():
    web = Web()
    for body in ("0.1", "-0.0", "1e2", "123456789012345678901234567890", "9007199254740993", "1.10", "true", "null",
                 '{"b" : [1.50,{ }], "a":"\\u00e9 \\"}],:{", "a ":12345678901234567890}', '[ ]', '[[],[{"":[]}]]',
                 '{"a":\t[1 ,\r\n2]}'):
        for around in ('{"stage":"s","body":%s}', ' { "key" : "k" , "body" :\n %s , "stage": "s" } '):
            job = web.post("/api/jobs", around % body)["id"]
            equal(web.get(f"/api/jobs/{job}?body=1")["job"]["body"], body)
    equal(web.post("/api/jobs", '{"b\\u006fdy":0.10,"stage":"s","attempts":3}'), {"id": str(int(job) + 1)})
    equal(web.get(f"/api/jobs/{int(job) + 1}?body=1")["job"]["body"], "0.10")
    equal(web.post("/api/jobs/drop", '{"ids":[ 1 ,"2",3 ]}'), {"count": 3})
    web.refuses(400, "ERR", "JSON", "POST", "/api/jobs", '{"stage":"s","body":01}')
    web.refuses(400, "ERR", "ATTEMPTS", "POST", "/api/jobs", '{"stage":"s","body":"","attempts":3.5}')
    web.stop()


@case
def stages_may_be_called_like_parameters():
    web = Web()
    client = Client(web)
    for stage in "count", "from":
        client.ask("PUSH", stage, "x")
        fail(client, client.ask("TAKE", stage)[0])
        equal([j["stage"] for j in web.get(f"/api/dead?stage={stage}")["dead"]], [stage])
        equal([j["stage"] for j in web.get(f"/api/dead?stage={stage}&count=1")["dead"]], [stage])
        equal(web.get(f"/api/jobs?stage={stage}")["jobs"][0]["status"], "dead")
    web.stop()


@case
def a_push_waits_for_room():
    web = Web()
    client = Client(web)
    client.ask("STAGE", "s", "max-jobs", 1)
    web.post("/api/jobs", {"stage": "s", "body": "first"})
    web.refuses(503, "FULL", "", "POST", "/api/jobs", {"stage": "s", "body": "x"})
    with contextlib.closing(web.connect()) as waiting:
        waiting.request("POST", "/api/jobs", '{"stage":"s","body":"second","room":-1}',
                        {"Content-Type": "application/json", "Origin": f"http://{web.host}"})
        while int(client.info()["blocked_clients"]) != 1:
            pass
        equal(client.work_off("s"), ["first", "second"])
        equal(json.loads(waiting.getresponse().read()), {"id": "2"})
    web.stop()


def push_and_go(web, client, stage):
    client.ask("STAGE", stage, "max-jobs", 1)
    web.post("/api/jobs", {"stage": stage, "body": "first"})
    with contextlib.closing(web.connect()) as waiting:
        waiting.request("POST", "/api/jobs", json.dumps({"stage": stage, "body": "second", "room": -1}),
                        {"Content-Type": "application/json", "Origin": f"http://{web.host}"})
        while int(client.info()["blocked_clients"]) != 1:
            pass
        waiting.sock.shutdown(socket.SHUT_WR)
        equal(waiting.sock.recv(1), b"")
    equal(client.work_off(stage), ["first"])


@case
def F50_a_waiting_push_of_a_disconnected_client_makes_no_job():
    for options in (), ("--loops", "3", "--shards", "3"):
        with Web(*options) as web:
            client = Client(web)
            for stage in "s0", "s2", "s3":  # of each loop one
                push_and_go(web, client, stage)


@case
def bodies_may_be_large():
    web = Web()
    body = os.urandom(9 << 20)
    equal(web.post("/api/jobs", {"stage": "s", "body-base64": base64.b64encode(body).decode()}), {"id": "1"})
    equal(base64.b64decode(web.get("/api/jobs/1?body=1")["job"]["body-base64"]), body)
    expects = {"Expect": "100-continue"}
    equal(web.post("/api/jobs", {"stage": "s", "body": "x" * 100000}, headers=expects), {"id": "2"})
    web.refuses(413, "TOOBIG", "16777216", "POST", "/api/jobs", {"stage": "s", "body": "x" * ((16 << 20) + 1)})
    web.stop()


# ---- Refusals ----------------------------------------------------------------------------------

@case
def invalid_requests_are_refused_with_a_reason():
    web = Web()
    web.refuses(404, "ERR", "/nowhere", "GET", "/nowhere")
    web.refuses(404, "ERR", "/api/", "GET", "/api/")
    web.refuses(404, "GONE", "nope", "GET", "/api/stage?stage=nope")
    web.refuses(404, "GONE", "17", "GET", "/api/jobs/17")
    web.refuses(400, "ERR", "'stage' is missing", "GET", "/api/channels")
    web.refuses(400, "ERR", "'colour' is not a parameter", "GET", "/api/stages?colour=red")
    web.refuses(400, "ERR", "'stage' is given twice", "GET", "/api/channels?stage=a&stage=b")
    web.refuses(400, "ERR", "hexadecimal", "GET", "/api/channels?stage=%zz")
    web.refuses(400, "ERR", "hexadecimal", "GET", "/api/channels?stage=%4")
    web.refuses(400, "ERR", "COUNT", "GET", "/api/jobs?stage=a&count=many")
    web.refuses(400, "ERR", "", "GET", "/api/jobs/seventeen")
    for body, text in (("", "object"), ("{", "JSON"), ("[]", "object"), ("7", "JSON"), ("nul\0", "JSON"),
                       ('{"stage":"s","stage":"t"}', "twice"), ("[" * 100000, "JSON"),
                       ('{"stage":"s"}', "'body' is missing"), ('{"body":"x"}', "'stage' is missing"),
                       ('{"stage":"s","body":"x","what":1}', "'what'"), ('{"stage":["s"],"body":"x"}', "list"),
                       ('{"stage":"s","body-base64":"a"}', "base64"), ('{"stage":"s","body-base64":7}', "base64"),
                       ('{"stage":"s","body":"x","body-base64":"eA=="}', "twice"),
                       ('{"stage":"s","body":"x","delay":true}', "delay"), (b'{"stage":"\xff"}', "JSON"),
                       ('{"stage":"s","body":"x","delay":-5}', "DELAY"),
                       ('{"stage":"s","body":"x","key":[]}', "'key' is an empty list"),
                       ('{"stage":"s","body":"x","what":[]}', "'what'"), ('{"stage":"s","body":"x","key":{}}', "'key'"),
                       ('{"stage":"s s","body":"x"}', "stage"), ('{"":null}', "'stage' is missing"),
                       ('{"stage":"s","body":"x","":null}', "'' is not a parameter"), ('{"":[]}', "'' is an empty list")):
        web.refuses(400, "ERR", text, "POST", "/api/jobs", body)
    for body, text in (('{"stage":"s","body":%s}' % ("[" * 200), "128"),
                       ('{"stage":"s","body":%s}' % ("[" * 200 + "]" * 200), "128"),
                       ('{"stage":"s","body":[%s]}' % ",".join(["{}"] * (1 << 20)), "1048576"),
                       ('{"stage":"s","body":[%s]}' % ("7" * 5000), "1024")):
        web.refuses(413, "TOOBIG", text, "POST", "/api/jobs", body)
    for ids, text in ({}, "'ids' is missing"), ({"ids": []}, "empty list"), ({"ids": True}, "number"), \
            ({"ids": ["STAGE", "s", "DEAD"]}, "number"), ({"ids": ["1", {}]}, "number"):
        web.refuses(400, "ERR", text, "POST", "/api/jobs/retry", ids)
    web.refuses(400, "ERR", "at most", "POST", "/api/jobs/retry", {"ids": ["1"] * 2000})
    equal(web.refuses(405, "ERR", "", "DELETE", "/api/jobs/1").getheader("Allow"), "GET, HEAD")
    equal(web.refuses(405, "ERR", "", "OPTIONS", "/api/jobs").getheader("Allow"), "GET, HEAD, POST")
    equal(web.refuses(405, "ERR", "", "GET", "/api/dead/retry").getheader("Allow"), "POST")
    equal(web.refuses(405, "ERR", "", "POST", "/api/stages", {}).getheader("Allow"), "GET, HEAD")
    equal(web.get("/api/stages")["stages"], [])
    web.stop()


@case
def requests_under_a_foreign_name_are_refused():
    web = Web("--http-name", "mill.example,other.example")
    for host in "127.0.0.1", "localhost", "LOCALHOST:1", "[::1]:80", "127.9.9.9", "mill.example:7412", "Other.Example":
        equal(web.ask("GET", "/api/stages", headers={"Host": host})[0], 200, host)
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "mill.example.evil",
                 "mill", "192.168.0.1", "10.0.0.1:7412", "[fe80::1]", "0.0.0.0"):
        web.refuses(421, "ERR", "is not a name of this server", "GET", "/api/stages", headers={"Host": host})
        web.refuses(421, "ERR", "is not a name of this server", "POST", "/api/jobs", {"stage": "s", "body": "x"},
                    headers={"Host": host, "Origin": f"http://{host}"})
        web.refuses(421, "ERR", "is not a name of this server", "GET", "/", headers={"Host": host})
    for host in "", "[::1", "localhost:port", "localhost:80:80", "x" * 300:
        web.refuses(400, "ERR", "Host", "GET", "/api/stages", headers={"Host": host})
    equal(status_of(web.raw(b"GET /api/stages HTTP/1.1\r\n\r\n")), 400)
    equal(web.get("/api/stages")["stages"], [])
    web.stop()


@case
def a_page_from_elsewhere_changes_nothing():
    web = Web()
    job = {"stage": "s", "body": "x"}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://{web.host}.evil.example",
                   f"ftp://{web.host}", web.host, f"http://{web.host}/", ""):
        web.refuses(403, "NOPERM", "origin", "POST", "/api/jobs", job, headers={"Origin": origin})
    web.refuses(403, "NOPERM", "Origin", "POST", "/api/jobs", job, headers={"Origin": None})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                 "application/jsonp", None):
        web.refuses(415, "ERR", "application/json", "POST", "/api/jobs", job, headers={"Content-Type": kind})
    equal(web.get("/api/stages")["stages"], [])
    web.post("/api/jobs", job, headers={"Content-Type": "application/json; charset=utf-8"})
    web.post("/api/jobs", job, headers={"Origin": f"https://{web.host}"})  # a proxy in front has encrypted it
    web.stop()


@case
def a_POST_with_a_token_needs_no_Origin():
    push = token_of("origins", "someone", "push")
    web = Web("--auth", path("origins"))
    job = {"stage": "s", "body": "x"}
    for origin in None, "http://elsewhere.example", "null":
        status, answer, _ = web.ask("POST", "/api/jobs", job, token=push, headers={"Origin": origin})
        equal((status, [name for name in answer.headers if "access-control" in name.lower()]), (200, []))
    web.refuses(401, "WRONGPASS", "secret", "POST", "/api/jobs", job, token="guess",
                headers={"Origin": "http://elsewhere.example"})
    answer = web.refuses(401, "NOAUTH", "token", "OPTIONS", "/api/jobs",  # a browser asks so before it sends a token
                         headers={"Origin": "http://elsewhere.example", "Access-Control-Request-Method": "POST"})
    equal([name for name in answer.headers if "access-control" in name.lower()], [])
    web.refuses(415, "ERR", "application/json", "POST", "/api/jobs", job, token=push,
                headers={"Origin": None, "Content-Type": "text/plain"})
    for scheme in "Bearer", "Bearer ", "Basic abc", None:
        web.refuses(403, "NOPERM", "Bearer token", "POST", "/api/jobs", job,
                    headers={"Origin": None, "Authorization": scheme})
    web.refuses(401, "WRONGPASS", "secret", "POST", "/api/jobs", job, token="guess", headers={"Origin": None})
    web.stop()


# ---- Tokens ------------------------------------------------------------------------------------

# F45: before a token there is little to be had, and no body is read.
@case
def F45_unauthenticated_clients_get_only_the_page():
    token_of("some-tokens", "ops", "admin")
    web = Web("--auth", path("some-tokens"))
    equal(web.get("/healthz"), {"health": "ok"})
    equal(web.ask("GET", "/", headers={"Accept-Encoding": "gzip"})[0], 200)
    for target in "/api/stages", "/api/info", "/metrics", "/api/events", "/api/jobs/1", "/nowhere":
        answer = web.refuses(401, "NOAUTH", "Bearer", "GET", target)
        equal(answer.getheader("WWW-Authenticate"), "Bearer")
    web.refuses(401, "NOAUTH", "Bearer", "POST", "/api/jobs", {"stage": "s", "body": "x"})
    large = f"POST /api/jobs HTTP/1.1\r\nHost: {web.host}\r\nContent-Type: application/json\r\n" \
            f"Origin: http://{web.host}\r\nContent-Length: 30000000\r\n\r\n".encode()
    equal(status_of(web.raw(large, whole=False)), 401)  # before any of it has come
    equal(status_of(web.raw(large.replace(b"POST /api/jobs", b"GET /healthz"), whole=False)), 401)
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"  # in a body that is not read
    for secret in b"", b"Authorization: Bearer wrong\r\n":
        received = web.raw(large.replace(b"Content-Length", secret + b"Content-Length") + hidden, whole=False)
        equal((status_of(received), received.count(b"HTTP/1.1 ")), (401, 1), received)
    for scheme in "Basic abc", "bearer", "Bearer":
        web.refuses(401, "NOAUTH", "Bearer", "GET", "/api/stages", headers={"Authorization": scheme})
    web.stop()


# F46: a wrong secret takes its time.
@case
def F46_wrong_secrets_are_refused_slowly_and_then_at_once():
    right = token_of("wrong", "someone", "read")
    web = Web("--auth", path("wrong"))
    with contextlib.closing(web.connect()) as one:
        web.refuses(401, "WRONGPASS", "secret", "GET", "/api/stages", token="guess", connection=one)
        web.get("/api/stages", token=right, connection=one)
        web.refuses(401, "NOAUTH", "Bearer", "GET", "/api/stages", connection=one)  # each request has the token again
        web.refuses(401, "WRONGPASS", "secret", "GET", "/api/stages", token=right + "x", connection=one)
        answer = web.refuses(401, "WRONGPASS", "secret", "GET", "/api/stages", token="x" * 4000, connection=one)
        equal(answer.getheader("Connection"), "close")
    web.wait_notice("3 wrong secrets")
    equal(int(web.get("/api/info", token=right)["info"]["refused_secrets"]), 3)
    web.stop()


@case
def roles_and_stages_hold_as_on_the_wire():
    names = {role: token_of("roles", role, role) for role in ("push", "work", "read", "admin")}
    few = token_of("roles", "few", "read,push", "mail.*", "--max-jobs", "10", "--max-stages", "2")
    token_of("roles", "none", "push", "none", "--max-epics", "5")
    web = Web("--auth", path("roles"))
    for stage in "mail.a", "sms.a":
        web.post("/api/jobs", {"stage": stage, "body": "x"}, token=names["push"])
    web.refuses(403, "NOPERM", "read", "GET", "/api/stages", token=names["push"])
    web.refuses(403, "NOPERM", "read", "GET", "/metrics", token=names["work"])
    web.refuses(403, "NOPERM", "read", "GET", "/api/events", token=names["work"])
    web.refuses(403, "NOPERM", "push", "POST", "/api/jobs", {"stage": "s", "body": "x"}, token=names["read"])
    web.refuses(403, "NOPERM", "admin", "POST", "/api/stages/mail.a/pause", token=names["push"])
    equal(len(web.get("/api/stages", token=names["admin"])["stages"]), 2)
    equal(web.get("/api/stage?stage=mail.a", token=names["read"])["policy"], None)
    check(web.get("/api/stage?stage=mail.a", token=names["admin"])["policy"])
    equal(web.get("/api/info", token=few)["who"],
          {"name": "few", "roles": ["push", "read"], "stages": "mail.*"})
    equal(web.get("/api/info", token=names["admin"])["who"]["roles"], ["push", "work", "read", "admin"])

    equal([s["name"] for s in web.get("/api/stages", token=few)["stages"]], ["mail.a"])
    web.refuses(403, "NOPERM", "sms.a", "GET", "/api/stage?stage=sms.a", token=few)
    web.refuses(403, "NOPERM", "sms.a", "GET", "/api/stages/sms.a/history/hour", token=few)
    web.refuses(403, "NOPERM", "read", "GET", "/api/history/day", token=names["work"])
    web.refuses(404, "GONE", "2", "GET", "/api/jobs/2", token=few)
    web.refuses(403, "NOPERM", "sms.a", "POST", "/api/jobs", {"stage": "sms.a", "body": "x"}, token=few)
    web.post("/api/jobs", {"stage": "mail.a", "body": "x"}, token=few)
    of_few, of_none = ({"token": "few", "stages": {"used": 0, "max": 2}, "jobs": {"used": 1, "max": 10}},
                       {"token": "none", "epics": {"used": 0, "max": 5}})
    equal(web.get("/api/quotas", token=few)["quotas"], [of_few])
    equal(web.get("/api/quotas", token=names["read"])["quotas"], [of_few, of_none])
    equal(web.get("/api/quotas", token=names["push"])["quotas"], [])
    check(b"sms.a" not in web.get("/metrics", token=few))
    check(b"sms.a" in web.get("/metrics", token=names["read"]))
    hidden = {"store", "log_bytes", "used_memory", "buffer_bytes", "connected_clients", "total_commands_processed"}
    equal(hidden & set(web.get("/api/info", token=few)["info"]), set())
    equal(hidden - set(web.get("/api/info", token=names["read"])["info"]), set())
    check(b"millrace_memory_used_bytes" not in web.get("/metrics", token=few))
    check(b"millrace_log_full 0" in web.get("/metrics", token=few))
    streams = Stream(web, few), Stream(web, names["read"]), Stream(web, names["admin"])
    for _ in range(2):
        equal([[s["name"] for s in stream.event()["stages"]] for stream in streams],
              [["mail.a"], ["mail.a", "sms.a"], ["mail.a", "sms.a"]])
    for token, pushed in (few, 2), (names["read"], 3):  # a second has passed, so there are samples
        equal(sum(web.get("/api/history/hour", token=token)["history"]["pushed"]), pushed)
    subprocess.run([MILLRACE, "auth", "remove", "few", "--auth", path("roles")], check=True)
    web.signal(signal.SIGHUP)
    web.wait_notice("reloaded")
    equal(streams[0].answer.read().count(b"sms.a"), 0)  # it ends
    streams[1].event()
    web.stop()


# U5: the head of a request is checked before its body is read: no body is sent here.
@case
def U5_rights_and_sizes_are_checked_before_a_body_is_read():
    push, read, own = (token_of("heads", *row) for row in (("p", "push"), ("r", "read"), ("o", "admin", "mine.*")))
    web = Web("--auth", path("heads"))

    def head(target, token, size=32 << 20, **more):
        lines = {"Host": web.host, "Origin": f"http://{web.host}", "Content-Type": "application/json",
                 "Content-Length": size, "Authorization": f"Bearer {token}", "Expect": "100-continue"} | more
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        with socket.create_connection(("127.0.0.1", web.http), TIMEOUT_S) as s:
            s.sendall(f"POST {target} HTTP/1.1\r\n{text}\r\n".encode())
            return status_of(s.recv(65536))
    equal(head("/api/jobs", push), 100)
    equal(head("/api/jobs", read), 403)
    equal(head("/api/jobs", "wrong"), 401)
    equal(head("/api/jobs", push, Host="evil.example", Origin="http://evil.example"), 421)
    equal(head("/api/jobs", push, Origin="http://evil.example"), 100)
    equal(head("/api/jobs", push, Origin="http://evil.example", Authorization="Basic eDp5"), 403)
    equal(head("/api/jobs", push, **{"Content-Type": "text/plain"}), 415)
    for size in (32 << 20) + 1, 1 << 40, (1 << 64) - 1:
        equal(head("/api/jobs", push, size), 413, size)
        equal(head("/api/jobs", read, size), 403, size)
    equal(head("/api/jobs/1/cancel", push, 65536), 100)
    equal(head("/api/jobs/1/cancel", push, 65537), 413)
    equal(head("/api/dead/retry", own, 65537), 413)
    equal(head("/api/stages/mine.a/pause", own, 100), 100)
    equal(head("/api/stages/theirs/pause", own, 100), 403)
    equal(head("/api/stages/theirs%2Fa/policy", own, 100), 403)
    equal(head("/api/jobs/drop", push, 100), 403)
    Client(web).refused("NOAUTH", "STAGES")
    with contextlib.closing(web.connect()) as one:  # the whole body: it is discarded, and the next request is answered
        web.refuses(403, "NOPERM", "push", "POST", "/api/jobs", "{}," * (32 << 20 >> 2), token=read, connection=one)
    web.stop()


@case
def others_can_reach_it_only_with_tokens():
    refused = Server("--store", "mem:", http="0.0.0.0:0", ready=False).ends(2)
    check("--auth" in refused and "--http" in refused, refused)
    secret = token_of("others", "someone", "read")
    web = Web("--auth", path("others"), http="0.0.0.0:0")
    equal(web.ask("GET", "/api/stages", token=secret, headers={"Host": "192.168.0.1"})[0], 200)
    web.refuses(421, "ERR", "is not a name of this server", "GET", "/api/stages", token=secret, headers={"Host": "evil.example"})
    web.stop()
    Web("--insecure", http="0.0.0.0:0").stop()


@case
def with_a_certificate_it_is_encrypted():
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                           "-nodes", "-keyout", path("key.pem"), "-out", path("cert.pem"), "-subj", "/CN=mill",
                           "-days", "2"], capture_output=True)
    equal(made.returncode, 0, made.stderr)
    web = Web("--tls-cert", path("cert.pem"), "--tls-key", path("key.pem"))
    check(web.secure)
    with contextlib.closing(web.connect()) as one:
        for _ in range(2):
            equal(web.post("/api/jobs", {"stage": "s", "body": "x" * 300000}, connection=one)["id"].isdigit(), True)
    equal(len(web.get("/api/jobs/1?body=1")["job"]["body"]), 300000)
    stream = Stream(web)
    stream.event(), stream.event()
    equal(web.raw(f"GET / HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode()).count(b"HTTP"), 0)  # in the clear
    web.stop()


# ---- Places ------------------------------------------------------------------------------------

@case
def it_can_be_off_and_a_port_in_use_is_reported():
    server = Server("--store", "mem:", http="off")
    server.stop()
    check("page" not in "".join(server.said), server.said)
    web = Web()
    said = Server("--store", "mem:", http=web.host, ready=False).ends(3)
    check(f"cannot listen on {web.host}" in said, said)
    said = Server("--store", "mem:", http="7412", ready=False).ends(2)
    check("HOST:PORT" in said, said)
    web.stop()
    Web(http="[::1]:0").stop()
    server = Server("--config", write("http.conf", "store = mem:\nhttp = off\n"), http=None)
    server.stop()
    check("page" not in "".join(server.said), server.said)


# ---- Events ------------------------------------------------------------------------------------

@case
def events_have_stages_and_health():
    web = Web()
    client = Client(web)
    stream, other = Stream(web), Stream(web)
    first = stream.event()
    equal((first["stages"], first["health"], first["info"]["store"]), ([], "ok", "mem:"))
    equal({"token", "used_jobs"} & set(first["info"]), set())  # one event may be for several tokens
    client.ask("PUSH", "s", "x")
    event = stream.until(lambda e: e["stages"])
    equal(event["stages"][0]["waiting"], 1)
    equal(other.until(lambda e: e["stages"])["stages"][0]["name"], "s")
    stream.close()
    check(other.event()["stages"])
    other.close()
    web.stop()


@case
def a_restart_is_seen_and_loses_nothing():
    web = Web(store=f"file:{path('again')}")
    web.post("/api/jobs", {"stage": "s", "body": "kept"})
    stream = Stream(web)
    stream.event()
    web.signal(signal.SIGKILL)
    equal(web.process.wait(TIMEOUT_S), -9)
    try:
        while stream.answer.readline():
            pass
    except OSError:
        pass
    web = Web(store=f"file:{path('again')}")
    equal(web.get("/api/jobs/1?body=1")["job"]["body"], "kept")
    stream = Stream(web)
    equal(stream.event()["stages"][0]["waiting"], 1)
    web.process.terminate()  # streams of events are closed
    stream.answer.read()
    web.ends()


# F24: a failed log is reported by every path.
@case
def F24_a_stopped_log_is_reported():
    orders = write("orders", "")
    web = Web(store=f"file:{path('stopped')}",
              env=dict(os.environ, LD_PRELOAD=FAULTY, MILLRACE_FAULTS=orders, ASAN_OPTIONS="verify_asan_link_order=0"))
    web.post("/api/jobs", {"stage": "s", "body": "before"})
    stream = Stream(web)
    stream.event()
    write("orders", "sync EIO\n")
    web.refuses(503, "STOPPED", "", "POST", "/api/jobs", {"stage": "s", "body": "lost"})
    web.refuses(503, "STOPPED", "", "POST", "/api/stages/s/pause")
    event = stream.until(lambda e: e["health"] != "ok")
    check(event["health"] == "stopped" and event["why"], event)
    equal(event["stages"][0]["held-by"], "stopped")
    equal(web.ask("GET", "/healthz")[::2], (503, {"health": "stopped"}))
    equal(web.get("/api/info")["health"], "stopped")
    check("millrace_log_stopped 1" in web.get("/metrics").decode())
    equal(web.get("/api/jobs/1?body=1")["job"]["body"], "before")
    web.stop()


# F25: so is a full disk.
@case
def F25_a_full_disk_is_reported():
    orders = write("orders", "")
    web = Web(store=f"file:{path('full')}",
              env=dict(os.environ, LD_PRELOAD=FAULTY, MILLRACE_FAULTS=orders, ASAN_OPTIONS="verify_asan_link_order=0"))
    web.post("/api/jobs", {"stage": "s", "body": "before"})
    write("orders", "allocate ENOSPC\n")
    body = "x" * (1 << 20)
    while (status := web.ask("POST", "/api/jobs", {"stage": "s", "body": body})[0]) == 200:
        pass
    equal(status, 503)
    health = web.get("/healthz")
    equal(health, {"health": "full"})
    web.process.kill()


# ---- The past ----------------------------------------------------------------------------------

# B6: queue length, waiting and running time over time, without a clock of their own.
@case
def B6_samples_exist_before_the_first_request():
    web = Web()
    client, idler = Client(web), Client(web)
    for i in range(3):
        client.ask("PUSH", "s", i)
    idler.ask("TAKE", "none", "WAIT", 1100)  # nothing happens for a while
    job = client.ask("TAKE", "s", "SLOTS", 4)[0]
    idler.ask("TAKE", "none", "WAIT", 1100)
    client.ask("DONE", job[0], job[1])
    idler.ask("TAKE", "none", "WAIT", 1100)
    series = web.get("/api/stage?stage=s")["series"]
    length = len(series["time-ms"])
    check(length >= 3, series)
    equal(series["time-ms"], sorted(series["time-ms"]))
    check(3 in series["waiting"] and series["waiting"][-1] == 2, series["waiting"])
    equal((sum(series["pushed"]), sum(series["done"])), (3, 1))
    check(series["level"][-1] == 4, series["level"])
    for span, step in ("hour", 10000), ("day", 240000):
        reply = web.get(f"/api/stages/s/history/{span}")
        history = reply["history"]
        equal(set(history), set(series) - {"time-ms"} | {"step-ms", "from-ms"})
        equal(history["step-ms"], step)
        length = len(history["waiting"])
        check(1 <= length <= 3, history)
        check(0 <= reply["time-ms"] - history["from-ms"] - (length - 1) * step < step + 2000, reply)
        equal((max(history["waiting"]), sum(history["pushed"]), sum(history["done"])), (3, 3, 1))
        all_stages = web.get(f"/api/history/{span}")["history"]
        equal((max(all_stages["waiting"]), sum(all_stages["pushed"]), sum(all_stages["done"])), (3, 3, 1))
    web.refuses(404, "GONE", "none", "GET", "/api/stages/none/history/hour")
    web.refuses(404, "ERR", "", "GET", "/api/history/week")
    web.refuses(400, "ERR", "stage", "GET", "/api/history/hour?stage=s")
    waits = [w for w in series["wait-p50-ms"] if w is not None]
    runs = [r for r in series["run-p99-ms"] if r is not None]
    check(len(waits) == 1 and waits[0] >= 1000 and len(runs) == 1 and runs[0] >= 1000, series)
    web.stop()


# B6: throughput can be seen against the level of the workers.
@case
def B6_workers_report_their_level():
    web = Web()
    client = Client(web)
    for i in range(20):
        client.ask("PUSH", "s", i)
    worker = subprocess.Popen([MILLRACE, "work", "s", "--jobs", "3", "--at", web.url, "--", "cat"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stream = Stream(web)
    stage = stream.until(lambda e: e["stages"][0]["done"] == 20)["stages"][0]
    equal((stage["level"], stage["runs"]), (3, 20))
    equal([w["level"] for w in web.get("/api/workers")["workers"] if w["level"]], [3])
    worker.terminate()
    worker.wait(TIMEOUT_S)
    stream.until(lambda e: e["stages"][0]["level"] == 0)
    web.stop()


# ---- Prometheus --------------------------------------------------------------------------------

def lint(text):
    """What promtool would report, by its rules, and what it would not."""
    helps, types, seen, family = {}, {}, set(), None
    check(text.endswith("\n"))
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, about = line[7:].split(" ", 1)
            check(name not in helps and about and about[0].isupper() and about.endswith("."), line)
            helps[name] = about
            continue
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            check(name in helps and name not in types, line)
            check(kind in ("gauge", "counter", "summary"), line)
            check((kind == "counter") == name.endswith("_total"), line)
            check(re.fullmatch(r"millrace(_[a-z]+)+", name), line)
            check(not re.search(r"_(ms|milliseconds|kb|mb|minutes|count|sum)$", name), line)
            types[name] = kind
            family = name
            continue
        match = re.fullmatch(r"([a-z_]+)(\{[^}]*\})? (-?\d+(?:\.\d+)?)", line)
        check(match, line)
        name, labels = match[1], dict(re.findall(r'([a-z]+)="([^"\\]*)"', match[2] or ""))
        base = re.sub(r"_(sum|count)$", "", name) if types[family] == "summary" else name
        equal(base, family, line)  # families stand together
        check(set(labels) <= {"stage", "status", "reason", "quantile", "version"}, line)
        check("quantile" not in labels or types[family] == "summary", line)
        check((name, match[2]) not in seen, "twice: " + line)
        seen.add((name, match[2]))
        check(types[family] == "gauge" or float(match[3]) >= 0, line)
    equal(set(helps), set(types))


@case
def metrics_are_as_prometheus_wants_them():
    web = Web()
    client = Client(web)
    _, answer, text = web.ask("GET", "/metrics")
    check(answer.getheader("Content-Type").startswith("text/plain; version=0.0.4"))
    lint(text.decode())
    for stage in "mail", "a.b:c/d-e_F":
        client.ask("PUSH", stage, "x")
        client.ask("PUSH", stage, "y")
    fail(client, client.ask("TAKE", "mail")[0])
    client.work_off("mail")
    client.ask("PAUSE", "mail")
    text = web.ask("GET", "/metrics")[2].decode()
    lint(text)
    for line in ('millrace_jobs{stage="mail",status="dead"} 1', 'millrace_jobs_done_total{stage="mail"} 1',
                 'millrace_jobs{stage="a.b:c/d-e_F",status="waiting"} 2', "millrace_log_stopped 0",
                 'millrace_stage_held{stage="mail",reason="paused"} 1', 'millrace_job_wait_seconds_count{stage="mail"} 2'):
        check(line in text.splitlines(), line, text)
    web.stop()


def used_metrics(text):
    return set(re.findall(r"\bmillrace_[a-z_]+", text))


@case
def dashboard_and_alerts_use_what_there_is():
    web = Web()
    Client(web).ask("PUSH", "s", "x")
    text = web.ask("GET", "/metrics")[2].decode()
    known = set(re.findall(r"^# TYPE (\S+)", text, re.M)) | set(re.findall(r"^(millrace_\w+)", text, re.M))
    docs = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../docs")
    with open(os.path.join(docs, "grafana.json"), encoding="utf-8") as file:
        board = file.read()
    json.loads(board)
    with open(os.path.join(docs, "alerts.yml"), encoding="utf-8") as file:
        alerts = file.read()
    for used in used_metrics(board), used_metrics(alerts):
        check(used and used <= known, used - known)
    web.stop()


# ---- Clients that mean no good -----------------------------------------------------------------

# F41: whatever is no request ends its connection and nothing else.
@case
def F41_malformed_requests_are_refused():
    web = Web()
    good = f"Host: {web.host}\r\n".encode()
    for data, status in (
            (b"GARBAGE\r\n\r\n", 400), (b"\r\n\r\n", 400), (b"GET\r\n\r\n", 400), (b"GET / \r\n\r\n", 400),
            (b"GET  / HTTP/1.1\r\n" + good + b"\r\n", 400), (b"GET / HTTP/2.0\r\n" + good + b"\r\n", 505),
            (b"GET / HTTP/1.x\r\n" + good + b"\r\n", 505),
            (b"GET / HTTP/0.9\r\n" + good + b"\r\n", 505), (b"GET / FTP/1.1\r\n" + good + b"\r\n", 400),
            (b"GET http://x/ HTTP/1.1\r\n" + good + b"\r\n", 400), (b"GET * HTTP/1.1\r\n" + good + b"\r\n", 400),
            (b"G\xffT / HTTP/1.1\r\n" + good + b"\r\n", 400), (b"GET /\xff HTTP/1.1\r\n" + good + b"\r\n", 400),
            (b"GET / HTTP/1.1\r\n" + good + b"X : y\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + good + b" folded\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n" + good + b"nocolon\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + good + b": x\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n" + good + b"X: a\0b\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + good + b"X: a\nY: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n" + good + good + b"\r\n", 400), (b"GET / HTTP/1.1\n" + good + b"\r\n", 400),
            (b"POST / HTTP/1.1\r\n" + good + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\n" + good + b"Content-Length: -1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\n" + good + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\n" + good + b"Content-Length: 0x1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\n" + good + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
            (b"POST / HTTP/1.1\r\n" + good + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
            (b"GET / HTTP/1.1\r\n" + good + b"Expect: the worst\r\n\r\n", 417),
            (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n" + good + b"\r\n", 431),
            (b"GET / HTTP/1.1\r\n" + good + b"X: y\r\n" * 65 + b"\r\n", 431),
            (b"GET / HTTP/1.1\r\n" + good + b"X: " + b"y" * 20000 + b"\r\n\r\n", 431), (b"x" * 100000, 431),
            (b"*1\r\n$4\r\nPING\r\n" + b"\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400)):
        received = web.raw(data)
        equal(status_of(received), status, data[:200], received[:200])
        check(b'{"error":' in received, received)
    post = f"POST /api/jobs HTTP/1.1\r\n{good.decode()}Content-Type: application/json\r\n" \
           f"Origin: http://{web.host}\r\nContent-Length: 33554433\r\n\r\n".encode()
    equal(status_of(web.raw(post, whole=False)), 413)
    equal(web.get("/healthz"), {"health": "ok"})
    web.stop()


# F41: split at every byte.
@case
def F41_a_request_may_come_in_any_pieces():
    web = Web()
    body = b'{"stage": "s", "body": "x"}'
    data = f"POST /api/jobs HTTP/1.1\r\nHost: {web.host}\r\nContent-Type: application/json\r\nOrigin: " \
           f"http://{web.host}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", web.http), TIMEOUT_S) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            s.sendall(data[i:i + 1])
        check(b'{"id":"1"}' in s.makefile("rb").read())
    web.stop()


@case
def a_client_of_redis_is_answered_at_once():
    web = Web()
    received = web.raw(b"*1\r\n$4\r\nPING\r\n", whole=False)
    equal(status_of(received), 400)
    check(b"the address of --listen" in received, received)
    web.stop()


# F42: one byte a second keeps a connection for ten seconds.
@case
def F42_slow_requests_time_out():
    web = Web()
    slow = []
    for data in (b"", b"GET / HT", f"POST /api/jobs HTTP/1.1\r\nHost: {web.host}\r\n".encode()):
        slow.append(socket.create_connection(("127.0.0.1", web.http), TIMEOUT_S))
        slow[-1].sendall(data)
    for s in slow[1:]:
        s.settimeout(TIMEOUT_S)
        equal(status_of(s.recv(65536)), 408)
        equal(s.recv(1), b"")
    equal(web.get("/healthz"), {"health": "ok"})
    web.stop()


# F43: a client that does not read does not affect others.
@case
def F43_a_thousand_listen_and_some_do_not_read():
    if too_few := too_few_descriptors(4096):
        return too_few
    web = Web()
    client = Client(web)
    for i in range(20):
        client.ask("PUSH", f"stage-{i}", "x")
    streams = [Stream(web) for _ in range(1000)]
    web.refuses(503, "FULL", "1000", "GET", "/api/events")
    reading = streams[::100]
    begun = [stream.until(lambda e: e["stages"])["time-ms"] for stream in reading]
    for stream, begin in zip(reading, begun):
        check(stream.until(lambda e, b=begin: e["time-ms"] > b + 2000)["stages"])
    equal(client.ask("PING"), "PONG")
    equal(client.work_off("stage-1"), ["x"])
    for stream in streams:
        stream.close()
    web.stop()


# F43: memory for a client that does not read is counted, and freed with the connection.
@case
def F43_what_slow_listeners_hold_counts_as_memory():
    web = Web()
    client = Client(web)
    for i in range(1000):
        client.send("PUSH", f"a-stage-with-a-long-name-so-that-there-is-much-to-tell-{i:04}", "x")
    for _ in range(1000):
        client.receive()
    idle = int(client.info()["buffer_bytes"])
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", web.http))
        slow.sendall(f"GET /api/events HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode())
        while int(client.info()["buffer_bytes"]) < idle + 300_000:
            pass
    while int(client.info()["buffer_bytes"]) > idle + 100_000:
        pass
    web.stop()


# F44: connections have a limit.
@case
def F44_too_many_connections_are_refused():
    web = Web("--max-clients", "20")
    held = [socket.create_connection(("127.0.0.1", web.http), TIMEOUT_S) for _ in range(20)]
    received = web.raw(b"", whole=False)
    equal(status_of(received), 503)
    check(b'"FULL"' in received and b"max-clients" in received, received)
    for s in held:
        s.close()
    web.stop()


# ---- Costs -------------------------------------------------------------------------------------

def cpu_ms(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


# A3: also when a million jobs wait.
@case
def looks_do_not_scan_what_waits():
    web = Web()
    client = Client(web)
    items = [word for i in range(1000) for word in (f"key-{i % 100}", "x")]
    for _ in range(1000):
        client.send("PUSHMANY", "s", "ITEMS", *items)
        client.receive()
    targets = ["/api/stages", "/api/stage?stage=s", "/api/channels?stage=s", "/api/jobs?stage=s&count=10", "/api/info",
               "/api/jobs?stage=s&key=key-7&count=10", "/api/jobs/500000", "/api/dead", "/metrics", "/api/workers"]
    before = cpu_ms(web)
    with contextlib.closing(web.connect()) as one:
        for _ in range(20):
            for target in targets:
                web.get(target, connection=one)
    used = cpu_ms(web) - before
    check(used < 4000, f"{used} ms for {20 * len(targets)} looks")  # a scan of a million takes 20 ms and more each
    equal(web.get("/api/stages")["stages"][0]["waiting"], 1000000)
    web.stop()


# U4: a request becomes two commands, and the first needs several turns: its token sees few stages, by many patterns.
@case
def U4_two_commands_of_a_request_run_one_after_the_other():
    admin = token_of("patterns", "admin", "admin")
    few = token_of("patterns", "few", "read", ",".join(f"none-{i}*" for i in range(100)) + ",s499")
    web = Web("--auth", path("patterns"))
    client = Client(web)
    equal(client.ask("AUTH", admin), "OK")
    for i in range(500):
        client.ask("PUSH", f"s{i}", "x")
    check('millrace_jobs{stage="s499",status="waiting"} 1\n'.encode() in web.get("/metrics", token=few))
    with contextlib.closing(Stream(web, few)) as stream:
        for _ in range(2):
            equal([s["name"] for s in stream.event()["stages"]], ["s499"])
    web.stop()


# The same when the first is answered by several loops.
@case
def looks_at_several_loops_answer():
    web = Web("--loops", "3", "--shards", "3")
    client = Client(web)
    for i in range(10):
        client.ask("PUSH", f"s{i}", "x")
    names = {f"s{i}" for i in range(10)}
    equal({s["name"] for s in web.get("/api/stages")["stages"]}, names)
    equal(len(re.findall(rb'status="waiting"} 1\n', web.get("/metrics"))), 10)
    for name in names:
        detail = web.get(f"/api/stage?stage={name}")
        equal((detail["stage"]["waiting"], detail["policy"]["attempts"]), (1, "10"))
    with contextlib.closing(Stream(web)) as stream:
        for _ in range(2):
            event = stream.event()
            equal(({s["name"] for s in event["stages"]}, event["info"]["waiting"]), (names, 10))
    for target in "info", "workers", "epics", "dead", "policies":
        web.get(f"/api/{target}")
    for i in range(1500):  # so that one loop's part is more than a client may leave unread
        client.send("PUSH", f"a-stage-with-a-long-name-so-that-there-is-much-to-tell-{i}", "x")
    for i in range(1500):
        client.receive()
    equal(len(re.findall(rb'status="waiting"} 1\n', web.get("/metrics"))), 1000)
    web.stop()


def switches(web):
    """How often its main thread has slept."""
    return web.sleeps()[str(web.process.pid)]


# D2: idle costs no CPU; an open page a wake-up or two a second.
@case
def D2_an_idle_server_does_not_wake_up():
    web = Web()
    client = Client(web)
    client.ask("PUSH", "s", "x")
    web.get("/api/stages")
    stream = Stream(web)
    stream.event()
    stream.close()
    while client.info()["connected_clients"] != "1":
        pass
    before = switches(web)
    select.select([client.socket], [], [], 3)  # it sends nothing meanwhile
    check(switches(web) - before <= 1, switches(web) - before)
    stream = Stream(web)
    stream.event()
    before, first = switches(web), stream.event()["time-ms"]
    last = stream.until(lambda e: e["time-ms"] >= first + 3000)["time-ms"]
    check(switches(web) - before <= 2 * (last - first) / 1000 + 2, switches(web) - before)
    web.stop()


main()
