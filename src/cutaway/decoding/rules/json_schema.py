"""A JSON schema as a regular expression, which `allow` keeps: whatever is generated can be read, and fits the schema.

    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
              "required": ["name"]}
    generate(model, tokenizer, "Jane is 41. As JSON: ", allow=pattern_of(schema))

Objects have the declared properties and no others, in their order; one space may follow a comma or a colon. Not all
that a schema allows is written, then, but nothing else is. What an expression cannot keep is refused by its name.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any

from cutaway.decoding.rules import json_values as values
from cutaway.decoding.rules.regex_automaton import Automaton
from cutaway.errors import InputError

DEPTH = 3  # of a value that may be anything
MOST_LEVELS = 4
MOST_NESTED = 32
MOST_NODES = 5_000
LONGEST = 100_000  # characters of an expression
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
KEYWORDS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
NOTES = {
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id",
    "$anchor", "$defs", "definitions",
}  # fmt: skip
WHOLE = ("const", "enum", "anyOf", "allOf", "$ref")  # each stands alone, or beside a type
KNOWN = {"type", *NOTES, *WHOLE, *(keyword for keywords in KEYWORDS.values() for keyword in keywords)}


def any_object(depth: int = 4) -> str:
    """An expression for any JSON object, with `depth` levels of objects and arrays, itself included."""
    if not 1 <= depth <= MOST_LEVELS:
        raise InputError(f"depth={depth} is not from 1 to {MOST_LEVELS}")
    return values.map_of(values.any_value(depth - 1))


def pattern_of(schema: Mapping[str, Any] | bool) -> str:
    """The expression that the values of a schema match; InputError: it cannot be kept."""
    reader = _Reader(schema)
    found = reader.value(schema, "#", 0)
    try:
        Automaton(found)
    except InputError:
        raise InputError(f"the schema is too large: {reader.largest_part}") from None
    return found


class _Reader:
    def __init__(self, root: object) -> None:
        self.root = root
        self.nodes = 0
        self.counts: list[tuple[int, str]] = []
        self.named: dict[str, str] = {}  # what each $ref stands for
        self.open: list[str] = []
        self.written = 0  # characters

    @property
    def largest_part(self) -> str:
        if not self.counts:
            return "leave some of it out"
        count, place = max(self.counts)
        return f"{count:,} at {place} is the largest number in it"

    def value(self, schema: Any, place: str, depth: int) -> str:
        """What may stand for one part of the schema."""
        self.nodes += 1
        if depth > MOST_NESTED or self.nodes > MOST_NODES:
            raise InputError(f"the schema is nested deeper than {MOST_NESTED}, or has more than {MOST_NODES:,} parts")
        if schema is True or schema == {}:
            return values.any_value(DEPTH)
        if schema is False:
            raise _refused(place, "allows nothing")
        if not isinstance(schema, Mapping):
            raise _refused(place, f"is no schema, but {_short(schema)}")
        for keyword in schema:
            if keyword not in KNOWN:
                raise _refused(place, f"has the keyword {_short(keyword)}, which cannot be kept")
        whole = [keyword for keyword in WHOLE if keyword in schema]
        found = self._whole(schema, whole, place, depth) if whole else self._typed(schema, place, depth)
        self.written += len(found)
        if len(found) > LONGEST or self.written > MOST_NESTED * LONGEST:
            raise _refused(place, f"needs an expression of more than {LONGEST:,} characters")
        return found

    def _whole(self, schema: Mapping[str, Any], whole: Sequence[str], place: str, depth: int) -> str:
        keyword, *others = (*whole, *(one for one in schema if one not in NOTES and one not in (*WHOLE, "type")))
        if others or ("type" in schema and keyword not in ("const", "enum")):
            beside = others[0] if others else "type"
            raise _refused(place, f"has {keyword} and {_short(beside)} side by side: keep one of them")
        what, place = schema[keyword], f"{place}/{keyword}"
        if keyword == "$ref":
            return self._named(what, place, depth)
        if keyword == "const":
            return self._constants([what], schema, place)
        if not isinstance(what, list) or not what:
            raise _refused(place, "is not a list of at least one")
        if keyword == "enum":
            return self._constants(what, schema, place)
        if keyword == "allOf" and len(what) > 1:
            raise _refused(place, "has more than one schema, which cannot be kept: merge them")
        return values.either([self.value(one, f"{place}/{n}", depth + 1) for n, one in enumerate(what)])

    def _constants(self, constants: Sequence[object], schema: Mapping[str, Any], place: str) -> str:
        types = _types(schema, place)
        fitting = [one for one in constants if not set(types).isdisjoint(_types_of(one))]
        if not fitting:
            raise _refused(place, "has no value of this type")
        try:
            return values.either(list(dict.fromkeys(map(values.constant, fitting))))
        except (ValueError, TypeError, RecursionError):
            raise _refused(place, "holds what JSON cannot write") from None

    def _named(self, name: object, place: str, depth: int) -> str:
        if not isinstance(name, str) or not name.startswith("#"):
            raise _refused(place, f"is {_short(name)}: only parts of the schema itself can be named, as #/$defs/part")
        if name in self.open:
            raise _refused(place, f"names {_short(name)}, of which it is a part: an expression cannot nest without end")
        if name not in self.named:
            schema: Any = self.root
            for key in name.split("/")[1:]:
                key = key.replace("~1", "/").replace("~0", "~")
                if not isinstance(schema, Mapping) or key not in schema:
                    raise _refused(place, f"names {_short(name)}, which is not there")
                schema = schema[key]
            self.open.append(name)
            self.named[name] = self.value(schema, name, depth + 1)
            self.open.pop()
        return self.named[name]

    def _typed(self, schema: Mapping[str, Any], place: str, depth: int) -> str:
        said = [kind for kind, keywords in KEYWORDS.items() if any(keyword in schema for keyword in keywords)]
        if "type" not in schema and not said:
            return values.any_value(DEPTH)
        ways = []
        for kind in _types(schema, place) if "type" in schema else said:
            match kind:
                case "object":
                    ways.append(self._object(schema, place, depth))
                case "array":
                    ways.append(self._array(schema, place, depth))
                case "string":
                    ways.append(self._string(schema, place))
                case "integer" | "number":
                    ways.append(self._number(schema, place, whole=kind == "integer"))
                case "boolean":
                    ways.append("(?:true|false)")
                case "null":
                    ways.append("null")
        return values.either(ways)

    def _object(self, schema: Mapping[str, Any], place: str, depth: int) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, Mapping):
            raise _refused(f"{place}/properties", "is not an object")
        if not isinstance(required, list):
            raise _refused(f"{place}/required", "is not a list")
        for name in required:
            if not isinstance(name, str) or name not in properties:
                raise _refused(f"{place}/required", f"names {_short(name)}, which properties does not declare")
        needed = set(required)
        if not properties:
            more = schema.get("additionalProperties", True)
            if more is False:
                return r"\{\}"
            return values.map_of(self.value(more, f"{place}/additionalProperties", depth + 1))
        pairs: list[tuple[str, bool]] = []
        for name, inner in properties.items():
            its = self.value(inner, f"{place}/properties/{name}", depth + 1)
            pairs.append((f"{self._constants([str(name)], {}, place)}{values.COLON}{its}", name in needed))
        if not needed and sum(n * len(pair) for n, (pair, _) in enumerate(pairs)) > LONGEST:  # see `_joined`
            raise _refused(place, f"needs an expression of more than {LONGEST:,} characters: make a property required")
        return rf"\{{{_joined(pairs)}\}}"

    def _array(self, schema: Mapping[str, Any], place: str, depth: int) -> str:
        least = self._count(schema, "minItems", place) or 0
        most = self._count(schema, "maxItems", place)
        first, more = schema.get("prefixItems", []), schema.get("items", True)
        if not isinstance(first, list):
            raise _refused(f"{place}/prefixItems", "is not a list")
        fixed = [self.value(one, f"{place}/prefixItems/{n}", depth + 1) for n, one in enumerate(first)][:most]
        if more is False:
            most = len(fixed)
        if most is not None and most < least:
            raise _refused(place, f"wants {least:,} items and has room for {most:,}")
        item = self.value(more, f"{place}/items", depth + 1) if most is None or most > len(fixed) else ""
        return _list(fixed, item, least, most)

    def _string(self, schema: Mapping[str, Any], place: str) -> str:
        least = self._count(schema, "minLength", place) or 0
        most = self._count(schema, "maxLength", place)
        if most is not None and most < least:
            raise _refused(place, f"has minLength={least:,} above maxLength={most:,}")
        pattern, form = schema.get("pattern"), schema.get("format")
        if pattern is not None and form is not None:
            raise _refused(place, "has pattern and format side by side: keep one of them")
        if form is not None:
            if not isinstance(form, str) or form not in values.FORMATS:
                known = ", ".join(values.FORMATS)
                raise _refused(
                    f"{place}/format", f"is {_short(form)}: {known} can be kept; leave it out, or say pattern"
                )
            if least or most is not None:
                raise _refused(place, "has format and a length side by side: keep one of them")
            return f'"{values.FORMATS[form]}"'
        if pattern is None:
            return values.text(least, most)
        if not isinstance(pattern, str):
            raise _refused(f"{place}/pattern", f"is {_short(pattern)}, not a text")
        try:
            return values.matching(pattern, least, most)
        except ValueError as error:
            raise _refused(f"{place}/pattern", f"{_short(pattern)} {error}") from None

    def _number(self, schema: Mapping[str, Any], place: str, *, whole: bool) -> str:
        bounds = {keyword: schema[keyword] for keyword in KEYWORDS["number"] if keyword in schema}
        if not bounds:
            return values.INTEGER if whole else values.NUMBER
        least, most, above, below = -values.LARGEST, values.LARGEST, False, False
        for keyword, bound in bounds.items():
            if isinstance(bound, bool) or not isinstance(bound, int | float) or bound - bound != 0:
                raise _refused(f"{place}/{keyword}", f"is {_short(bound)}, not a number")
            if not whole and bound != floor(bound):
                raise _refused(
                    f"{place}/{keyword}", f"is {bound}: of a number that is not an integer, whole bounds only"
                )
            excluded = keyword.startswith("exclusive")
            if keyword.endswith("inimum"):
                bound = floor(bound) + 1 if whole and excluded else ceil(bound)
                if (bound, excluded) > (least, above):
                    least, above = bound, excluded
            else:
                bound = ceil(bound) - 1 if whole and excluded else floor(bound)
                if (-bound, excluded) > (-most, below):
                    most, below = bound, excluded
        found = values.integer(least, most) if whole else values.number(least, most, above, below)
        if not found:
            raise _refused(place, f"leaves no number of at most {values.DIGITS} digits between its bounds")
        return found

    def _count(self, schema: Mapping[str, Any], keyword: str, place: str) -> int | None:
        count = schema.get(keyword)
        if count is None:
            return None
        if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count < 1 << 31 or count % 1:
            raise _refused(f"{place}/{keyword}", f"is {_short(count)}, not a count that can be kept")
        self.counts.append((int(count), f"{place}/{keyword}"))
        return int(count)


def _joined(pairs: Sequence[tuple[str, bool]]) -> str:
    """Pairs in their order, with commas between them; those that are not required may be missing.

    If none is, each may be the first, and those behind it are written again.
    """
    behind = [f"{values.COMMA}{pair}" if needed else f"(?:{values.COMMA}{pair})?" for pair, needed in pairs]
    first = next((n for n, (_, needed) in enumerate(pairs) if needed), None)
    if first is not None:
        before = "".join(f"(?:{pair}{values.COMMA})?" for pair, _ in pairs[:first])
        return before + pairs[first][0] + "".join(behind[first + 1 :])
    ways = [pair + "".join(behind[n + 1 :]) for n, (pair, _) in enumerate(pairs)]
    return f"(?:{'|'.join(ways)})?"


def _list(fixed: Sequence[str], item: str, least: int, most: int | None) -> str:
    """The fixed items, then more of one kind, at least and at most so many in all."""
    fixed = fixed or [item] * bool(item)
    inside = ""
    if item and (most is None or most > len(fixed)):
        repeat = values.repeat(max(0, least - len(fixed)), None if most is None else most - len(fixed))
        inside = f"(?:{values.COMMA}{item}){repeat}"
    for n in reversed(range(len(fixed))):
        inside = (values.COMMA if n else "") + fixed[n] + inside
        if n >= least:
            inside = f"(?:{inside})?"
    return rf"\[{inside}\]"


def _types(schema: Mapping[str, Any], place: str) -> list[str]:
    kinds = schema.get("type", list(TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    wrong = [kind for kind in kinds if kind not in TYPES] if isinstance(kinds, list) and kinds else [kinds]
    if wrong:
        raise _refused(f"{place}/type", f"is {_short(wrong[0])}: the types are {', '.join(TYPES)}")
    return list(dict.fromkeys(kinds))


def _types_of(value: object) -> list[str]:
    match value:
        case bool():
            return ["boolean"]
        case int():
            return ["integer", "number"]
        case float():
            return ["number", "integer"] if value % 1 == 0 else ["number"]
        case str():
            return ["string"]
        case None:
            return ["null"]
    return ["object"] if isinstance(value, Mapping) else ["array"]


def _refused(place: str, why: str) -> InputError:
    place = place if len(place) <= 100 else f"{place[:60]}…{place[-39:]}"
    return InputError(f"the schema at {place} {why}")


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**60:
        return "a huge number"
    text = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}…"
