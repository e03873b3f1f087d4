// The frame around every view: navigation, the state of the connection, a banner for faults of the server,
// the colour theme.
import { button, el, needs, setShown, setText } from './dom.js';
import { noticesNode } from './dialog.js';
import { bytes, count, duration, moment } from './format.js';
import { store } from './store.js';
import { token } from './api.js';

const PLACES = [
  ['#/', 'Overview'],
  ['#/dead', 'Dead letters'],
  ['#/workers', 'Workers'],
  ['#/flows', 'Flows'],
  ['#/epics', 'Epics'],
  ['#/schedules', 'Schedules'],
  ['#/push', 'Push'],
];

// ---- Light and dark ----------------------------------------------------------------------------

const THEMES = ['system', 'light', 'dark'];
const THEME_NAME = 'millrace-theme';

function setTheme(theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event('theme'));
}

function themeButton() {
  let theme = localStorage.getItem(THEME_NAME) ?? 'system';
  const node = button(
    '',
    () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      localStorage.setItem(THEME_NAME, theme);
      show();
    },
    'quiet.small',
  );
  function show() {
    setTheme(theme);
    node.textContent = { system: 'Theme: auto', light: 'Theme: light', dark: 'Theme: dark' }[theme];
    node.setAttribute('aria-label', `Colours: ${theme}`);
    node.title = 'Colours: as set in the system, light, or dark';
  }
  show();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  return node;
}

// ---- Faults ------------------------------------------------------------------------------------

function lostText() {
  const why = store.refused
    ? `The server refuses to send its state: ${store.refused}`
    : 'The server cannot be reached';
  const since = store.at ? ` The page shows the state of ${moment(Date.now() - store.at)}.` : '';
  return `${why}; the page reconnects by itself.${since}`;
}

// Faults of the server as [kind, text], the most severe first.
export function faults({ health, why, info }) {
  const found = [];
  if (health === 'loading')
    found.push(['warn', 'The server is reading its store; stages are shown when it has finished.']);
  if (health === 'stopped')
    found.push([
      'bad',
      `The log has stopped (${info.log_stopped || why}): no job is accepted or started. Correct the fault, ` +
        'run millrace store check, then restart the server; everything that was answered before is kept.',
    ]);
  if (health === 'full')
    found.push([
      'bad',
      'The disk is full: pushes are refused. To free space, let workers finish jobs, drop jobs, or enlarge the ' +
        'disk; the server then continues by itself.',
    ]);
  if (health === 'waiting')
    found.push([
      'bad',
      `The store does not answer (${info.outage || why}): commands wait for it, and continue by themselves.`,
    ]);
  const { used_memory: used, maxmemory: most } = info;
  if (most && used >= most)
    found.push([
      'bad',
      `Memory is full (${bytes(used)} of ${bytes(most)}): pushes are refused. Let workers finish jobs, ` +
        'drop jobs, or raise max-bytes.',
    ]);
  else if (most && used >= 0.9 * most)
    found.push(['warn', `Memory is nearly full: ${bytes(used)} of ${bytes(most)}.`]);
  return found;
}

function makeBanner(reconnect) {
  const node = el('div.banner', { role: 'alert' });
  let shown = '';
  const again = button('Try now', reconnect, 'small');
  return {
    node,
    update() {
      const found = store.connection === 'locked' ? [] : faults(store);
      if (store.connection === 'lost') found.unshift(['bad', lostText()]);
      const text = JSON.stringify(found);
      if (text === shown) return;
      shown = text;
      node.replaceChildren(
        ...found.map(([kind, sentence], i) =>
          el(`p.${kind}`, el('span', sentence), i === 0 && store.connection === 'lost' && again),
        ),
      );
    },
  };
}

// ---- The frame ---------------------------------------------------------------------------------

const STATES = {
  connecting: 'Connecting',
  live: 'Live',
  lost: 'Not connected',
  locked: 'Token needed',
};

function makeState(forget) {
  const text = el('span');
  const leave = button('Forget token', forget, 'quiet.small');
  const node = el('div.state', el('span.dot', { 'aria-hidden': 'true' }), text, leave);
  return {
    node,
    update() {
      node.className = `state ${store.connection}`;
      setText(text, STATES[store.connection]);
      setShown(leave, token.get() !== '' && store.connection !== 'locked');
    },
  };
}

function makeNavigation() {
  const dead = el('span.count');
  const links = PLACES.map(([href, text]) => {
    const [word, ...more] = text.split(' '); // a narrow screen shows only the first word
    const node = el(
      'a',
      { href },
      word,
      el('span.roomy', ...more.map((m) => ` ${m}`)),
      href === '#/dead' && dead,
    );
    return href === '#/push' ? needs('push', node) : node;
  });
  return {
    node: el(
      'nav',
      { 'aria-label': 'Views' },
      el(
        'ul',
        links.map((a) => el('li', a)),
      ),
    ),
    update() {
      const sum = store.stages.reduce((n, s) => n + s.dead, 0);
      setText(dead, sum ? count(sum) : '');
    },
    mark(path) {
      for (const a of links) {
        const own = a.getAttribute('href').slice(1);
        const here =
          own === '/' ? path === '/' || path.startsWith('/stage/') : path.startsWith(own);
        if (here) {
          a.setAttribute('aria-current', 'page');
          a.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // on a narrow screen the links scroll
        } else a.removeAttribute('aria-current');
      }
    },
  };
}

function makeFooter() {
  const node = el('footer');
  return {
    node,
    update() {
      const { millrace_version: version, store: where, uptime_in_seconds: up } = store.info;
      setText(
        node,
        version
          ? [`Millrace ${version}`, where, `up ${duration(Math.max(up, 1) * 1000)}`]
              .filter(Boolean)
              .join(' · ')
          : '',
      );
    },
  };
}

// `on` has reconnect() and forget(). Returns `main`, which the view fills, mark(path) and update().
export function makeShell(on) {
  const navigation = makeNavigation(),
    state = makeState(on.forget);
  const banner = makeBanner(on.reconnect),
    footer = makeFooter();
  const main = el('main', { id: 'main', tabindex: -1 });
  const skip = el('a.skip', { href: '#main' }, 'Skip to the content');
  skip.addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
  const brand = el(
    'a.brand',
    { href: '#/' },
    el('img', { src: 'icon.svg', alt: '', width: 22, height: 22 }),
    'Millrace',
  );
  document.body.replaceChildren(
    skip,
    el('header.bar', brand, navigation.node, state.node, themeButton()),
    banner.node,
    main,
    footer.node,
    noticesNode(),
  );
  return {
    main,
    mark: navigation.mark,
    update() {
      for (const part of [navigation, state, banner, footer]) part.update();
      main.classList.toggle('stale', store.connection === 'lost');
    },
  };
}
