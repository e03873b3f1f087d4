// Flows on the page: what `millrace flow` runs on a server, operator by operator, and what other programs join
// by emitting.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { findFlows, flowState } from '../../web/src/flows.js';
import {
    Client,
    MILLRACE,
    Server,
    check,
    equal,
    open,
    openPage,
    push,
    row,
    test,
    top,
    world,
} from './page_support.mjs';

const stage = (name, feeds = [], more = {}) => ({
    name,
    feeds,
    states: 0,
    waiting: 0,
    running: 0,
    delayed: 0,
    done: 0,
    dead: 0,
    ...more,
});

const shapes = (stages) => findFlows(stages).map((f) => [f.name, f.operators.map((s) => s.name)]);

test('E1: stages joined by emits are a flow, in the order in which jobs pass them', async () => {
    equal(shapes([stage('alone'), stage('b'), stage('a', ['b'])]), [['a', ['a', 'b']]]);
    equal(shapes([stage('w/sink'), stage('w/a', ['w/b', 'w/sink']), stage('w/b', ['w/sink'])]), [
        ['w', ['w/a', 'w/b', 'w/sink']],
    ]);
    equal(shapes([stage('in', ['w/a']), stage('w/a', ['w/b']), stage('w/b', [])]), [
        ['w', ['in', 'w/a', 'w/b']],
    ]);
    // A loop starts with its first stage; a stage that feeds itself is not a flow; edges to hidden stages are ignored.
    equal(shapes([stage('x', ['y']), stage('y', ['x'])]), [['x', ['x', 'y']]]);
    equal(shapes([stage('self', ['self']), stage('z', ['hidden'])]), []);
    // Before any job has passed it a flow is known by its plan; names with slashes alone are none.
    equal(shapes([stage('f/a'), stage('f/b'), stage('f', [], { states: 1 })]), [
        ['f', ['f/a', 'f/b']],
    ]);
    equal(shapes([stage('g/a'), stage('g/b'), stage('g')]), []);
});

test('E1: the state of a flow is running, waiting, started or finished', async () => {
    const of = (more, plan, epics = []) =>
        flowState({ operators: [stage('f/a', [], more)], plan }, epics);
    equal(of({ running: 1 }), 'running');
    equal(of({ waiting: 1 }), 'waiting');
    equal(of({}, { states: 1 }, [{ total: -1, resume: 3 }]), 'started');
    equal(of({}, { states: 1 }, [{ total: 2, resume: 3 }]), 'finished');
    equal(of({}), 'finished');
});

// A flow in a process of its own, whose step begins when go() was called.
async function runFlow(server, folder) {
    fs.mkdirSync(folder);
    fs.writeFileSync(path.join(folder, 'lines.txt'), 'one a\ntwo b\nthree a\n'.repeat(2000));
    fs.writeFileSync(
        path.join(folder, 'words.yaml'),
        [
            'flow: words',
            'source: { lines: lines.txt }',
            'steps:',
            '  - { name: hold, map: [sh, -c, "read line; until test -e go; do sleep 0.1; done; echo $line; while read line; do echo $line; done"], mode: filter, jobs: 1 }',
            '  - { name: count, aggregate: count, key: field 2 }',
            'sink: { file: out.tsv }',
            '',
        ].join('\n'),
    );
    const child = spawn(
        MILLRACE,
        ['flow', path.join(folder, 'words.yaml'), '--at', `millrace://127.0.0.1:${server.port}`],
        { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text) => (said += text));
    process.on('exit', () => child.kill('SIGKILL'));
    return {
        go: () => fs.writeFileSync(path.join(folder, 'go'), ''),
        said: () => said,
        ended: new Promise((resolve) => child.on('exit', resolve)),
    };
}

test('E1: a flow that runs is shown operator by operator, with how far its source is', async () => {
    const own = await Server.start(['--store', 'mem:']);
    const flow = await runFlow(own, path.join(top, 'flow'));
    const page = await openPage(own.address, '#/flows');
    await page.getByRole('heading', { level: 2, name: 'words running' }).waitFor();
    const operators = page.locator('[aria-label="Operators of words"] tbody tr');
    await operators.nth(3).waitFor();
    equal(await operators.locator('td:first-child').allTextContents(), [
        'source',
        'hold',
        'count',
        'sink',
    ]);
    await row(page, /\d+ read, \d+ ended|all \d+ ended/).waitFor();
    await operators.nth(0).filter({ hasText: 'hold' }).waitFor();
    await page.shot('flow');
    flow.go();
    equal(await flow.ended, 0, flow.said());
    await page.getByRole('heading', { level: 2, name: 'words finished' }).waitFor();
    await operators.nth(1).getByRole('link', { name: 'hold' }).click();
    await page.getByRole('heading', { level: 1, name: 'words/hold' }).waitFor();
    await page.getByRole('link', { name: 'words/count' }).waitFor();
    await page.leave();
    await own.stop();
});

test('E1: jobs that any program emits make a flow; its dead are counted where they died', async () => {
    const worker = new Client(world.server);
    await push('mill.read', 'x', 'EPIC', 'mill', 1);
    await world.client.ask('EPIC', 'mill.read', 'mill', 'OF', 40);
    const [[id, token]] = await worker.ask('TAKE', 'mill.read');
    await worker.ask('DONE', id, token, 'EMIT', 'mill.grind', 'k', 'y');
    await worker.kill('mill.grind', 'the stone broke');
    const page = await open('#/flows');
    const panel = page.locator('section.panel').filter({ hasText: 'mill.read' });
    await panel.filter({ hasText: '1 read, 1 ended of about 40' }).waitFor();
    const grind = panel.locator('tbody tr').filter({ hasText: 'mill.grind' }).last();
    await grind.getByRole('link', { name: '1', exact: true }).click();
    await row(page, 'the stone broke').waitFor();
    check(page.url().endsWith('#/dead?stage=mill.grind'), page.url());
    await page.leave();
    worker.close();
});
