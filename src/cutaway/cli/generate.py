"""`cutaway generate`: how a text goes on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.models import In, Precision, Where, chosen_precision, importing, load_ready, tokenizer_for_text
from cutaway.cli.shared.options import Json, locate_model
from cutaway.cli.shared.tables import json_text
from cutaway.cli.shared.wording import shown, unescaped
from cutaway.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutaway.decoding.generate import Generated, GenerationOptions
    from cutaway.decoding.generate_with_draft import Drafted
    from cutaway.model.model import DecoderModel
    from cutaway.tokens import Tokenizer

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="How the text begins; - reads it from stdin.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", help="Tokens to write at most.")]
Heat = Annotated[float, typer.Option("--temperature", help="0 takes the likeliest word; above, words are drawn.")]
K = Annotated[int | None, typer.Option("--top-k", help="Only among the k likeliest.")]
P = Annotated[float | None, typer.Option("--top-p", help="Only among the likeliest that make up this probability.")]
Least = Annotated[
    float | None, typer.Option("--min-p", help="Only what is this many times as likely as the likeliest.")
]
Again = Annotated[float, typer.Option("--repetition-penalty", help="Above 1, words that were used get less likely.")]
Present = Annotated[float, typer.Option("--presence-penalty", help="The same, subtracted: above 0, for new words.")]
Ngram = Annotated[int | None, typer.Option("--no-repeat-ngram", help="No so many tokens in a row stand twice.")]
BadWords = Annotated[list[str] | None, typer.Option("--bad-words", help="A text not to write; may be given again.")]
MinTokens = Annotated[int, typer.Option("--min-tokens", help="The text does not end before so many tokens.")]
Allow = Annotated[str | None, typer.Option("--allow", help="A regular expression that the text has to match.")]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", help=r"A text that ends the answer, such as \n; may be given again.")
]
Beam = Annotated[int, typer.Option("--beam", help="How many beginnings are kept.")]
NBest = Annotated[int, typer.Option("--n-best", "--nbest", help="How many texts to show: of the beam, or drawn.")]
Groups = Annotated[int, typer.Option("--groups", help="Cut the beam into groups that avoid each other's words.")]
Diversity = Annotated[
    float | None, typer.Option("--diversity", help="What a word costs that another group has just taken: 0.5.")
]
Prune = Annotated[float | None, typer.Option("--prune", help="Give up what is this far behind the best, in log p.")]
Draft = Annotated[
    Path | None,
    typer.Option("--draft", callback=locate_model, help="A smaller model that guesses ahead: the same words, sooner."),
]
Seed = Annotated[int, typer.Option("--seed", help="Of the drawn words.")]


def generate(
    prompt: Prompt,
    model: Where,
    max_tokens: MaxTokens = 100,
    temperature: Heat = 0.0,
    top_k: K = None,
    top_p: P = None,
    min_p: Least = None,
    repetition_penalty: Again = 1.0,
    presence_penalty: Present = 0.0,
    no_repeat_ngram: Ngram = None,
    bad_words: BadWords = None,
    min_tokens: MinTokens = 0,
    allow: Allow = None,
    stop: Stop = None,
    beam: Beam = 1,
    n_best: NBest = 1,
    groups: Groups = 1,
    diversity: Diversity = None,
    prune: Prune = None,
    seed: Seed = 0,
    draft: Draft = None,
    precision: In = Precision.auto,
    as_json: Json = False,
) -> None:
    """How a text goes on: the likeliest words, drawn ones, or the best of a beam."""
    with importing():
        from cutaway.decoding.generate import GenerationOptions, pieces, write_texts
        from cutaway.model.model import DecoderModel

    wishes = GenerationOptions(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repetition_penalty=repetition_penalty, presence_penalty=presence_penalty, no_repeat_ngram=no_repeat_ngram,
        bad_words=tuple(bad_words or ()), min_tokens=min_tokens, allow=allow, stop=tuple(map(unescaped, stop or ())),
        beam=beam, n_best=n_best, groups=groups, diversity=diversity, prune=prune, seed=seed,
    )  # fmt: skip
    text = _read() if prompt == "-" else prompt
    precision = chosen_precision(precision, model)
    loaded, found_tokenizer = load_ready(model, precision)
    tokenizer = tokenizer_for_text(found_tokenizer, model)
    if not isinstance(loaded, DecoderModel):
        raise InputError(
            f"{model} is a model for task={loaded.config.task!r}: only a language model goes on with a text"
        )
    if draft is not None:
        _drafted(loaded, tokenizer, model, draft, text, wishes, precision, as_json)
        return
    if n_best == 1 and not as_json:
        wholes: list[Generated] = []
        with _enough_memory(wishes):
            stream = pieces(loaded, tokenizer, text, wishes, tell=wholes.append)
            _begin(text)
            for piece in stream:
                _say(shown(piece))
        _say("\n")
        _tell_if_full(wholes, loaded)
        return
    with _enough_memory(wishes):
        (found,) = write_texts(loaded, tokenizer, [text], wishes)
    if as_json:
        texts = [
            {"text": one.text, "tokens": len(one.ids), "score": one.score, "ended": one.ended, "ids": one.ids}
            for one in found
        ]
        said = {"model": str(model), "prompt": text, "precision": precision.value, "seed": seed, "texts": texts}
        _say(json_text(said, 2) + "\n")
    else:
        for one in found:
            _say(f"{one.score:.3f}\t{shown(one.text)}\n")
    _tell_if_full(found, loaded)


def _drafted(
    loaded: "DecoderModel",
    tokenizer: "Tokenizer",
    model: Path,
    draft: Path,
    text: str,
    wishes: "GenerationOptions",
    precision: Precision,
    as_json: bool,
) -> None:
    from cutaway.decoding.generate_with_draft import check_same_tokens, write_drafted
    from cutaway.model.model import DecoderModel

    small, its_tokenizer = load_ready(draft, precision)
    if not isinstance(small, DecoderModel):
        raise InputError(f"{draft} is a model for task={small.config.task!r}: a draft is a language model too")
    check_same_tokens(tokenizer, its_tokenizer)
    with _enough_memory(wishes):
        (found,) = write_drafted(loaded, small, tokenizer, [text], wishes)
    if as_json:
        said = {"model": str(model), "draft": str(draft), "prompt": text, "precision": precision.value,
                "texts": [{**asdict(found), "tokens": len(found.ids)}]}  # fmt: skip
        _say(json_text(said, 2) + "\n")
    else:
        _begin(text)
        _say(shown(found.text) + "\n")
    _tell_if_full([found], loaded)


def _begin(prompt: str) -> None:
    if sys.stdout.isatty():
        _say(f"\033[1m{shown(prompt)}\033[0m")


def _tell_if_full(found: "Sequence[Generated | Drafted]", model: "DecoderModel") -> None:
    if any(one.ended == "full" for one in found):
        print(f"the model is full (max_len={model.max_len:,}): --max-tokens were not reached", file=sys.stderr)


@contextmanager
def _enough_memory(wishes: "GenerationOptions") -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # the CPU's allocator has no error of its own
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        asked = f"--max-tokens {wishes.max_tokens:,}" + f" and --beam {wishes.beam:,}" * (wishes.beam > 1)
        raise InputError(f"there is not enough memory for {asked}: ask for less") from None


def _read() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"stdin is no UTF-8 at byte {error.start}") from None


def _say(text: str) -> None:
    """At once, and whatever the terminal's encoding."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
