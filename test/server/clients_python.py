"""redis-py in the hands of a test: `clients_python.py PORT` connects to the cluster of which the port is a node, reads a
command a line, an array of words as JSON, and writes {"reply": …} or {"error": …} for each."""
import json
import sys

from redis.cluster import RedisCluster
from redis.exceptions import RedisError

client = RedisCluster(host="127.0.0.1", port=int(sys.argv[1]), decode_responses=True)
for line in sys.stdin:
    try:
        outcome = {"reply": client.execute_command(*json.loads(line))}
    except RedisError as error:
        outcome = {"error": str(error), "class": type(error).__name__}
    print(json.dumps(outcome), flush=True)
