"""JSON schemas drawn at random, each with values that fit it; and a validator of its own, as the standard says."""

import re
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: not isinstance(value, bool) and isinstance(value, int | float) and value == int(value),
    "number": lambda value: not isinstance(value, bool) and isinstance(value, int | float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def fits(value: Any, schema: Any, root: Any = None) -> bool:
    """Whether a value is one that the schema allows."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    kinds = schema.get("type", list(TYPES))
    checks = [any(TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds))]
    if "$ref" in schema:
        target = root
        for key in schema["$ref"].split("/")[1:]:
            target = target[key]
        checks.append(fits(value, target, root))
    if "enum" in schema:
        checks.append(any(same(value, one) for one in schema["enum"]))
    if "const" in schema:
        checks.append(same(value, schema["const"]))
    if "anyOf" in schema:
        checks.append(any(fits(value, one, root) for one in schema["anyOf"]))
    if "allOf" in schema:
        checks.append(all(fits(value, one, root) for one in schema["allOf"]))
    if isinstance(value, str):
        checks += [schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))]
        checks += [re.search(schema.get("pattern", ""), value) is not None]
    if TYPES["number"](value):
        checks += [schema.get("minimum", value) <= value <= schema.get("maximum", value)]
        checks += ["exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"]]
        checks += ["exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"]]
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        checks += [schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))]
        checks += [fits(one, its, root) for one, its in zip(value, first, strict=False)]
        checks += [fits(one, schema.get("items", True), root) for one in value[len(first) :]]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        checks += [name in value for name in schema.get("required", [])]
        checks += [
            fits(one, known.get(name, schema.get("additionalProperties", True)), root) for name, one in value.items()
        ]
    return all(checks)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and isinstance(one, bool) is isinstance(other, bool)


Drawn = tuple[Mapping[str, Any], st.SearchStrategy[Any]]  # a schema, and values that fit it
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
scalars = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | words


@st.composite
def texts(draw: Any) -> Drawn:
    least = draw(st.integers(0, 3))
    most = draw(st.none() | st.integers(least, least + 3))
    schema = {"type": "string", "minLength": least} | ({} if most is None else {"maxLength": most})
    inside = st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('"\\\n\t/')
    return schema, st.text(inside, min_size=least, max_size=most)


@st.composite
def numbers(draw: Any) -> Drawn:
    whole = draw(st.booleans())
    low, high = sorted(draw(st.lists(st.integers(-1200, 1200), min_size=2, max_size=2, unique=True)))
    low_keyword = draw(st.sampled_from(["minimum", "exclusiveMinimum", ""]))
    high_keyword = draw(st.sampled_from(["maximum", "exclusiveMaximum", ""]))
    high += 2  # so that some number lies between them
    bounds = {low_keyword: low, high_keyword: high}
    schema = {"type": "integer" if whole else "number"} | {
        keyword: bound for keyword, bound in bounds.items() if keyword
    }
    quarters = st.integers(4 * low, 4 * high).map(lambda n: n // 4 if whole or n % 4 == 0 else n / 4)
    return schema, quarters.filter(lambda value: fits(value, schema))


@st.composite
def lists(draw: Any, inner: st.SearchStrategy[Drawn]) -> Drawn:
    schema, items = draw(inner)
    first = draw(st.lists(inner, max_size=2))
    least = draw(st.integers(0, 3))
    most = draw(st.none() | st.integers(least, 4))
    whole: dict[str, Any] = {"type": "array", "minItems": least, "items": schema}
    whole |= {"prefixItems": [one for one, _ in first]} if first else {}
    whole |= {} if most is None else {"maxItems": most}

    @st.composite
    def values(draw: Any) -> list[Any]:
        n = draw(st.integers(least, 4 if most is None else most))
        return [draw(first[i][1] if i < len(first) else items) for i in range(n)]

    return whole, values()


@st.composite
def objects(draw: Any, inner: st.SearchStrategy[Drawn]) -> Drawn:
    named = draw(st.dictionaries(words, inner, min_size=1, max_size=4))
    required = [name for name in named if draw(st.booleans())]
    whole = {"type": "object", "properties": {name: one for name, (one, _) in named.items()}, "required": required}

    @st.composite
    def values(draw: Any) -> dict[str, Any]:
        return {name: draw(its) for name, (_, its) in named.items() if name in required or draw(st.booleans())}

    return whole | draw(st.sampled_from([{}, {"additionalProperties": False}])), values()


@st.composite
def maps(draw: Any, inner: st.SearchStrategy[Drawn]) -> Drawn:
    schema, its = draw(inner)
    return {"type": "object", "additionalProperties": schema}, st.dictionaries(words, its, max_size=3)


@st.composite
def choices(draw: Any, inner: st.SearchStrategy[Drawn]) -> Drawn:
    ways = draw(st.lists(inner, min_size=1, max_size=3))
    return {"anyOf": [one for one, _ in ways], "title": "one of them"}, st.one_of([its for _, its in ways])


leaves = st.one_of(
    texts(),
    numbers(),
    st.lists(scalars, min_size=1, max_size=4).map(lambda some: ({"enum": some}, st.sampled_from(some))),
    scalars.map(lambda one: ({"const": one}, st.just(one))),
    st.just(({"type": ["boolean", "null"]}, st.none() | st.booleans())),
    st.just(({"type": "string", "pattern": "^[A-Z]{2}-\\d+$"}, st.sampled_from(["AB-1", "ZZ-042"]))),
    st.just(({}, st.recursive(scalars, lambda inner: st.lists(inner, max_size=2), max_leaves=3))),
)
schemas = st.recursive(
    leaves, lambda inner: st.one_of(lists(inner), objects(inner), maps(inner), choices(inner)), max_leaves=5
)
