// What a person can have the server do. What destroys is asked about first; what was done, or why not,
// is told in a notice. Each resolves with true if it was done.
import { sentence } from './api.js';
import { act } from './calls.js';
import { ask, complain, notice } from './dialog.js';
import { counted } from './format.js';
import { store } from './store.js';

async function attempt(doIt, told) {
  try {
    notice(told(await doIt()));
    return true;
  } catch (error) {
    complain(sentence(error));
    return false;
  }
}

// ---- A stage -----------------------------------------------------------------------------------

const STAGE = {
  pause: { told: 'is paused: it accepts jobs and starts none.' },
  resume: { told: 'goes on.' },
  drain: {
    told: 'drains: it finishes what it has.',
    question:
      'It finishes what it has and refuses every push until it is resumed. Whoever pushes hears DRAINING.',
    act: 'Drain it',
  },
};

export async function stageAct(name, verb) {
  const { told, question, act: label } = STAGE[verb];
  if (question && !(await ask({ title: `Drain ${name}?`, text: question, act: label })))
    return false;
  return attempt(
    () => act.stage(name, verb),
    () => `${name} ${told}`,
  );
}

export const setPolicy = (name, values) =>
  attempt(
    () => act.policy(name, values),
    () => `The policy of ${name} is changed.`,
  );

// ---- A job -------------------------------------------------------------------------------------

const JOB = {
  retry: { told: (id) => `Job ${id} lives again, with all its attempts.` },
  cancel: {
    told: (id) => `Job ${id} is cancelled.`,
    title: (id) => `Cancel job ${id}?`,
    text: 'If it waits it will never start. If it runs, its worker is told to stop, and nothing it does is recorded.',
    act: 'Cancel the job',
  },
  drop: {
    told: (id) => `Job ${id} is dropped.`,
    title: (id) => `Drop job ${id}?`,
    text: 'The job and its body are forgotten. This cannot be undone.',
    act: 'Drop the job',
  },
};

export async function jobAct(id, verb) {
  const about = JOB[verb];
  if (about.title && !(await ask({ title: about.title(id), text: about.text, act: about.act })))
    return false;
  return attempt(
    () => act.job(id, verb),
    () => about.told(id),
  );
}

// ---- Many --------------------------------------------------------------------------------------

const doneWith = (verb, count) =>
  verb === 'drop'
    ? count === 1
      ? 'is dropped'
      : 'are dropped'
    : count === 1
      ? 'lives again'
      : 'live again';

function askAboutMany(verb, total, where) {
  const jobs = counted(total, 'dead job');
  return ask(
    verb === 'drop'
      ? {
          title: `Drop ${jobs}${where}?`,
          text: 'They and their bodies are forgotten. This cannot be undone.',
          act: `Drop ${jobs}`,
        }
      : {
          title: `Retry ${jobs}${where}?`,
          text: 'Each gets all its attempts again.',
          act: `Retry ${jobs}`,
          danger: false,
        },
  );
}

export async function chosenAct(ids, verb) {
  if (!(await askAboutMany(verb, ids.length, ''))) return false;
  return attempt(
    () => act.jobs(ids, verb),
    ({ count }) => `${counted(count, 'job')} ${doneWith(verb, count)}.`,
  );
}

// The same for every stage that has dead jobs; how many in all.
async function forStages(verb, { stage, ...filter }, more) {
  const names = stage ? [stage] : store.stages.filter((s) => s.dead).map((s) => s.name);
  let total = 0;
  for (const name of names)
    total += await act.dead(verb, { stage: name, ...filter, max: ALL, ...more });
  return total;
}

const ALL = 1_000_000_000; // more than there can be

// All dead letters that match { stage, key, reason }, of which what is not given does not matter: counted
// first.
export async function matchingAct(verb, filter) {
  let total;
  try {
    total = await forStages(verb, filter, { dry: true });
  } catch (error) {
    complain(sentence(error));
    return false;
  }
  if (!total) {
    notice('Nothing matches any more.');
    return false;
  }
  const where = filter.stage ? ` of ${filter.stage}` : '';
  if (!(await askAboutMany(verb, total, where))) return false;
  return attempt(
    () => forStages(verb, filter, {}),
    (done) => `${counted(done, 'job')} ${doneWith(verb, done)}.`,
  );
}
