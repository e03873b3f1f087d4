// Why a stage does not start what it has, in a sentence, and what would change that. The server's field
// held-by says it in a word.
import { count, counted } from './format.js';

export const stagePath = (name) => `#/stage/${encodeURIComponent(name)}`;
export const deadPath = (name) => `#/dead?stage=${encodeURIComponent(name)}`;

const RESUME = { text: 'Resume', act: 'resume' };

// Each gives a sentence and what to do: `act` is done by the server, `href` leads there, `command` is
// for a shell.
const HELD = {
  paused: (s) => ['Paused: it accepts jobs and starts none.', RESUME],
  draining: (s) => ['Draining: it finishes what it has and refuses pushes.', RESUME],
  'no-worker': (s) => [
    'No worker asks for its jobs.',
    { command: `millrace work ${s.name} -- COMMAND` },
  ],
  limit: (s) => [
    'It runs as many jobs at once as its policy allows.',
    { text: 'Change concurrency', href: `${stagePath(s.name)}/policy` },
  ],
  rate: (s) => [
    'It has started as many jobs as its rate allows.',
    { text: 'Change rate', href: `${stagePath(s.name)}/policy` },
  ],
  backoff: (s) => [
    'What has failed waits to be tried again.',
    { text: 'See parked channels', href: `${stagePath(s.name)}/parked` },
  ],
  delay: (s) => [
    'Its jobs are delayed and not due yet.',
    { text: 'See delayed jobs', href: `${stagePath(s.name)}/jobs/delayed` },
  ],
  halted: (s) => [
    'Channels wait for a decision on a dead job.',
    { text: 'Decide', href: deadPath(s.name) },
  ],
  stopped: () => ['The log has stopped: nothing is started until the server is restarted.', null],
  downstream: () => ['A stage that its jobs go to next has too many waiting.', null],
};

function downstream(heldBy) {
  const [name, stuck] = heldBy.slice('downstream:'.length).split(' ');
  return [
    `${name}, where its jobs go next, has too many waiting${
      stuck ? ' and cannot move by itself' : ''
    }.`,
    { text: `See ${name}`, href: stagePath(name) },
  ];
}

function unheld(s) {
  if (s.running && s.waiting)
    return [`Working on ${count(s.running)}; more workers would run more at once.`, null];
  if (s.running) return [`Working on ${counted(s.running, 'job')}.`, null];
  if (s.waiting) return ['About to start.', null];
  return ['Nothing to do.', null];
}

// { held, sentence, action }; held: it could do more than it does.
export function whyHeld(stage) {
  const heldBy = stage['held-by'] ?? '';
  const told = HELD[heldBy];
  const [sentence, action] = told
    ? told(stage)
    : heldBy.startsWith('downstream:')
      ? downstream(heldBy)
      : unheld(stage);
  return { held: heldBy !== '', sentence, action };
}
