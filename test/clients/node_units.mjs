// node_units.mjs: what the library for Node does where no real server leads it: replies that are cut anywhere or make no
// sense, bodies, addresses, and whether index.d.ts declares what there is. Exits with 1 and says why if something is wrong.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import * as millrace from '../../clients/node/index.mjs';

const require = createRequire(import.meta.url);
const root = new URL('../../clients/node/', import.meta.url);
const { addressOf } = require('../../clients/node/lib/connection.js');
const { fromBytes, toBytes } = require('../../clients/node/lib/codec.js');
const { Parser, encode } = require('../../clients/node/lib/resp.js');

function parsed(...pieces) {
    const values = [];
    const parser = new Parser((value, isPush) => {
        values.push(value instanceof Error ? [value.name, value.reason] : value, isPush);
    });
    for (const piece of pieces) parser.feed(Buffer.from(piece));
    return values;
}

const REPLIES = [
    ['$5\r\nhello\r\n', 'hello'], ['$0\r\n\r\n', ''], ['$-1\r\n', null], ['_\r\n', null], ['*0\r\n', []],
    ['*-1\r\n', null], [':-12\r\n', -12], [',1.5\r\n', 1.5], [',-inf\r\n', -Infinity], ['#t\r\n', true], ['%0\r\n', {}],
    ['+OK\r\n', 'OK'], ['-FULL no room\r\n', ['Full', 'no room']], ['$4\r\n\r\n\r\n\r\n', '\r\n\r\n'],
    ['*2\r\n*1\r\n$1\r\na\r\n%1\r\n+k\r\n~1\r\n:7\r\n', [['a'], { k: [7] }]],
    ['%1\r\n$9\r\n__proto__\r\n:1\r\n', JSON.parse('{"__proto__": 1}')],
];
for (const [text, value] of REPLIES) {
    const twice = text + text;
    assert.deepEqual(parsed(twice), [value, false, value, false], text);
    assert.deepEqual(parsed(...Buffer.from(twice).toString('latin1')), [value, false, value, false], text);
    for (let cut = 1; cut < twice.length; cut++)
        assert.deepEqual(parsed(twice.slice(0, cut), twice.slice(cut)), [value, false, value, false], `${text} at ${cut}`);
}
assert.deepEqual(parsed('>2\r\n+cancel\r\n$1\r\n7\r\n'), [['cancel', '7'], true]);

const large = Buffer.alloc(3_000_000, 'x'); // in many pieces, within an array
const message = Buffer.concat([Buffer.from('*2\r\n:1\r\n$3000000\r\n'), large, Buffer.from('\r\n')]);
const pieces = [];
for (let at = 0; at < message.length; at += 65536) pieces.push(message.subarray(at, at + 65536));
assert.equal(parsed(...pieces)[0][1].length, large.length);

const NONSENSE = [
    'HTTP/1.1 400 Bad Request\r\n', '\r\n', '\n', ':1\n', '$x\r\n', '$\r\n', '$-\r\n', '$99999999999\r\n', '*99999999999\r\n',
    '$1\r\nabc\r\n', ':123456789012345678901234\r\n', ':1_0\r\n', '*1\r\n'.repeat(100), '*1\r\n>1\r\n:1\r\n', `+${'x'.repeat(70_000)}`,
    `+${'x'.repeat(70_000)}\r\n`, '(1\r\n',
];
for (const text of NONSENSE) {
    assert.throws(() => parsed(text), millrace.Unreachable, text.slice(0, 40));
    assert.throws(() => parsed(...text.slice(0, 70_002).match(/.{1,7000}/gs)), millrace.Unreachable, text.slice(0, 40));
}

const bytes = (words) => Buffer.concat(encode(words).map((part) => Buffer.from(part))).toString();
assert.equal(bytes(['A', 'ü', 12, Buffer.from('b'), '']), '*5\r\n$1\r\nA\r\n$2\r\nü\r\n$2\r\n12\r\n$1\r\nb\r\n$0\r\n\r\n');
assert.throws(() => encode(['A', undefined]), millrace.Usage);
assert.throws(() => encode(['A', {}]), millrace.Usage);

for (const value of ['', 'text', '{no JSON', '[', '\ufffd', { a: ['ü', null] }, [], Buffer.from([0xff, 0xfe]), Buffer.from('{"\xff": 1}', 'latin1')])
{
    const sent = Buffer.from(toBytes(value));
    assert.deepEqual(fromBytes(parsed(Buffer.concat([Buffer.from(`$${sent.length}\r\n`), sent, Buffer.from('\r\n')]))[0]), value);
}
const own = new Uint16Array([1, 2]);
const copy = toBytes(own.subarray(1));
own[1] = 3;
assert.deepEqual([...copy], [2, 0]);
assert.deepEqual([toBytes(1), toBytes(true), toBytes(null)], ['1', 'true', 'null']);
for (const value of [undefined, () => 1, 1n, Symbol('s')]) assert.throws(() => toBytes(value), millrace.BadBody);

const where = (url) => addressOf(url).nodes.map(({ host, port }) => [host, port]);
assert.deepEqual(where('millrace://a,b:1,[::1]:2/'), [['a', 7411], ['b', 1], ['::1', 2]]);
const { user, secret, tls } = addressOf('millraces://ci:s%40%2f@h');
assert.deepEqual([user, secret, tls], ['ci', 's@/', {}]);
assert.deepEqual(addressOf('millrace://secret@h').secret, 'secret');
assert.equal(addressOf('millrace://a:b@h', 'token').secret, 'token');
const file = (url) => [addressOf(url).nodes[0].path, addressOf(url).user, addressOf(url).secret];
assert.deepEqual(file('unix:/run/a@b'), ['/run/a@b', 'default', '']);
assert.deepEqual(file('unix:a'), ['a', 'default', '']);
assert.deepEqual(file('unix:///run/a'), ['/run/a', 'default', '']);
assert.deepEqual(file('unix://ci:s%2F@/a@b'), ['/a@b', 'ci', 's/']);
for (const url of ['unix:', 'unix://', 'unix://a/b', 'unix://a@', 'redis://h', 'millrace://', 'millrace://h:x', 'millrace://h:99999', 'h:7411', 'millrace://a,,b'])
    assert.throws(() => addressOf(url), millrace.Usage, url);
for (const url of ['redis://ci:hidden@h', 'millrace://hidden@h:x', 'hidden@h'])
    assert.throws(() => addressOf(url), (error) => error instanceof millrace.Usage && !/hidden/.test(error.message), url);
await assert.rejects(new millrace.Millrace('millraces://h', { tls: { ca: 5 } }).command('PING'), /cannot connect/);
for (const options of [{ delya: 5 }, { delay: '5s' }, { toString: 1 }])
    await assert.rejects(new millrace.Millrace().push('s', 'x', options), millrace.Usage);
assert.throws(() => new millrace.Millrace().work('s', () => 1, { concurrency: 0 }), millrace.Usage);

// A server with scripted replies: `answer(words, socket)` is the reply, or undefined.
async function scripted(answer) {
    const server = net.createServer((socket) => {
        socket.on('error', () => {});
        const parser = new Parser((words) => {
            const reply = answer(words, socket) ?? {
                HELLO: '%2\r\n+server\r\n$8\r\nmillrace\r\n+id\r\n:1\r\n', CLIENT: '+OK\r\n', INFO: '$0\r\n\r\n',
            }[words[0]];
            if (reply) socket.write(reply);
        });
        socket.on('data', (data) => parser.feed(data));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const m = new millrace.Millrace(`millrace://127.0.0.1:${server.address().port}`, { logger: {} });
    return { m, server };
}

{ // A number that a lost push may have used is not used by another push.
    let hellos = 0;
    const pushed = [];
    const { m, server } = await scripted((words, socket) => {
        if (words[0] === 'HELLO' && ++hellos === 2) return '-WRONGPASS not any more\r\n';
        if (words[0] !== 'PUSH') return undefined;
        if (pushed.push(words.slice(-2).join(' ')) === 1) return void socket.destroy();
        return '$1\r\n7\r\n';
    });
    const denied = await m.push('s', 'x').catch((error) => error);
    assert.ok(denied instanceof millrace.Denied);
    assert.match(denied.stack, /^Denied: not any more\n[^]*node_units/); // not that of a socket
    await assert.rejects(m.run({ grace: 5 }), /no option grace; it has signals/);
    assert.equal(await m.push('s', 'y'), '7');
    assert.equal(await m.push('s', 'z'), '7');
    const [[lost, n], [second, m1], [third, m2]] = pushed.map((words) => words.split(' '));
    assert.notEqual(lost, second);
    assert.deepEqual([n, m1, second, m2], ['1', '1', third, '2']);
    await m.close();
    server.close();
}

{ // A reply that makes no sense ends the connection; what waits for a silent server can be given up.
    const { m, server } = await scripted((words) => (words[0] === 'WHY' ? 'what?\r\n' : undefined));
    await assert.rejects(m.command('WHY', 's'), /makes no sense/);
    for (const wait of [(o) => m.call('s', 'x', o), (o) => m.call('s', 'x', { room: 5, ...o }), (o) => m.wait('1', o)]) {
        const stop = new AbortController();
        const waits = wait({ signal: stop.signal });
        stop.abort(new Error('enough'));
        await assert.rejects(waits, /enough/);
        await assert.rejects(wait({ signal: stop.signal }), /enough/);
    }
    await assert.rejects(m.call('s', 'x', { timeout: 1, deadline: 1 }), millrace.Timeout);
    await m.close();
    await assert.rejects(m.command('PING'), /was closed/);
    server.close();
}

{ // A word of a handler that cannot be encoded makes its attempt fail, and ends nothing else.
    const answered = [];
    const { m, server } = await scripted((words) => {
        if (words[0] === 'FAIL') answered.push(words.slice(1, 4));
        if (words[0] !== 'TAKE') return words[0] === 'FAIL' ? '+OK\r\n' : undefined;
        if (answered.length) return '*0\r\n';
        return '*1\r\n*9\r\n+7\r\n+token\r\n+s\r\n+\r\n+body\r\n:1\r\n:-1\r\n_\r\n:30000\r\n';
    });
    const worker = m.work('s', (job) => job.emit('t', 'x', { once: {} }), { concurrency: 1 });
    while (!answered.length) await new Promise(setImmediate);
    await worker.close();
    assert.match(answered[0].join(' '), /7 token Usage: a word of DONE/);
    await m.close();
    server.close();
}

{ // A worker whose server is away can be closed, and then the process ends.
    const worker = new millrace.Millrace('millrace://127.0.0.1:1', { logger: {} }).work('s', () => 1);
    await worker.close();
}

// The same things for import and require, and all of them declared.
const required = require('../../clients/node/index.js');
assert.deepEqual({ ...millrace }, required);
const declared = fs.readFileSync(new URL('index.d.ts', root), 'utf8');
const INTERNAL = { Job: ['commitWords', 'cancel'], Worker: ['report'] };
for (const [name, type] of Object.entries(required)) {
    const [, text] = new RegExp(`^export class ${name} (.*?)^}`, 'ms').exec(declared.replaceAll(/\{\}$/gm, '{\n}')) ?? [];
    assert.ok(text, `index.d.ts does not declare ${name}`);
    for (const member of Object.getOwnPropertyNames(type.prototype))
        if (member !== 'constructor' && !INTERNAL[name]?.includes(member))
            assert.match(text, new RegExp(`\\b${member}\\??[(:]`), `index.d.ts does not declare ${name}.${member}`);
}
for (const [, name] of declared.matchAll(/^export class (\w+)/gm)) assert.ok(required[name], `${name} is only declared`);
