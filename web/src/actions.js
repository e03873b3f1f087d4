// The actions that a user can start on the server. Destructive ones ask for confirmation first; a notice
// reports the outcome, or why the server refused. Each resolves with true if the action was done.
import { sentence } from './api.js';
import { act } from './calls.js';
import { ask, complain, notice } from './dialog.js';
import { el, field } from './dom.js';
import { counted, short } from './format.js';
import { store } from './store.js';

async function tryAction(action, outcomeText) {
  try {
    notice(outcomeText(await action()));
    return true;
  } catch (error) {
    complain(sentence(error));
    return false;
  }
}

// ---- A stage -----------------------------------------------------------------------------------

const STAGE = {
  pause: { outcome: 'is paused: it accepts jobs and starts none.' },
  resume: { outcome: 'is resumed.' },
  drain: {
    outcome: 'is draining: it runs the jobs that it has.',
    question:
      'It runs the jobs that it has, and refuses every push with DRAINING until it is resumed.',
    act: 'Drain it',
  },
};

export async function stageAct(name, verb) {
  const { outcome, question, act: label } = STAGE[verb];
  if (question && !(await ask({ title: `Drain ${name}?`, text: question, act: label })))
    return false;
  return tryAction(
    () => act.stage(name, verb),
    () => `${name} ${outcome}`,
  );
}

const KEY = {
  pause: (key, name) => `Key ${key} of ${name} is paused: its jobs are accepted and not started.`,
  resume: (key, name) => `Key ${key} of ${name} is resumed.`,
};

export const keyAct = (name, key, verb) =>
  tryAction(
    () => act.key(name, key, verb),
    () => KEY[verb](short(key, 40), name),
  );

export const setPolicy = (name, values) =>
  tryAction(
    () => act.policy(name, values),
    () => `The policy of ${name} is changed.`,
  );

// ---- A job -------------------------------------------------------------------------------------

const JOB = {
  retry: { outcome: (id) => `Job ${id} is queued again, with all its attempts.` },
  due: { outcome: (id) => `Job ${id} may start now.` },
  cancel: {
    outcome: (id) => `Job ${id} is cancelled.`,
    title: (id) => `Cancel job ${id}?`,
    text: 'If it waits, it will not be started. If it runs, its worker is asked to stop, and its result is not recorded.',
    act: 'Cancel the job',
    many: {
      running: 'Their workers are asked to stop, and their results are not recorded.',
      waiting: 'They will not be started. This cannot be undone.',
      delayed: 'They will not be started. This cannot be undone.',
    },
  },
  drop: {
    outcome: (id) => `Job ${id} is dropped.`,
    title: (id) => `Drop job ${id}?`,
    text: 'The job and its body are deleted. This cannot be undone.',
    act: 'Drop the job',
  },
};

export async function jobAct(id, verb) {
  const about = JOB[verb];
  if (about.title && !(await ask({ title: about.title(id), text: about.text, act: about.act })))
    return false;
  return tryAction(
    () => act.job(id, verb),
    () => about.outcome(id),
  );
}

// ---- An epic -----------------------------------------------------------------------------------

const textInput = (attributes = {}) =>
  el('input', { autocomplete: 'off', spellcheck: 'false', ...attributes });

const EPIC = {
  cancel: {
    title: 'Cancel epic',
    text: 'All of its jobs that have not ended are cancelled, and no more are accepted. This cannot be undone.',
    act: 'Cancel the epic',
    outcome: 'is cancelled.',
  },
  drop: {
    title: 'Drop epic',
    text: 'Its name and numbers are forgotten, and nothing is pushed at its end. Its jobs stay and run.',
    act: 'Drop the epic',
    outcome: 'is dropped.',
  },
};

export async function epicAct(epic, verb) {
  const { title, text, act: label, outcome } = EPIC[verb];
  if (!(await ask({ title: `${title} ${epic.name}?`, text, act: label }))) return false;
  return tryAction(
    () => act.epic(epic, verb),
    () => `Epic ${epic.name} ${outcome}`,
  );
}

// Asks for the job that is pushed when the epic ends.
export async function epicThen(epic) {
  const then = textInput({ maxlength: 200 });
  const key = textInput({ maxlength: 1024 });
  const body = textInput({ maxlength: 4096 });
  const given = await ask({
    title: `Push a job after epic ${epic.name}`,
    text: 'It is pushed once, when all jobs of the epic have ended.',
    act: 'Push it then',
    danger: false,
    fields: [field('Stage', then), field('Key', key, 'empty: none'), field('Body', body)],
  });
  if (!given) return false;
  return tryAction(
    () => act.epic(epic, 'then', { then: then.value, key: key.value, body: body.value }),
    () => `A job is pushed to ${then.value} when epic ${epic.name} has ended.`,
  );
}

// Asks how long the epic is kept.
export async function epicForget(epic) {
  const after = textInput({ value: '7d' });
  const given = await ask({
    title: `Forget epic ${epic.name}`,
    text: 'It is dropped that long after its end, or after now if it has ended.',
    act: 'Set the time',
    danger: false,
    fields: [field('After', after, '30s, 5m, 2h, 7d; 0: never')],
  });
  if (!given) return false;
  return tryAction(
    () => act.epic(epic, 'forget', { after: after.value }),
    () => `The time of epic ${epic.name} is set.`,
  );
}

// ---- A schedule --------------------------------------------------------------------------------

const SCHEDULE = {
  pause: { outcome: 'is paused: it pushes nothing.' },
  resume: { outcome: 'is resumed; what it would have pushed meanwhile is left out.' },
  now: { outcome: 'has pushed a job, beside its times.' },
  drop: {
    outcome: 'is dropped.',
    text: 'It pushes no more jobs. Those that it has pushed stay. This cannot be undone.',
    act: 'Drop the schedule',
  },
};

export async function scheduleAct({ stage, name }, verb) {
  const { outcome, text, act: label } = SCHEDULE[verb];
  if (text && !(await ask({ title: `Drop ${name} of ${stage}?`, text, act: label }))) return false;
  return tryAction(
    () => act.schedule(stage, name, verb),
    () => `${name} ${outcome}`,
  );
}

// ---- Many --------------------------------------------------------------------------------------

const doneWith = (verb, count) =>
  verb === 'drop'
    ? count === 1
      ? 'is dropped'
      : 'are dropped'
    : count === 1
      ? 'is queued again'
      : 'are queued again';

function askAboutMany(verb, total, where) {
  const jobs = counted(total, 'dead job');
  return ask(
    verb === 'drop'
      ? {
          title: `Drop ${jobs}${where}?`,
          text: 'The jobs and their bodies are deleted. This cannot be undone.',
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

export async function selectedAct(ids, verb) {
  if (!(await askAboutMany(verb, ids.length, ''))) return false;
  return tryAction(
    () => act.jobs(ids, verb),
    ({ count }) => `${counted(count, 'job')} ${doneWith(verb, count)}.`,
  );
}

const AT_ONCE = 1000; // ids in a request

// Acts on the jobs of a group of dead letters (reasons.js): those that the page has looked at.
export async function groupAct(verb, { ids, reason }) {
  const where = ` with the reason “${short(reason || 'none', 60)}”`;
  if (!(await askAboutMany(verb, ids.length, where))) return false;
  return tryAction(
    async () => {
      let done = 0;
      for (let from = 0; from < ids.length; from += AT_ONCE)
        done += (await act.jobs(ids.slice(from, from + AT_ONCE), verb)).count;
      return done;
    },
    (done) => `${counted(done, 'job')} ${doneWith(verb, done)}.`,
  );
}

// Cancels all jobs of a stage that have this status and, if it is not empty, this key, after counting them
// and asking for confirmation.
export async function cancelAct(name, status, key) {
  const filter = { status, ...(key ? { key } : {}), max: ALL };
  let total;
  try {
    total = await act.cancelMany(name, { ...filter, dry: true });
  } catch (error) {
    complain(sentence(error));
    return false;
  }
  if (!total) {
    notice(key ? `No ${status} job has this key.` : `No job is ${status}.`);
    return false;
  }
  const jobs = counted(total, `${status} job`);
  const title = `Cancel ${jobs} of ${name}${key ? ` with key ${short(key, 40)}` : ''}?`;
  const text = JOB.cancel.many[status];
  if (!(await ask({ title, text, act: `Cancel ${jobs}` }))) return false;
  return tryAction(
    () => act.cancelMany(name, filter),
    (count) => `${counted(count, 'job')} ${count === 1 ? 'is' : 'are'} cancelled.`,
  );
}

// Acts on every stage that has dead jobs; resolves with the number of jobs in all.
async function forStages(verb, { stage, ...filter }, more) {
  const names = stage ? [stage] : store.stages.filter((s) => s.dead).map((s) => s.name);
  let total = 0;
  for (const name of names)
    total += await act.dead(verb, { stage: name, ...filter, max: ALL, ...more });
  return total;
}

const ALL = 1_000_000_000; // more than there can be

// Acts on all dead letters that match { stage, key, reason }, after counting them and asking for
// confirmation. A member that is not given matches every job.
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
  return tryAction(
    () => forStages(verb, filter, {}),
    (done) => `${counted(done, 'job')} ${doneWith(verb, done)}.`,
  );
}
