// Epics: numbered streams of pushes, how far each has come and what became of its jobs.
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { el, fragment, panel, setText } from '../dom.js';
import { count } from '../format.js';
import { whyCell } from '../parts.js';
import { poller } from '../poll.js';
import { progress } from '../progress.js';
import { linkColumn, liveTable } from '../table.js';
import { stagePath } from '../why.js';

// As of the stage that it is pushed into.
function whyOfStage(get) {
  const cell = whyCell(() => ({ name: get().stage }));
  return { node: cell.node, set: (e) => cell.set({ ...e, name: e.stage, delayed: 0 }) };
}

export function epicsView() {
  const table = liveTable({
    label: 'Epics',
    key: (e) => `${e.stage} ${e.name}`,
    empty: [
      'No epic is known. A file becomes one, a job a line, and goes on where it stopped: ',
      el('code', 'millrace push mail --lines letters.txt --epic june'),
    ],
    columns: [
      { head: 'Epic', text: (e) => e.name },
      linkColumn(
        'Stage',
        (e) => e.stage || '–',
        (e) => (e.stage ? stagePath(e.stage) : '#/'),
      ),
      { head: 'How far it is', make: progress },
      {
        head: 'Goes on with',
        number: true,
        title: 'The first number that is missing',
        text: (e) => count(e.resume),
      },
      { head: 'Waiting', number: true, text: (e) => count(e.waiting) },
      { head: 'Running', number: true, text: (e) => count(e.running) },
      { head: 'Done', number: true, text: (e) => count(e.done) },
      { head: 'Dead', number: true, text: (e) => count(e.dead) },
      { head: 'Cancelled', number: true, text: (e) => count(e.cancelled) },
      { head: 'Expired', number: true, text: (e) => count(e.expired) },
      { head: 'What it waits for', wide: true, make: whyOfStage },
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
      panel('How far they have come', table.node, said),
    ),
    update: loading.tick,
    end: loading.end,
  };
}
