// Dead letters: jobs that have used up their attempts. They are filtered by stage, key and reason, grouped by
// reason, and retried or dropped: one, a selection, a group, or all that match, after counting them.
import { groupAct, selectedAct, jobAct, matchingAct } from '../actions.js';
import { sentence } from '../api.js';
import { look } from '../calls.js';
import { button, el, field, fragment, needs, panel, select, setShown, setText } from '../dom.js';
import { count, counted, duration, short } from '../format.js';
import { poller } from '../poll.js';
import { fold, groupByReason, groupText, lastReason } from '../reasons.js';
import { store } from '../store.js';
import { jobColumn, keyColumn, liveTable, stageColumn } from '../table.js';

const ROWS = 100; // shown
const PAGE = 1000,
  PAGES = 5; // examined at first, and added by each press of the button
const LOOK_MS = 4000; // between two examinations, for each page of them
const GROUPS = 20; // shown

function checkbox(chosen, changed) {
  return (get) => {
    const box = el('input', {
      type: 'checkbox',
      onchange() {
        chosen[box.checked ? 'add' : 'delete'](get().id);
        changed();
      },
    });
    return {
      node: needs('admin', box),
      set(job) {
        box.setAttribute('aria-label', `Select job ${job.id}`);
        box.checked = chosen.has(job.id);
      },
    };
  };
}

function rowButtons(refresh) {
  return (get) => {
    const act = (verb) => async () => (await jobAct(get().id, verb)) && refresh();
    return {
      node: needs(
        'admin',
        el(
          'div.row.tight',
          button('Retry', act('retry'), 'small'),
          button('Drop', act('drop'), 'small.danger'),
        ),
      ),
    };
  };
}

const NOTHING = 'No dead letters. A job is listed here when its last attempt has failed.',
  NO_MATCH = 'No dead letter matches.';

function deadTable(chosen, changed, refresh) {
  return liveTable({
    label: 'Dead letters',
    key: (j) => j.id,
    empty: NOTHING,
    columns: [
      { head: '', make: checkbox(chosen, changed) },
      jobColumn(),
      stageColumn(),
      keyColumn(),
      { head: 'Attempts', number: true, text: (j) => count(j.attempt) },
      { head: 'Dead for', number: true, text: (j) => duration(j['age-ms']) },
      { head: 'Last reason', wide: true, text: (j) => short(lastReason(j)) },
      { head: '', make: rowButtons(refresh) },
    ],
  });
}

// The server lists by stage only, so keys and reasons are filtered here. Returns the jobs that match, the number
// of jobs examined, and whether those were all.
async function find({ stage, key, reason }, pages, signal) {
  const fits = (j) => (!key || j.key === key) && (!reason || lastReason(j).includes(reason));
  const found = [];
  let looked = 0,
    from = '';
  while (looked < pages * PAGE) {
    const page = await look.dead({ stage, from, count: PAGE }, signal);
    looked += page.length;
    for (const job of page) if (fits(job)) found.push(job);
    if (page.length < PAGE) return { found, looked, all: true };
    from = page.at(-1).id;
  }
  return { found, looked, all: false };
}

// A sentence about which part of the list is shown; '': all of it.
function partShown({ found, looked, all }, { stage, key, reason }) {
  const most = deadOf(stage);
  const of = most > looked ? ` of ${count(most)}` : '';
  if (found.length > ROWS)
    return `The first ${count(ROWS)} are shown; “all that match” includes the others.`;
  if (all || !(key || reason)) return '';
  return (
    `${found.length === 0 ? 'None' : count(found.length)} of the first ${count(looked)}${of} dead letters ` +
    `${found.length === 1 ? 'matches' : 'match'}; “all that match” examines all of them.`
  );
}

// ---- Groups -------------------------------------------------------------------------------------

function groupButtons(shown, show, refresh) {
  return (get) => {
    const act = (verb) => async () => (await groupAct(verb, get())) && refresh();
    const only = button('Show', () => show(get().reason), 'small');
    return {
      node: el(
        'div.row.tight',
        only,
        needs(
          'admin',
          el(
            'div.row.tight',
            button('Retry…', act('retry'), 'small'),
            button('Drop…', act('drop'), 'small.danger'),
          ),
        ),
      ),
      set: (group) => only.setAttribute('aria-pressed', shown() === group.reason),
    };
  };
}

// The newest job of a group, with its reason as it is unless that is what stands for the group.
function example() {
  const to = el('a'),
    text = el('span');
  return {
    node: el('span', to, ' ', text),
    set(group) {
      const { newest } = group;
      const reason = lastReason(newest);
      setText(to, newest.id);
      to.setAttribute('href', `#/job/${newest.id}`);
      setText(text, group.ids.length === 1 || reason === group.reason ? '' : short(reason));
    },
  };
}

const stagesText = ({ stages }) =>
  stages.size > 3 ? counted(stages.size, 'stage') : [...stages].join(', ');

// `shown()` is the group whose jobs are listed, or null; show(reason) changes it.
function groupTable(shown, show, refresh) {
  return liveTable({
    label: 'Reasons',
    key: (g) => g.reason,
    empty: '', // the table of jobs says it
    columns: [
      { head: 'Reason', wide: true, text: (g) => groupText(g) || '(none)' },
      { head: 'Jobs', number: true, text: (g) => count(g.ids.length) },
      { head: 'Newest', number: true, title: 'Dead for', text: (g) => duration(g.newest['age-ms']) },
      { head: 'Stages', text: stagesText },
      { head: 'Example', make: example },
      { head: '', make: groupButtons(shown, show, refresh) },
    ],
  });
}

function groupsText(groups, { looked, all }, { stage }) {
  const dead = deadOf(stage);
  const more = groups.length > GROUPS ? ` The ${GROUPS} most frequent of ${count(groups.length)} reasons are shown.` : '';
  if (all) return more.trim();
  return `The first ${count(looked)} of ${count(Math.max(dead, looked))} dead letters were looked at.${more}`;
}

// Why no job is listed.
function nothingText({ all }, filter) {
  if (!all) return 'None of the jobs examined so far matches.';
  return Object.keys(filter).length ? NO_MATCH : NOTHING;
}

const deadOf = (stage) =>
  store.stages.reduce((n, s) => n + (!stage || s.name === stage ? s.dead : 0), 0);

// ---- The view -----------------------------------------------------------------------------------

// The form with the filter; calls `changed()` when the user changes it.
function filterForm(query, changed) {
  const stage = select([['', 'every stage']], '');
  const key = el('input', { type: 'search', value: query.get('key') ?? '', spellcheck: 'false' });
  const reason = el('input', {
    type: 'search',
    value: query.get('reason') ?? '',
    spellcheck: 'false',
  });
  let timer = 0;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(changed, 250);
  };
  for (const input of [key, reason]) input.addEventListener('input', soon);
  stage.addEventListener('change', changed);
  let wanted = query.get('stage') ?? '';

  // Lists the stages that have dead jobs, and the selected one.
  function stages() {
    const chosen = stage.value || wanted;
    wanted = '';
    const names = new Set(['', ...store.stages.filter((s) => s.dead).map((s) => s.name), chosen]);
    if ([...names].join(' ') === [...stage.options].map((o) => o.value).join(' ')) return;
    stage.replaceChildren(
      ...[...names].map((name) => el('option', { value: name }, name || 'every stage')),
    );
    stage.value = chosen;
  }

  stages();
  return {
    node: el(
      'div.fields',
      field('Stage', stage),
      field('Key', key, 'exactly this one'),
      field('Reason', reason, 'part of the last reason'),
    ),
    stages,
    value: () =>
      Object.fromEntries(
        [
          ['stage', stage.value],
          ['key', key.value],
          ['reason', reason.value],
        ].filter(([, text]) => text !== ''),
      ),
  };
}

export function deadView(_, query) {
  const chosen = new Set();
  const form = filterForm(query, () => {
    pages = PAGES;
    only = null;
    loading.now();
  });
  const said = el('p.error', { role: 'alert' }),
    left = el('p.soft');
  const refresh = () => loading.now();
  const table = deadTable(chosen, changed, refresh);
  const reasons = groupTable(() => only, (reason) => choose(only === reason ? null : reason), refresh),
    examined = el('p.soft');
  const every = button('Show jobs of every reason', () => choose(null), 'small');
  const some = (verb, kind) =>
    button(
      '',
      async () => {
        if (!(await selectedAct([...chosen], verb))) return;
        chosen.clear();
        refresh();
      },
      kind,
    );
  const all = (verb, text, kind) =>
    button(text, async () => (await matchingAct(verb, form.value())) && refresh(), kind);
  const retrySome = some('retry', 'primary'),
    dropSome = some('drop', 'danger');
  const retryAll = all('retry', 'Retry all that match…'),
    dropAll = all('drop', 'Drop all that match…', 'danger');
  const chooseAll = button(
    'Select all shown',
    () => {
      for (const job of listed) chosen.add(job.id);
      table.update(listed);
      changed();
    },
    'quiet',
  );
  const further = button(
    'Search further',
    () => {
      pages += PAGES;
      loading.now();
    },
    'small',
  );
  let listed = [],
    only = null, // the reason whose jobs are listed; null: all
    seen = { found: [], looked: 0, all: true },
    pages = PAGES;

  function choose(reason) {
    only = reason;
    show();
  }

  function show() {
    const groups = groupByReason(seen.found);
    if (only !== null && !groups.some((g) => g.reason === only)) only = null;
    const found = only === null ? seen.found : seen.found.filter((j) => fold(lastReason(j)) === only);
    const filter = form.value();
    listed = found.slice(0, ROWS);
    for (const id of chosen) if (!listed.some((j) => j.id === id)) chosen.delete(id);
    reasons.update(groups.slice(0, GROUPS));
    setText(examined, groupsText(groups, seen, filter));
    table.update(listed);
    setText(
      left,
      only === null
        ? partShown(seen, filter)
        : found.length > ROWS
          ? `The first ${count(ROWS)} of ${count(found.length)} with this reason are shown.`
          : '',
    );
    setShown(every, only !== null);
    setShown(further, !seen.all);
    setShown(grouped, groups.length > 0 || !seen.all);
    setText(table.nothing, nothingText(seen, filter));
    changed();
  }

  function changed() {
    setText(retrySome, `Retry ${counted(chosen.size, 'selected job')}`);
    setText(dropSome, `Drop ${counted(chosen.size, 'selected job')}`);
    setShown(retrySome, chosen.size > 0);
    setShown(dropSome, chosen.size > 0);
    setShown(retryAll, chosen.size === 0 && only === null);
    setShown(dropAll, chosen.size === 0 && only === null);
    chooseAll.disabled = listed.length === 0;
    retryAll.disabled = dropAll.disabled = listed.length === 0 && further.hidden;
  }

  const loading = poller(
    async (signal) => {
      seen = await find(form.value(), pages, signal);
      show();
      setText(said, '');
    },
    (error) => {
      if (error.code !== 'GONE') setText(said, sentence(error)); // GONE: a job of the list was retried or dropped meanwhile
    },
    () => LOOK_MS * Math.max(1, seen.looked / PAGE),
  );

  const grouped = panel('Reasons', reasons.node, el('div.row', examined, further));
  setShown(grouped, false);
  setShown(further, false);
  setShown(every, false);
  changed();
  return {
    title: 'Dead letters',
    node: fragment(
      el('div.title', el('h1', 'Dead letters')),
      panel('Filter', form.node),
      grouped,
      panel(
        'Jobs',
        needs('admin', el('div.row', retrySome, dropSome, retryAll, dropAll, chooseAll)),
        said,
        table.node,
        el('div.row', left, every),
      ),
    ),
    update() {
      form.stages();
      loading.tick();
    },
    end: loading.end,
  };
}
