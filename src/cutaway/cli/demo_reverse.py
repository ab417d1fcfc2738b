"""`cutaway demo --reverse`: trains a model to spell words backwards, and shows its cross-attention."""

import time

from cutaway.pictures.terminal_text import json_text

WORDS = ["transformer", "attention", "lecture", "stressed", "cutaway"]
STEPS = 1000


def learn_to_reverse(word: str, steps: int, as_json: bool) -> None:
    """Trains for about half a minute on one core, then prints answers and the attention for this word."""
    import torch

    from cutaway.toys import reversal

    word = word.lower()
    reversal.check_word(word)
    torch.set_num_threads(1)  # a second thread makes such small matrices no faster
    start = time.perf_counter()
    model = _train(steps, quiet=as_json)
    seconds = time.perf_counter() - start
    words = [word, *(other for other in WORDS if other != word)]
    answers = dict(zip(words, reversal.reverse(model, words), strict=True))
    pattern, written, read = reversal.cross_attention(model, word)
    score = reversal.reversal_accuracy(model)
    if as_json:
        print(json_text({
            "parameters": model.n_parameters(), "seconds": round(seconds, 1), "accuracy": score, "answers": answers,
            "cross_attention": {"read": read, "written": written, "pattern": pattern.mean(0).tolist()},
        }))  # fmt: skip
        return
    _show(model.n_parameters(), seconds, score, answers)
    _draw(pattern, written, read)


def _train(steps: int, *, quiet: bool):  # type: ignore[no-untyped-def]
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from cutaway.toys import reversal

    columns = (TextColumn("training"), BarColumn(), TextColumn("loss {task.fields[loss]:.3f}"), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=quiet) as progress:
        bar = progress.add_task("training", total=steps, loss=float("nan"))
        return reversal.train_reversal(
            steps=steps, report=lambda step, loss: progress.update(bar, completed=step, loss=loss)
        )


def _show(n_parameters: int, seconds: float, score: float, answers: dict[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from cutaway.pictures.console import Console

    console = Console()
    console.print(f"A Transformer with {n_parameters:,} parameters learned to spell backwards in {seconds:.0f} s.")
    console.print(f"It reverses {score:.1%} of 500 new random words.\n")
    table = Table(box=None, pad_edge=False)
    table.add_column("input", style="bold")
    table.add_column("output")
    table.add_column("")
    for word, answer in answers.items():
        right = answer == word[::-1]
        table.add_row(word, answer, Text("right", "green") if right else Text(f"wrong: {word[::-1]}", "red"))
    console.print(table)


def _draw(pattern, written: list[str], read: list[str]) -> None:  # type: ignore[no-untyped-def]
    from cutaway.pictures.bars import heat_map
    from cutaway.pictures.console import Console

    console = Console()
    console.print(f"\nWhere it looked while it wrote «{''.join(written).removesuffix('<eos>')}»:")
    console.print("rows: the letters that it wrote; columns: the letters that it read")
    console.print("(cross-attention of the last block, mean over heads)\n")
    rows, columns = (["⏎" if token == "<eos>" else token for token in tokens] for tokens in (written, read))
    console.print(heat_map(pattern.mean(0), rows=rows, columns=columns))
