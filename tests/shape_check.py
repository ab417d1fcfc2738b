"""The checker that conftest's import hook puts around every annotated function of cutaway."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

# jaxtyping decorates methods one by one, and beartype understands Self only when it decorates the whole class.
check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any})))
