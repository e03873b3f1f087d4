// The page, view by view: what each shows, and what can be done there.
import { perSecondOf, steps } from '../../web/src/series.js';
import {
    Client,
    Server,
    bury,
    check,
    deadCount,
    equal,
    open,
    openPage,
    push,
    row,
    test,
    world,
} from './page_support.mjs';

test('the overview shows stages, why their jobs wait and how to change that', async () => {
    await push('over.idle');
    await push('over.paused');
    await world.client.ask('PAUSE', 'over.paused');
    const page = await open('#/');
    await page.sees('No worker takes its jobs');
    await page.sees(
        `millrace work over.idle --at millrace://127.0.0.1:${world.server.port} -- COMMAND`,
    );
    await row(page, 'over.paused').getByRole('button', { name: 'Resume' }).click();
    await page.sees('over.paused is resumed', '.notices');
    await row(page, 'over.paused').filter({ hasText: 'No worker' }).waitFor();
    await page.sees('has room', '.facts');
    await page.shot('overview');
    await row(page, 'over.idle').getByRole('link', { name: 'over.idle' }).click();
    await page.getByRole('heading', { level: 1, name: 'over.idle' }).waitFor();
    await page.leave();
});

test('U12: an empty server shows what to do next, with its address', async () => {
    const empty = await Server.start(['--store', 'mem:']);
    const page = await openPage(empty.address, '#/');
    const at = `--at millrace://127.0.0.1:${empty.port}`;
    await page.sees(`millrace push mail hello ${at}`);
    for (const [hash, text] of [
        ['#/dead', 'No dead letter'],
        ['#/workers', `millrace work mail ${at} -- cat`],
        ['#/flows', `millrace flow words.yaml ${at}`],
        ['#/epics', `--epic june ${at}`],
        ['#/schedules', `--tz Europe/Berlin ${at}`],
        ['#/nowhere', 'There is no such view'],
        ['#/stage/absent', 'There is no stage absent'],
        ['#/job/99999', 'There is no job 99999'],
    ]) {
        await page.go(hash);
        await page.sees(text);
    }
    await page.go('#/dead');
    await page.sees('No dead letters.');
    equal(await page.main.getByText('No dead letter').count(), 1);
    equal(await page.getByRole('heading', { name: 'Reasons' }).isVisible(), false);
    await page.leave();
    await empty.stop();
});

test('U12: rates are steps, and zero over an idle gap', async () => {
    const times = [0, 1000, 2000, 60000, 61000];
    const [seconds, rates, waits] = steps(
        times,
        [perSecondOf(times, [9, 10, 20, 0, 5]), [null, 3, 4, null, 6]],
        70000,
        0,
    );
    equal(seconds, [0, 1, 1, 2, 2, 60, 60, 61, 61, 70]);
    equal(rates, [10, 10, 20, 20, 0, 0, 5, 5, 0, 0]);
    equal(waits.slice(0, 8), [3, 3, 4, 4, null, null, 6, 6]);
    const soon = steps([0, 1000], [[null, 7]], 2000, 0);
    equal(soon, [
        [0, 1, 1, 2],
        [7, 7, null, null],
    ]);
    equal(steps([], [[]], 5000, 0), [
        [5, 5],
        [null, null],
    ]);
});

test('B6: a stage draws its queue, and its time split into waiting and running', async () => {
    const worker = new Client(world.server);
    for (let i = 0; i < 40; i++) await push('plots', `job ${i}`);
    for (const [id, token] of await worker.ask('TAKE', 'plots', 'COUNT', 20, 'SLOTS', 4))
        await worker.ask('DONE', id, token);
    const page = await open('#/stage/plots');
    await page.locator('canvas').nth(3).waitFor();
    for (const [title, unit] of [
        ['Queue', 'jobs'],
        ['Time in the system', 'p50'],
        ['Throughput', 'jobs per second'],
        ['Throughput by level', 'per second'],
    ])
        await page
            .locator('figcaption')
            .filter({ hasText: title })
            .filter({ hasText: unit })
            .waitFor();
    const legends = (await page.locator('.legend li').allTextContents()).join(' ');
    for (const name of [
        'waiting',
        'running',
        'waiting p50',
        'waiting p99',
        'running p50',
        'running p99',
        'pushed',
        'done',
    ])
        check(legends.includes(name), `${name} is not in ${legends}`);
    await page
        .locator('.plot')
        .filter({ hasText: 'Queue' })
        .locator('li')
        .filter({ hasText: 'waiting 20' })
        .waitFor();
    const drawn = await page.evaluate(() => {
        const canvas = document.querySelector('canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return data.some((byte) => byte !== 0);
    });
    check(drawn, 'nothing is drawn');
    await page.shot('stage');
    await page.leave();
    worker.close();
});

test('a stage is paused, resumed and drained, and asks before it drains', async () => {
    await push('switch');
    const page = await open('#/stage/switch');
    await page.press('Pause');
    await page.sees('Paused: it accepts jobs and starts none');
    await page.press('Resume');
    await page.sees('No worker takes');
    await page.press('Drain');
    await page.agree('Leave it');
    await push('switch');
    await page.press('Drain');
    await page.shot('dialog');
    await page.agree('Drain it');
    await page.sees('switch is draining', '.notices');
    const refused = await push('switch').catch((error) => error.message);
    check(String(refused).startsWith('DRAINING'), refused);
    await page.press('Resume');
    await page.sees('switch is resumed', '.notices');
    await push('switch');
    await page.leave();
});

test('the policy of a stage is shown and changed; an invalid value is reported', async () => {
    await push('rules');
    const page = await open('#/stage/rules/policy');
    const attempts = page.getByLabel('attempts', { exact: true });
    await attempts.fill('three');
    await page.press('Save');
    await page.locator('.notice.bad').filter({ hasText: 'attempts' }).waitFor();
    await attempts.fill('3');
    await page.getByLabel('concurrency', { exact: true }).fill('2');
    await page.press('Save');
    await page.sees('The policy of rules is changed', '.notices');
    const policy = await world.client.ask('STAGE', 'rules');
    equal(
        [policy[policy.indexOf('attempts') + 1], policy[policy.indexOf('concurrency') + 1]],
        ['3', '2'],
    );
    await page.leave();
});

test('channels are listed by depth and age, parked ones with why and until when', async () => {
    for (let i = 0; i < 3; i++) await push('lanes', 'x', 'KEY', 'old');
    for (let i = 0; i < 9; i++) await push('lanes', 'x', 'KEY', 'deep');
    const page = await open('#/stage/lanes');
    const first = page.locator('[aria-label="Channels"] tbody tr').first();
    await first.filter({ hasText: 'deep' }).filter({ hasText: '9' }).waitFor();
    await page.getByLabel('Order').selectOption('age');
    await first.filter({ hasText: 'old' }).waitFor();
    const [[id, token]] = await world.client.ask('TAKE', 'lanes');
    await world.client.ask('FAIL', id, token, 'the line was busy', 'RETRY', '600000');
    await row(page, 'the line was busy').filter({ hasText: /in [5-9] min/ }).waitFor();
    await page.leave();
});

test('jobs of a stage are listed by status, page by page', async () => {
    for (let i = 0; i < 30; i++) await push('lists', `${i}`);
    await push('lists', 'later', 'DELAY', 3600000);
    const page = await open('#/stage/lists/jobs/waiting');
    const rows = page.locator('[aria-label="Jobs"] tbody tr');
    await rows.nth(24).waitFor();
    await page.press('Next');
    await rows.nth(24).waitFor({ state: 'detached' });
    equal(await rows.count(), 5);
    await page.press('delayed');
    await row(page, /5\d min/).waitFor();
    await page.leave();
});

test('a job shows its attempts and its body, as JSON, text and hexadecimal', async () => {
    const id = await push('one', '{"to": "ann", "list": [1, 2]}', 'KEY', 'ann');
    const [[, token]] = await world.client.ask('TAKE', 'one');
    await world.client.ask('FAIL', id, token, 'no answer', 'RETRY', '3600000');
    const page = await open(`#/job/${id}`);
    await row(page, 'no answer').waitFor();
    await page.sees('"to": "ann",', 'pre');
    await page.press('Hex');
    await page.sees('7b 22 74 6f', 'pre');
    await page.press('Text');
    await page.sees('{"to": "ann", "list": [1, 2]}', 'pre');
    await page.sees('is tried again in');
    await page.shot('job');
    await page.press('Cancel');
    await page.agree('Leave it');
    await page.press('Cancel');
    await page.agree('Cancel the job');
    await page.sees('cancelled', 'h1');
    await page.leave();
});

test('JSON is shown value by value, and every one as it was sent', async () => {
    const page = await open(
        '#/job/' +
            (await push(
                'exact',
                '{"n":0.10,"big":12345678901234567890,"e":[],"o":{"x":{}, "y":"}],:{"}}',
            )),
    );
    await page.sees('"n": 0.10,', 'pre');
    equal(
        await page.locator('pre').textContent(),
        '{\n  "n": 0.10,\n  "big": 12345678901234567890,\n  "e": [],\n  "o": {\n    "x": {},\n    "y": "}],:{"\n  }\n}',
    );
    await page.leave();
});

test('a done job shows its result, and bytes that are not text in hexadecimal', async () => {
    const id = await push('results', Buffer.from([0, 255, 1]));
    const page = await open(`#/job/${id}`);
    await page.sees('00 ff 01', 'pre');
    const [[, token]] = await world.client.ask('TAKE', 'results');
    await world.client.ask('DONE', id, token, 'RESULT', 'all is well');
    await page.sees('all is well', 'pre');
    await page.leave();
});

test('a large body is shown in part, with its size', async () => {
    const id = await push('large', 'x'.repeat(3 * 1024 * 1024));
    const page = await open(`#/job/${id}`);
    await page.sees('the first 64.0 KiB of 3.00 MiB');
    await page.leave();
});

test('a dead job is retried, and dropped', async () => {
    const id = await push('dying', 'x');
    await world.client.kill('dying', 'it broke');
    const page = await open(`#/job/${id}`);
    await page.press('Retry');
    await page.sees('waiting', 'h1');
    await world.client.kill('dying', 'it broke again');
    await page.sees('dead', 'h1');
    await page.press('Drop');
    await page.agree('Drop the job');
    await page.sees('There is no job');
    await page.leave();
});

// ---- Dead letters ------------------------------------------------------------------------------

const letter = (page, text) =>
    page.locator('[aria-label="Dead letters"] tbody tr').filter({ hasText: text }).first();

test('dead letters are found by stage, key and reason', async () => {
    await bury('grave.a', 2, 'out of paper');
    await bury('grave.b', 2, 'out of ink', 'q');
    const page = await open('#/dead?stage=grave.a');
    await letter(page, 'out of paper').waitFor();
    equal(await page.locator('[aria-label="Dead letters"] tbody tr').count(), 2);
    await page.getByLabel('Stage').selectOption('');
    await letter(page, 'out of ink').waitFor();
    await page.getByLabel('Reason', { exact: true }).fill('of ink');
    await page.sheds('out of paper', 'tbody tr');
    await page.getByLabel('Key').fill('q1');
    await letter(page, 'q0').waitFor({ state: 'detached' });
    await letter(page, 'q1').getByRole('link').first().click();
    await page.sees('out of ink');
    await page.leave();
});

test('the first 5,000 dead letters are examined, this is shown, and a button examines more', async () => {
    const ask = (...words) => world.client.ask(...words);
    const items = (from) => Array.from({ length: 1000 }, (_, i) => [`k${from + i}`, 'x']).flat();
    for (let from = 0; from < 5500; from += 1000)
        await ask('PUSHMANY', 'many.dead', 'ITEMS', ...items(from));
    for (let jobs; (jobs = await ask('TAKE', 'many.dead', 'COUNT', 1000)).length;)
        await Promise.all(
            jobs.map(([id, token, , key]) =>
                ask('FAIL', id, token, key === 'k5400' ? 'out of luck' : 'no', 'NEVER'),
            ),
        );
    const page = await open('#/dead?stage=many.dead');
    await page.sees('The first 100 are shown');
    await page.sees('The first 5,000 of 6,000 dead letters were looked at');
    await page.getByLabel('Reason', { exact: true }).fill('luck');
    await page.sees('None of the first 5,000 of 6,000 dead letters match');
    await page.press('Search further');
    await letter(page, 'out of luck').filter({ hasText: 'k5400' }).waitFor();
    await page.sheds('of the first');
    equal(await page.getByRole('button', { name: 'Search further' }).isVisible(), false);
    await page.press('Drop all that match');
    await page.agree('Drop 1 dead job');
    await page.sees('1 job is dropped', '.notices');
    await page.leave();
});

test('one, some and all dead letters are retried or dropped, and counted first', async () => {
    const [first, second, third] = await bury('yard', 6, 'lost');
    const page = await open('#/dead?stage=yard');
    await letter(page, first).getByRole('button', { name: 'Retry' }).click();
    await page.sees(`Job ${first} is queued again`, '.notices');
    await letter(page, first).waitFor({ state: 'detached' });
    for (const id of [second, third]) await page.getByLabel(`Select job ${id}`).check();
    await page.press('Drop 2 selected jobs');
    await page.agree('Drop 2 dead jobs');
    await page.sees('2 jobs are dropped', '.notices');
    equal(await deadCount('yard'), 3);
    await page.shot('dead');
    await page.press('Retry all that match');
    await page.sees('Retry 3 dead jobs of yard?', 'dialog');
    await page.agree('Leave it');
    equal(await deadCount('yard'), 3);
    await page.press('Drop all that match');
    await page.agree('Drop 3 dead jobs');
    await page.sees('3 jobs are dropped', '.notices');
    equal(await deadCount('yard'), 0);
    await page.leave();
});

// ---- Workers, epics, pushes --------------------------------------------------------------------

test('workers are shown with what they run, since when, and their level', async () => {
    const worker = new Client(world.server);
    await worker.ask('CLIENT', 'SETNAME', 'the-worker');
    await push('busy', 'x', 'KEY', 'the-key');
    const [[id]] = await worker.ask('TAKE', 'busy', 'SLOTS', 7);
    const page = await open('#/workers');
    await row(page, 'the-worker').filter({ hasText: '7' }).waitFor();
    await page.getByRole('link', { name: id, exact: true }).waitFor();
    await page.shot('workers');
    worker.close();
    await row(page, 'the-worker').waitFor({ state: 'detached' });
    await page.leave();
});

test('a worker of several stages counts once, and the number of running jobs not shown is given', async () => {
    const server = await Server.start(['--store', 'mem:', '--shards', '3']);
    const worker = new Client(server);
    for (let i = 0; i < 101; i++) await worker.ask('PUSH', 'one', 'x');
    await worker.ask('PUSH', 'two', 'x', 'DELAY', 1e9);
    await worker.ask('TAKE', 'one', 'two', 'COUNT', 101);
    const page = await openPage(server.address, '#/');
    await page.main
        .locator('div')
        .filter({ hasText: /^Workers1$/ })
        .waitFor();
    await page.go('#/workers');
    await page.sees('100 of 101 jobs are shown.');
    await page.leave();
    worker.close();
    await server.stop();
});

test('a day is that of the clock beside it, wherever one is', async () => {
    const id = await push('yesterday', 'x', 'KEY', 'k');
    await world.client.kill('yesterday', 'no');
    const timezoneId = new Date().getUTCHours() < 11 ? 'Etc/GMT+12' : 'Etc/GMT-14'; // another day
    const dayMs = 24 * 3600 * 1000;
    const page = await open('#/', { timezoneId });
    const said = await (await fetch(`${world.server.address}api/jobs/${id}?body=1`)).json();
    said.job.reasons[0]['age-ms'] = dayMs;
    await page.route(`**/api/jobs/${id}*`, (route) => route.fulfill({ json: said }));
    await page.go(`#/job/${id}`);
    const day = new Date(Date.now() - dayMs).toLocaleDateString('sv', { timeZone: timezoneId });
    await page.sees(day);
    await page.leave();
});

// G11: a job that died shows what its worker printed last.
test('the end of what a failed attempt printed is shown with its reason', async () => {
    await push('wordy', 'x');
    const [[id, token]] = await world.client.ask('TAKE', 'wordy');
    await world.client.ask('FAIL', id, token, 'exit code 3', 'NEVER', 'OUTPUT', 'first <b>\nno such host\n');
    const page = await open(`#/job/${id}`);
    await page.sees('exit code 3');
    await page.main.locator('pre').filter({ hasText: 'first <b>\nno such host' }).waitFor();
    await page.leave();
});

// G11: what a worker says of a running job is shown, with a bar if the total is known.
test('a running job shows how far it is', async () => {
    const worker = new Client(world.server);
    await push('slowly', 'x', 'KEY', 'ann');
    const [[id, token]] = await worker.ask('TAKE', 'slowly');
    await worker.ask('PROGRESS', id, token, 3, 10, 'SAY', 'attachments <b>');
    const page = await open('#/stage/slowly');
    for (const [hash, place] of [
        ['#/stage/slowly', row(page, '3 of 10 attachments <b>')],
        ['#/workers', row(page, '3 of 10 attachments <b>')],
        [`#/job/${id}`, page.main.locator('.progress').filter({ hasText: '3 of 10 attachments <b>' })],
    ]) {
        await page.go(hash);
        await place.waitFor();
        equal(await place.locator('progress').evaluate((bar) => bar.value / bar.max), 0.3);
        await page.shot(`progress-${hash.split('/')[1]}`);
    }
    await worker.ask('PROGRESS', id, token, 1200, 0);
    await page.sees('1,200', '.progress');
    equal(await page.main.locator('.progress progress').isVisible(), false);
    await worker.ask('DONE', id, token);
    await page.main.locator('.progress').waitFor({ state: 'hidden' });
    await page.leave();
    worker.close();
});

// G6: jobs are counted before they are cancelled.
test('the jobs of a stage are cancelled by status and key, after counting them', async () => {
    for (let i = 0; i < 3; i++) await push('surplus', `${i}`, 'KEY', 'ann');
    for (let i = 0; i < 2; i++) await push('surplus', `${i}`, 'KEY', 'bob');
    await push('surplus', 'later', 'DELAY', 1e9);
    const page = await open('#/stage/surplus/jobs/waiting');
    await page.getByLabel('Key', { exact: true }).fill('ann');
    const jobs = page.getByRole('table', { name: 'Jobs', exact: true }).locator('tr');
    await jobs.filter({ hasText: 'bob' }).first().waitFor({ state: 'detached' });
    await page.press('Cancel all waiting jobs of this key…');
    await page.sees('Cancel 3 waiting jobs of surplus with key ann?', 'dialog');
    await page.shot('cancel-many');
    await page.agree('Leave it');
    equal((await world.client.ask('JOBS', 'surplus', 'STATUS', 'waiting')).length, 5);
    await page.press('Cancel all waiting jobs of this key…');
    await page.agree('Cancel 3 waiting jobs');
    await page.sees('3 jobs are cancelled', '.notices');
    await page.sees('No waiting job has this key.');
    const cancel = page.getByRole('button', { name: /^Cancel all/ });
    equal(await cancel.isDisabled(), true);
    await page.getByRole('button', { name: /^delayed/ }).click();
    await page.getByLabel('Key', { exact: true }).fill('');
    await page.press('Cancel all delayed jobs…');
    await page.agree('Cancel 1 delayed job');
    await page.sees('No job is delayed.');
    equal((await world.client.ask('JOBS', 'surplus', 'STATUS', 'waiting')).length, 2);
    await page.getByRole('button', { name: /^done/ }).click();
    await cancel.waitFor({ state: 'hidden' });
    await page.leave();
});

test('a key is paused and resumed beside its channel', async () => {
    for (let i = 0; i < 2; i++) for (const key of ['ann', 'bob']) await push('keys', 'x', 'KEY', key);
    const page = await open('#/stage/keys');
    const channel = page.getByRole('table', { name: 'Channels', exact: true }).locator('tr');
    const parked = page.getByRole('table', { name: 'Parked channels' }).locator('tr');
    await channel.filter({ hasText: 'ann' }).getByRole('button', { name: 'Pause' }).click();
    await page.sees('Key ann of keys is paused', '.notices');
    await channel.filter({ hasText: 'ann' }).filter({ hasText: 'after resume of its key' }).waitFor();
    await parked.filter({ hasText: 'ann' }).filter({ hasText: 'its key is paused' }).waitFor();
    await page.shot('paused-key');
    const [[id, token, , key]] = await world.client.ask('TAKE', 'keys', 'COUNT', 4);
    equal(key, 'bob');
    await world.client.ask('RELEASE', id, token);
    await parked.filter({ hasText: 'ann' }).getByRole('button', { name: 'Resume' }).click();
    await page.sees('Key ann of keys is resumed', '.notices');
    await channel.filter({ hasText: 'ann' }).filter({ hasText: 'ready' }).waitFor();
    await page.leave();
});

// G7, G8: groups of a stage, and why one is held.
test('the groups of a stage are shown with what holds them', async () => {
    await world.client.ask('STAGE', 'tenants', 'group', 'on', 'group-concurrency', '1');
    for (let i = 0; i < 3; i++) await push('tenants', 'x', 'KEY', `acme/${i}`);
    for (let i = 0; i < 2; i++) await push('tenants', 'x', 'KEY', `small/${i}`);
    const [[id, token]] = await world.client.ask('TAKE', 'tenants');
    const page = await open('#/stage/tenants');
    const group = page.getByRole('table', { name: 'Groups' }).locator('tbody tr');
    await group.filter({ hasText: 'acme' }).filter({ hasText: 'its concurrency' }).waitFor();
    equal(await group.allInnerTexts().then((rows) => rows.map((r) => r.split(/\s+/).slice(0, 4).join(' '))), [
        'acme 3 1 2',
        'small 2 0 2',
    ]);
    await page.shot('groups');
    await world.client.ask('DONE', id, token);
    await group.filter({ hasText: 'its concurrency' }).waitFor({ state: 'detached' });
    await page.go('#/stage/keys');
    await page.getByRole('table', { name: 'Groups' }).waitFor({ state: 'hidden' });
    await page.leave();
});

test('epics are shown with their progress', async () => {
    for (let i = 1; i <= 4; i++) await push('tale', `${i}`, 'EPIC', 'june', i);
    await world.client.ask('EPIC', 'tale', 'june', 'END', 8);
    const [[id, token]] = await world.client.ask('TAKE', 'tale');
    await world.client.ask('DONE', id, token);
    const page = await open('#/epics');
    await row(page, 'june')
        .filter({ hasText: '4 read, 1 ended of 8' })
        .filter({ hasText: 'No worker' })
        .waitFor();
    await page.shot('epics');
    await row(page, 'june').getByRole('button', { name: 'Then…' }).click();
    await page.getByLabel('Stage').fill('report');
    await page.getByLabel('Body').fill('june is over');
    await page.getByRole('button', { name: 'Push it then' }).click();
    await row(page, 'june').filter({ hasText: 'pushes to report' }).waitFor();
    await row(page, 'june').getByRole('button', { name: 'Cancel', exact: true }).click();
    await page.getByRole('button', { name: 'Cancel the epic' }).click();
    await row(page, 'june').filter({ hasText: 'cancelled, pushed what follows' }).waitFor();
    await row(page, 'june').getByRole('button', { name: 'Drop', exact: true }).click();
    await page.getByRole('button', { name: 'Drop the epic' }).click();
    await row(page, 'june').waitFor({ state: 'hidden' });
    await page.leave();
});

test('schedules are shown with their next five times, paused, run and dropped', async () => {
    const ask = (...words) => world.client.ask('SCHEDULE', 'clock', ...words);
    await ask('nightly', 'CRON', '30 2 * * *', 'TZ', 'Europe/Berlin', 'MISSED', 'one', 'PUSH', 'all', 'KEY', 'k');
    await ask('poll', 'EVERY', '90s', 'PUSH', 'inbox');
    const page = await open('#/schedules');
    const nightly = row(page, 'nightly').filter({ hasText: '30 2 * * *' }).filter({ hasText: 'Europe/Berlin' });
    await nightly.filter({ hasText: 'ready' }).filter({ hasText: 'one' }).waitFor();
    const times = await nightly.locator('.times div').allTextContents();
    equal(times.length, 5);
    check(times.every((text) => / \d{4}-\d\d-\d\d 02:30$/.test(text)), times);
    await row(page, 'poll').filter({ hasText: 'every 1 min 30 s' }).waitFor();
    await page.shot('schedules');
    await nightly.getByRole('button', { name: 'Pause' }).click();
    await page.sees('nightly is paused', '.notices');
    await nightly.filter({ hasText: 'paused' }).getByRole('button', { name: 'Resume' }).waitFor();
    equal(await nightly.locator('.times div').count(), 0);
    await nightly.getByRole('button', { name: 'Push now' }).click();
    await page.sees('nightly has pushed a job', '.notices');
    const [[id, token]] = await world.client.ask('TAKE', 'clock');
    await world.client.ask('DONE', id, token);
    await nightly.getByRole('button', { name: 'Resume' }).click();
    await nightly.filter({ hasText: 'ready' }).waitFor();
    await row(page, 'poll').getByRole('button', { name: 'Drop…' }).click();
    await page.getByRole('button', { name: 'Drop the schedule' }).click();
    await page.sees('poll is dropped', '.notices');
    await row(page, 'poll').waitFor({ state: 'detached' });
    await page.leave();
    await ask('nightly', 'DROP');
});

test('a job is pushed by hand, and a refusal is reported', async () => {
    const page = await open('#/push');
    await page.getByLabel('Stage').fill('by.hand');
    await page.getByLabel('Key').fill('ann');
    await page.getByLabel('Delay', { exact: true }).fill('90');
    await page.getByLabel('Body').fill('hello');
    await page.shot('push');
    await page.press('Push');
    await page.sees('Pushed as job');
    const [job] = await world.client.ask('JOBS', 'by.hand');
    equal([job[job.indexOf('key') + 1], job[job.indexOf('status') + 1]], ['ann', 'delayed']);
    await world.client.ask('DRAIN', 'by.hand');
    await page.press('Push');
    await page.sees('drain', '.error');
    await page.getByLabel('Stage').fill('not allowed');
    await page.press('Push');
    equal(await page.getByLabel('Stage').evaluate((input) => input.checkValidity()), false);
    await page.leave();
});
