// The jobs of a stage, by status and key, a page at a time; those that have not ended can be cancelled together.
import { cancelAct } from '../actions.js';
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { button, el, needs, panel, setShown, setText } from '../dom.js';
import { count, duration, short } from '../format.js';
import { poller } from '../poll.js';
import { progressColumn } from '../progress.js';
import { jobColumn, keyColumn, liveTable } from '../table.js';

const ROWS = 25;
// In the order of the tabs. The numbers of ended jobs count all of them; the lists have those that are kept.
const STATUSES = ['running', 'waiting', 'delayed', 'dead', 'done', 'expired', 'cancelled'];
const EMPTY = {
  running: 'No job of this stage is running.',
  waiting: 'No job is waiting.',
  delayed: 'No job is delayed.',
  dead: 'No job is dead.',
};

const CANCELLABLE = ['running', 'waiting', 'delayed'];

function jobTable(more) {
  return liveTable({
    label: 'Jobs',
    key: (j) => j.id,
    empty: '',
    columns: [
      jobColumn(),
      keyColumn(),
      { head: 'Attempt', number: true, text: (j) => `${count(j.attempt)} of ${count(j.attempts)}` },
      {
        head: 'Age',
        number: true,
        title: 'Since the push, or since its end',
        text: (j) => duration(j['age-ms']),
      },
      ...more,
      { head: 'Deadline in', number: true, text: (j) => duration(j['left-ms']) },
      { head: 'Last reason', wide: true, text: (j) => short(j.reasons?.at(-1)?.text ?? '–') },
    ],
  });
}

// Running jobs have other columns than the rest.
function jobTables() {
  const running = jobTable([
    { head: 'Running for', number: true, text: (j) => duration(j['running-ms']) },
    progressColumn(),
  ]);
  const others = jobTable([
    {
      head: 'Starts in',
      number: true,
      text: (j) => (j['due-ms'] > 0 ? duration(j['due-ms']) : '–'),
    },
  ]);
  return {
    node: el('div', running.node, others.node),
    update(status, jobs, nothing) {
      const table = status === 'running' ? running : others;
      setShown(running.node, table === running);
      setShown(others.node, table === others);
      setText(table.nothing, nothing);
      table.update(jobs);
    },
  };
}

// A key to list and cancel the jobs of; only for jobs that have not ended.
function keyInput(changed) {
  const input = el('input', {
    type: 'search',
    class: 'inline',
    placeholder: 'every key',
    'aria-label': 'Key',
    title: 'Only jobs of exactly this key',
    spellcheck: 'false',
  });
  let timer = 0;
  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(changed, 250);
  });
  return input;
}

export function stageJobs(name, first) {
  let status = STATUSES.includes(first) ? first : 'running',
    from = '';
  const said = el('p.error', { role: 'alert' });
  const numbers = Object.fromEntries(STATUSES.map((s) => [s, el('b')]));
  const tabs = STATUSES.map((s) =>
    el('button.tab', { type: 'button', onclick: () => choose(s, '') }, s, numbers[s]),
  );
  const tables = jobTables();
  const key = keyInput(() => choose(status, ''));
  const keyOf = () => (CANCELLABLE.includes(status) ? key.value : '');
  const cancel = needs(
    'push',
    button(
      '',
      async () => (await cancelAct(name, status, keyOf())) && loading.now(),
      'small.danger',
    ),
  );
  const many = el('div.row.filter', key, cancel);
  const more = button('Next', () => choose(status, last), 'small');
  const begin = button('First page', () => choose(status, ''), 'small');
  let last = '';

  const loading = poller(
    async (signal) => {
      const query = { stage: name, status, from, count: ROWS, key: keyOf() };
      const jobs = await look.jobs(query, signal);
      const none = query.key
        ? `No ${status} job has this key.`
        : (EMPTY[status] ?? `No job that is ${status} is kept.`);
      last = jobs.at(-1)?.id ?? '';
      tables.update(status, jobs, from ? 'There are no more.' : none);
      cancel.disabled = jobs.length === 0 && from === '';
      setShown(more, jobs.length === ROWS);
      setShown(begin, from !== '');
      setText(said, '');
    },
    (error) => {
      if (error.code === 'GONE' && from)
        choose(status, ''); // the last job of the previous page is gone
      else setText(said, sentence(error));
    },
  );

  function choose(next, behind) {
    status = next;
    from = behind;
    tabs.forEach((tab, i) => tab.setAttribute('aria-pressed', STATUSES[i] === status));
    setShown(many, CANCELLABLE.includes(status));
    setText(cancel, `Cancel all ${status} jobs${keyOf() ? ' of this key' : ''}…`);
    loading.now();
  }

  choose(status, '');
  return {
    node: panel(
      'Jobs',
      el('div.tabs', { role: 'group', 'aria-label': 'Status' }, tabs),
      many,
      said,
      tables.node,
      el('div.row', begin, more),
    ),
    update(stage) {
      for (const s of STATUSES) setText(numbers[s], stage ? count(stage[s]) : '');
      loading.tick();
    },
    end: loading.end,
  };
}
