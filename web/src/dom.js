// Makes elements without strings of HTML: data from the server is only inserted as text.

// Shows invisible characters that change the direction of the text around them as escapes, so that the text on
// the screen is in the order of the data.
export const plain = (text) =>
  text.replace(
    /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

// el('button.quiet', { type: 'button', onclick: act }, 'Retry', other): a name with classes, then
// attributes and children in any order. A child that is null or false is left out; an attribute
// that is true stands without a value.
export function el(name, ...parts) {
  const [tag, ...classes] = name.split('.');
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(' ');
  for (const part of parts.flat(Infinity)) {
    if (part?.constructor === Object) setAttributes(node, part);
    else if (typeof part === 'string') node.append(plain(part));
    else if (part !== null && part !== undefined && part !== false) node.append(part);
  }
  return node;
}

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? '' : value);
  }
}

const SVG = 'http://www.w3.org/2000/svg';

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Changes text only where it differs, so that a selection of the user stays.
export function setText(node, text) {
  const wanted = plain(String(text));
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setShown(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

let fields = 0;

// An input with its label and, below it, a hint.
export function field(label, input, hint) {
  input.id ||= `field-${++fields}`;
  const parts = [el('label', { for: input.id }, label), input];
  if (hint) {
    parts.push(el('small', { id: `${input.id}-hint` }, hint));
    input.setAttribute('aria-describedby', `${input.id}-hint`);
  }
  return el('div.field', parts);
}

export function select(options, chosen, attributes = {}) {
  const node = el(
    'select',
    attributes,
    options.map(([value, text]) => el('option', { value }, text)),
  );
  node.value = chosen;
  return node;
}

export const button = (text, act, kind = '') =>
  el(kind ? `button.${kind}` : 'button', { type: 'button', onclick: act }, text);

// Marks an element that only a token with this role may use: the stylesheet hides it from tokens without the
// role (see setRoles).
export function needs(role, node) {
  node.dataset.needs = role;
  return node;
}

export const setRoles = (roles) => (document.documentElement.dataset.may = roles.join(' '));

export const link = (text, href, attributes = {}) => el('a', { href, ...attributes }, text);

// A part of a view, with a heading: its text, or an array of the text and what stands beside it.
export function panel(title, ...children) {
  const [text, ...beside] = [title].flat();
  const heading = el('h2', { id: `heading-${++fields}` }, text);
  return el(
    'section.panel',
    { 'aria-labelledby': heading.id },
    beside.length ? el('div.head', heading, beside) : heading,
    children,
  );
}

// Buttons of which one is pressed. `choices` are [value, text]; `choose(value)` is called for a press.
export function tabs(label, choices, chosen, choose) {
  const show = (value) =>
    buttons.forEach((node, i) => node.setAttribute('aria-pressed', choices[i][0] === value));
  const buttons = choices.map(([value, text]) =>
    button(
      text,
      () => {
        show(value);
        choose(value);
      },
      'tab',
    ),
  );
  show(chosen);
  return el('div.tabs', { role: 'group', 'aria-label': label }, buttons);
}

export function fragment(...nodes) {
  const node = document.createDocumentFragment();
  node.append(...nodes);
  return node;
}
