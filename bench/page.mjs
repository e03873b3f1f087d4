#!/usr/bin/env node
// page.mjs ROOT BUILD: the cost of the page and its responses: bytes sent, time to the first data, the server's CPU
// time and wake-ups with and without an open page, and the time of each response with a million queued jobs. CPU
// time is that of the server's thread, as the system counts it; with other load on the machine, times by the clock
// are upper bounds. docs/page.md has the figures.
import fs from 'node:fs';
import { Client, Server, open, push, startBrowser, world } from '../test/web/page_support.mjs';

const SECONDS = 10,
    LOADS = 7,
    ASKED = 300,
    STAGES = 100;

const pid = () => world.server.process.pid;
const cpuMs = () => Number(fs.readFileSync(`/proc/${pid()}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
const wakeUps = () =>
    Number(
        /^voluntary_ctxt_switches:\s+(\d+)/m.exec(
            fs.readFileSync(`/proc/${pid()}/status`, 'utf8'),
        )[1],
    );
const pass = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
const tell = (what, value, unit) =>
    console.log(`${what.padEnd(62)} ${value.toFixed(2).padStart(10)} ${unit}`);

async function size() {
    const page = await open('#/');
    await page.sees('stage-0');
    const used = await page.evaluate(() =>
        performance.getEntriesByType('resource').map((e) => e.name),
    );
    let total = 0;
    for (const file of [world.server.address, ...used.filter((name) => !name.includes('/api/'))])
        total += Number((await fetch(file)).headers.get('content-length'));
    tell('all files, compressed', total / 1000, 'kB');
    await page.leave();
}

// From the request for the page to the first stage that is drawn, with nothing in the browser's cache.
async function firstData() {
    const times = [];
    for (let i = 0; i < LOADS; i++) {
        const context = await world.browser.newContext();
        const page = await context.newPage();
        await page.addInitScript(() => {
            const seen = new MutationObserver(() => {
                if (!document.querySelector('tbody tr')) return;
                seen.disconnect();
                requestAnimationFrame(() =>
                    requestAnimationFrame(() => (window.drawn = performance.now())),
                );
            });
            seen.observe(document, { childList: true, subtree: true });
        });
        await page.goto(world.server.address);
        times.push(await (await page.waitForFunction(() => window.drawn)).jsonValue());
        await context.close();
    }
    tell('first stages drawn, of 100: median', median(times), 'ms');
    tell('first stages drawn, of 100: least', Math.min(...times), 'ms');
}

// What the server, and the page's thread, do in a while.
async function during(what, page) {
    const metrics = page && (await page.context().newCDPSession(page));
    const busy = async () =>
        1000 *
        (await metrics.send('Performance.getMetrics')).metrics.find(
            (m) => m.name === 'TaskDuration',
        ).value;
    await metrics?.send('Performance.enable', { timeDomain: 'threadTicks' });
    await pass(1);
    const [cpu, wakes, task] = [cpuMs(), wakeUps(), page ? await busy() : 0];
    await pass(SECONDS);
    tell(`${what}: server's CPU a second`, (cpuMs() - cpu) / SECONDS, 'ms');
    tell(`${what}: server's wake-ups a second`, (wakeUps() - wakes) / SECONDS, '');
    if (page) tell(`${what}: the page's thread a second`, ((await busy()) - task) / SECONDS, 'ms');
}

async function looks() {
    const page = await open('#/');
    await page.sees('stage-0');
    await during(`the overview of ${STAGES} stages`, page);
    await page.go('#/stage/stage-0');
    await page.locator('canvas').nth(3).waitFor();
    await during('a stage with its plots', page);
    await page.leave();
}

async function answers() {
    const items = Array.from({ length: 1000 }, (_, i) => [`key ${i % 500}`, 'x']).flat();
    for (let i = 0; i < 1000; i++) await world.client.ask('PUSHMANY', 'million', 'ITEMS', ...items);
    for (const path of [
        'healthz',
        'api/stages',
        'api/stage?stage=million',
        'api/channels?stage=million&top=200',
        'api/jobs?stage=million&status=waiting&count=25',
        'api/jobs?stage=million&parked=1&count=20',
        'api/jobs/500000',
        'api/dead?count=100',
        'api/epics',
        'api/workers',
        'metrics',
    ]) {
        const begun = cpuMs();
        for (let i = 0; i < ASKED; i++)
            await (await fetch(`${world.server.address}${path}`)).arrayBuffer();
        tell(`a million queued: /${path}`, (1000 * (cpuMs() - begun)) / ASKED, 'µs');
    }
}

const { browser, why } = await startBrowser();
if (why) throw new Error(why);
world.browser = browser;
world.server = await Server.start(['--store', 'mem:']);
world.client = new Client(world.server);
await during('nobody looks, no stage');
for (let i = 0; i < STAGES; i++) await push(`stage-${i}`);
await size();
await firstData();
await during(`nobody looks, ${STAGES} stages`);
await looks();
await answers();
await browser.close();
world.client.close();
await world.server.stop();
