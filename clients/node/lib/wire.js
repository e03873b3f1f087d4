// The wire: addresses, RESP3, and a connection on which replies come in the order of requests.
'use strict';

const net = require('node:net');
const tls = require('node:tls');
const { setTimeout: sleep } = require('node:timers/promises');
const { Incompatible, MillraceError, Stopped, Unreachable, Usage, errorOf } =
  require('./errors.js');

const GREETING_MS = 5000;
const SILENCE_MS = 15_000; // a reply is late by so much at most, then the connection is given up
const LOOK_MS = 1000; // how often that is checked
const LINE_MOST = 64 << 10; // bytes of a reply that is a line
const BULK_MOST = 256 << 20;
const COUNT_MOST = 1 << 24;
const DEPTH_MOST = 16;

/** Reads millrace://[user:secret@]host[:port][,host[:port]…], or millraces:// for TLS. */
function addressOf(url, token, tlsOptions) {
  const [, scheme, users = '', hosts] =
    /^(millraces?):\/\/(?:(.*)@)?([^@/]+)\/?$/.exec(url) ?? [];
  if (!scheme) {
    throw new Usage(`${JSON.stringify(url)} is not a URL of Millrace: write ` +
      'millrace://127.0.0.1:7411, or millraces://… for TLS');
  }
  const [, user = '', secret] = /^(?:(.*):)?(.*)$/.exec(users);
  return {
    nodes: hosts.split(',').map((host) => nodeOf(url, host)),
    tls: scheme === 'millraces' ? tlsOptions ?? {} : undefined,
    user: unescaped(user) || 'default',
    secret: token ?? (unescaped(secret) || process.env.MILLRACE_TOKEN || ''),
  };
}

function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Usage('the name and secret of a URL must have % written as %25');
  }
}

function nodeOf(url, text) {
  const [, v6, name, port = '7411'] = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d+))?$/.exec(text) ?? [];
  if (!(v6 ?? name) || port > 65535) {
    throw new Usage(`${JSON.stringify(url)} has a host that is not host or host:port: ${text}`);
  }
  return { host: v6 ?? name, port: Number(port), text: `${v6 ? `[${v6}]` : name}:${port}` };
}

/** A command as strings and buffers to be written one after another. */
function encode(words) {
  const parts = [];
  let text = `*${words.length}\r\n`;
  for (const word of words) {
    if (word instanceof Uint8Array) {
      parts.push(`${text}$${word.length}\r\n`, word);
      text = '\r\n';
      continue;
    }
    if (typeof word !== 'string' && typeof word !== 'number' && typeof word !== 'bigint') {
      throw new Usage(`a word of ${words[0]} is neither text, a number nor bytes: ${String(word)}`);
    }
    const value = String(word);
    text += `$${Buffer.byteLength(value)}\r\n${value}\r\n`;
  }
  parts.push(text);
  return parts;
}

/**
 * Reads RESP3 however it is cut. Whole elements are never read twice: an array that is not complete
 * stays on the stack. Calls `onValue(value, isPush)`; an error reply is a value, too. Bytes are
 * views of what was received. Throws Unreachable when it is not RESP3, or larger than any reply is.
 */
class Parser {
  constructor(onValue) {
    this.onValue = onValue;
    this.stack = [];
    this.kept = []; // the beginning of an element, in pieces …
    this.size = 0; // … of so many bytes, …
    this.need = 0; // … which is complete with so many at the earliest
  }

  feed(chunk) {
    if (this.size) {
      this.kept.push(chunk);
      this.size += chunk.length;
      if (this.size < this.need) return;
      chunk = Buffer.concat(this.kept, this.size);
    }
    this.data = chunk;
    this.at = 0;
    while (this.at < chunk.length && this.element());
    this.size = chunk.length - this.at;
    this.kept = this.size ? [chunk.subarray(this.at)] : [];
    this.data = undefined;
  }

  /** One element from `at`; false: it is cut. */
  element() {
    const { data, at } = this;
    const end = data.indexOf(10, at);
    if (end < 0 || end - at > LINE_MOST) {
      if (data.length - at > LINE_MOST) throw nonsense('a line without an end');
      this.need = data.length - at + 1;
      return false;
    }
    if (end === at || data[end - 1] !== 13) throw nonsense('a line that ends with LF alone');
    this.at = end + 1;
    switch (data[at]) {
      case 0x24: return this.bulk(at, end); // $
      case 0x2a: // *
      case 0x25: // %
      case 0x7e: // ~
      case 0x3e: // >
        return this.open(data[at], this.number(at, end));
      case 0x3a: return this.add(this.number(at, end)); // :
      case 0x2b: return this.add(this.line(at, end)); // +
      case 0x2d: return this.add(errorOf(this.line(at, end))); // -
      case 0x5f: return this.add(null); // _
      case 0x23: return this.add(data[at + 1] === 0x74); // #
      case 0x2c: return this.add(Number(this.line(at, end).replace(/inf$/, 'Infinity'))); // ,
      default: throw nonsense(`${JSON.stringify(this.line(at - 1, at + 2))}, which is not RESP3`);
    }
  }

  line(at, end) {
    return this.data.toString('utf8', at + 1, end - 1);
  }

  number(at, end) {
    const { data } = this;
    const minus = data[at + 1] === 0x2d;
    let value = 0;
    let i = at + 1 + minus;
    if (i === end - 1 || end - i > 20) throw nonsense('a number of no or of many digits');
    for (; i < end - 1; i++) {
      const digit = data[i] - 0x30;
      if (!(digit >= 0 && digit <= 9)) throw nonsense('a number with a letter');
      value = value * 10 + digit;
    }
    return minus ? -value : value;
  }

  bulk(at, end) {
    const { data } = this;
    const size = this.number(at, end);
    if (size < 0) return this.add(null);
    if (size > BULK_MOST) throw nonsense(`${size} bytes at once`);
    const last = end + 1 + size;
    if (data.length < last + 2) {
      this.at = at;
      this.need = last + 2 - at;
      return false;
    }
    if (data[last] !== 13 || data[last + 1] !== 10) throw nonsense('bytes without an end');
    this.at = last + 2;
    return this.add(data.subarray(end + 1, last));
  }

  open(kind, count) {
    if (count < 0) return this.add(null);
    if (count > COUNT_MOST) throw nonsense(`${count} elements at once`);
    if (this.stack.length === DEPTH_MOST) throw nonsense('arrays within arrays without an end');
    if (kind === 0x3e && this.stack.length) throw nonsense('a push message within a reply');
    const frame = { kind, left: kind === 0x25 ? 2 * count : count, values: [] };
    if (!frame.left) return this.add(valueOf(frame), kind);
    this.stack.push(frame);
    return true;
  }

  add(value, kind = 0) {
    while (this.stack.length) {
      const frame = this.stack[this.stack.length - 1];
      frame.values.push(value);
      if (--frame.left) return true;
      this.stack.pop();
      value = valueOf(frame);
      kind = frame.kind;
    }
    this.onValue(value, kind === 0x3e);
    return true;
  }
}

function valueOf({ kind, values }) {
  if (kind !== 0x25) return values;
  const pairs = [];
  for (let i = 0; i < values.length; i += 2) pairs.push([String(values[i]), values[i + 1]]);
  return Object.fromEntries(pairs);
}

function nonsense(what) {
  return new Unreachable(`the server's reply makes no sense: it sent ${what}`);
}

/** A connection. It keeps the process alive only while a reply is awaited. */
class Wire {
  constructor(socket, onPush) {
    this.closed = ''; // why
    this.onClose = new Set(); // functions to call then
    this.session = '';
    this.socket = socket;
    this.waiting = [];
    this.first = 0; // of `waiting`: those before it were answered
    this.out = [];
    this.quietSince = 0;
    this.retired = false;
    const parser = new Parser((value, isPush) => (isPush ? onPush?.(value) : this.answer(value)));
    socket.on('data', (data) => this.receive(parser, data));
    socket.on('error', (error) => this.close(error.message));
    socket.on('close', () => this.close('the server closed the connection'));
    this.timer = setInterval(() => this.look(), LOOK_MS).unref();
    socket.unref();
  }

  receive(parser, data) {
    try {
      parser.feed(data);
    } catch (error) {
      this.close(error.message);
      return;
    }
    this.quietSince = performance.now();
    if (this.first === this.waiting.length) {
      this.waiting = [];
      this.first = 0;
      this.socket.unref();
      this.letGo();
    } else if (this.first > 1024) {
      this.waiting.splice(0, this.first);
      this.first = 0;
    }
  }

  answer(value) {
    if (this.first === this.waiting.length) throw nonsense('a reply to no command');
    const { resolve, reject } = this.waiting[this.first++];
    if (value instanceof MillraceError) reject(value);
    else resolve(value);
  }

  /** Sends a command; commands of one turn leave together. `waits` is how long the server may wait
   *  before it replies. `resolve` is called before anything behind the reply is read. */
  send(words, resolve, reject, waits = 0) {
    if (this.closed) {
      reject(new Unreachable(this.closed));
      return;
    }
    const parts = encode(words);
    if (!this.out.length) process.nextTick(() => this.flush());
    if (!this.waiting.length) {
      this.quietSince = performance.now();
      this.socket.ref();
    }
    this.waiting.push({ resolve, reject, waits });
    for (const part of parts) {
      const last = this.out.length - 1;
      if (typeof part === 'string' && typeof this.out[last] === 'string') this.out[last] += part;
      else this.out.push(part);
    }
  }

  ask(words, waits) {
    return new Promise((resolve, reject) => this.send(words, resolve, reject, waits));
  }

  flush() {
    const { out, socket } = this;
    this.out = [];
    if (this.closed || !out.length) return;
    if (out.length > 1) socket.cork();
    for (const part of out) socket.write(part);
    if (out.length > 1) socket.uncork();
  }

  look() {
    const { waits } = this.waiting[this.first] ?? { waits: Infinity };
    if (performance.now() - this.quietSince > waits + SILENCE_MS) {
      this.close('the server does not answer');
    }
  }

  /** Closes it as soon as no reply and no end of a call is awaited on it. */
  retire() {
    this.retired = true;
    this.letGo();
  }

  letGo() {
    if (this.retired && !this.waiting.length && !this.onClose.size) this.close();
  }

  close(why = 'the connection was closed') {
    if (this.closed) return;
    this.closed = why;
    clearInterval(this.timer);
    this.socket.destroy();
    for (const { reject } of this.waiting.slice(this.first)) reject(new Unreachable(why));
    this.waiting = [];
    this.first = 0;
    for (const notify of this.onClose) notify();
  }
}

/** Connects to a node and waits until it has read its store. */
async function dial(address, node, name, onPush) {
  const socket = await connected(address, node);
  const wire = new Wire(socket, onPush);
  const timer = setTimeout(() => wire.close(`${node.text} does not answer`), GREETING_MS);
  try {
    await greet(wire, address, node, name);
  } catch (error) {
    wire.close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
  return wire;
}

function connected(address, { host, port, text }) {
  return new Promise((resolve, reject) => {
    const where = { host, port, autoSelectFamily: true };
    const socket = !address.tls ? net.connect(where) : tls.connect({
      ...where, servername: net.isIP(host) ? '' : host, ...address.tls,
    });
    const fail = (why, lasting) => {
      clearTimeout(timer);
      socket.destroy();
      reject(Object.assign(new Unreachable(`cannot connect to ${text}: ${why}` + (lasting ? '' :
        `; a server is started with: millrace serve --listen ${text}`)), { lasting }));
    };
    const timer = setTimeout(() => fail('no answer'), GREETING_MS);
    const onError = (error) => {
      const untrusted = socket.authorizationError || /^ERR_TLS_CERT/.test(error.code);
      if (untrusted) fail(
        `its certificate is refused: ${error.message}; give the authority that signed it with ` +
        'the option tls: { ca }', true);
      else fail(error.message || error.code);
    };
    socket.once('error', onError);
    socket.once(address.tls ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer);
      socket.off('error', onError);
      socket.setNoDelay(true);
      resolve(socket);
    });
  });
}

async function greet(wire, address, node, name) {
  const auth = address.secret ? ['AUTH', address.user, address.secret] : [];
  try {
    const hello = await wire.ask(['HELLO', 3, ...auth, 'SETNAME', name]);
    if (String(hello?.server) !== 'millrace') {
      throw new Incompatible('it is not a Millrace server');
    }
    wire.session = String(hello.id);
    await wire.ask(['CLIENT', 'CANCELS', 'ON']);
    while (String(await wire.ask(['INFO', 'persistence'])).includes('loading:1')) await sleep(100);
  } catch (error) {
    if (!(error instanceof Usage || error instanceof Incompatible)) throw error;
    throw new Incompatible(`${node.text} does not speak the protocol of this library: ` +
      `${error.reason}; connect to a Millrace server of version 0.2 or later`);
  }
}

const mayRepeat = (error) =>
  (error instanceof Unreachable || error instanceof Stopped) && !error.lasting;

module.exports = { Parser, addressOf, dial, encode, mayRepeat };
