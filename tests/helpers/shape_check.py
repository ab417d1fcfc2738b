"""The checker that conftest's import hook puts around every annotated function of cutaway."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Self

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

FIRST, THEN = 4, 1024  # calls of a function in a test: so many are all checked, then one in so many

# jaxtyping decorates methods one by one, and beartype understands Self only when it decorates the whole class.
check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any})))
_jaxtyped = jaxtyping.jaxtyped
_test = [0]


def next_test() -> None:
    """From here on the first calls are checked again."""
    _test[0] += 1


def install() -> None:
    """Before cutaway is imported. A check takes a tenth of a millisecond, several times what it checks: the calls of a
    loop that were not the first ones are sampled."""
    jaxtyping.jaxtyped = sampled
    jaxtyping.install_import_hook("cutaway", "helpers.shape_check.check")


def sampled(*, typechecker: Any) -> Callable[[Any], Any]:
    """What the hook calls for every function and class."""

    def decorate(it: Any) -> Any:
        if inspect.isfunction(it):
            checked = _jaxtyped(typechecker=typechecker)(it)
            # Those of `arguments` look at hints themselves: without a check, by the sizes that their caller has bound.
            return checked if it.__module__ == "cutaway.arguments" else _sometimes(checked, it)
        plain = vars(it).get("__init__")
        checked = _jaxtyped(typechecker=typechecker)(it)
        if plain is not None and checked.__init__ is not plain:  # of a dataclass
            checked.__init__ = _sometimes(checked.__init__, plain)
        return checked

    return decorate


def _sometimes(checked: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    test, calls = 0, 0

    @functools.wraps(plain)
    def called(*args: Any, **named: Any) -> Any:
        nonlocal test, calls
        if test != _test[0]:
            test, calls = _test[0], 0
        calls += 1
        return (checked if calls <= FIRST or calls % THEN == 0 else plain)(*args, **named)

    return called
