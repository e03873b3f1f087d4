// A flow drawn as a graph: layers, edges, loops, and what stands in the boxes.
import { layersOf, place } from '../../web/src/graph.js';
import { Client, Server, check, equal, openPage, test } from './page_support.mjs';

const stage = (name, ...feeds) => ({ name, feeds });
const layers = (stages) => layersOf(stages).layers.map((l) => l.map((n) => n.name ?? '·'));

test('E1: a graph has a layer for each step, free places for long edges, and dashes for loops', async () => {
    equal(layers([stage('a', 'b'), stage('b', 'c'), stage('c')]), [['a'], ['b'], ['c']]);
    equal(layers([stage('a', 'b', 'c'), stage('b', 'c'), stage('c')]), [['a'], ['b', '·'], ['c']]);
    const loop = layersOf([stage('a', 'b', 'a', 'hidden'), stage('b', 'a')]);
    equal(loop.edges.map((e) => [e.from.name, e.to.name, e.back]), [['a', 'b', false], ['b', 'a', true]]);
    // Two chains do not cross, in whichever order their stages come.
    const chains = layers([stage('p', 'x'), stage('q', 'y'), stage('y', 'z'), stage('x', 'w'), stage('z'), stage('w')]);
    equal(chains[0].map((n) => ({ p: 0, q: 1 })[n]), chains[1].map((n) => ({ x: 0, y: 1 })[n]));
    equal(chains[1].map((n) => ({ x: 0, y: 1 })[n]), chains[2].map((n) => ({ w: 0, z: 1 })[n]));
});

test('E1: boxes of forty stages do not overlap; a long chain goes down', async () => {
    const wide = Array.from({ length: 40 }, (_, i) =>
        stage(`s${i}`, ...[2 * i + 1, 2 * i + 2, 3 * i + 5].filter((n) => n < 40).map((n) => `s${n}`)),
    );
    for (const room of [360, 1200]) {
        const shape = layersOf(wide);
        const { width, height } = place(shape, room);
        const boxes = shape.layers.flat().filter((n) => n.name);
        equal(boxes.length, 40);
        for (const a of boxes) {
            check(a.x >= 86 && a.x <= width - 86 && a.y >= 23 && a.y <= height - 23, `${a.name} is outside`);
            for (const b of boxes)
                check(a === b || Math.abs(a.x - b.x) >= 172 || Math.abs(a.y - b.y) >= 46, `${a.name} ${b.name}`);
        }
    }
    const chain = Array.from({ length: 40 }, (_, i) => stage(`s${i}`, `s${i + 1}`));
    equal(place(layersOf(chain), 1200).down, true);
    equal(place(layersOf(chain.slice(0, 4)), 1200).down, false);
});

test('E1: a flow is drawn; a box leads to its stage, by keyboard, too; names stay text', async () => {
    const own = await Server.start(['--store', 'mem:']);
    const client = new Client(own);
    const emit = async (from, ...to) => {
        await client.ask('PUSH', from, 'x');
        const [[id, token]] = await client.ask('TAKE', from);
        await client.ask('DONE', id, token, ...to.flatMap((name) => ['EMIT', name, 'k', 'y']));
    };
    const long = `g/a-stage-with-a-name-that-is-longer-than-its-box`;
    await emit('g/read', 'g/parse', long);
    await emit('g/parse', 'g/count', 'g/parse');
    await client.kill('g/parse', 'it broke');
    const page = await openPage(own.address, '#/flows');
    const graph = page.locator('svg.graph');
    await graph.locator('a').nth(3).waitFor();
    equal(await graph.locator('.edge').count(), 3);
    await graph.locator('a.dead').filter({ hasText: 'parse ↻' }).filter({ hasText: '1 dead' }).waitFor();
    await graph.locator('a', { hasText: 'a-stage-with-a-name-…' }).waitFor();
    await page.shot('graph');
    const title = await graph.getByRole('link', { name: /^g\/count: 1 waiting/ }).getAttribute('aria-label');
    check(title.includes('No worker takes its jobs'), title);
    await graph.getByRole('link', { name: /^g\/count/ }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'g/count' }).waitFor();
    await page.leave();
    client.close();
    await own.stop();
});
