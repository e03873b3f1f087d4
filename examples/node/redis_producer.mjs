// A producer with node-redis: node redis_producer.mjs [redis://HOST:PORT [NAME]]
import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';

const [url = 'redis://127.0.0.1:7411', name = 'world'] = process.argv.slice(2);
const log = (error) => console.error(error.message); // it reconnects by itself
const client = await createClient({ url }).on('error', log).connect();

// node-redis sends nothing twice: when a reply is lost, this program repeats the push. ONCE makes it one job.
async function push(...words) {
    const once = randomUUID();
    for (let tries = 1; ; tries++)
        try {
            return await client.sendCommand(['PUSH', ...words, 'ONCE', once]);
        } catch (error) {
            if (tries === 3 || /^[A-Z]+ /.test(error.message)) throw error; // it was refused
        }
}

const id = await push('greetings', name, 'KEY', name);
console.log(await client.sendCommand(['AWAIT', id, 'WAIT', '20000'])); // null: not in time
client.destroy();
