// Pushes a job by hand, to try a worker or a stage.
import { sentence } from '../api.js';
import { act } from '../calls.js';
import { el, field, fragment, link, needs, panel, select } from '../dom.js';
import { store } from '../store.js';
import { stagePath } from '../why.js';

const UNITS = [
  ['ms', 'ms'],
  ['s', 's'],
  ['m', 'min'],
  ['h', 'h'],
  ['d', 'd'],
];
const MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

function time(label, hint) {
  const number = el('input', { type: 'number', min: 0, step: 'any', inputmode: 'decimal' });
  const unit = select(UNITS, 's', { class: 'unit', 'aria-label': `${label}: unit` });
  const node = field(label, number, hint);
  number.after(unit);
  node.classList.add('with-unit');
  return {
    node,
    ms: () => (number.value === '' ? undefined : Math.round(number.value * MS[unit.value])),
  };
}

function stageInput(chosen) {
  const names = el(
    'datalist',
    { id: 'stage-names' },
    store.stages.slice(0, 200).map((s) => el('option', { value: s.name })),
  );
  const input = el('input', {
    required: true,
    maxlength: 200,
    pattern: '[A-Za-z0-9._:\\/\\-]+',
    value: chosen,
    list: 'stage-names',
    autocomplete: 'off',
    spellcheck: 'false',
    title: 'Letters, digits and . _ : / -',
  });
  return { input, names };
}

export function pushView(_, query) {
  const stage = stageInput(query.get('stage') ?? '');
  const key = el('input', { maxlength: 1024, autocomplete: 'off', spellcheck: 'false' });
  const once = el('input', { maxlength: 256, autocomplete: 'off', spellcheck: 'false' });
  const attempts = el('input', { type: 'number', min: 1, step: 1, inputmode: 'numeric' });
  const body = el('textarea', { spellcheck: 'false', rows: 6 });
  const delay = time('Delay', 'until it may start');
  const deadline = time('Deadline', 'not started by then: it expires');
  const send = needs('push', el('button.primary', { type: 'submit' }, 'Push'));
  const said = el('p', { role: 'status' });

  async function push(event) {
    event.preventDefault();
    send.disabled = true;
    said.replaceChildren();
    try {
      const { id } = await act.push(
        clean({
          stage: stage.input.value,
          body: body.value,
          key: key.value,
          once: once.value,
          delay: delay.ms(),
          deadline: deadline.ms(),
          attempts: attempts.value === '' ? undefined : Number(attempts.value),
        }),
      );
      said.className = 'good';
      said.append(
        'Pushed as ',
        link(`job ${id}`, `#/job/${id}`),
        ' of ',
        link(stage.input.value, stagePath(stage.input.value)),
        '.',
      );
    } catch (error) {
      said.className = 'error';
      said.append(sentence(error));
    }
    send.disabled = false;
  }

  const form = el(
    'form',
    { onsubmit: push },
    el(
      'div.fields',
      field('Stage', stage.input, 'made if it is new'),
      stage.names,
      field('Key', key, 'jobs of one key run one after another'),
      field('Once', once, 'two pushes of one key with the same name are one job'),
      delay.node,
      deadline.node,
      field('Attempts', attempts, 'how often it may fail; default: the policy of the stage'),
    ),
    field('Body', body),
    el('div.row', send, said),
  );
  return {
    title: 'Push',
    node: fragment(el('div.title', el('h1', 'Push a test job')), panel('The job', form)),
  };
}

// Removes fields that were left empty.
function clean(job) {
  return Object.fromEntries(
    Object.entries(job).filter(([name, v]) => name === 'body' || (v !== '' && v !== undefined)),
  );
}
