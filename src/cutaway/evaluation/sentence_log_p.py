"""log p of sentences: what a language model says, and what a model that fills blanks says in its place.

A language model says log p(sentence) = Σ log p(token | what stands before it); nothing is divided by a length, and that
the sentence ends is not scored. Before the first token stands

    the model's start token, if it has one;
    else an empty line: a model that was trained on running text without a start token has seen paragraphs begin behind
    one, hundreds for each book. Behind <eos> it has seen title pages begin, or, where documents were kept apart,
    nothing at all;
    else, where the tokenizer cannot write that, <eos>;
    or what `before` says.

A model that fills blanks says the pseudo-log-likelihood (Salazar et al. 2020): Σ log p(token | all others), each token
hidden in turn.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.arguments import Progress, no_progress
from cutaway.decoding.single_pass import Row, check_room, side_by_side, surrounded
from cutaway.errors import InputError
from cutaway.evaluation.options import EvaluationOptions
from cutaway.evaluation.shared_prefixes import NODES, Branches, PrefixTree, trees
from cutaway.model.finite import check_scores
from cutaway.model.heads import PretrainingHead
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer

MASKED = ("masked_language_model", "pretrain")
EMPTY_LINE = "\n\n"
BATCH_TOKENS = 8192
AT_ONCE = 1024  # sentences whose tokens are hidden together
LOGITS_AT_ONCE = 1 << 23  # numbers: 32 MB in fp32, which a processor's own memory nearly holds

LogP = Float[np.ndarray, " sentence"]


# --- one sentence after the other -------------------------------------------------------------------------------------


@torch.no_grad()
def log_p(
    model: DecoderModel,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    before: str | None = None,
    start: bool = True,
    progress: Progress = no_progress,
) -> LogP:
    """log p of each sentence, in nats. `before` stands before each, behind the start token, and is not scored.

    Without `start` there is no start token. Sentences that begin alike are read together (`shared_prefixes`).
    """
    check_language_model(model)
    special, before = beginning(model, tokenizer, before, start)
    rows, firsts = rows_behind(model, tokenizer, sentences, special, before)
    found = torch.zeros(len(rows), dtype=torch.float64, device=model.device)
    for sentence, _, each in token_log_p(model, rows, firsts, progress):
        found.index_add_(0, sentence, each)
    return pair_numbers(model, found)


def token_log_p(
    model: DecoderModel, rows: Sequence[list[int]], firsts: Sequence[int], progress: Progress = no_progress
) -> Iterator[tuple[Int[Tensor, " token"], Int[Tensor, " token"], Float[Tensor, " token"]]]:
    """Some tokens at a time: the row of each, its place in it, and its log p; of each row from its first on."""
    vocab_size = model.config.to_dict()["vocab_size"]
    few = max(1, LOGITS_AT_ONCE // (NODES * vocab_size))
    done, waiting = 0, trees([row[:-1] for row in rows])  # what comes last is only predicted
    while some := list(islice(waiting, few)):
        yield _read(model, some, rows, firsts)
        done += sum(len(tree.ways) for tree in some)
        progress(done, len(rows))


def beginning(model: DecoderModel, tokenizer: Tokenizer, before: str | None, start: bool) -> tuple[list[int], str]:
    """The token and the text that stand before every sentence."""
    if start and model.config.start_id is not None:
        return [model.config.start_id], before or ""
    before = EMPTY_LINE if before is None else before
    ends = [id for id in (*(model.config.end_ids or ()), tokenizer.eos_id) if id is not None]
    writable = bool(tokenizer.encode(before, special=False))
    if not writable and not ends:
        raise InputError(
            "the first token of a sentence needs something before it, and this model has no start token: set `before`"
        )
    return ([], before) if writable else (ends[:1], "")


def rows_behind(
    model: DecoderModel, tokenizer: Tokenizer, sentences: Sequence[str], special: list[int], before: str
) -> tuple[list[list[int]], list[int]]:
    """The tokens of each sentence with what stands before them, and which is the first that is scored.

    Both are split into tokens as one text, since line breaks may become other tokens beside a word than alone.
    """
    rows, firsts = [], []
    for number, text in enumerate(sentences):
        encoded = tokenizer.encoding(before + text, special=False)
        n_before = sum(stop <= len(before) for _, stop in encoded.offsets) if before else 0
        if n_before == len(encoded.ids):
            raise InputError(f"sentence {number + 1} of {len(sentences)} has no token: {text!r}")
        if not special and not n_before:
            raise InputError(f"{before!r} and the first word of {text!r} are one token: nothing stands before it")
        rows.append(special + encoded.ids)
        firsts.append(len(special) + n_before)
    check_room(model, [Row(row[:-1], []) for row in rows], "shorten it")
    return rows, firsts


def _read(
    model: DecoderModel, some: Sequence[PrefixTree], rows: Sequence[list[int]], firsts: Sequence[int]
) -> tuple[Int[Tensor, " token"], Int[Tensor, " token"], Float[Tensor, " token"]]:
    """The rows, the places and log p of what is scored in some trees."""
    ids, branches = Branches.of(model, some)
    logits = upcast(model.head(model.hidden(ids, cache=branches)))
    asked = [
        (at, node, rows[sentence][place + 1], sentence, place + 1)
        for at, tree in enumerate(some)
        for sentence, way in tree.ways.items()
        for place, node in enumerate(way)
        if place + 1 >= firsts[sentence]
    ]
    at, node, target, sentence, place = torch.tensor(asked, device=model.device).reshape(-1, 5).unbind(1)
    return sentence, place, (logits[at, node, target] - logits.logsumexp(dim=-1)[at, node]).double()


# --- one blank after the other ----------------------------------------------------------------------------------------


@torch.no_grad()
def pseudo_log_p(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    as_trained: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    progress: Progress = no_progress,
) -> LogP:
    """The pseudo-log-likelihood of each sentence, in nats; special tokens around it (`as_trained`: see `rows_of`) are
    read and not scored."""
    if tokenizer.mask_id is None:
        raise InputError("this tokenizer has no mask token: use a model with one")
    found = torch.zeros(len(sentences), dtype=torch.float64, device=model.device)
    for start in range(0, len(sentences), AT_ONCE):
        some = range(start, min(start + AT_ONCE, len(sentences)))
        blanks = _blanks(model, tokenizer, sentences, some, as_trained)
        for wanted, logits in _guesses(model, blanks, batch_tokens):
            at, target, sentence = torch.tensor(wanted, device=model.device).unbind(1)
            found.index_add_(0, sentence, (logits[at, target] - logits.logsumexp(dim=-1)[at]).double())
        progress(some.stop, len(sentences))
    return pair_numbers(model, found)


Blanks = dict[tuple[int, ...], tuple[Row, list[tuple[int, int]]]]  # a row with a blank; (token, sentence) that fill it


def _blanks(model: Model, tokenizer: Tokenizer, sentences: Sequence[str], some: range, as_trained: bool) -> Blanks:
    """Each token of some sentences hidden. Two sentences that differ in one token share the blank there."""
    assert tokenizer.mask_id is not None
    blanks: Blanks = {}
    for number in some:
        encoded = tokenizer.encode_full(sentences[number], special=False)
        row, front, (n,) = surrounded(tokenizer, [encoded], None, as_trained)
        if not n:
            raise InputError(f"sentence {number + 1} of {len(sentences)} has no token: {sentences[number]!r}")
        check_room(model, [row], "shorten it")
        for place in range(front, front + n):
            hidden = [*row.ids[:place], tokenizer.mask_id, *row.ids[place + 1 :]]
            blank = blanks.setdefault((place, *hidden), (Row(hidden, row.segments), []))
            blank[1].append((row.ids[place], number))
    return blanks


def _guesses(
    model: Model, blanks: Blanks, batch_tokens: int
) -> Iterator[tuple[list[tuple[int, int, int]], Float[Tensor, "blank vocab"]]]:
    """The scores of all tokens for each blank, and for which tokens of which sentences they are asked."""
    head = model.head.masked if isinstance(model.head, PretrainingHead) else model.head
    places, rows = [key[0] for key in blanks], [row for row, _ in blanks.values()]
    wanted = [fills for _, fills in blanks.values()]
    for chosen, ids, more in side_by_side(model, rows, batch_tokens):
        hidden = model.hidden(ids, **more)
        place = torch.tensor([places[i] for i in chosen], device=model.device)
        logits = head(hidden[torch.arange(len(chosen), device=model.device), place][None])[0]
        asked = [(at, token, sentence) for at, i in enumerate(chosen) for token, sentence in wanted[i]]
        yield asked, upcast(logits)


# --- parts ------------------------------------------------------------------------------------------------------------


def check_language_model(model: Model) -> None:
    if isinstance(model, EncoderDecoderModel) or model.config.task != "language_model":
        raise InputError(
            f"a {model.config.family} model for task={model.config.task!r} does not say how likely a sentence is: one "
            f"with task='language_model' or task={MASKED[0]!r} does"
        )


def pair_numbers(model: Model, found: Float[Tensor, " sentence"]) -> LogP:
    check_scores(model, found)
    return found.cpu().numpy()


def shown_beginning(model: DecoderModel, tokenizer: Tokenizer, options: EvaluationOptions) -> str:
    """What stood before each sentence, for a report."""
    special, before = beginning(model, tokenizer, options.before, options.start)
    return " ".join([*map(tokenizer.token, special), *([repr(before)] if before else [])])
