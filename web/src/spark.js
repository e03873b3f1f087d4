// A sparkline: recent values of a number, as a line of the height of a word. A value holds until the next one;
// null is a gap.
import { el, svg } from './dom.js';

const WIDTH = 84,
  HEIGHT = 20,
  FEWEST = 30,
  MOST = 120; // samples

export function spark() {
  const path = svg('path', { fill: 'none', 'vector-effect': 'non-scaling-stroke' });
  const node = el(
    'span.spark',
    svg(
      'svg',
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        width: WIDTH,
        height: HEIGHT,
        'aria-hidden': 'true',
        focusable: 'false',
      },
      path,
    ),
  );
  let drawn = '';
  return {
    node,
    set(values) {
      const next = shape(values.slice(-MOST));
      if (next !== drawn) path.setAttribute('d', (drawn = next));
    },
  };
}

function shape(values) {
  const most = Math.max(1, ...values);
  const room = Math.max(values.length, FEWEST);
  let drawing = false,
    d = '';
  values.forEach((value, i) => {
    if (value === null) {
      drawing = false;
      return;
    }
    const x = ((room - values.length + i) / (room - 1)) * WIDTH;
    const y = HEIGHT - 1 - (value / most) * (HEIGHT - 2);
    d += drawing ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `M${x.toFixed(1)} ${y.toFixed(1)}h0.1`;
    drawing = true;
  });
  return d;
}
