"""The inside of one request, shown beside its answer. What the others of its batch write does not change.

    {"model": "en-de", "q": "I ate an apple.", "target": "de",
     "watch": {"alignment": true, "heads": ["decoder.2.cross.3"], "lens": 3}}

Every number comes from the very steps that wrote the answer (`cutaway.decoding.engine.row_watch`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from cutaway.arguments import Options, option
from cutaway.decoding.alignment import Alignment, Span, words_alignment
from cutaway.decoding.engine.row_watch import SeenInSteps, TokenScore, Watch, check_watch
from cutaway.decoding.engine.worker import Ticket
from cutaway.decoding.options import SearchOptions
from cutaway.decoding.search.beam_trace import BeamTrace
from cutaway.decoding.search.search import Hypothesis, Job
from cutaway.errors import InputError
from cutaway.inside.residual.logit_lens import lens_of_states
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.serving.schemas import read_options
from cutaway.serving.token_names import TokenNames
from cutaway.tokens import Tokenizer

TOP = 20  # of each list at most
HEADS = 16  # of a request at most
HEAD = re.compile(r"((?:encoder|decoder)\.[0-9]{1,4}\.(?:attention|cross))\.([0-9]{1,4})")
STREAM = ("decoder.0.residual_before", "decoder.*.residual_after")
RESIDUALS = tuple(tap.rpartition(".")[2] for tap in STREAM)


@dataclass(frozen=True, kw_only=True)
class WatchRequest(Options):
    """What to show of a request."""

    alternatives: int = option(0, "The likeliest tokens in the place of each token.", least=0, most=TOP)
    heads: Sequence[str] = option((), "Where heads look, such as decoder.2.cross.3: layer 2, cross-attention, head 3.")
    norms: bool = option(False, "The length of the residual stream after each layer.")
    lens: int = option(0, "The likeliest tokens that each layer would say, if it were the last.", least=0, most=TOP)
    alignment: bool = option(False, "Which source word each word comes from; of translators.")
    beam: bool = option(False, "Each hypothesis that the beam search weighed, and what became of it.")

    def check(self) -> None:
        if len(self.heads) > HEADS:
            raise InputError(f"heads: {len(self.heads)} heads are more than the {HEADS} of a request")
        for head in self.heads:
            if not HEAD.fullmatch(head):
                raise InputError(f"heads: {head!r} is not a head, such as decoder.2.cross.3")

    @classmethod
    def read(cls, values: Mapping[str, Any] | None) -> Self:
        """From the field `watch` of a request."""
        with _named():
            return read_options(cls, values or {})

    def watch(self, model: DecoderModel, search: SearchOptions) -> Watch:
        """What the engine has to keep."""
        with _named():
            if self.alignment and not isinstance(model, EncoderDecoderModel):
                raise InputError("alignment: this model is no translator; leave it out")
            if self.beam and search.beam == 1:
                raise InputError("beam: this request has no beam; set its size to 2 or more")
            taps = [*STREAM] if self.norms or self.lens else []
            taps += [self._parts(head)[0] for head in self.heads]
            if self.alignment:
                taps.append(alignment_tap(model))
            watch = Watch(taps=list(dict.fromkeys(taps)), top=self.alternatives, beam=self.beam)
            check_watch(model, watch)
            for head in self.heads:
                tap, number = self._parts(head)
                part = model.get_submodule(tap.rpartition(".")[0])
                n_heads: Any = getattr(part, "n_heads", 1)
                if number >= n_heads:
                    raise InputError(f"heads: {head!r}: the layers of this kind have heads 0 … {n_heads - 1}")
        return watch

    def _parts(self, head: str) -> tuple[str, int]:
        found = HEAD.fullmatch(head)
        assert found is not None
        return f"{found[1]}.pattern", int(found[2])


@contextmanager
def _named() -> Iterator[None]:
    """Inside, what is wrong is told of the field `watch`."""
    try:
        yield
    except InputError as error:
        raise InputError(f"watch: {error}") from None


def alignment_tap(model: DecoderModel) -> str:
    """As in `cutaway.decoding.alignment.align`: the last block's cross-attention."""
    return f"decoder.{len(model.decoder) - 1}.cross.pattern"


@dataclass(frozen=True)
class Shown:
    """One text of a job that was watched: what there is to say of it."""

    asked: WatchRequest
    model: DecoderModel
    tokenizer: Tokenizer
    job: Job
    ticket: Ticket
    ids: Sequence[int]

    @property
    def seen(self) -> SeenInSteps:
        return self.ticket.seen

    def to_dict(self, search: SearchOptions | None = None) -> dict[str, Any]:
        """Ready for JSON. Lists have an entry for each token of the text."""
        asked, names = self.asked, TokenNames(self.tokenizer)
        values = self.seen.values(self.ids)
        found: dict[str, Any] = {"tokens": [names.name(id) for id in self.ids]}
        if asked.alternatives:
            found["alternatives"] = [self._alternatives(names, score) for score in self.seen.scores(self.ids)]
        if asked.heads:
            found["heads"] = {head: self._head(names, head, values) for head in asked.heads}
        if asked.norms or asked.lens:
            streams = {tap: torch.stack(each) for tap, each in values.items() if tap.rpartition(".")[2] in RESIDUALS}
        if asked.norms:
            found["norms"] = {tap: stream.norm(dim=-1).tolist() for tap, stream in streams.items()}
        if asked.lens:
            found["lens"] = self._lens(names, streams)
        if asked.beam:
            found["beam"] = self._beam(names, search)
        return found

    def _alternatives(self, names: TokenNames, score: TokenScore) -> dict[str, Any]:
        top = [{"token": names.name(id), "log_p": log_p} for id, log_p in score.top[: self.asked.alternatives]]
        return {"token": names.name(score.token), "log_p": score.log_p, "top": top}

    def _head(self, names: TokenNames, head: str, values: dict[str, list[Tensor]]) -> dict[str, Any]:
        """Where a head looked: a row for each token of the text; of the encoder, for each token of the source."""
        tap, number = self.asked._parts(head)
        source = [names.name(id) for id in self.job.source]
        if tap.startswith("encoder"):
            return {"queries": source, "keys": source, "pattern": self.seen.reading[tap][number].tolist()}
        read = [*self.job.prompt, *self.ids]
        keys = source if ".cross." in tap else [names.name(id) for id in read[: len(read) - 1]]
        return {"keys": keys, "pattern": [row[number].tolist() for row in values[tap]]}

    def _lens(self, names: TokenNames, streams: dict[str, Tensor]) -> dict[str, Any]:
        lens = lens_of_states(self.model, {tap: x[None] for tap, x in streams.items()}, top=self.asked.lens)
        layers = zip(streams, lens.top_tokens[:, 0].tolist(), lens.top_probabilities[:, 0].tolist(), strict=True)
        return {
            tap: [
                [{"token": names.name(id), "probability": p} for id, p in zip(*place, strict=True)]
                for place in zip(tokens, probabilities, strict=True)
            ]
            for tap, tokens, probabilities in layers
        }

    def _beam(self, names: TokenNames, search: SearchOptions | None) -> dict[str, Any]:
        trace = BeamTrace(self.job, {}, 1.0 if search is None else search.length_penalty)
        for step in self.seen.considered:
            trace.hear(step)
        found: list[Hypothesis] = self.ticket.result()
        trace.close(found)
        return trace.to_dict(names.name)

    def alignment(self, source: str, target: str) -> Alignment:
        """Which word of the source each word of the target comes from."""
        read = self.tokenizer.encode_full(source, special=False)
        ends = set(self.model.config.end_ids or ())
        tap = alignment_tap(self.model)
        rows = [*self.seen.reading[tap].unbind(1)] if tap in self.seen.reading else []
        rows += self.seen.values(self.ids)[tap]
        written = [*self.job.prompt[1:], *self.ids]
        kept = [number for number, id in enumerate(written) if id not in ends]
        pattern = torch.stack([rows[number] for number in kept]).float().mean(dim=1)
        front = len(self.job.source) - len(read.ids) - 1  # the tag of the target language
        spans = token_spans(self.tokenizer, [written[number] for number in kept], target)
        return words_alignment(source, target, read.offsets, spans, pattern[:, front : front + len(read.ids)])


def token_spans(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[Span]:
    """Where each token stands in the text that they make, from which white space around it was taken."""
    whole = tokenizer.decode(list(ids))
    before = len(whole) - len(whole.lstrip())
    ends = [max(0, len(tokenizer.decode(list(ids[: n + 1]))) - before) for n in range(len(ids))]
    starts = [0, *ends[:-1]]
    return [(min(start, len(text)), min(max(start, end), len(text))) for start, end in zip(starts, ends, strict=True)]
