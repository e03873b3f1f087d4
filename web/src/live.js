// The stream of events. It is read with fetch, because an EventSource cannot send a token. When the stream
// breaks, or no event arrives in time, it is opened again after a pause that doubles each time; meanwhile the
// page is marked as stale.
import { Refused, headers, refusal } from './api.js';

const SILENCE_MS = 10_000; // the server sends an event every second
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;

// Splits a stream of text into events { type, data }; feed() is given pieces of any size.
export function eventParser(onEvent) {
  let rest = '',
    type = '',
    data = [];
  function line(text) {
    if (text === '') {
      if (data.length) onEvent({ type: type || 'message', data: data.join('\n') });
      type = '';
      data = [];
    } else if (text.startsWith('event:')) type = text.slice(6).trim();
    else if (text.startsWith('data:')) data.push(text.slice(5).replace(/^ /, ''));
  }
  return {
    feed(text) {
      const lines = (rest + text).split(/\r?\n/);
      rest = lines.pop();
      lines.forEach(line);
    },
  };
}

// `on` has event({ type, data }); lost(message), with the server's refusal, or '' if it was not reached; and
// locked(error), when the server requires a token: only now() connects again after that.
export function openStream(path, on) {
  let pause = FIRST_PAUSE_MS,
    timer = 0,
    current = null;

  async function read(controller) {
    let silence = 0;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => controller.abort(), SILENCE_MS);
    };
    const parser = eventParser((event) => {
      pause = FIRST_PAUSE_MS;
      on.event(event);
    });
    try {
      alive();
      const response = await fetch(path, {
        headers: headers({ Accept: 'text/event-stream' }),
        cache: 'no-store',
        signal: controller.signal,
      });
      if (!response.ok) throw await refusal(response);
      const decoder = new TextDecoder();
      const reader = response.body.getReader();
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        alive();
        parser.feed(decoder.decode(piece.value, { stream: true }));
      }
    } finally {
      clearTimeout(silence);
    }
  }

  async function run() {
    clearTimeout(timer);
    const controller = (current = new AbortController());
    let failure = null;
    try {
      await read(controller);
    } catch (error) {
      failure = error;
    }
    if (current !== controller) return; // now() has started another
    if (failure?.asksForToken) on.locked(failure);
    else again(failure);
  }

  function again(failure) {
    const wait = pause * (0.75 + Math.random() / 2);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    timer = setTimeout(run, wait);
    on.lost(failure instanceof Refused ? failure.message : '');
  }

  function now() {
    current?.abort();
    run();
  }

  run();
  return { now };
}
