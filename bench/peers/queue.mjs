// queue.mjs PEER HOW ROLE URL JOBS WINDOW: pushes, or works off, so many jobs with 64-byte bodies through a job queue on
// PostgreSQL, with at most WINDOW of them under way. PEER is pg-boss or graphile-worker, ROLE push or work. HOW is
// "batches": jobs are pushed and completed in batches; or "single": each by itself, as PUSH and DONE are. Jobs are fetched
// in batches in any case, and what only supervises is off. Prints "ready", begins with a line from stdin, prints "done".
import { once } from "node:events";

const [peer, how, role, url, ...numbers] = process.argv.slice(2);
const [jobs, window] = numbers.map(Number);
const single = how === "single";
const CONNECTIONS = single ? 16 : 4; // a pool as large as is quickest here
const BATCH = single ? 1 : Math.ceil(window / CONNECTIONS);
const body = { text: "x".repeat(53) }; // 64 bytes of JSON

// Calls `batch` with sizes that add up to all jobs; WINDOW jobs are under way.
async function pushAll(batch) {
    let left = jobs;
    const one = async () => {
        while (left > 0) {
            const size = Math.min(BATCH, left);
            left -= size;
            await batch(size);
        }
    };
    await Promise.all(Array.from({ length: window / BATCH }, one));
}

const peers = {
    "pg-boss": async () => {
        const { default: PgBoss } = await import("pg-boss");
        const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, max: CONNECTIONS });
        await boss.start();
        await boss.createQueue("bench");
        let done = 0;
        const pull = async () => {
            while (done < jobs) {
                const taken = (await boss.fetch("bench", { batchSize: window / 4 })).map((job) => job.id);
                if (single) {
                    await Promise.all(taken.map((id) => boss.complete("bench", id)));
                } else if (taken.length) {
                    await boss.complete("bench", taken);
                }
                done += taken.length;
            }
        };
        return {
            push: () => pushAll((size) => single ? boss.send("bench", body)
                : boss.insert(Array.from({ length: size }, () => ({ name: "bench", data: body })))),
            work: () => Promise.all(Array.from({ length: 4 }, pull)),
        };
    },
    "graphile-worker": async () => {
        const { Logger, makeWorkerUtils, run } = await import("graphile-worker");
        const logger = new Logger(() => () => {});
        const utils = await makeWorkerUtils({ connectionString: url, maxPoolSize: CONNECTIONS, logger });
        await utils.migrate();
        let done = 0, runner;
        const work = () =>
            new Promise((resolve, reject) => {
                const bench = async () => {
                    if (++done === jobs) {
                        resolve();
                    }
                };
                const preset = {
                    worker: {
                        connectionString: url, concurrentJobs: 24, pollInterval: 5, maxPoolSize: 16,
                        localQueue: { size: window }, completeJobBatchDelay: single ? -1 : 0, failJobBatchDelay: -1, logger,
                    },
                };
                run({ preset, taskList: { bench } }).then((r) => (runner = r), reject);
            });
        return {
            push: () => pushAll((size) => single ? utils.addJob("bench", body)
                : utils.addJobs(Array.from({ length: size }, () => ({ identifier: "bench", payload: body })))),
            work: async () => {
                await work();
                await runner.stop(); // when the last jobs are completed in the database, too
            },
        };
    },
};

const queue = await peers[peer]();
console.log("ready");
await once(process.stdin, "data");
await queue[role]();
console.log("done");
process.exit(0);
