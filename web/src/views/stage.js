// One stage: its jobs and why they wait, plots of the last minutes, channels, workers and policy.
import { stageAct } from '../actions.js';
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { button, el, fragment, link, needs, setShown, setText } from '../dom.js';
import { compact, count, duration, rate } from '../format.js';
import { figures, tag, whyCell } from '../parts.js';
import { poller } from '../poll.js';
import { stageNamed, store } from '../store.js';
import { stagePath } from '../why.js';
import { stageChannels } from './stage_channels.js';
import { stageJobs } from './stage_jobs.js';
import { stagePlots } from './stage_plots.js';
import { stagePolicy } from './stage_policy.js';

function strip(stage) {
  const of = (name) => stage()?.[name];
  return figures([
    ['Waiting', () => compact(of('waiting'))],
    ['Running', () => compact(of('running'))],
    ['Delayed', () => compact(of('delayed'))],
    ['Parked', () => compact(of('parked'))],
    ['Dead', () => compact(of('dead')), () => of('dead') > 0],
    ['Oldest', () => duration(of('oldest-ms'))],
    ['Pushed/s', () => rate(of('in-per-s'))],
    ['Done/s', () => rate(of('out-per-s'))],
    ['Workers', () => count(of('workers'))],
    ['Level', () => (of('level') ? count(of('level')) : '–')],
  ]);
}

function makeHead(name) {
  const held = tag();
  const act = (text, verb, kind) =>
    needs('admin', button(text, () => stageAct(name, verb), kind));
  const pause = act('Pause', 'pause'),
    resume = act('Resume', 'resume', 'primary'),
    drain = act('Drain…', 'drain');
  return {
    node: el(
      'div.title',
      el('h1', name, ' ', held.node),
      pause,
      resume,
      drain,
      needs('push', link('Push a job', `#/push?stage=${encodeURIComponent(name)}`)),
    ),
    update(stage) {
      const stopped = ['paused', 'draining'].find(
        (word) => stage?.[word] || stage?.['held-by'] === word,
      );
      if (stopped) held.set(stopped);
      setShown(held.node, Boolean(stopped));
      setShown(pause, Boolean(stage) && stopped !== 'paused');
      setShown(drain, Boolean(stage) && stopped !== 'draining');
      setShown(resume, Boolean(stopped));
    },
  };
}

// The stages that its jobs emit to, with links.
function nextStages() {
  const node = el('p.soft');
  let shown = '';
  return {
    node,
    set({ feeds = [] }) {
      if (feeds.join(' ') === shown) return;
      shown = feeds.join(' ');
      node.replaceChildren(
        ...(feeds.length ? ['Its jobs emit to '] : []),
        ...feeds.flatMap((name, i) => [i ? ', ' : '', link(name, stagePath(name))]),
        ...(feeds.length ? ['. ', link('See the flow', '#/flows')] : []),
      );
    },
  };
}

export function stageView([name, part, status]) {
  let requested = null; // used if the snapshot does not have the stage, because there are too many
  const stage = () => stageNamed(name) ?? requested;
  const head = makeHead(name),
    numbers = strip(stage),
    why = whyCell(stage),
    next = nextStages();
  const said = el('p.error', { role: 'alert' });
  const missing = el(
    'p.panel',
    `There is no stage ${name}. The first job of a stage makes it.`,
  );
  const say = (error) => setText(said, !error || error.code === 'GONE' ? '' : sentence(error));
  const plots = stagePlots(name, say),
    channels = stageChannels(name),
    jobs = stageJobs(name, status);
  const policy = stagePolicy(name, () => loading.now());
  const parts = [
    numbers.node,
    why.node,
    next.node,
    plots.node,
    channels.node,
    jobs.node,
    policy.node,
  ];

  const loading = poller(
    async (signal) => {
      const { stage: now, series, policy: rules, 'time-ms': at } = await look.stage(name, signal);
      const rows = await look.policies(signal);
      if (!requested) queueMicrotask(update);
      requested = now;
      plots.update(series, at);
      policy.update(rules, rows);
      channels.setGrouped(rules.group === 'on');
      say(null);
    },
    (error) => {
      if (error.code === 'GONE') requested = null;
      say(error);
    },
  );

  function update() {
    const now = stage();
    setShown(missing, store.at > 0 && !now);
    for (const node of parts) setShown(node, Boolean(now));
    head.update(now);
    loading.tick();
    if (!now) return;
    plots.tick();
    numbers.update();
    why.set(now);
    next.set(now);
    channels.update();
    jobs.update(now);
  }

  return {
    title: name,
    node: fragment(head.node, said, missing, ...parts),
    arrive() {
      if (part === 'policy') policy.node.scrollIntoView();
      if (part === 'parked') channels.parked.scrollIntoView();
      if (part === 'jobs') jobs.node.scrollIntoView();
    },
    update,
    end() {
      for (const made of [plots, channels, jobs, loading]) made.end();
    },
  };
}
