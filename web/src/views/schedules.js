// Schedules: which jobs are pushed when, their next five times, and what can be done about them. They are made
// and changed elsewhere: by the command line, a file or a program.
import { scheduleAct } from '../actions.js';
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { button, el, fragment, needs, panel, setShown, setText } from '../dom.js';
import { count, duration, short, timeIn } from '../format.js';
import { tag } from '../parts.js';
import { poller } from '../poll.js';
import { commandHint } from '../server.js';
import { linkColumn, liveTable, stageColumn } from '../table.js';

const ROWS = 200; // shown

const when = (s) => s.cron || `every ${duration(s['every-ms'])}`;

// The next five times, a line each.
function times() {
  const node = el('div.times');
  let shown = '';
  return {
    node,
    set(s) {
      const texts = s.upcoming.map((at) => timeIn(at, s.tz));
      if (texts.join() === shown) return;
      shown = texts.join();
      node.replaceChildren(...texts.map((text) => el('div', text)));
    },
  };
}

function state() {
  const made = tag();
  return { node: made.node, set: (s) => made.set(s.paused ? 'paused' : 'ready') };
}

function buttons(refresh) {
  return (get) => {
    const act = (verb) => async () => (await scheduleAct(get(), verb)) && refresh();
    const pause = button('Pause', act('pause'), 'small'),
      resume = button('Resume', act('resume'), 'small');
    return {
      node: needs(
        'push',
        el(
          'div.row.tight',
          pause,
          resume,
          button('Push now', act('now'), 'small'),
          button('Drop…', act('drop'), 'small.danger'),
        ),
      ),
      set(s) {
        setShown(pause, !s.paused);
        setShown(resume, Boolean(s.paused));
      },
    };
  };
}

export function schedulesView() {
  const table = liveTable({
    label: 'Schedules',
    key: (s) => `${s.stage} ${s.name}`,
    empty: [
      'There is no schedule. This one pushes a job every night: ',
      commandHint(
        (at) => `millrace schedule reports nightly all --cron '30 2 * * *' --tz Europe/Berlin ${at}`,
      ),
    ],
    columns: [
      { head: 'Schedule', text: (s) => short(s.name, 60) },
      stageColumn(),
      { head: 'When', text: when },
      { head: 'Time zone', text: (s) => s.tz },
      { head: 'State', make: state },
      {
        head: 'Next five times',
        title: 'In its time zone',
        make: times,
      },
      { head: 'Last tick', text: (s) => (s['last-at'] < 0 ? '–' : timeIn(s['last-at'], s.tz)) },
      { head: 'Missed ticks', title: 'What happens to ticks that were missed', text: (s) => s.missed },
      linkColumn(
        'Pushed',
        (s) => count(s.pushed),
        (s) => (s['last-id'] === '0' ? '#/schedules' : `#/job/${s['last-id']}`),
        { number: true, title: 'Jobs so far; the latest of them' },
      ),
      { head: '', make: buttons(() => loading.now()) },
    ],
  });
  const said = el('p.error', { role: 'alert' }),
    left = el('p.soft');
  const loading = poller(
    async (signal) => {
      const list = await look.schedules(ROWS + 1, signal);
      table.update(list.slice(0, ROWS));
      setText(left, list.length > ROWS ? `The first ${count(ROWS)} are shown.` : '');
      setText(said, '');
    },
    (error) => setText(said, sentence(error)),
  );
  return {
    title: 'Schedules',
    node: fragment(
      el('div.title', el('h1', 'Schedules')),
      panel('Jobs that are pushed by the clock', table.node, said, left),
    ),
    update: loading.tick,
    end: loading.end,
  };
}
