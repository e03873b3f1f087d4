// How the page looks and is used: on a phone, in the dark, by keyboard; and how much of it is sent.
import { bury, check, deadCount, equal, open, push, test, world } from './page_support.mjs';

const VIEWS = ['#/', '#/stage/looks', '#/dead', '#/workers', '#/flows', '#/epics', '#/schedules', '#/push'];

test('nothing is wider than a phone', async () => {
    const page = await open('#/', {
        viewport: { width: 360, height: 740 },
        isMobile: true,
        hasTouch: true,
    });
    const id = await push(
        'looks',
        'a body that is long '.repeat(20),
        'KEY',
        'a-key-without-a-blank-'.repeat(20),
    );
    await world.client.kill('looks', 'a-reason-without-a-blank-'.repeat(20));
    const name = 'a-name-without-a-blank-'.repeat(8);
    await world.client.ask('SCHEDULE', 'looks', name, 'CRON', '0,5,10,15,20,25,30,35,40 1-5,8 * jan,mar mon',
        'TZ', 'America/Argentina/ComodRivadavia', 'PUSH', 'x', 'KEY', name);
    for (const hash of [...VIEWS, `#/job/${id}`]) {
        await page.go(hash);
        await page.locator('main section.panel:visible').first().waitFor();
        await page.evaluate(
            () =>
                new Promise((resolve) =>
                    requestAnimationFrame(() => requestAnimationFrame(resolve)),
                ),
        );
        const [wide, room] = await page.evaluate(() => [
            document.documentElement.scrollWidth,
            innerWidth,
        ]);
        check(wide <= room, `${hash} is ${wide} wide, there is room for ${room}`);
        await page.shot(`phone-${hash.replace(/\W+/g, '-')}`);
    }
    await page.leave();
});

// The contrast of two colours, 1 to 21.
function contrast(a, b) {
    const light = (colour) => {
        const [r, g, bl] = colour
            .match(/[\d.]+/g)
            .slice(0, 3)
            .map(Number)
            .map((v) => v / 255)
            .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * bl;
    };
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
}

const colours = (page) =>
    page.evaluate(() => {
        const probe = document.body.appendChild(document.createElement('i'));
        const of = (name) => {
            probe.style.color = `var(--${name})`;
            return getComputedStyle(probe).color;
        };
        const names = [
            'page',
            'panel',
            'sunk',
            'ink',
            'soft',
            'accent',
            'good',
            'warn',
            'bad',
            'good-back',
            'warn-back',
            'bad-back',
        ];
        return Object.fromEntries(names.map((name) => [name, of(name)]));
    });

test('light and dark follow the system, or the choice, and can be read', async () => {
    const page = await open('#/', { colorScheme: 'light' });
    await page.locator('main section.panel:visible').first().waitFor();
    const light = await colours(page);
    await page.emulateMedia({ colorScheme: 'dark' });
    const dark = await colours(page);
    check(light.page !== dark.page, 'dark is as light');
    for (const c of [light, dark]) {
        const pairs = [
            ...['ink', 'soft', 'accent', 'good', 'warn', 'bad'].flatMap((name) => [
                [name, 'panel'],
                [name, 'sunk'],
            ]),
            ['ink', 'page'],
            ['soft', 'page'],
            ['good', 'good-back'],
            ['warn', 'warn-back'],
            ['bad', 'bad-back'],
            ['ink', 'bad-back'],
        ];
        for (const [front, back] of pairs)
            check(
                contrast(c[front], c[back]) >= 4.5,
                `${front} on ${back}: ${contrast(c[front], c[back]).toFixed(2)}`,
            );
    }
    await page.shot('dark');
    await page.press('Colours', '.bar');
    equal(await colours(page), light, 'when light is chosen');
    await page.reload();
    await page.locator('main section.panel:visible').first().waitFor();
    equal((await colours(page)).page, light.page, 'after loading it again');
    await page.leave();
});

test('the keyboard is enough', async () => {
    await bury('keys', 1, 'out of paper');
    const page = await open('#/dead?stage=keys');
    const letter = page.locator('[aria-label="Dead letters"] tbody tr').first();
    await letter.waitFor();
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press('Tab');
    equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');
    await page.keyboard.press('Enter');
    equal(await page.evaluate(() => document.activeElement.id), 'main');
    await letter.getByRole('button', { name: 'Drop' }).focus();
    await page.keyboard.press('Enter');
    await page.locator('dialog').waitFor();
    equal(await page.evaluate(() => document.activeElement.textContent), 'Leave it');
    await page.keyboard.press('Escape');
    await page.locator('dialog').waitFor({ state: 'detached' });
    equal(await deadCount('keys'), 1);
    equal(
        await page.evaluate(() => document.activeElement.textContent),
        'Drop',
        'focus comes back',
    );
    await page.leave();
});

test('everything that can be used has a name, and the page has its landmarks', async () => {
    await push('looks');
    const page = await open('#/');
    for (const hash of VIEWS) {
        await page.go(hash);
        await page.locator('main section.panel:visible').first().waitFor();
        const nameless = await page.evaluate(() =>
            [...document.querySelectorAll('button, a[href], input, select, textarea')]
                .filter(
                    (node) =>
                        node.checkVisibility() &&
                        !(
                            node.textContent.trim() ||
                            node.getAttribute('aria-label') ||
                            node.labels?.length
                        ),
                )
                .map((node) => node.outerHTML),
        );
        equal(nameless, [], hash);
        const marks = await page.evaluate(() =>
            ['header', 'nav', 'main', 'footer', 'h1'].map(
                (name) => document.querySelectorAll(name).length,
            ),
        );
        equal(marks, [1, 1, 1, 1, 1], hash);
    }
    await page.leave();
});

// ---- What is sent ------------------------------------------------------------------------------

test('the page is small: 150 kB in all, compressed', async () => {
    const page = await open('#/');
    await page.locator('main section.panel:visible').first().waitFor();
    const used = await page.evaluate(() =>
        performance.getEntriesByType('resource').map((entry) => entry.name),
    );
    const files = [world.server.address, ...used.filter((name) => !name.includes('/api/'))];
    let total = 0;
    for (const file of files) {
        const { headers } = await fetch(file);
        equal(headers.get('content-encoding'), 'gzip', file);
        total += Number(headers.get('content-length'));
    }
    check(
        files.length >= 4 && total > 10_000 && total <= 150_000,
        `${files.length} files, ${total} bytes`,
    );
    console.log(`# ${files.length} files, ${total} bytes compressed`);
    await page.leave();
});
