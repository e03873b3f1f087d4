// The policy of a stage, as a form that sends the values that were edited.
import { setPolicy } from '../actions.js';
import { button, el, field, panel, select, setShown } from '../dom.js';

// The server sends times in milliseconds; people write 30s.
const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
];

function withUnit(ms) {
  const [unit, size] = UNITS.find(([, size]) => ms > 0 && ms % size === 0) ?? ['ms', 1];
  return `${ms / size}${unit}`;
}

// 1000..300000 is 1s..5m; a count may follow after a comma.
function shown(row, value) {
  if (row?.form !== 'duration') return value;
  const [times, ...rest] = value.split(',');
  return [times.replace(/\d+/g, withUnit), ...rest].join(',');
}

function makeInput(row, value, changed) {
  if (row?.choices)
    return select(
      row.choices.map((word) => [word, word]),
      value,
      { onchange: changed },
    );
  return el('input', { value, spellcheck: 'false', autocomplete: 'off', oninput: changed });
}

// `refresh()` requests the policy again.
export function stagePolicy(name, refresh) {
  const fields = el('div.fields');
  const save = el('button.primary', { type: 'submit' }, 'Save');
  const undo = button('Undo', () => show(JSON.parse(received)), 'quiet');
  const form = el(
    'form',
    { onsubmit: submit },
    el('p.soft', 'Durations are written as 250ms, 30s, 5m, 2h or 7d; none removes a limit.'),
    fields,
    el('div.row', save, undo),
  );
  const hidden = el('p.empty', 'Only a token with the role admin sees the policy.');
  let inputs = new Map(),
    rows = new Map(), // the server's description of each policy, by name
    saved = {},
    received = ''; // the policy as the server sent it

  const changes = () =>
    Object.fromEntries(
      [...inputs]
        .map(([n, input]) => [n, input.value.trim()])
        .filter(([n, value]) => value !== saved[n]),
    );

  function mark() {
    const changed = changes();
    for (const [n, input] of inputs) input.parentElement.classList.toggle('changed', n in changed);
    save.disabled = undo.disabled = Object.keys(changed).length === 0;
  }

  function show(policy) {
    saved = Object.fromEntries(
      Object.entries(policy).map(([n, value]) => [n, shown(rows.get(n), value)]),
    );
    received = JSON.stringify(policy);
    inputs = new Map(
      Object.keys(policy).map((n) => [n, makeInput(rows.get(n), saved[n], mark)]),
    );
    fields.replaceChildren(
      ...[...inputs].map(([n, input]) => field(n, input, rows.get(n)?.about)),
    );
    mark();
  }

  async function submit(event) {
    event.preventDefault();
    if (!(await setPolicy(name, changes()))) return;
    received = '';
    refresh();
  }

  return {
    node: panel('Policy', form, hidden),
    // Called often; values that are being edited stay.
    update(policy, policyRows) {
      rows = new Map(policyRows.map((row) => [row.name, row]));
      setShown(form, policy !== null);
      setShown(hidden, policy === null);
      const isNew = policy && JSON.stringify(policy) !== received;
      if (isNew && (received === '' || Object.keys(changes()).length === 0)) show(policy);
    },
  };
}
