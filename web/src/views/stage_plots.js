// The plots of a stage: queue length; time of jobs, split into waiting and running; pushed, done and failed jobs
// per second; and throughput at each level of its workers.
import { el, panel } from '../dom.js';
import { count, duration, rate } from '../format.js';
import { plot } from '../plot.js';
import { LONGEST_MS, perSecondOf, steps } from '../series.js';

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

const PERCENTILES = ['wait-p50-ms', 'wait-p99-ms', 'run-p50-ms', 'run-p99-ms'];
const FLOWS = ['pushed', 'done', 'failed'];

function makePlots() {
  return {
    queue: plot({
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
    }),
    times: plot({
      title: 'Time in the system',
      unit: 'half (p50) and 99 of 100 (p99) took no longer',
      empty: 'No job was started in the last ten minutes.',
      format: time,
      whole: true,
      series: [
        { label: 'waiting p50', colour: '--blue' },
        { label: 'waiting p99', colour: '--blue', dash: [4, 4] },
        { label: 'running p50', colour: '--orange' },
        { label: 'running p99', colour: '--orange', dash: [4, 4] },
      ],
    }),
    flow: plot({
      title: 'Throughput',
      empty: 'No sample yet.',
      unit: 'jobs per second',
      format: perSecond,
      series: [
        { label: 'pushed', colour: '--blue' },
        { label: 'done', colour: '--orange' },
        { label: 'failed', colour: '--red', dash: [4, 4] },
      ],
    }),
    levels: plot({
      title: 'Throughput by level',
      empty: 'Drawn when jobs are done while others wait.',
      unit: 'jobs done per second, while jobs waited',
      format: perSecond,
      across: { label: 'level', format: counted },
      series: [{ label: 'done', colour: '--green', points: true }],
    }),
  };
}

export function stagePlots() {
  const plots = makePlots(),
    all = Object.values(plots);
  return {
    node: panel(
      'Last ten minutes',
      el(
        'div.pair',
        all.map((p) => p.node),
      ),
    ),
    // `now` is the time of the response: the last sample holds until then.
    update(series, now) {
      const times = series['time-ms'],
        seconds = [...times, now].map((ms) => ms / 1000);
      const held = (name) => [...series[name], series[name].at(-1) ?? null];
      const percentiles = PERCENTILES.map((name) => series[name]);
      const rates = FLOWS.map((name) => perSecondOf(times, series[name]));
      plots.queue.update([seconds, held('waiting'), held('running'), held('delayed')]);
      plots.times.update(steps(times, percentiles, now, null));
      plots.flow.update(steps(times, rates, now, 0));
      plots.levels.update(throughputByLevel(series));
    },
    end: () => all.forEach((p) => p.end()),
  };
}
