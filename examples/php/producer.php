<?php
// A producer with phpredis: php producer.php [HOST:PORT [NAME…]]
[$host, $port] = explode(':', $argv[1] ?? '127.0.0.1:7411');
$pushes = array_map(fn ($name) => ['PUSH', 'greetings', $name, 'KEY', $name, 'ONCE', bin2hex(random_bytes(16))],
    array_slice($argv, 2) ?: ['world']);

// All pushes in one write. phpredis sends nothing twice: when a reply is lost, this program repeats them, and ONCE makes
// each one job.
function push_all(string $host, int $port, array $pushes): array
{
    for ($tries = 1; ; $tries++) {
        try {
            $client = new Redis();
            $client->connect($host, $port, 5, null, 0, 30); // reads wait longer than AWAIT does
            $pipeline = $client->multi(Redis::PIPELINE);
            foreach ($pushes as $words) {
                $pipeline->rawCommand(...$words);
            }
            $ids = $pipeline->exec();
            if (!is_array($ids) || in_array(false, $ids, true)) {
                throw new RedisException('a push has no reply');
            }
            return [$client, $ids];
        } catch (RedisException $error) {
            if ($tries === 3) {
                throw $error;
            }
        }
    }
}

[$client, $ids] = push_all($host, (int) $port, $pushes);
foreach ($ids as $id) {
    $result = $client->rawCommand('AWAIT', $id, 'WAIT', '20000');
    echo is_string($result) ? $result : 'not in time', "\n";
}
