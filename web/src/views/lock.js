// Shown in place of a view: the form for a token, and the message for an unknown address.
import { el, field, link } from '../dom.js';
import { store } from '../store.js';

export function lockView(unlock) {
  const secret = el('input', {
    type: 'password',
    autocomplete: 'current-password',
    required: true,
    spellcheck: 'false',
  });
  const said = el(
    'p.error',
    { role: 'alert' },
    store.refused && `This token is not accepted: ${store.refused}`,
  );
  const form = el(
    'form',
    {
      onsubmit(event) {
        event.preventDefault();
        said.textContent = '';
        unlock(secret.value.trim());
      },
    },
    field('Token', secret, 'It is kept in this tab only, and removed when the tab is closed.'),
    said,
    el('div.row', el('button.primary', { type: 'submit' }, 'Continue')),
  );
  const node = el(
    'section.panel.lock',
    el('h1', 'This server requires a token'),
    el(
      'p',
      'The role read can see everything; push can also push and cancel jobs; admin can change everything. ',
      'The operator of the server makes a token with:',
    ),
    el('pre', 'millrace auth add NAME --role read,admin'),
    form,
  );
  queueMicrotask(() => secret.focus());
  return { title: 'Token', node, isLock: true };
}

export function noSuchView() {
  const node = el(
    'section.panel',
    el('h1', 'There is no such view'),
    el('p', 'The address may be mistyped. ', link('The overview', '#/'), ' shows every stage.'),
  );
  return { title: 'No such view', node };
}
