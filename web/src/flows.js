// Flows: stages joined by emits. The server lists in `feeds` the stages to which jobs of a stage have emitted.
// Flows of `millrace flow` are recognised before the first emit by their names: stages FLOW/STEP, and a stage
// FLOW that keeps the plan until the flow has finished.

const PREFIX = /^(.+)\//;
const prefixOf = (name) => PREFIX.exec(name)?.[1] ?? '';

// Disjoint sets of names (union-find): find() gives the name that represents a set.
function joiner(names) {
  const parents = new Map(names.map((name) => [name, name]));
  function find(name) {
    while (parents.get(name) !== name) name = parents.get(name);
    return name;
  }
  return {
    find,
    join(a, b) {
      if (parents.has(a) && parents.has(b)) parents.set(find(b), find(a));
    },
  };
}

// The prefixes of flows: those where one stage feeds another of the same prefix, or where a plan is kept.
function flowPrefixes(stages) {
  const found = new Set(stages.filter((s) => s.states > 0).map((s) => s.name));
  for (const { name, feeds = [] } of stages)
    if (feeds.some((next) => prefixOf(next) === prefixOf(name))) found.add(prefixOf(name));
  found.delete('');
  return found;
}

function joinStages(stages) {
  const sets = joiner(stages.map((s) => s.name)),
    prefixes = flowPrefixes(stages);
  const firsts = new Map(); // prefix → the first of its stages
  for (const { name, feeds = [] } of stages) {
    for (const next of feeds) sets.join(name, next);
    const prefix = prefixOf(name);
    if (!prefixes.has(prefix)) continue;
    if (firsts.has(prefix)) sets.join(firsts.get(prefix), name);
    else firsts.set(prefix, name);
  }
  return sets;
}

// Topological order: next is a stage that no remaining stage feeds. If all remaining stages are part of a loop,
// it is the first of the list.
function inOrder(members) {
  const left = new Map(members.map((s) => [s.name, s]));
  const ordered = [];
  while (left.size) {
    const fed = new Set();
    for (const s of left.values())
      for (const next of s.feeds ?? []) if (next !== s.name) fed.add(next);
    const free = [...left.values()].find((s) => !fed.has(s.name));
    const first = free ?? left.values().next().value;
    left.delete(first.name);
    ordered.push(first);
  }
  return ordered;
}

// The prefix that most of the stages have; if none has two, the name of the first stage.
function nameOf(members) {
  const counts = new Map();
  for (const { name } of members) {
    const prefix = prefixOf(name);
    if (prefix) counts.set(prefix, (counts.get(prefix) ?? 0) + 1);
  }
  const [best] = [...counts].sort((a, b) => b[1] - a[1]);
  return best?.[1] > 1 ? best[0] : members[0].name;
}

// [{ name, operators, plan }]: the stages of each flow, in the order in which pairs pass them, and the stage
// that keeps its plan, if there is one.
export function findFlows(stages) {
  const named = new Map(stages.map((s) => [s.name, s]));
  const sets = joinStages(stages);
  const groups = new Map();
  for (const stage of stages) {
    const set = sets.find(stage.name);
    if (!groups.has(set)) groups.set(set, []);
    groups.get(set).push(stage);
  }
  return [...groups.values()]
    .filter((members) => members.length > 1)
    .map((members) => {
      const operators = inOrder(members);
      const name = nameOf(operators);
      return { name, operators, plan: named.get(name) };
    });
}

// The name of an operator within its flow.
export const operatorName = (flow, stage) =>
  stage.name.startsWith(`${flow.name}/`) ? stage.name.slice(flow.name.length + 1) : stage.name;

// The epics that push into the flow.
export function sourcesOf(flow, epics) {
  const names = new Set(flow.operators.map((s) => s.name));
  return epics.filter((e) => names.has(e.stage) || names.has(e.name));
}

// The state of a flow, in one word for a tag.
export function flowState(flow, sources) {
  const sum = (name) => flow.operators.reduce((n, s) => n + s[name], 0);
  const unread = sources.some((e) => e.total < 0 || e.resume <= e.total);
  if (sum('running')) return 'running';
  if (sum('waiting') || sum('delayed')) return 'waiting';
  if (unread && flow.plan?.states) return 'started';
  return 'finished';
}
