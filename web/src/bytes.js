// Bodies and results: bytes, shown as text, as JSON with indentation, or as hexadecimal digits. Of long ones
// only the first bytes are shown.
import { button, el, setText } from './dom.js';
import { bytes as size } from './format.js';

const SHOWN = 64 * 1024;
const HEX_SHOWN = 4 * 1024;

function asText(data) {
  const text = new TextDecoder('utf-8', { fatal: true }).decode(data, { stream: true });
  return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
}

function tryText(data) {
  try {
    return asText(data);
  } catch {
    return null;
  }
}

// Puts each value on a separate line and copies its text unchanged: a number that is parsed and printed again
// could differ.
export function indented(json) {
  const tokens = json.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  const line = (depth) => `\n${'  '.repeat(depth)}`;
  let depth = 0,
    out = '';
  tokens.forEach((token, i) => {
    const isEmpty = /[[{]/.test(tokens[i - 1] ?? '') && tokens[i - 1].length === 1;
    if (token === '{' || token === '[') {
      depth++;
      out += /[\]}]/.test(tokens[i + 1][0]) ? token : token + line(depth);
    } else if (token === '}' || token === ']') {
      depth--;
      out += isEmpty ? token : line(depth) + token;
    } else if (token === ',') out += token + line(depth);
    else out += token === ':' ? ': ' : token;
  });
  return out;
}

function tryJson(text) {
  if (text === null || !/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
    return indented(text);
  } catch {
    return null;
  }
}

// 00000010  68 65 6c 6c 6f …  |hello…|
export function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const digits = row.map((b) => b.toString(16).padStart(2, '0')).join(' ');
    const shown = row.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : '.')).join('');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${digits.padEnd(47)}  |${shown}|`);
  }
  return lines.join('\n');
}

function forms(data) {
  const text = tryText(data.subarray(0, SHOWN));
  const json = data.length <= SHOWN ? tryJson(text) : null;
  return [
    json !== null && { name: 'JSON', text: json, shown: data.length },
    text !== null && { name: 'Text', text, shown: Math.min(data.length, SHOWN) },
    {
      name: 'Hex',
      text: hex(data.subarray(0, HEX_SHOWN)),
      shown: Math.min(data.length, HEX_SHOWN),
    },
  ].filter(Boolean);
}

function save(data, name) {
  const at = URL.createObjectURL(new Blob([data], { type: 'application/octet-stream' }));
  el('a', { href: at, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(at), 1000);
}

export function bytesView(label, data, fileName) {
  if (data.length === 0) return el('p.empty', `The ${label.toLowerCase()} is empty.`);
  const pre = el('pre', { tabindex: 0, 'aria-label': label });
  const note = el('span.soft');
  const choices = forms(data);
  const tabs = choices.map((form) => button(form.name, () => show(form), 'tab'));

  function show(form) {
    setText(pre, form.text);
    note.textContent =
      form.shown < data.length
        ? `the first ${size(form.shown)} of ${size(data.length)}`
        : size(data.length);
    tabs.forEach((tab, i) => tab.setAttribute('aria-pressed', choices[i] === form));
  }

  show(choices[0]);
  return el(
    'div.bytes',
    el(
      'div.head',
      el('div.tabs', { role: 'group', 'aria-label': 'Format' }, tabs),
      note,
      button('Save as a file', () => save(data, fileName), 'quiet'),
    ),
    pre,
  );
}
