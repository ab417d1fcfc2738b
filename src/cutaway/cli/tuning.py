"""`cutaway lens --tune`: a tuned lens from a file of running text."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.cli.opened import as_text, check_out, opened, screen, waiting
from cutaway.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer

LENGTH, ROWS = 128, 8  # tokens of a row, rows of a step


def tune_lens(path: Path, file: Path, out: Path | None, steps: int, as_json: bool) -> None:
    """Trains, saves, and says what it is worth on the end of the text, which it did not learn from."""
    if out is None:
        raise InputError("--tune needs a place for the lens: --out lens.safetensors")
    check_out(out, ".safetensors")
    loaded, tokenizer = opened(path, blocks=True)

    from cutaway.cli.asking import reading
    from cutaway.inside.tuned import kl_by_layer, train_lens
    from cutaway.model.model import DecoderModel

    if not isinstance(loaded, DecoderModel) or loaded.config.task != "language_model":
        raise InputError(f"--tune is for models that write, and {path} is one for task={loaded.config.task!r}")
    batches, held = _rows(loaded, reading(tokenizer, path), file, steps)
    with waiting("training") as report:
        lens = train_lens(loaded, batches, report=report)
    lens.save(out)
    before, after = (kl_by_layer(loaded, [(held,)], tuned=one) for one in (None, lens))
    if as_json:
        print(as_text({"model": str(path), "lens": str(out), "steps": steps, "kl": before, "kl_tuned": after}), end="")
    else:
        _show(before, after)
    print(f"{out}: {out.stat().st_size / 1000:,.0f} kB", file=sys.stderr)


def _rows(model: "Model", tokenizer: "Tokenizer", file: Path, steps: int) -> "tuple[list[tuple[Tensor]], Tensor]":
    """Batches for every step, in a random order that is always the same, and rows from the end of the text."""
    import torch

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"--tune {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"--tune {file} is no UTF-8 at byte {error.start}") from None
    ids = tokenizer.encode(text, special=False)
    length = min(LENGTH, getattr(model, "max_len", None) or LENGTH)
    rows = torch.tensor(ids[: len(ids) // length * length], device=model.device).reshape(-1, length)
    if len(rows) < 2:
        raise InputError(f"--tune {file} has {len(ids)} tokens: {2 * length} are the least, and 100,000 are better")
    n_held = max(1, min(ROWS, len(rows) // 10))
    rows, held = rows[:-n_held], rows[-n_held:]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).to(rows.device)
    some = torch.arange(steps * ROWS, device=rows.device).remainder(len(rows)).reshape(steps, ROWS)
    return [(rows[order[which]],) for which in some], held


def _show(before: dict[str, float], after: dict[str, float]) -> None:
    from rich.text import Text

    from cutaway.cli.showing import grid
    from cutaway.inside.shown import layer_names

    table = grid("how far each layer is from the last one's answer: KL in nats", header=True)
    for name in ("layer", "logit lens", "tuned lens"):
        table.add_column(name, justify="right")
    for name, first, last in zip(layer_names(list(before)), before.values(), after.values(), strict=True):
        table.add_row(Text(name), f"{first:.3f}", f"{last:.3f}")
    screen().print(table)
