"""The wire: addresses, RESP3, and a connection on which replies come in the order of requests."""
from __future__ import annotations

import asyncio
import collections
import ssl
import urllib.parse
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Tuple, Union

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
        raise ValueError(f"{url!r} is not a URL of Millrace: write millrace://127.0.0.1:7411, or "
                         "millraces://… for TLS")
    users, _, hosts = rest.rstrip("/").rpartition("@")
    user, _, secret = users.rpartition(":") if ":" in users else ("", "", users)
    nodes = []
    for host in hosts.split(","):
        part = urllib.parse.urlsplit("//" + host)
        if not part.hostname:
            raise ValueError(f"{url!r} has a host without a name")
        nodes.append((part.hostname, part.port or 7411))
    tls = (context or ssl.create_default_context()) if scheme == "millraces" else None
    secret = urllib.parse.unquote(secret) or token or ""
    return Address(tuple(nodes), tls, urllib.parse.unquote(user) or "default", secret)


def encode(words: Tuple[Word, ...]) -> bytes:
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


def _parse(data: bytearray, at: int, depth: int = 0) -> Tuple[Any, int]:
    """One value and where the next begins. An error reply is a value, too."""
    end = data.find(b"\r\n", at, at + REPLY_LINE)
    if end < 0:
        _bounded(b"%d" % (len(data) - at), REPLY_LINE)
        raise _Incomplete
    kind, line, at = data[at], bytes(data[at + 1:end]), end + 2
    if kind == 0x24:  # $
        size = _bounded(line, REPLY_BULK)
        if size < 0:
            return None, at
        if len(data) < at + size + 2:
            raise _Incomplete(at + size + 2)
        return bytes(data[at:at + size]), at + size + 2
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
        self.closed = asyncio.get_running_loop().create_future()
        self.session = ""
        self._on_push = on_push
        self._data = bytearray()
        self._needed = 0  # bytes without which no reply is whole
        self._waiting: Deque[Tuple[asyncio.Future[Any], float]] = collections.deque()
        self._watched = self._retired = False
        self._out: List[bytes] = []
        self._transport: Optional[asyncio.Transport] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < self._needed:
            return
        at, self._needed = 0, 0
        try:
            while at < len(self._data):
                value, at = _parse(self._data, at)
                if isinstance(value, Push):
                    if self._on_push:
                        self._on_push(value)
                    continue
                future, _ = self._waiting.popleft()
                if future.done():
                    continue
                if isinstance(value, MillraceError):
                    future.set_exception(value)
                else:
                    future.set_result(value)
        except _Incomplete as cut:
            self._needed = max(0, cut.size - at)
        except (Unreachable, ValueError, IndexError, TypeError) as error:
            self.close(f"the server's reply makes no sense: {error}")
        del self._data[:at]
        if self._retired and not self._waiting:
            self.close()

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.close(str(error or "the server closed the connection"))

    def close(self, why: str = "the connection was closed") -> None:
        if self.closed.done():
            return
        self.closed.set_result(why)
        if self._transport:
            self._transport.abort()
        for future, _ in self._waiting:
            if not future.done():
                future.set_exception(Unreachable(why))
        self._waiting.clear()

    def retire(self) -> None:
        """Closes it when all replies have come."""
        self._retired = True
        if not self._waiting:
            self.close()

    def ask(self, *words: Word, wait: float = 0) -> "asyncio.Future[Any]":
        """Sends a command, which may wait in the server for so many seconds; requests of one turn
        of the loop leave together. A server that is silent for long is given up."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self.closed.done():
            future.set_exception(Unreachable(self.closed.result()))
            return future
        self._waiting.append((future, loop.time() + wait + SILENCE_SECONDS))
        if not self._watched:
            self._watched = True
            loop.call_later(SILENCE_SECONDS, self._watch)
        if not self._out:
            loop.call_soon(self._flush)
        self._out.append(encode(words))
        return future

    def _watch(self) -> None:
        self._watched = bool(self._waiting) and not self.closed.done()
        if not self._watched:
            return
        loop = asyncio.get_running_loop()
        left = self._waiting[0][1] - loop.time()
        if left <= 0:
            self.close("the server does not answer")
        else:
            loop.call_later(left, self._watch)

    def _flush(self) -> None:
        if self._transport and not self.closed.done():
            self._transport.write(b"".join(self._out))
        self._out.clear()


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
        refused = Unreachable(f"the certificate of {host}:{port} is refused: {error}")
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
    try:
        hello = await wire.ask("HELLO", 3, *auth, "SETNAME", name)
    except Usage as error:
        raise Incompatible(f"{node[0]}:{node[1]} refuses HELLO 3: {error}") from None
    if not isinstance(hello, dict) or hello.get("server") != b"millrace":
        raise Incompatible(f"what listens on {node[0]}:{node[1]} is not a Millrace server")
    wire.session = str(hello.get("id", ""))
    await wire.ask("CLIENT", "CANCELS", "ON")
    while b"loading:1" in await wire.ask("INFO", "persistence"):
        await asyncio.sleep(0.1)
