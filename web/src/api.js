// Asking the server over HTTP. Fields keep the names they have on the wire. What the server refuses is
// thrown as Refused, with its code (FULL, GONE, …) and sentence; what never reached it as Unreachable.

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

const PATIENCE_MS = 20_000;
const KEPT_AS = 'millrace-token';

// A token lives as long as its tab, and is sent to nobody but the server that the page came from.
export const token = {
  get: () => sessionStorage.getItem(KEPT_AS) ?? '',
  set: (secret) => sessionStorage.setItem(KEPT_AS, secret),
  forget: () => sessionStorage.removeItem(KEPT_AS),
};

// Throws Refused where a browser would not even send it.
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
  let said = {};
  try {
    said = await response.json();
  } catch {
    // not from the engine: the status has to do
  }
  return new Refused(
    response.status,
    said.error ?? '',
    said.message ?? `the server answered ${response.status}`,
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

// Names and reasons that are no text come as base64; they are shown with their odd bytes as \x00.
export function parse(text) {
  return JSON.parse(text, function revive(name, value) {
    if (name.endsWith('-base64') && !CONTENTS.includes(name))
      this[name.slice(0, -'-base64'.length)] = escaped(fromBase64(value));
    return value;
  });
}

async function request(method, path, { query, body, signal } = {}) {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers: headers(method === 'POST' ? { 'Content-Type': 'application/json' } : {}),
      body: method === 'POST' ? JSON.stringify(body ?? {}) : undefined,
      cache: 'no-store',
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
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

// What to tell a person about an error.
export function sentence(error) {
  if (error instanceof Unreachable)
    return (
      'The server cannot be reached; nothing was changed as far as is known. Try again when the ' +
      'page is connected.'
    );
  if (error.code === 'STOPPED')
    return `The log has stopped, and whether this happened is not known: ${error.message}`;
  if (error.code === 'NOPERM') return `This token may not do that: ${error.message}`;
  return error.message;
}
