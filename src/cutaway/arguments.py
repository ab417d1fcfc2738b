"""Arguments of Python calls, held to the hints of the function: what is none of them is named, with what is wanted.

    @checked
    def fill(model: Model, text: str, *, k: int = 5) -> …     # fill(model, None): text=None is not a text

A number that is NaN is no number, True is no whole number, and a text or a generator is no list. What a number may be
besides, and whether a model is one for this task, each function says itself.
"""

import functools
import inspect
import os
import types
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cutaway.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 2**63
LONGEST = 60  # letters of a value in a message
WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}
LOADED = ("Model", "Tokenizer")


def checked(function: F, but: Collection[str] = ()) -> F:
    """The function, whose arguments are looked at when it is called, `but` those that it looks at itself."""
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        if not hints:
            hints.update(get_type_hints(function))
        try:
            given = signature.bind(*args, **named)
        except TypeError:
            return function(*args, **named)  # whose own error says which argument is missing, or one too many
        for name, value in given.arguments.items():
            if name not in hints or name in but:
                continue
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                given.arguments[name] = tuple(_checked(name, one, hints[name]) for one in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                given.arguments[name] = {what: _checked(what, one, hints[name]) for what, one in value.items()}
            else:
                given.arguments[name] = _checked(name, value, hints[name])
        return function(*given.args, **given.kwargs)

    setattr(called, "checked", True)  # noqa: B010  (a function has no such attribute, says mypy)
    return called  # type: ignore[return-value]


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value; a number of NumPy's as Python's own."""
    if isinstance(value, Real) and not isinstance(value, int | float):
        value = int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise InputError(f"{name}={_short(value)} is too large for a number of 64 bits")
    if fits(value, hint):
        return value
    loaded = _loaded(hint)
    if loaded:
        folder = repr(str(value)) if isinstance(value, str | Path) else '"folder"'
        both = f"model, tokenizer = cutaway.load({folder}), cutaway.load_tokenizer({folder})"
        raise InputError(f"the {name} is a {type(value).__name__}: load both first, {both}")
    fix = f": put it in a list, [{name}]" if isinstance(value, str) and fits([value], hint) else ""
    raise InputError(f"{name}={_short(value)} is not {in_words(hint)}{fix}")


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of this hint. (Those of arrays are jaxtyping's: `isinstance` looks at kind and axes.)"""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if hint is None or hint is type(None):
        return value is None
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool) and value == value
    if hint is Path:
        return isinstance(value, os.PathLike)
    if getattr(hint, "__name__", "") == "Tensor":
        return isinstance(value, hint) and value.ndim > 0
    if origin is Callable:
        return callable(value)
    if isinstance(origin, type):
        return _holds(value, origin, args)
    if hint is Any or not isinstance(hint, type):  # and what a type checker alone understands
        return True
    its_own = next((one for one in hint.__mro__ if one.__name__ == "Model"), hint)  # the task is another question
    return isinstance(getattr(value, "_orig_mod", value), its_own)  # what torch.compile wrapped


def _holds(value: object, origin: type, args: tuple[Any, ...]) -> bool:
    """Whether it is a container of this kind, and what is in it is what it should be."""
    if not isinstance(value, origin) or getattr(value, "ndim", 1) == 0:
        return False
    if origin is tuple and Ellipsis not in args:
        return isinstance(value, tuple) and len(value) == len(args) and all(map(fits, value, args))
    if isinstance(value, Mapping):
        return len(args) != 2 or all(fits(key, args[0]) and fits(one, args[1]) for key, one in value.items())
    if isinstance(value, str | bytes):
        return False
    return not args or not isinstance(value, Collection) or all(fits(one, args[0]) for one in value)


def in_words(hint: Any) -> str:
    """What is wanted."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [one for one in args if not (one is str and Path in args)]
        return " or ".join(dict.fromkeys(map(in_words, kinds)))
    if origin is Literal:
        return f"one of {', '.join(map(repr, args))}"
    if hint is Path:
        return "a path"
    if origin is not None and isinstance(origin, type):
        if issubclass(origin, Mapping):
            return "a mapping"
        if origin.__name__ == "Callable":
            return "a function"
        inner = in_words(args[0]).removeprefix("a ").removeprefix("an ") if args else ""
        return f"a list of {inner.replace(' or ', 's or ')}s" if inner else "a list"
    return WORDS.get(hint) or f"a {getattr(hint, '__name__', hint)}"


def _loaded(hint: Any) -> bool:
    """Whether a model or its tokenizer is wanted, which many take for the folder."""
    kinds = get_args(hint) or (hint,)
    return any(one.__name__ in LOADED for kind in kinds for one in getattr(kind, "__mro__", ())) and str not in kinds


def _short(value: object) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
