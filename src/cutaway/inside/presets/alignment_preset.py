"""The preset `alignment`: which cross-attention heads of a translator find the source of copied words."""

from typing import Any

from cutaway.decoding.translate import tag_for, translations
from cutaway.errors import InputError
from cutaway.files import read_text
from cutaway.inside.circuits.alignment_heads import alignment_heads
from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.presets.search import LISTED, Search
from cutaway.inside.progress import stages
from cutaway.inside.reports.circuit_report import CircuitReport
from cutaway.model.model import EncoderDecoderModel
from cutaway.pictures.terminal_text import minus


def find_alignment(search: Search) -> CircuitReport:
    """The heads that look at the source of a copied word, on sentences that have a translation or get one."""
    model, tokenizer, to = search.model, search.tokenizer, search.options.to
    if not isinstance(model, EncoderDecoderModel):
        raise InputError(f"the preset alignment is for translators, and this is a {model.config.family} model")
    file = search.prompts_file(
        "sentences with names or numbers, a line each, and after a tab their translation if there is one"
    )
    lines = [line for line in read_text(file).splitlines() if line.strip()][: search.options.limit or 64]
    if not lines:
        raise InputError(f"prompts={file} is empty: write sentences with names or numbers, a line each")
    sources, targets = (list(side) for side in zip(*(_pair(line) for line in lines), strict=True))
    alone = [source for source, target in zip(sources, targets, strict=True) if not target]
    first, then = stages(search.progress, 1 if alone else 0, 1)
    if alone:
        made = iter(translations(model, tokenizer, alone, to=to, split=False, progress=first))
        targets = [target or next(made).text for target in targets]
    found = alignment_heads(model, tokenizer, sources, targets, tag=tag_for(tokenizer, to), progress=then)
    best = found.copies.best(min(LISTED, search.options.size))
    more: dict[str, Any] = {"task": "translation", "found_with": "copied words whose source a head looks at"}
    roles = {node: "aligns copies" for node, _ in best}
    circuit = Circuit.of(model, "alignment", dict(best), effects=dict(best), roles=roles, **more)
    (strongest, loss), *_ = found.lost_copied.best(1)
    facts = [
        ("copied words", f"{found.n_copied} of {found.n_words}"),
        ("log p of a token", minus(f"{found.log_p:.2f}; of a copied one {found.log_p_copied:.2f}")),
        ("most missed", f"{strongest}: without it a copied token loses {minus(f'{loss:.2f}')} nats"),
    ]
    scores = {"finds copies": found.copies, "agrees with all": found.agrees, "missed for copies": found.lost_copied}
    return CircuitReport("alignment", circuit, facts, scores, found.to_dict())


def _pair(line: str) -> tuple[str, str]:
    """A source and, after a tab, its translation if there is one."""
    source, _, target = line.partition("\t")
    return source.strip(), target.strip()
