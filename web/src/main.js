// The page: a frame, one view at a time, selected by the part of the address after #, and a stream of snapshots
// from which the frame and the view are updated.
import './style.css';
import { token } from './api.js';
import { look } from './calls.js';
import { setRoles } from './dom.js';
import { openStream } from './live.js';
import { makeShell } from './shell.js';
import { breakHistories, change, remember, store, subscribe } from './store.js';
import { deadView } from './views/dead.js';
import { epicsView } from './views/epics.js';
import { flowsView } from './views/flows.js';
import { jobView } from './views/job.js';
import { lockView, noSuchView } from './views/lock.js';
import { overview } from './views/overview.js';
import { pushView } from './views/push.js';
import { schedulesView } from './views/schedules.js';
import { stageView } from './views/stage.js';
import { workersView } from './views/workers.js';

// A view is { title, node, update(), end() }; it is made from the groups of the pattern and the query.
const ROUTES = [
  [/^\/$/, overview],
  [/^\/stage\/([^/]+)(?:\/(policy|parked|jobs)(?:\/(\w+))?)?$/, stageView],
  [/^\/job\/(\d+)$/, jobView],
  [/^\/dead$/, deadView],
  [/^\/workers$/, workersView],
  [/^\/flows$/, flowsView],
  [/^\/epics$/, epicsView],
  [/^\/schedules$/, schedulesView],
  [/^\/push$/, pushView],
];

let view = null;

function place() {
  const [path, query = ''] = (location.hash.slice(1) || '/').split('?');
  return { path, query: new URLSearchParams(query) };
}

function makeView({ path, query }) {
  if (store.connection === 'locked') return lockView(unlock);
  for (const [pattern, make] of ROUTES) {
    const found = pattern.exec(path);
    if (found) return make(found.slice(1).map(decoded), query);
  }
  return noSuchView();
}

function decoded(part) {
  try {
    return part && decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

function show() {
  const here = place();
  view?.end?.();
  view = makeView(here);
  shell.main.replaceChildren(view.node);
  shell.mark(here.path);
  document.title = `${view.title} · Millrace`;
  view.update?.();
}

function go() {
  show();
  scrollTo(0, 0);
  shell.main.focus({ preventScroll: true });
  view.arrive?.();
}

function unlock(secret) {
  token.set(secret);
  change({ connection: 'connecting' });
  stream.now();
}

// A form that waits for a token already is kept, with what was typed into it.
function lock(refused) {
  const isShown = view?.isLock && store.connection === 'locked' && store.refused === refused;
  change({ connection: 'locked', refused, stages: [], info: {} });
  if (!isShown) show();
}

// Called for every new connection, because the token or its roles can have changed. If the request fails, no
// action is offered until the next connection.
function learnRoles() {
  look.roles().then(setRoles, () => setRoles([]));
}

function receive({ type, data }) {
  if (type !== 'stages') return;
  const { health, why, info, stages } = JSON.parse(data);
  const wasLocked = view?.isLock;
  if (store.connection !== 'live') learnRoles();
  remember(stages);
  change({ connection: 'live', at: Date.now(), health, why, info, stages, refused: '' });
  if (wasLocked) go();
}

const shell = makeShell({
  reconnect: () => stream.now(),
  forget() {
    token.forget();
    lock('');
    stream.now();
  },
});

subscribe(() => {
  shell.update();
  view?.update?.();
});

const stream = openStream('api/events', {
  event: receive,
  lost(refused) {
    if (store.connection === 'live') breakHistories();
    change({ connection: 'lost', refused });
  },
  locked: (error) => lock(error.code === 'NOAUTH' ? '' : error.message),
});

addEventListener('hashchange', go);
addEventListener('online', () => store.connection === 'lost' && stream.now());
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && store.connection === 'lost') stream.now();
});
show();
