"""Bodies, results, states and metadata: JSON for dicts and lists, text and bytes as they are."""
from __future__ import annotations

import json
from typing import Any, Optional, Union

from .errors import BadBody

Meta = Union[str, bytes, dict, None]  # type: ignore[type-arg]


def to_bytes(value: Any, what: str = "body") -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise BadBody(f"the {what} cannot be turned into JSON: {error}; give bytes, a string, or "
                      "what json.dumps takes") from None


def from_bytes(data: Optional[bytes]) -> Any:
    """A JSON object or array, or else text, or else the bytes: what to_bytes was given."""
    if data is None:
        return None
    if data[:1] in (b"{", b"["):
        try:
            return json.loads(data)
        except ValueError:
            pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def readable(value: Any) -> Any:
    """A reply with text instead of bytes, at any depth."""
    if isinstance(value, list):
        return [readable(v) for v in value]
    if isinstance(value, dict):
        return {name: readable(v) for name, v in value.items()}
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def strict_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise BadBody(f"the body is not JSON: {error}") from None


def milliseconds(seconds: float) -> int:
    return -1 if seconds < 0 else round(seconds * 1000)
