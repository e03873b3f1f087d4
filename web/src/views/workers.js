// Workers: their stages, the level that each tuner has chosen, the jobs that they run, with start times, and how much of
// its quotas each token has used.
import { jobAct } from '../actions.js';
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { button, el, fragment, link, needs, panel, setShown, setText } from '../dom.js';
import { bytes, count, counted, duration } from '../format.js';
import { poller } from '../poll.js';
import { progressColumn } from '../progress.js';
import { commandHint } from '../server.js';
import { store } from '../store.js';
import { jobColumn, keyColumn, liveTable, stageColumn } from '../table.js';
import { stagePath } from '../why.js';

function stageLinks() {
  const node = el('span');
  let shown = null;
  return {
    node,
    set({ stages }) {
      if (stages === shown) return;
      shown = stages;
      node.replaceChildren(
        ...stages.split(' ').flatMap((name) => [link(name, stagePath(name)), ' ']),
      );
    },
  };
}

const noWorker = () => [
  'No worker is connected. In a shell, this one runs a command for each job of the stage mail: ',
  commandHint((at) => `millrace work mail ${at} -- cat`),
];

function workerTable() {
  return liveTable({
    label: 'Workers',
    key: (w) => w.id,
    empty: noWorker(),
    columns: [
      { head: 'Worker', text: (w) => w.name || `#${w.id}` },
      { head: 'Address', text: (w) => w.address || '–' },
      { head: 'Stages', make: stageLinks },
      {
        head: 'Running',
        number: true,
        title: 'Jobs that it has leased now',
        text: (w) => count(w.leases),
      },
      {
        head: 'Level',
        number: true,
        title: 'How many jobs its tuner runs at once',
        text: (w) => (w.level ? count(w.level) : '–'),
      },
      { head: 'State', text: (w) => (w.waits ? 'waits for jobs' : w.leases ? 'busy' : 'idle') },
      { head: 'Taken', number: true, text: (w) => count(w.taken) },
      { head: 'Ended', number: true, text: (w) => count(w.ended) },
      { head: 'Connected for', number: true, text: (w) => duration(w['age-ms']) },
    ],
  });
}

// ---- Running jobs -------------------------------------------------------------------------------

const STAGES_READ = 20,
  ROWS = 100;

function runningTable(nameOf, refresh) {
  return liveTable({
    label: 'Running jobs',
    key: (j) => j.id,
    empty: 'No job is running.',
    columns: [
      jobColumn(),
      stageColumn(),
      keyColumn(),
      { head: 'Worker', text: (j) => nameOf(j.worker) },
      { head: 'Running for', number: true, text: (j) => duration(j['running-ms']) },
      { head: 'Attempt', number: true, text: (j) => `${count(j.attempt)} of ${count(j.attempts)}` },
      progressColumn(),
      {
        head: '',
        make: (get) => ({
          node: needs(
            'push',
            button(
              'Cancel…',
              async () => (await jobAct(get().id, 'cancel')) && refresh(),
              'small.danger',
            ),
          ),
        }),
      },
    ],
  });
}

// Running jobs of all stages, the longest running first.
async function runningJobs(signal) {
  const busy = store.stages.filter((s) => s.running).slice(0, STAGES_READ);
  const lists = await Promise.all(
    busy.map((s) => look.jobs({ stage: s.name, status: 'running', count: ROWS }, signal)),
  );
  return lists
    .flat()
    .sort((a, b) => b['running-ms'] - a['running-ms'])
    .slice(0, ROWS);
}

// A sentence about jobs that are not in the table.
function leftOut(shown) {
  const all = store.stages.reduce((n, s) => n + s.running, 0);
  return shown < ROWS || all <= shown ? '' : `${shown} of ${counted(all, 'job')} are shown.`;
}

// ---- Quotas -------------------------------------------------------------------------------------

const SCARCE = 0.9; // of a quota

function quotaColumn(kind, shown = count) {
  return {
    head: kind[0].toUpperCase() + kind.slice(1),
    number: true,
    make(_, cell) {
      const node = el('span');
      return {
        node,
        set({ [kind]: quota }) {
          setText(node, quota ? `${shown(quota.used)} of ${shown(quota.max)}` : '–');
          cell.classList.toggle('zero', !quota);
          cell.classList.toggle('warn', Boolean(quota) && quota.used >= SCARCE * quota.max);
        },
      };
    },
  };
}

function quotaTable() {
  return liveTable({
    label: 'Quotas of tokens',
    key: (q) => q.token,
    empty: 'No token has quotas.',
    columns: [
      { head: 'Token', text: (q) => q.token },
      quotaColumn('stages'),
      quotaColumn('jobs'),
      quotaColumn('bytes', bytes),
      quotaColumn('sources'),
      quotaColumn('epics'),
      quotaColumn('schedules'),
      quotaColumn('connections'),
    ],
  });
}

export function workersView() {
  let names = new Map();
  const nameOf = (id) => (id ? (names.get(id) ?? `#${id}`) : '–');
  const workers = workerTable(),
    running = runningTable(nameOf, () => loading.now()),
    quotas = quotaTable();
  const quotaPanel = panel('Quotas of tokens', quotas.node);
  setShown(quotaPanel, false);
  const said = el('p.error', { role: 'alert' }),
    left = el('p.soft');
  const loading = poller(
    async (signal) => {
      const list = await look.workers(signal);
      names = new Map(list.map((w) => [w.id, w.name || `#${w.id}`]));
      workers.update(list);
      const jobs = await runningJobs(signal);
      running.update(jobs);
      setText(left, leftOut(jobs.length));
      const limited = await look.quotas(signal);
      quotas.update(limited);
      setShown(quotaPanel, limited.length > 0);
      setText(said, '');
    },
    (error) => setText(said, sentence(error)),
  );
  return {
    title: 'Workers',
    node: fragment(
      el('div.title', el('h1', 'Workers')),
      said,
      panel('Connected workers', workers.node),
      panel('Running jobs', running.node, left),
      quotaPanel,
    ),
    update: loading.tick,
    end: loading.end,
  };
}
