// The progress of an epic, and the time left at the rate of the last half minute.
import { el, setText } from './dom.js';
import { count, duration } from './format.js';

const RATE_WINDOW_MS = 30_000;

export const ended = (e) => e.done + e.dead + e.cancelled + e.expired;

// The number of jobs: known, or estimated by the program that pushes them; -1: not known.
function expectedTotal(epic) {
  if (epic.total >= 0) return epic.total;
  return epic.expected > 0 ? Math.max(epic.expected, epic.accepted) : -1;
}

// Estimates the milliseconds until all jobs have ended; -1: no estimate.
function makeEstimate() {
  const samples = [];
  return (epic, whole) => {
    const now = Date.now();
    samples.push([now, ended(epic)]);
    while (samples.length > 2 && now - samples[0][0] > RATE_WINDOW_MS) samples.shift();
    const [at, before] = samples[0];
    const done = ended(epic) - before;
    if (done < 0) samples.splice(0, samples.length - 1); // the epic was dropped and started again
    return whole < 0 || done <= 0 ? -1 : ((whole - ended(epic)) * (now - at)) / done;
  };
}

function text(epic, whole, leftMs) {
  const read = `${count(epic.accepted)} read, ${count(ended(epic))} ended`;
  if (whole < 0) return `${read}; the total is not known`;
  const about = epic.total < 0 ? 'about ' : '';
  if (ended(epic) >= whole && epic.total >= 0) return `all ${count(whole)} ended`;
  const left = leftMs < 0 ? '' : `; ${about}${duration(leftMs)} left`;
  return `${read} of ${about}${count(whole)}${left}`;
}

// A bar with a text below it: { node, set(epic) }.
export function progress() {
  const bar = el('progress'),
    words = el('small'),
    timeLeft = makeEstimate();
  return {
    node: el('div.progress', bar, words),
    set(epic) {
      const whole = expectedTotal(epic);
      bar.max = Math.max(whole < 0 ? epic.accepted : whole, 1);
      bar.value = whole === 0 ? 1 : ended(epic);
      bar.setAttribute('aria-label', `Progress of ${epic.name}`);
      setText(words, text(epic, whole, timeLeft(epic, whole)));
    },
  };
}
