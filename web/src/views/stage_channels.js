// The deepest groups of a stage that has groups, its deepest or oldest channels, whose keys can be paused, and its
// parked channels, with the reason and the end of the wait.
import { keyAct } from '../actions.js';
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { button, el, needs, panel, select, setShown, setText } from '../dom.js';
import { count, duration, short } from '../format.js';
import { tagColumn } from '../parts.js';
import { poller } from '../poll.js';
import { jobColumn, keyColumn, liveTable } from '../table.js';

const ROWS = 20;
const LOOKED_AT = 200;

const until = (c) =>
  c.state !== 'parked'
    ? '–'
    : c.paused
      ? 'after resume of its key'
      : c.halted || c['parked-ms'] < 0
        ? 'after retry or drop'
        : `in ${duration(c['parked-ms'])}`;

const ORDERS = {
  depth: (a, b) => b.depth - a.depth,
  age: (a, b) => b['oldest-ms'] - a['oldest-ms'],
};

// A button that pauses the key of a row, or resumes it; hidden where the key is not text.
function keyButton(name, get, verb, refresh, shown) {
  const node = needs(
    'admin',
    button(
      verb === 'pause' ? 'Pause' : 'Resume',
      async () => (await keyAct(name, get().key, verb)) && refresh(),
      'small',
    ),
  );
  return { node, set: (row) => setShown(node, Boolean(row.key) && shown(row)) };
}

// Both, of which a row shows one.
const keyButtons = (name, refresh) => (get) => {
  const made = [
    keyButton(name, get, 'pause', refresh, (c) => !c.paused),
    keyButton(name, get, 'resume', refresh, (c) => Boolean(c.paused)),
  ];
  return {
    node: el('span', ...made.map((b) => b.node)),
    set: (row) => made.forEach((b) => b.set(row)),
  };
};

function channelTable(name, refresh) {
  return liveTable({
    label: 'Channels',
    key: (c) => c.key,
    empty: 'No channel has more than one job, so no job waits for another of its key.',
    columns: [
      keyColumn(),
      tagColumn('State', (c) => c.state),
      { head: 'Jobs', number: true, text: (c) => count(c.depth) },
      { head: 'Oldest', number: true, text: (c) => duration(c['oldest-ms']) },
      { head: 'Continues', text: until },
      { head: 'State kept', text: (c) => (c['has-state'] ? 'yes' : '–') },
      { head: '', make: keyButtons(name, refresh) },
    ],
  });
}

const HOLDS = { 'group-limit': 'its concurrency', 'group-rate': 'its rate' };

function groupTable() {
  return liveTable({
    label: 'Groups',
    key: (g) => g.group,
    empty: 'No group has more than one job.',
    columns: [
      { head: 'Group', text: (g) => short(g.group) || '(no key)' },
      { head: 'Jobs', number: true, text: (g) => count(g.depth) },
      { head: 'Running', number: true, text: (g) => count(g.running) },
      { head: 'Ready channels', number: true, text: (g) => count(g.ready) },
      { head: 'Held by', text: (g) => HOLDS[g['held-by']] ?? '–' },
    ],
  });
}

// A parked channel is listed by its first job, or by the dead one that halts it.
const isPaused = (j) => j.status !== 'dead' && j['due-ms'] < 0;
const reason = (j) =>
  isPaused(j) ? 'its key is paused' : (j.reasons.at(-1)?.text ?? 'it was released repeatedly');
const parkedUntil = (j) =>
  j.status === 'dead'
    ? 'after retry or drop'
    : isPaused(j)
      ? 'after resume of its key'
      : `in ${duration(j['due-ms'])}`;

function parkedTable(name, refresh) {
  return liveTable({
    label: 'Parked channels',
    key: (j) => j.id,
    empty: 'No channel is parked.',
    columns: [
      keyColumn(),
      jobColumn('First job'),
      { head: 'Attempt', number: true, text: (j) => `${count(j.attempt)} of ${count(j.attempts)}` },
      { head: 'Continues', text: parkedUntil },
      { head: 'Why', wide: true, text: (j) => short(reason(j)) },
      { head: '', make: (get) => keyButton(name, get, 'resume', refresh, isPaused) },
    ],
  });
}

export function stageChannels(name) {
  const said = el('p.error', { role: 'alert' }),
    groups = groupTable(),
    top = channelTable(name, () => loading.now()),
    parked = parkedTable(name, () => loading.now());
  const tenants = panel('Groups', groups.node);
  let grouped = false;
  setShown(tenants, grouped);
  const order = select(
    [
      ['depth', 'deepest first'],
      ['age', 'oldest first'],
    ],
    'depth',
    { class: 'inline', 'aria-label': 'Order', onchange: () => loading.now() },
  );
  const loading = poller(
    async (signal) => {
      if (grouped) groups.update(await look.groups(name, ROWS, signal));
      const channels = await look.channels(name, LOOKED_AT, signal);
      top.update(channels.sort(ORDERS[order.value]).slice(0, ROWS));
      parked.update(await look.jobs({ stage: name, parked: 1, count: ROWS }, signal));
      setText(said, '');
    },
    (error) => setText(said, sentence(error)),
  );
  const deepest = panel('Channels', top.node, said);
  deepest.prepend(el('div.head', deepest.firstElementChild, order));
  const waiting = panel('Parked channels', parked.node);
  return {
    node: el('div.stack', tenants, deepest, waiting),
    parked: waiting,
    setGrouped(on) {
      if (on === grouped) return;
      grouped = on;
      setShown(tenants, on);
      if (on) loading.now();
    },
    update: loading.tick,
    end: loading.end,
  };
}
