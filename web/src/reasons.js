// Reasons of dead letters, folded: numbers, ids and hexadecimal digits differ from job to job, and say nothing
// about what went wrong. Codes of an exit, a signal or a status do, and stay.

const CODE = String.raw`\b(?:exit(?:ed)?|status|code|signal|errno|http(?:/\d\.\d)?)[ :=(]+\d{1,5}\b`;
const UUID = String.raw`\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`;
const HEX = String.raw`\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b`;
const NAME = String.raw`\b(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{16,}\b`;
const NUMBER = String.raw`\d+(?:[.,:]\d+)*`;
const FOLDED = new RegExp([CODE, UUID, HEX, NAME, NUMBER].map((x) => `(${x})`).join('|'), 'gi');
const LONGEST = 200; // of a folded reason, and the part of a reason that is read is ten times that

export function fold(reason) {
  return reason
    .slice(0, 10 * LONGEST)
    .replace(FOLDED, (all, code, uuid, hex, name) =>
      code ? all : uuid || name ? '‹id›' : hex ? '‹hex›' : '#',
    )
    .replace(/\s+/g, ' ')
    .trim()
    .slice(0, LONGEST);
}

export const lastReason = (job) => job.reasons?.at(-1)?.text ?? '';

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
