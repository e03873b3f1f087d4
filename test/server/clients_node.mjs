// A Redis client for Node in the hands of a test: `clients_node.mjs PACKAGE RESP PORT [OPTIONS]`
// reads a command a line, an array of words as JSON (an array of such arrays is a multi() of them),
// and writes a line for each answer:
// {"reply": …}, or {"error": …} with what a program that caught it would see. {"event": …} says that
// it is ready, or that its connection has gone. With the option "cluster" it connects to a cluster.
import { createInterface } from 'node:readline';

const [name, resp, port, options = '{}'] = process.argv.slice(2);
const tell = (line) => process.stdout.write(JSON.stringify(line) + '\n');

let state = 'gone';
function turn(to) {
    if (to !== state) tell({ event: to });
    state = to;
}

// To all nodes of a cluster, of which the port is one.
async function connectCluster(library) {
    if (name.startsWith('redis')) {
        const rootNodes = [{ socket: { host: '127.0.0.1', port: Number(port) } }];
        const client = library.createCluster({ rootNodes, defaults: { RESP: Number(resp) } });
        client.on('error', () => {});
        await client.connect();
        turn('ready');
        return (words) => client.sendCommand(words[1], false, words);
    }
    const client = new library.Cluster([{ host: '127.0.0.1', port: Number(port) }]);
    client.on('error', () => {});
    client.on('ready', () => turn('ready'));
    return ([command, ...words]) => client.call(command, ...words);
}

async function connect() {
    const library = await import(name);
    const { cluster, ...more } = JSON.parse(options);
    if (cluster) return connectCluster(library);
    if (name.startsWith('redis')) {
        const client = library.createClient({ socket: { port }, RESP: Number(resp), ...more });
        client.on('error', () => {}); // it connects again by itself
        client.on('ready', () => turn('ready'));
        client.on('reconnecting', () => turn('gone'));
        await client.connect();
        return (words) => {
            if (!Array.isArray(words[0])) return client.sendCommand(words);
            const multi = client.multi();
            for (const command of words) multi.addCommand(command);
            return multi.exec();
        };
    }
    const client = new library.Redis({ port, protocol: Number(resp), ...more });
    client.on('error', () => {});
    client.on('ready', () => turn('ready'));
    client.on('close', () => turn('gone'));
    return ([command, ...words]) => {
        if (!Array.isArray(command)) return client.call(command, ...words);
        const multi = client.multi();
        for (const queued of [command, ...words]) multi.call(...queued);
        return multi.exec().then((replies) => replies.map(([, reply]) => reply));
    };
}

const send = await connect();
for await (const line of createInterface({ input: process.stdin })) {
    const fail = (e) => tell({ error: e.message, name: e.name, class: e.constructor.name });
    send(JSON.parse(line)).then((reply) => tell({ reply }), fail);
}
process.exit(0);
