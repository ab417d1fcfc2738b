"""`cutaway generate`: continues a text with a language model."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.models import In, Precision, Where, importing, load_ready, tokenizer_for_text
from cutaway.cli.shared.options import Json, locate_model
from cutaway.decoding.options import GenerationOptions
from cutaway.errors import InputError
from cutaway.pictures.terminal_text import json_text, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutaway.decoding.generate import Generated
    from cutaway.decoding.generate_with_draft import Drafted
    from cutaway.model.model import DecoderModel
    from cutaway.tokens import Tokenizer

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The beginning of the text; - reads it from stdin.")]
Draft = Annotated[
    Path | None,
    typer.Option(
        "--draft", callback=locate_model, help="A smaller model that proposes tokens: the same greedy text, sooner."
    ),
]
ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", "\\\\": "\\"}


def generate(
    prompt: Prompt,
    model: Where,
    options: GenerationOptions,
    draft: Draft = None,
    precision: In = Precision.auto,
    as_json: Json = False,
) -> None:
    """Continue a text, by greedy decoding, sampling or beam search."""
    with importing():
        from cutaway.decoding.generate import stream_text, write_texts
        from cutaway.model.model import DecoderModel

    options = replace(options, stop=[unescaped(stop) for stop in options.stops])
    text = _read() if prompt == "-" else prompt
    loaded, found_tokenizer, precision = load_ready(model, precision)
    tokenizer = tokenizer_for_text(found_tokenizer, model)
    if not isinstance(loaded, DecoderModel):
        raise InputError(f"{model} is a model for task={loaded.config.task!r}: only a language model continues a text")
    if draft is not None:
        _with_draft(loaded, tokenizer, (model, draft), text, options, precision, as_json)
        return
    if options.n_best == 1 and not as_json:
        wholes: list[Generated] = []
        with _enough_memory(options):
            stream = stream_text(loaded, tokenizer, text, options, on_end=wholes.append)
            _begin(text)
            for piece in stream:
                _say(shown(piece))
        _say("\n")
        _warn_if_full(wholes, loaded)
        return
    with _enough_memory(options):
        (found,) = write_texts(loaded, tokenizer, [text], options)
    if as_json:
        texts = [
            {"text": one.text, "tokens": len(one.ids), "score": one.score, "ended": one.ended, "ids": one.ids}
            for one in found
        ]
        data = {"model": str(model), "prompt": text, "precision": precision.value, "seed": options.seed,
                "texts": texts}  # fmt: skip
        _say(json_text(data, 2) + "\n")
    else:
        for one in found:
            _say(f"{one.score:.3f}\t{shown(one.text)}\n")
    _warn_if_full(found, loaded)


def _with_draft(
    loaded: "DecoderModel",
    tokenizer: "Tokenizer",
    paths: tuple[Path, Path],
    text: str,
    options: GenerationOptions,
    precision: Precision,
    as_json: bool,
) -> None:
    model, draft = paths
    from cutaway.decoding.generate_with_draft import check_same_tokens, write_drafted
    from cutaway.model.model import DecoderModel

    small, its_tokenizer, _ = load_ready(draft, precision)
    if not isinstance(small, DecoderModel):
        raise InputError(f"{draft} is a model for task={small.config.task!r}: a draft is a language model too")
    check_same_tokens(tokenizer, its_tokenizer)
    with _enough_memory(options):
        (found,) = write_drafted(loaded, small, tokenizer, [text], options)
    if as_json:
        data = {"model": str(model), "draft": str(draft), "prompt": text, "precision": precision.value,
                "texts": [{**asdict(found), "tokens": len(found.ids)}]}  # fmt: skip
        _say(json_text(data, 2) + "\n")
    else:
        _begin(text)
        _say(shown(found.text) + "\n")
    _warn_if_full([found], loaded)


def _begin(prompt: str) -> None:
    if sys.stdout.isatty():
        _say(f"\033[1m{shown(prompt)}\033[0m")


def _warn_if_full(found: "Sequence[Generated | Drafted]", model: "DecoderModel") -> None:
    if any(one.ended == "full" for one in found):
        print(f"the model is full (max_len={model.max_len:,}) before --max-tokens were generated", file=sys.stderr)


@contextmanager
def _enough_memory(options: GenerationOptions) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # the CPU's allocator has no error of its own
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        asked = f"--max-tokens {options.max_tokens:,}" + f" and --beam {options.beam:,}" * (options.beam > 1)
        raise InputError(f"not enough memory for {asked}: use smaller numbers") from None


def unescaped(text: str) -> str:
    r"""With escapes such as \n replaced, which a shell passes as two characters."""
    return re.sub(r"\\[ntr\\]", lambda found: ESCAPES[found[0]], text)


def _read() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"stdin is no UTF-8 at byte {error.start}") from None


def _say(text: str) -> None:
    """At once, and whatever the terminal's encoding."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
