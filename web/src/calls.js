// All requests of the page; docs/http.md describes the responses.
import { fromBase64, get, post } from './api.js';

const stageAt = (name) => `api/stages/${encodeURIComponent(name)}`;
const utf8 = new TextEncoder();

// The bytes of a body or result, sent as text or as base64; null: they are not kept.
function bytesOf(job, name) {
  if (typeof job[name] === 'string') return utf8.encode(job[name]);
  return `${name}-base64` in job ? fromBase64(job[`${name}-base64`]) : null;
}

// The body or the result, and the metadata if there is any; null: none of it is kept.
function contents(job) {
  const bytes = bytesOf(job, 'body') ?? bytesOf(job, 'result');
  return bytes && { bytes, meta: bytesOf(job, 'meta') };
}

let policyRows = null; // they do not change while a server runs

export const look = {
  policies: async (signal) =>
    (policyRows ??= (await get('api/policies', {}, signal)).policies),
  stage: (stage, signal) => get('api/stage', { stage }, signal),
  history: (stage, span, signal) =>
    get(stage ? `${stageAt(stage)}/history/${span}` : `api/history/${span}`, {}, signal),
  channels: async (stage, top, signal) =>
    (await get('api/channels', { stage, top }, signal)).channels,
  groups: async (stage, top, signal) =>
    (await get('api/groups', { stage, top }, signal)).groups,
  jobs: async (query, signal) => (await get('api/jobs', query, signal)).jobs,
  job: async (id, signal) => (await get(`api/jobs/${id}`, {}, signal)).job,
  contents: async (id, signal) => contents((await get(`api/jobs/${id}`, { body: 1 }, signal)).job),
  dead: async (query, signal) => (await get('api/dead', query, signal)).dead,
  workers: async (signal) => (await get('api/workers', {}, signal)).workers,
  quotas: async (signal) => (await get('api/quotas', {}, signal)).quotas,
  epics: async (signal) => (await get('api/epics', {}, signal)).epics,
  schedules: async (count, signal) =>
    (await get('api/schedules', { count }, signal)).schedules,
  roles: async (signal) => (await get('api/info', {}, signal)).who.roles,
  why: async (of, signal) => (await get('api/why', { of }, signal)).why,
};

export const act = {
  push: (job) => post('api/jobs', job),
  job: (id, verb) => post(`api/jobs/${id}/${verb}`),
  jobs: (ids, verb) => post(`api/jobs/${verb}`, { ids }),
  stage: (name, verb) => post(`${stageAt(name)}/${verb}`),
  key: (name, key, verb) => post(`${stageAt(name)}/${verb}`, { key }),
  cancelMany: async (name, filter) => (await post(`${stageAt(name)}/cancel`, filter)).count,
  schedule: (stage, name, verb) => post(`api/schedules/${verb}`, { stage, name }),
  policy: (name, values) => post(`${stageAt(name)}/policy`, values),
  epic: ({ stage, name }, verb, more) => post(`api/epics/${verb}`, { stage, name, ...more }),
  dead: async (verb, filter) => (await post(`api/dead/${verb}`, filter)).count,
};
