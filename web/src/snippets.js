// A push as it is written in a shell, with curl, redis-cli, Python and Node. Any text of a user is quoted by the
// rules of the language, so that what is shown makes exactly the job that the page would push. In place of a token
// stands TOKEN.

const HIDDEN = '[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f]|\\p{Cf}|\\p{Zl}|\\p{Zp}';
const hidden = new RegExp(HIDDEN, 'u'),
  hiddenOrQuote = new RegExp(`[\\\\']|${HIDDEN}`, 'gu'),
  hiddenAll = new RegExp(HIDDEN, 'gu');

// Each byte has exactly three octal digits, so that a digit that follows is not part of it.
const octal = (c) =>
  Array.from(new TextEncoder().encode(c), (b) => `\\${b.toString(8).padStart(3, '0')}`).join('');

// A word of a shell. Characters that cannot be seen, or that a terminal would act on, are escaped: only $'…' can.
export function shellWord(text) {
  if (/^[\w%+,./:@-]+$/.test(text)) return text;
  if (!hidden.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  return `$'${text.replace(hiddenOrQuote, (c) => (/[\\']/.test(c) ? `\\${c}` : octal(c)))}'`;
}

// A command that writes the text to the next one: arguments cannot have a 0 byte.
function printed(text) {
  const format = text.replaceAll('\\', '\\\\').replaceAll('%', '%%').replaceAll('\0', '\\000');
  return `printf ${format.startsWith('-') ? '-- ' : ''}${shellWord(format)} | `;
}

// A string of JSON, which is also one of JavaScript and of Python; in ASCII where a character is not visible.
export const stringLiteral = (text) =>
  JSON.stringify(text).replace(hiddenAll, (c) =>
    Array.from(
      { length: c.length },
      (_, i) => `\\u${c.charCodeAt(i).toString(16).padStart(4, '0')}`,
    ).join(''),
  );

// Python has no surrogates in literals: a character beyond \uffff is one escape.
const pythonLiteral = (text) =>
  stringLiteral(text).replace(/\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})/g, (_, high, low) => {
    const code = (parseInt(high, 16) - 0xd800) * 0x400 + parseInt(low, 16) - 0xdc00 + 0x10000;
    return `\\U${code.toString(16).padStart(8, '0')}`;
  });

// A 0 byte cannot be in an argument, and - would mean stdin.
const isPiped = (body) => body === '-' || body.includes('\0');

function shell(job, server, token) {
  const options = [
    ['--key', job.key],
    ['--once', job.once],
    ['--delay', job.delay && `${job.delay}ms`],
    ['--deadline', job.deadline && `${job.deadline}ms`],
    ['--attempts', job.attempts],
    ['--at', server.url],
  ].flatMap(([name, value]) => (value === undefined ? [] : [name, shellWord(String(value))]));
  const words = isPiped(job.body) ? [job.stage] : [job.stage, job.body];
  const dashed = words.some((word) => word.startsWith('-')); // would be an option
  const all = dashed
    ? [...options, '--', ...words.map(shellWord)]
    : [...words.map(shellWord), ...options];
  return [
    isPiped(job.body) && printed(job.body),
    token && 'MILLRACE_TOKEN=TOKEN ',
    `millrace push ${all.join(' ')}`,
  ]
    .filter(Boolean)
    .join('');
}

const curl = (job, server, token) =>
  [
    `curl ${shellWord(`${server.origin}/api/jobs`)}`,
    token ? "-H 'Authorization: Bearer TOKEN'" : `-H ${shellWord(`Origin: ${server.origin}`)}`,
    "-H 'Content-Type: application/json'",
    `--data-raw ${shellWord(stringJson(job))}`,
  ].join(' \\\n  ');

const stringJson = (job) =>
  `{${Object.entries(job)
    .map(([name, v]) => `"${name}": ${typeof v === 'string' ? stringLiteral(v) : v}`)
    .join(', ')}}`;

function redis(job, server, token) {
  const piped = job.body.includes('\0'),
    words = [job.stage, piped ? 'BODY' : job.body];
  for (const name of ['key', 'once', 'delay', 'deadline', 'attempts'])
    if (job[name] !== undefined) words.push(name.toUpperCase(), String(job[name]));
  return [
    piped && printed(job.body),
    token && 'REDISCLI_AUTH=TOKEN ',
    `redis-cli -h ${shellWord(server.host)} -p ${server.port} `,
    server.tls && '--tls ',
    piped && '-X BODY ',
    `PUSH ${words.map(shellWord).join(' ')}`,
  ]
    .filter(Boolean)
    .join('');
}

function python(job, server, token) {
  const options = [
    ['key', job.key === undefined ? undefined : pythonLiteral(job.key)],
    ['once', job.once === undefined ? undefined : pythonLiteral(job.once)],
    ['delay', job.delay === undefined ? undefined : job.delay / 1000],
    ['deadline', job.deadline === undefined ? undefined : job.deadline / 1000],
    ['attempts', job.attempts],
  ].flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]));
  return [
    'from millrace import Millrace',
    '',
    `m = Millrace(${stringLiteral(server.url)}${token ? ', token="TOKEN"' : ''})`,
    `print(m.push(${[stringLiteral(job.stage), pythonLiteral(job.body), ...options].join(', ')}))`,
  ].join('\n');
}

function node(job, server, token) {
  const options = ['key', 'once', 'delay', 'deadline', 'attempts']
    .filter((name) => job[name] !== undefined)
    .map((name) => `${name}: ${typeof job[name] === 'string' ? stringLiteral(job[name]) : job[name]}`);
  const words = [stringLiteral(job.stage), stringLiteral(job.body)];
  if (options.length) words.push(`{ ${options.join(', ')} }`);
  return [
    "import { Millrace } from 'millrace';",
    '',
    `const m = new Millrace(${stringLiteral(server.url)}${token ? ", { token: 'TOKEN' }" : ''});`,
    `console.log(await m.push(${words.join(', ')}));`,
    'await m.close();',
  ].join('\n');
}

const wellFormed = (job) =>
  Object.fromEntries(
    Object.entries(job).map(([name, v]) => [name, typeof v === 'string' ? v.toWellFormed() : v]),
  );

// [{ name, text }]. `job` has stage, body and the options that are given; `server` is serverPlace(); `token`:
// whether the server requires one.
export const snippets = (job, server, token) =>
  [
    ['Shell', shell],
    ['curl', curl],
    ['redis-cli', redis],
    ['Python', python],
    ['Node', node],
  ].map(([name, write]) => ({ name, text: write(wellFormed(job), server, token) }));
