// Pushes a job by hand, to try a worker or a stage, and shows the same push as a program would make it.
import { sentence, token } from '../api.js';
import { act, look } from '../calls.js';
import { codeBlock } from '../copy.js';
import { el, field, fragment, link, needs, panel, select, setShown, tabs } from '../dom.js';
import { serverPlace, workCommand } from '../server.js';
import { snippets } from '../snippets.js';
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

// The push in each language, of which one is shown: { node, update(job) }.
function codePanel() {
  const code = codeBlock('the push');
  const names = snippets({ stage: '', body: '' }, serverPlace(), false).map((s) => s.name);
  let chosen = names[0],
    current = {};
  function update(job) {
    current = job;
    const all = snippets({ ...job, stage: job.stage || 'STAGE' }, serverPlace(), token.get() !== '');
    code.set(all.find((s) => s.name === chosen).text);
  }
  const choose = (name) => {
    chosen = name;
    update(current);
  };
  const choices = names.map((name) => [name, name]);
  return {
    node: panel(['The same push elsewhere', tabs('Language', choices, chosen, choose)], code.node),
    update,
  };
}

// What to start, if no worker takes the jobs of the stage.
function workerHint() {
  const code = codeBlock('the command'),
    text = el('p.warn');
  const node = el('div.stack', { role: 'status' }, text, code.node);
  setShown(node, false);
  return {
    node,
    hide: () => setShown(node, false),
    async show(name) {
      const { stage } = await look.stage(name);
      if (stage.workers > 0) return;
      text.replaceChildren(
        `No worker takes jobs of ${name}, so this one waits. Start one in a shell; COMMAND gets the body on its standard input:`,
      );
      code.set(workCommand(name));
      setShown(node, true);
    },
  };
}

export function pushView(_, query) {
  const stage = stageInput(query.get('stage') ?? '');
  const key = el('input', { maxlength: 1024, autocomplete: 'off', spellcheck: 'false' });
  const once = el('input', { maxlength: 256, autocomplete: 'off', spellcheck: 'false' });
  const attempts = el('input', { type: 'number', min: 1, step: 1, inputmode: 'numeric' });
  const body = el('textarea', { spellcheck: 'false', rows: 6 });
  const delay = time('Delay', 'until it may start');
  const deadline = time('Deadline', 'not done by then: it is stopped and expires');
  const send = needs('push', el('button.primary', { type: 'submit' }, 'Push'));
  const said = el('p', { role: 'status' });
  const hint = workerHint(),
    code = codePanel();

  const job = () =>
    clean({
      stage: stage.input.value,
      body: body.value,
      key: key.value,
      once: once.value,
      delay: delay.ms(),
      deadline: deadline.ms(),
      attempts: attempts.value === '' ? undefined : Number(attempts.value),
    });

  async function push(event) {
    event.preventDefault();
    send.disabled = true;
    said.replaceChildren();
    hint.hide();
    try {
      const { id } = await act.push(job());
      said.className = 'good';
      said.append(
        'Pushed as ',
        link(`job ${id}`, `#/job/${id}`),
        ' of ',
        link(stage.input.value, stagePath(stage.input.value)),
        '.',
      );
      await hint.show(stage.input.value).catch(() => {}); // the job was pushed all the same
    } catch (error) {
      said.className = 'error';
      said.append(sentence(error));
    }
    send.disabled = false;
  }

  const form = el(
    'form',
    { onsubmit: push, oninput: () => code.update(job()) },
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
    hint.node,
  );
  return {
    title: 'Push',
    node: fragment(
      el('div.title', el('h1', 'Push a test job')),
      panel('The job', form),
      code.node,
    ),
    update: () => code.update(job()), // the address of the server is known with the first snapshot
  };
}

// Removes fields that were left empty.
function clean(job) {
  return Object.fromEntries(
    Object.entries(job).filter(([name, v]) => name === 'body' || (v !== '' && v !== undefined)),
  );
}
