"""What can go wrong, one type for each; `reason` is the sentence of the server or of the client."""
from __future__ import annotations

from typing import Sequence


class MillraceError(Exception):
    """Any error of this library."""

    #: Whether a server has said it: such a Dead is the end of another job than the handler's.
    remote = False
    #: Whether an attempt before it was lost, so that it is unknown what that has done.
    was_lost = False
    #: Of push_many: the ids of the jobs before the one that was refused.
    ids: Sequence[str] = ()

    def __init__(self, reason: str = "", *, lasting: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        #: Whether another try would fail in the same way.
        self.lasting = lasting


class Unreachable(MillraceError):
    """No server answers, or the connection was lost and the outcome of the command is unknown."""


class Incompatible(MillraceError):
    """What listens there is not a Millrace server, or one that does not know this command."""


class Denied(MillraceError):
    """The token is missing or wrong, or has no right to do this."""


class Usage(MillraceError, ValueError):
    """The command or an argument is wrong; nothing was changed."""


class TooBig(Usage):
    """A body, key, result or another part is larger than the server allows."""


class BadBody(MillraceError):
    """A body or result is not JSON where JSON was asked for, or cannot be turned into JSON."""


class Full(MillraceError):
    """A limit or a quota is reached; `room=` waits for room instead."""


class Draining(MillraceError):
    """The stage takes no pushes until it is resumed."""


class Gone(MillraceError):
    """The server does not know this id any more."""


class LeaseLost(MillraceError):
    """The job was given to another worker meanwhile, so this attempt commits nothing."""


class Stopped(MillraceError):
    """The server's log has failed, or it is still loading; the outcome may be unknown."""


class Expired(MillraceError):
    """The job was not done by its deadline."""


class Cancelled(MillraceError):
    """The job was cancelled."""


class Dead(MillraceError):
    """The job has failed for good. A handler raises it to say so: it is not tried again."""


class Timeout(MillraceError):
    """The time to wait is over; the job may still end."""


class Snooze(MillraceError):
    """A handler raises it to give its job back for so many seconds; no attempt is counted."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds} s")
        self.milliseconds = max(0, round(1000 * seconds))


class Gap(MillraceError):
    """A numbered push is too far ahead of the first missing number."""


_BY_CODE = {
    "NOAUTH": Denied, "WRONGPASS": Denied, "NOPERM": Denied, "TOOBIG": TooBig, "FULL": Full,
    "GAP": Gap, "STALE": LeaseLost, "EXPIRED": Expired, "CANCELLED": Cancelled, "DEAD": Dead,
    "GONE": Gone, "DRAINING": Draining, "LOADING": Stopped, "STOPPED": Stopped,
}


def error_of(text: str) -> MillraceError:
    """The error that a reply of the server names by its first word."""
    code, _, reason = text.partition(" ")
    unknown = code == "ERR" and reason.startswith("unknown command")
    spoilt = reason.endswith("connect again")  # it accepts no more numbers on this connection
    if code == "NOAUTH":
        reason += "; give it with token=, in the URL, or in MILLRACE_TOKEN"
    error = (Incompatible if unknown else Unreachable if spoilt
             else _BY_CODE.get(code, Usage))(reason)
    error.remote = True
    return error
