// Workers. One connection takes for all slots. What ends jobs leaves once in a turn of the event loop: in one write
// with the next TAKE, or on the main connection while a TAKE waits.
'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { pushWords, trace } = require('./client.js');
const { fromBytes, milliseconds, toBytes } = require('./codec.js');
const { BadBody, Cancelled, Dead, Denied, Draining, Full, MillraceError, Snooze, Unreachable, Usage, isLoss } =
  require('./errors.js');
const { PAUSE_MOST_MS } = require('./links.js');

const TAKE_MS = 10_000; // a TAKE waits so long at most
const LEVEL_MS = 250;
const LEVEL_MOST = 1024;
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
    this.id = row[0];
    this.token = row[1];
    this.cancelled = false;
  }

  get stage() { return this.#row[2]; }
  get key() { return this.#row[3]; }
  get raw() { return typeof this.#row[4] === 'string' ? Buffer.from(this.#row[4]) : this.#row[4]; }
  get body() { return (this.#body ??= fromBytes(this.#row[4])); }
  get attempt() { return this.#row[5]; }
  get deadline() { return this.#row[6] < 0 ? undefined : this.#row[6]; }
  get lease() { return this.#row[8]; }
  get meta() { return fromBytes(this.#row[9] || undefined); }
  get state() { return fromBytes(this.#state === undefined ? this.#row[7] : this.#state || null); }
  set state(value) { this.#state = toBytes(value ?? '', 'state'); }

  get signal() {
    if (!this.#stop) {
      this.#stop = new AbortController();
      if (this.cancelled) this.cancel();
    }
    return this.#stop.signal;
  }

  json() {
    try {
      return JSON.parse(String(this.#row[4]));
    } catch (error) {
      throw new BadBody(`the body is not JSON: ${error.message}`);
    }
  }

  emit(stage, body = '', { key = '', ...options } = {}) {
    this.#emits.push('EMIT', stage, key, toBytes(body), ...pushWords(options));
  }

  progress(done, total = 0, text = '') {
    this.#worker.report(['PROGRESS', this.id, this.token, done, total, ...(text ? ['SAY', text] : [])]);
  }

  commitWords(result) {
    const words = ['DONE', this.id, this.token];
    if (result !== undefined && result !== null) words.push('RESULT', toBytes(result, 'result'));
    if (this.#state !== undefined) words.push('STATE', this.#state);
    words.push(...this.#emits);
    return words;
  }

  cancel() {
    this.cancelled = true;
    this.#stop?.abort(new Cancelled(`job ${this.id} was cancelled, or its lease is lost`));
  }
}

class Worker {
  #links;
  #handler;
  #grace;
  #lease;
  #link; // the connection that takes
  #running = new Map(); // jobs by id
  #ended = []; // ends to be sent in this turn: [job, words]
  #answering = 0; // ends that were sent and not answered
  #isTurning = false;
  #isTaking = false; // a TAKE was sent and not answered
  #isStopping = false;
  #over; // called when nothing is taken any more, with an error if that is the reason
  #drained; // called when nothing runs any more
  #beats; // the timer …
  #shortest = Infinity; // … and the lease that it is for
  #isBusy = true; // whether a job was taken since the level was asked for

  constructor(links, stages, handler, { concurrency = 'auto', lease, grace = 30_000, ...rest }) {
    const isTuned = concurrency === 'auto';
    if (!isTuned && !(Number.isInteger(concurrency) && concurrency > 0)) {
      throw new Usage(`concurrency is a number from 1 on, or 'auto', not ${concurrency}`);
    }
    const [unknown] = Object.keys(rest);
    if (unknown) throw new Usage(`a worker has no option ${unknown}; it has concurrency lease grace`);
    if (typeof handler !== 'function') throw new Usage('the handler of a worker is a function');
    this.stages = [stages].flat();
    this.level = isTuned ? 2 : concurrency;
    this.#links = links;
    this.#handler = handler;
    this.#grace = grace;
    this.#lease = lease ? ['LEASE', milliseconds(lease, 'lease')] : [];
    this.done = this.#run();
    this.done.catch(() => {}); // it is logged, and thrown by close() and run()
    if (isTuned) this.#followLevel();
  }

  /** Takes no more; what runs goes on. */
  stop() {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.#unblock();
  }

  close() {
    this.stop();
    return this.done;
  }

  async #run() {
    try {
      await new Promise((resolve, reject) => {
        this.#over = (error) => (error ? reject(error) : resolve());
        this.#links.repeat(() => this.#connect(), { limit: Infinity, log: 'warn' }).catch(reject);
      });
    } catch (error) {
      this.#links.logger.warn?.(`the worker of ${this.stages.join(' ')} ends: ${error.message}`);
      throw error;
    } finally {
      this.#isStopping = true;
      await this.#drain();
      clearInterval(this.#beats);
      this.#link?.close('the worker has ended');
    }
  }

  // ---- Taking ----------------------------------------------------------------------------------

  /** Takes on a new connection until it is lost; leases end with it. */
  async #connect() {
    if (this.#isStopping) return;
    const link = await this.#links.connect();
    if (this.#isStopping) return void link.close('the worker has ended');
    this.#link = link;
    link.onCancel = (ids) => this.#cancel(ids);
    this.#soon();
    await new Promise((_, reject) => {
      link.onClose = (error) => {
        this.#cancel(this.#running.keys());
        if (!this.#isStopping) reject(error);
      };
      if (link.closed) reject(new Unreachable(link.closed));
    });
  }

  #soon() {
    if (this.#isTurning) return;
    this.#isTurning = true;
    setImmediate(() => this.#turn());
  }

  /** Once in a turn of the event loop in which jobs have ended. */
  #turn() {
    this.#isTurning = false;
    const free = this.level - this.#running.size;
    const takes = free > 0 && !this.#isTaking && !this.#isStopping && this.#link?.isOpen;
    this.#commit(takes ? this.#link : this.#links.up);
    if (takes) {
      this.#isTaking = true;
      const options = ['COUNT', free, 'WAIT', TAKE_MS, 'SLOTS', this.level, ...this.#lease];
      this.#link.send(['TAKE', ...this.stages, ...options], (reply) => this.#taken(reply), TAKE_MS);
      this.#link.flush();
    }
    if (!this.#running.size && !this.#answering) this.#drained?.();
  }

  /** Before what follows the reply is read, such as the cancellation of one of its jobs. */
  #taken(reply) {
    this.#isTaking = false;
    if (!(reply instanceof MillraceError)) {
      for (const row of reply) this.#begin(new Job(this, row));
      this.#soon();
    } else if (this.#link.isOpen) { // otherwise another one is opened
      if (!isLoss(reply) && !(reply instanceof Full)) return void this.#over(reply);
      this.#links.logger.warn?.(`${reply.message}; trying again`);
      setTimeout(() => this.#soon(), PAUSE_MOST_MS);
    }
  }

  /** A TAKE that was sent may arrive after UNBLOCK: so this is repeated until it is answered. */
  async #unblock() {
    while (this.#isTaking) {
      await this.report(['CLIENT', 'UNBLOCK', this.#link.session]);
      if (this.#isTaking) await sleep(UNBLOCK_MS);
    }
    this.#over();
  }

  #cancel(ids) {
    for (const id of ids) this.#running.get(id)?.cancel();
  }

  // ---- Running ---------------------------------------------------------------------------------

  async #begin(job) {
    if (this.#isStopping) return void this.#end(job, ['RELEASE', job.id, job.token]);
    this.#isBusy = true;
    this.#running.set(job.id, job);
    if (job.lease < this.#shortest) this.#beatWithin(job.lease);
    const given = job.meta?.traceparent;
    const parent = typeof given === 'string' ? given : undefined;
    let words;
    try {
      const isSame = trace.getStore() === parent; // then no context is needed, which costs time
      words = job.commitWords(await (isSame ? this.#handler(job, job) : trace.run(parent, this.#handler, job, job)));
    } catch (error) {
      words = this.#failWords(job, error);
    }
    if (this.#running.delete(job.id)) this.#end(job, words); // otherwise it was given back meanwhile
  }

  #failWords(job, error) {
    const { id, token } = job;
    if (error instanceof Snooze) return ['RELEASE', id, token, 'DELAY', Math.ceil(error.ms) || 0];
    if (job.cancelled) return ['RELEASE', id, token];
    if (error instanceof Dead) return ['FAIL', id, token, error.reason || 'dead', 'NEVER'];
    const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    if (error instanceof BadBody) return ['FAIL', id, token, text, 'NEVER'];
    this.#links.logger.warn?.(`job ${id} of ${job.stage} failed: ${text}`);
    return ['FAIL', id, token, text, 'OUTPUT', String(error?.stack ?? text).slice(-4096)];
  }

  #end(job, words) {
    this.#ended.push([job, words]);
    this.#soon();
  }

  /** Sends what has ended, on this connection if possible, and again after a loss. */
  #commit(link) {
    for (const [job, words] of this.#ended.splice(0)) {
      const settle = (reply) => {
        this.#answering--;
        if (reply instanceof MillraceError) this.#refused(job, words, reply);
        if (this.#drained) this.#soon();
      };
      const again = () => this.#links.ask(words).then(settle, settle);
      this.#answering++;
      try {
        if (link) link.send(words, (reply) => (isLoss(reply) ? again() : settle(reply)));
        else again();
      } catch (error) {
        settle(error); // the handler has emitted a word that cannot be encoded
      }
    }
  }

  #refused(job, words, error) {
    const text = `${error.name}: ${error.message}`;
    this.#links.logger[error instanceof Usage ? 'warn' : 'info']?.(`job ${job.id} of ${job.stage}: ${text}`);
    const isFault = [Denied, Draining, Full, Usage].some((type) => error instanceof type); // of the handler
    if (isFault && words[0] !== 'FAIL') this.#end(job, ['FAIL', job.id, job.token, text]);
  }

  // ---- Beats and the level ---------------------------------------------------------------------

  /** Sends a command whose reply may be a list of jobs to stop. */
  async report(words) {
    try {
      const reply = await (await this.#links.main()).ask(words);
      if (Array.isArray(reply)) this.#cancel(reply);
    } catch (error) {
      this.#links.logger.info?.(`${words[0]}: ${error.message}`);
    }
  }

  /** One timer for all jobs, by the shortest lease. */
  #beatWithin(lease) {
    this.#shortest = lease;
    clearInterval(this.#beats);
    this.#beats = setInterval(() => {
      const words = [...this.#running.values()].flatMap(({ id, token }) => [id, token]);
      if (words.length) this.report(['BEAT', ...words]);
    }, lease / 3);
  }

  /** The level is learned from jobs that end. */
  async #followLevel() {
    for (; !this.#isStopping; await sleep(LEVEL_MS, undefined, { ref: false })) {
      if (!this.#isBusy && !this.#running.size) continue;
      this.#isBusy = false;
      try {
        const main = await this.#links.main();
        const levels = await Promise.all(this.stages.map((stage) => main.ask(['LEVEL', stage])));
        this.level = Math.min(LEVEL_MOST, Math.max(1, ...levels));
        this.#soon();
      } catch (error) {
        this.#links.logger.debug?.(`LEVEL: ${error.message}`);
      }
    }
  }

  // ---- Stopping --------------------------------------------------------------------------------

  async #drain() {
    await this.#idleWithin(this.#grace);
    for (const job of this.#running.values()) { // what still runs goes back, uncounted
      this.#running.delete(job.id);
      this.#end(job, ['RELEASE', job.id, job.token]);
      job.cancel();
    }
    await this.#idleWithin(STOPPED_MS);
  }

  #idleWithin(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#drained = () => resolve(clearTimeout(timer));
      this.#soon();
    });
  }
}

module.exports = { Job, Worker };
