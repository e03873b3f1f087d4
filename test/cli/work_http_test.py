#!/usr/bin/env python3
"""work_http_test.py BUILD: `millrace work --http` with a receiver that answers as each case wants: what a request
has, what each response means, order, tuning, cancellation, timeouts, large responses, a receiver that is gone, and
the end of the worker. Speaks TAP; nothing waits for time to pass, but timeouts that are tested do take theirs."""
import base64
import contextlib
import hmac
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from running import Running, wait_until
from served import Client, Server, write
from tap import MILLRACE, TIMEOUT_S, case, check, equal, main

WITHOUT = "this build has no HTTP" in subprocess.run([MILLRACE, "work", "s", "--http", "ftp://localhost/"],
                                                      capture_output=True, text=True, check=False,
                                                      env={**os.environ, "MILLRACE_URL": "mem:"}).stderr


class Request:
    """A request that has arrived; it is held until it is answered."""

    def __init__(self, handler):
        self.headers, self.path = handler.headers, handler.path
        self.body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.connection, self.gone = handler.client_address, handler.connection
        self.answered = threading.Event()
        self.response = None

    def answer(self, status=200, body=b"", **headers):
        self.response = status, body, {name.replace("_", "-"): value for name, value in headers.items()}
        self.answered.set()

    def is_gone(self):
        """Whether the worker has closed the connection."""
        with contextlib.suppress(BlockingIOError):
            return self.gone.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        return False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = Request(self)
        with self.server.lock:
            self.server.requests.append(request)
        if self.server.rule:
            self.server.rule(request)
        request.answered.wait()
        status, body, headers = request.response
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_):
        pass


class Receiver(http.server.ThreadingHTTPServer):
    """What jobs are sent to; `rule` answers each request, or nothing does."""
    daemon_threads = True
    request_queue_size = 100

    def __init__(self, rule=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.rule, self.lock = [], rule, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/jobs?x=1"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def next(self, count=1):
        wait_until(lambda: len(self.requests) >= count, f"{count} requests")
        return self.requests[count - 1]

    def handle_error(self, request, client_address):
        pass


@contextlib.contextmanager
def working(stage, rule=None, *options, url=None):
    receiver = Receiver(rule)
    worker = Running(MILLRACE, "work", stage, "--http", url or receiver.url, *options, text=True,
                     env={**os.environ, "MILLRACE_URL": server.url, "no_proxy": "*"})
    try:
        yield receiver, worker
    finally:
        for request in receiver.requests:
            request.answered.is_set() or request.answer(500)
        if not worker.ended:
            worker.signal(signal.SIGTERM)
            ended = worker.end()
            equal(ended.code, 130, ended)
        receiver.shutdown()


def look(job):
    found = client.ask("JOB", job)
    return dict(zip(found[::2], found[1::2])) if isinstance(found, list) else found


def wait_status(job, status):
    wait_until(lambda: look(job)["status"] == status, f"{job} is {status}: {look(job)}")
    return look(job)


def reasons(job):
    return [dict(zip(reason[::2], reason[1::2]))["text"] if isinstance(reason, list) else reason["text"]
            for reason in look(job)["reasons"]]


def result(job):
    return client.ask("AWAIT", job, "WAIT", TIMEOUT_S * 1000)


@case
def a_request_has_the_job_and_its_response_is_the_result():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    file = write("headers", "Authorization: Bearer secret\r\n\nX-Two: 2\n")
    with working("whole", lambda r: r.answer(201, b"the result"), "--header", "X-One: 1", "--header",
                 f"@{file}") as (receiver, _):
        job = client.ask("PUSH", "whole", "the \x00 body", "KEY", "a key\r\nX-Bad: 1%", "DEADLINE", 3600000, "META",
                         '{"traceparent": "%s", "tracestate": "a=b"}' % trace)
        equal(result(job), "the result")
        request = receiver.next()
        equal((request.path, request.body), ("/jobs?x=1", b"the \x00 body"))
        left = int(request.headers["Millrace-Deadline-Ms"])
        check(0 < left <= 3600000, left)
        equal({name: request.headers[name] for name in (
            "Millrace-Id", "Millrace-Stage", "Millrace-Attempt", "Millrace-Key", "traceparent", "tracestate", "X-Bad",
            "X-One", "X-Two", "Authorization", "Content-Type", "Expect")},
              {"Millrace-Id": job, "Millrace-Stage": "whole", "Millrace-Attempt": "1",
               "Millrace-Key": "a%20key%0D%0AX-Bad:%201%25", "traceparent": trace, "tracestate": "a=b", "X-Bad": None,
               "X-One": "1", "X-Two": "2", "Authorization": "Bearer secret",
               "Content-Type": "application/octet-stream", "Expect": None})
        check(request.headers["Millrace-Meta"].startswith('{"traceparent":%20"00-'), request.headers["Millrace-Meta"])
        check(request.headers["User-Agent"].startswith("millrace/"), request.headers["User-Agent"])
        plain = client.ask("PUSH", "whole", "", "META", trace)
        equal(result(plain), "the result")
        request = receiver.next(2)
        equal((request.body, request.headers["traceparent"], request.headers["Millrace-Key"],
               request.headers["Millrace-Deadline-Ms"]), (b"", trace, None, None))


@case
def requests_are_signed_with_a_key():
    plain, coded = b"a key of 18 bytes!", bytes(range(24))
    for number, (text, key) in enumerate(((plain, plain), (b"whsec_" + base64.b64encode(coded) + b"\r\n", coded))):
        with working("signed", lambda r: r.answer(), "--sign-key", write("key", text.decode())) as (receiver, _):
            job = client.ask("PUSH", "signed", f"body {number}")
            equal(result(job), "")
            given = {name: receiver.next().headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")}
            signed = f"{job}.{given['timestamp']}.body {number}".encode()
            equal((given["id"], given["signature"]),
                  (job, "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()))


# C3: also where each job is a request: one of a key at a time, in order, retries too.
@case
def C3_jobs_of_a_key_arrive_in_order_also_after_failures():
    client.ask("STAGE", "keys", "backoff", "1ms")
    active, lock, failed, overlaps = set(), threading.Lock(), set(), []

    def rule(request):
        key, body = request.headers["Millrace-Key"], request.body
        with lock:
            overlaps.extend(active & {key})
            active.add(key)
        fails = body.endswith(b"0") and body not in failed
        failed.add(body)
        with lock:
            active.discard(key)
        request.answer(500 if fails else 200, body)
    with working("keys", rule) as (receiver, _):
        jobs = [client.ask("PUSH", "keys", f"{key} {n:02}", "KEY", key) for n in range(25) for key in "abcd"]
        for job in jobs:
            result(job)
    equal(overlaps, [])
    for key in "abcd":
        done = [request.body.decode() for request in receiver.requests
                if request.headers["Millrace-Key"] == key and request.response[0] == 200]
        equal(done, [f"{key} {n:02}" for n in range(25)])
    check(len({request.connection for request in receiver.requests}) < len(jobs) / 2, "connections are used again")


@case
def each_status_means_what_the_page_says():
    answers = {}

    def rule(request):
        request.answer(*answers[request.headers["Millrace-Id"]].pop(0))
    client.ask("STAGE", "statuses", "backoff", "1ms")
    client.ask("PAUSE", "statuses")

    def push(*given):
        job = client.ask("PUSH", "statuses", "x")
        answers[job] = [*given]
        return job
    failing = push((500, b"no such table\nmore"), (302, b""), (408, b""), (425, b""), (418, b""))
    empty = push((204, b""))
    dead = {status: push((status, b"refused")) for status in (400, 401, 404, 410, 413, 422)}
    with working("statuses", rule) as (_, worker):
        client.ask("RESUME", "statuses")
        equal(result(empty), "")
        wait_status(failing, "dead")
        equal(reasons(failing)[-5:], ["HTTP 500: no such table", "HTTP 302 (redirects are not followed)", "HTTP 408",
                                      "HTTP 425", "HTTP 418"])
        for status, job in dead.items():
            equal(wait_status(job, "dead")["attempt"], 1)
            equal(reasons(job), [f"HTTP {status}: refused"])
        check("is dead (attempt 1): HTTP 404: refused" in worker.said(), worker.said())


@case
def a_busy_receiver_gets_the_job_again_when_it_says():
    def rule(request):
        again = request.body in seen
        seen.add(request.body)
        later = {b"an hour": "3600", b"too long": "99999999999", b"a date": "Wed, 21 Oct 2099 07:28:00 GMT"}
        after = {"Retry_After": later[request.body]} if request.body in later else {}
        request.answer(200 if again else 429 if after else 503, b"", **after)
    seen = set()
    with working("busy", rule) as (_, worker):
        jobs = [client.ask("PUSH", "busy", body) for body in ("an hour", "too long", "a date", "none")]
        for job, least, most in zip(jobs, (3590e3, 86390e3, 86390e3, 1), (3600e3, 86400e3, 86400e3, 5000)):
            wait_until(lambda job=job: look(job)["due-ms"] > 0, "it waits")
            found = look(job)
            equal((found["status"], found["attempt"]), ("waiting", 0))
            check(least <= found["due-ms"] <= most, found)
            equal(client.ask("DUE", job), 1)
            equal(result(job), "")
        check("sent again later (attempt 1): HTTP 429" in worker.said(), worker.said())


@case
def K3_a_cancelled_job_ends_its_request():
    with working("cancelled") as (receiver, worker):
        job = client.ask("PUSH", "cancelled", "x")
        request = receiver.next()
        equal(client.ask("CANCEL", job), 1)
        wait_until(request.is_gone, "the request is given up")
        equal(look(job)["status"], "cancelled")
        other = client.ask("PUSH", "cancelled", "y", "DEADLINE", 50)
        wait_status(other, "expired")
        for stopped, why in (job, "the job was cancelled"), (other, "the deadline has passed"):
            wait_until(lambda: f"job {stopped} of cancelled was stopped: {why}" in worker.said(), worker.said())


@case
def K3_a_deadline_ends_the_request_though_the_server_is_silent():
    with working("silent") as (receiver, worker):
        job = client.ask("PUSH", "silent", "x", "DEADLINE", 5000)
        request = receiver.next()
        server.process.send_signal(signal.SIGSTOP)
        wait_until(request.is_gone, "the request is given up")
        wait_until(lambda: f"job {job} of silent was stopped: the deadline has passed" in worker.said(), worker.said())
        server.process.send_signal(signal.SIGCONT)
        wait_status(job, "expired")


@case
def a_request_that_takes_too_long_is_a_failed_attempt():
    client.ask("STAGE", "slow", "backoff", "1ms")
    with working("slow", None, "--timeout", "100ms") as (receiver, _):
        job = client.ask("PUSH", "slow", "x", "ATTEMPTS", 2)
        wait_status(job, "dead")
        equal(reasons(job), ["timed out: no response within 100 ms"] * 2)
        wait_until(receiver.next(2).is_gone, "it is given up")


@case
def a_response_that_is_too_large_or_broken_is_a_failed_attempt():
    answers = {"whole": (200, bytes(16 << 20)), "large": (200, bytes((16 << 20) + 1)),
               "short": (200, b"x", {"Content_Length": "2", "Connection": "close"}),
               "heads": (200, b"", {f"X-{i}": "x" * 60000 for i in range(6)}),
               "words": (500, b"word " * 100000)}

    def rule(request):
        status, body, *more = answers[request.body.decode()]
        request.answer(status, body, **(more[0] if more else {}))
        if request.body == b"short":
            request.gone.shutdown(socket.SHUT_RD)
    with working("responses", rule) as (receiver, _):
        jobs = {name: client.ask("PUSH", "responses", name, "ATTEMPTS", 1) for name in answers}
        equal(len(result(jobs["whole"])), 16 << 20)
        for name, reason in (("large", "the response has more than 16777216 bytes"), ("short", "no response: "),
                             ("heads", "the headers of the response have more than 262144 bytes"),
                             ("words", "HTTP 500: word word")):
            if name == "short":
                for request in list(receiver.requests):
                    if request.body == b"short":
                        with contextlib.suppress(OSError):
                            request.gone.shutdown(socket.SHUT_RDWR)
            wait_status(jobs[name], "dead")
            check(reasons(jobs[name])[0].startswith(reason), reasons(jobs[name]))


@case
def a_receiver_that_is_gone_costs_attempts_and_no_jobs():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d/" % closed.getsockname()[1]
        client.ask("STAGE", "gone", "backoff", "1ms")
        with working("gone", url=url):
            job = client.ask("PUSH", "gone", "x", "ATTEMPTS", 3)
            wait_status(job, "dead")
            check(all(reason.startswith("no response: ") for reason in reasons(job)), reasons(job))
            equal(len(reasons(job)), 3)


# K5: what was sent may be answered; after a second signal it is given up, and no attempt counts.
@case
def K5_a_stop_drains_and_a_second_one_gives_back():
    with working("drained") as (receiver, worker):
        first = client.ask("PUSH", "drained", "x")
        request = receiver.next()
        worker.signal(signal.SIGTERM)
        wait_until(lambda: "taking no more" in worker.said(), worker.said())
        request.answer(200, b"last")
        equal(worker.end().code, 130)
        equal(result(first), "last")
        check("1 done" in worker.end().err, worker.end())
    with working("drained") as (receiver, worker):
        second = client.ask("PUSH", "drained", "y")
        request = receiver.next()
        worker.signal(signal.SIGTERM)
        wait_until(lambda: "taking no more" in worker.said(), worker.said())
        wait_until(lambda: worker.signal(signal.SIGTERM) or "ending what runs" in worker.said(), worker.said())
        equal(worker.end().code, 130)
        wait_until(lambda: look(second)["status"] == "waiting", "it is given back")
        equal(look(second)["attempt"], 0)


@case
def wrong_options_are_refused():
    for words, text in ((["--http", "ftp://x/"], "http://"), (["--http", "localhost"], "http://"),
                        (["--http", "http://x/", "--", "cat"], "not both"), (["--http", "http://x/", "--shell"], "not both"),
                        (["--http", "http://x/", "--header", "no header"], "NAME: VALUE"),
                        (["--http", "http://x/", "--header", "A: b\nC: d"], "control character"),
                        (["--http", "http://x/", "--header", "Content-Length: 3"], "by each delivery"),
                        (["--http", "http://x/", "--header", "millrace-id: 3"], "by each delivery"),
                        (["--http", "http://x/", "--header", "@/nowhere"], "cannot be read"),
                        (["--http", "http://x/", "--header", "webhook-id: 3"], "by each delivery"),
                        (["--http", "http://user:secret@x/"], "--header @FILE"),
                        (["--http", "http://x/", "--sign-key", "/nowhere"], "cannot be read"),
                        (["--http", "http://x/", "--sign-key", write("short", "short\n")], "less than 16"),
                        (["--http", "http://x/", "--sign-key", write("wrong", "whsec_*\n")], "not base64"),
                        (["--http"], "value is missing"), (["--header", "A: b", "--", "cat"], "belong to --http"),
                        ([], "argument is missing")):
        ended = subprocess.run([MILLRACE, "work", "s", *words], capture_output=True, text=True, check=False,
                               env={**os.environ, "MILLRACE_URL": server.url}, timeout=TIMEOUT_S)
        equal(ended.returncode, 2, words, ended)
        check(text in ended.stderr, words, ended)


if WITHOUT:
    print("1..0 # SKIP this build has no libcurl")
    sys.exit(0)
server = Server("--store", "mem:")
client = Client(server)
main()
