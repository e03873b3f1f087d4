// Bodies, results, states and metadata: strings and bytes travel as they are, the rest as JSON.
'use strict';

const { BadBody, Usage } = require('./errors.js');

/** A string, or a copy of the bytes: the caller may change its own before they are sent. */
function toBytes(value, what = 'body') {
  if (typeof value === 'string') return value;
  if (ArrayBuffer.isView(value)) {
    return Buffer.from(Buffer.from(value.buffer, value.byteOffset, value.byteLength));
  }
  if (value instanceof ArrayBuffer) return Buffer.from(new Uint8Array(value));
  let why = `a ${typeof value} is not JSON`;
  try {
    const text = JSON.stringify(value);
    if (text !== undefined) return text;
  } catch (error) {
    why = error.message;
  }
  throw new BadBody(`the ${what} cannot be turned into JSON: ${why}; give a string, bytes, or ` +
    'what JSON.stringify takes');
}

/** Text, or the bytes if they are not UTF-8. */
function textOf(data) {
  const text = data.toString();
  return text.includes('\ufffd') && !data.equals(Buffer.from(text)) ? Buffer.from(data) : text;
}

/** A JSON object or array, or else text, or else the bytes: what toBytes was given. */
function fromBytes(data) {
  if (data === null || data === undefined) return null;
  const text = textOf(data);
  if (typeof text === 'string' && (text[0] === '{' || text[0] === '[')) {
    try {
      return JSON.parse(text);
    } catch {
      // it is text that begins like JSON
    }
  }
  return text;
}

function strictJson(data) {
  try {
    return JSON.parse(data.toString());
  } catch (error) {
    throw new BadBody(`the body is not JSON: ${error.message}`);
  }
}

/** A reply with text in place of bytes, at any depth. */
function readable(value) {
  if (Buffer.isBuffer(value)) return textOf(value);
  if (Array.isArray(value)) return value.map(readable);
  if (value === null || typeof value !== 'object' || value instanceof Error) return value;
  return Object.fromEntries(Object.entries(value).map(([name, v]) => [name, readable(v)]));
}

/** A time of the protocol; -1 is for ever. */
function milliseconds(value, what) {
  if (typeof value !== 'number' || Number.isNaN(value)) {
    throw new Usage(`${what} is a number of milliseconds, not ${String(value)}`);
  }
  return value < 0 || value === Infinity ? -1 : Math.ceil(value);
}

module.exports = { fromBytes, milliseconds, readable, strictJson, textOf, toBytes };
