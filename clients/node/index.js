// Millrace: ordered, durable work, exactly once. See README.md and index.d.ts.
'use strict';

const { Epic, Millrace } = require('./lib/client.js');
const { Job, Worker } = require('./lib/worker.js');
const { errorOf, isLoss, ...errors } = require('./lib/errors.js');

module.exports = { Millrace, Epic, Job, Worker, ...errors };
