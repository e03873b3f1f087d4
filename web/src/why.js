// Why a stage does not start its waiting jobs, in a sentence, and the action that changes it. The server's
// field held-by has the reason in one word.
import { count, counted } from './format.js';
import { atOption, workCommand } from './server.js';

export const stagePath = (name) => `#/stage/${encodeURIComponent(name)}`;
export const deadPath = (name) => `#/dead?stage=${encodeURIComponent(name)}`;

const RESUME = { text: 'Resume', act: 'resume' };

// Each returns a sentence and an action: `act` is an action of the server, `href` a link, `command` a command
// for a shell.
const HELD = {
  paused: (s) => ['Paused: it accepts jobs and starts none.', RESUME],
  draining: (s) => ['Draining: it runs the jobs that it has and refuses pushes.', RESUME],
  'no-worker': (s) => [
    'No worker takes its jobs.',
    { command: workCommand(s.name) },
  ],
  limit: (s) => [
    'It runs as many jobs at once as its policy allows.',
    { text: 'Change concurrency', href: `${stagePath(s.name)}/policy` },
  ],
  rate: (s) => [
    'It has started as many jobs as its rate allows.',
    { text: 'Change rate', href: `${stagePath(s.name)}/policy` },
  ],
  'group-limit': (s) => [
    'Each group with waiting jobs runs as many at once as group-concurrency allows.',
    { text: 'Change group-concurrency', href: `${stagePath(s.name)}/policy` },
  ],
  'group-rate': (s) => [
    'Each group with waiting jobs has started as many as group-rate allows.',
    { text: 'Change group-rate', href: `${stagePath(s.name)}/policy` },
  ],
  backoff: (s) => [
    'Failed jobs wait to be tried again.',
    { text: 'See parked channels', href: `${stagePath(s.name)}/parked` },
  ],
  delay: (s) => [
    'Its jobs are delayed and not due yet.',
    { text: 'See delayed jobs', href: `${stagePath(s.name)}/jobs/delayed` },
  ],
  halted: (s) => [
    'Channels are halted by a dead job.',
    { text: 'Retry or drop it', href: deadPath(s.name) },
  ],
  'paused-keys': (s) => [
    'The keys of its jobs are paused.',
    { command: `millrace resume ${s.name} --key KEY ${atOption()}` },
  ],
  stopped: () => ['The log has stopped: no job is started until the server is restarted.', null],
  downstream: () => ['A stage that its jobs emit to has too many waiting jobs.', null],
};

function downstream(heldBy) {
  const [name, stuck] = heldBy.slice('downstream:'.length).split(' ');
  return [
    `${name}, which its jobs emit to, has too many waiting jobs${
      stuck ? ' and needs an operator to act' : ''
    }.`,
    { text: `See ${name}`, href: stagePath(name) },
  ];
}

function progressing(s) {
  if (s.running && s.waiting && s.level && s.running >= s.level)
    return [`Running ${counted(s.running, 'job')}, as many as its workers take at once.`, null];
  if (s.running && s.waiting)
    return [`Running ${counted(s.running, 'job')}; the others wait for their keys or for a worker.`, null];
  if (s.running) return [`Running ${counted(s.running, 'job')}.`, null];
  if (s.waiting) return ['About to start.', null];
  return ['No jobs.', null];
}

// { held, sentence, action }; held: jobs wait that could be started.
export function whyHeld(stage) {
  const heldBy = stage['held-by'] ?? '';
  const reason = HELD[heldBy];
  const [sentence, action] = reason
    ? reason(stage)
    : heldBy.startsWith('downstream:')
      ? downstream(heldBy)
      : progressing(stage);
  return { held: heldBy !== '', sentence, action };
}
