// Flows: each as a graph and as a table of its operators in order, with their jobs and the progress of the sources. Stages are part of the
// stream of events, epics are requested; the server counts both, however many jobs wait.
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { el, field, fragment, link, plain, setShown, setText } from '../dom.js';
import { compact, count, counted } from '../format.js';
import { graph } from '../graph.js';
import { findFlows, flowState, operatorName, sourcesOf } from '../flows.js';
import { outcomeColumns, tag } from '../parts.js';
import { poller } from '../poll.js';
import { progress } from '../progress.js';
import { commandHint } from '../server.js';
import { store } from '../store.js';
import { linkColumn, liveTable } from '../table.js';
import { stagePath, whyHeld } from '../why.js';

const MOST = 30; // flows shown

function sourceTable(flow) {
  return liveTable({
    label: `Sources of ${flow().name}`,
    key: (e) => e.name,
    empty: 'No epic is pushed into this flow, so the size of its input is not known.',
    columns: [
      { head: 'Source', text: (e) => operatorName(flow(), e) },
      { head: 'Progress, in blocks of lines', wide: true, make: progress },
      { head: 'Dead', number: true, text: (e) => count(e.dead) },
    ],
  });
}

const feedsText = (flow, stage) =>
  (stage.feeds ?? []).map((name) => operatorName(flow, { name })).join(', ') || '–';

function operatorTable(flow) {
  return liveTable({
    label: `Operators of ${flow().name}`,
    key: (s) => s.name,
    empty: '',
    columns: [
      linkColumn(
        'Operator',
        (s) => operatorName(flow(), s),
        (s) => stagePath(s.name),
      ),
      { head: 'Feeds', text: (s) => feedsText(flow(), s) },
      { head: 'Waiting', number: true, text: (s) => count(s.waiting + s.delayed) },
      { head: 'Running', number: true, text: (s) => count(s.running) },
      { head: 'Done', number: true, text: (s) => count(s.done) },
      ...outcomeColumns(),
    ],
  });
}

const DRAWN = 60; // stages of a graph

// What stands in the box of a stage.
function stageBox(flow, name) {
  const s = flow().operators.find((o) => o.name === name);
  const waiting = s.waiting + s.delayed;
  const numbers = [
    s.dead && `${compact(s.dead)} dead`,
    waiting && `${compact(waiting)} waiting`,
    s.running && `${compact(s.running)} running`,
  ].filter(Boolean);
  const more = numbers.slice(0, 2).join(' · ') || `${compact(s.done)} done`;
  const { held, sentence: why } = whyHeld(s);
  const itself = (s.feeds ?? []).includes(name) ? ' ↻' : '';
  return {
    text: plain(operatorName(flow(), s)) + itself,
    more,
    kind: s.dead ? 'dead' : held && waiting ? 'held' : s.running ? 'busy' : 'idle',
    href: stagePath(name),
    title: plain(`${name}: ${[...numbers, `${compact(s.done)} done`].join(', ')}. ${why}`),
  };
}

// One flow: { node, update(flow, epics) }.
function flowPanel(first) {
  let current = first;
  const get = () => current;
  const state = tag(),
    sources = sourceTable(get),
    operators = operatorTable(get),
    picture = graph(`Graph of ${first.name}`, (name) => stageBox(get, name));
  const frame = el('div.drawing', { tabindex: 0, role: 'region', 'aria-label': `Graph of ${first.name}` }, picture.node);
  const heading = el('h2', first.name, ' ', state.node);
  return {
    node: el('section.panel', { 'aria-label': first.name }, heading, frame, sources.node, operators.node),
    update(flow, epics) {
      current = flow;
      const read = sourcesOf(flow, epics);
      state.set(flowState(flow, read));
      sources.update(read);
      operators.update(flow.operators);
      setShown(frame, flow.operators.length <= DRAWN);
      if (flow.operators.length <= DRAWN)
        picture.update(flow.operators, frame.clientWidth || document.body.clientWidth - 80);
    },
  };
}

const nothing = () => [
  'There is no flow. Stages are shown as a flow when jobs of one emit jobs of another, or when a file describes them: ',
  commandHint((at) => `millrace flow words.yaml ${at}`),
];

export function flowsView() {
  const panels = new Map();
  const list = el('div.stack'),
    none = el('section.panel', el('p.empty', nothing())),
    said = el('p.error', { role: 'alert' }),
    left = el('p.soft');
  const filter = el('input', { type: 'search', placeholder: 'part of a name', oninput: update });
  const find = field('Find a flow', filter);
  let epics = [];
  const loading = poller(
    async (signal) => {
      epics = await look.epics(signal);
      setText(said, '');
      update();
    },
    (error) => setText(said, sentence(error)),
  );

  function update() {
    const all = findFlows(store.stages);
    const wanted = filter.value.trim();
    const found = all.filter((f) => f.name.includes(wanted));
    const shown = found.slice(0, MOST);
    for (const flow of shown) {
      if (!panels.has(flow.name)) panels.set(flow.name, flowPanel(flow));
      panels.get(flow.name).update(flow, epics);
    }
    const nodes = shown.map((f) => panels.get(f.name).node);
    if (nodes.some((n, i) => list.children[i] !== n) || list.childElementCount > nodes.length)
      list.replaceChildren(...nodes);
    setShown(none, store.at > 0 && all.length === 0);
    setShown(find, all.length > 5);
    setText(
      left,
      found.length > MOST
        ? `${MOST} of ${counted(found.length, 'flow')} are shown: find one by its name.`
        : '',
    );
    loading.tick();
  }

  return {
    title: 'Flows',
    node: fragment(
      el('div.title', el('h1', 'Flows'), link('All epics', '#/epics')),
      said,
      find,
      none,
      list,
      left,
    ),
    update,
    end: loading.end,
  };
}
