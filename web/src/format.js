// Numbers, durations and sizes as readable text, of about the same width while they change.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const NONE = '–';

export const count = (n) => (n === null || n === undefined ? NONE : whole.format(n));

// A shorter form of large numbers, for narrow places.
export const compact = (n) => (n >= 1e7 ? `${(n / 1e6).toFixed(1)} M` : count(n));

// "1 job", "2,000 jobs"
export const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;

function digits(value) {
  if (value >= 100 || value === 0) return whole.format(value);
  return value.toFixed(value >= 10 ? 1 : 2);
}

export const rate = (perSecond) =>
  perSecond === null || perSecond === undefined
    ? NONE
    : perSecond === 0
      ? '0'
      : perSecond < 0.01
        ? '<0.01'
        : digits(perSecond);

const SECOND = 1000,
  MINUTE = 60 * SECOND,
  HOUR = 60 * MINUTE,
  DAY = 24 * HOUR;

function two(ms, large, largeUnit, small, smallUnit) {
  const high = Math.floor(ms / large),
    low = Math.floor((ms % large) / small);
  return low ? `${high} ${largeUnit} ${low} ${smallUnit}` : `${high} ${largeUnit}`;
}

// A duration in milliseconds; negative: none.
export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return NONE;
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < HOUR) return two(ms, MINUTE, 'min', SECOND, 's');
  if (ms < DAY) return two(ms, HOUR, 'h', MINUTE, 'min');
  return two(ms, DAY, 'd', HOUR, 'h');
}

const SIZES = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(n) {
  if (n === null || n === undefined) return NONE;
  let unit = 0;
  for (; n >= 1024 && unit < SIZES.length - 1; unit++) n /= 1024;
  return unit ? `${digits(n)} ${SIZES[unit]}` : n === 1 ? '1 byte' : `${n} bytes`;
}

// The time of day `agoMs` milliseconds ago, by this machine's clock.
export function moment(agoMs) {
  const at = new Date(Date.now() - agoMs);
  const time = at.toTimeString().slice(0, 8);
  return agoMs < 12 * HOUR ? time : `${at.toLocaleDateString('sv')} ${time}`; // 2026-01-31
}

// An instant, in Unix time, by the clock of a time zone: "Thu 2026-11-19 03:30"; with seconds if it has any.
// Names that this browser does not know count as UTC, and are marked so.
export function timeIn(ms, zone) {
  const at = new Date(ms);
  const form = {
    weekday: 'short',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    second: ms % MINUTE ? '2-digit' : undefined,
    hourCycle: 'h23',
  };
  let known = true,
    format;
  try {
    format = new Intl.DateTimeFormat('en-CA', { ...form, timeZone: zone });
  } catch {
    known = false;
    format = new Intl.DateTimeFormat('en-CA', { ...form, timeZone: 'UTC' });
  }
  const part = Object.fromEntries(format.formatToParts(at).map((p) => [p.type, p.value]));
  const time = [part.hour, part.minute, part.second].filter(Boolean).join(':');
  return `${part.weekday.slice(0, 3)} ${part.year}-${part.month}-${part.day} ${time}${known ? '' : ' UTC'}`;
}

// A key that may be empty or long.
export const keyText = (key) => (key === '' || key === null || key === undefined ? NONE : key);

export const short = (text, most = 120) => (text.length > most ? `${text.slice(0, most)}…` : text);
