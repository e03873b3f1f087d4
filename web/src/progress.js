// The progress of an epic, with the time left at the rate of the last half minute; and that of a running job, as
// its worker says.
import { el, setShown, setText } from './dom.js';
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

// A small bar, unless the total is not known, with the worker's text below it; hidden while it says nothing.
export function jobProgress() {
  const bar = el('progress'),
    words = el('small'),
    node = el('div.progress', bar, words);
  return {
    node,
    set(job) {
      setShown(node, Boolean(job.progress));
      if (!job.progress) return;
      const { done, total, text = '' } = job.progress;
      setShown(bar, total > 0);
      bar.max = Math.max(total, 1);
      bar.value = Math.min(done, total);
      bar.setAttribute('aria-label', `Progress of job ${job.id}`);
      setText(words, `${total ? `${count(done)} of ${count(total)}` : count(done)} ${text}`.trim());
    },
  };
}

export const progressColumn = () => ({ head: 'Progress', wide: true, make: jobProgress });
