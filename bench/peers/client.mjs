// client.mjs PEER ROLE URL JOBS AT_ONCE: as client.py, for Node. PEER is millrace or bullmq.
import { once } from 'node:events';
import { createRequire } from 'node:module';

const [peer, role, url, ...numbers] = process.argv.slice(2);
const [jobs, atOnce] = numbers.map(Number);
const body = { text: 'x'.repeat(53) }; // 64 bytes of JSON
let began, cpu;

async function begin() {
    console.log('ready');
    await once(process.stdin, 'data');
    began = performance.now();
    cpu = process.cpuUsage();
}

function* portions() {
    for (let first = 0; first < jobs; first += atOnce) yield Math.min(atOnce, jobs - first);
}

// A handler that does nothing but count, and the promise of its last job.
function counted() {
    let left = jobs, last;
    const over = new Promise((resolve) => (last = resolve));
    const handler = async () => {
        if (!--left) last();
    };
    return { handler, over };
}

const peers = {
    async millrace() {
        const require = createRequire(`${process.env.MILLRACE_ROOT}/clients/node/`);
        const { Millrace } = require('./index.js');
        const m = new Millrace(url);
        await m.command('PING');
        await begin();
        if (role === 'push') {
            for (const size of portions()) {
                if (size === 1) await m.push('bench', body);
                else await m.pushMany('bench', Array.from({ length: size }, () => ({ body })));
            }
            return;
        }
        const { handler, over } = counted();
        const worker = m.work('bench', handler, { concurrency: atOnce });
        await over;
        await worker.close();
    },
    async bullmq() {
        const { Queue, Worker } = await import('bullmq');
        const { hostname: host, port } = new URL(url);
        const connection = { host, port: Number(port), maxRetriesPerRequest: null };
        const options = { removeOnComplete: true };
        if (role === 'push') {
            const queue = new Queue('bench', { connection, skipMetasUpdate: true });
            await queue.waitUntilReady();
            await begin();
            for (const size of portions()) {
                if (size === 1) await queue.add('bench', body, options);
                else await queue.addBulk(Array.from({ length: size }, () => ({ name: 'bench', data: body, opts: options })));
            }
            return;
        }
        const { handler, over } = counted();
        const worker = new Worker('bench', handler, { connection, concurrency: atOnce, autorun: false });
        await worker.waitUntilReady();
        await begin();
        worker.run();
        await over;
        await worker.close();
    },
};

await peers[peer]();
const { user, system } = process.cpuUsage(cpu);
console.log('done', (performance.now() - began) / 1e3, (user + system) / 1e6);
process.exit();
