// Parts that several views use: a strip of figures, why jobs of a stage wait, outcomes of jobs, a status tag.
import { stageAct } from './actions.js';
import { button, el, needs, setShown, setText } from './dom.js';
import { count, rate } from './format.js';
import { linkColumn } from './table.js';
import { deadPath, whyHeld } from './why.js';

// A row of figures; an entry is [name, text(), isBad()].
export function figures(entries) {
  const values = entries.map(() => el('dd'));
  return {
    node: el(
      'dl.strip',
      entries.map(([name], i) => el('div', el('dt', name), values[i])),
    ),
    update() {
      entries.forEach(([, text, isBad], i) => {
        setText(values[i], text());
        values[i].className = isBad?.() ? 'bad' : '';
      });
    },
  };
}

// Why jobs of a stage wait, in a sentence, with the button, link or command that changes it.
export function whyCell(get) {
  const text = el('span'),
    act = needs('admin', button('', () => stageAct(get().name, node.action.act), 'small'));
  const leads = el('a'),
    command = el('code');
  const node = el('div.why', text, act, leads, command);
  return {
    node,
    set(stage) {
      const { held, sentence, action } = whyHeld(stage);
      node.action = action;
      node.classList.toggle('held', held && stage.waiting + stage.delayed > 0);
      setText(text, sentence);
      setShown(act, Boolean(action?.act));
      setText(act, action?.act ? action.text : '');
      setShown(leads, Boolean(action?.href));
      if (action?.href) leads.href = action.href;
      setText(leads, action?.href ? action.text : '');
      setText(command, action?.command ?? '');
      setShown(command, Boolean(action?.command));
    },
  };
}

// The status of a job or the state of a channel.
export function tag() {
  const node = el('span.tag');
  return {
    node,
    set(word) {
      node.className = `tag ${word}`;
      setText(node, word);
    },
  };
}

export const tagColumn = (head, word) => ({
  head,
  make() {
    const made = tag();
    return { node: made.node, set: (row) => made.set(word(row)) };
  },
});

// Columns for the outcomes of a stage's jobs, and for why its jobs wait.
export const outcomeColumns = () => [
  { head: 'Done/s', number: true, text: (s) => rate(s['out-per-s']) },
  {
    head: 'Failed',
    number: true,
    title: 'Failed attempts so far',
    text: (s) => count(s.failed),
  },
  linkColumn(
    'Dead',
    (s) => count(s.dead),
    (s) => deadPath(s.name),
    { number: true },
  ),
  { head: 'Why jobs wait', wide: true, make: whyCell },
];
