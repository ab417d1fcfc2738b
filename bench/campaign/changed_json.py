"""Changes to JSON: values of other kinds, keys that are gone or renamed, nesting, numbers beyond all numbers."""

import json
import re
from copy import deepcopy
from random import Random
from typing import Any

VALUES = (
    None, True, False, 0, 1, -1, 2, 1 << 31, 1 << 32, 1 << 63, -(1 << 63), 1 << 64, 10**30, 10**400, 0.5, -0.0,
    1e308, 5e-324, "", "a", "\0", "\ud800", "a\ud800b", "nan", "inf", "-1", "\u202e", "x" * 70_000, "../x", [], {},
    [[]], [None], ["a"], [0], [1, 2, 3], {"": 0}, {"a": "b"}, {"type": "Sequence"}, [1 << 62, 1 << 62], [-1], [0, 0],
    [1e308],
)  # fmt: skip
RAW = (
    "1e999", "-1e999", "NaN", "Infinity", "1" * 5000, '"\\ud800"', "[" * 3000 + "]" * 3000,
    '{"a":' * 3000 + "1" + "}" * 3000, "01", "'a'", "[" * 100_000, "1.", '"\\x"', '"\t"',
)  # fmt: skip


class Raw(str):
    """Text that stands in the JSON as it is."""


def json_changed(value: Any, draw: Random, times: int = 1) -> str:
    """A value with a node, or a few, that is another."""
    for _ in range(times):
        nodes = list(_nodes(value))
        if not nodes:
            return draw.choice(RAW)
        holder, key = draw.choice(nodes)
        match draw.randrange(8):
            case 0 | 1 | 2:
                holder[key] = deepcopy(draw.choice(VALUES))
            case 3:
                holder[key] = Raw(draw.choice(RAW))
            case 4:
                del holder[key]
            case 5:
                other, its = draw.choice(nodes)
                holder[key] = json.loads(json.dumps(other[its]))
            case 6:
                of = holder[key]
                holder[key] = (
                    of * draw.choice((2, 300))
                    if isinstance(of, str | list)
                    else of + draw.choice((1, -1, 0.5))
                    if isinstance(of, int | float)
                    else [of, of]
                )
            case _ if isinstance(holder, dict):
                holder[draw.choice(("", "a", "type", key + "x", "\ud800", "schema"))] = holder.pop(key)
            case _:
                holder.insert(key, deepcopy(draw.choice(VALUES)))
    return written(value, draw)


def _nodes(value: Any) -> Any:
    """Every place in which a value stands; of long lists and objects, some."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys[:40]:
        yield value, key
        yield from _nodes(value[key])


def written(value: Any, draw: Random) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        pairs = [f"{json.dumps(key)}: {written(inner, draw)}" for key, inner in value.items()]
        if pairs and draw.random() < 0.01:
            pairs.append(draw.choice(pairs))
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(inner, draw) for inner in value) + "]"
    return json.dumps(value)


def in_json(data: bytes, draw: Random) -> bytes:
    return json_changed(json.loads(data), draw, draw.choice((1, 1, 1, 2, 5))).encode()


def in_json_line(data: bytes, draw: Random) -> bytes:
    lines = data.split(b"\n")
    at = draw.choice([i for i, line in enumerate(lines) if line])
    lines[at] = in_json(lines[at], draw)
    return b"\n".join(lines)


def in_page(data: bytes, draw: Random) -> bytes:
    """Of a picture, the numbers that stand in its page."""
    found = re.search(rb'(class="cutaway-data"[^>]*>)([^<]*)<', data)
    if found is None:
        raise ValueError
    return data[: found.start(2)] + in_json(found[2], draw).replace(b"<", b"") + data[found.end(2) :]
