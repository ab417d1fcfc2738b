"""A recipe: everything that a training run depends on. One class per table of its TOML file, one line per key.

`recipe_file` reads and writes recipes, `recipe_checks` finds values that make no sense.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from cutaway.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """Where the model starts: a size with new weights, or a trained model."""

    size: str | None = None
    start: str | None = None  # a folder, file or name that `cutaway.load` takes
    changes: dict[str, Any] = field(default_factory=dict)  # settings of the family's config: d_model, dropout, …


@dataclass(frozen=True, kw_only=True)
class TokenizerPart:
    """The tokenizer: from a file, from the starting model, or a new one that is trained on the data."""

    file: str | None = None
    kind: str | None = None  # word, char, byte, bpe, wordpiece, unigram
    vocab_size: int | None = None  # None: 8,000; for char and word, all that occur
    lowercase: bool = False
    dropout: float = 0.0  # BPE-dropout: the share of merges that are skipped in training, for varied segmentations …
    cuts: int = 16  # … the number of segmentations of each text; an epoch contains all of them


@dataclass(frozen=True, kw_only=True)
class DataPart:
    """The examples. Paths are relative to `root`, and `root` to the current folder."""

    root: str = "."
    format: str = "auto"  # text, table, parallel (pairs of files), images; auto: by the objective
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    valid_share: float = 0.0  # without `valid`: the end of a text, or a random share of the examples …
    valid_last: int = 0  # … or the last n examples
    split: str = "file"  # what ends a document of a text: file, line, form_feed, blank_line
    header: tuple[str, ...] = ()  # names of a table's columns, or of the two sides of parallel files
    table: str | None = None  # tsv, csv, jsonl, parquet, if the suffix does not tell
    skip_lines: int = 0
    quoted: bool | None = None
    further_fields: bool = False
    source: str = "source"  # the columns of a table
    target: str = "target"
    text: str = "text"
    second: str | None = None  # the second text of a pair
    label: str = "label"
    labels: tuple[str, ...] = ()  # in the order of their ids; (): those in the data, sorted
    directions: tuple[str, ...] = ()  # "en-de", "de-en": columns are languages, and a tag precedes the source
    seq_len: int = 256  # the length of windows of text, and the longest row of anything else
    wrap: float = 0.0  # the share of training documents whose long lines are wrapped, as in printed books
    apart: bool = True  # leave out training documents that overlap with the validation text
    borders: bool = True  # mask other documents in the same row
    image_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class ObjectivePart:
    kind: str = "next_token"  # masked, pretrain, spans, translate, classify, regress, tag, images: see `tasks`
    smoothing: float = 0.0
    agree: float = 0.0  # translate: R-Drop; each pair is read twice, and this weighs the divergence of the two
    auxiliary: float = 0.0  # weight of the auxiliary language-modelling loss
    whole_words: bool = True
    mask_share: float = 0.15
    changes: dict[str, Any] = field(default_factory=dict)  # augmentation of images


@dataclass(frozen=True, kw_only=True)
class TrainPart:
    steps: int = 1000
    tokens: int = 8192  # per step, padding included; not for images, see rows
    rows: int | None = None  # rows per step; for texts, at most
    accumulate: int = 1  # gradient accumulation: a step runs in so many parts
    precision: str = "fp32"  # or bf16
    compile: str = "no"  # blocks: in seconds, one block for all; default, max-autotune, …: modes of torch.compile
    capture: bool = True  # on a GPU: a CUDA graph of the forward and backward pass for each shape
    checkpointing: bool = False  # recompute activations instead of storing them
    deterministic: bool | None = None  # None: on the CPU
    device: str = "auto"
    threads: int | None = None
    workers: int = 1
    ema: float = 0.0  # decay of an exponential moving average of the weights; or …
    average: int = 0  # … average the last n checkpoints at the end
    freeze: tuple[str, ...] = ()  # patterns of the names of parameters that are not trained
    lora_rank: int = 0
    lora_alpha: float = 16.0
    lora_parts: tuple[str, ...] = ("*attention*", "*feed_forward*")
    spike: float = 0.0  # skip a step whose loss is more than this many times the running mean; 0: never


@dataclass(frozen=True, kw_only=True)
class OptimizerPart:
    """`adamw`; `adam`, as in 2017; `muon` for the matrices of the blocks, AdamW for the rest."""

    kind: str = "adamw"
    rate: float = 1e-3
    betas: tuple[float, ...] = ()  # (): (0.9, 0.95), or (0.9, 0.98) for adam
    eps: float | None = None  # None: 1e-8, or 1e-9 for adam
    weight_decay: float | None = None  # None: 0.1, or 0 for adam
    clip: float = 1.0  # the largest norm of the gradient; 0: no clipping
    matrix_rate: float = 0.02  # Muon's
    momentum: float = 0.95  # Muon's
    layer_decay: float = 1.0  # learning rate of each block, relative to the block above it


@dataclass(frozen=True, kw_only=True)
class SchedulePart:
    kind: str = "cosine"  # inverse_sqrt, linear, constant, wsd
    warmup: int = 0
    final: float = 0.0  # the learning rate at the end, as a share of the highest
    decay: float = 0.2  # wsd: the share of the steps with a falling rate


@dataclass(frozen=True, kw_only=True)
class EvaluatePart:
    every: int = 250
    batches: int = 0  # use n batches, spread over the examples; 0: all
    metric: str = "loss"  # decides which weights are best: the lowest loss, or the highest score
    keep_best: bool = True  # the model folder gets the best weights, not the last ones
    patience: int = 0  # stop after n evaluations without improvement; 0: never
    samples: int = 3
    prompt: str = "\n"
    log: int = 10  # a line in the run log every n steps


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


def directions_of(recipe: Recipe) -> list[tuple[str, str]]:
    """The directions of a translator: (en, de) for "en-de"; a target may be pt-BR."""
    ways = [way.partition("-") for way in recipe.data.directions]
    for source, _, target in ways:
        if not source or not target:
            raise ConfigError(f"data.directions={list(recipe.data.directions)}: write each as en-de, source and target")
    return [(source, target) for source, _, target in ways]


def unknown_key(key: str, table: str, known: Sequence[str]) -> str:
    """The message for an unknown key, with the nearest known one."""
    near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(key, known, n=1))
    return f"unknown key {key!r} in {table}; known: {', '.join(known)}{near}"
