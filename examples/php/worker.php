<?php
// A worker with phpredis: php worker.php [HOST:PORT]. PHP runs one thing at a time, so it beats between the steps of a
// job; a job of one long step needs a lease that is longer than that.
const WAIT_S = 20; // TAKE answers after this at the latest: longer silence is a dead connection
[$host, $port] = explode(':', $argv[1] ?? '127.0.0.1:7411');

function connect(string $host, int $port): Redis
{
    $client = new Redis();
    $client->connect($host, $port, 5, null, 0, WAIT_S + 10); // the last one is the timeout of reads
    $client->setOption(Redis::OPT_MAX_RETRIES, 0); // connect() above does that
    return $client;
}

// rawCommand answers false to an error; its text is in getLastError.
function ask(Redis $client, string ...$words)
{
    $client->clearLastError();
    $reply = $client->rawCommand(...$words);
    if ($client->getLastError() !== null) {
        throw new RuntimeException($client->getLastError());
    }
    return $reply;
}

function greet(string $name, callable $beat): string
{
    $beat(); // a longer job would do this repeatedly
    return "hello, $name";
}

function work(Redis $client, array $job): void
{
    [$id, $token, , , $body] = $job;
    $beat = function () use ($client, $id, $token) {
        if (ask($client, 'BEAT', $id, $token)) {
            throw new RuntimeException('cancelled');
        }
    };
    try {
        $words = ['DONE', $id, $token, 'RESULT', greet($body, $beat)];
    } catch (RuntimeException $error) {
        $words = ['FAIL', $id, $token, $error->getMessage()];
    }
    ask($client, ...$words); // STALE, CANCELLED or EXPIRED: it came too late, and changed nothing
}

$client = null;
while (true) { // SIGTERM ends it; with the extension pcntl it could finish its job first
    try {
        $client ??= connect($host, (int) $port);
        foreach (ask($client, 'TAKE', 'greetings', 'WAIT', (string) (1000 * WAIT_S)) as $job) {
            work($client, $job);
        }
    } catch (RedisException | RuntimeException $error) {
        fwrite(STDERR, $error->getMessage() . "\n");
        $client = $error instanceof RedisException ? null : $client;
        sleep(1);
    }
}
