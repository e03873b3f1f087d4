// A connection to one node, on which replies come in the order of commands. It does not come back: after a loss another
// one is opened (links.js). It keeps the process alive only while a reply or the end of a call is awaited.
'use strict';

const { once } = require('node:events');
const net = require('node:net');
const tls = require('node:tls');
const { Incompatible, MillraceError, Unreachable, Usage } = require('./errors.js');
const { Parser, encode, nonsense } = require('./resp.js');

const GREETING_MS = 5000;
const SILENCE_MS = 15_000; // a reply is late by so much at most, then the connection is given up
const LOOK_MS = 1000; // how often that is checked
const READ_BYTES = 64 << 10;

const shown = (url) => JSON.stringify(url.replace(/.*@/s, '…@')); // without the secret
const unescaped = (text = '') => text.replace(/(%[0-9a-f]{2})+/gi, decodeURIComponent);

/** Reads millrace://[user:secret@]host[:port][,host[:port]…], millraces:// for TLS, unix:path or
 *  unix://[user:secret@]/path. */
function addressOf(url, token, tlsOptions) {
  const [, scheme, auth, hosts] = /^(millraces?):\/\/(?:(.*)@)?([^@/]+)\/?$/.exec(url) ?? [];
  const [, fileAuth, path] = /^unix:(?:\/\/(?:([^/]*)@)?(?=\/)|(?!\/\/))(.+)$/.exec(url) ?? [];
  if (!hosts && !path) {
    throw new Usage(`${shown(url)} is not a URL of Millrace: write millrace://127.0.0.1:7411, millraces://… ` +
      'for TLS, or unix:PATH for a socket file');
  }
  const [, user = '', secret] = /^(?:(.*):)?(.*)$/.exec(auth ?? fileAuth ?? '').map(unescaped);
  return {
    nodes: hosts ? hosts.split(',').map((host) => nodeOf(url, host)) : [{ path, text: `unix:${path}` }],
    tls: scheme === 'millraces' ? tlsOptions ?? {} : undefined,
    user: user || 'default',
    secret: token ?? (secret || process.env.MILLRACE_TOKEN || ''),
  };
}

function nodeOf(url, text) {
  const [, v6, name, port = '7411'] = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d+))?$/.exec(text) ?? [];
  if (!(v6 ?? name) || port > 65535) {
    throw new Usage(`${shown(url)} has a host that is not host or host:port: ${text}`);
  }
  return { host: v6 ?? name, port: Number(port), text: `${v6 ? `[${v6}]` : name}:${port}` };
}

/** Why a connection to this node could not be opened, and what to do about it. */
function explained(error, { text }, socket, isConnected) {
  if (error instanceof Usage || error instanceof Incompatible) {
    return new Incompatible(`${text} does not speak the protocol of this library: ${error.reason}; connect to a ` +
      'Millrace server of version 0.2 or later');
  }
  if (error instanceof MillraceError && !(error instanceof Unreachable)) return error;
  if (socket?.authorizationError || /^ERR_TLS_CERT/.test(error.code)) {
    const reason = `the certificate of ${text} is refused: ${error.message}; give the authority that signed it with ` +
      'the option tls: { ca }';
    return Object.assign(new Unreachable(reason), { isLasting: true });
  }
  if (isConnected) {
    return new Unreachable(`${text} does not answer as a Millrace server does: ${error.message}; is it the address ` +
      'of --listen?');
  }
  return new Unreachable(`cannot connect to ${text}: ${error.message || error.code}; a server is started with: ` +
    `millrace serve --listen ${text}`);
}

class Connection {
  #out = []; // strings and bytes to be written in this turn
  #first; // of the commands without a reply: { done, waits, next } …
  #last; // … and the last of them
  #calls = new Map(); // by id: { resolve, reject }
  #timer = setInterval(() => this.#look(), LOOK_MS).unref();
  #silence = 0; // ms without any reply
  #write = () => this.flush();

  closed = ''; // why
  session = ''; // its number at the server
  onClose; // called with an error
  onCancel; // called with the ids of jobs taken on it that are to stop

  /** Whether new commands may be sent on it. */
  get isOpen() { return !this.closed; }

  async open(address, node, name) {
    this.node = node;
    const timer = setTimeout(() => this.close('no answer'), GREETING_MS);
    let isConnected = false;
    try {
      const connected = this.#connect(address, node);
      this.socket.on('error', (error) => this.close(error.message || error.code));
      this.socket.on('close', () => this.close('the server closed the connection'));
      await once(this.socket, connected);
      isConnected = true;
      this.socket.setNoDelay(true).unref();
      await this.#greet(address, name);
    } catch (error) {
      this.close(error.message || error.code);
      throw explained(error, node, this.socket, isConnected);
    } finally {
      clearTimeout(timer);
    }
  }

  /** The name of the event that it is connected. */
  #connect(address, { host, port, path }) {
    const parser = new Parser((value, isPush) => (isPush ? this.#notice(value) : this.#answer(value)));
    // One buffer for all reads: a new one for each would cost more than the rest of a small reply.
    const callback = (size, data) => this.#receive(parser, data, size);
    const onread = { buffer: Buffer.allocUnsafeSlow(READ_BYTES), callback };
    const where = path ? { path, onread } : { host, port, autoSelectFamily: true, onread };
    const secure = address.tls && { ...where, servername: net.isIP(host) ? '' : host, ...address.tls };
    this.socket = secure ? tls.connect(secure) : net.connect(where);
    return secure ? 'secureConnect' : 'connect';
  }

  async #greet({ user, secret }, name) {
    const hello = await this.ask(['HELLO', 3, ...(secret ? ['AUTH', user, secret] : []), 'SETNAME', name]);
    if (hello?.server !== 'millrace') throw new Incompatible('it is not a Millrace server');
    this.session = String(hello.id);
    await this.ask(['CLIENT', 'CANCELS', 'ON']);
  }

  // ---- Commands --------------------------------------------------------------------------------

  /** Sends a command; commands of one turn leave together. The server may wait for `waits` ms before it replies.
   *  `done` is called with the reply or a MillraceError, before anything behind the reply is read. */
  send(words, done, waits = 0) {
    const parts = encode(words);
    if (this.closed) return void done(new Unreachable(this.closed));
    if (!this.#out.length) process.nextTick(this.#write);
    this.#out.push(...parts);
    const command = { done, waits, next: undefined };
    if (this.#first) {
      this.#last.next = command;
    } else {
      this.#first = command;
      this.#silence = 0;
      this.socket.ref();
    }
    this.#last = command;
  }

  ask(words, waits) {
    return new Promise((resolve, reject) => {
      this.send(words, (reply) => (reply instanceof MillraceError ? reject(reply) : resolve(reply)), waits);
    });
  }

  /** Sends CALL … LATER; the end of the job, which is cancelled when `stop` aborts. */
  call(words, waits, stop) {
    return new Promise((resolve, reject) => {
      this.send(words, (id) => {
        if (id instanceof MillraceError) return void reject(id);
        this.#calls.set(id, { resolve, reject });
        const giveUp = () => {
          if (this.#calls.delete(id)) this.send(['CANCEL', id], () => {});
        };
        stop.addEventListener('abort', giveUp);
        if (stop.aborted) giveUp();
      }, waits);
    });
  }

  flush() {
    const out = this.#out;
    if (this.closed || !out.length) return;
    this.#out = [];
    if (out.every((part) => typeof part === 'string')) return void this.socket.write(out.join(''));
    this.socket.cork();
    for (const part of out) this.socket.write(part);
    this.socket.uncork();
  }

  // ---- Replies ---------------------------------------------------------------------------------

  #receive(parser, data, size) {
    this.#silence = 0;
    try {
      parser.feed(data, size);
    } catch (error) {
      this.close(error.message);
    }
    this.#rest();
    return true;
  }

  #answer(value) {
    const command = this.#first;
    if (!command) throw nonsense('a reply to no command');
    this.#first = command.next;
    command.done(value);
    if (value instanceof Unreachable) this.close(value.reason); // refused pushes have spoilt it
  }

  /** Reads [cancel, id …] and [ended, id, result]. */
  #notice([kind, ...ids]) {
    if (kind === 'cancel') this.onCancel?.(ids);
    if (kind !== 'ended') return;
    const [id, result] = ids;
    this.#calls.get(id)?.[result instanceof MillraceError ? 'reject' : 'resolve'](result);
    this.#calls.delete(id);
  }

  #rest() {
    if (this.#first || this.#calls.size || this.closed) return;
    this.socket.unref();
  }

  #look() {
    this.#silence += LOOK_MS;
    if (this.#silence > SILENCE_MS + (this.#first?.waits ?? Infinity)) this.close('the server does not answer');
  }

  close(why) {
    if (this.closed) return;
    this.closed = why;
    clearInterval(this.#timer);
    this.socket?.destroy(new Error(why)); // it has none if the options of TLS are wrong
    for (let command = this.#first; command; command = command.next) command.done(new Unreachable(why));
    for (const { reject } of this.#calls.values()) reject(Object.assign(new Unreachable(why), { wasAccepted: true }));
    this.onClose?.(new Unreachable(why));
  }
}

module.exports = { Connection, addressOf };
