// How far an epic has come, and how long the rest of it takes at the pace of the last half minute.
import { el, setText } from './dom.js';
import { count, duration } from './format.js';

const PACE_MS = 30_000;

export const ended = (e) => e.done + e.dead + e.cancelled + e.expired;

// How many there are: known, or as whoever pushes it believes; -1: nobody can tell.
function wholeOf(epic) {
  if (epic.total >= 0) return epic.total;
  return epic.expected > 0 ? Math.max(epic.expected, epic.accepted) : -1;
}

// Milliseconds until all of it has ended; -1: that cannot be told.
function makePace() {
  const samples = [];
  return (epic, whole) => {
    const now = Date.now();
    samples.push([now, ended(epic)]);
    while (samples.length > 2 && now - samples[0][0] > PACE_MS) samples.shift();
    const [at, before] = samples[0];
    const done = ended(epic) - before;
    if (done < 0) samples.splice(0, samples.length - 1); // it was dropped, and begun anew
    return whole < 0 || done <= 0 ? -1 : ((whole - ended(epic)) * (now - at)) / done;
  };
}

function text(epic, whole, leftMs) {
  const read = `${count(epic.accepted)} read, ${count(ended(epic))} ended`;
  if (whole < 0) return `${read}; its end is not known`;
  const about = epic.total < 0 ? 'about ' : '';
  if (ended(epic) >= whole && epic.total >= 0) return `all ${count(whole)} ended`;
  const left = leftMs < 0 ? '' : `; ${about}${duration(leftMs)} left`;
  return `${read} of ${about}${count(whole)}${left}`;
}

// A bar with words: { node, set(epic) }.
export function progress() {
  const bar = el('progress'),
    words = el('small'),
    pace = makePace();
  return {
    node: el('div.progress', bar, words),
    set(epic) {
      const whole = wholeOf(epic);
      bar.max = Math.max(whole < 0 ? epic.accepted : whole, 1);
      bar.value = whole === 0 ? 1 : ended(epic);
      bar.setAttribute('aria-label', `Progress of ${epic.name}`);
      setText(words, text(epic, whole, pace(epic, whole)));
    },
  };
}
