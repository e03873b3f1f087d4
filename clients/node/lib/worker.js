// Workers. One connection takes for all slots. What ends jobs leaves once in a turn of the event loop: in one write
// with the next TAKE, or on the main connection while a TAKE waits.
//
// Where handlers are short a worker takes ahead: as many jobs beyond its free slots as a handler ends in about AHEAD_MS.
// They are held until a slot is free. A handler that takes long all at once delays no other job: what has ended before
// it is committed in the next turn, and what is held behind it goes back after HELD_MS.
'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { pushWords, trace } = require('./client.js');
const { fromBytes, milliseconds, toBytes } = require('./codec.js');
const { BadBody, Cancelled, Dead, Denied, Draining, Full, MillraceError, Snooze, Unreachable, Usage, isLoss } =
  require('./errors.js');
const { now } = require('./links.js');

const TAKE_MS = 10_000; // a TAKE waits so long at most
const LEVEL_MS = 250;
const LEVEL_MOST = 1024;
const REFUSED_MS = 500; // until a TAKE that was refused is sent again
const UNBLOCK_MS = 20; // between attempts to end a TAKE that waits
const DRAIN_MS = 5; // between looks at what still runs
const STOPPED_MS = 1000; // for handlers to end whose jobs were given back
const AHEAD_MS = 1;
const AHEAD_MOST = 16;
const HELD_MS = 5;
const COMMITS_MOST = 1000; // of one DONEMANY

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
  #jobs = new Map(); // by id: those that are leased
  #held = []; // those of them that have not begun
  #active = 0; // those that run
  #begun = 0; // in all
  #average = 8 * AHEAD_MS; // of the time that handlers took lately
  #fillUntil = 0; // jobs begin in this turn until then
  #looking; // the timer while jobs are held for longer than a turn
  #ended = []; // ends to be sent in this turn: [job, words]
  #answering = 0; // ends that were sent and not answered
  #isTurning = false;
  #isTaking = false; // a TAKE was sent and not answered
  #isStopping = false;
  #over; // called when nothing is taken any more, with an error if that is the reason
  #beats; // the timer …
  #shortest = Infinity; // … and the lease that it is for

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
    this.#soon(); // what is held goes back
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
        this.#links.repeat(() => this.#connect(), { limit: Infinity }).catch(reject);
      });
    } catch (error) {
      this.#links.logger.warn?.(`the worker of ${this.stages.join(' ')} ends: ${error.message}`);
      throw error;
    } finally {
      this.stop();
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
        this.#cancel(this.#jobs.keys());
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

  /** Once in a turn of the event loop in which jobs were taken or have ended. */
  #turn() {
    this.#isTurning = false;
    const free = this.level - this.#active;
    const mayTake = this.#link?.isOpen && !this.#isTaking;
    const link = mayTake ? this.#link : this.#links.up;
    this.#commit(link);
    if (mayTake && free > 0 && !this.#held.length && !this.#isStopping) {
      this.#isTaking = true;
      const ahead = Math.min(AHEAD_MOST, Math.floor(AHEAD_MS / this.#average));
      const options = ['COUNT', free + ahead, 'WAIT', TAKE_MS, 'SLOTS', this.level, ...this.#lease];
      link.send(['TAKE', ...this.stages, ...options], (reply) => this.#taken(reply), TAKE_MS);
    }
    link?.flush(); // before a handler computes
    this.#fill();
    if (this.#held.length) this.#looking ??= this.#lookLater();
  }

  /** Before what follows the reply is read, such as the cancellation of one of its jobs. */
  #taken(reply) {
    this.#isTaking = false;
    if (!(reply instanceof MillraceError)) {
      for (const row of reply) {
        const job = new Job(this, row);
        this.#jobs.set(job.id, job);
        this.#held.push(job);
        if (job.lease < this.#shortest) this.#beatWithin(job.lease);
      }
      this.#fill();
      this.#soon();
    } else if (this.#link.isOpen) { // otherwise another one is opened
      if (!isLoss(reply) && !(reply instanceof Full)) return void this.#over(reply);
      this.#links.lost(reply);
      setTimeout(() => this.#soon(), REFUSED_MS);
    }
  }

  /** Ends a TAKE that waits, at its node: another one has other sessions. A TAKE that was sent may arrive after UNBLOCK,
   *  so this is repeated until it is answered. */
  async #unblock() {
    for (; this.#isTaking; await sleep(UNBLOCK_MS)) {
      try {
        const other = await this.#links.connect(this.#link.node);
        await other.ask(['CLIENT', 'UNBLOCK', this.#link.session]);
        other.close('it is not needed');
      } catch (error) {
        this.#links.logger.info?.(`CLIENT UNBLOCK: ${error.message}`);
      }
    }
    this.#over();
  }

  #cancel(ids) {
    for (const id of ids) this.#jobs.get(id)?.cancel();
  }

  // ---- Running ---------------------------------------------------------------------------------

  /** Begins jobs while slots are free. After AHEAD_MS what has ended leaves before others begin. */
  #fill(until = now() + AHEAD_MS) {
    this.#fillUntil = until;
    if (this.#isStopping) this.#giveBack(this.#held.splice(0));
    while (this.#held.length && this.#active < this.level && now() < until) this.#begin(this.#held.shift());
  }

  async #begin(job) {
    if (job.cancelled) return void this.#giveBack([job]);
    const began = now();
    const given = job.meta?.traceparent;
    const parent = typeof given === 'string' ? given : undefined;
    let words;
    this.#active++;
    this.#begun++;
    try {
      const isSame = trace.getStore() === parent; // then no context is needed, which costs time
      words = job.commitWords(await (isSame ? this.#handler(job, job) : trace.run(parent, this.#handler, job, job)));
    } catch (error) {
      words = this.#failWords(job, error);
    }
    this.#active--;
    this.#average += (now() - began - this.#average) / 8;
    this.#end(job, words);
    this.#fill(this.#fillUntil);
  }

  /** Gives back what is held if no job begins meanwhile. */
  #lookLater() {
    const begun = this.#begun;
    return setTimeout(() => {
      this.#looking = undefined;
      if (this.#begun === begun) this.#giveBack(this.#held.splice(0));
      this.#soon();
    }, HELD_MS);
  }

  #giveBack(jobs) {
    for (const job of jobs) this.#end(job, ['RELEASE', job.id, job.token]);
  }

  #failWords(job, error) {
    const { id, token } = job;
    if (error instanceof Snooze) return ['RELEASE', id, token, 'DELAY', Math.ceil(error.ms) || 0];
    if (job.cancelled) return ['RELEASE', id, token];
    const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    if (error instanceof Dead || error instanceof BadBody) {
      const reason = error instanceof Dead ? error.reason || 'dead' : text;
      this.#links.logger.warn?.(`job ${id} of ${job.stage} is dead (attempt ${job.attempt}): ${reason}`);
      return ['FAIL', id, token, reason, 'NEVER'];
    }
    const stack = String(error?.stack ?? text);
    this.#links.logger.warn?.(`job ${id} of ${job.stage} failed (attempt ${job.attempt}): ${stack}`);
    return ['FAIL', id, token, text, 'OUTPUT', stack.slice(-4096)];
  }

  #end(job, words) {
    if (this.#jobs.get(job.id) !== job) return; // it was given back, or was taken again
    this.#jobs.delete(job.id);
    this.#ended.push([job, words]);
    this.#soon();
  }

  /** Sends what has ended, on this connection if possible; plain commits together. */
  #commit(link) {
    const plain = [];
    for (const end of this.#ended.splice(0)) {
      if (end[1][0] === 'DONE' && end[1].length === 3 && plain.length < COMMITS_MOST) plain.push(end);
      else this.#send(link, [end], end[1]);
    }
    if (plain.length) this.#send(link, plain, ['DONEMANY', ...plain.flatMap(([job]) => [job.id, job.token])]);
  }

  #send(link, ends, words) {
    const done = (reply) => ends.forEach((end, i) => this.#answered(end, Array.isArray(reply) ? reply[i] : reply));
    this.#answering += ends.length;
    try {
      if (link) link.send(words, done);
      else done(new Unreachable('there is no connection'));
    } catch (error) {
      done(error); // the handler has emitted a word that cannot be encoded
    }
  }

  #answered([job, words], reply) {
    const settle = (last) => this.#settled(job, words, last);
    if (isLoss(reply)) this.#links.ask(words).then(settle, settle);
    else settle(reply);
  }

  #settled(job, words, reply) {
    this.#answering--;
    if (!(reply instanceof MillraceError)) return;
    const text = `${reply.name}: ${reply.message}`;
    const isFault = [Denied, Draining, Full, Usage].some((type) => reply instanceof type); // of the handler
    const said = `job ${job.id} of ${job.stage} failed (attempt ${job.attempt}): ${text}`;
    this.#links.logger[isFault ? 'warn' : 'info']?.(said);
    if (!isFault || words[0] === 'FAIL') return;
    this.#ended.push([job, ['FAIL', job.id, job.token, text]]);
    this.#soon();
  }

  // ---- Beats and the level ---------------------------------------------------------------------

  /** Sends a command whose reply may be a list of jobs to stop, and returns that; undefined: it has failed. */
  async report(words) {
    try {
      const reply = await (await this.#links.main()).ask(words);
      if (Array.isArray(reply)) this.#cancel(reply);
      return reply;
    } catch (error) {
      this.#links.logger.info?.(`${words[0]}: ${error.message}`);
    }
  }

  /** One timer for all jobs, by the shortest lease. */
  #beatWithin(lease) {
    this.#shortest = lease;
    clearInterval(this.#beats);
    this.#beats = setInterval(() => {
      const words = [...this.#jobs.values()].flatMap(({ id, token }) => [id, token]);
      if (words.length) this.report(['BEAT', ...words]);
    }, lease / 3);
  }

  /** The level is learned from jobs that end. */
  async #followLevel() {
    let begun = -1;
    for (; !this.#isStopping; await sleep(LEVEL_MS, undefined, { ref: false })) {
      if (this.#begun === begun && !this.#jobs.size) continue;
      begun = this.#begun;
      const levels = await Promise.all(this.stages.map((stage) => this.report(['LEVEL', stage])));
      if (levels.includes(undefined)) continue;
      this.level = Math.min(LEVEL_MOST, Math.max(1, ...levels));
      this.#soon();
    }
  }

  // ---- Stopping --------------------------------------------------------------------------------

  async #drain() {
    await this.#idleWithin(this.#grace);
    const left = [...this.#jobs.values()]; // what still runs goes back, uncounted
    this.#giveBack(left);
    for (const job of left) job.cancel();
    await this.#idleWithin(STOPPED_MS);
  }

  async #idleWithin(ms) {
    const until = now() + ms;
    while ((this.#jobs.size || this.#answering || this.#ended.length) && now() < until) await sleep(DRAIN_MS);
  }
}

module.exports = { Job, Worker };
