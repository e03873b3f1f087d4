// One job: its status, failed attempts, body or result, and the actions that its status allows.
import { jobAct } from '../actions.js';
import { sentence } from '../api.js';
import { bytesView } from '../bytes.js';
import { look } from '../calls.js';
import { button, el, fragment, link, needs, panel, setShown, setText } from '../dom.js';
import { count, duration, keyText, moment } from '../format.js';
import { tag } from '../parts.js';
import { poller } from '../poll.js';
import { jobProgress } from '../progress.js';
import { liveTable } from '../table.js';
import { stagePath } from '../why.js';

const UNENDED = ['delayed', 'waiting', 'running'];
const CAN = {
  cancel: (status) => UNENDED.includes(status),
  retry: (status) => status === 'dead',
  drop: (status) => ['dead', 'waiting', 'delayed'].includes(status),
  due: (status, job) => job['due-ms'] > 0,
};

// The reason, and below it the end of what the worker printed, if that is kept.
function reasonCell() {
  const text = el('span'),
    output = el('pre');
  return {
    node: el('div', text, output),
    set(r) {
      setText(text, r.text);
      setText(output, r.output ?? '');
      setShown(output, Boolean(r.output));
    },
  };
}

function attempts() {
  return liveTable({
    label: 'Failed attempts',
    key: (r) => `${r.attempt} ${r.text}`,
    empty: 'No attempt has failed.',
    columns: [
      { head: 'Attempt', number: true, text: (r) => count(r.attempt) },
      { head: 'When', text: (r) => moment(r['age-ms']) },
      { head: 'Ago', number: true, text: (r) => duration(r['age-ms']) },
      { head: 'Reason', wide: true, make: reasonCell },
    ],
  });
}

function facts() {
  const names = ['Stage', 'Key', 'Attempts', 'Age', 'Deadline', 'Next start', 'Running for'];
  const values = Object.fromEntries(names.map((name) => [name, el('dd')]));
  return {
    node: el(
      'dl.facts',
      names.map((name) => el('div', el('dt', name), values[name])),
    ),
    values,
  };
}

const isEnded = (job) => !UNENDED.includes(job.status);

function showFacts(values, job) {
  if (values.Stage.textContent !== job.stage)
    values.Stage.replaceChildren(link(job.stage, stagePath(job.stage)));
  setText(values.Key, keyText(job.key));
  setText(values.Attempts, `${count(job.attempt)} of ${count(job.attempts)}`);
  setText(
    values.Age,
    isEnded(job) ? `ended ${duration(job['age-ms'])} ago` : duration(job['age-ms']),
  );
  setText(values.Deadline, job['left-ms'] < 0 ? 'none' : `in ${duration(job['left-ms'])}`);
  setText(values['Running for'], duration(job['running-ms']));
  setText(values['Next start'], job['due-ms'] > 0 ? `in ${duration(job['due-ms'])}` : '–');
}

// Why it waits, without the commands that change that: the view has buttons for them.
const inWords = (why) => why.replace(/: (JOB|RETRY|CANCEL|DUE|WHY) .*$/s, '.');

const ACTS = [
  ['retry', 'Retry', 'primary', 'admin'],
  ['due', 'Run now', 'primary', 'admin'],
  ['cancel', 'Cancel…', 'danger', 'push'],
  ['drop', 'Drop…', 'danger', 'admin'],
];

// The body, or the result once the job is done: requested once, since it may be large.
function makeContents(id) {
  const node = el('div.stack');
  let shown = '';
  return {
    node,
    async update(job, signal) {
      const name = job.status === 'done' ? 'Result' : 'Body';
      const kept = !['expired', 'cancelled'].includes(job.status);
      if (shown === `${name} ${kept}`) return;
      const data = kept ? await look.contents(id, signal) : null;
      shown = `${name} ${kept}`;
      node.replaceChildren(
        panel(
          name,
          data
            ? bytesView(name, data.bytes, `job-${id}-${name.toLowerCase()}`)
            : el('p.empty', `The body of a job is not kept once it is ${job.status}.`),
        ),
        data?.meta ? panel('Metadata', bytesView('Metadata', data.meta, `job-${id}-meta`)) : '',
      );
    },
  };
}

export function jobView([id]) {
  const status = tag(),
    about = facts(),
    progress = jobProgress(),
    history = attempts(),
    contents = makeContents(id);
  const why = el('p.soft'),
    said = el('p.error', { role: 'alert' });
  const buttons = ACTS.map(([verb, text, kind, role]) =>
    needs(
      role,
      button(
        text,
        async () => {
          if (await jobAct(id, verb)) loading.now();
        },
        kind,
      ),
    ),
  );
  const known = el(
    'div.stack',
    panel('Status', about.node, progress.node, why),
    panel('Failed attempts', history.node),
    contents.node,
  );

  function showActs(job) {
    ACTS.forEach(([verb], i) => setShown(buttons[i], Boolean(job) && CAN[verb](job.status, job)));
    setShown(known, Boolean(job));
  }

  const loading = poller(
    async (signal) => {
      const job = await look.job(id, signal);
      showActs(job);
      status.set(job.status);
      showFacts(about.values, job);
      progress.set(job);
      history.update(job.reasons);
      setText(said, '');
      setText(
        why,
        isEnded(job) && job.status !== 'dead' ? '' : inWords(await look.why(id, signal)),
      );
      await contents.update(job, signal);
    },
    (error) => {
      if (error.code === 'GONE') missing();
      else setText(said, sentence(error));
    },
  );

  function missing() {
    showActs(null);
    status.set('gone');
    setText(
      said,
      `There is no job ${id}. Dropped jobs are deleted at once, ended jobs when the retention of their stage has ` +
        'passed.',
    );
  }

  showActs(null);
  return {
    title: `Job ${id}`,
    node: fragment(el('div.title', el('h1', `Job ${id} `, status.node), buttons), said, known),
    update: loading.tick,
    end: loading.end,
  };
}
