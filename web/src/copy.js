// Code that can be copied. A page without TLS may not use the clipboard, except on this machine: there the text is
// selected and copied by the older command.
import { complain, notice } from './dialog.js';
import { button, el, setText } from './dom.js';

function copySelected(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  return document.execCommand('copy');
}

async function copy(text, node) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copySelected(node)) throw new Error('the browser does not allow it');
    notice('Copied.');
  } catch {
    complain('The browser does not allow to copy: select the text and copy it.');
  }
}

// `name` is what is copied, for screen readers. set(text) changes it.
export function codeBlock(name) {
  const pre = el('pre', { tabindex: 0, 'aria-label': name });
  let shown = '';
  return {
    node: el(
      'div.code',
      pre,
      el('button.small', { type: 'button', 'aria-label': `Copy ${name}`, onclick: () => copy(shown, pre) }, 'Copy'),
    ),
    set(text) {
      shown = text;
      setText(pre, text);
    },
  };
}
