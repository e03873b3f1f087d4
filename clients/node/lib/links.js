// The connections of a client, and the only place where commands are repeated. What does not wait shares the main
// connection. What may wait in the server has another one while it does; some of those are kept for later.
'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { Connection } = require('./connection.js');
const { MillraceError, Timeout, Unreachable, isLoss } = require('./errors.js');

const REPEAT_MS = 25_000; // a server remembers the numbers of a source for a minute at least
const SLACK_MS = 5000; // the server reports that time is over before its client gives up
const WAIT_MS = 10_000; // of one command that waits
const PAUSE_LEAST_MS = 50;
const PAUSE_MOST_MS = 2000;
const IDLE_KEPT = 8;

const now = () => performance.now();

class Links {
  #main;
  #opening; // the promise of the main connection, while it is opened
  #idle = [];
  #open = new Set();
  #isClosed = false;
  #failure; // why the last attempt to connect has failed
  #node; // the next one to connect to
  #quietUntil = 0; // losses are not logged again before that

  constructor(address, name, logger) {
    Object.assign(this, { address, name, logger });
    this.#node = Math.floor(Math.random() * address.nodes.length);
  }

  close() {
    this.#isClosed = true;
    for (const link of this.#open) link.close('the client was closed');
  }

  /** A new connection to this node, or the first one that can be reached; throws the error of the last one. */
  async connect(only) {
    const nodes = only ? [only] : this.address.nodes;
    for (let left = nodes.length - 1; ; left--) {
      if (this.#isClosed) throw Object.assign(new Unreachable('the client was closed'), { isLasting: true });
      for (const link of this.#open) if (link.closed) this.#open.delete(link);
      const node = nodes[this.#node % nodes.length];
      const link = new Connection();
      this.#open.add(link);
      try {
        await link.open(this.address, node, this.name);
        if (this.#quietUntil) this.logger.warn?.(`connected again to ${node.text}`);
        this.#quietUntil = 0;
        this.#failure = undefined;
        return link;
      } catch (error) {
        this.#failure = error;
        this.#node++;
        if (!left || !isLoss(error)) throw error;
      }
    }
  }

  /** Logs what is tried again: the first error of an outage. */
  lost({ reason }) {
    if (now() < this.#quietUntil) return;
    this.#quietUntil = now() + REPEAT_MS;
    this.logger.warn?.(`${reason}; trying again`);
  }

  /** The main connection, if it is open. */
  get up() { return this.#main?.isOpen ? this.#main : undefined; }

  async main() {
    if (this.up) return this.up;
    this.#opening ??= this.connect().finally(() => (this.#opening = undefined));
    return (this.#main = await this.#opening);
  }

  /** Uses a connection that nothing else uses meanwhile; it is closed if the signal aborts. */
  async #alone(use, stop) {
    let link = this.#idle.pop();
    if (!link?.isOpen) link = await this.connect();
    const abort = () => link.close('the caller has given up');
    stop?.addEventListener('abort', abort);
    try {
      stop?.throwIfAborted();
      return await use(link);
    } finally {
      stop?.removeEventListener('abort', abort);
      if (this.#idle.length < IDLE_KEPT) this.#idle.push(link);
      else link.close('it is not needed');
    }
  }

  /** What `attempt()` returns, which is called again after each loss of its connection. An error that it throws has
   *  `wasLost` if the outcome of an attempt is unknown. */
  async repeat(attempt, { limit = REPEAT_MS, stop } = {}) {
    let wasLost = false;
    let until = now() + limit;
    for (let pause = PAUSE_LEAST_MS; ; pause = Math.min(2 * pause, PAUSE_MOST_MS)) {
      stop?.throwIfAborted();
      try {
        return await attempt();
      } catch (error) {
        wasLost ||= isLoss(error);
        if (error.wasAccepted) until = now() + limit; // a call, which may have waited for long
        if (!isLoss(error) || error.isLasting || stop?.aborted || this.#isClosed || now() + pause > until) {
          if (error instanceof MillraceError) Error.captureStackTrace(error); // of the caller, not of the socket
          throw wasLost ? Object.assign(error, { wasLost }) : error;
        }
        this.lost(error);
      }
      await sleep(pause * (0.5 + Math.random() / 2));
    }
  }

  /** Repeats what `use(link)` sends: a command that may be sent twice. The server may wait for `waits` ms. */
  send(use, { waits = 0, ...options } = {}) {
    if (waits) return this.repeat(() => this.#alone(use, options.stop), options);
    return this.repeat(() => (this.up ? use(this.up) : this.main().then(use)), options);
  }

  ask(words, options) { return this.send((link) => link.ask(words, options?.waits), options); }

  /** Sends a command with WAIT, in pieces, until `isOver` accepts the reply. */
  wait(words, { timeout, signal }, late, isOver) {
    const until = now() + (timeout < 0 ? Infinity : timeout);
    return this.within(until - now() + SLACK_MS, signal, late, async (stop) => {
      for (;;) {
        const left = Math.max(0, until - now());
        const ms = Math.ceil(Math.min(left, WAIT_MS));
        const reply = await this.ask([...words, 'WAIT', ms], { waits: ms || 1, stop });
        if (isOver(reply)) return reply;
        if (!left) throw new Timeout(late);
      }
    });
  }

  /** What `start(stop)` returns; or the reason of the signal, or after this time Timeout or why there is no connection:
   *  then `stop` aborts, too. */
  within(ms, signal, late, start) {
    signal?.throwIfAborted();
    const stop = new AbortController();
    const abort = () => stop.abort(signal.reason);
    const timer = setTimeout(() => stop.abort((!this.up && this.#failure) || new Timeout(late)), Math.min(ms, 2 ** 31 - 1));
    signal?.addEventListener('abort', abort);
    const stopped = new Promise((_, reject) => stop.signal.addEventListener('abort', () => reject(stop.signal.reason)));
    return Promise.race([start(stop.signal), stopped]).finally(() => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    });
  }
}

module.exports = { Links, REPEAT_MS, SLACK_MS, now };
