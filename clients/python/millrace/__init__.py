"""Millrace: ordered, durable work, exactly once. See README.md, or help(Millrace)."""
from .aio import AsyncMillrace, Worker
from .errors import (BadBody, Cancelled, Dead, Denied, Draining, Expired, Full, Gap, Gone,
                     Incompatible, LeaseLost, MillraceError, Snooze, Stopped, Timeout, TooBig,
                     Unreachable, Usage)
from .sync import Millrace
from .worker import Job

__version__ = "0.2.0"
__all__ = ["AsyncMillrace", "BadBody", "Cancelled", "Dead", "Denied", "Draining", "Expired",
           "Full", "Gap", "Gone", "Incompatible", "Job", "LeaseLost", "Millrace",
           "MillraceError", "Snooze", "Stopped", "Timeout", "TooBig", "Unreachable", "Usage",
           "Worker"]
