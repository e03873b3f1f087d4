// The data of the page: the newest snapshot of the server, the state of the connection, and recent numbers of
// waiting jobs of each stage.

const KEPT = 120; // samples of a stage
const STAGES_KEPT = 1000;

const listeners = new Set();
const histories = new Map(); // stage → numbers of waiting jobs; null: not known

export const store = {
  connection: 'connecting', // live, lost, locked (the server requires a token)
  refused: '', // when lost or locked: the server's message
  at: 0, // when the snapshot arrived
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

// Makes a gap in the lines, for a time without snapshots.
export function breakHistories() {
  for (const name of histories.keys()) sample(name, null);
}

export const waitingOf = (name) => histories.get(name) ?? [];
