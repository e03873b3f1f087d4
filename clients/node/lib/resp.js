// RESP3, the format of the protocol: commands are written as text, replies are read however they are cut.
'use strict';

const { Unreachable, Usage, errorOf } = require('./errors.js');

const LINE_MOST = 64 << 10; // bytes of a reply that is a line
const BULK_MOST = 256 << 20;
const COUNT_MOST = 1 << 24;
const DEPTH_MOST = 16;
const [LF, CR, BULK, MAP, ARRAY, NUMBER, PUSH, SET] = Buffer.from('\n\r$%*:>~');

// Other elements are lines: how the text of one is read, by its first byte.
const LINES = {
  '+': (text) => text,
  '-': errorOf,
  '_': () => null,
  '#': (text) => text === 't',
  ',': (text) => Number(text.replace(/inf$/, 'Infinity')),
};

/** A command as strings and bytes to be written one after another. */
function encode(words) {
  const parts = [];
  let text = `*${words.length}\r\n`;
  for (const word of words) {
    if (word instanceof Uint8Array) {
      parts.push(`${text}$${word.length}\r\n`, word);
      text = '\r\n';
    } else if (typeof word === 'string' || typeof word === 'number' || typeof word === 'bigint') {
      text += `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`;
    } else {
      throw new Usage(`a word of ${words[0]} is neither text, a number nor bytes: ${String(word)}`);
    }
  }
  parts.push(text);
  return parts;
}

const nonsense = (what) => new Unreachable(`the server's reply makes no sense: it sent ${what}`);

/**
 * Calls `onValue(value, isPush)` for each reply; an error reply is a value, too. What is UTF-8 is a string, other bytes
 * are a Buffer. Whole elements are never read twice: an array that is not complete stays in `frames`. Throws
 * Unreachable when it is not RESP3, or larger than any reply is.
 */
class Parser {
  constructor(onValue) {
    this.onValue = onValue;
    this.frames = [];
    this.kept = []; // the beginning of an element, in pieces …
    this.size = 0; // … of so many bytes, …
    this.need = 0; // … which is complete with so many at the earliest
  }

  /** The caller may use `data` again afterwards. */
  feed(data, size = data.length) {
    if (this.size) {
      this.kept.push(Buffer.from(data.subarray(0, size)));
      this.size += size;
      if (this.size < this.need) return;
      data = Buffer.concat(this.kept);
      size = this.size;
    }
    this.data = data;
    this.end = size;
    this.at = 0;
    while (this.at < size && this.element());
    this.size = size - this.at;
    this.kept = this.size ? [Buffer.from(data.subarray(this.at, size))] : [];
  }

  /** Reads one element from `at`; false: it is cut. */
  element() {
    const { data, at } = this;
    let line = at; // where its first line ends
    for (; data[line] !== LF; line++) {
      if (line - at > LINE_MOST) throw nonsense('a line without an end');
      if (line === this.end) return this.isCut(at, line + 1);
    }
    if (data[line - 1] !== CR) throw nonsense('a line that ends with LF alone');
    this.at = line + 1;
    const kind = data[at];
    if (kind === BULK) return this.bulk(at, this.number(at, line));
    if (kind === NUMBER) return this.add(this.number(at, line));
    if (kind === ARRAY || kind === MAP || kind === SET || kind === PUSH) return this.open(kind, this.number(at, line));
    const read = LINES[String.fromCharCode(kind)];
    if (!read) throw nonsense(`${JSON.stringify(data.toString('latin1', at, line - 1))}, which is not RESP3`);
    return this.add(read(data.toString('utf8', at + 1, line - 1)));
  }

  isCut(at, needed) {
    this.at = at;
    this.need = needed - at;
    return false;
  }

  number(at, line) {
    const minus = this.data[at + 1] === 0x2d;
    const first = at + 1 + minus;
    if (first === line - 1 || line - first > 20) throw nonsense('a number of no or of many digits');
    let value = 0;
    for (let i = first; i < line - 1; i++) {
      const digit = this.data[i] - 0x30;
      if (!(digit >= 0 && digit <= 9)) throw nonsense('a number with a letter');
      value = value * 10 + digit;
    }
    return minus ? -value : value;
  }

  bulk(at, size) {
    const { data, at: start } = this;
    const last = start + size;
    if (size < 0) return this.add(null);
    if (size > BULK_MOST) throw nonsense(`${size} bytes at once`);
    if (this.end < last + 2) return this.isCut(at, last + 2);
    if (data[last] !== CR || data[last + 1] !== LF) throw nonsense('bytes without an end');
    this.at = last + 2;
    const text = size ? data.toString('utf8', start, last) : '';
    if (!text.includes('\ufffd')) return this.add(text);
    const bytes = Buffer.from(data.subarray(start, last));
    return this.add(bytes.equals(Buffer.from(text)) ? text : bytes);
  }

  open(kind, count) {
    if (count < 0) return this.add(null);
    if (count > COUNT_MOST) throw nonsense(`${count} elements at once`);
    if (this.frames.length === DEPTH_MOST) throw nonsense('arrays within arrays without an end');
    if (kind === PUSH && this.frames.length) throw nonsense('a push message within a reply');
    if (!count) return this.add(kind === MAP ? {} : [], kind);
    this.frames.push({ kind, left: kind === MAP ? 2 * count : count, values: [] });
    return true;
  }

  add(value, kind = 0) {
    while (this.frames.length) {
      const frame = this.frames[this.frames.length - 1];
      frame.values.push(value);
      if (--frame.left) return true;
      this.frames.pop();
      ({ kind, values: value } = frame);
      if (kind === MAP) value = Object.fromEntries(value.flatMap((name, i) => (i % 2 ? [] : [[name, value[i + 1]]])));
    }
    this.onValue(value, kind === PUSH);
    return true;
  }
}

module.exports = { Parser, encode, nonsense };
