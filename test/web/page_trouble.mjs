// What is wrong comes first: stages by trouble, dead letters by reason.
import { inOrderOfTrouble, troublesOf } from '../../web/src/trouble.js';
import { Client, Server, equal, openPage, row, test } from './page_support.mjs';

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
