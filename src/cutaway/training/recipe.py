"""A recipe: everything that a run depends on, in one TOML file.

    recipe = read_recipe(Path("recipes/shakespeare.toml"), ["train.steps=200", "model.d_model=256"])

Unknown keys are refused, so that a misspelt one cannot be overlooked. The resolved recipe is saved with the model.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from cutaway.errors import ConfigError
from cutaway.training.toml_files import parse_toml, read_toml

MOST_NESTED = 8  # tables and lists

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """Where the model starts: a size with new weights, or a model that was trained before."""

    size: str | None = None
    start: str | None = None  # a folder, file or name that `cutaway.load` takes
    changes: dict[str, Any] = field(default_factory=dict)  # numbers of the family's config: d_model, dropout, …


@dataclass(frozen=True, kw_only=True)
class TokenizerPart:
    """Where the tokens come from: a file, the starting model's, or a new one that is trained on the data."""

    file: str | None = None
    kind: str | None = None  # word, char, byte, bpe, wordpiece, unigram
    vocab_size: int | None = None  # None: 8,000; characters and words keep all there are
    lowercase: bool = False
    dropout: float = 0.0  # BPE: the share of merges that are dropped in training, so that texts are cut in many ways …
    cuts: int = 16  # … so many for each text; an epoch goes through all of them


@dataclass(frozen=True, kw_only=True)
class DataPart:
    """The examples. Paths are relative to `root`, and `root` to where the command is given."""

    root: str = "."
    format: str = "auto"  # text, table, parallel (files in pairs), images; auto: by the objective and the names
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    valid_share: float = 0.0  # where there is no `valid`: the last share of a text, or one from all over the examples …
    valid_last: int = 0  # … or the last so many examples
    split: str = "file"  # where a text's documents end: file, line, form_feed, blank_line
    header: tuple[str, ...] = ()  # names of a table's columns, or of the two sides of parallel files
    table: str | None = None  # tsv, csv, jsonl, parquet, where the suffix does not say it
    skip_lines: int = 0
    quoted: bool | None = None
    further_fields: bool = False
    source: str = "source"  # the columns of a table
    target: str = "target"
    text: str = "text"
    second: str | None = None  # of a pair of texts
    label: str = "label"
    labels: tuple[str, ...] = ()  # in the order of their ids; () takes what is found, sorted
    directions: tuple[str, ...] = ()  # "en-de", "de-en": columns named by language, and a tag in front of the source
    seq_len: int = 256  # of windows, and the longest row of anything else
    wrap: float = 0.0  # the share of the training documents whose long lines are broken, as in printed books
    apart: bool = True  # leave out training documents that repeat the validation text
    borders: bool = True  # hide other documents of the same row
    image_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class ObjectivePart:
    kind: str = "next_token"  # masked, pretrain, spans, translate, classify, regress, tag, images
    smoothing: float = 0.0
    agree: float = 0.0  # translate: read every pair twice; the weight of the agreement between the two (R-Drop)
    auxiliary: float = 0.0  # weight of the auxiliary language-modelling loss
    whole_words: bool = True
    mask_share: float = 0.15
    changes: dict[str, Any] = field(default_factory=dict)  # how pictures are varied


@dataclass(frozen=True, kw_only=True)
class TrainPart:
    steps: int = 1000
    tokens: int = 8192  # places of a step, padding included; pictures: pixels do not count, see rows
    rows: int | None = None  # rows of a step instead
    accumulate: int = 1  # parts of a step that run one after another
    precision: str = "fp32"  # or bf16
    compile: str = "no"  # blocks: once for all blocks, in seconds; default, max-autotune, …: the whole, as torch says
    capture: bool = True  # on a GPU: record each shape's forward and backward pass as one graph
    checkpointing: bool = False  # recompute activations instead of keeping them
    deterministic: bool | None = None  # None: on the CPU
    device: str = "auto"
    threads: int | None = None
    workers: int = 1
    ema: float = 0.0  # decay of the moving average of the weights; or …
    average: int = 0  # … how many of the last checkpoints are averaged at the end
    freeze: tuple[str, ...] = ()  # patterns of parameter names that stay as they are
    lora_rank: int = 0
    lora_alpha: float = 16.0
    lora_parts: tuple[str, ...] = ("*attention*", "*feed_forward*")
    spike: float = 0.0  # skip a step whose loss is more than so many times the usual one; 0: never


@dataclass(frozen=True, kw_only=True)
class OptimizerPart:
    """`adamw`; `adam`, as in 2017; `muon` for the matrices of the blocks, AdamW for the rest."""

    kind: str = "adamw"
    rate: float = 1e-3
    betas: tuple[float, ...] = ()  # () takes the kind's: (0.9, 0.95), or (0.9, 0.98) as in 2017
    eps: float | None = None  # 1e-8, or 1e-9 as in 2017
    weight_decay: float | None = None  # 0.1, or 0 as in 2017
    clip: float = 1.0  # the longest gradient that is let through; 0: any
    matrix_rate: float = 0.02  # Muon's
    momentum: float = 0.95  # Muon's
    layer_decay: float = 1.0  # each block below the last learns slower by this factor


@dataclass(frozen=True, kw_only=True)
class SchedulePart:
    kind: str = "cosine"  # inverse_sqrt, linear, constant, wsd
    warmup: int = 0
    final: float = 0.0  # share of the rate that is left at the end
    decay: float = 0.2  # wsd: the share of the steps that decays


@dataclass(frozen=True, kw_only=True)
class EvaluatePart:
    every: int = 250
    batches: int = 0  # so many, from all over the examples; 0: all
    metric: str = "loss"  # what «best» means; a loss is best when low, a score when high
    keep_best: bool = True  # the model folder gets the best weights, not the last ones
    patience: int = 0  # stop after so many evaluations without a better one; 0: never
    samples: int = 3
    prompt: str = "\n"
    log: int = 10  # a line of the run log every so many steps


@dataclass(frozen=True, kw_only=True)
class CheckpointPart:
    every: int = 1000
    keep: int = 2


@dataclass(frozen=True, kw_only=True)
class Recipe:
    name: str = "model"
    about: str = ""  # a sentence for the model card
    licence: str = ""  # of the data, and so of the weights
    seed: int = 0
    model: ModelPart = ModelPart()
    tokenizer: TokenizerPart = TokenizerPart()
    data: DataPart = DataPart()
    objective: ObjectivePart = ObjectivePart()
    train: TrainPart = TrainPart()
    optimizer: OptimizerPart = OptimizerPart()
    schedule: SchedulePart = SchedulePart()
    evaluate: EvaluatePart = EvaluatePart()
    checkpoint: CheckpointPart = CheckpointPart()

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


OBJECTIVES = ("next_token", "masked", "pretrain", "spans", "translate", "classify", "regress", "tag", "images")

POSITIVE = (
    "train.steps", "train.tokens", "train.rows", "train.accumulate", "train.workers", "train.threads", "data.seq_len",
    "data.image_size", "evaluate.every", "evaluate.log", "checkpoint.every", "checkpoint.keep", "tokenizer.cuts",
)  # fmt: skip
NOT_NEGATIVE = (
    "train.average", "train.lora_rank", "train.spike", "data.valid_last", "data.skip_lines", "optimizer.rate",
    "optimizer.matrix_rate", "optimizer.momentum", "optimizer.eps", "optimizer.weight_decay", "optimizer.clip",
    "schedule.warmup", "evaluate.batches", "evaluate.patience", "evaluate.samples",
    "objective.agree", "objective.auxiliary",
)  # fmt: skip
SHARES = (
    "train.ema", "data.valid_share", "data.wrap", "objective.smoothing", "objective.mask_share", "schedule.final",
    "schedule.decay", "tokenizer.dropout", "optimizer.layer_decay",
)  # fmt: skip

# What may differ when a run is resumed: how often something is saved, measured or shown changes no weight.
FREE = (
    "name",
    "about",
    "licence",
    "data.root",
    "train.workers",
    "evaluate.log",
    "evaluate.samples",
    "evaluate.prompt",
    "checkpoint.keep",
)


def read_recipe(path: Path, changes: Iterable[str] = ()) -> Recipe:
    """The recipe in a TOML file, with `a.b=c` changes on top."""
    values = read_toml(path)
    for text in changes:
        change(values, text)
    return recipe_from(values, str(path))


def recipe_from(values: Mapping[str, Any], where: str = "the recipe") -> Recipe:
    """The recipe that these values make; unknown keys and values of another kind are refused."""
    _check_values(values, "", where)
    recipe = read_part(Recipe, values, "", where)
    _check(recipe, where)
    return recipe


def _check_values(value: Any, name: str, where: str) -> None:
    """Refuses what no key of a recipe can mean, and what could not be written down and read again."""
    if name.count(".") + name.count("[") > MOST_NESTED:
        raise ConfigError(f"{where}: {name[:40]}… is nested too deeply")
    match value:
        case Mapping():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise ConfigError(f"{where}: the key {key!r} in [{name}] is not a text")
                _check_values(inner, f"{name}.{key}" if name else key, where)
        case list() | tuple():
            for i, item in enumerate(value):
                _check_values(item, f"{name}[{i}]", where)
        case float() if not math.isfinite(value):
            raise ConfigError(f"{where}: {name}={value} is not a finite number")
        case int() if abs(value) >= 1 << 63:
            raise ConfigError(f"{where}: {name} is a number of more than 64 bits")
        case str() if not is_utf8(value):
            raise ConfigError(f"{where}: {name}={value!r} is not UTF-8: a file by such a name has to be renamed")


def is_utf8(text: str) -> bool:
    """Whether a text can be written: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(recipe: Recipe, where: str) -> None:
    if (recipe.model.size is None) == (recipe.model.start is None):
        raise ConfigError(
            f"{where}: [model] names a `size` (new weights) or a `start` (a trained model), one of the two"
        )
    for least, names in {1: POSITIVE, 0: NOT_NEGATIVE + SHARES}.items():
        for name in names:
            value = _value(recipe, name)
            if value is not None and not value >= least:
                raise ConfigError(f"{where}: {name}={value} must be at least {least}")
    for name in SHARES:
        if _value(recipe, name) > 1:
            raise ConfigError(f"{where}: {name}={_value(recipe, name)} is a share, at most 1")
    if _in_windows(recipe) and recipe.train.rows is None and recipe.train.tokens < recipe.data.seq_len:
        raise ConfigError(
            f"{where}: train.tokens={recipe.train.tokens} is less than one window of data.seq_len="
            f"{recipe.data.seq_len}: allow as many, or make the windows shorter"
        )
    if recipe.train.average and recipe.train.ema:
        raise ConfigError(
            f"{where}: train.average={recipe.train.average} and train.ema={recipe.train.ema} are two averages, and the "
            f"model gets one: set one of them to 0"
        )
    if recipe.objective.changes and recipe.objective.kind != "images":
        unknown, keys = next(iter(recipe.objective.changes)), [part.name for part in dataclasses.fields(ObjectivePart)]
        raise ConfigError(f"{where}: {unknown_key(unknown, '[objective]', keys)}")
    if recipe.objective.agree and recipe.objective.kind != "translate":
        raise ConfigError(f"{where}: objective.agree={recipe.objective.agree} is for translate alone: leave it out")
    _check_dropout(recipe, where)
    choices = {
        "train.precision": (recipe.train.precision, ("fp32", "bf16")),
        "train.compile": (
            recipe.train.compile,
            ("no", "blocks", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
        ),
        "data.split": (recipe.data.split, ("file", "line", "form_feed", "blank_line")),
        "data.format": (recipe.data.format, ("auto", "text", "table", "parallel", "images")),
        "objective.kind": (recipe.objective.kind, OBJECTIVES),
    }
    for name, (chosen, known) in choices.items():
        if chosen not in known:
            raise ConfigError(f"{where}: {name}={chosen!r} is not one of {', '.join(known)}")


def _check_dropout(recipe: Recipe, where: str) -> None:
    t, kind = recipe.tokenizer, recipe.objective.kind
    if t.dropout and kind != "translate":
        raise ConfigError(f"{where}: tokenizer.dropout={t.dropout} is for translate, not for {kind}: leave it out")
    if t.dropout and t.kind not in (None, "bpe"):
        raise ConfigError(f"{where}: tokenizer.dropout={t.dropout} drops merges of BPE, and {t.kind} has none")
    if t.dropout == 1:
        raise ConfigError(f"{where}: tokenizer.dropout=1 leaves no merge, so that all cuts are the same: choose less")


def _in_windows(recipe: Recipe) -> bool:
    """Whether a step's rows are windows of running text, all of one length."""
    kind, d = recipe.objective.kind, recipe.data
    return d.format in ("auto", "text") and (
        kind == "pretrain" or (kind in ("next_token", "masked") and d.split != "line")
    )


def _value(recipe: Recipe, name: str) -> Any:
    table, _, key = name.partition(".")
    return getattr(getattr(recipe, table), key)


def change(values: dict[str, Any], text: str) -> None:
    """`train.steps=200`: the value is read as TOML where it is TOML, else as a word."""
    name, equals, value_text = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set {text!r}: write it as a.b=c")
    try:
        value = parse_toml(f"value = {value_text}", f"--set {name}")["value"]
    except ConfigError:
        value = value_text
    *tables, key = name.strip().split(".", MOST_NESTED)
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {text!r}: {table!r} is no table")
    values[key] = value


def read_part(kind: type[T], values: Any, name: str, where: str) -> T:
    """A table of a recipe, or the whole, from its values."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: {name} is a table: [{name}]")
    prefix = f"{name}." if name else ""
    hints = get_type_hints(kind)
    known = {part.name: hints[part.name] for part in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = dict(values)
    if "changes" in known and isinstance(values.get("changes", {}), Mapping):
        # whatever this table does not know itself is a number of the model's
        rest = {key: values.pop(key) for key in list(values) if key not in known}
        if twice := sorted(set(rest) & set(values.get("changes", {}))):
            raise ConfigError(f"{where}: {prefix}{twice[0]} and {prefix}changes.{twice[0]} are the same: leave one out")
        values["changes"] = {**values.get("changes", {}), **rest}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(f"{where}: {unknown_key(unknown[0], f'[{name}]' if name else 'the top', sorted(known))}")
    return kind(**{key: _as(known[key], value, prefix + key, where) for key, value in values.items()})


def unknown_key(key: str, table: str, known: Sequence[str]) -> str:
    """What is said of a key that nobody knows, with the nearest one that somebody does."""
    near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(key, known, n=1))
    return f"unknown key {key!r} in {table}; known: {', '.join(known)}{near}"


def _as(kind: Any, value: Any, name: str, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return read_part(kind, value, name, where)  # type: ignore[arg-type]
    if get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        (kind,) = (inner for inner in get_args(kind) if inner is not type(None))
    if get_origin(kind) is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(_as(get_args(kind)[0], item, name, where) for item in items)
    if get_origin(kind) is dict and isinstance(value, Mapping):
        return dict(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        wanted = getattr(kind, "__name__", str(kind))
        raise ConfigError(f"{where}: {name}={value!r} is not {wanted}")
    return value


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe, every value written out."""
    lines: list[str] = []
    tables: list[tuple[str, Mapping[str, Any]]] = [("", recipe.to_dict())]
    while tables:
        name, values = tables.pop(0)
        lines += [f"\n[{name}]"] if name else []
        for key, value in values.items():
            if isinstance(value, Mapping) and key != "changes":
                tables.append((key, value))
        flat = {**{k: v for k, v in values.items() if not isinstance(v, Mapping)}, **values.get("changes", {})}
        lines += [f"{key} = {_toml(value)}" for key, value in flat.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # inf, which JSON writes in another way
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two recipes, as `train.steps: 100 → 200`; what may differ freely is left out."""
    found = []
    for key in sorted({*old, *new}):
        name, before, after = f"{prefix}{key}", old.get(key), new.get(key)
        if name in FREE:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{name}.")
        elif before != after:
            found.append(f"{name}: {json.dumps(before)} → {json.dumps(after)}")
    return found
