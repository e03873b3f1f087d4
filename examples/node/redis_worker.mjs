// A worker with node-redis: node redis_worker.mjs [redis://HOST:PORT]
import { setTimeout as pause } from 'node:timers/promises';
import { createClient } from 'redis';

const WAIT_MS = 20_000; // TAKE answers after this at the latest: longer silence is a dead connection
const client = await createClient({
    url: process.argv[2] ?? 'redis://127.0.0.1:7411',
    socket: { socketTimeout: WAIT_MS + 10_000, reconnectStrategy: 500 },
}).on('error', (error) => console.error(error.message)).connect(); // it connects again by itself
const ask = (...words) => client.sendCommand(words.map(String));

async function greet(name, signal) {
    signal.throwIfAborted(); // a longer job would check this repeatedly
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

let job, stopping = false; // after SIGTERM the running job ends first
process.once('SIGTERM', () => ((stopping = true), job || client.destroy()));
while (!stopping)
    try {
        [job] = await ask('TAKE', 'greetings', 'WAIT', WAIT_MS);
        if (job) await work(job);
    } catch (error) {
        if (!stopping) console.error(error.message), await pause(1000);
    } finally {
        job = undefined;
    }
if (client.isOpen) client.destroy();
