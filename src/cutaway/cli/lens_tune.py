"""`cutaway lens --tune`: a tuned lens from a file of running text, or of sentences to translate."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from cutaway.cli.shared.inside import as_text, check_output, open_model, screen, waiting
from cutaway.errors import InputError
from cutaway.files import read_text
from cutaway.pictures.terminal_text import human

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inside.residual.tuned_lens import Batches
    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer

LENGTH, ROWS = 128, 8  # tokens of a row, rows of a step
PAIRS = 64  # rows of a step, of sentences
HIDDEN = 0.15  # of a text for a model that fills blanks


def tune_lens(path: Path, file: Path, out: Path | None, steps: int, to: str | None, as_json: bool, force: bool) -> None:
    """Trains, saves, and says what it is worth on a part of the text that it did not learn from."""
    if out is None:
        raise InputError("--tune needs a place for the lens: --out lens.safetensors")
    check_output(out, ".safetensors", force=force)
    loaded, tokenizer = open_model(path, blocks=True)

    from cutaway.cli.shared.models import tokenizer_for_text
    from cutaway.inside.residual.tuned_lens import kl_by_layer, train_tuned_lens
    from cutaway.model.model import EncoderDecoderModel

    if loaded.config.task not in ("language_model", "masked_language_model", "pretrain", "translate"):
        raise InputError(f"--tune is for models that say words, and {path} is one for task={loaded.config.task!r}")
    if isinstance(loaded, EncoderDecoderModel):
        with waiting("translating"):
            batches, held = _pairs(loaded, tokenizer_for_text(tokenizer, path), file, steps, to)
    elif to is not None:
        raise InputError("--to is for translators, and this model has one language")
    else:
        batches, held = _rows(loaded, tokenizer_for_text(tokenizer, path), file, steps)
    with waiting("training") as report:
        lens = train_tuned_lens(loaded, batches, progress=report)
    lens.save(out)
    before, after = (kl_by_layer(loaded, held, tuned=one) for one in (None, lens))
    if as_json:
        print(as_text({"model": str(path), "lens": str(out), "steps": steps, "kl": before, "kl_tuned": after}), end="")
    else:
        _show(before, after)
    print(f"{out}: {human(out.stat().st_size, 'B')}", file=sys.stderr)


def _rows(model: "Model", tokenizer: "Tokenizer", file: Path, steps: int) -> "tuple[Batches, Batches]":
    """Batches for every step, in a random order that is always the same, and rows from the end of the text."""
    import torch

    ids = tokenizer.encode(read_text(file), special=False)
    length = min(LENGTH, getattr(model, "max_len", None) or LENGTH)
    rows = torch.tensor(ids[: len(ids) // length * length]).reshape(-1, length)
    if len(rows) < 2:
        raise InputError(f"--tune {file} has {len(ids)} tokens: {2 * length} are the least, and 100,000 are better")
    if model.config.task != "language_model":
        rows = _with_blanks(rows, tokenizer)
    rows = rows.to(model.device)
    n_held = max(1, min(ROWS, len(rows) // 10))
    rows, held = rows[:-n_held], rows[-n_held:]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).to(rows.device)
    some = torch.arange(steps * ROWS, device=rows.device).remainder(len(rows)).reshape(steps, ROWS)
    return [(rows[order[which]],) for which in some], [(held,)]


def _with_blanks(rows: "Tensor", tokenizer: "Tokenizer") -> "Tensor":
    """Some tokens hidden, and its first and last marks in place: as a model that fills blanks is used to."""
    import torch

    hidden = torch.rand(rows.shape, generator=torch.Generator().manual_seed(0)) < HIDDEN
    if tokenizer.mask_id is None:
        raise InputError("this tokenizer has no token for a blank: one with [MASK] or <mask> is needed")
    rows = rows.masked_fill(hidden, tokenizer.mask_id)
    for place, id in ((0, tokenizer.cls_id), (-1, tokenizer.sep_id)):
        if id is not None:
            rows[:, place] = id
    return rows


def _pairs(model: "Model", tokenizer: "Tokenizer", file: Path, steps: int, to: str | None) -> "tuple[Batches, Batches]":
    """What the translator says to each line. Rows of a batch are of one length, so that none is padded."""
    from cutaway.decoding.translate import translations
    from cutaway.inside.questions import ask_translation

    lines = [line for line in read_text(file).splitlines() if line.strip()]
    n_held = max(1, min(PAIRS, len(lines) // 10))
    if len(lines) < 2:
        raise InputError(f"--tune {file} has {len(lines)} sentences: 2 are the least, and some thousands are better")
    said = translations(model, tokenizer, lines, to=to, beam=1, split=False)
    asked = [
        ask_translation(model, tokenizer, line, one.text, to=to).inputs  # type: ignore[arg-type]
        for line, one in zip(lines, said, strict=True)
        if one.text
    ]
    every = list(_batches(asked[:-n_held]))
    return [every[step % len(every)] for step in range(steps)], list(_batches(asked[-n_held:]))


def _batches(pairs: "list[tuple[Tensor, ...]]") -> "Iterator[tuple[Tensor, ...]]":
    """In a random order that is always the same; a length that only one pair has is a batch of its own."""
    import torch

    alike = defaultdict(list)
    for pair in pairs:
        alike[tuple(ids.shape for ids in pair)].append(pair)
    batches = [same[i : i + PAIRS] for same in alike.values() for i in range(0, len(same), PAIRS)]
    Random(0).shuffle(batches)
    return (tuple(torch.cat(side) for side in zip(*batch, strict=True)) for batch in batches)


def _show(before: dict[str, float], after: dict[str, float]) -> None:
    from rich.text import Text

    from cutaway.inside.reports.axes import layer_names
    from cutaway.pictures.terminal_tables import grid

    table = grid("how far each layer is from the last one's answer: KL in nats", header=True)
    for name in ("layer", "logit lens", "tuned lens"):
        table.add_column(name, justify="right")
    for name, first, last in zip(layer_names(list(before)), before.values(), after.values(), strict=True):
        table.add_row(Text(name), f"{first:.3f}", f"{last:.3f}")
    screen().print(table)
