// Pushing on the page: the same push in each language is really run, and what to start if no worker is there.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { shellWord, snippets } from '../../web/src/snippets.js';
import { MILLRACE, ROOT, Server, TIMEOUT_MS, check, equal, open, openPage, test, top, world } from './page_support.mjs';

const AWKWARD = [
    `it's "quoted" $HOME \${PATH} \`id\` $(id) !! \\ \\n %s %% & | ; < > # ~ * ? [x] {a,b}`,
    '\ttab, ñ, 日本, 😀, ‮right to left‬, zero​width, é',
    '<img src=x onerror=alert(1)></pre><script>alert(2)</script>',
    '  ends with blanks  ',
    '',
].join('\n');

const LANGUAGES = ['Shell', 'curl', 'redis-cli', 'Python', 'Node'];
const inPath = (name) => process.env.PATH.split(':').some((p) => fs.existsSync(path.join(p, name)));

// Runs a snippet as its reader would: pasted into a shell, or saved as a program. The output.
function run(language, text) {
    const folder = fs.mkdtempSync(path.join(top, 'snippet-'));
    const env = {
        ...process.env,
        PATH: `${path.dirname(MILLRACE)}:${process.env.PATH}`,
        PYTHONPATH: path.join(ROOT, 'clients/python'),
        PYTHONDONTWRITEBYTECODE: '1',
    };
    let command = ['bash', '-c', text];
    if (language === 'Python') command = ['python3', '-c', text];
    if (language === 'Node') {
        fs.mkdirSync(path.join(folder, 'node_modules'));
        fs.symlinkSync(path.join(ROOT, 'clients/node'), path.join(folder, 'node_modules/millrace'));
        fs.writeFileSync(path.join(folder, 'push.mjs'), text);
        command = ['node', 'push.mjs'];
    }
    const [program, ...words] = command;
    const done = spawnSync(program, words, { cwd: folder, env, encoding: 'utf8', timeout: TIMEOUT_MS });
    equal(done.status, 0, `${language}: ${text}\n${done.stdout}${done.stderr}`);
    return done.stdout;
}

const bodyOf = async (id) =>
    (await (await fetch(`${world.server.address}api/jobs/${id}?body=1`)).json()).job;

// Each of these makes a job that is like the one of the page.
async function expectSame(language, text, wanted) {
    const id = /\d+/.exec(run(language, text))[0];
    const job = await bodyOf(id);
    equal([job.stage, job.key, job.body, job.attempts, job.status], wanted, language);
}

test('the push is shown in five languages, follows what is typed, and each makes the same job', async () => {
    const page = await open('#/push?stage=snippets');
    await page.getByLabel('Key', { exact: true }).fill(`ann's $KEY`);
    await page.getByLabel('Attempts').fill('3');
    await page.getByLabel('Delay', { exact: true }).fill('90');
    await page.locator('textarea').fill(AWKWARD);
    const code = page.getByLabel('the push', { exact: true });
    await page.press('Push');
    await page.sees('Pushed as');
    const id = /job (\d+)/.exec(await page.locator('form .good').textContent())[1];
    const { stage, key, body, attempts, status } = await bodyOf(id);
    equal([stage, key, body, attempts, status], ['snippets', `ann's $KEY`, AWKWARD, 3, 'delayed']);
    for (const language of LANGUAGES) {
        await page.press(language);
        await page.getByRole('button', { name: language, pressed: true }).waitFor();
        const text = await code.textContent();
        check(text.includes('snippets') && !/[‎‏‪-‮⁦-⁩]/.test(text), text);
        if (language === 'redis-cli' && !inPath('redis-cli')) continue;
        if (language === 'Python' && !inPath('python3')) continue;
        if (language === 'curl' && !inPath('curl')) continue;
        await expectSame(language, text, [stage, key, body, attempts, status]);
    }
    await page.shot('push');
    equal(await page.locator('main img').count(), 0);
    await page.leave();
});

test('a body of any kind is quoted: options, a dash, nothing, a zero byte', async () => {
    const { port, http } = world.server;
    const server = {
        url: `millrace://127.0.0.1:${port}`,
        origin: `http://127.0.0.1:${http}`,
        host: '127.0.0.1',
        port,
        tls: false,
    };
    for (const body of ['--help', '-', '', '-a\0b%\\1\n', '=ls', '\u0007\u009b\u001b[31m']) {
        const all = snippets({ stage: 'quoted', body }, server, false);
        for (const { name, text } of all.filter((s) => ['Shell', 'redis-cli'].includes(s.name))) {
            if (!inPath('redis-cli') && name === 'redis-cli') continue;
            const [id] = /\d+/.exec(run(name, text));
            equal((await bodyOf(id)).body, body, text);
        }
        equal(JSON.parse(/--data-raw '(.*)'$/s.exec(all[1].text)[1].replaceAll(`'\\''`, `'`)).body, body);
    }
    for (const word of ['', '~', '=x', 'a b', '*', `'`, '\\', '\n', '!', '-'])
        equal(run('Shell', `printf %s. ${shellWord(word).replace(/^-$/, '"-"')}`), `${word}.`, word);
});

test('a snippet has TOKEN in place of the token', async () => {
    const file = path.join(top, 'snippet-tokens');
    const made = spawnSync(MILLRACE, ['auth', 'add', 'all', '--role', 'admin', '--auth', file], { encoding: 'utf8' });
    const secret = made.stdout.trim().split('\n').at(-1);
    const own = await Server.start(['--store', 'mem:', '--auth', file]);
    const page = await openPage(own.address, '#/push?stage=mail');
    await page.getByLabel('Token').fill(secret);
    await page.press('Continue');
    await page.getByLabel('the push', { exact: true }).waitFor();
    for (const language of LANGUAGES) {
        await page.press(language);
        const text = await page.getByLabel('the push', { exact: true }).textContent();
        check(text.includes('TOKEN') && !text.includes(secret) && text.includes('mail'), text);
        const shown = await page.evaluate(() => document.documentElement.outerHTML);
        check(!shown.includes(secret), 'the token is in the page');
    }
    await page.leave();
    await own.stop();
});

test('a push to a stage without a worker shows what to start; the copy button copies it', async () => {
    const page = await open('#/push?stage=unattended', { permissions: ['clipboard-read', 'clipboard-write'] });
    await page.press('Push');
    const command = `millrace work unattended --at millrace://127.0.0.1:${world.server.port} -- COMMAND`;
    await page.sees('No worker takes jobs of unattended');
    await page.sees(command, 'pre');
    await page.press('Copy the command');
    await page.sees('Copied', '.notices');
    equal(await page.evaluate(() => navigator.clipboard.readText()), command);
    // With a worker there is nothing to start.
    const taken = world.client.ask('TAKE', 'unattended', 'WAIT', 600000);
    await taken;
    const waits = world.client.ask('TAKE', 'unattended', 'WAIT', 600000);
    await page.press('Push');
    await page.sheds('No worker takes jobs', 'p.warn');
    await page.sees('Pushed as');
    await waits;
    await page.leave();
});
