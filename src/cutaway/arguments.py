"""Arguments of Python calls: checked against the type hints of the function, and stated once as options.

    @checked
    def fill(model: Model, text: str, *, k: int = 5) -> …     # fill(model, None): text=None is not a text

NaN is not a number, True is not a whole number, and neither a text nor a generator is a list.

A call with many options has them as a frozen dataclass, each field with its type, default, bounds and help text:

    @dataclass(frozen=True, kw_only=True)
    class GenerationOptions(Options):
        max_tokens: int = option(100, "Maximum number of new tokens.", least=1)

    @with_options
    def generate(model: Model, prompt: str, *, options: GenerationOptions) -> …

    generate(model, "Once", max_tokens=20)
    generate(model, "Once", options=GenerationOptions(max_tokens=20))         # the same

`help(generate)` lists the fields in place of `options`. The command line is made from them, too
(`cutaway.cli.shared.options`).
"""

import functools
import inspect
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from cutaway.errors import InputError, UnknownArgument

Progress = Callable[[int, int], None]  # called with how many are done, and of how many
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 2**63
LONGEST = 60  # characters of a value in a message
WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}
LOADED = ("Model", "Tokenizer")
OTHER_NAMES = {  # what other libraries, Hugging Face's above all, call an argument of ours
    "assistant_model": ["draft"],
    "bad_words_ids": ["bad_words"],
    "batch_size": ["batch_tokens", "batch", "rows"],
    "diversity_penalty": ["diversity"],
    "do_sample": ["temperature"],
    "labels": ["wanted"],
    "max_length": ["max_tokens", "cut", "max_len"],
    "max_new_tokens": ["max_tokens"],
    "min_new_tokens": ["min_tokens"],
    "nbest": ["n_best"],
    "no_repeat_ngram_size": ["no_repeat_ngram"],
    "num_beam_groups": ["groups"],
    "num_beams": ["beam"],
    "num_return_sequences": ["n_best"],
    "pooling": ["pool"],
    "references": ["wanted"],
    "report": ["progress"],
    "stop_strings": ["stop"],
    "streamer": ["stream"],
    "target_lang": ["to"],
    "tgt_lang": ["to"],
    "top_k": ["k"],
    "torch_dtype": ["dtype", "precision"],
}


def no_progress(done: int, total: int) -> None:
    """For callers who do not follow the progress."""


# --- options ----------------------------------------------------------------------------------------------------------


def option(
    default: Any,
    help: str,
    *,
    least: int | float | None = None,
    above: int | float | None = None,
    most: int | float | None = None,
    **command: Any,
) -> Any:
    """A field of an `Options` class: its default, what it does, and its bounds: at least, above, at most.

    `command` says what differs on the command line: `type`, where it is simpler there (None: the option is for Python
    only), `flags`, where it is not --like-its-name, and `metavar`.
    """
    return field(default=default, metadata={"help": help, "least": least, "above": above, "most": most, **command})


def same_option(kind: type["Options"], name: str, default: Any = MISSING) -> Any:
    """A field that is an option of another call, too, with its bounds and its help; only the default may differ."""
    (other,) = (each for each in fields(kind) if each.name == name)
    return field(default=other.default if default is MISSING else default, metadata=other.metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """A base for frozen dataclasses of options, which are checked when they are made."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = checked_value(each.name, getattr(self, each.name), each.type)
            object.__setattr__(self, each.name, value)
            _check_bounds(each.name, value, each.metadata)
        self.check()

    def check(self) -> None:
        """Refuses combinations that make no sense."""

    @classmethod
    def of(cls, other: "Options", **more: Any) -> Self:
        """The options that have the same names as some of another call's."""
        names = {each.name for each in fields(cls)} & {each.name for each in fields(other)}
        return cls(**{name: getattr(other, name) for name in names} | more)


def _check_bounds(name: str, value: Any, bounds: Mapping[str, Any]) -> None:
    if not isinstance(value, int | float):
        return
    least, above, most = bounds["least"], bounds["above"], bounds["most"]
    if not isfinite(value) and not bounds.get("infinite"):
        raise InputError(f"{name}={value} must be a finite number")
    if (least is None or value >= least) and (above is None or value > above) and (most is None or value <= most):
        return
    limits = {"at least": least, "above": above, "at most": most}
    said = " and ".join(f"{word} {bound:,}" for word, bound in limits.items() if bound is not None)
    raise InputError(f"{name}={value:,} must be {said}")


def options_in(signature: inspect.Signature) -> dict[str, type[Options]]:
    """The parameters of a function that stand for options."""
    hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Options)}


def _spell_out(called: Any, function: Callable[..., Any], stand_in: str, kind: type[Options]) -> None:
    """Shows the fields of the options to `help`, `inspect` and editors, in place of the parameter that holds them."""
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name != stand_in]
    parameters += [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(kind)
    ]
    parameters.sort(key=lambda one: one.kind)  # **more comes last
    called.__signature__ = signature.replace(parameters=parameters)
    called.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": signature.return_annotation}
    lines = [f"    {one.name}: {one.metadata['help']}" for one in fields(kind)]
    called.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Options:", *lines])


def check_known(called: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuses an argument that a call does not have, and names the one that may be meant."""
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            meant = [other for other in OTHER_NAMES.get(name, ()) if other in known] or get_close_matches(name, known)
            hint = f"did you mean {meant[0]}?" if meant else f"its arguments are {', '.join(known)}"
            raise UnknownArgument(f"{called} has no argument {name!r}: {hint}")


# --- types ------------------------------------------------------------------------------------------------------------


def checked(function: F) -> F:
    """The function, with its arguments checked when it is called."""
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}
    stand_ins = options_in(signature).items()
    keywords = [one for one in stand_ins if signature.parameters[one[0]].kind is inspect.Parameter.KEYWORD_ONLY]
    stand_in, kind = next(iter(keywords), ("", None))
    options = [] if kind is None else [one.name for one in fields(kind)]
    known = [*(name for name in signature.parameters if name != stand_in), *options]
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        if not hints:
            hints.update(get_type_hints(function))
        if not takes_any and stand_in not in named:
            check_known(function.__name__, named, known)
        if kind is not None and stand_in not in named:
            named[stand_in] = kind(**{name: named.pop(name) for name in options if name in named})
        try:
            given = signature.bind(*args, **named)
        except TypeError:
            return function(*args, **named)  # whose own error says which argument is missing, or one too many
        for name, value in given.arguments.items():
            if name not in hints:
                continue
            variadic = signature.parameters[name].kind
            if variadic is inspect.Parameter.VAR_POSITIONAL:
                given.arguments[name] = tuple(checked_value(name, one, hints[name]) for one in value)
            elif variadic is inspect.Parameter.VAR_KEYWORD:
                given.arguments[name] = {what: checked_value(what, one, hints[name]) for what, one in value.items()}
            else:
                given.arguments[name] = checked_value(name, value, hints[name])
        return function(*given.args, **given.kwargs)

    if kind is not None:
        _spell_out(called, function, stand_in, kind)
    setattr(called, "checked", True)  # noqa: B010  (a function has no such attribute, says mypy)
    return called  # type: ignore[return-value]


def with_options(function: Callable[..., R]) -> Callable[..., R]:
    """`checked`, of a function whose parameter `options` stands for the fields of an `Options` class."""
    return checked(function)


def checked_value(name: str, value: Any, hint: Any) -> Any:
    """The value, with NumPy's numbers as Python's own."""
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
    """Whether a value matches a type hint. (Array hints are jaxtyping's: `isinstance` checks dtype and dimensions.)"""
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
    if hint is Any or not isinstance(hint, type):  # nor what only a type checker understands
        return True
    base = next((one for one in hint.__mro__ if one.__name__ == "Model"), hint)  # functions check the task themselves
    return isinstance(getattr(value, "_orig_mod", value), base)  # torch.compile wraps the model


def _holds(value: object, origin: type, args: tuple[Any, ...]) -> bool:
    """Whether a value is a container of this kind, and its elements match."""
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
    """A type hint as an error message says it."""
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
    """Whether the hint is a model or a tokenizer, for which many pass the folder instead."""
    kinds = get_args(hint) or (hint,)
    return any(one.__name__ in LOADED for kind in kinds for one in getattr(kind, "__mro__", ())) and str not in kinds


def _short(value: object) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
