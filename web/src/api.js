// Requests to the server over HTTP. Fields have the same names as in the protocol. A request that the server
// refuses throws Refused, with its code (FULL, GONE, …) and message; one that did not reach it throws Unreachable.

export class Refused extends Error {
  constructor(status, code, text) {
    super(text);
    this.status = status;
    this.code = code;
  }

  get asksForToken() {
    return this.status === 401;
  }
}

export class Unreachable extends Error {}

const TIMEOUT_MS = 20_000;
const TOKEN_NAME = 'millrace-token';

// A token is kept until its tab is closed, and is sent only to the server that the page came from.
export const token = {
  get: () => sessionStorage.getItem(TOKEN_NAME) ?? '',
  set: (secret) => sessionStorage.setItem(TOKEN_NAME, secret),
  forget: () => sessionStorage.removeItem(TOKEN_NAME),
};

// Throws Refused for a token that a browser would not send in a header.
export function headers(more = {}) {
  const secret = token.get();
  if (/[^\x21-\x7e]/.test(secret))
    throw new Refused(401, 'WRONGPASS', 'it has characters that no token has');
  return secret ? { ...more, Authorization: `Bearer ${secret}` } : more;
}

export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, v]) => v !== '' && v !== null && v !== undefined);
  const text = new URLSearchParams(given).toString();
  return text ? `${path}?${text}` : path;
}

export async function refusal(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // not a response of Millrace: only the status is known
  }
  return new Refused(
    response.status,
    body.error ?? '',
    body.message ?? `the server answered with status ${response.status}`,
  );
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

const escaped = (bytes) =>
  Array.from(bytes, (b) =>
    b >= 32 && b < 127 && b !== 92
      ? String.fromCharCode(b)
      : `\\x${b.toString(16).padStart(2, '0')}`,
  ).join('');

const CONTENTS = ['body-base64', 'result-base64'];

// Names and reasons that are not UTF-8 arrive as base64; bytes that cannot be printed are shown as \x00.
export function parse(text) {
  return JSON.parse(text, function revive(name, value) {
    if (name.endsWith('-base64') && !CONTENTS.includes(name))
      this[name.slice(0, -'-base64'.length)] = escaped(fromBase64(value));
    return value;
  });
}

async function request(method, path, { query, body, signal } = {}) {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers: headers(method === 'POST' ? { 'Content-Type': 'application/json' } : {}),
      body: method === 'POST' ? JSON.stringify(body ?? {}) : undefined,
      cache: 'no-store',
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
    if (response.ok) return parse(await response.text());
  } catch (error) {
    if (signal?.aborted || error instanceof Refused) throw error;
    throw new Unreachable('the server cannot be reached');
  }
  throw await refusal(response);
}

export const get = (path, query, signal) => request('GET', path, { query, signal });
export const post = (path, body) => request('POST', path, { body });

// The text that is shown to the user for an error.
export function sentence(error) {
  if (error instanceof Unreachable)
    return (
      'The server cannot be reached, so it is not known whether the change was made. Check it when ' +
      'the page is connected again.'
    );
  if (error.code === 'STOPPED')
    return `The log has stopped, so it is not known whether the change was made: ${error.message}`;
  if (error.code === 'NOPERM') return `This token does not permit that: ${error.message}`;
  return error.message;
}
