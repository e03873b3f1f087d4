"""A producer with redis-py: python3 redis_producer.py [redis://HOST:PORT [NAME…]]"""
import sys
import uuid

import redis

url, *names = sys.argv[1:] or ["redis://127.0.0.1:7411"]
client = redis.Redis.from_url(url, socket_timeout=30)  # longer than what AWAIT waits
pushes = [("PUSH", "greetings", name, "KEY", name, "ONCE", uuid.uuid4().hex) for name in names or ["world"]]


def push_all():
    """All pushes in one write. redis-py sends nothing twice: when a reply is lost, this program repeats them, and ONCE
    makes each one job."""
    for tries in range(3):
        pipeline = client.pipeline(transaction=False)  # with MULTI it is not atomic, either
        for words in pushes:
            pipeline.execute_command(*words)
        try:
            return pipeline.execute()  # raises the first refusal; raise_on_error=False returns them
        except (redis.ConnectionError, redis.TimeoutError):
            if tries == 2:
                raise


for job in push_all():
    result = client.execute_command("AWAIT", job, "WAIT", 20000)  # None: not in time
    print(result.decode() if result is not None else "not in time")
