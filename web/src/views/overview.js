// All stages, what is wrong with them, why their jobs wait, and the health of the server.
import { sentence } from '../api.js';
import { el, field, fragment, link, panel, setShown, setText, tabs } from '../dom.js';
import { bytes, compact, count, counted, duration, rate } from '../format.js';
import { figures, outcomeColumns } from '../parts.js';
import { spark } from '../spark.js';
import { commandHint } from '../server.js';
import { store, waitingOf } from '../store.js';
import { linkColumn, liveTable } from '../table.js';
import { inOrderOfName, inOrderOfTrouble, troublesOf } from '../trouble.js';
import { stagePath } from '../why.js';
import { overviewPlots } from './stage_plots.js';

const MOST = 200; // rows
const SENT = 1000; // stages that a snapshot has at most

// ---- Figures -----------------------------------------------------------------------------------

const sum = (stages, name) => stages.reduce((n, s) => n + (s[name] ?? 0), 0);

function totals() {
  const of = (name) => sum(store.stages, name);
  const oldest = () => Math.max(-1, ...store.stages.map((s) => s['oldest-ms']));
  return figures([
    ['Waiting', () => compact(of('waiting'))],
    ['Running', () => compact(of('running'))],
    ['Oldest', () => duration(oldest())],
    ['Pushed/s', () => rate(of('in-per-s'))],
    ['Done/s', () => rate(of('out-per-s'))],
    ['Dead', () => compact(of('dead')), () => of('dead') > 0],
    // A worker of several stages counts once in info; a token for some stages gets no info about the whole server.
    ['Workers', () => count(store.info.workers ?? of('workers'))],
  ]);
}

// ---- Health ------------------------------------------------------------------------------------

function fact(name) {
  const text = el('dd'),
    more = el('small');
  return { node: el('div', el('dt', name), text, more), text, more };
}

function state(part, kind, text, more) {
  part.text.className = kind;
  setText(part.text, text);
  setText(part.more, more);
}

function health() {
  const log = fact('Log'),
    disk = fact('Disk'),
    memory = fact('Memory'),
    clients = fact('Connections'),
    cluster = fact('Cluster');
  const meter = el('meter', { min: 0, max: 1, high: 0.9, optimum: 0, 'aria-label': 'Memory used' });
  memory.node.append(meter);
  return {
    node: panel(
      'Health',
      el(
        'dl.facts',
        [log, disk, memory, clients, cluster].map((f) => f.node),
      ),
    ),
    update() {
      const i = store.info;
      if (i.log_stopped) state(log, 'bad', 'stopped', i.log_stopped);
      else
        state(
          log,
          'good',
          i.loading ? 'being read' : 'ok',
          i.log_bytes === undefined ? '' : `${bytes(i.live_bytes)} live of ${bytes(i.log_bytes)}`,
        );
      if (i.log_full) state(disk, 'bad', 'full', 'pushes are refused');
      else if (i.store === 'mem:') state(disk, 'good', 'not used', 'jobs are kept in memory only');
      else state(disk, 'good', 'has room', i.store ?? '');
      setShown(cluster.node, Boolean(i.cluster));
      if (i.outage_ms) state(cluster, 'bad', 'waits for the store', i.outage ?? '');
      else if (i.shards_unowned)
        state(cluster, 'bad', `${i.cluster}, without an owner: ${i.shards_unowned} of ${i.shards} shards`, i.promise);
      else
        state(
          cluster,
          i.replicated ? 'good' : 'warn',
          `${i.cluster}, nodes: ${i.nodes}, shards: ${i.shards} (${i.shards_here} here)`,
          i.promise,
        );
      for (const part of [memory, clients]) setShown(part.node, i.used_memory !== undefined);
      const full = i.maxmemory > 0 && i.used_memory >= i.maxmemory;
      state(
        memory,
        full ? 'bad' : 'good',
        bytes(i.used_memory),
        i.maxmemory ? `of ${bytes(i.maxmemory)} (max-bytes)` : 'no limit (max-bytes)',
      );
      setShown(meter, i.maxmemory > 0);
      if (i.maxmemory > 0) meter.value = i.used_memory / i.maxmemory;
      state(
        clients,
        '',
        count(i.connected_clients),
        `${counted(i.refused_full, 'refusal')} for lack of room so far`,
      );
    },
  };
}

// ---- Stages ------------------------------------------------------------------------------------

function trend() {
  const line = spark();
  return { node: line.node, set: (stage) => line.set(waitingOf(stage.name)) };
}

function troubleTags() {
  const node = el('span.tags');
  let shown = '';
  return {
    node,
    set(stage) {
      const found = troublesOf(stage);
      const text = found.map((t) => t.text).join('\n');
      if (text === shown) return;
      shown = text;
      node.replaceChildren(...found.map((t) => el(`span.tag.${t.kind}`, t.text)));
    },
  };
}

// ---- The order of stages ------------------------------------------------------------------------

const ORDER_NAME = 'millrace-order';

// Rows stay where they are while the pointer or the focus is on them, so that no click goes to another row; new
// stages come last then.
function stageOrder(table, changed) {
  let order = localStorage.getItem(ORDER_NAME) === 'name' ? 'name' : 'trouble',
    last = [];
  const choices = [
    ['trouble', 'By trouble'],
    ['name', 'By name'],
  ];
  return {
    node: tabs('Order of stages', choices, order, (next) => {
      order = next;
      localStorage.setItem(ORDER_NAME, next);
      last = [];
      changed();
    }),
    sort(stages) {
      const sorted = order === 'name' ? inOrderOfName(stages) : inOrderOfTrouble(stages);
      if (table.node.querySelector('tbody:is(:hover, :focus-within)')) {
        const places = new Map(last.map((name, i) => [name, i]));
        const place = (s) => places.get(s.name) ?? last.length;
        sorted.sort((a, b) => place(a) - place(b));
      }
      last = sorted.map((s) => s.name);
      return sorted;
    },
  };
}

function stageTable() {
  return liveTable({
    label: 'Stages',
    key: (s) => s.name,
    empty: [
      'There is no stage yet: the first job of a stage makes it. ',
      link('Push a test job', '#/push'),
      ', or in a shell: ',
      commandHint((at) => `millrace push mail hello ${at}`),
    ],
    columns: [
      linkColumn(
        'Stage',
        (s) => s.name,
        (s) => stagePath(s.name),
      ),
      { head: 'Trouble', make: troubleTags },
      { head: 'Waiting', number: true, text: (s) => count(s.waiting) },
      { head: 'Trend', title: 'Waiting jobs in the last two minutes', make: trend },
      {
        head: 'Oldest',
        number: true,
        title: 'Age of the oldest job not ended',
        text: (s) => duration(s['oldest-ms']),
      },
      { head: 'Running', number: true, text: (s) => count(s.running) },
      { head: 'Pushed/s', number: true, text: (s) => rate(s['in-per-s']) },
      ...outcomeColumns(),
    ],
  });
}

// A sentence about stages that are not in the table.
function leftOut(found) {
  if (found > MOST) return `${MOST} of ${counted(found, 'stage')} are shown: find one by its name.`;
  return store.stages.length < SENT
    ? ''
    : `There may be more: the server sends the first ${count(SENT)} stages.`;
}

export function overview() {
  const strip = totals(),
    condition = health(),
    table = stageTable();
  const filter = el('input', { type: 'search', placeholder: 'part of a name', oninput: update });
  const left = el('p.soft'),
    said = el('p.error', { role: 'alert' });
  const find = field('Find a stage', filter);
  const order = stageOrder(table, update);
  const plots = overviewPlots((error) => setText(said, error ? sentence(error) : ''));

  function update() {
    const wanted = filter.value.trim();
    const found = order.sort(store.stages.filter((s) => s.name.includes(wanted)));
    strip.update();
    condition.update();
    if (store.at || store.stages.length) table.update(found.slice(0, MOST));
    setShown(table.node, store.at > 0);
    setShown(order.node, store.stages.length > 1);
    setShown(find, store.stages.length > 10 || wanted !== '');
    setText(left, leftOut(found.length));
    plots.tick();
  }

  const stages = panel(['Stages', order.node], find, table.node, left);
  return {
    title: 'Overview',
    node: fragment(
      el('h1.unseen', 'Overview'),
      strip.node,
      stages,
      said,
      plots.node,
      condition.node,
    ),
    update,
    end: plots.end,
  };
}
