// Plots over time on the page: spans, steps and gaps.
import { historySteps } from '../../web/src/series.js';
import { Client, Server, check, equal, openPage, test } from './page_support.mjs';

test('B6: a history is drawn as steps, one for each interval, the last until now', async () => {
    const history = {
        'step-ms': 10_000,
        'from-ms': 50_000,
        waiting: [9, 4, 6],
        pushed: [20, 0, 3],
        'wait-p50-ms': [null, 7, null],
    };
    equal(historySteps(history, ['waiting', 'wait-p50-ms'], 73_000), [
        [50, 60, 60, 70, 70, 73],
        [9, 9, 4, 4, 6, 6],
        [null, null, 7, 7, null, null],
    ]);
    equal(historySteps(history, ['pushed'], 73_000, true)[1], [2, 2, 0, 0, 1, 1]);
    equal(historySteps({ 'step-ms': 1, 'from-ms': 0, waiting: [] }, ['waiting'], 5), [[], []]);
});

test('B6: overview and stage show five minutes, an hour or a day; what was before the start is empty', async () => {
    const own = await Server.start(['--store', 'mem:']);
    const client = new Client(own);
    const page = await openPage(own.address, '#/');
    await page.sees('No sample yet.', '.plot');
    for (let i = 0; i < 7; i++) await client.ask('PUSH', 'mail', `${i}`);
    const queue = page.locator('.plot').filter({ hasText: 'Queue' });
    // How far from the left the blue line begins; 1: there is none.
    const lineBegins = () =>
        queue.locator('canvas').evaluate((canvas) => {
            const { data, width, height } = canvas
                .getContext('2d')
                .getImageData(0, 0, canvas.width, canvas.height);
            const isBlue = (at) => data[at + 3] > 100 && data[at + 2] > data[at] + 60;
            for (let x = 0; x < width; x++)
                for (let y = 0; y < height; y++) if (isBlue(4 * (y * width + x))) return x / width;
            return 1;
        });
    for (const hash of ['#/', '#/stage/mail']) {
        await page.go(hash);
        for (const name of ['Hour', 'Day', '5 min']) {
            await page.press(name);
            await page.getByRole('button', { name, pressed: true }).waitFor();
            await queue.locator('li').filter({ hasText: 'waiting 7' }).waitFor();
        }
    }
    await page.press('Hour'); // the server has just started, so that nearly all of the hour is empty
    await page.shot('stage-hour');
    await page.press('5 min');
    const first = await lineBegins();
    check(first > 0.2 && first < 1, `the line begins at ${first}`);
    await page.leave();
    client.close();
    await own.stop();
});
