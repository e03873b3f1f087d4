// A worker with node-redis: node redis_worker.mjs [redis://HOST:PORT]
import { setTimeout as pause } from 'node:timers/promises';
import { createClient } from 'redis';

const WAIT_MS = 20_000; // TAKE answers after this at the latest: silence for longer is a dead connection
const client = createClient({
    url: process.argv[2] ?? 'redis://127.0.0.1:7411',
    socket: { socketTimeout: WAIT_MS + 10_000, reconnectStrategy: (tries) => Math.min(tries * 50, 2000) },
});
client.on('error', (error) => console.error(error.message)); // it connects again by itself
const ask = (...words) => client.sendCommand(words.map(String));

async function greet(name, signal) {
    signal.throwIfAborted(); // a longer job would look again and again
    return `hello, ${name}`;
}

async function work([id, token, , , body, , , , leaseMs]) {
    const stop = new AbortController();
    const beat = async () => (await ask('BEAT', id, token)).includes(id) && stop.abort();
    const timer = setInterval(() => beat().catch(() => stop.abort()), leaseMs / 3);
    const end = await greet(body, stop.signal).then(
        (result) => ['DONE', id, token, 'RESULT', result],
        (error) => ['FAIL', id, token, error.message]);
    clearInterval(timer);
    await ask(...end); // STALE, CANCELLED or EXPIRED: it came too late, and changed nothing
}

let stopping = false, busy = false; // SIGTERM lets the job in hand end
process.once('SIGTERM', () => ((stopping = true), busy || client.destroy()));
await client.connect();
while (!stopping)
    try {
        const [job] = await ask('TAKE', 'greetings', 'WAIT', WAIT_MS);
        busy = Boolean(job);
        if (busy) await work(job).finally(() => (busy = false));
    } catch (error) {
        if (!stopping) await pause(1000, console.error(error.message));
    }
if (client.isOpen) client.destroy();
