// What the page knows: the newest snapshot of the server, how the connection to it is, and how many jobs
// of each stage waited lately.

const KEPT = 120; // samples of a stage
const STAGES_KEPT = 1000;

const listeners = new Set();
const histories = new Map(); // stage → how many jobs waited; null: nothing was known

export const store = {
  connection: 'connecting', // live, lost, locked (a token is asked for)
  refused: '', // when lost or locked: what the server said
  at: 0, // when the snapshot came
  health: '', // ok, full, stopped, loading
  why: '', // a sentence when it is not ok
  info: {},
  stages: [],
};

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function change(what) {
  Object.assign(store, what);
  for (const listener of [...listeners]) listener(store);
}

export const stageNamed = (name) => store.stages.find((s) => s.name === name);

function sample(name, value) {
  let history = histories.get(name);
  if (!history) {
    if (histories.size >= STAGES_KEPT) return;
    histories.set(name, (history = []));
  }
  history.push(value);
  if (history.length > KEPT) history.shift();
}

export function remember(stages) {
  for (const stage of stages) sample(stage.name, stage.waiting);
}

// A gap in the lines: for a while nothing was known.
export function breakHistories() {
  for (const name of histories.keys()) sample(name, null);
}

export const waitingOf = (name) => histories.get(name) ?? [];
