// Dialogs that ask for confirmation, and short notices about the outcome of an action.
import { button, el } from './dom.js';

// Resolves with true if the user confirms. `act` is the label of the button that confirms, `fields` are
// nodes to fill in before.
export function ask({ title, text, act, danger = true, fields = [] }) {
  return new Promise((resolve) => {
    const yes = button(act, () => dialog.close('yes'), danger ? 'danger' : 'primary');
    const no = button('Leave it', () => dialog.close('no'), 'quiet');
    const paragraphs = [text].flat().map((t) => el('p', t));
    const dialog = el(
      'dialog',
      { 'aria-label': title },
      el('h2', title),
      paragraphs,
      fields,
      el('div.row', danger ? [no, yes] : [yes, no]),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
    (fields.length ? fields[0].querySelector('input') : danger ? no : yes).focus();
  });
}

const SHOWN_MS = 6000;
const notices = el('div.notices', { role: 'status', 'aria-live': 'polite' });

export const noticesNode = () => notices;

export function notice(text, kind = 'good') {
  const close = el('button.close', { type: 'button', 'aria-label': 'Close this notice' }, '×');
  const node = el(`p.notice.${kind}`, el('span', text), close);
  close.addEventListener('click', () => node.remove());
  notices.append(node);
  while (notices.childElementCount > 4) notices.firstElementChild.remove();
  if (kind === 'good') setTimeout(() => node.remove(), SHOWN_MS);
}

export const complain = (text) => notice(text, 'bad');
