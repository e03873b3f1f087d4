// The policy of a stage: shown, and changed where a value was edited.
import { setPolicy } from '../actions.js';
import { button, el, field, panel, select, setShown } from '../dom.js';

const ABOUT = {
  lease: 'how long a worker may keep a job without a sign of life',
  attempts: 'how often a job may fail before it is dead',
  backoff: 'pause after a failure: first..longest',
  'on-dead': 'skip: its channel goes on; halt: it waits for a person',
  overlap: 'never: after a lost connection a channel waits out the lease',
  concurrency: 'jobs that run at once, in all',
  rate: 'starts, as 10/s, 100/m or 1000/h',
  'max-jobs': 'jobs of the stage; more are refused as FULL',
  'max-channel': 'jobs of one key; more are refused as FULL',
  'high-mark': 'jobs waiting here that hold the stages before it',
  retention: 'how long ended jobs are kept, and how many',
  'dedupe-window': 'how long a once is remembered after the end',
  'max-states': 'channels that may keep a state',
  'state-ttl': 'how long an unused state is kept',
};

// The server tells times in milliseconds; people write 30s.
const TIMES = ['lease', 'backoff', 'retention', 'dedupe-window', 'state-ttl'];
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

// 1000..300000 is 1s..5m; behind a comma stands a count.
function shown(name, value) {
  if (!TIMES.includes(name)) return value;
  const [times, ...rest] = value.split(',');
  return [times.replace(/\d+/g, withUnit), ...rest].join(',');
}

const CHOICES = { 'on-dead': ['skip', 'halt'], overlap: ['brief', 'never'] };

function makeInput(name, value, changed) {
  if (CHOICES[name])
    return select(
      CHOICES[name].map((word) => [word, word]),
      value,
      { onchange: changed },
    );
  return el('input', { value, spellcheck: 'false', autocomplete: 'off', oninput: changed });
}

// `refresh()` has the policy told again.
export function stagePolicy(name, refresh) {
  const fields = el('div.fields');
  const save = el('button.primary', { type: 'submit' }, 'Save');
  const undo = button('Undo', () => show(JSON.parse(told)), 'quiet');
  const form = el(
    'form',
    { onsubmit: submit },
    el('p.soft', 'Times are written as 250ms, 30s, 5m, 2h or 7d; none lifts a limit.'),
    fields,
    el('div.row', save, undo),
  );
  const hidden = el('p.empty', 'Only a token with the role admin sees the policy.');
  let inputs = new Map(),
    saved = {},
    told = ''; // as it came

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
    saved = Object.fromEntries(Object.entries(policy).map(([n, value]) => [n, shown(n, value)]));
    told = JSON.stringify(policy);
    const names = [...new Set([...Object.keys(ABOUT), ...Object.keys(policy)])].filter(
      (n) => n in policy,
    );
    inputs = new Map(names.map((n) => [n, makeInput(n, saved[n], mark)]));
    fields.replaceChildren(...[...inputs].map(([n, input]) => field(n, input, ABOUT[n])));
    mark();
  }

  async function submit(event) {
    event.preventDefault();
    if (!(await setPolicy(name, changes()))) return;
    told = '';
    refresh();
  }

  return {
    node: panel('Policy', form, hidden),
    // Told often; what somebody is editing stays.
    update(policy) {
      setShown(form, policy !== null);
      setShown(hidden, policy === null);
      const isNew = policy && JSON.stringify(policy) !== told;
      if (isNew && (told === '' || Object.keys(changes()).length === 0)) show(policy);
    },
  };
}
