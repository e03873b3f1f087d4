// The page in case of faults: the server is lost, its disk or memory is full, a token is wrong, bodies contain HTML,
// or there are very many jobs.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {
    BUILD,
    Client,
    MILLRACE,
    Server,
    check,
    equal,
    lastingPort,
    open,
    openPage,
    push,
    row,
    test,
    top,
    world,
} from './page_support.mjs';

test('a restart of the server is noticed and shown, and the page reconnects', async () => {
    const ports = [await lastingPort(), await lastingPort()];
    const own = await Server.start(['--store', `file:${path.join(top, 'restarts')}`], {}, ports);
    const asker = new Client(own);
    await asker.ask('PUSH', 'before', 'x');
    const page = await openPage(own.address, '#/');
    await row(page, 'before').waitFor();
    asker.close();
    await own.stop();
    await page.sees('The server cannot be reached', '.banner');
    await page.locator('main.stale').waitFor();
    await page.sees('Not connected', '.state');
    await page.shot('lost');
    await own.restart();
    const again = new Client(own);
    await again.ask('PUSH', 'after', 'x');
    await row(page, 'after').waitFor();
    await page.locator('main:not(.stale)').waitFor();
    equal(await page.locator('.banner p').count(), 0);
    await page.leave();
    again.close();
    await own.stop();
});

// A server whose disk does as order() says.
async function faulty(name, ...options) {
    const orders = path.join(top, `${name}.orders`);
    const order = (text) => {
        fs.writeFileSync(`${orders}.new`, text);
        fs.renameSync(`${orders}.new`, orders);
    };
    order('');
    const made = await Server.start(['--store', `file:${path.join(top, name)}`, ...options], {
        LD_PRELOAD: path.join(BUILD, 'test/libfaulty.so'),
        MILLRACE_FAULTS: orders,
        ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ''}:verify_asan_link_order=0`,
    });
    return { made, order, asker: new Client(made) };
}

test('a stopped log is shown in a banner, and actions report why they fail', async () => {
    const { made, order, asker } = await faulty('stops');
    await asker.ask('PUSH', 's', 'x');
    const page = await openPage(made.address, '#/stage/s');
    await page.sees('No worker');
    order('sync EIO\n');
    const said = await asker.ask('PUSH', 's', 'y').catch((error) => error.message);
    check(String(said).startsWith('STOPPED'), said);
    await page.sees('The log has stopped', '.banner');
    await page.press('Pause');
    await page.locator('.notice.bad').waitFor();
    await page.go('#/');
    await page.sees('stopped', '.facts .bad');
    await page.shot('stopped');
    await page.leave();
    asker.close();
    made.process.kill('SIGKILL');
});

test('a full disk is shown in a banner, until it has room again', async () => {
    const { made, order, asker } = await faulty('fills');
    const page = await openPage(made.address, '#/');
    order('allocate ENOSPC\n');
    let refused = null;
    while (!refused)
        await asker.ask('PUSH', 's', 'x'.repeat(1000_000)).catch((error) => {
            refused = error.message;
        });
    check(refused.startsWith('FULL'), refused);
    await page.sees('The disk is full', '.banner');
    order('');
    await page.locator('.banner p').waitFor({ state: 'detached' });
    await page.leave();
    asker.close();
    await made.stop();
});

test('full memory is shown in a banner', async () => {
    const small = await Server.start(['--store', 'mem:', '--max-bytes', '48M']);
    const asker = new Client(small);
    let refused = null;
    while (!refused)
        await asker.ask('PUSH', 's', 'x'.repeat(1000_000)).catch((error) => {
            refused = error.message;
        });
    const page = await openPage(small.address, '#/');
    await page.sees('Memory is', '.banner');
    await page.leave();
    asker.close();
    await small.stop();
});

function token(file, name, roles, stages = '*', ...more) {
    const words = ['auth', 'add', name, '--role', roles, '--stages', stages, '--auth', file, ...more];
    const done = spawnSync(MILLRACE, words, { encoding: 'utf8' });
    check(done.status === 0, done.stderr);
    return done.stdout.trim();
}

// What the token may do is known, and these are there but not to be seen, nor reached by keyboard.
async function offersNothing(page, hash, names) {
    await page.go(hash);
    await page.waitForFunction(() => document.documentElement.dataset.may !== undefined);
    for (const name of names) {
        await page.getByText(name, { exact: true }).first().waitFor({ state: 'attached' });
        equal(await page.getByText(name, { exact: true }).filter({ visible: true }).count(), 0);
    }
}

test('U12: buttons that the token may not use are not offered', async () => {
    const file = path.join(top, 'offers');
    const all = token(file, 'boss', 'admin'),
        reads = token(file, 'reader', 'read'),
        pushes = token(file, 'maker', 'read,push');
    const guarded = await Server.start(['--store', 'mem:', '--auth', file]);
    const boss = new Client(guarded);
    await boss.ask('AUTH', all);
    const id = await boss.ask('PUSH', 'held', 'x');
    await boss.ask('PAUSE', 'held');
    await boss.ask('SCHEDULE', 'held', 'yearly', 'CRON', '@yearly', 'PUSH', 'x');
    await boss.ask('PUSH', 'lost', 'x');
    await boss.kill('lost', 'broken');
    const page = await openPage(guarded.address, '#/');
    const enter = async (secret) => {
        await page.getByLabel('Token').fill(secret);
        await page.press('Continue');
        await row(page, 'held').waitFor();
    };
    await enter(reads);
    await offersNothing(page, '#/', ['Resume', 'Push']);
    await offersNothing(page, '#/stage/held', ['Resume', 'Drain…', 'Push a job']);
    await offersNothing(page, `#/job/${id}`, ['Cancel…', 'Drop…']);
    await offersNothing(page, '#/dead', ['Retry', 'Drop', 'Retry…', 'Drop…', 'Retry all that match…', 'Select all shown']);
    await offersNothing(page, '#/push?stage=held', ['Push']);
    await offersNothing(page, '#/schedules', ['Pause', 'Push now', 'Drop…']);
    await page.press('Forget token', '.bar');
    await page.go('#/');
    await enter(pushes);
    await offersNothing(page, '#/stage/held', ['Resume', 'Drain…']);
    await page.getByText('Push a job', { exact: true }).waitFor();
    await offersNothing(page, `#/job/${id}`, ['Drop…']);
    await page.getByText('Cancel…', { exact: true }).waitFor();
    await page.press('Forget token', '.bar');
    await page.go('#/');
    await enter(all);
    await page.go('#/stage/held');
    await page.press('Resume');
    await page.sees('No worker takes');
    await page.leave();
    boss.close();
    await guarded.stop();
});

test('a token is requested; a wrong one is reported; one that only reads cannot act', async () => {
    const file = path.join(top, 'auth');
    const all = token(file, 'boss', 'admin,read,push'),
        reads = token(file, 'reader', 'read');
    const guarded = await Server.start(['--store', 'mem:', '--auth', file]);
    const boss = new Client(guarded);
    await boss.ask('AUTH', all);
    await boss.ask('PUSH', 'secret.stage', 'x');
    const page = await openPage(guarded.address, '#/');
    await page.getByLabel('Token').fill('wrong');
    await page.shot('token');
    await page.press('Continue');
    await page.sees('This token is not accepted');
    await page.getByLabel('Token').fill('наш пароль');
    await page.press('Continue');
    await page.sees('This token is not accepted: it has characters that no token has');
    await page.getByLabel('Token').fill(reads);
    await page.press('Continue');
    await row(page, 'secret.stage').waitFor();
    await page.go('#/stage/secret.stage');
    await page.sees('Only a token with the role admin sees the policy');
    await offersNothing(page, '#/stage/secret.stage', ['Pause', 'Drain…', 'Push a job']);
    equal(
        await page.evaluate(() => [
            Object.keys(sessionStorage).length,
            Object.values(localStorage).join(),
        ]),
        [1, ''],
    );
    await page.press('Forget token', '.bar');
    await page.getByLabel('Token').fill(all);
    await page.press('Continue');
    await page.press('Pause');
    await page.sees('Paused');
    await page.leave();
    boss.close();
    await guarded.stop();
});

const EVIL = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>';

test('text from the server stays text: names, keys, bodies, reasons', async () => {
    const id = await push('evil', EVIL, 'KEY', EVIL);
    await push('evil', EVIL, 'KEY', EVIL);
    const [[, taken]] = await world.client.ask('TAKE', 'evil');
    await world.client.ask('FAIL', id, taken, EVIL, 'NEVER');
    await world.client.ask('PUSH', 'evil', 'x', 'EPIC', EVIL, 1);
    await world.client.ask('SCHEDULE', 'evil', EVIL, 'CRON', '@yearly', 'PUSH', 'x', 'KEY', EVIL);
    const worker = new Client(world.server);
    await worker.ask('CLIENT', 'SETNAME', '<b>bold</b>');
    await worker.ask('TAKE', 'evil.none');
    const page = await open('#/');
    for (const hash of [
        `#/job/${id}`,
        '#/dead?stage=evil',
        '#/epics',
        '#/schedules',
        '#/stage/evil/jobs/waiting',
    ]) {
        await page.go(hash);
        await page.sees('onerror="window.broken=1"');
    }
    await page.go('#/workers');
    await page.sees('<b>bold</b>');
    for (const hash of [
        `#/stage/${encodeURIComponent(EVIL)}`,
        `#/push?stage=${encodeURIComponent(EVIL)}`,
        `#/${EVIL}`,
    ]) {
        await page.go(hash);
        await page.locator('h1').first().waitFor();
    }
    equal(await page.evaluate(() => window.broken ?? 'whole'), 'whole');
    await page.leave();
    worker.close();
});

test('what turns the direction of writing is shown, not obeyed', async () => {
    const turned = 'safe\u202egpj.exe\u2066\u200f\u061c';
    const id = await push('turned', turned, 'KEY', turned);
    const page = await open('#/stage/turned/jobs/waiting');
    await row(page, 'safe\\u202egpj.exe\\u2066\\u200f\\u061c').waitFor();
    await page.go(`#/job/${id}`);
    await page.sees('safe\\u202egpj.exe\\u2066\\u200f\\u061c', 'pre');
    await page.leave();
});

test('a token for some stages sees these, and no figures of the others', async () => {
    const file = path.join(top, 'auth.few');
    const few = token(file, 'few', 'read,push', 'mail.*');
    const guarded = await Server.start(['--store', 'mem:', '--auth', file]);
    const asker = new Client(guarded);
    await asker.ask('AUTH', few);
    await asker.ask('PUSH', 'mail.in', 'x');
    const page = await openPage(guarded.address, '#/');
    await page.getByLabel('Token').fill(few);
    await page.press('Continue');
    await row(page, 'mail.in').waitFor();
    await page.sees('ok', '.facts');
    equal(await page.locator('.facts > div:visible dt').allTextContents(), ['Log', 'Disk']);
    await page.leave();
    asker.close();
    await guarded.stop();
});

test('G13: quotas of tokens are shown with what is used, and with a warning from 90 % on', async () => {
    const file = path.join(top, 'quotas');
    const all = token(file, 'boss', 'admin'),
        acme = token(file, 'acme', 'push,read', 'acme.*', '--max-jobs', '10', '--max-bytes', '64K'),
        other = token(file, 'other', 'push,read', 'other', '--max-epics', '3');
    const guarded = await Server.start(['--store', 'mem:', '--auth', file]);
    const tenant = new Client(guarded);
    await tenant.ask('AUTH', acme);
    for (let i = 0; i < 8; i++) await tenant.ask('PUSH', 'acme.mail', 'x');
    const page = await openPage(guarded.address, '#/workers');
    const enter = async (secret) => {
        await page.getByLabel('Token').fill(secret);
        await page.press('Continue');
    };
    const cell = (name, column) =>
        page.getByRole('table', { name: 'Quotas of tokens' }).locator('tr').filter({ hasText: name })
            .locator(`td[data-label="${column}"]`);
    await enter(all);
    await cell('acme', 'Jobs').filter({ hasText: '8 of 10' }).waitFor();
    check(!(await cell('acme', 'Jobs').getAttribute('class')).includes('warn'));
    equal(await cell('other', 'Epics').textContent(), '0 of 3');
    equal(await cell('other', 'Jobs').textContent(), '–');
    equal(await cell('boss', 'Jobs').count(), 0);
    await tenant.ask('PUSH', 'acme.mail', 'x');
    await page.locator('td.warn').filter({ hasText: '9 of 10' }).waitFor();
    equal(await page.locator('td.warn').count(), 1);
    await page.shot('quotas');
    await page.press('Forget token', '.bar');
    await page.go('#/workers');
    await enter(other);
    await cell('other', 'Epics').waitFor();
    equal(await cell('acme', 'Jobs').count(), 0);
    await page.leave();
    tenant.close();
    await guarded.stop();
    const without = await openPage(world.server.address, '#/');
    const answer = without.waitForResponse((response) => response.url().endsWith('/api/quotas'));
    await without.go('#/workers');
    equal(await (await answer).json(), { quotas: [] });
    await without.sees('Connected workers');
    equal(await without.getByText('Quotas of tokens').filter({ visible: true }).count(), 0);
    await without.leave();
});

test('a million waiting jobs are looked at as quickly as a few', async () => {
    const items = Array.from({ length: 1000 }, (_, i) => [`key ${i % 500}`, 'x']).flat();
    const replies = [];
    for (let i = 0; i < 1000; i++)
        replies.push(world.client.ask('PUSHMANY', 'million', 'ITEMS', ...items));
    await Promise.all(replies);
    const page = await open('#/');
    await row(page, 'million').filter({ hasText: '1,000,000' }).waitFor();
    await page.go('#/stage/million/jobs/waiting');
    await page.locator('[aria-label="Jobs"] tbody tr').nth(24).waitFor();
    await page
        .locator('[aria-label="Channels"] tbody tr')
        .filter({ hasText: '2,000' })
        .first()
        .waitFor();
    await page.shot('million');
    await page.leave();
});
