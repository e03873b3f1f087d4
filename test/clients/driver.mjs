// driver.mjs: uses the library for Node for library_test.py. Reads a request a line as JSON, runs them beside one
// another, and writes a line for each reply and each thing that happens. Times of requests are seconds.
import fs from 'node:fs';
import readline from 'node:readline';
import { Dead, Millrace, Snooze } from '../../clients/node/index.mjs';

const { MILLRACE_CA: ca, MILLRACE_NAME: name } = process.env;
const log = (level) => (text) => process.stderr.write(`${level} ${text}\n`);
const logger = { debug: log('debug'), info: log('info'), warn: log('warn') };
const m = new Millrace(undefined, { name, logger, tls: ca && { ca: fs.readFileSync(ca) } });
const gates = new Map();
const snoozed = new Set();
const active = new Set();

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function gateOf(id) {
    if (!gates.has(id)) {
        const gate = {};
        gate.opened = new Promise((resolve) => (gate.open = resolve));
        gates.set(id, gate);
    }
    return gates.get(id);
}

// Until the test lets it go on, or it must stop.
async function hold(job, signal) {
    const stopped = new Promise((resolve) => signal.addEventListener('abort', resolve));
    await Promise.race([gateOf(job.id).opened, stopped]);
    if (job.cancelled) say({ event: 'stopped', id: job.id });
}

async function handle(job, { signal }) {
    const { id, stage, key, body, attempt, meta = null } = job;
    say({ event: 'start', id, stage, key, body, attempt, meta });
    if (stage === 'json') return job.json();
    switch (body.act) {
        case 'hang': // whatever is asked of it
            await gateOf(id).opened;
            say({ event: 'hung', id });
            break;
        case 'alone': // no other handler runs meanwhile
            active.add(id);
            await null;
            if (active.size > 1) say({ event: 'together', ids: [...active] });
            active.delete(id);
            break;
        case 'stop':
            m.stop();
            break;
        case 'fail':
            if (attempt <= body.times) throw new Error(body.reason);
            break;
        case 'dead':
            throw new Dead(body.reason);
        case 'snooze':
            if (!snoozed.has(id)) throw snoozed.add(id) && new Snooze(body.seconds * 1000);
            break;
        case 'progress':
            job.progress(3, 10, 'attachments');
            await hold(job, signal);
            break;
        case 'hold':
            await hold(job, signal);
            break;
        case 'count':
            return (job.state = { count: (job.state?.count ?? 0) + 1 });
        case 'emit':
            job.emit(body.stage, body.body, { key });
            job.state = 'emitted';
            if (attempt <= (body.times ?? 0)) throw new Error('after its emit');
            break;
        case 'push':
            await m.push(body.stage, body.body);
            break;
        case 'unencodable':
            return { a: 10n };
    }
    return body.result;
}

async function work(stages, options) {
    m.work(stages, handle, options);
    await m.run({ signals: false });
}

const REQUESTS = {
    push: (stage, body, o) => m.push(stage, body, o),
    push_many: (stage, items, o) => m.pushMany(stage, items.map(([key, body]) => ({ key, body })), o),
    call: (stage, body, o) => m.call(stage, body, o),
    wait: (id, o) => m.wait(id, o),
    cancel: (...ids) => m.cancel(...ids.slice(0, -1)),
    job: (id) => m.job(id),
    work,
    stop: () => m.stop(),
    let: (id) => gateOf(id).open(),
    epic_push: (stage, epic, n, body, o) => m.epic(stage, epic).push(n, body, o),
    epic_look: async (stage, epic) => (await m.epic(stage, epic).look()).resume,
    epic_end: (stage, epic, n) => m.epic(stage, epic).end(n),
    epic_left: async (stage, epic, left) => (await m.epic(stage, epic).wait({ left })).waiting,
    epic_then: (stage, epic, then, body, o) => m.epic(stage, epic).thenPush(then, body, o),
    epic_cancel: (stage, epic) => m.epic(stage, epic).cancel(),
    epic_forget: (stage, epic, seconds) => m.epic(stage, epic).forget(1000 * seconds),
    epic_wait: async (stage, epic) => (await m.epic(stage, epic).wait()).done,
    work_again: () => m.run({ signals: false }),
    unencodable: () => m.push('s', { a: 10n }),
    level: (stage) => m.command('LEVEL', stage),
};
const TIMES = ['delay', 'deadline', 'room', 'timeout', 'lease', 'grace'];

async function run({ n, do: what, args, options }) {
    for (const time of TIMES) if (time in options) options[time] *= 1000;
    try {
        say({ n, reply: (await REQUESTS[what](...args, options)) ?? null });
    } catch (error) {
        say({ n, error: error.name, reason: error.message });
    }
}

for await (const line of readline.createInterface({ input: process.stdin })) run(JSON.parse(line));
process.exit();
