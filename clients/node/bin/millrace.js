#!/usr/bin/env node
// Runs the command millrace with the same arguments; without any, `millrace dev`. The command is that of the package
// @millrace/server-…, which is optional because it is for one system and processor only, or the one on PATH.
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const server = `@millrace/server-${process.platform}-${process.arch}`;

function packaged() {
    try {
        return require.resolve(`${server}/bin/millrace`);
    } catch {
        return undefined;
    }
}

// npm puts this script on PATH, too; it is not what is looked for.
function onPath() {
    const self = path.basename(__filename);
    for (const folder of (process.env.PATH ?? '').split(path.delimiter)) {
        const file = path.join(folder || '.', 'millrace');
        try {
            fs.accessSync(file, fs.constants.X_OK);
            if (fs.statSync(file).isFile() && path.basename(fs.realpathSync(file)) !== self) return file;
        } catch {
            // not there
        }
    }
    return undefined;
}

// A terminal sends Ctrl-C to the command itself, for which a second one means to stop at once.
function passOn(child) {
    const terminal = [0, 1, 2].some((fd) => require('node:tty').isatty(fd));
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
        process.on(signal, () => {
            if (signal !== 'SIGINT' || !terminal) child.kill(signal);
        });
}

// A signal for npx ends npm and the shell that it has started, but not this: it notices that its parent has changed.
function endWithNpx(child) {
    const parent = process.ppid;
    if (process.env.npm_command !== 'exec') return;
    const timer = setInterval(() => {
        if (process.ppid === parent) return;
        child.kill('SIGTERM');
        clearInterval(timer);
    }, 250);
}

function run(command, args) {
    const child = spawn(command, args, { stdio: 'inherit' });
    passOn(child);
    endWithNpx(child);
    child.on('error', (error) => {
        console.error(`millrace: ${command} cannot be started: ${error.message}`);
        process.exit(126);
    });
    child.on('exit', (code, signal) => process.exit(signal ? 128 + os.constants.signals[signal] : code));
}

const command = packaged() ?? onPath();
if (command) {
    const args = process.argv.slice(2);
    run(command, args.length ? args : ['dev']);
} else {
    console.error(`millrace: the command is not here: the package ${server} is not installed, and PATH has no millrace.
Install that package (npm leaves it out with --omit=optional), the Debian package millrace, or the binary
for Linux; on other systems and processors build it from source. The client library works without the command.`);
    process.exit(127);
}
