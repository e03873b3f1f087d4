// Samples of a stage as they are drawn. What was counted between two samples holds for all of the time
// between them, so it is drawn as a step: a slope over an idle gap would show work that never happened.

export const LONGEST_MS = 3000; // between two samples with something in between

// Counts since the sample before, by the second; null where there is none before.
export function perSecondOf(times, counts) {
  return counts.map((n, i) => (i === 0 ? null : (n * 1000) / Math.max(times[i] - times[i - 1], 1)));
}

// [seconds, ...columns] of steps: the value of a sample stands from the sample before to its own. Behind
// the last one, up to `now`, `idle` stands once that is too long ago for a sample to be still to come.
export function steps(times, columns, now, idle) {
  const seconds = [],
    drawn = columns.map(() => []);
  const add = (from, to, valueOf) => {
    seconds.push(from / 1000, to / 1000);
    drawn.forEach((values, i) => values.push(valueOf(columns[i]), valueOf(columns[i])));
  };
  for (let i = 1; i < times.length; i++) add(times[i - 1], times[i], (values) => values[i]);
  const last = times.at(-1) ?? now;
  add(last, now, () => (now - last > LONGEST_MS ? idle : null));
  return [seconds, ...drawn];
}
