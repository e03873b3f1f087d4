// What is wrong comes first: stages by trouble, dead letters by reason.
import { inOrderOfTrouble, troublesOf } from '../../web/src/trouble.js';
import { fold, groupByReason } from '../../web/src/reasons.js';
import { Client, Server, bury, deadCount, equal, open, openPage, row, test } from './page_support.mjs';

const stage = (name, more = {}) => ({
    name,
    waiting: 0,
    parked: 0,
    dead: 0,
    paused: 0,
    draining: 0,
    'oldest-ms': -1,
    'held-by': '',
    ...more,
});

const names = (stages) => inOrderOfTrouble(stages).map((s) => s.name);
const texts = (s) => troublesOf(s).map((t) => t.text);

test('stages are ordered by trouble: dead letters, parked keys, no worker, age, paused, then by name', async () => {
    equal(
        names([
            stage('well-b'),
            stage('paused', { paused: 1 }),
            stage('old', { waiting: 1, 'oldest-ms': 90_000 }),
            stage('alone', { waiting: 1, 'oldest-ms': 5, 'held-by': 'no-worker' }),
            stage('parked', { parked: 2 }),
            stage('dead', { dead: 1 }),
            stage('deader', { dead: 70, paused: 1 }),
            stage('well-a', { 'held-by': 'no-worker' }),
            stage('older', { waiting: 1, 'oldest-ms': 900_000 }),
        ]),
        ['deader', 'dead', 'parked', 'alone', 'older', 'old', 'paused', 'well-a', 'well-b'],
    );
    equal(texts(stage('x', { dead: 1, parked: 2, paused: 1 })), ['1 dead letter', '2 parked keys', 'paused']);
    equal(texts(stage('x', { waiting: 3, 'oldest-ms': 61_000, 'held-by': 'limit' })), ['oldest 1 min 1 s']);
    equal(texts(stage('x')), []);
});

test('the overview shows troubles, orders stages by them or by name, and keeps rows under the pointer', async () => {
    const own = await Server.start(['--store', 'mem:']);
    const client = new Client(own);
    for (const name of ['a.well', 'b.dead', 'c.paused']) await client.ask('PUSH', name, 'x');
    await client.kill('b.dead', 'it broke');
    await client.ask('DROP', 'STAGE', 'a.well', 'WAITING');
    await client.ask('DROP', 'STAGE', 'c.paused', 'WAITING');
    await client.ask('PAUSE', 'c.paused');
    const page = await openPage(own.address, '#/');
    const first = () => page.locator('[aria-label="Stages"] tbody tr td:first-child').allTextContents();
    await row(page, 'c.paused').locator('.tag', { hasText: 'paused' }).waitFor();
    await row(page, 'b.dead').locator('.tag', { hasText: '1 dead letter' }).waitFor();
    equal(await first(), ['b.dead', 'c.paused', 'a.well']);
    await page.press('By name');
    equal(await first(), ['a.well', 'b.dead', 'c.paused']);
    await page.reload();
    await row(page, 'c.paused').waitFor();
    equal(await first(), ['a.well', 'b.dead', 'c.paused']);
    await page.press('By trouble');
    await row(page, 'a.well').hover();
    await client.ask('PUSH', 'a.well', 'x');
    await client.ask('PUSH', 'a.well', 'y');
    for (let i = 0; i < 2; i++) await client.kill('a.well', 'it broke'); // now the worst of all
    await row(page, 'a.well').locator('.tag', { hasText: '2 dead letters' }).waitFor();
    equal(await first(), ['b.dead', 'c.paused', 'a.well']);
    await page.locator('h2').first().hover();
    await page.locator('[aria-label="Stages"] tbody tr').first().filter({ hasText: 'a.well' }).waitFor();
    await page.leave();
    client.close();
    await own.stop();
});

// ---- Dead letters by reason ----------------------------------------------------------------------

test('reasons are folded: numbers, ids and hexadecimal digits are, codes of an exit or a status are not', async () => {
    for (const [one, other, folded] of [
        ['timeout after 30 s', 'timeout after 1.5 s', 'timeout after # s'],
        ['no answer from 10.0.0.7:5432', 'no answer from 10.0.3.1:80', 'no answer from #'],
        ['order 0f9ac21b lost', 'order a77e120c lost', 'order ‹hex› lost'],
        ['at 0x7ffd3a10', 'at 0xdead', 'at ‹hex›'],
        [
            'user 123e4567-e89b-12d3-a456-426614174000 is gone',
            'user 00000000-aaaa-bbbb-cccc-0123456789ab is gone',
            'user ‹id› is gone',
        ],
        ['no such thing: cus_9s6XKzkNRiz8i3x', 'no such thing: cus_Na9fqT20pLm45Z1', 'no such thing: ‹id›'],
        ['line\n  12', 'line 9', 'line #'],
    ]) {
        equal(fold(one), folded);
        equal(fold(other), folded);
    }
    for (const text of ['exit 1', 'exited with status 127', 'signal 9', 'HTTP 503', 'status: 404', 'defaced', 'not UTF-8', 'no SHA-256.'])
        equal(fold(text), text);
    equal(fold("'utf-8' codec: byte 7"), "'utf-8' codec: byte #");
    equal(fold('order-4711, host-3:5432, range-1-9'), 'order-#, host-#, range-#-#');
    equal(fold('x'.repeat(100_000)), `${'x'.repeat(199)}…`);
    equal(fold('too long '.repeat(100)), `${'too long '.repeat(22)}…`);
    equal(fold(''), '');
    const job = (id, age, text, stage = 's') => ({ id, stage, 'age-ms': age, reasons: text && [{ text }] });
    const groups = groupByReason([
        job('1', 900, 'lost 1'),
        job('2', 50, 'exit 1'),
        job('3', 20, 'lost 2', 't'),
        job('4', 10, null),
    ]);
    equal(
        groups.map((g) => [g.reason, g.ids, g.newest.id, [...g.stages]]),
        [
            ['lost #', ['1', '3'], '3', ['s', 't']],
            ['exit 1', ['2'], '2', ['s']],
            ['', ['4'], '4', ['s']],
        ],
    );
});

const HOSTILE = '<img src=x onerror="alert(1)"> ‮"\'&lt;';

test('dead letters are grouped by reason; a group is shown, retried and dropped after a question', async () => {
    for (let i = 0; i < 3; i++) await bury('tomb', 1, `lost packet ${1000 + i}`, `p${i}`);
    await bury('tomb', 2, HOSTILE, 'h');
    await bury('tomb', 1, 'exit 7', 'e');
    const page = await open('#/dead?stage=tomb');
    const groups = page.locator('[aria-label="Reasons"] tbody tr'),
        jobs = page.locator('[aria-label="Dead letters"] tbody tr');
    await groups.nth(2).waitFor();
    equal(await groups.locator('td:nth-child(2)').allTextContents(), ['3', '2', '1']);
    equal(await groups.nth(0).locator('td:nth-child(1)').textContent(), 'lost packet #');
    await groups.nth(0).filter({ hasText: 'lost packet 100' }).waitFor(); // the example
    equal(await groups.nth(2).textContent().then((text) => text.split('exit 7').length), 2); // not repeated
    await groups.nth(1).filter({ hasText: '<img src=x' }).waitFor();
    equal(await page.locator('main img').count(), 0);
    await page.shot('dead-groups');
    await groups.nth(1).getByRole('button', { name: 'Show' }).click();
    await jobs.nth(2).waitFor({ state: 'detached' });
    equal(await jobs.count(), 2);
    await page.press('Show jobs of every reason');
    await jobs.nth(5).waitFor();
    await groups.nth(1).getByRole('button', { name: 'Drop…' }).click();
    await page.sees('Drop 2 dead jobs with the reason', 'dialog');
    await page.agree('Leave it');
    equal(await deadCount('tomb'), 6);
    await groups.nth(1).getByRole('button', { name: 'Drop…' }).click();
    await page.agree('Drop 2 dead jobs');
    await page.sees('2 jobs are dropped', '.notices');
    equal(await deadCount('tomb'), 4);
    await groups.nth(0).getByRole('button', { name: 'Retry…' }).click();
    await page.agree('Retry 3 dead jobs');
    await page.sees('3 jobs are queued again', '.notices');
    await groups.nth(1).waitFor({ state: 'detached' });
    equal(await deadCount('tomb'), 1);
    await page.leave();
});
