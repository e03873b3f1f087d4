// What is wrong with a stage, the worst first, and the order of stages by that.
import { counted, duration } from './format.js';

const LONG_MS = 60_000; // that a job waits

// In the order of severity: [whether, how much, text, kind].
const TROUBLES = [
  [(s) => s.dead > 0, (s) => s.dead, (s) => counted(s.dead, 'dead letter'), 'bad'],
  [(s) => s.parked > 0, (s) => s.parked, (s) => counted(s.parked, 'parked key'), 'warn'],
  [(s) => s['held-by'] === 'no-worker' && s.waiting > 0, age, () => 'no worker', 'bad'],
  [(s) => s.waiting > 0 && age(s) >= LONG_MS, age, (s) => `oldest ${duration(age(s))}`, 'warn'],
  [(s) => s.paused > 0 || s.draining > 0, age, (s) => (s.paused ? 'paused' : 'draining'), 'warn'],
];

function age(stage) {
  return stage['oldest-ms'];
}

// [{ rank, much, text, kind }]: rank 0 is the worst; empty if nothing is wrong.
export const troublesOf = (stage) =>
  TROUBLES.map(([is, much, text, kind], rank) => ({ is, much, text, kind, rank }))
    .filter(({ is }) => is(stage))
    .map(({ much, text, kind, rank }) => ({ rank, much: much(stage), text: text(stage), kind }));

const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);

// Stages with the worst troubles first, then those without any, by name.
export function inOrderOfTrouble(stages) {
  const worst = new Map(
    stages.map((s) => [s, troublesOf(s)[0] ?? { rank: TROUBLES.length, much: 0 }]),
  );
  return [...stages].sort((a, b) => {
    const x = worst.get(a),
      y = worst.get(b);
    return x.rank - y.rank || y.much - x.much || byName(a, b);
  });
}

export const inOrderOfName = (stages) => [...stages].sort(byName);
