// Support of page_test.mjs: a real server in a separate process, a client that uses RESP, a browser whose
// requests and errors are recorded, and cases that print TAP. There are no sleeps: a test waits for a notice, a
// reply or something on the page; TIMEOUT_MS ends what hangs.
import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';

export const [ROOT, BUILD] = process.argv.slice(2).map((p) => fs.realpathSync(p));
export const TIMEOUT_MS = 240_000;
export const MILLRACE = path.join(BUILD, 'millrace');
export const top = fs.mkdtempSync(path.join(os.tmpdir(), 'millrace-page-'));
const SHOTS = process.env.MILLRACE_SHOTS; // a folder: pictures of the views are kept there

// ---- What is needed ----------------------------------------------------------------------------

const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome'];

function found(names) {
    const folders = process.env.PATH.split(':');
    return names
        .flatMap((name) => folders.map((f) => path.join(f, name)))
        .find((p) => fs.existsSync(p));
}

// Has the packages of test/web/package-lock.json in BUILD/browser; why not, or null.
function whyNoPackages(folder) {
    const lock = fs.readFileSync(path.join(ROOT, 'test/web/package-lock.json'));
    const mark = path.join(folder, 'installed');
    if (fs.existsSync(mark) && fs.readFileSync(mark).equals(lock)) return null;
    fs.mkdirSync(folder, { recursive: true });
    for (const name of ['package.json', 'package-lock.json'])
        fs.copyFileSync(path.join(ROOT, 'test/web', name), path.join(folder, name));
    const done = spawnSync(
        'npm',
        [
            'ci',
            '--ignore-scripts',
            '--no-audit',
            '--no-fund',
            '--prefer-offline',
            '--fetch-retries=1',
            '--fetch-retry-mintimeout=1000',
        ],
        { cwd: folder, timeout: TIMEOUT_MS, encoding: 'utf8' },
    );
    if (done.status !== 0) {
        const said = /npm (?:ERR!|error) (.*)/.exec(done.stderr ?? '');
        return `npm could not install its packages: ${said ? said[1] : (done.error ?? 'it failed')}`;
    }
    fs.writeFileSync(mark, lock);
    return null;
}

// The browser, started, or why there is none: { browser, why }.
export async function startBrowser() {
    const executablePath = found(BROWSERS);
    if (!executablePath) return { why: 'there is no chromium' };
    const folder = path.join(BUILD, 'browser');
    const why = whyNoPackages(folder);
    if (why) return { why };
    const { chromium } = createRequire(path.join(folder, 'package.json'))('playwright-core');
    const args = process.getuid() === 0 ? ['--no-sandbox'] : [];
    return {
        browser: await chromium.launch({
            executablePath,
            args: [...args, '--disable-dev-shm-usage'],
            timeout: TIMEOUT_MS,
        }),
    };
}

// ---- The server --------------------------------------------------------------------------------

const children = new Set();
process.on('exit', () => {
    for (const child of children) child.kill('SIGKILL');
    fs.rmSync(top, { recursive: true, force: true });
});

// A port for a server that comes and goes: none of those that the system gives to clients meanwhile.
export async function lastingPort() {
    for (;;) {
        const port = 20_000 + Math.floor(Math.random() * 12_000);
        const probe = net.createServer();
        const free = await new Promise((resolve) => {
            probe.once('error', () => resolve(false));
            probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
        });
        if (free) return port;
    }
}

export class Server {
    // `options` follow `millrace serve`; `environment` is added to ours. Any ports will do, or they are given.
    static async start(options, environment = {}, [port, http] = [0, 0]) {
        const server = new Server();
        server.options = options;
        server.environment = environment;
        await server.begin(port, http);
        return server;
    }

    async begin(port, http) {
        this.said = '';
        this.process = spawn(
            MILLRACE,
            [
                'serve',
                '--listen',
                `127.0.0.1:${port}`,
                '--http',
                `127.0.0.1:${http}`,
                ...this.options,
            ],
            { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...this.environment } },
        );
        children.add(this.process);
        this.ended = new Promise((resolve) => this.process.on('exit', resolve));
        this.process.stderr.setEncoding('utf8');
        this.process.stderr.on('data', (text) => {
            this.said += text;
            this.check?.();
        });
        await this.waitNotice('ready');
        this.port = Number(/listens on \S*?:(\d+)/.exec(this.said)[1]);
        this.http = Number(/https?:\/\/\S*?:(\d+)/.exec(this.said)[1]);
    }

    // Waits for a notice that contains the text.
    async waitNotice(text) {
        await new Promise((resolve, reject) => {
            const timer = setTimeout(
                () => reject(new Error(`no notice contains: ${text}\n${this.said}`)),
                TIMEOUT_MS,
            );
            this.ended.then(() => reject(new Error(`the server has ended:\n${this.said}`)));
            this.check = () => {
                if (!this.said.includes(text)) return;
                clearTimeout(timer);
                resolve();
            };
            this.check();
        });
    }

    async stop() {
        this.process.kill('SIGTERM');
        await this.ended;
        children.delete(this.process);
    }

    // The same again, at the same addresses.
    restart = () => this.begin(this.port, this.http);

    get address() {
        return `http://127.0.0.1:${this.http}/`;
    }
}

// ---- A client ----------------------------------------------------------------------------------

// Reads a reply that begins at `at`: [value, where it ends], or null while it is not whole.
function readReply(data, at) {
    const end = data.indexOf('\r\n', at);
    if (end < 0) return null;
    const rest = data.toString('utf8', at + 1, end);
    switch (String.fromCharCode(data[at])) {
        case ':':
            return [Number(rest), end + 2];
        case '-':
            return [new Error(rest), end + 2];
        case '$': {
            const size = Number(rest);
            if (size < 0) return [null, end + 2];
            return data.length < end + 4 + size
                ? null
                : [data.toString('utf8', end + 2, end + 2 + size), end + 4 + size];
        }
        case '*': {
            const list = [];
            let next = end + 2;
            for (let i = 0; i < Number(rest); i++) {
                const one = readReply(data, next);
                if (!one) return null;
                list.push(one[0]);
                next = one[1];
            }
            return [list, next];
        }
        default:
            return [rest, end + 2];
    }
}

export class Client {
    constructor(server) {
        this.socket = net.connect(server.port, '127.0.0.1');
        this.data = Buffer.alloc(0);
        this.waiting = [];
        this.socket.on('error', () => {});
        this.socket.on('data', (data) => {
            this.data = Buffer.concat([this.data, data]);
            for (let reply; this.waiting.length && (reply = readReply(this.data, 0));) {
                this.data = this.data.subarray(reply[1]);
                const { resolve, reject } = this.waiting.shift();
                if (reply[0] instanceof Error) reject(reply[0]);
                else resolve(reply[0]);
            }
        });
    }

    ask(...words) {
        const parts = [Buffer.from(`*${words.length}\r\n`)];
        for (const word of words) {
            const bytes = Buffer.isBuffer(word) ? word : Buffer.from(String(word));
            parts.push(Buffer.from(`$${bytes.length}\r\n`), bytes, Buffer.from('\r\n'));
        }
        this.socket.write(Buffer.concat(parts));
        return new Promise((resolve, reject) => this.waiting.push({ resolve, reject }));
    }

    // Takes one job and has it fail for good.
    async kill(stage, reason) {
        const [[id, token]] = await this.ask('TAKE', stage);
        await this.ask('FAIL', id, token, reason, 'NEVER');
        return id;
    }

    close = () => this.socket.destroy();
}

// ---- What the cases share -----------------------------------------------------------------------

// A browser, and a server with a client, shared by the cases that need no other.
export const world = { browser: null, server: null, client: null };

export const open = (hash, options) => openPage(world.server.address, hash, options);

export const push = (stage, body = 'body', ...more) =>
    world.client.ask('PUSH', stage, body, ...more);

// Makes dead jobs; their ids.
export async function bury(stage, count, reason, key = 'k') {
    const ids = [];
    for (let i = 0; i < count; i++) {
        await push(stage, 'x', 'KEY', `${key}${i}`);
        ids.push(await world.client.kill(stage, reason));
    }
    return ids;
}

export const deadCount = async (stage) => (await world.client.ask('DEAD', stage)).length;

// A row of a table, found by a text in it.
export const row = (page, text) => page.locator('tbody tr').filter({ hasText: text }).first();

// ---- The page ----------------------------------------------------------------------------------

// Opens a view in a window of its own. `page.complaints` has requests to elsewhere, violations of the
// policy and errors of the script, of which there should be none.
export async function openPage(address, hash, options = {}) {
    const context = await world.browser.newContext({
        viewport: { width: 1280, height: 900 },
        ...options,
    });
    const page = await context.newPage();
    const origin = new URL(address).origin;
    page.complaints = [];
    page.setDefaultTimeout(TIMEOUT_MS);
    page.on('request', (request) => {
        if (!request.url().startsWith(`${origin}/`) && !request.url().startsWith('blob:'))
            page.complaints.push(`asks ${request.url()}`);
    });
    page.on('pageerror', (error) => page.complaints.push(`error ${error.stack}`));
    page.on('console', (message) => {
        if (/Content Security Policy|Refused to/.test(message.text()))
            page.complaints.push(message.text());
    });
    await page.addInitScript(() => {
        document.addEventListener('securitypolicyviolation', (event) =>
            console.error(
                `Content Security Policy: ${event.violatedDirective} ${event.blockedURI}`,
            ),
        );
    });
    await page.goto(`${address}${hash}`);
    page.go = (next) =>
        page.evaluate((to) => {
            location.hash = to;
        }, next);
    page.main = page.locator('main');
    // Waits until the text stands somewhere in the view, or in what `where` finds.
    page.sees = (text, where = 'main') =>
        page.locator(where).filter({ hasText: text }).first().waitFor();
    page.sheds = (text, where = 'main') =>
        page.locator(where).filter({ hasText: text }).first().waitFor({ state: 'hidden' });
    page.press = (name, where = 'main') =>
        page.locator(where).getByRole('button', { name }).first().click();
    page.agree = (name) => page.press(name, 'dialog');
    page.shot = (name) =>
        SHOTS && page.screenshot({ path: path.join(SHOTS, `${name}.png`), fullPage: true });
    page.leave = async () => {
        equal(page.complaints, []);
        await context.close();
    };
    return page;
}

// ---- Cases -------------------------------------------------------------------------------------

const cases = [];

export const test = (name, body) => cases.push({ name, body });

export function check(condition, about = 'it does not hold') {
    if (!condition) throw new Error(about);
}

export function equal(a, b, about = '') {
    check(
        JSON.stringify(a) === JSON.stringify(b),
        `${JSON.stringify(a)} is not ${JSON.stringify(b)} ${about}`,
    );
}

// Runs those whose name contains MILLRACE_CASE.
export async function runAll() {
    const wanted = cases.filter((c) => c.name.includes(process.env.MILLRACE_CASE ?? ''));
    console.log(`1..${wanted.length}`);
    let failed = 0;
    for (const [i, { name, body }] of wanted.entries()) {
        try {
            await body();
            console.log(`ok ${i + 1} - ${name}`);
        } catch (error) {
            failed++;
            console.log(`not ok ${i + 1} - ${name}\n${String(error.stack).replace(/^/gm, '# ')}`);
        }
    }
    return failed ? 1 : 0;
}
