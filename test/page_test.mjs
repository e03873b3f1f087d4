#!/usr/bin/env node
// page_test.mjs ROOT BUILD: the page in a browser, against a real server with real work: every view, every
// action, and what it does when things go wrong. MILLRACE_CASE=text runs the cases whose names contain it.
import fs from 'node:fs';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import { BUILD, Client, MILLRACE, Server, check, equal, openPage, runAll, startBrowser, test, top }
  from './page_support.mjs';

const { browser, why } = await startBrowser();
if (why) {
  console.log(`1..0 # SKIP ${why}`);
  process.exit(0);
}
const server = await Server.start(['--store', `file:${path.join(top, 'data')}`]);
const client = new Client(server);
const open = (hash, options) => openPage(browser, server.address, hash, options);

if ((await fetch(server.address)).status === 404) {
  console.log('1..0 # SKIP the page was left out of this build');
  process.exit(0);
}

const push = (stage, body = 'body', ...more) => client.ask('PUSH', stage, body, ...more);

// The texts of a row of a table, found by a text in it.
const row = (page, text) => page.locator('tbody tr').filter({ hasText: text }).first();

// ---- Views -------------------------------------------------------------------------------------

test('the overview shows stages, what holds them and what would change that', async () => {
  await push('over.idle');
  await push('over.paused');
  await client.ask('PAUSE', 'over.paused');
  const page = await open('#/');
  await page.sees('No worker asks for its jobs');
  await page.sees('millrace work over.idle -- COMMAND');
  await row(page, 'over.paused').getByRole('button', { name: 'Resume' }).click();
  await page.sees('over.paused goes on', '.notices');
  await row(page, 'over.paused').filter({ hasText: 'No worker' }).waitFor();
  await page.sees('has room', '.facts');
  await page.shot('overview');
  await row(page, 'over.idle').getByRole('link', { name: 'over.idle' }).click();
  await page.getByRole('heading', { level: 1, name: 'over.idle' }).waitFor();
  await page.leave();
});

test('an empty server says what to do next', async () => {
  const empty = await Server.start(['--store', 'mem:']);
  const page = await openPage(browser, empty.address, '#/');
  await page.sees('millrace push mail hello');
  for (const [hash, text] of [['#/dead', 'No dead letter'], ['#/workers', 'millrace work'],
    ['#/epics', '--epic'], ['#/nowhere', 'There is no such view'], ['#/stage/nobody', 'No stage is called nobody'],
    ['#/job/99999', 'is not known']]) {
    await page.go(hash);
    await page.sees(text);
  }
  await page.leave();
  await empty.stop();
});

test('B6: a stage draws its queue, and its time split into waiting and running', async () => {
  const worker = new Client(server);
  for (let i = 0; i < 40; i++) await push('plots', `job ${i}`);
  for (const [id, token] of await worker.ask('TAKE', 'plots', 'COUNT', 20, 'LEVEL', 4)) await worker.ask('DONE', id, token);
  const page = await open('#/stage/plots');
  await page.locator('canvas').nth(3).waitFor();
  for (const [title, unit] of [['Queue', 'jobs'], ['Time in the system', 'p50'], ['In and out', 'a second'],
    ['Throughput by level', 'a second']])
    await page.locator('figcaption').filter({ hasText: title }).filter({ hasText: unit }).waitFor();
  const legends = (await page.locator('.legend li').allTextContents()).join(' ');
  for (const name of ['waiting', 'running', 'waiting p50', 'waiting p99', 'running p50', 'running p99', 'pushed', 'done'])
    check(legends.includes(name), `${name} is not in ${legends}`);
  await page.locator('.plot').filter({ hasText: 'Queue' }).locator('li').filter({ hasText: 'waiting 20' }).waitFor();
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
  await page.sees('No worker asks');
  await page.press('Drain');
  await page.agree('Leave it');
  await push('switch');
  await page.press('Drain');
  await page.shot('dialog');
  await page.agree('Drain it');
  await page.sees('switch drains', '.notices');
  const refused = await push('switch').catch((error) => error.message);
  check(String(refused).startsWith('DRAINING'), refused);
  await page.press('Resume');
  await page.sees('switch goes on', '.notices');
  await push('switch');
  await page.leave();
});

test('the policy of a stage is shown and changed; what is wrong is said', async () => {
  await push('rules');
  const page = await open('#/stage/rules/policy');
  const attempts = page.getByLabel('attempts', { exact: true });
  await attempts.fill('three');
  await page.press('Save');
  await page.locator('.notice.bad').filter({ hasText: 'attempts' }).waitFor();
  await attempts.fill('3');
  await page.getByLabel('concurrency').fill('2');
  await page.press('Save');
  await page.sees('The policy of rules is changed', '.notices');
  const policy = await client.ask('STAGE', 'rules');
  equal([policy[policy.indexOf('attempts') + 1], policy[policy.indexOf('concurrency') + 1]], ['3', '2']);
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
  const [[id, token]] = await client.ask('TAKE', 'lanes');
  await client.ask('FAIL', id, token, 'the line was busy', 'RETRY', '600000');
  await row(page, 'the line was busy').filter({ hasText: 'in 9 min' }).waitFor();
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
  await row(page, '59 min').waitFor();
  await page.leave();
});

test('a job shows its attempts and its body, as JSON, text and digits', async () => {
  const id = await push('one', '{"to": "ann", "list": [1, 2]}', 'KEY', 'ann');
  const [[, token]] = await client.ask('TAKE', 'one');
  await client.ask('FAIL', id, token, 'no answer', 'RETRY', '3600000');
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

test('a done job shows its result, and bytes that are no text are digits', async () => {
  const id = await push('results', Buffer.from([0, 255, 1]));
  const page = await open(`#/job/${id}`);
  await page.sees('00 ff 01', 'pre');
  const [[, token]] = await client.ask('TAKE', 'results');
  await client.ask('DONE', id, token, 'RESULT', 'all is well');
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
  await client.kill('dying', 'it broke');
  const page = await open(`#/job/${id}`);
  await page.press('Retry');
  await page.sees('waiting', 'h1');
  await client.kill('dying', 'it broke again');
  await page.sees('dead', 'h1');
  await page.press('Drop');
  await page.agree('Drop the job');
  await page.sees('is not known');
  await page.leave();
});

// ---- Dead letters ------------------------------------------------------------------------------

async function bury(stage, count, reason, key = 'k') {
  const ids = [];
  for (let i = 0; i < count; i++) {
    await push(stage, 'x', 'KEY', `${key}${i}`);
    ids.push(await client.kill(stage, reason));
  }
  return ids;
}

const deadCount = async (stage) => (await client.ask('DEAD', stage)).length;

test('dead letters are found by stage, key and reason', async () => {
  await bury('grave.a', 2, 'out of paper');
  await bury('grave.b', 2, 'out of ink', 'q');
  const page = await open('#/dead?stage=grave.a');
  await row(page, 'out of paper').waitFor();
  equal(await page.locator('[aria-label="Dead letters"] tbody tr').count(), 2);
  await page.getByLabel('Stage').selectOption('');
  await row(page, 'out of ink').waitFor();
  await page.getByLabel('Reason').fill('of ink');
  await page.sheds('out of paper', 'tbody tr');
  await page.getByLabel('Key').fill('q1');
  await row(page, 'q0').waitFor({ state: 'detached' });
  await row(page, 'q1').getByRole('link').first().click();
  await page.sees('out of ink');
  await page.leave();
});

test('one, some and all dead letters are retried or dropped, and counted first', async () => {
  const [first, second, third] = await bury('yard', 6, 'lost');
  const page = await open('#/dead?stage=yard');
  await row(page, first).getByRole('button', { name: 'Retry' }).click();
  await page.sees(`Job ${first} lives again`, '.notices');
  await row(page, first).waitFor({ state: 'detached' });
  for (const id of [second, third]) await page.getByLabel(`Choose job ${id}`).check();
  await page.press('Drop 2 chosen jobs');
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
  const worker = new Client(server);
  await worker.ask('CLIENT', 'SETNAME', 'the-worker');
  await push('busy', 'x', 'KEY', 'the-key');
  const [[id]] = await worker.ask('TAKE', 'busy', 'LEVEL', 7);
  const page = await open('#/workers');
  await row(page, 'the-worker').filter({ hasText: '7' }).waitFor();
  await page.getByRole('link', { name: id, exact: true }).waitFor();
  await page.shot('workers');
  worker.close();
  await row(page, 'the-worker').waitFor({ state: 'detached' });
  await page.leave();
});

test('epics are shown with their progress', async () => {
  for (let i = 1; i <= 4; i++) await push('tale', `${i}`, 'EPIC', 'june', i);
  await client.ask('EPIC', 'june', 'END', 8);
  const [[id, token]] = await client.ask('TAKE', 'tale');
  await client.ask('DONE', id, token);
  const page = await open('#/epics');
  await row(page, 'june').filter({ hasText: '1 of 8' }).waitFor();
  await page.shot('epics');
  await page.leave();
});

test('a job is pushed by hand, and what is refused is said', async () => {
  const page = await open('#/push');
  await page.getByLabel('Stage').fill('by.hand');
  await page.getByLabel('Key').fill('ann');
  await page.getByLabel('Delay', { exact: true }).fill('90');
  await page.getByLabel('Body').fill('hello');
  await page.shot('push');
  await page.press('Push');
  await page.sees('Pushed as job');
  const [job] = await client.ask('JOBS', 'by.hand');
  equal([job[job.indexOf('key') + 1], job[job.indexOf('status') + 1]], ['ann', 'delayed']);
  await client.ask('DRAIN', 'by.hand');
  await page.press('Push');
  await page.sees('drain', '.error');
  await page.getByLabel('Stage').fill('not allowed');
  await page.press('Push');
  equal(await page.getByLabel('Stage').evaluate((input) => input.checkValidity()), false);
  await page.leave();
});

// ---- When things go wrong ----------------------------------------------------------------------

test('a restart of the server is noticed, said and lived through', async () => {
  const own = await Server.start(['--store', `file:${path.join(top, 'restarts')}`]);
  const asker = new Client(own);
  await asker.ask('PUSH', 'before', 'x');
  const page = await openPage(browser, own.address, '#/');
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
    LD_PRELOAD: path.join(BUILD, 'test/libfaulty.so'), MILLRACE_FAULTS: orders,
    ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ''}:verify_asan_link_order=0` });
  return { made, order, asker: new Client(made) };
}

test('a stopped log is said in a banner, and actions say why they fail', async () => {
  const { made, order, asker } = await faulty('stops');
  await asker.ask('PUSH', 's', 'x');
  const page = await openPage(browser, made.address, '#/stage/s');
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

test('a full disk and full memory are said in a banner, and that they have room again', async () => {
  const { made, order, asker } = await faulty('fills');
  const page = await openPage(browser, made.address, '#/');
  order('allocate ENOSPC\n');
  let refused = null;
  while (!refused) await asker.ask('PUSH', 's', 'x'.repeat(1000_000)).catch((error) => { refused = error.message; });
  check(refused.startsWith('FULL'), refused);
  await page.sees('The disk is full', '.banner');
  order('');
  await page.locator('.banner p').waitFor({ state: 'detached' });
  await page.leave();
  asker.close();
  await made.stop();
});

test('full memory is said in a banner', async () => {
  const small = await Server.start(['--store', 'mem:', '--max-bytes', '48MiB']);
  const asker = new Client(small);
  let refused = null;
  while (!refused) await asker.ask('PUSH', 's', 'x'.repeat(1000_000)).catch((error) => { refused = error.message; });
  const page = await openPage(browser, small.address, '#/');
  await page.sees('Memory is', '.banner');
  await page.leave();
  asker.close();
  await small.stop();
});

function token(file, name, roles) {
  const done = spawnSync(MILLRACE, ['auth', 'add', name, '--role', roles, '--auth', file], { encoding: 'utf8' });
  check(done.status === 0, done.stderr);
  return done.stdout.trim();
}

test('a token is asked for; a wrong one is said; one that only reads cannot act', async () => {
  const file = path.join(top, 'auth');
  const all = token(file, 'boss', 'admin,read,push'), reads = token(file, 'guest', 'read');
  const guarded = await Server.start(['--store', 'mem:', '--auth', file]);
  const boss = new Client(guarded);
  await boss.ask('AUTH', all);
  await boss.ask('PUSH', 'secret.stage', 'x');
  const page = await openPage(browser, guarded.address, '#/');
  await page.getByLabel('Token').fill('wrong');
  await page.shot('token');
  await page.press('Continue');
  await page.sees('This token is not accepted');
  await page.getByLabel('Token').fill(reads);
  await page.press('Continue');
  await row(page, 'secret.stage').waitFor();
  await page.go('#/stage/secret.stage');
  await page.press('Pause');
  await page.sees('This token may not do that', '.notice.bad');
  await page.sees('Only a token with the role admin sees the policy');
  equal(await page.evaluate(() => [Object.keys(sessionStorage).length, Object.values(localStorage).join()]), [1, '']);
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
  const [[, taken]] = await client.ask('TAKE', 'evil');
  await client.ask('FAIL', id, taken, EVIL, 'NEVER');
  await client.ask('PUSH', 'evil', 'x', 'EPIC', EVIL, 1);
  const worker = new Client(server);
  await worker.ask('CLIENT', 'SETNAME', '<b>bold</b>');
  await worker.ask('TAKE', 'evil.none');
  const page = await open('#/');
  for (const hash of [`#/job/${id}`, '#/dead?stage=evil', '#/epics', '#/stage/evil/jobs/waiting']) {
    await page.go(hash);
    await page.sees('onerror="window.broken=1"');
  }
  await page.go('#/workers');
  await page.sees('<b>bold</b>');
  for (const hash of [`#/stage/${encodeURIComponent(EVIL)}`, `#/push?stage=${encodeURIComponent(EVIL)}`, `#/${EVIL}`]) {
    await page.go(hash);
    await page.locator('h1').first().waitFor();
  }
  equal(await page.evaluate(() => window.broken ?? 'whole'), 'whole');
  await page.leave();
  worker.close();
});

test('a million waiting jobs are looked at as quickly as a few', async () => {
  const items = Array.from({ length: 1000 }, (_, i) => [`key ${i % 500}`, 'x']).flat();
  const replies = [];
  for (let i = 0; i < 1000; i++) replies.push(client.ask('PUSHMANY', 'million', 'ITEMS', ...items));
  await Promise.all(replies);
  const page = await open('#/');
  await row(page, 'million').filter({ hasText: '1,000,000' }).waitFor();
  await page.go('#/stage/million/jobs/waiting');
  await page.locator('[aria-label="Jobs"] tbody tr').nth(24).waitFor();
  await row(page, 'key 1').waitFor();
  await page.shot('million');
  await page.leave();
});

// ---- How it looks and is used ------------------------------------------------------------------

const VIEWS = ['#/', '#/stage/plots', '#/dead', '#/workers', '#/epics', '#/push'];

test('nothing is wider than a phone', async () => {
  const page = await open('#/', { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true });
  const [job] = await client.ask('JOBS', 'lists', 'COUNT', 1);
  for (const hash of [...VIEWS, `#/job/${job[1]}`]) {
    await page.go(hash);
    await page.locator('main .panel').first().waitFor();
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    check(wide <= room, `${hash} is ${wide} wide, there is room for ${room}`);
    await page.shot(`phone-${hash.replace(/\W+/g, '-')}`);
  }
  await page.leave();
});

// How well two colours can be told apart, 1 to 21.
function contrast(a, b) {
  const light = (colour) => {
    const [r, g, bl] = colour.match(/[\d.]+/g).slice(0, 3).map(Number)
      .map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * bl;
  };
  const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

const colours = (page) => page.evaluate(() => {
  const probe = document.body.appendChild(document.createElement('i'));
  const of = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const names = ['page', 'panel', 'sunk', 'ink', 'soft', 'accent', 'good', 'warn', 'bad', 'good-back', 'warn-back', 'bad-back'];
  return Object.fromEntries(names.map((name) => [name, of(name)]));
});

test('light and dark follow the system, or the choice, and can be read', async () => {
  const page = await open('#/', { colorScheme: 'light' });
  await page.locator('main .panel').first().waitFor();
  const light = await colours(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await colours(page);
  check(light.page !== dark.page, 'dark is as light');
  for (const c of [light, dark]) {
    const pairs = [...['ink', 'soft', 'accent', 'good', 'warn', 'bad'].flatMap((name) => [[name, 'panel'], [name, 'sunk']]),
      ['ink', 'page'], ['soft', 'page'], ['good', 'good-back'], ['warn', 'warn-back'], ['bad', 'bad-back'], ['ink', 'bad-back']];
    for (const [front, back] of pairs)
      check(contrast(c[front], c[back]) >= 4.5, `${front} on ${back}: ${contrast(c[front], c[back]).toFixed(2)}`);
  }
  await page.shot('dark');
  await page.press('Colours', '.bar');
  equal(await colours(page), light, 'when light is chosen');
  await page.reload();
  await page.locator('main .panel').first().waitFor();
  equal((await colours(page)).page, light.page, 'after loading it again');
  await page.leave();
});

test('the keyboard is enough', async () => {
  const page = await open('#/dead?stage=grave.a');
  await row(page, 'out of paper').waitFor();
  const before = await deadCount('grave.a');
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('Tab');
  equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');
  await page.keyboard.press('Enter');
  equal(await page.evaluate(() => document.activeElement.id), 'main');
  await row(page, 'out of paper').getByRole('button', { name: 'Drop' }).focus();
  await page.keyboard.press('Enter');
  await page.locator('dialog').waitFor();
  equal(await page.evaluate(() => document.activeElement.textContent), 'Leave it');
  await page.keyboard.press('Escape');
  await page.locator('dialog').waitFor({ state: 'detached' });
  equal(await deadCount('grave.a'), before);
  equal(await page.evaluate(() => document.activeElement.textContent), 'Drop', 'focus comes back');
  await page.leave();
});

test('everything that can be used has a name, and the page has its landmarks', async () => {
  const page = await open('#/');
  for (const hash of VIEWS) {
    await page.go(hash);
    await page.locator('main .panel').first().waitFor();
    const nameless = await page.evaluate(() => [...document.querySelectorAll('button, a[href], input, select, textarea')]
      .filter((node) => node.checkVisibility() && !(node.textContent.trim() || node.getAttribute('aria-label') || node.labels?.length))
      .map((node) => node.outerHTML));
    equal(nameless, [], hash);
    const marks = await page.evaluate(() => ['header', 'nav', 'main', 'footer', 'h1'].map((name) => document.querySelectorAll(name).length));
    equal(marks, [1, 1, 1, 1, 1], hash);
  }
  await page.leave();
});

// ---- What is sent ------------------------------------------------------------------------------

test('the page is small: 150 kB in all, compressed', async () => {
  const page = await open('#/');
  const sizes = new Map();
  page.on('response', async (response) => {
    if (!response.url().includes('/api/')) sizes.set(response.url(), await response.request().sizes());
  });
  await page.reload();
  await page.locator('main .panel').first().waitFor();
  const total = [...sizes.values()].reduce((sum, s) => sum + s.responseBodySize, 0);
  check(sizes.size >= 3 && total > 10_000 && total <= 150_000, `${sizes.size} files, ${total} bytes`);
  console.log(`# ${sizes.size} files, ${total} bytes compressed`);
  await page.leave();
});

const failed = await runAll();
client.close();
await server.stop();
await browser.close();
process.exit(failed);
