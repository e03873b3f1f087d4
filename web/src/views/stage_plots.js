// The plots of a stage: queue length; time of jobs, split into waiting and running; pushed, done and failed jobs
// per second; and throughput at each level of its workers. Those of the overview: queue length and throughput of
// all stages.
import { look } from '../calls.js';
import { el, panel, tabs } from '../dom.js';
import { count, duration, rate } from '../format.js';
import { plot } from '../plot.js';
import { poller } from '../poll.js';
import { LONGEST_MS, SPANS, historySteps, perSecondOf, steps } from '../series.js';

const counted = (n) => (n === null ? '–' : count(n));
const time = (ms) => (ms === null ? '–' : ms > 0 && ms < 1 ? '<1 ms' : duration(ms));
const perSecond = (n) => (n === null ? '–' : `${rate(n)}/s`);

// The mean throughput at each level, over the seconds in which jobs waited, so that the level was the limit:
// [levels, throughputs]. If no worker reports a level, the number of running jobs takes its place.
export function throughputByLevel(series) {
  const times = series['time-ms'],
    done = perSecondOf(times, series.done);
  const reported = series.level.some((level) => level > 0) ? series.level : series.running;
  const seen = new Map();
  for (let i = 1; i < times.length; i++) {
    if (!reported[i] || !series.waiting[i] || times[i] - times[i - 1] > LONGEST_MS) continue;
    const at = seen.get(reported[i]) ?? { sum: 0, times: 0 };
    seen.set(reported[i], { sum: at.sum + done[i], times: at.times + 1 });
  }
  const levels = [...seen.keys()].sort((a, b) => a - b);
  return [levels, levels.map((level) => seen.get(level).sum / seen.get(level).times)];
}

const QUEUE = ['waiting', 'running', 'delayed'];
const PERCENTILES = ['wait-p50-ms', 'wait-p99-ms', 'run-p50-ms', 'run-p99-ms'];
const FLOWS = ['pushed', 'done', 'failed'];

const queuePlot = () =>
  plot({
    title: 'Queue',
    unit: 'jobs',
    format: counted,
    stepped: true,
    whole: true,
    empty: 'No sample yet.',
    series: [
      { label: 'waiting', colour: '--blue' },
      { label: 'running', colour: '--orange' },
      { label: 'delayed', colour: '--green', dash: [4, 4] },
    ],
  });

const flowPlot = () =>
  plot({
    title: 'Throughput',
    empty: 'No sample yet.',
    unit: 'jobs per second',
    format: perSecond,
    series: [
      { label: 'pushed', colour: '--blue' },
      { label: 'done', colour: '--orange' },
      { label: 'failed', colour: '--red', dash: [4, 4] },
    ],
  });

const timesPlot = () =>
  plot({
    title: 'Time in the system',
    unit: 'half (p50) and 99 of 100 (p99) took no longer',
    empty: 'No job was started in this time.',
    format: time,
    whole: true,
    series: [
      { label: 'waiting p50', colour: '--blue' },
      { label: 'waiting p99', colour: '--blue', dash: [4, 4] },
      { label: 'running p50', colour: '--orange' },
      { label: 'running p99', colour: '--orange', dash: [4, 4] },
    ],
  });

const levelPlot = () =>
  plot({
    title: 'Throughput by level',
    empty: 'Drawn when jobs are done while others wait.',
    unit: 'per second while jobs waited, last ten minutes',
    format: perSecond,
    across: { label: 'level', format: counted },
    series: [{ label: 'done', colour: '--green', points: true }],
  });

// ---- Spans --------------------------------------------------------------------------------------

const EVERY_MS = { minutes: 5000, hour: 10_000, day: 60_000 }; // between two requests for a history
let chosen = SPANS[0]; // also for the next view

const spanUntil = (now) => [now / 1000 - chosen.seconds, now / 1000];

function plotsPanel(plots, changed) {
  const choose = (span) => {
    chosen = span;
    changed();
  };
  const choices = SPANS.map((span) => [span, span.text]);
  return panel(
    ['Over time', tabs('Time shown', choices, chosen, choose)],
    el(
      'div.pair',
      plots.map((p) => p.node),
    ),
  );
}

// Requests histories; `show(history, now)` draws one; `said(error)` gets why there is none, or null.
const historyPoller = (name, said, show) =>
  poller(
    async (signal) => {
      const span = chosen.name === 'day' ? 'day' : 'hour';
      const { history, 'time-ms': now } = await look.history(name, span, signal);
      show(history, now);
      said(null);
    },
    said,
    () => EVERY_MS[chosen.name],
  );

// The plots of one stage. `said(error)` is called when its history was requested: null, or why it failed.
export function stagePlots(name, said) {
  const queue = queuePlot(),
    times = timesPlot(),
    flow = flowPlot(),
    levels = levelPlot();
  const all = [queue, times, flow, levels];
  let newest = null; // { series, now }
  const loading = historyPoller(name, said, (history, now) => {
    if (chosen === SPANS[0]) return;
    const span = spanUntil(now);
    queue.update(historySteps(history, QUEUE, now), span);
    times.update(historySteps(history, PERCENTILES, now), span);
    flow.update(historySteps(history, FLOWS, now, true), span);
  });

  // `now` is the time of the response: the last sample holds until then.
  function showSamples({ series, now }) {
    const at = series['time-ms'],
      span = spanUntil(now);
    const held = (column) => [...series[column], series[column].at(-1) ?? null];
    queue.update([[...at, now].map((ms) => ms / 1000), ...QUEUE.map(held)], span);
    times.update(steps(at, PERCENTILES.map((p) => series[p]), now, null), span);
    flow.update(steps(at, FLOWS.map((f) => perSecondOf(at, series[f])), now, 0), span);
  }

  const changed = () => (chosen === SPANS[0] ? newest && showSamples(newest) : loading.now());
  return {
    node: plotsPanel(all, changed),
    update(series, now) {
      newest = { series, now };
      levels.update(throughputByLevel(series));
      if (chosen === SPANS[0]) showSamples(newest);
    },
    tick: () => chosen !== SPANS[0] && loading.tick(),
    end() {
      loading.end();
      for (const p of all) p.end();
    },
  };
}

// The plots of all stages that the token may see. Five minutes are the end of an hour.
export function overviewPlots(said) {
  const queue = queuePlot(),
    flow = flowPlot();
  const loading = historyPoller('', said, (history, now) => {
    queue.update(historySteps(history, QUEUE, now), spanUntil(now));
    flow.update(historySteps(history, FLOWS, now, true), spanUntil(now));
  });
  return {
    node: plotsPanel([queue, flow], loading.now),
    tick: loading.tick,
    end() {
      loading.end();
      queue.end();
      flow.end();
    },
  };
}
