// The client. A push is numbered by a source that no other push uses meanwhile, so that the server recognises one that
// is sent again after its reply was lost. A number is used up when its push is accepted.
'use strict';

const { AsyncLocalStorage } = require('node:async_hooks');
const { randomUUID } = require('node:crypto');
const { fromBytes, milliseconds, toBytes } = require('./codec.js');
const { addressOf } = require('./connection.js');
const { Gap, Gone, Usage } = require('./errors.js');
const { Links, REPEAT_MS, SLACK_MS, now } = require('./links.js');

const STAGES_KEPT = 1000; // that have free sources
const MANY = 256; // pushes of pushMany in one command …
const MANY_BYTES = 1 << 20; // … and bytes of them, about

// The trace that the running handler belongs to; pushes and emits carry it on.
const trace = new AsyncLocalStorage();

// The options of a push: the word of the protocol, and how the value behind it is written.
const same = (value) => value;
const PUSH_OPTIONS = {
  key: ['KEY', same], once: ['ONCE', same], last: ['LAST'], attempts: ['ATTEMPTS', same], meta: ['META', toBytes],
  delay: ['DELAY', milliseconds], deadline: ['DEADLINE', milliseconds], room: ['ROOM', milliseconds],
};

function pushWords(options) {
  const words = [];
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(PUSH_OPTIONS, name)) {
      throw new Usage(`a push has no option ${name}; it has ${Object.keys(PUSH_OPTIONS).join(' ')}`);
    }
    const [word, write] = PUSH_OPTIONS[name];
    if (options[name]) words.push(word, ...(write ? [write(options[name], name)] : []));
  }
  const parent = options.meta ? undefined : trace.getStore();
  if (parent) words.push('META', JSON.stringify({ traceparent: parent }));
  return words;
}

const roomOf = ({ room = 0 }) => (room < 0 ? Infinity : room);

/** Keys and bodies, so many at a time as one command carries. */
function* portions(items) {
  let some = [];
  let bytes = 0;
  for (const item of items) {
    if (item?.body === undefined) throw new Usage('each item of pushMany is { body } or { key, body }');
    const body = toBytes(item.body);
    some.push(item.key ?? '', body);
    bytes += body.length;
    if (some.length < 2 * MANY && bytes < MANY_BYTES) continue;
    yield some;
    [some, bytes] = [[], 0];
  }
  if (some.length) yield some;
}

class Millrace {
  #links;
  #sources = new Map(); // by stage: those that no push uses
  #workers = new Set();
  #runs = false;

  constructor(url, { token, tls, name, logger } = {}) {
    const address = addressOf(url || process.env.MILLRACE_URL || 'millrace://127.0.0.1:7411', token, tls);
    this.name = name || `node-${process.pid}-${randomUUID().slice(0, 8)}`;
    this.#links = new Links(address, this.name, logger ?? { warn: (text) => console.warn(text) });
  }

  /** Stops workers as their close() does, then closes all connections. */
  async close() {
    await Promise.allSettled([...this.#workers].map((worker) => worker.close()));
    this.#links.close();
  }

  // ---- Pushing ---------------------------------------------------------------------------------

  async push(stage, body = '', options = {}) {
    return await this.#numbered(stage, ['PUSH', stage, toBytes(body), ...pushWords(options)], [], options);
  }

  async pushMany(stage, items, options = {}) {
    const ids = [];
    const head = ['PUSHMANY', stage, ...pushWords(options)];
    try {
      for (let some of portions(items)) {
        while (some.length) { // a reply with fewer ids: the next one was refused, and says why
          const more = await this.#numbered(stage, head, ['ITEMS', ...some], options);
          ids.push(...more);
          some = some.slice(2 * more.length);
        }
      }
    } catch (error) {
      throw Object.assign(error, { ids });
    }
    return ids;
  }

  async #numbered(stage, head, tail, options, isFirst = true) {
    if (this.#sources.size > STAGES_KEPT) this.#sources.clear();
    if (!this.#sources.has(stage)) this.#sources.set(stage, []);
    const free = this.#sources.get(stage);
    const source = (isFirst && free.pop()) || { name: `node-${randomUUID()}`, number: 0 };
    const words = [...head, 'SOURCE', source.name, source.number + 1, ...tail];
    const waits = roomOf(options);
    try {
      const reply = await this.#links.ask(words, { waits });
      source.number += Array.isArray(reply) ? reply.length : 1;
      free.push(source);
      return reply;
    } catch (error) {
      if (isFirst && error instanceof Gap) { // the source is not known, and so no push of it
        return this.#numbered(stage, head, tail, options, false);
      }
      if (!error.wasLost) free.push(source); // otherwise what was lost may have used the number
      throw error;
    }
  }

  // ---- Results ---------------------------------------------------------------------------------

  async call(stage, body = '', { timeout = 30_000, signal, ...options } = {}) {
    const until = now() + timeout;
    const head = ['CALL', stage, toBytes(body)];
    const once = options.once || randomUUID(); // so that it can be sent again
    const waits = roomOf(options) || (options.once ? 1 : 0); // to close a connection leaves the job to other callers
    const use = (link, stop) => {
      const left = Math.max(1, until - now());
      const words = pushWords({ deadline: Number.isFinite(left) ? left : 0, ...options, once });
      return link.call([...head, ...words, 'LATER'], waits, stop);
    };
    const late = `${stage} has not answered within ${timeout} ms`;
    const limit = Math.min(timeout, REPEAT_MS);
    return fromBytes(await this.#links.within(timeout + (options.deadline ? 0 : SLACK_MS), signal, late,
      (stop) => this.#links.send((link) => use(link, stop), { waits, limit, stop })));
  }

  async wait(id, { timeout = 30_000, signal } = {}) {
    const late = `job ${id} has not ended within ${timeout} ms`;
    return fromBytes(await this.#links.wait(['AWAIT', id], { timeout, signal }, late, (reply) => reply !== null));
  }

  await(id, options) { return this.wait(id, options); }
  async cancel(...ids) { return this.#links.ask(['CANCEL', ...ids]); }
  async job(id) { return this.#links.ask(['JOB', id]); }
  async command(...words) { return (await this.#links.main()).ask(words); }
  epic(stage, name) { return new Epic(this.#links, stage, name); }

  // ---- Workers ---------------------------------------------------------------------------------

  work(stages, handler, options = {}) {
    const { Worker } = require('./worker.js');
    const worker = new Worker(this.#links, stages, handler, options);
    this.#workers.add(worker);
    worker.done.catch(() => {}).finally(() => this.#workers.delete(worker));
    return worker;
  }

  /** Works until SIGTERM, Ctrl-C or stop(); a second signal ends the program. Throws what ended a worker before that. */
  async run({ signals = true, ...rest } = {}) {
    const [unknown] = Object.keys(rest);
    if (unknown) throw new Usage(`run() has no option ${unknown}; it has signals`);
    if (!this.#workers.size) throw new Usage('there is no worker: call m.work(stage, handler) first');
    if (this.#runs) throw new Usage('run() is working already: stop() makes it return');
    this.#runs = true;
    const caught = signals ? ['SIGTERM', 'SIGINT'] : [];
    const restore = () => caught.forEach((name) => process.off(name, interrupt));
    const interrupt = () => {
      restore();
      this.#links.logger.warn?.('taking no more; what runs may finish (again to end it)');
      this.stop();
    };
    for (const name of caught) process.on(name, interrupt);
    const ends = () => [...this.#workers].map((worker) => worker.done);
    try {
      await Promise.all(ends());
    } finally {
      this.stop();
      await Promise.allSettled(ends());
      this.#runs = false;
      restore();
    }
  }

  /** Makes run() finish: from now on nothing is taken. */
  stop() {
    for (const worker of this.#workers) worker.stop();
  }
}

/** Pushes that are numbered from 1, each made once however often it is repeated. */
class Epic {
  #links;

  constructor(links, stage, name) {
    this.#links = links;
    Object.assign(this, { stage, name });
  }

  #ask(...words) { return this.#links.ask(['EPIC', this.stage, this.name, ...words]); }

  async push(number, body = '', options = {}) {
    const words = ['PUSH', this.stage, toBytes(body), ...pushWords(options), 'EPIC', this.name, number];
    return this.#links.ask(words, { waits: roomOf(options) });
  }

  async look() {
    return this.#ask().catch((error) => {
      if (error instanceof Gone) return { resume: 1, total: -1, accepted: 0 };
      throw error;
    });
  }

  async wait({ left, timeout = -1, signal } = {}) {
    const late = `epic ${this.name} of ${this.stage} has not ended within ${timeout} ms`;
    const words = ['EPIC', this.stage, this.name, ...(left === undefined ? [] : ['LEFT', left])];
    return this.#links.wait(words, { timeout, signal }, late, ({ total, resume, stopped, waiting, running }) => {
      const isWhole = (total >= 0 && resume > total) || stopped;
      return left === undefined ? isWhole && waiting + running === 0 : waiting + running <= left;
    });
  }

  async end(last) { await this.#ask('END', last); }
  async skip(number) { await this.#ask('SKIP', number); }
  async forget(ms) { await this.#ask('FORGET', milliseconds(ms, 'forget')); }
  async thenPush(stage, body = '', { key = '' } = {}) { await this.#ask('THEN', stage, key, toBytes(body)); }
  async cancel() { await this.#ask('CANCEL'); }
  async drop() { await this.#ask('DROP'); }
}

module.exports = { Epic, Millrace, pushWords, trace };
