// Draws stages and their emits as a graph: layers from the first stage to the last, edges as curves, in plain SVG.
//
//     ┌──────┐      ┌───────┐      ┌───────┐
//     │ read ├──┬──►│ parse ├─────►│ count │        an edge over several layers passes through a free
//     └──────┘  │   └───────┘  ┌──►└───────┘        place in each, so that it crosses no box
//               └──────────────┘
//
// Edges of a loop, which lead back, are dashed.
import { svg } from './dom.js';

const WIDTH = 172, // of a box
  HEIGHT = 46,
  PASSAGE = 14, // the room of an edge that passes a layer
  GAP = 18, // between boxes of a layer
  STEP = 60, // between two layers
  SWEEPS = 6;

// ---- Where things are -----------------------------------------------------------------------------

// { layers: [[node]], edges: [{ from, to, path: [node], back }] }: `stages` are { name, feeds } in the order in
// which jobs pass them. A node is { name } or, for an edge that passes, { edge }.
export function layersOf(stages) {
  const nodes = new Map(stages.map((s, i) => [s.name, { name: s.name, place: i, layer: 0 }]));
  const edges = stages.flatMap((s) =>
    (s.feeds ?? [])
      .filter((to) => nodes.has(to) && to !== s.name)
      .map((to) => ({ from: nodes.get(s.name), to: nodes.get(to) })),
  );
  for (const e of edges) e.back = e.from.place > e.to.place;
  for (const s of stages)
    for (const e of edges)
      if (e.from.name === s.name && !e.back) e.to.layer = Math.max(e.to.layer, e.from.layer + 1);
  const layers = [];
  for (const node of nodes.values()) (layers[node.layer] ??= []).push(node);
  for (const e of edges) {
    e.path = [e.from];
    for (let layer = e.from.layer + 1; !e.back && layer < e.to.layer; layer++) {
      const passage = { edge: e, layer };
      layers[layer].push(passage);
      e.path.push(passage);
    }
    e.path.push(e.to);
  }
  order(layers, edges);
  return { layers, edges };
}

// Sorts each layer by the mean place of its neighbours, forwards and backwards, so that few edges cross.
function order(layers, edges) {
  const before = new Map(),
    after = new Map();
  const add = (map, a, b) => map.set(a, [...(map.get(a) ?? []), b]);
  for (const { path, back } of edges)
    for (let i = 1; !back && i < path.length; i++) {
      add(before, path[i], path[i - 1]);
      add(after, path[i - 1], path[i]);
    }
  const settle = (layer) => layer.forEach((node, i) => (node.at = i - (layer.length - 1) / 2));
  const mean = (node, map) => {
    const near = map.get(node);
    return near ? near.reduce((sum, n) => sum + n.at, 0) / near.length : node.at;
  };
  layers.forEach(settle);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const forwards = sweep % 2 === 0;
    for (const layer of forwards ? layers : [...layers].reverse()) {
      const wanted = new Map(layer.map((n) => [n, mean(n, forwards ? before : after)]));
      layer.sort((a, b) => wanted.get(a) - wanted.get(b));
      settle(layer);
    }
  }
}

// Layers go to the right if they fit into `room`, else down if that is narrower. Sets x, y of each node: the
// middle of its box. Returns { width, height, down }.
export function place({ layers }, room) {
  const box = (node, down) => (node.edge ? PASSAGE : down ? WIDTH : HEIGHT);
  const across = (layer, down) => layer.reduce((sum, n) => sum + box(n, down) + GAP, -GAP);
  const most = (down) => Math.max(...layers.map((layer) => across(layer, down)));
  const long = (down) => layers.length * ((down ? HEIGHT : WIDTH) + STEP) - STEP;
  const down = long(false) > room && most(true) < long(false);
  layers.forEach((layer, i) => {
    let at = (most(down) - across(layer, down)) / 2;
    const along = i * ((down ? HEIGHT : WIDTH) + STEP) + (down ? HEIGHT : WIDTH) / 2;
    for (const node of layer) {
      const middle = at + box(node, down) / 2;
      [node.x, node.y] = down ? [middle, along] : [along, middle];
      at += box(node, down) + GAP;
    }
  });
  return down
    ? { width: most(true), height: long(true), down }
    : { width: long(false), height: most(false), down };
}

// ---- Drawing --------------------------------------------------------------------------------------

const round = (n) => Math.round(n * 10) / 10;

// A curve from box to box through the passages, or back beside all boxes, as the path of an SVG.
function curve({ path, back }, side, down) {
  const half = (down ? HEIGHT : WIDTH) / 2;
  const point = (along, across) => (down ? [across, along] : [along, across]).map(round).join(' ');
  const [first, last] = [path[0], path.at(-1)];
  const of = (node) => (down ? [node.y, node.x] : [node.x, node.y]);
  const [a0, c0] = of(first),
    [a1, c1] = of(last);
  if (back) {
    // Beside all boxes: out, around, along, and in again.
    const out = STEP / 2;
    return [
      `M${point(a0 + half, c0)}C${point(a0 + half + out, c0)} ${point(a0 + half + out, side)} ${point(a0 + half - out, side)}`,
      `L${point(a1 - half + out, side)}C${point(a1 - half - out, side)} ${point(a1 - half - out, c1)} ${point(a1 - half - 7, c1)}`,
    ].join('');
  }
  let d = `M${point(a0 + half, c0)}`,
    [a, c] = [a0 + half, c0];
  for (const node of path.slice(1)) {
    const [along, across] = of(node);
    const enter = along - half - (node === last ? 7 : 0),
      middle = (a + enter) / 2;
    d += `C${point(middle, c)} ${point(middle, across)} ${point(enter, across)}`;
    if (node !== last) d += `L${point(along + half, across)}`;
    [a, c] = [along + half, across];
  }
  return d;
}

function arrow({ to }, down) {
  const half = (down ? HEIGHT : WIDTH) / 2;
  const tip = down ? [to.x, to.y - half] : [to.x - half, to.y];
  const at = (along, across) => (down ? `${across} ${along}` : `${along} ${across}`);
  return svg('path', {
    class: 'tip',
    d: `M0 0L${at(-8, -4)}L${at(-8, 4)}Z`,
    transform: `translate(${tip.map(round).join(' ')})`,
  });
}

const LETTERS = 21; // of a name that fit into a box; what is wider is clipped
const cut = (text) => (text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text);

// `stageBox(name)` gives { text, more, kind, href, title } of a stage. Returns { node, update(stages, room) }; only
// the texts change while the stages and their emits stay the same.
export function graph(label, stageBox) {
  const node = svg('svg', { role: 'group', 'aria-label': label, class: 'graph' });
  let drawn = '',
    boxes = [];

  function makeBox({ name, x, y }) {
    const title = svg('title'),
      first = svg('text', { x: 10, y: 19, class: 'name' }),
      second = svg('text', { x: 10, y: 36 });
    const rect = svg('rect', { width: WIDTH, height: HEIGHT, rx: 6 });
    const link = svg(
      'a',
      { transform: `translate(${round(x - WIDTH / 2)} ${round(y - HEIGHT / 2)})` },
      title,
      rect,
      svg('svg', { width: WIDTH - 8, height: HEIGHT }, first, second),
    );
    return {
      link,
      update() {
        const { text, more, kind, href, title: whole } = stageBox(name);
        link.setAttribute('href', href);
        link.setAttribute('class', kind);
        link.setAttribute('aria-label', whole);
        title.textContent = whole;
        first.textContent = cut(text);
        second.textContent = more;
      },
    };
  }

  function draw(stages, room) {
    const shape = layersOf(stages),
      { width, height, down } = place(shape, room);
    const side = (down ? width : height) + GAP;
    const loops = shape.edges.some((e) => e.back) ? 2 * GAP : 0; // they lead around the boxes
    const size = [round(width + 24 + (down ? loops : 0)), round(height + 24 + (down ? 0 : loops))];
    node.setAttribute('viewBox', `-12 -12 ${size.join(' ')}`);
    node.setAttribute('width', size[0]);
    node.setAttribute('height', size[1]);
    boxes = shape.layers.flat().filter((n) => n.name).map(makeBox);
    node.replaceChildren(
      ...shape.edges.map((e) => svg('path', { class: e.back ? 'edge back' : 'edge', d: curve(e, side, down) })),
      ...shape.edges.map((e) => arrow(e, down)),
      ...boxes.map((b) => b.link),
    );
  }

  return {
    node,
    update(stages, room) {
      const next = JSON.stringify([stages.map((s) => [s.name, s.feeds]), room]);
      if (next !== drawn) draw(stages, room);
      drawn = next;
      for (const box of boxes) box.update();
    },
  };
}
