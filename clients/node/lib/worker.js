// Workers: one connection takes for all slots, another one carries commits, beats and progress.
// Handlers of one turn of the event loop that return nothing are committed by one command.
'use strict';

const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const { fromBytes, milliseconds, strictJson, textOf, toBytes } = require('./codec.js');
const { PAUSE_LEAST_MS, PAUSE_MOST_MS, pushWords, trace } = require('./client.js');
const { BadBody, Cancelled, Dead, Denied, Draining, Full, Incompatible, MillraceError, Snooze,
  Usage } =
  require('./errors.js');
const { mayRepeat } = require('./wire.js');

const TAKE_MS = 10_000; // a TAKE waits so long at most
const LEVEL_MS = 250;
const LEVEL_MOST = 1024;
const COMMITTED_TOGETHER = 1000;
const UNBLOCK_MS = 20; // between attempts to end a TAKE that waits
const STOPPED_MS = 1000; // for handlers to end whose jobs were given back

/** A leased job. What it emits and its state are committed with its result, or not at all. */
class Job {
  #worker;
  #row;
  #body;
  #emits = [];
  #state; // undefined: unchanged
  #stop; // AbortController, when the handler asks for the signal

  constructor(worker, row) {
    this.#worker = worker;
    this.#row = row;
    this.id = String(row[0]);
    this.token = String(row[1]);
    this.cancelled = false;
  }

  get stage() { return String(this.#row[2]); }
  get key() { return textOf(this.#row[3]); }
  get raw() { return this.#row[4]; }
  get attempt() { return this.#row[5]; }
  get deadline() { return this.#row[6] < 0 ? undefined : this.#row[6]; }
  get lease() { return this.#row[8]; }
  get meta() { return this.#row[9]?.length ? fromBytes(this.#row[9]) : undefined; }

  get body() {
    if (this.#body === undefined) this.#body = fromBytes(this.raw);
    return this.#body;
  }

  json() {
    return strictJson(this.raw);
  }

  get state() {
    if (this.#state === undefined) return fromBytes(this.#row[7]);
    return this.#state.length ? fromBytes(Buffer.from(this.#state)) : null;
  }

  set state(value) {
    this.#state = value === null || value === undefined ? '' : toBytes(value, 'state');
  }

  get signal() {
    if (!this.#stop) {
      this.#stop = new AbortController();
      if (this.cancelled) this.#abort();
    }
    return this.#stop.signal;
  }

  emit(stage, body = '', { key = '', ...options } = {}) {
    this.#emits.push('EMIT', stage, key, toBytes(body), ...pushWords(options));
  }

  progress(done, total = 0, text = '') {
    const say = text ? ['SAY', text] : [];
    this.#worker.report(['PROGRESS', this.id, this.token, done, total, ...say]);
  }

  commitWords(result) {
    const words = ['DONE', this.id, this.token];
    if (result !== undefined && result !== null) words.push('RESULT', toBytes(result, 'result'));
    if (this.#state !== undefined) words.push('STATE', this.#state);
    words.push(...this.#emits);
    return words;
  }

  cancel() {
    if (this.cancelled) return;
    this.cancelled = true;
    this.#abort();
  }

  #abort() {
    this.#stop?.abort(new Cancelled(`job ${this.id} was cancelled, or its lease is lost`));
  }
}

class Worker {
  #client;
  #handler;
  #grace;
  #lease;
  #running = new Map(); // by id
  #answering = 0; // commands that end jobs and were not answered yet
  #plain = []; // jobs to be committed in this turn
  #turning = false;
  #stopping = false;
  #closed = false;
  #taking;
  #answers;
  #takes = false; // a TAKE was sent and not answered
  #connecting = false;
  #pause = 0; // before the next attempt to take
  #over; // called when nothing is taken any more, with an error if that is the reason
  #drained; // called when nothing runs any more
  #beatTimer;
  #beatLease = Infinity; // what the timer was set for
  #busy = true; // whether a job was taken since the level was asked for

  constructor(client, stages, handler, { concurrency = 'auto', lease, grace = 30_000, ...rest }) {
    if (concurrency !== 'auto' && !(Number.isInteger(concurrency) && concurrency > 0)) {
      throw new Usage(`concurrency is a number from 1 on, or 'auto', not ${concurrency}`);
    }
    for (const name of Object.keys(rest)) {
      throw new Usage(`a worker has no option ${name}; it has concurrency lease grace`);
    }
    if (typeof handler !== 'function') throw new Usage('the handler of a worker is a function');
    this.stages = [stages].flat();
    this.level = concurrency === 'auto' ? 2 : concurrency;
    this.#client = client;
    this.#handler = handler;
    this.#grace = grace;
    this.#lease = lease ? ['LEASE', milliseconds(lease, 'lease')] : [];
    this.#taking = client.link((message) => this.#pushed(message));
    this.#answers = client.link();
    this.done = this.#run(concurrency === 'auto');
    this.done.catch(() => {}); // it is logged, and thrown by close() and run()
  }

  /** Takes no more; what runs goes on. */
  stop() {
    if (this.#stopping) return;
    this.#stopping = true;
    this.#unblock();
  }

  async close() {
    this.stop();
    await this.done;
  }

  async #run(auto) {
    let levels;
    try {
      const over = new Promise((resolve, reject) => {
        this.#over = (error) => (error ? reject(error) : resolve());
      });
      if (auto) levels = this.#followLevel();
      this.#soon();
      await over;
    } catch (error) {
      this.#client.logger.warn?.(`the worker of ${this.stages.join(' ')} ends: ${error.message}`);
      throw error;
    } finally {
      this.#stopping = true;
      await this.#drain();
      this.#closed = true;
      clearTimeout(this.#beatTimer);
      clearInterval(levels);
      this.#taking.close();
      this.#answers.close();
    }
  }

  // ---- Taking ----------------------------------------------------------------------------------

  #soon() {
    if (this.#turning) return;
    this.#turning = true;
    setImmediate(() => this.#turn());
  }

  /** Once in a turn of the event loop in which jobs have ended. Plain commits leave before the
   *  TAKE, if one is sent, in one write. */
  #turn() {
    this.#turning = false;
    const free = this.level - this.#running.size;
    if (!this.#takes && !this.#stopping && free > 0) {
      const wire = this.#taking.up;
      if (wire) {
        this.#takes = true;
        this.#commit(wire);
        const options = ['COUNT', free, 'WAIT', TAKE_MS, 'SLOTS', this.level, ...this.#lease];
        wire.send(['TAKE', ...this.stages, ...options],
          (rows) => this.#taken(rows), (error) => this.#lost(error), TAKE_MS);
        wire.flush();
      } else {
        this.#connect();
      }
    }
    if (this.#plain.length) this.#commit(this.#answers.up);
    if (!this.#running.size && !this.#answering) this.#drained?.();
  }

  /** Before what follows the reply is read, such as the cancellation of one of its jobs. */
  #taken(rows) {
    this.#takes = false;
    this.#pause = 0;
    for (const row of rows) this.#begin(new Job(this, row));
    this.#soon();
  }

  #lost(error) {
    this.#takes = false;
    if (!mayRepeat(error) && !(error instanceof Full)) {
      this.#over(error);
      return;
    }
    this.#client.logger.warn?.(`${error.message}; trying again`);
    this.#pause = Math.min(Math.max(2 * this.#pause, PAUSE_LEAST_MS), PAUSE_MOST_MS);
    this.#connect();
  }

  async #connect() {
    if (this.#connecting) return;
    this.#connecting = true;
    if (this.#pause) await sleep(this.#pause);
    this.#connecting = false;
    if (this.#stopping) return;
    const known = this.#taking.wire;
    try {
      const wire = await this.#taking.get();
      if (wire !== known) wire.onClose.add(() => this.#cancelRunning());
      this.#soon();
    } catch (error) {
      this.#lost(error);
    }
  }

  /** Leases end with their connection. */
  #cancelRunning() {
    for (const job of this.#running.values()) job.cancel();
    this.#soon();
  }

  /** A TAKE that was sent may arrive after UNBLOCK: so this is repeated until it is answered. */
  async #unblock() {
    while (this.#takes) {
      try {
        await this.#answers.ask(['CLIENT', 'UNBLOCK', this.#taking.wire.session]);
      } catch (error) {
        this.#client.logger.debug?.(`unblocking a TAKE: ${error.message}`);
      }
      if (this.#takes) await sleep(UNBLOCK_MS);
    }
    this.#over();
  }

  #pushed([kind, ...ids]) {
    if (String(kind) === 'cancel') this.#cancelAll(ids);
  }

  #cancelAll(ids) {
    for (const id of ids) this.#running.get(String(id))?.cancel();
  }

  // ---- Running ---------------------------------------------------------------------------------

  #begin(job) {
    if (this.#stopping) {
      this.#answer(job, ['RELEASE', job.id, job.token]);
      return;
    }
    this.#busy = true;
    this.#running.set(job.id, job);
    if (job.lease < this.#beatLease) this.#beatWithin(job.lease);
    const { meta } = job;
    const parent = typeof meta?.traceparent === 'string' ? meta.traceparent : undefined;
    let result;
    try {
      result = trace.getStore() === parent ? this.#handler(job, job)
        : trace.run(parent, this.#handler, job, job);
    } catch (error) {
      this.#failed(job, error);
      return;
    }
    if (typeof result?.then !== 'function') this.#returned(job, result);
    else result.then((value) => this.#returned(job, value), (error) => this.#failed(job, error));
  }

  #returned(job, result) {
    let words;
    try {
      words = job.commitWords(result);
    } catch (error) {
      this.#failed(job, error);
      return;
    }
    if (!this.#leave(job)) return;
    if (words.length > 3) this.#answer(job, words);
    else this.#plain.push(job);
  }

  #failed(job, error) {
    if (!this.#leave(job)) return;
    this.#answer(job, this.#failWords(job, error));
  }

  /** The job's slot is free. False: the job was given back meanwhile. */
  #leave(job) {
    this.#soon();
    return this.#running.delete(job.id);
  }

  #failWords(job, error) {
    const { id, token } = job;
    if (error instanceof Snooze) {
      return ['RELEASE', id, token, 'DELAY', milliseconds(error.ms, 'the time of Snooze')];
    }
    if (job.cancelled) return ['RELEASE', id, token];
    if (error instanceof Dead) return ['FAIL', id, token, error.reason || 'dead', 'NEVER'];
    if (error instanceof BadBody) return ['FAIL', id, token, `BadBody: ${error.reason}`, 'NEVER'];
    const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    this.#client.logger.warn?.(`job ${id} of ${job.stage} failed: ${text}`);
    return ['FAIL', id, token, text, 'OUTPUT', String(error?.stack ?? text).slice(-4096)];
  }

  // ---- Answering -------------------------------------------------------------------------------

  /** Sends plain commits, if possible on this connection. */
  #commit(wire) {
    const plain = this.#plain;
    this.#plain = [];
    for (let i = 0; i < plain.length; i += COMMITTED_TOGETHER) {
      const jobs = plain.slice(i, i + COMMITTED_TOGETHER);
      const words = ['DONEMANY'];
      for (const job of jobs) words.push(job.id, job.token);
      this.#send(words, wire, (replies) => {
        for (let n = 0; n < jobs.length; n++) {
          const reply = Array.isArray(replies) ? replies[n] : replies;
          if (reply instanceof MillraceError) this.#refused(jobs[n], reply);
        }
      });
    }
  }

  #answer(job, words) {
    this.#send(words, this.#answers.up, (reply) => {
      if (!(reply instanceof MillraceError)) return;
      this.#refused(job, reply);
      const isRefused = [Denied, Draining, Full, Usage].some((kind) => reply instanceof kind);
      if (isRefused && words[0] !== 'FAIL') { // what the handler commits is refused
        this.#answer(job, ['FAIL', job.id, job.token, `${reply.name}: ${reply.message}`]);
      }
    });
  }

  /** Sends an answer on this connection; after a loss again on the one for answers. */
  #send(words, wire, done) {
    this.#answering++;
    const settle = (reply) => {
      done(reply);
      this.#answering--;
      if (this.#drained) this.#soon();
    };
    const again = () => this.#answers.repeat((on) => on.ask(words)).then(settle, settle);
    if (wire) wire.send(words, settle, (error) => (mayRepeat(error) ? again() : settle(error)));
    else again();
  }

  #refused(job, error) {
    const { logger } = this.#client;
    const text = `job ${job.id} of ${job.stage}: ${error.name}: ${error.message}`;
    if (error instanceof Usage) logger.warn?.(text);
    else logger.info?.(text);
  }

  /** Sends a command whose reply is a list of jobs to stop. */
  async report(words) {
    if (this.#closed) return;
    try {
      this.#cancelAll(await this.#answers.ask(words));
    } catch (error) {
      this.#client.logger.info?.(`${words[0]}: ${error.message}`);
    }
  }

  /** One timer for all jobs; it is set anew when a job with a shorter lease begins. */
  #beatWithin(lease) {
    clearTimeout(this.#beatTimer);
    this.#beatLease = lease;
    this.#beatTimer = setTimeout(() => this.#beat(), lease / 3);
  }

  #beat() {
    this.#beatLease = Infinity;
    if (!this.#running.size) return;
    const words = ['BEAT'];
    let least = Infinity;
    for (const job of this.#running.values()) {
      words.push(job.id, job.token);
      least = Math.min(least, job.lease);
    }
    this.report(words);
    this.#beatWithin(least);
  }

  #followLevel() {
    const timer = setInterval(() => this.#askLevel(timer), LEVEL_MS);
    this.#askLevel(timer);
    return timer;
  }

  async #askLevel(timer) {
    if (!this.#busy && !this.#running.size) return; // it is learned from jobs that end
    this.#busy = false;
    try {
      const wire = await this.#answers.get();
      const levels = await Promise.all(this.stages.map((stage) => wire.ask(['LEVEL', stage])));
      this.level = Math.min(LEVEL_MOST, Math.max(1, ...levels));
    } catch (error) {
      this.#client.logger.debug?.(`LEVEL: ${error.message}`);
      if (!(error instanceof Incompatible)) return;
      this.level = Math.min(32, os.cpus().length + 4); // the server does not know LEVEL
      clearInterval(timer);
    }
    this.#soon();
  }

  async #drain() {
    await this.#idleWithin(this.#grace);
    for (const job of this.#running.values()) { // what still runs goes back, uncounted
      this.#running.delete(job.id);
      this.#answer(job, ['RELEASE', job.id, job.token]);
      job.cancel();
    }
    await this.#idleWithin(STOPPED_MS);
  }

  async #idleWithin(ms) {
    if (!this.#running.size && !this.#answering && !this.#turning) return;
    let timer;
    await new Promise((resolve) => {
      this.#drained = resolve;
      timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
  }
}

module.exports = { Job, Worker };
