// Samples of a stage, as points for plots. A count between two samples holds for all of the time between
// them, so it is drawn as a step: a slope over an idle gap would show work that did not happen.

export const LONGEST_MS = 3000; // the longest time between two samples while jobs are pushed or run

// Counts since the previous sample, per second; null for the first one.
export function perSecondOf(times, counts) {
  return counts.map((n, i) => (i === 0 ? null : (n * 1000) / Math.max(times[i] - times[i - 1], 1)));
}

// [seconds, ...columns] of steps: the value of a sample is drawn from the previous sample to its own. From the
// last sample to `now` the value is `idle`, once the last one is too long ago for another to be due.
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
