"""A worker with redis-py: python3 redis_worker.py [redis://HOST:PORT]"""
import signal
import sys
import threading
import time

import redis

WAIT_S = 20  # TAKE answers after this at the latest: longer silence is a dead connection
url = sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:7411"
client = redis.Redis.from_url(url, socket_timeout=WAIT_S + 10)  # no decode_responses: bodies may be any bytes
running, stopping = False, False


def greet(name, stop):
    if stop.is_set():  # a longer job would check this repeatedly
        raise RuntimeError("cancelled")
    return b"hello, " + name


def work(job, token, _stage, _key, body, _attempt, _left, _state, lease_ms, *_):
    ended, stop = threading.Event(), threading.Event()

    def beat():  # the pool has another connection for it
        while not ended.wait(lease_ms / 3000):
            if client.execute_command("BEAT", job, token):
                stop.set()
    beating = threading.Thread(target=beat)
    beating.start()
    try:
        words = "DONE", job, token, "RESULT", greet(body, stop)
    except Exception as error:
        words = "FAIL", job, token, str(error)
    ended.set()
    beating.join()
    client.execute_command(*words)  # STALE, CANCELLED or EXPIRED: it came too late, and changed nothing


def leave(*_):  # after SIGTERM the running job ends first
    global stopping
    stopping = True
    if not running:
        sys.exit()


signal.signal(signal.SIGTERM, leave)
while not stopping:
    try:
        for job in client.execute_command("TAKE", "greetings", "WAIT", 1000 * WAIT_S):
            running = True
            work(*job)
    except redis.RedisError as error:
        print(error, file=sys.stderr)
        time.sleep(1)
    finally:
        running = False
