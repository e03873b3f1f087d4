// The jobs of a stage, by status, a page at a time.
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { button, el, panel, setShown, setText } from '../dom.js';
import { count, duration, short } from '../format.js';
import { poller } from '../poll.js';
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

export function stageJobs(name, first) {
  let status = STATUSES.includes(first) ? first : 'running',
    from = '';
  const said = el('p.error', { role: 'alert' });
  const numbers = Object.fromEntries(STATUSES.map((s) => [s, el('b')]));
  const tabs = STATUSES.map((s) =>
    el('button.tab', { type: 'button', onclick: () => choose(s, '') }, s, numbers[s]),
  );
  const table = liveTable({
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
      {
        head: 'Starts in',
        number: true,
        text: (j) => (j['due-ms'] > 0 ? duration(j['due-ms']) : '–'),
      },
      { head: 'Deadline in', number: true, text: (j) => duration(j['left-ms']) },
      { head: 'Last reason', wide: true, text: (j) => short(j.reasons?.at(-1)?.text ?? '–') },
    ],
  });
  const more = button('Next', () => choose(status, last), 'small');
  const begin = button('First page', () => choose(status, ''), 'small');
  let last = '';

  const loading = poller(
    async (signal) => {
      const jobs = await look.jobs({ stage: name, status, from, count: ROWS }, signal);
      last = jobs.at(-1)?.id ?? '';
      setText(
        table.nothing,
        from ? 'There are no more.' : (EMPTY[status] ?? `No job that is ${status} is kept.`),
      );
      table.update(jobs);
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
    loading.now();
  }

  choose(status, '');
  return {
    node: panel(
      'Jobs',
      el('div.tabs', { role: 'group', 'aria-label': 'Status' }, tabs),
      said,
      table.node,
      el('div.row', begin, more),
    ),
    update(stage) {
      for (const s of STATUSES) setText(numbers[s], stage ? count(stage[s]) : '');
      loading.tick();
    },
    end: loading.end,
  };
}
