#!/usr/bin/env node
// page_test.mjs ROOT BUILD: the page in a browser, against a real server with real work: every view, every
// action, and what it does when things go wrong. MILLRACE_CASE=text runs the cases whose names contain it;
// MILLRACE_SHOTS=DIR keeps pictures there.
import path from 'node:path';
import { Client, Server, runAll, startBrowser, top, world } from './page_support.mjs';
import './page_views.mjs';
import './page_history.mjs';
import './page_push.mjs';
import './page_trouble.mjs';
import './page_flows.mjs';
import './page_graph.mjs';
import './page_faults.mjs';
import './page_looks.mjs';

function skip(why) {
    console.log(`1..0 # SKIP ${why}`);
    process.exit(0);
}

const { browser, why } = await startBrowser();
if (why) skip(why);
world.browser = browser;
world.server = await Server.start(['--store', `file:${path.join(top, 'data')}`]);
world.client = new Client(world.server);
const { headers } = await fetch(world.server.address);
if (headers.get('etag')?.includes('none')) skip('the page was left out of this build');

const failed = await runAll();
world.client.close();
await world.server.stop();
await browser.close();
process.exit(failed);
