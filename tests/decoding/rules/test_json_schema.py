"""Schemas as expressions: what matches can be read and fits, and what is written in the usual way matches."""

import json
import re
from itertools import product

import pytest
from helpers.json_schemas import fits, same, schemas
from helpers.text_generators import byte_level_once, speaker
from hypothesis import given, settings
from hypothesis import strategies as st

import cutaway
from cutaway.decoding.rules.json_schema import any_object, pattern_of
from cutaway.decoding.rules.regex_automaton import Automaton
from cutaway.errors import InputError

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b", None]}, "maxItems": 2},
    },
    "required": ["name", "age"],
}


def matches(schema, text):
    return Automaton(pattern_of(schema)).matches_text(text)


@settings(max_examples=60, deadline=None)
@given(schemas, st.data())
def test_what_matches_fits_and_what_fits_matches(drawn, data):
    schema, values = drawn
    pattern = pattern_of(schema)
    written = data.draw(st.from_regex(pattern, fullmatch=True))
    assert fits(json.loads(written), schema), written
    value = data.draw(values)
    assert fits(value, schema)
    for separators in ((", ", ": "), (",", ":")):
        text = json.dumps(value, ensure_ascii=False, separators=separators)
        assert Automaton(pattern).matches_text(text), (text, pattern)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.data())
def test_any_object_is_one(depth, data):
    text = data.draw(st.from_regex(any_object(depth), fullmatch=True))
    value = json.loads(text)
    assert isinstance(value, dict)
    assert _levels(value) <= depth


def _levels(value):
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(_levels, inside), default=0)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_an_object_of_every_depth_is_any_object(depth):
    value, deeper = {}, {}
    for n in range(depth - 1):
        value = {"a": value, "b": [1.5, "x", None]} if n % 2 else {"": [value, True]}
        deeper = {"a": [value]}
    automaton = Automaton(any_object(depth))
    assert automaton.matches_text(json.dumps(value)) is (_levels(value) <= depth)
    assert not automaton.matches_text(json.dumps({"a": [[[[[]]]]]}))
    assert len(automaton.free) < 2500
    assert deeper == {} or not automaton.matches_text(json.dumps({"c": {"d": {"e": deeper}}}))


@pytest.mark.parametrize("low", ["minimum", "exclusiveMinimum"])
@pytest.mark.parametrize("high", ["maximum", "exclusiveMaximum"])
def test_the_numbers_between_two_bounds(low, high):
    for least, most in product([-101, -100, -11, -1, 0, 1, 9, 35, 199], repeat=2):
        for kind in ("integer", "number"):
            schema = {"type": kind, low: least, high: most}
            known = [*range(-120, 220)] if kind == "integer" else [n / 4 if n % 4 else n // 4 for n in range(-420, 830)]
            expected = {json.dumps(value) for value in known if fits(value, schema)}
            if not expected:
                with pytest.raises(InputError, match="leaves no number"):
                    pattern_of(schema)
                continue
            automaton = Automaton(pattern_of(schema))
            assert {text for text in map(json.dumps, known) if automaton.matches_text(text)} == expected, schema


def test_lists_of_every_length():
    for fixed, least, most in product(range(3), range(4), [None, 0, 1, 2, 3, 4]):
        schema = {"type": "array", "prefixItems": [{"const": "p"}] * fixed, "items": {"const": 1}, "minItems": least}
        schema |= {} if most is None else {"maxItems": most}
        if most is not None and most < least:
            continue
        automaton = Automaton(pattern_of(schema))
        for n in range(6):
            value = ["p"] * min(n, fixed) + [1] * (n - fixed)
            assert automaton.matches_text(json.dumps(value)) is fits(value, schema), (schema, value)


def test_what_stands_in_a_text_is_escaped():
    automaton = Automaton(pattern_of({"type": "string"}))
    for inside, expected in (('\\"', True), ("\\\\", True), ("\\n", True), ("☃\x7f", True), ('"', False), ("\\", False),
                             ("\n", False), ("\x00", False), ("\\x", False), ("\\ud800", False)):  # fmt: skip
        assert automaton.matches_text(f'"{inside}"') is expected, inside


def test_a_number_is_not_rounded_to_a_bound():
    for schema, text in (
        ({"type": "number", "exclusiveMaximum": 1}, "0." + "9" * 20),
        ({"type": "number", "exclusiveMinimum": 12345678901234}, "12345678901234.001"),
        ({"type": "number", "exclusiveMinimum": 10**14}, f"{10**14}.01"),
    ):
        assert not matches(schema, text)
    assert matches({"type": "number", "exclusiveMaximum": 1}, "0.99999999999999")
    assert not matches({"type": "integer"}, "1" * 16)
    assert matches({"type": "integer", "minimum": -(10**30)}, "-" + "9" * 15)


@pytest.mark.parametrize(
    ("pattern", "there", "missing"),
    [
        ("^[a-z]+$", ["a", "zz"], ["", "A", "a1"]),
        ("[0-9]", ["a1", "1", "12"], ["", "ab"]),
        ("^a", ["a", "ab"], ["ba"]),
        ("a$", ["a", "ba"], ["ab"]),
        (r"^[^\d\s]+$", ["ab", "é"], ["a1", "a b", "٣", "\u2003", "\ufeff"]),
        (r"^\S\D\W$", ["ab.", "a.!"], ["a1.", " a.", "abc"]),
        (r"^\w\d$", ["a1", "_9"], ["é1", "a٣"]),
        (r"^\s$", [" ", "\n", "\t"], ["a", "\x1c"]),
        (r'^["\\]+$', ['"', "\\", '"\\'], ["a"]),
        (r"^(ab|c)?d{2,3}?$", ["dd", "abddd"], ["d", "add"]),
        ("^.$", ["a", '"', "\\", "\t", "🐕"], ["", "ab", "\n", "\u2028"]),
        (r"^a\/b$", ["a/b"], ["ab"]),
        ("^[\ud800-\udfff\ue000]$", ["\ue000"], ["a"]),
    ],
)
def test_an_expression_of_a_schema(pattern, there, missing):
    automaton = Automaton(pattern_of({"type": "string", "pattern": pattern}))
    for texts, expected in ((there, True), (missing, False)):
        for text in texts:
            assert automaton.matches_text(json.dumps(text, ensure_ascii=False)) is expected, text


def test_known_formats():
    known = {
        "date": (["2024-02-28", "1999-12-31"], ["2024-02-30", "2024-13-01", "0000-01-01", "2024-04-31"]),
        "time": (["23:59:59Z", "00:00:00.5+02:00"], ["24:00:00Z", "12:00:00"]),
        "date-time": (["2024-02-28T12:00:00Z"], ["2024-02-28 12:00:00"]),
        "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
        "ipv4": (["127.0.0.1", "255.10.99.0"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
        "email": (["a.b@example.org"], ["a@b", "a b@example.org"]),
    }
    for form, (good, bad) in known.items():
        for texts, expected in ((good, True), (bad, False)):
            for text in texts:
                assert matches({"type": "string", "format": form}, f'"{text}"') is expected, (form, text)


def test_parts_that_are_named():
    schema = {
        "$defs": {"tag": {"type": "string", "maxLength": 2}, "a/b": {"$ref": "#/$defs/tag"}},
        "properties": {"x": {"$ref": "#/$defs/tag"}, "y": {"allOf": [{"$ref": "#/$defs/a~1b"}], "description": "…"}},
        "required": ["x", "y"],
    }
    assert matches(schema, '{"x": "ab", "y": "c"}')
    assert not matches(schema, '{"x": "abc", "y": "c"}')


def test_what_belongs_to_other_types_says_nothing():
    assert matches({"type": ["integer", "null"], "maxLength": 1, "items": False}, "null")
    assert matches({"type": ["integer", "null"], "maxLength": 1}, "17")
    assert matches({"enum": [1, "a", None], "type": ["string", "null"]}, '"a"')
    assert not matches({"enum": [1, "a", None], "type": ["string", "null"]}, "1")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"not": {}}, "the schema at # has the keyword 'not', which cannot be kept"),
        ({"properties": {"a": {"oneOf": []}}}, "at #/properties/a has the keyword 'oneOf'"),
        ({"items": {"uniqueItems": True}}, "at #/items has the keyword 'uniqueItems'"),
        ({"type": "number", "multipleOf": 2}, "'multipleOf'"),
        (
            {"type": "number", "minimum": 0.5},
            "at #/minimum is 0.5: of a number that is not an integer, whole bounds only",
        ),
        ({"type": "number", "minimum": float("nan")}, "at #/minimum is nan"),
        ({"type": "integer", "maximum": "3"}, "at #/maximum is '3', not a number"),
        ({"type": "integer", "maximum": True}, "at #/maximum is True, not a number"),
        ({"type": "integer", "minimum": 10**15}, "leaves no number of at most 15 digits"),
        ({"type": "text"}, "at #/type is 'text': the types are object, array"),
        ({"type": []}, "at #/type is a list: the types"),
        ({"type": [["string"]]}, "at #/type is a list"),
        ({"type": 5}, "at #/type is 5"),
        ({"type": "string", "minLength": -1}, "at #/minLength is -1"),
        ({"type": "string", "maxLength": 1.5}, "at #/maxLength is 1.5"),
        ({"type": "string", "maxLength": float("nan")}, "at #/maxLength is nan"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength=3 above maxLength=2"),
        ({"type": "string", "pattern": "(a"}, "at #/pattern '(a' is no regular expression"),
        ({"type": "string", "pattern": "a^b"}, "at #/pattern 'a^b' uses more than characters"),
        ({"type": "string", "pattern": "^a|b$"}, "uses more than characters"),
        ({"type": "string", "pattern": r"(a)\1"}, "uses more than characters"),
        ({"type": "string", "pattern": "(?i)a"}, "has flags such as (?i)"),
        ({"type": "string", "pattern": "(?i:a)"}, "uses more than characters"),
        ({"type": "string", "pattern": "\x01"}, "needs a character that JSON cannot write"),
        ({"type": "string", "pattern": "^[ab]+$", "maxLength": 3}, "that minLength or maxLength forbid"),
        ({"type": "string", "pattern": "a" * 5000 + "("}, "is no regular expression"),
        ({"type": "string", "pattern": 5}, "at #/pattern is 5, not a text"),
        ({"type": "string", "pattern": "a", "format": "date"}, "pattern and format side by side"),
        ({"type": "string", "format": "uri"}, "at #/format is 'uri': date, time"),
        ({"type": "string", "format": ["date"]}, "at #/format is a list"),
        ({"type": "string", "format": "date", "minLength": 3}, "format and a length side by side"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "wants 3 items and has room for 2"),
        ({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}, "wants 2 items and has room for 1"),
        ({"type": "array", "prefixItems": {}}, "at #/prefixItems is not a list"),
        ({"type": "object", "properties": []}, "at #/properties is not an object"),
        ({"type": "object", "required": "a"}, "at #/required is not a list"),
        (
            {"type": "object", "properties": {"a": {}}, "required": ["b"]},
            "names 'b', which properties does not declare",
        ),
        ({"type": "object", "properties": {"a": {}}, "required": [[]]}, "names a list, which properties"),
        ({"enum": []}, "at #/enum is not a list of at least one"),
        ({"enum": [float("inf")]}, "holds what JSON cannot write"),
        ({"const": "\ud800"}, "holds what JSON cannot write"),
        ({"enum": [1], "type": "string"}, "at #/enum has no value of this type"),
        ({"enum": ["a"], "maxLength": 3}, "has enum and 'maxLength' side by side"),
        ({"anyOf": [{}], "type": "string"}, "has anyOf and 'type' side by side"),
        ({"anyOf": [{}], "enum": [1]}, "side by side"),
        ({"allOf": [{}, {}]}, "at #/allOf has more than one schema"),
        ({"anyOf": {}}, "at #/anyOf is not a list"),
        (False, "at # allows nothing"),
        ({"items": 5}, "at #/items is no schema, but 5"),
        ({"items": []}, "at #/items is no schema, but a list"),
        ({"$ref": "https://example.org/x"}, "only parts of the schema itself"),
        ({"$ref": 5}, "at #/$ref is 5"),
        ({"$ref": "#/$defs/x"}, "names '#/$defs/x', which is not there"),
        ({"properties": {"a": {"$ref": "#"}}}, "of which it is a part"),
        ({"properties": {"n" * 999: {"not": 1}}}, "…"),
    ],
)
def test_what_cannot_be_kept_is_named(schema, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        pattern_of(schema)
    assert len(str(caught.value)) < 400


def _doubled(n):
    named = {f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i - 1}"}] * 2} for i in range(1, n)}
    return {"$defs": {"d0": {"type": "string"}, **named}, "$ref": f"#/$defs/d{n - 1}"}


def _nested(n):
    schema = {"type": "string"}
    for _ in range(n):
        schema = {"type": "array", "items": schema, "maxItems": 99}
    return schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string", "minLength": 10**9}, "too large: 1,000,000,000 at #/minLength"),
        ({"type": "string", "maxLength": 100_000}, "too large: 100,000 at #/maxLength"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 10_000}, "too large: 10,000 at #/maxItems"),
        ({"type": "string", "pattern": "^((a{99}){99}){99}$"}, "the schema is too large"),
        ({"type": "string", "maxLength": 10**12}, "not a count that can be kept"),
        ({"enum": ["x" * 200_000]}, "an expression of more than 100,000 characters"),
        ({"enum": [f"{n:09}" for n in range(20_000)]}, "an expression of more than 100,000 characters"),
        (_doubled(13), "an expression of more than 100,000 characters"),
        ({"anyOf": [_doubled(9)["$defs"]["d0"]] * 6000}, "more than 5,000 parts"),
        ({"properties": {f"p{n}": {} for n in range(100)}}, "an expression of more than 100,000 characters"),
        ({"properties": {f"p{n}": {"type": "null"} for n in range(4000)}}, "make a property required"),
        ({"prefixItems": [{"type": "number"}] * 400}, "the schema is too large: leave some of it out"),
        ({"type": "string", "maxLength": 10**5000}, "is a huge number, not a count"),
        (_nested(3), "too large: 99 at #"),
        (_nested(40), "nested deeper than 32"),
        (_nested(5000), "nested deeper than 32"),
    ],
)
def test_no_schema_makes_a_huge_automaton(schema, message):
    with pytest.raises(InputError, match=re.escape(message)):
        pattern_of(schema)


def test_any_object_has_few_levels():
    for depth in (0, 5, 10**9):
        with pytest.raises(InputError, match=f"depth={depth} is not from 1 to 4"):
            any_object(depth)


@pytest.mark.parametrize("options", [{}, {"temperature": 2.0, "seed": 5, "n_best": 3}, {"beam": 3, "n_best": 3}])
def test_what_is_generated_fits(options):
    model, tokenizer = speaker(max_len=256), byte_level_once()
    for schema in (PERSON, {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 1, "maxItems": 3}):
        found = cutaway.generate(model, tokenizer, "Hi", allow=pattern_of(schema), max_tokens=120, **options)
        for text in [found] if isinstance(found, str) else found:
            assert fits(json.loads(text), schema)
    text = cutaway.generate(model, tokenizer, "Hi", allow=any_object(), max_tokens=60, **{**options, "n_best": 1})
    assert isinstance(json.loads(text), dict)


def test_one_is_not_true():
    assert not same(1, True)
    assert same([1, {"a": None}], [1.0, {"a": None}])
