// The client. A push is numbered by a source that no other push uses meanwhile, so that the server
// recognises one that is sent again after its reply was lost. A number is used up when its push is
// accepted. What may wait in the server has a connection of its own while it does.
'use strict';

const { AsyncLocalStorage } = require('node:async_hooks');
const { randomBytes } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const { fromBytes, milliseconds, readable, toBytes } = require('./codec.js');
const { Full, Gap, Gone, MillraceError, Stopped, Timeout, Unreachable, Usage } =
  require('./errors.js');
const { addressOf, dial, mayRepeat } = require('./wire.js');

const REPEAT_MS = 25_000; // a server remembers the numbers of a source for a minute at least
const SLACK_MS = 5000; // the server reports that a call has expired before its client gives up
const WAIT_MS = 10_000; // of one command that waits
const PAUSE_LEAST_MS = 50;
const PAUSE_MOST_MS = 2000;
const MANY = 256; // pushes of pushMany in one command …
const MANY_BYTES = 1 << 20; // … and bytes of them, about
const LANES_KEPT = 8;

// The trace that the running handler belongs to; pushes and emits carry it on.
const trace = new AsyncLocalStorage();
const now = () => performance.now();

const PUSH_WORDS = {
  key: 'KEY', once: 'ONCE', last: 'LAST', delay: 'DELAY', deadline: 'DEADLINE', room: 'ROOM',
  attempts: 'ATTEMPTS', meta: 'META',
};
const TIMES = new Set(['delay', 'deadline', 'room']);

/** The options of a push as words of the protocol. */
function pushWords(options) {
  const words = [];
  for (const [name, value] of Object.entries(options)) {
    const word = Object.hasOwn(PUSH_WORDS, name) && PUSH_WORDS[name];
    if (!word) {
      throw new Usage(`there is no option ${name}; there are ${Object.keys(PUSH_WORDS).join(' ')}`);
    }
    if (!value) continue;
    words.push(word);
    if (TIMES.has(name)) words.push(milliseconds(value, name));
    else if (name === 'meta') words.push(toBytes(value, 'metadata'));
    else if (name !== 'last') words.push(value);
  }
  const parent = options.meta ? undefined : trace.getStore();
  if (parent) words.push('META', JSON.stringify({ traceparent: parent }));
  return words;
}

/** A connection that comes back, to any of the nodes. */
class Link {
  constructor(address, name, logger, onPush) {
    Object.assign(this, { address, name, logger, onPush });
    this.wire = undefined;
    this.closed = false;
    this.dialing = undefined;
    this.node = Math.floor(Math.random() * address.nodes.length);
  }

  get up() {
    return this.wire && !this.wire.closed ? this.wire : undefined;
  }

  /** A connection that is up. Tries each node once; throws the last one's error. */
  async get() {
    if (this.up) return this.up;
    this.dialing ??= this.dial().finally(() => {
      this.dialing = undefined;
    });
    return this.dialing;
  }

  async dial() {
    const { nodes } = this.address;
    for (let left = nodes.length; ; left--) {
      if (this.closed) {
        throw Object.assign(new Unreachable('the client was closed'), { lasting: true });
      }
      const node = nodes[this.node % nodes.length];
      try {
        this.wire = await dial(this.address, node, this.name, this.onPush);
      } catch (error) {
        this.node++;
        if (left <= 1 || !(error instanceof Unreachable || error instanceof Stopped)) throw error;
        continue;
      }
      if (this.closed) this.wire.close();
      this.logger.debug?.(`connected to ${node.text}`);
      return this.wire;
    }
  }

  async ask(words) {
    return (await this.get()).ask(words);
  }

  /** Runs a command that may be sent twice, again after each loss of the connection. */
  async repeat(command, withinMs = REPEAT_MS, signal = undefined) {
    const until = now() + Math.min(withinMs, REPEAT_MS);
    for (let pause = PAUSE_LEAST_MS; ; pause = Math.min(2 * pause, PAUSE_MOST_MS)) {
      signal?.throwIfAborted();
      try {
        return await command(this.up ?? await this.get());
      } catch (error) {
        if (!mayRepeat(error) || this.closed || now() + pause > until) throw error;
        this.logger.info?.(`${error.reason}; trying again`);
      }
      await sleep(pause * (0.5 + Math.random() / 2));
    }
  }

  /** The next command has a new connection; this one is closed when all replies have come. */
  renew(wire) {
    if (this.wire === wire) this.wire = undefined;
    wire.retire();
  }

  close() {
    this.closed = true;
    this.wire?.close('the client was closed');
  }
}

/** A series of numbers for pushes to one stage. */
class Source {
  constructor() {
    this.name = `node-${randomBytes(16).toString('hex')}`;
    this.number = 0;
  }
}

class Millrace {
  #main;
  #lanes = []; // idle connections for commands that wait …
  #busy = new Set(); // … and those in use
  #sources = new Map(); // by stage: those that are free
  #calls = new Map(); // by id: a set of calls, for two may have one name
  #workers = new Set();
  #runs = false;

  constructor(url, { token, tls, name, logger } = {}) {
    this.address = addressOf(
      url || process.env.MILLRACE_URL || 'millrace://127.0.0.1:7411', token, tls);
    this.name = name || `node-${process.pid}-${randomBytes(4).toString('hex')}`;
    this.logger = logger ?? { warn: (text) => console.warn(text) };
    this.#main = this.link((message) => this.#pushed(message));
  }

  link(onPush) {
    return new Link(this.address, this.name, this.logger, onPush);
  }

  /** Stops workers as their close() does, then closes all connections. */
  async close() {
    await Promise.allSettled([...this.#workers].map((worker) => worker.close()));
    for (const link of [this.#main, ...this.#lanes, ...this.#busy]) link.close();
  }

  /** Uses a connection of its own, which is closed if the signal aborts. */
  async #onLane(use, signal) {
    signal?.throwIfAborted();
    const lane = this.#lanes.pop() ?? this.link((message) => this.#pushed(message));
    const abort = () => lane.close();
    this.#busy.add(lane);
    signal?.addEventListener('abort', abort);
    try {
      const reply = await use(lane);
      if (this.#main.closed || this.#lanes.length >= LANES_KEPT) lane.close();
      if (!lane.closed) this.#lanes.push(lane);
      return reply;
    } catch (error) {
      lane.close();
      signal?.throwIfAborted();
      throw error;
    } finally {
      this.#busy.delete(lane);
      signal?.removeEventListener('abort', abort);
    }
  }

  /** A push that waits for room blocks its connection. */
  #linkFor(options, use, signal) {
    return options.room ? this.#onLane(use, signal) : use(this.#main);
  }

  // ---- Pushing ---------------------------------------------------------------------------------

  async push(stage, body = '', options = {}) {
    const words = ['PUSH', stage, toBytes(body), ...pushWords(options)];
    return String(await this.#numbered(stage, options, (number) => [...words, ...number]));
  }

  async pushMany(stage, items, options = {}) {
    const ids = [];
    const head = ['PUSHMANY', stage, ...pushWords(options)];
    try {
      for (let some of portions(items)) {
        while (some.length) { // a reply with fewer ids: the next one was refused, and says why
          const words = ['ITEMS', ...some.flat()];
          const reply = await this.#numbered(stage, options, (n) => [...head, ...n, ...words]);
          ids.push(...reply.map(String));
          some = some.slice(reply.length);
        }
      }
    } catch (error) {
      throw Object.assign(error, { ids });
    }
    return ids;
  }

  async #numbered(stage, options, words) {
    if (!this.#sources.has(stage)) this.#sources.set(stage, []);
    const free = this.#sources.get(stage);
    let source = free.pop() ?? new Source();
    return this.#linkFor(options, async (link) => {
      let wire;
      let unknown = false; // whether a lost push has used the number: then no other push may use it
      const send = async (on) => {
        wire = on;
        try {
          return await on.ask(words(['SOURCE', source.name, source.number + 1]), roomOf(options));
        } catch (error) {
          unknown ||= error instanceof Unreachable || error instanceof Stopped;
          throw error;
        }
      };
      for (let again = true; ; again = false) {
        try {
          const reply = await link.repeat(send);
          source.number += Array.isArray(reply) ? reply.length : 1;
          free.push(source);
          return reply;
        } catch (error) {
          const forgotten = error instanceof Gap; // it was not used for long
          const spoilt = error instanceof Full && /connect again$/.test(error.reason);
          if (again && !unknown && (forgotten || spoilt)) {
            if (forgotten) source = new Source();
            else link.renew(wire); // pushes of many other sources were refused on it
            continue;
          }
          if (!unknown) free.push(source);
          throw error;
        }
      }
    });
  }

  // ---- Results ---------------------------------------------------------------------------------

  async call(stage, body = '', { timeout = 30_000, signal, ...options } = {}) {
    const until = now() + timeout;
    const slack = options.deadline ? 0 : SLACK_MS;
    const head = ['CALL', stage, toBytes(body)];
    const once = options.once ?? randomBytes(16).toString('hex'); // so that it can be sent again
    const late = `${stage} has not answered within ${timeout} ms`;
    const call = (stop) => this.#linkFor(options, async (link) => {
      for (;;) {
        const left = Math.max(1, until - now());
        const deadline = Number.isFinite(left) ? left : 0;
        const words = [...head, ...pushWords({ deadline, ...options, once }), 'LATER'];
        const sent = await link.repeat(
          (wire) => this.#callOn(wire, words, roomOf(options)), left, stop);
        const end = await this.#endOf(sent, stop);
        if (end === 'given up') await this.#withdraw(link, sent);
        else if (end !== 'lost') return resultOf(end.result);
      }
    }, stop);
    return within(timeout + slack, signal, late, call);
  }

  #callOn(wire, words, waits) {
    return new Promise((resolve, reject) => {
      const register = (reply) => {
        const call = { id: String(reply), wire };
        call.end = new Promise((settle) => {
          call.settle = settle;
        });
        call.lost = () => call.settle('lost');
        wire.onClose.add(call.lost);
        if (!this.#calls.has(call.id)) this.#calls.set(call.id, new Set());
        this.#calls.get(call.id).add(call);
        resolve(call);
      };
      wire.send(words, register, reject, waits);
    });
  }

  /** The end of the job, or why there is none: lost or given up. */
  async #endOf(call, stop) {
    const giveUp = () => call.settle('given up');
    stop.addEventListener('abort', giveUp);
    if (stop.aborted) giveUp();
    try {
      return await call.end;
    } finally {
      stop.removeEventListener('abort', giveUp);
      call.wire.onClose.delete(call.lost);
      call.wire.letGo();
      const calls = this.#calls.get(call.id);
      calls.delete(call);
      if (calls.size === 0) this.#calls.delete(call.id);
    }
  }

  async #withdraw(link, call) {
    if (this.#calls.has(call.id)) return; // another one waits for it
    try {
      await link.ask(['CANCEL', call.id]);
    } catch (error) {
      this.logger.debug?.(`cancelling ${call.id}: ${error.message}`);
    }
  }

  #pushed([kind, id, result]) {
    if (String(kind) !== 'ended') return;
    for (const call of this.#calls.get(String(id)) ?? []) call.settle({ result });
  }

  async wait(id, { timeout = 30_000, signal } = {}) {
    const late = `job ${id} has not ended within ${timeout} ms`;
    return fromBytes(await this.#await(['AWAIT', id], timeout, signal, (r) => r !== null, late));
  }

  await(id, options) {
    return this.wait(id, options);
  }

  /** Sends a command with WAIT, in pieces, until `over` accepts the reply. */
  #await(words, timeout, signal, over, late) {
    const until = now() + (timeout < 0 ? Infinity : timeout);
    return within(until - now() + SLACK_MS, signal, late, (stop) => this.#onLane(async (lane) => {
      for (;;) {
        const left = Math.max(0, until - now());
        const ms = Math.ceil(Math.min(left, WAIT_MS));
        const reply = await lane.repeat((wire) => wire.ask([...words, 'WAIT', ms], ms));
        if (over(reply)) return reply;
        if (!left) throw new Timeout(late);
      }
    }, stop));
  }

  async cancel(...ids) {
    return this.repeat(['CANCEL', ...ids]);
  }

  // ---- Everything else -------------------------------------------------------------------------

  async command(...words) {
    return readable(await this.#main.ask(words));
  }

  async job(id) {
    return this.repeat(['JOB', id]);
  }

  /** A command that may be sent twice; its reply with text in place of bytes. */
  async repeat(words, options = {}) {
    return readable(await this.#linkFor(
      options, (link) => link.repeat((wire) => wire.ask(words, roomOf(options)))));
  }

  epic(stage, name) {
    return new Epic(this, (...wait) => this.#await(...wait), stage, name);
  }

  work(stages, handler, options = {}) {
    const { Worker } = require('./worker.js');
    const worker = new Worker(this, stages, handler, options);
    this.#workers.add(worker);
    worker.done.catch(() => {}).finally(() => this.#workers.delete(worker));
    return worker;
  }

  /** Works until SIGTERM, Ctrl-C or stop(). Throws what ended a worker before that. */
  async run({ signals = true } = {}) {
    if (!this.#workers.size) {
      throw new Usage('there is no worker: call m.work(stage, handler) first');
    }
    if (this.#runs) throw new Usage('run() is working already: stop() makes it return');
    this.#runs = true;
    const stop = () => this.stop();
    const caught = signals ? ['SIGTERM', 'SIGINT'] : [];
    for (const name of caught) process.once(name, stop);
    const ends = () => [...this.#workers].map((worker) => worker.done);
    try {
      await Promise.all(ends());
    } finally {
      this.stop();
      await Promise.allSettled(ends());
      this.#runs = false;
      for (const name of caught) process.off(name, stop);
    }
  }

  /** Makes run() finish: from now on nothing is taken. */
  stop() {
    for (const worker of this.#workers) worker.stop();
  }
}

/** Pushes that are numbered from 1, each made once however often it is repeated. */
class Epic {
  #client;
  #wait;

  constructor(client, wait, stage, name) {
    this.#client = client;
    this.#wait = wait;
    this.stage = stage;
    this.name = name;
  }

  #ask(...words) {
    return this.#client.repeat(['EPIC', this.stage, this.name, ...words]);
  }

  async push(number, body = '', options = {}) {
    const epic = ['EPIC', this.name, number];
    return this.#client.repeat(
      ['PUSH', this.stage, toBytes(body), ...pushWords(options), ...epic], options);
  }

  async look() {
    try {
      return await this.#ask();
    } catch (error) {
      if (error instanceof Gone) return { resume: 1, total: -1, accepted: 0 };
      throw error;
    }
  }

  async end(last) {
    await this.#ask('END', last);
  }

  async wait({ left, timeout = -1, signal } = {}) {
    const late = `epic ${this.name} of ${this.stage} has not ended within ${timeout} ms`;
    const words = ['EPIC', this.stage, this.name, ...(left === undefined ? [] : ['LEFT', left])];
    const over = ({ total, resume, stopped, waiting, running }) => {
      const isWhole = (total >= 0 && resume > total) || stopped;
      return left === undefined ? isWhole && waiting + running === 0 : waiting + running <= left;
    };
    return readable(await this.#wait(words, timeout, signal, over, late));
  }

  async skip(number) {
    await this.#ask('SKIP', number);
  }

  async forget(ms) {
    await this.#ask('FORGET', milliseconds(ms, 'forget'));
  }

  async thenPush(stage, body = '', { key = '' } = {}) {
    await this.#ask('THEN', stage, key, toBytes(body));
  }

  async cancel() {
    await this.#ask('CANCEL');
  }

  async drop() {
    await this.#ask('DROP');
  }
}

/** Items as keys and bodies, so many at a time as one command carries. */
function* portions(items) {
  let some = [];
  let bytes = 0;
  for (const item of items) {
    if (item === null || typeof item !== 'object' || !('body' in item)) {
      throw new Usage('each item of pushMany is { body } or { key, body }');
    }
    const body = toBytes(item.body);
    some.push([item.key ?? '', body]);
    bytes += body.length;
    if (some.length < MANY && bytes < MANY_BYTES) continue;
    yield some;
    some = [];
    bytes = 0;
  }
  if (some.length) yield some;
}

/** What `start(stop)` returns; or the reason of the signal, or Timeout after this time: then `stop`
 *  aborts, too. */
function within(ms, signal, late, start) {
  signal?.throwIfAborted();
  const stop = new AbortController();
  const abort = () => stop.abort(signal.reason);
  const timer = setTimeout(
    () => stop.abort(new Timeout(late)), Math.min(Math.max(0, ms), 2 ** 31 - 1));
  signal?.addEventListener('abort', abort);
  const stopped = new Promise((_, reject) => {
    stop.signal.addEventListener('abort', () => reject(stop.signal.reason));
  });
  return Promise.race([start(stop.signal), stopped]).finally(() => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  });
}

function roomOf({ room = 0 }) {
  return room < 0 ? Infinity : room;
}

function resultOf(end) {
  if (end instanceof MillraceError) throw end;
  return fromBytes(end);
}

module.exports = {
  Epic, Millrace, PAUSE_LEAST_MS, PAUSE_MOST_MS, now, pushWords, trace,
};
