// The plots of a stage: its queue; the time its jobs take, split into waiting and running; what comes and
// goes; and what each level of its workers gave.
import { el, panel } from '../dom.js';
import { count, duration, rate } from '../format.js';
import { plot } from '../plot.js';
import { LONGEST_MS, perSecondOf, steps } from '../series.js';

const counted = (n) => (n === null ? '–' : count(n));
const time = (ms) => (ms === null ? '–' : ms > 0 && ms < 1 ? '<1 ms' : duration(ms));
const perSecond = (n) => (n === null ? '–' : `${rate(n)}/s`);

// The mean throughput at each level that was seen while jobs waited, so that the level was what limited
// it: [levels, throughputs]. Where no worker tells its level it is how many ran.
export function throughputByLevel(series) {
  const times = series['time-ms'],
    done = perSecondOf(times, series.done);
  const told = series.level.some((level) => level > 0) ? series.level : series.running;
  const seen = new Map();
  for (let i = 1; i < times.length; i++) {
    if (!told[i] || !series.waiting[i] || times[i] - times[i - 1] > LONGEST_MS) continue;
    const at = seen.get(told[i]) ?? { sum: 0, times: 0 };
    seen.set(told[i], { sum: at.sum + done[i], times: at.times + 1 });
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
      empty: 'No job was started lately.',
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
      title: 'In and out',
      empty: 'No sample yet.',
      unit: 'jobs a second',
      format: perSecond,
      series: [
        { label: 'pushed', colour: '--blue' },
        { label: 'done', colour: '--orange' },
        { label: 'failed', colour: '--red', dash: [4, 4] },
      ],
    }),
    levels: plot({
      title: 'Throughput by level',
      empty: 'Known once jobs are done while others wait.',
      unit: 'jobs done a second, while jobs waited',
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
      'Lately',
      el(
        'div.pair',
        all.map((p) => p.node),
      ),
    ),
    // `now` is when the server told it: until then what waited last still does.
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
