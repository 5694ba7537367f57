"""Changing valid inputs a little: bytes at any place, nodes of a JSON tree, lines and words of a TOML text.

A byte changed at random seldom gets past the first syntax check, and a tree changed at random never breaks the
syntax; a fuzzer needs both. Everything here is a function of the generator that is handed in, so that a seed tells
the input again.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

Mutate = Callable[[random.Random, bytes, Sequence[str]], bytes]

SNIPPETS: Final = (
    *(b"\x00", b"\\u0000", b"\\ud800", b"\\udc00", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xef\xbb\xbf"),
    *(b"1.5", b"1e9", b"NaN", b"Infinity", b"-", b"-0", b"00", b"9" * 17, b"9007199254740992", b"-9007199254740991"),
    *(b" ", b"\n", b"\r", b"\t", b"{", b"}", b"[", b"]", b"[[", b"]]", b",", b":", b'"', b"'", b"\\", b"=", b".", b"#"),
    *(b'"""', b"'''", b"null", b"true", b"false", b"{}", b"[]", b"``", b"$", b" - at `$.x`", b"[" * 70, b"a." * 40),
)
SCALARS: Final = (
    *(None, True, False, 0, 1, -1, 255, 256, 2**31, 2**53 - 1, 2**53, -(2**53), 2**64, 1.5, 1e300),
    *("", "a", "\0", "\ud800", "\u00e9", "\U0001f600", "$", "x` - at `$.y", "a" * 300, "sha256:" + "0" * 64),
)
_WORD = re.compile(rb"[A-Za-z0-9_.*-]+")
_NODES_MAX: Final = 4_000


def of_bytes(draw: random.Random, data: bytes, words: Sequence[str]) -> bytes:
    """One to five changes of bytes."""
    result = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(result) + 1)
        match draw.randrange(6):
            case 0:
                result[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del result[at : at + draw.choice((1, 1, 4, 40))]
            case 2:
                result[at:at] = draw.choice(SNIPPETS)
            case 3:
                start = draw.randrange(len(result) + 1)
                result[at:at] = result[start : start + draw.randrange(60)]
            case 4 if at < len(result):
                result[at] ^= 1 << draw.randrange(8)
            case _:
                result[at:at] = draw.choice(words).encode() if words else b"a"
    return bytes(result)


def of_json(draw: random.Random, data: bytes, words: Sequence[str]) -> bytes:
    """One to three changes of the tree, written in canonical spelling; of bytes where there is no tree."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return of_bytes(draw, data, words)
    for _ in range(draw.choice((1, 1, 2, 3))):
        tree = _changed(draw, tree, words)
    try:
        text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=draw.random() < 0.1)
    except (ValueError, RecursionError):
        return of_bytes(draw, data, words)
    return text.encode("utf-8", "surrogatepass")


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) of the tree, outermost first."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting and len(found) < _NODES_MAX:
        node = waiting.pop()
        keys: Any = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        found += [(node, key) for key in keys]
        waiting += [node[key] for key in keys]
    return found


def _changed(draw: random.Random, tree: Any, words: Sequence[str]) -> Any:
    places = _places(tree)
    if not places:
        return _leaf(draw, words)
    node, key = draw.choice(places)
    other, other_key = draw.choice(places)
    copied = json.loads(json.dumps(other[other_key]))
    match draw.randrange(8):
        case 0 | 1:
            node[key] = _leaf(draw, words)
        case 2:
            del node[key]
        case 3:
            node[key] = copied
        case 4 if isinstance(node, dict):
            node[draw.choice(words) if words else "a"] = node.pop(key)
        case 5 if isinstance(node, list):
            node.insert(key, copied)
        case 6 if isinstance(node[key], int) and not isinstance(node[key], bool):
            node[key] += draw.choice((-1, 1, 7, 2**31, -node[key], 2**53))
        case _:
            node[key] = draw.choice(([node[key]], {"a": node[key]}, [node[key], copied], [], {}))
    return tree


def _leaf(draw: random.Random, words: Sequence[str]) -> Any:
    return draw.choice(words) if words and draw.random() < 0.5 else draw.choice(SCALARS)


def of_toml(draw: random.Random, data: bytes, words: Sequence[str]) -> bytes:
    """One to three changes of lines and words; a word is what stands between punctuation."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        lines = data.split(b"\n")
        at = draw.randrange(len(lines))
        match draw.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(draw.randrange(len(lines)), lines[at])
            case 2:
                lines.insert(at, lines.pop(draw.randrange(len(lines))))
            case 3 if words:
                lines.insert(at, _entry(draw, words))
            case _:
                found = list(_WORD.finditer(lines[at]))
                if found:
                    start, end = draw.choice(found).span()
                    lines[at] = lines[at][:start] + _word(draw, words) + lines[at][end:]
        data = b"\n".join(lines)
    return data


def _entry(draw: random.Random, words: Sequence[str]) -> bytes:
    value = json.dumps(_leaf(draw, words)).encode()
    return b"%b = %b" % (draw.choice(words).encode(), draw.choice((value, b"[%b]" % value, b"{ a = %b }" % value)))


def _word(draw: random.Random, words: Sequence[str]) -> bytes:
    if words and draw.random() < 0.7:
        return draw.choice(words).encode()
    return json.dumps(draw.choice(SCALARS)).encode()
