// Bodies, results, states and metadata: strings and bytes travel as they are, the rest as JSON.
'use strict';

const { BadBody, Usage } = require('./errors.js');

/** A string, or a copy of the bytes: the caller may change its own before they are sent. */
function toBytes(value, what = 'body') {
  if (typeof value === 'string') return value;
  if (ArrayBuffer.isView(value)) return Buffer.from(Buffer.from(value.buffer, value.byteOffset, value.byteLength));
  if (value instanceof ArrayBuffer) return Buffer.from(new Uint8Array(value));
  let why = `a ${typeof value} is not JSON`;
  try {
    const text = JSON.stringify(value);
    if (text !== undefined) return text;
  } catch (error) {
    why = error.message;
  }
  throw new BadBody(`the ${what} cannot be turned into JSON: ${why}; give text, bytes, or what JSON.stringify takes`);
}

/** A JSON object or array, or else text, or else bytes: what toBytes was given. */
function fromBytes(value) {
  if (typeof value !== 'string' || (value[0] !== '{' && value[0] !== '[')) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value; // it is text that begins like JSON
  }
}

/** A time of the protocol; -1 is for ever. */
function milliseconds(value, what) {
  if (typeof value !== 'number' || Number.isNaN(value)) {
    throw new Usage(`${what} is a number of milliseconds, not ${String(value)}`);
  }
  return value < 0 || value === Infinity ? -1 : Math.ceil(value);
}

module.exports = { fromBytes, milliseconds, toBytes };
