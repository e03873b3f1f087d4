// Samples and histories of a stage, as points for plots. A count between two samples holds for all of the time
// between them, so it is drawn as a step: a slope over an idle gap would show work that did not happen.

// Spans of plots: what the server calls its history, the text of the button, seconds.
export const SPANS = [
  { name: 'minutes', text: '5 min', seconds: 300 },
  { name: 'hour', text: 'Hour', seconds: 3600 },
  { name: 'day', text: 'Day', seconds: 86_400 },
];

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

// The same for columns of a history, whose points hold for an interval each, the last one until `now`. With
// `perSecond` they are counts.
export function historySteps(history, names, now, perSecond = false) {
  const { 'step-ms': step, 'from-ms': from } = history;
  const last = history[names[0]].length - 1,
    seconds = [],
    drawn = names.map(() => []);
  for (let i = 0; i <= last; i++) {
    const begin = from + i * step,
      end = i < last ? begin + step : Math.max(now, begin);
    seconds.push(begin / 1000, end / 1000);
    names.forEach((name, k) => {
      const value = history[name][i];
      const shown = perSecond ? (value * 1000) / Math.max(end - begin, 1000) : value;
      drawn[k].push(shown, shown);
    });
  }
  return [seconds, ...drawn];
}
