"""Final answers of smolagents, as sandboxed code gave them: hostile text, of which only plain data is made."""

from __future__ import annotations

import base64
import binascii
import io
import json
from typing import Any

_DATA = 1 << 20
_IMAGE = 16 << 20
# In base64, and what is around it.
LARGEST = _IMAGE * 4 // 3 + 4096
_PARTS = 16
_PIXELS = 4096 * 4096
_DEPTH = 64
_PNG = b"\x89PNG\r\n\x1a\n"
_SAFE = "safe:"
_IMAGE_TYPE = "PIL.Image"


def decode(given: str) -> Any:
    """JSON, bytes, tuples, and one PNG image if it is the whole answer. Anything else stays text.

    >>> decode('safe:[1, {"__type__": "tuple", "data": [2]}]')
    [1, (2,)]
    >>> decode('safe:{"__type__": "set", "data": [1, 2]}')
    '{"__type__": "set", "data": [1, 2]}'

    Raises:
        ValueError: it is too large, or in no format that is decoded.
    """
    if given.startswith("pickle:"):
        raise ValueError("pickle data rejected: nothing of a sandbox is unpickled")
    if not given.startswith(_SAFE):
        raise ValueError("the final answer is in no known format")
    text = given[len(_SAFE) :]
    if len(text) > LARGEST:
        raise ValueError("the final answer is too large")
    # Only an image may be longer, which has few parts: what is parsed takes memory for each.
    if len(text) > _DATA and parts(text) > _PARTS:
        raise ValueError(f"the final answer is longer than {_DATA} characters")
    try:
        data = json.loads(text)
        if isinstance(data, dict) and data.get("__type__") == _IMAGE_TYPE:
            return _image(data.get("data"))
        if len(text) > _DATA:
            raise ValueError(f"the final answer is longer than {_DATA} characters")
        return _plain(data, 0)
    except RecursionError as error:
        raise ValueError("the final answer is nested too deep") from error


def parts(text: str) -> int:
    """The most parts that a JSON text can have."""
    return sum(text.count(sign) for sign in "[{,:")


def _plain(given: Any, depth: int) -> Any:
    if depth > _DEPTH:
        raise ValueError("the final answer is nested too deep")
    if isinstance(given, list):
        return [_plain(one, depth + 1) for one in given]
    if not isinstance(given, dict):
        return given
    if "__type__" not in given:
        return {key: _plain(value, depth + 1) for key, value in given.items()}
    kind, data = given["__type__"], given.get("data")
    if kind == "tuple" and isinstance(data, list):
        return tuple(_plain(one, depth + 1) for one in data)
    if kind == "bytes" and isinstance(data, str):
        return _bytes(data)
    return json.dumps(given)


def _bytes(given: str) -> bytes:
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("the final answer has bytes that are not base64") from error


def _image(given: Any) -> Any:
    """A PNG image. No other format is tried: some are read by programs that do what the image says."""
    data = _bytes(given) if isinstance(given, str) else b""
    # The first chunk has the size.
    if not data.startswith(_PNG) or data[12:16] != b"IHDR" or len(data) < 24:
        raise ValueError("the final answer is an image that is not PNG")
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if width * height > _PIXELS:
        raise ValueError("the final answer is an image with too many pixels")
    import PIL.Image

    try:
        image = PIL.Image.open(io.BytesIO(data), formats=("PNG",))
        if image.size[0] * image.size[1] > _PIXELS:
            raise ValueError("the final answer is an image with too many pixels")
        image.load()
    except (OSError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise ValueError("the final answer is an image that can't be read") from error
    return image
