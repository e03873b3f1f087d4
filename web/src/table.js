// A table whose rows are updated in place: rows keep their elements, so that focus, selected text and checked
// boxes stay while numbers change. On a narrow screen each row becomes a card (style.css), for which every cell
// has the name of its column.
import { el, setShown, setText } from './dom.js';
import { keyText, short } from './format.js';
import { stagePath } from './why.js';

// A column has `head`, optionally `title` and `number`, and either text(row) or make(get, cell), which
// returns { node, set(row) }; get() returns the row of the last update.
export function liveTable({ label, columns, key, empty }) {
  const body = el('tbody');
  const heads = columns.map((c) =>
    el(c.number ? 'th.number' : 'th', { scope: 'col', title: c.title }, c.head),
  );
  const table = el('table', { 'aria-label': label }, el('thead', el('tr', heads)), body);
  const nothing = el('p.empty', empty);
  const known = new Map();

  function update(list) {
    const seen = new Set();
    let at = body.firstElementChild;
    for (const row of list) {
      const name = key(row);
      if (seen.has(name)) continue;
      seen.add(name);
      const line = known.get(name) ?? remember(name, row);
      line.update(row);
      if (line.node === at) at = at.nextElementSibling;
      else body.insertBefore(line.node, at);
    }
    for (const [name, line] of known) {
      if (seen.has(name)) continue;
      line.node.remove();
      known.delete(name);
    }
    setShown(table, list.length > 0);
    setShown(nothing, list.length === 0);
  }

  function remember(name, row) {
    const line = makeRow(columns, row);
    known.set(name, line);
    return line;
  }

  update([]);
  return { node: el('div.table', table, nothing), update, nothing };
}

function makeRow(columns, first) {
  let current = first;
  const node = el('tr');
  const setters = columns.map((column) => {
    const cell = el(column.number ? 'td.number' : 'td', { 'data-label': column.head });
    if (column.wide) cell.classList.add('wide');
    node.append(cell);
    if (!column.make) return (row) => setNumber(cell, cell, column.text(row));
    const made = column.make(() => current, cell);
    cell.append(made.node);
    return made.set ?? (() => {});
  });
  return {
    node,
    update(row) {
      current = row;
      for (const set of setters) set(row);
    },
  };
}

const MAY_BE_CUT = 30; // letters of a cell

// Zeros are drawn in a lighter colour; a text that may be cut off is repeated as a tooltip.
function setNumber(cell, node, text) {
  setText(node, text);
  if (text.length > MAY_BE_CUT) cell.title = text;
  cell.classList.toggle('zero', text === '0' || text === '–');
}

// A column whose cells are links.
export const linkColumn = (head, text, href, more = {}) => ({
  head,
  make(_, cell) {
    const node = el('a');
    return {
      node,
      set(row) {
        setNumber(cell, node, text(row));
        const to = href(row);
        if (node.getAttribute('href') !== to) node.setAttribute('href', to);
      },
    };
  },
  ...more,
});

// Columns of rows that are jobs.
export const jobColumn = (head = 'Job') =>
  linkColumn(
    head,
    (j) => j.id,
    (j) => `#/job/${j.id}`,
  );

export const stageColumn = () =>
  linkColumn(
    'Stage',
    (j) => j.stage,
    (j) => stagePath(j.stage),
  );

export const keyColumn = () => ({ head: 'Key', text: (row) => short(keyText(row.key), 60) });
