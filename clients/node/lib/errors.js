// What can go wrong, one class for each; `reason` is the sentence of the server or of the client.
'use strict';

class MillraceError extends Error {
  constructor(reason = '') {
    super(reason);
    this.name = new.target.name;
    this.reason = reason;
  }
}

/** No server answers, or the connection was lost and the outcome of the command is unknown. */
class Unreachable extends MillraceError {}
/** What listens there is not a Millrace server, or one that does not know this command. */
class Incompatible extends MillraceError {}
/** The token is missing or wrong, or has no right to do this. */
class Denied extends MillraceError {}
/** The command is wrong; nothing was changed. */
class Usage extends MillraceError {}
/** A body, key, result or another part is larger than the server allows. */
class TooBig extends Usage {}
/** A body or result is not JSON where JSON was asked for, or cannot be turned into JSON. */
class BadBody extends MillraceError {}
/** A limit or a quota is reached; the option `room` waits for room instead. */
class Full extends MillraceError {}
/** The stage takes no pushes until it is resumed. */
class Draining extends MillraceError {}
/** The server does not know this id any more. */
class Gone extends MillraceError {}
/** The job was given to another worker meanwhile, so this attempt commits nothing. */
class LeaseLost extends MillraceError {}
/** The server's log has failed, or it is still loading; the outcome may be unknown. */
class Stopped extends MillraceError {}
/** The job was not done by its deadline. */
class Expired extends MillraceError {}
/** The job was cancelled. */
class Cancelled extends MillraceError {}
/** The job has failed for good. A handler throws it to say so: it is not tried again. */
class Dead extends MillraceError {}
/** The time to wait is over; the job may still end. */
class Timeout extends MillraceError {}
/** A numbered push is too far ahead of the first missing number. */
class Gap extends MillraceError {}

/** A handler throws it to give its job back for so many milliseconds; no attempt is counted. */
class Snooze extends MillraceError {
  constructor(ms) {
    super(`again in ${ms} ms`);
    this.ms = ms;
  }
}

const BY_CODE = {
  NOAUTH: Denied, WRONGPASS: Denied, NOPERM: Denied, TOOBIG: TooBig, FULL: Full, GAP: Gap, STALE: LeaseLost, DEAD: Dead,
  EXPIRED: Expired, CANCELLED: Cancelled, GONE: Gone, DRAINING: Draining, LOADING: Stopped, STOPPED: Stopped,
};

/** The error that a reply of the server names by its first word. */
function errorOf(text) {
  const [, code, reason] = /^(\S*) ?(.*)$/s.exec(text);
  if (code === 'ERR' && reason.startsWith('unknown command')) return new Incompatible(reason);
  if (reason.endsWith('connect again')) return new Unreachable(reason); // it accepts no more numbers on this connection
  const advice = code === 'NOAUTH' ? '; give it with the option token, in the URL, or in MILLRACE_TOKEN' : '';
  return new (Object.hasOwn(BY_CODE, code) ? BY_CODE[code] : Usage)(reason + advice);
}

/** Whether it is unknown what has become of the command. */
const isLoss = (error) => error instanceof Unreachable || error instanceof Stopped;

module.exports = {
  MillraceError, BadBody, Cancelled, Dead, Denied, Draining, Expired, Full, Gap, Gone, Incompatible, LeaseLost, Snooze,
  Stopped, Timeout, TooBig, Unreachable, Usage, errorOf, isLoss,
};
