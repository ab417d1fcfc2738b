"""The numbers that define a model: frozen, checked when a config is made, strict when it is read from a file."""

import dataclasses
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from cutaway.errors import ConfigError

# a larger number is a mistake or an attack, and is refused before anything is allocated
LIMITS = {"n_layers": 1024, "n_encoder_layers": 1024, "n_decoder_layers": 1024, "max_len": 2**24}
LIMIT = 2**22


@dataclass(frozen=True, kw_only=True)
class Config:
    """What all families share: the task, which decides the head, the labels of a classifier, and special tokens."""

    family: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]

    task: str
    n_classes: int | None = None
    labels: tuple[str, ...] | None = None
    pad_id: int | None = None
    start_id: int | None = None  # <sos>, the first token of a text or a translation
    end_ids: tuple[int, ...] | None = None  # <eos>: each of these ends a text

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuses numbers that cannot define a model. Families add their own rules."""
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            _as_kind(field.name, value, kinds[field.name])
            if isinstance(value, int) and not isinstance(value, bool) and not field.name.endswith("_id"):
                limit = LIMITS.get(field.name, LIMIT)
                if not 1 <= value <= limit:
                    raise ConfigError(f"{field.name}={value} is not between 1 and {limit}")
            if isinstance(value, float) and not (0 <= value < float("inf")):
                raise ConfigError(f"{field.name}={value} is not a finite number of at least 0")
        for id_ in (self.pad_id, self.start_id, *(self.end_ids or ())):
            vocab_size = getattr(self, "vocab_size", 0)
            if id_ is not None and not 0 <= id_ < vocab_size:
                raise ConfigError(f"pad_id, start_id or end_ids names token {id_}, outside 0…{vocab_size - 1}")
        if self.task not in self.tasks:
            raise ConfigError(f"task={self.task!r} is not one of {', '.join(self.tasks)} ({self.family})")
        if self.labels is not None and len(self.labels) != self.n_classes:
            raise ConfigError(f"{len(self.labels)} labels for n_classes={self.n_classes}")
        if self.task in ("classify", "tag") and self.n_classes is None:
            raise ConfigError(f"task={self.task!r} needs n_classes")
        n_heads, d_head = getattr(self, "n_heads", 1), getattr(self, "d_head", None) or 1
        if n_heads * d_head > LIMIT:
            raise ConfigError(f"n_heads={n_heads} of d_head={d_head} are wider than {LIMIT}")
        for name in (field.name for field in dataclasses.fields(self) if field.name.endswith("dropout")):
            if (dropout := getattr(self, name) or 0.0) >= 1:
                raise ConfigError(f"{name}={dropout} would drop everything: it must be below 1")

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed; unknown names are refused."""
        return type(self).from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        return {"family": self.family} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Reads what `to_dict` wrote; raises a ConfigError that names an unknown key, or a value of the wrong type."""
        values = {name: value for name, value in values.items() if name != "family"}
        kinds = get_type_hints(cls)
        known = {field.name: kinds[field.name] for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ConfigError(f"unknown key {unknown[0]!r} in a {cls.family} config; known: {', '.join(sorted(known))}")
        try:
            return cls(**{name: _as_kind(name, value, known[name]) for name, value in values.items()})
        except TypeError as error:  # a required field is missing
            raise ConfigError(f"{cls.family} config: {str(error).split('__init__() ')[-1]}") from None


def _as_kind(name: str, value: Any, kind: Any) -> Any:
    """The value in the type of its field, or a ConfigError. JSON has lists for tuples, and may have 1 for 1.0."""
    if get_origin(kind) in (Union, UnionType):
        if value is None and type(None) in get_args(kind):
            return None
        (kind,) = (inner for inner in get_args(kind) if inner is not type(None))
    if get_origin(kind) is tuple:
        if isinstance(value, (list, tuple)):
            inner = get_args(kind)[0]
            return tuple(_as_kind(name, item, inner) for item in value)
    elif kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    elif type(value) is kind:
        return value
    raise ConfigError(f"{name}={value!r} is not {'a list' if get_origin(kind) is tuple else kind.__name__}")


def check_heads(d_model: int, n_heads: int, name: str = "n_heads") -> None:
    """Each head works on d_model / n_heads numbers of its own, so d_model has to be a multiple of n_heads."""
    if d_model % n_heads:
        raise ConfigError(f"d_model={d_model} is not divisible by {name}={n_heads}")
