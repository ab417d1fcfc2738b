"""Regular expressions of JSON's simple values: texts, numbers within bounds, and any value of bounded depth.

They are as narrow as it takes for whatever matches to be read back as it was meant: no text holds half of a surrogate
pair, and no whole number has more than 15 digits, which a float of 64 bits keeps apart.
"""

import json
import re
import warnings
from functools import cache
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from cutaway.decoding.rules.regex_automaton import SURROGATES, Ranges, category, merged, others

DIGITS = 15
LARGEST = 10**DIGITS - 1
COMMA, COLON = ", ?", ": ?"
CHARACTER = r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])'
TEXT = f'"{CHARACTER}*"'
INTEGER = f"-?(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})"
NUMBER = rf"{INTEGER}(?:\.[0-9]{{1,{DIGITS}}})?(?:[eE][+-]?[0-9]{{1,2}})?"
SCALAR = rf"(?:{TEXT}|{INTEGER}(?:\.[0-9]{{1,6}})?|true|false|null)"
MONTH_AND_DAY = r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
DAY = rf"(?:[0-9]{{3}}[1-9]|[1-9][0-9]{{3}})-{MONTH_AND_DAY}"
TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
HEX = "[0-9a-f]"
FORMATS = {
    "date": DAY,
    "time": TIME,
    "date-time": f"{DAY}T{TIME}",
    "uuid": f"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}",
    "ipv4": r"(?:(?:25[0-5]|(?:2[0-4]|1[0-9]|[1-9])?[0-9])\.){3}(?:25[0-5]|(?:2[0-4]|1[0-9]|[1-9])?[0-9])",
    "email": r"[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*@(?:[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\.)+[A-Za-z]{2,24}",
}
ESCAPES = {'"': r"\"", "\\": r"\\", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
UNWRITTEN = merged([(0, 0x1F), (ord('"'), ord('"')), (ord("\\"), ord("\\")), SURROGATES])  # if not by an escape
NARROW = {"DIGIT": ((48, 57),), "WORD": ((48, 57), (65, 90), (95, 95), (97, 122)), "SPACE": ((9, 13), (32, 32))}
BOM = (0xFEFF, 0xFEFF)
ANY = others(((10, 10), (13, 13), (0x2028, 0x2029)))


def constant(value: object) -> str:
    """A value as `json.dumps` writes it. ValueError: what is no JSON, or holds half of a surrogate pair."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return re.escape(text)


def text(least: int = 0, most: int | None = None) -> str:
    return f'"{CHARACTER}{repeat(least, most)}"'


def repeat(least: int, most: int | None) -> str:
    return "*" if (least, most) == (0, None) else f"{{{least},{'' if most is None else most}}}"


@cache
def any_value(depth: int) -> str:
    """Any value whose arrays and objects are nested at most so deep."""
    if not depth:
        return SCALAR
    inner = any_value(depth - 1)
    return f"(?:{SCALAR}|{list_of(inner)}|{map_of(inner)})"


def list_of(item: str) -> str:
    return rf"\[(?:{item}(?:{COMMA}{item})*)?\]"


def map_of(value: str) -> str:
    pair = f"{TEXT}{COLON}{value}"
    return rf"\{{(?:{pair}(?:{COMMA}{pair})*)?\}}"


# --- numbers within bounds --------------------------------------------------------------------------------------------


def integer(least: int, most: int) -> str:
    """The whole numbers from `least` to `most`, of at most 15 digits; none: an empty text."""
    least, most = max(least, -LARGEST), min(most, LARGEST)
    ways = [f"-{_natural(max(1, -most), -least)}"] if least < 0 and -least >= max(1, -most) else []
    if most >= max(0, least):
        ways.append(_natural(max(0, least), most))
    return either(ways) if ways else ""


def number(least: int, most: int, above: bool, below: bool) -> str:
    """The numbers from `least` to `most`, without these themselves where `above` and `below` say so.

    They have as many decimals as 15 digits leave, so that none is rounded to another side of a bound.
    """
    least, most = max(least, -LARGEST), min(most, LARGEST)
    decimals = DIGITS - max((len(str(abs(bound))) for bound in (least, most) if abs(bound) < LARGEST), default=1)
    ways = []
    if least < 0:
        ways += _magnitudes("-", max(0, -most), -least, most >= 0 or below, above, decimals)  # 0 has no sign
    if most >= 0:
        ways += _magnitudes("", max(0, least), most, least >= 0 and above, below, decimals)
    return either(ways) if ways else ""


def _magnitudes(sign: str, least: int, most: int, above: bool, below: bool, decimals: int) -> list[str]:
    ways, start = [], least + 1 if above else least
    if start < most:  # each whole number, and what lies between it and the next
        ways.append(sign + _natural(start, most - 1) + (rf"(?:\.[0-9]{{1,{decimals}}})?" if decimals else ""))
    if above and decimals and least < most:
        ways.append(rf"{sign}{least}\.[0-9]{{0,{decimals - 1}}}[1-9]")
    if not below and start <= most:
        ways.append(f"{sign}{most}")
    return ways


def either(ways: list[str]) -> str:
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _natural(least: int, most: int) -> str:
    """The whole numbers from `least` ≥ 0 to `most`."""
    lengths = range(len(str(least)), len(str(most)) + 1)
    ways = [_same_length(str(max(least, 10 ** (n - 1) if n > 1 else 0)), str(min(most, 10**n - 1))) for n in lengths]
    if most == LARGEST and len(ways) > 1:
        ways[1:] = [f"[1-9][0-9]{{{lengths[1] - 1},{DIGITS - 1}}}"]
    return either(ways)


def _same_length(least: str, most: str) -> str:
    """The same, of numbers with equally many digits."""
    n = len(least) - 1
    if least[0] == most[0]:
        return least[0] + (_same_length(least[1:], most[1:]) if n else "")
    ways, first, last = [], int(least[0]), int(most[0])
    if n and least[1:].strip("0"):
        ways.append(least[0] + _same_length(least[1:], "9" * n))
        first += 1
    if n and most[1:].strip("9"):
        ways.append(most[0] + _same_length("0" * n, most[1:]))
        last -= 1
    if first <= last:
        ways.append(f"[{first}-{last}]" + (f"[0-9]{{{n}}}" if n else ""))
    return either(ways)


# --- texts that match an expression -----------------------------------------------------------------------------------


def matching(pattern: str, least: int, most: int | None) -> str:
    """The texts in which `pattern` is found, as JSON writes them; ValueError: what cannot be written so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what later versions of Python will read otherwise
        try:
            parsed = parser.parse(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"is no regular expression: {error}") from None
    if parsed.state.flags & ~re.UNICODE:
        raise ValueError("has flags such as (?i), which an expression of a schema does not have")
    items = list(parsed)
    begins = bool(items) and str(items[0][1]) == "AT_BEGINNING"
    items = items[begins:]
    ends = bool(items) and str(items[-1][1]) == "AT_END"
    items = items[: len(items) - ends]
    low, high = parsed.getwidth() if begins and ends else (parsed.getwidth()[0], parser.MAXREPEAT)
    if low < least or (most is not None and high > most):
        raise ValueError("has texts that minLength or maxLength forbid: say the length in the expression alone")
    anything = f"{CHARACTER}*"
    return f'"{"" if begins else anything}{_sequence(items)}{"" if ends else anything}"'


def _sequence(items: Any) -> str:
    return "".join(_item(str(kind), what) for kind, what in items)


def _item(kind: str, what: Any) -> str:
    match kind:
        case "SUBPATTERN" if not (what[1] or what[2]):
            return f"(?:{_sequence(what[3])})"
        case "BRANCH":
            return f"(?:{'|'.join(map(_sequence, what[1]))})"
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, inner = what
            return f"(?:{_sequence(inner)}){repeat(least, None if most is parser.MAXREPEAT else most)}"
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
            return _written(_characters(kind, what))
    raise ValueError("uses more than characters, classes, | and repeats, with ^ in front and $ at the end")


def _characters(kind: str, what: Any, wide: bool = False) -> Ranges:
    match kind:
        case "LITERAL":
            return ((what, what),)
        case "NOT_LITERAL":
            return others(((what, what),))
        case "ANY":
            return ANY
        case "RANGE":
            return (what,)
        case "CATEGORY":
            return _class(str(what).removeprefix("CATEGORY_"), wide)
    negated = str(what[0][0]) == "NEGATE"
    parts = [_characters(str(kind), item, wide=wide is not negated) for kind, item in what[negated:]]
    together = merged([one for part in parts for one in part])
    return others(together) if negated else together


def _class(name: str, wide: bool) -> Ranges:
    """What Python's `re` and ECMAScript, whose expressions JSON Schema means, agree on; `wide`: what either takes."""
    if name.startswith("NOT_"):
        return others(_class(name.removeprefix("NOT_"), not wide))
    if wide:
        return merged([*category(name.lower()), *([BOM] if name == "SPACE" else [])])
    return NARROW[name]


def _written(ranges: Ranges) -> str:
    """One of these characters, as JSON writes it."""
    plain = others(merged([*others(ranges), *UNWRITTEN]))
    escapes = [re.escape(way) for char, way in ESCAPES.items() if any(low <= ord(char) <= high for low, high in ranges)]
    inside = "".join(re.escape(chr(low)) + (f"-{re.escape(chr(high))}" if high > low else "") for low, high in plain)
    ways = ([f"[{inside}]"] if plain else []) + escapes
    if not ways:
        raise ValueError("needs a character that JSON cannot write")
    return either(ways)
