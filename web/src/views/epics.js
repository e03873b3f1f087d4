// Epics: numbered streams of pushes, with their progress and the outcomes of their jobs.
import { epicAct, epicForget, epicThen } from '../actions.js';
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { button, el, fragment, needs, panel, setShown, setText } from '../dom.js';
import { count, duration } from '../format.js';
import { whyCell } from '../parts.js';
import { poller } from '../poll.js';
import { progress } from '../progress.js';
import { commandHint } from '../server.js';
import { linkColumn, liveTable } from '../table.js';
import { stagePath } from '../why.js';

// Why the jobs of an epic wait: the reason of its stage.
function whyOfStage(get) {
  const cell = whyCell(() => ({ name: get().stage }));
  return { node: cell.node, set: (e) => cell.set({ ...e, name: e.stage, delayed: 0 }) };
}

// What follows its end.
const afterwards = (e) =>
  [
    e.stopped ? 'cancelled' : '',
    e.then ? `pushes to ${e.then}` : '',
    e['then-pushed'] ? 'pushed what follows' : '',
    e['forget-ms'] ? `forgotten after ${duration(e['forget-ms'])}` : '',
  ]
    .filter(Boolean)
    .join(', ') || '–';

// The buttons of a row; those that would change nothing are hidden.
const epicButtons = (refresh) => (get) => {
  const made = [
    ['Then…', epicThen, (e) => !e['then-pushed']],
    ['Cancel', (e) => epicAct(e, 'cancel'), (e) => !e.stopped || e.waiting + e.running > 0],
    ['Forget…', epicForget, () => true],
    ['Drop', (e) => epicAct(e, 'drop'), () => true],
  ].map(([label, action, shown]) => {
    const node = needs(
      'push',
      button(label, async () => (await action(get())) && refresh(), 'small'),
    );
    return { node, set: (e) => setShown(node, Boolean(e.stage) && shown(e)) };
  });
  return {
    node: el('div.row.tight', ...made.map((b) => b.node)),
    set: (e) => made.forEach((b) => b.set(e)),
  };
};

export function epicsView() {
  const table = liveTable({
    label: 'Epics',
    key: (e) => `${e.stage} ${e.name}`,
    empty: [
      'There is no epic. This pushes each line of a file as a job, and continues where it stopped if it is run again: ',
      commandHint((at) => `millrace push mail --lines letters.txt --epic june ${at}`),
    ],
    columns: [
      { head: 'Epic', text: (e) => e.name },
      linkColumn(
        'Stage',
        (e) => e.stage || '–',
        (e) => (e.stage ? stagePath(e.stage) : '#/'),
      ),
      { head: 'Progress', make: progress },
      {
        head: 'Next number',
        number: true,
        title: 'The first number that has not been pushed',
        text: (e) => count(e.resume),
      },
      { head: 'Waiting', number: true, text: (e) => count(e.waiting) },
      { head: 'Running', number: true, text: (e) => count(e.running) },
      { head: 'Done', number: true, text: (e) => count(e.done) },
      { head: 'Dead', number: true, text: (e) => count(e.dead) },
      { head: 'Cancelled', number: true, text: (e) => count(e.cancelled) },
      { head: 'Expired', number: true, text: (e) => count(e.expired) },
      { head: 'Afterwards', text: afterwards },
      { head: 'Why jobs wait', wide: true, make: whyOfStage },
      { head: '', make: epicButtons(() => loading.tick()) },
    ],
  });
  const said = el('p.error');
  const loading = poller(
    async (signal) => {
      table.update(await look.epics(signal));
      setText(said, '');
    },
    (error) => setText(said, sentence(error)),
  );
  return {
    title: 'Epics',
    node: fragment(
      el('div.title', el('h1', 'Epics')),
      panel('Progress', table.node, said),
    ),
    update: loading.tick,
    end: loading.end,
  };
}
