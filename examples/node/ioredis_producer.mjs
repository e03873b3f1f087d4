// A producer with ioredis: node ioredis_producer.mjs [redis://HOST:PORT [NAME]]
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';

const [url = 'redis://127.0.0.1:7411', name = 'world'] = process.argv.slice(2);
const redis = new Redis(url);
redis.on('error', (error) => console.error(error.message)); // it connects again by itself

// When a connection is lost, ioredis sends again what was not answered, also a push that arrived:
// ONCE makes one job of the two.
const id = await redis.call('PUSH', 'greetings', name, 'KEY', name, 'ONCE', randomUUID());
console.log(await redis.call('AWAIT', id, 'WAIT', 20000)); // null: not in time
redis.disconnect();
