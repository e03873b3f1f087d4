// Plots of numbers over time, or of one number against another: uPlot with the colours of the page and a
// legend that shows the newest values, or those under the pointer.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { el, setShown, setText } from './dom.js';

const HEIGHT = 190;
const probe = el('span', { hidden: true });

// The present value of a variable of the stylesheet: a canvas cannot use variables.
function colour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

function axis(format, more) {
  return {
    stroke: colour('--soft'),
    grid: { stroke: colour('--rule'), width: 1 },
    ticks: { show: false },
    font: '11px system-ui, sans-serif',
    values: format && ((_, ticks) => ticks.map((t) => (t === null ? '' : format(t)))),
    ...more,
  };
}

function line(s, stepped) {
  const stroke = colour(s.colour);
  return {
    label: s.label,
    stroke,
    width: s.points ? 0 : 1.5,
    dash: s.dash,
    points: s.points ? { show: true, size: 6, fill: stroke, stroke } : { show: false },
    paths: stepped && uPlot.paths.stepped({ align: 1 }),
    spanGaps: Boolean(s.points), // in plots over time a gap means that there was no value
  };
}

function legendItem(s) {
  const value = el('b', '–');
  const swatch = el(`i.swatch.${s.colour.slice(2)}${s.dash ? '.dashed' : ''}`, {
    'aria-hidden': 'true',
  });
  return { value, node: el('li', swatch, s.label, ' ', value) };
}

// ---- Axes ---------------------------------------------------------------------------------------

const levelRange = (_, first, last) =>
  first === null ? [0, 8] : [Math.max(first - 1, 0), last + 1];

const heightRange = (_, __, most) => [0, most > 0 ? most * 1.08 : 1];

// Distances between ticks of whole numbers.
const WHOLE = [...Array(12).keys()].flatMap((n) => [1, 2, 5].map((step) => step * 10 ** n));

const timeAxis = () => axis(null, { size: 26, space: 76, values: clock });

const levelAxis = ({ label, format }) =>
  axis(format, {
    label,
    labelSize: 18,
    size: 26,
    labelFont: '11px system-ui, sans-serif',
    incrs: WHOLE,
  });

// Ticks are round: 20/s, not 20.0/s.
const heightAxis = (format, whole) =>
  axis((n) => format(n).replace(/\.0+(?=\D|$)/, ''), { size: 62, ...(whole && { incrs: WHOLE }) });

function options({ series, format, across, stepped, whole }, width, span, pointed) {
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
    scales: {
      x: { time: !across, range: across ? levelRange : span },
      y: { range: heightRange },
    },
    axes: [across ? levelAxis(across) : timeAxis(), heightAxis(format, whole)],
    series: [{}, ...series.map((s) => line(s, stepped))],
    hooks: { setCursor: [(u) => pointed(u.cursor.idx)] },
  };
}

// ---- A plot -------------------------------------------------------------------------------------

// `what` has title; unit, which is shown beside it; series: [{ label, colour, dash, points }]; format, which
// makes text of a value; empty, the text that is shown while there is no value; optionally across:
// { label, format } if the horizontal axis is not time, stepped: a value holds until the next one, and whole:
// ticks are whole numbers. update() takes arrays, the first of them for the horizontal axis, and the first and
// the last second of an axis of time: what is not known of it stays empty.
export function plot(what) {
  const { title, unit, series, format, across, empty } = what;
  const legend = series.map(legendItem);
  const under = el('li.soft'),
    nothing = el('p.empty', empty),
    frame = el('div.frame', nothing);
  const node = el(
    'figure.plot',
    el('figcaption', title, ' ', el('span.soft', unit)),
    frame,
    el(
      'ul.legend',
      legend.map((l) => l.node),
      under,
    ),
  );
  let chart = null,
    data = [[], ...series.map(() => [])],
    span = [0, 1];

  const where = (at) => (across ? `at ${across.label} ${across.format(at)}` : clockText(at));

  // Shows the values under the pointer; without one, the newest.
  function showValues(index) {
    const pointed = index !== null && index !== undefined;
    legend.forEach((l, i) =>
      setText(l.value, format((pointed ? data[i + 1][index] : newest(data[i + 1])) ?? null)),
    );
    setText(under, pointed ? where(data[0][index]) : '');
  }

  function draw() {
    chart?.destroy();
    chart = null;
    if (!frame.clientWidth) return;
    chart = new uPlot(options(what, frame.clientWidth, () => span, showValues), data, frame);
    chart.root.setAttribute('aria-hidden', 'true'); // the legend has the values
  }

  const watcher = new ResizeObserver(() => {
    if (!chart) draw();
    else if (chart.width !== frame.clientWidth)
      chart.setSize({ width: frame.clientWidth, height: HEIGHT });
  });
  watcher.observe(frame);
  document.addEventListener('theme', draw);

  return {
    node,
    update(next, seconds = span) {
      data = next;
      span = seconds;
      chart?.setData(next);
      setShown(nothing, !next.slice(1).some((values) => newest(values) !== undefined));
      if (chart?.cursor.idx === null || chart?.cursor.idx === undefined) showValues(null);
    },
    end() {
      watcher.disconnect();
      document.removeEventListener('theme', draw);
      chart?.destroy();
    },
  };
}

const newest = (values) => values.findLast((value) => value !== null);

const clockText = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);

const clock = (_, ticks, __, ___, step) =>
  ticks.map((t) => clockText(t).slice(0, step < 60 ? 8 : 5));
