// Reasons of dead letters, folded: numbers, ids and hexadecimal digits differ from job to job, and say nothing
// about what went wrong. Codes of an exit, a signal or a status do, and stay; so do short numbers of a name (UTF-8).

const CODE = String.raw`\b(?:exit(?:ed)?|status|code|signal|errno|http(?:/\d\.\d)?)[ :=(]+\d{1,5}\b`;
const UUID = String.raw`\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`;
const HEX = String.raw`\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b`;
const NAME = String.raw`\b(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{16,}\b`;
const NAMED = String.raw`\b[a-z]+-\d{1,3}\b(?![-.,:]\d)`;
const NUMBER = String.raw`\d+(?:[.,:]\d+)*`;
const FOLDED = new RegExp([CODE, UUID, HEX, NAME, NAMED, NUMBER].map((x) => `(${x})`).join('|'), 'gi');
const LONGEST = 200; // of a folded reason, and the part of a reason that is read is ten times that

// As one line, which ends behind a word and with “…” if it is cut.
function line(text) {
  const all = text.replace(/\s+/g, ' ').trim();
  if (all.length <= LONGEST) return all;
  const end = all.lastIndexOf(' ', LONGEST - 2);
  return end > LONGEST / 2 ? `${all.slice(0, end)} …` : `${all.slice(0, LONGEST - 1)}…`;
}

export function fold(reason) {
  return line(
    reason
      .slice(0, 10 * LONGEST)
      .replace(FOLDED, (all, code, uuid, hex, name, named) =>
        code || named ? all : uuid || name ? '‹id›' : hex ? '‹hex›' : '#',
      ),
  );
}

export const lastReason = (job) => job.reasons?.at(-1)?.text ?? '';

// What stands for the reason of a group: that of its job as it is, if it has only one.
export const groupText = ({ reason, ids, newest }) =>
  ids.length === 1 ? line(lastReason(newest).slice(0, 10 * LONGEST)) : reason;

// [{ reason, ids, newest, stages }]: jobs whose folded reasons are the same, the most frequent first; `newest` is
// the job that died last, `stages` a set of names.
export function groupByReason(jobs) {
  const groups = new Map();
  for (const job of jobs) {
    const reason = fold(lastReason(job));
    const group = groups.get(reason) ?? { reason, ids: [], newest: job, stages: new Set() };
    groups.set(reason, group);
    group.ids.push(job.id);
    group.stages.add(job.stage);
    if (job['age-ms'] < group.newest['age-ms']) group.newest = job;
  }
  return [...groups.values()].sort((a, b) => b.ids.length - a.ids.length);
}
