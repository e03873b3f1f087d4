// The same objects as require('millrace') has, so that both may be used in one program.
import millrace from './index.js';

export const {
    Millrace, Epic, Job, Worker, MillraceError, BadBody, Cancelled, Dead, Denied, Draining, Expired,
    Full, Gap, Gone, Incompatible, LeaseLost, Snooze, Stopped, Timeout, TooBig, Unreachable, Usage,
} = millrace;
