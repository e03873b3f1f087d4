"""The wire: addresses, RESP3, and a connection on which replies come in the order of requests."""
from __future__ import annotations

import asyncio
import collections
import ssl
import urllib.parse
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Sequence, Tuple, Union

from .errors import Incompatible, MillraceError, Unreachable, Usage, error_of

Word = Union[str, bytes, int, float]
GREETING_SECONDS = 5.0
SILENCE_SECONDS = 15.0  # of a server that owes a reply
REPLY_LINE = 64 << 10
REPLY_BULK, REPLY_VALUES, REPLY_DEPTH = 64 << 20, 1 << 20, 16  # what a reply may have at most


class Address(NamedTuple):
    """Where the servers are, and what they want to see."""

    nodes: Tuple[Tuple[str, int], ...]
    tls: Optional[ssl.SSLContext]
    user: str
    secret: str

    def __str__(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.nodes)


def address_of(url: str, token: Optional[str], context: Optional[ssl.SSLContext]) -> Address:
    """Reads millrace://[user:secret@]host[:port][,host[:port]…], or millraces:// for TLS."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("millrace", "millraces") or not rest:
        raise Usage(f"{url!r} is not a URL of Millrace: write millrace://127.0.0.1:7411, or "
                    "millraces://… for TLS")
    users, _, hosts = rest.rstrip("/").rpartition("@")
    user, _, secret = users.rpartition(":") if ":" in users else ("", "", users)
    nodes = []
    for host in hosts.split(","):
        part = urllib.parse.urlsplit("//" + host)
        try:
            port = part.port or 7411
        except ValueError:
            raise Usage(f"{url!r} has a port that is no number up to 65535") from None
        if not part.hostname:
            raise Usage(f"{url!r} has a host without a name")
        nodes.append((part.hostname, port))
    tls = (context or ssl.create_default_context()) if scheme == "millraces" else None
    secret = urllib.parse.unquote(secret) or token or ""
    return Address(tuple(nodes), tls, urllib.parse.unquote(user) or "default", secret)


def encode(words: Sequence[Word]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Push(list):  # type: ignore[type-arg]
    """What the server sends unasked."""


class _Incomplete(Exception):
    """More bytes are needed: so many in all, if that is known."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size


def _bounded(line: bytes, most: int) -> int:
    number = int(line)
    if number > most:
        raise Unreachable(f"the server sent a length of {number}: {most} at most")
    return number


def _parse(data: bytes, at: int, depth: int = 0) -> Tuple[Any, int]:
    """One value and where the next begins. An error reply is a value, too."""
    end = data.find(b"\r\n", at, at + REPLY_LINE)
    if end < 0:
        _bounded(b"%d" % (len(data) - at), REPLY_LINE)
        raise _Incomplete
    kind, line, at = data[at], data[at + 1:end], end + 2
    if kind == 0x24:  # $
        size = _bounded(line, REPLY_BULK)
        if size < 0:
            return None, at
        end = at + size
        if len(data) < end + 2:
            raise _Incomplete(end + 2)
        return data[at:end], end + 2
    if kind == 0x3a:  # :
        return int(line), at
    if kind == 0x2b:  # +
        return line.decode(), at
    if kind == 0x2d:  # -
        return error_of(line.decode("utf-8", "replace")), at
    if kind in b"*>~%":
        values: List[Any] = Push() if kind == 0x3e else []
        if depth == REPLY_DEPTH:
            raise Unreachable("the server sent too many levels of lists")
        for _ in range(_bounded(line, REPLY_VALUES) * (2 if kind == 0x25 else 1)):
            value, at = _parse(data, at, depth + 1)
            values.append(value)
        if kind == 0x25:
            return {_text(k): v for k, v in zip(values[::2], values[1::2])}, at
        return values, at
    if kind == 0x5f:  # _
        return None, at
    if kind == 0x2c:  # ,
        return float(line), at
    if kind == 0x23:  # #
        return line == b"t", at
    raise Unreachable(f"the server sent {chr(kind)!r}, which is not RESP3")


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Wire(asyncio.Protocol):
    """A connection. Everything runs in the thread of its loop."""

    def __init__(self, on_push: Optional[Callable[[Push], None]]) -> None:
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()
        self.is_open = True
        self.is_manual = False  # its user calls flush
        self.session = ""
        self._on_push = on_push
        self._data = b""
        self._needed = 0  # bytes without which no reply is whole
        self._waiting: Deque[Tuple[Callable[[Any], None], float]] = collections.deque()
        self._watched = self._retired = False
        self._out: List[bytes] = []
        self._transport: Optional[asyncio.Transport] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._needed:  # a reply is large: its pieces are joined when it is whole
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return
            data = b"".join(self._pieces)
        elif self._data:
            data = self._data + data
        at = self._needed = 0
        try:
            while at < len(data) and self.is_open:
                value, at = _parse(data, at)
                if not isinstance(value, Push):
                    self._waiting.popleft()[0](value)
                elif self._on_push:
                    self._on_push(value)
        except _Incomplete as cut:
            self._needed = max(0, cut.size - at)
        except (Unreachable, ValueError, IndexError, TypeError) as error:
            self.close(f"the server's reply makes no sense: {error}")
        self._data = data[at:]
        if self._needed:
            self._pieces, self._size = [self._data], len(self._data)
        if self._retired and not self._waiting:
            self.close()

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.close(str(error or "the server closed the connection"))

    def close(self, why: str = "the connection was closed") -> None:
        if not self.is_open:
            return
        self.is_open = False
        self.closed.set_result(why)
        if self._transport:
            self._transport.abort()
        while self._waiting:
            self._waiting.popleft()[0](Unreachable(why))

    def retire(self) -> None:
        """Closes it when all replies have come."""
        self._retired = True
        if not self._waiting:
            self.close()

    def send(self, words: Sequence[Word], done: Callable[[Any], None], wait: float = 0) -> None:
        """Sends a command, which may wait in the server for so many seconds; commands of one turn
        of the loop leave together. `done` is called with the reply or the error before anything
        behind it is read. A server that is silent for long is given up."""
        if not self.is_open:
            self._loop.call_soon(done, Unreachable(self.closed.result()))
            return
        self._waiting.append((done, self._loop.time() + wait + SILENCE_SECONDS))
        if not self._watched:
            self._watched = True
            self._loop.call_later(SILENCE_SECONDS, self._watch)
        if not self._out and not self.is_manual:
            self._loop.call_soon(self.flush)
        self._out.append(encode(words))

    def ask(self, *words: Word, wait: float = 0) -> "asyncio.Future[Any]":
        future = self._loop.create_future()

        def done(value: Any) -> None:
            if future.done():
                return
            if isinstance(value, MillraceError):
                future.set_exception(value)
            else:
                future.set_result(value)
        self.send(words, done, wait)
        return future

    def _watch(self) -> None:
        self._watched = bool(self._waiting) and self.is_open
        if not self._watched:
            return
        left = self._waiting[0][1] - self._loop.time()
        if left <= 0:
            self.close("the server does not answer")
        else:
            self._loop.call_later(left, self._watch)

    def flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport and self.is_open:
            self._transport.write(b"".join(out))


async def dial(address: Address, node: Tuple[str, int], name: str,
               on_push: Optional[Callable[[Push], None]] = None) -> Wire:
    """Connects to a node and waits until it has read its store."""
    loop = asyncio.get_running_loop()
    host, port = node
    try:
        _, wire = await asyncio.wait_for(loop.create_connection(
            lambda: Wire(on_push), host, port, ssl=address.tls,
            server_hostname=host if address.tls else None), GREETING_SECONDS)
    except ssl.SSLCertVerificationError as error:
        refused = Unreachable(f"the certificate of {host}:{port} is refused: {error}; give "
                              "the authority that signed it with context=")
        refused.lasting = True
        raise refused from None
    except (OSError, asyncio.TimeoutError) as error:
        raise Unreachable(f"cannot connect to {host}:{port}: {error or 'no answer'}; a server is "
                          f"started with: millrace serve --listen {host}:{port}") from None
    try:
        await asyncio.wait_for(_greet(wire, address, node, name), GREETING_SECONDS)
    except asyncio.TimeoutError:
        wire.close()
        raise Unreachable(f"{host}:{port} does not answer") from None
    except BaseException:
        wire.close()
        raise
    return wire


async def _greet(wire: Wire, address: Address, node: Tuple[str, int], name: str) -> None:
    auth = ("AUTH", address.user, address.secret) if address.secret else ()
    where = f"{node[0]}:{node[1]}"
    try:
        hello = await wire.ask("HELLO", 3, *auth, "SETNAME", name)
        if not isinstance(hello, dict) or hello.get("server") != b"millrace":
            raise Incompatible("it is not a Millrace server")
        wire.session = str(hello.get("id", ""))
        await wire.ask("CLIENT", "CANCELS", "ON")
        while b"loading:1" in await wire.ask("INFO", "persistence"):
            await asyncio.sleep(0.1)
    except (Usage, Incompatible, TypeError) as error:
        raise Incompatible(f"{where} does not speak the protocol of this library: {error}; connect "
                           "to a Millrace server of version 0.2 or later") from None
