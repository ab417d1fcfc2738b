"""How well a model tells whether one part of a text follows another: BERT's second question, with no word hidden.

Pairs are made as for training (`SentencePairs`): half of the second parts follow, the others come from another
document, or from far away where there is only one. So a model that guesses is right half of the time.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.arguments import Progress, checked, no_progress
from cutaway.data.corpus import Corpus
from cutaway.data.sentence_pairs import SentencePairs, sentence_ends
from cutaway.model.finite import check_scores
from cutaway.model.heads import PretrainingHead
from cutaway.model.model import Model
from cutaway.objectives.masked import FOLLOWS, join_parts
from cutaway.objectives.objective import as_tensors
from cutaway.tokens import Tokenizer


@checked
@torch.no_grad()
def score_next_sentences(
    model: Model,
    tokenizer: Tokenizer,
    documents: Sequence[Sequence[int]],
    *,
    context: int,
    seed: int = 0,
    batch: int = 8,
    progress: Progress = no_progress,
) -> NDArray[np.bool_]:
    """Of each pair, whether the answer was right. A window in which no sentence ends has none."""
    head = model.head
    assert isinstance(head, PretrainingHead)
    special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id]
    pairs = SentencePairs(
        _corpus(documents),
        sentence_ends(tokenizer),
        rows=batch,
        seq_len=context - sum(id is not None for id in special),
        seed=seed,
        shuffle=False,
    )
    right = []
    for step in range(pairs.steps):
        pair = pairs(step)
        parts = [(pair[name], pair[f"{name}_length"]) for name in ("first", "second")]
        ids, segments, real = join_parts(parts, tokenizer.cls_id, tokenizer.sep_id, width=context)
        told = as_tensors({"ids": ids, "segments": segments, "real": real}, model.device)
        hidden = model.hidden(told["ids"], real=told["real"], segments=told["segments"])
        scores = head.next_sentence(hidden, told["real"])
        check_scores(model, scores)
        yes = scores.argmax(dim=-1).cpu().numpy() == FOLLOWS
        right.append((yes == pair["follows"])[pair["second_length"] > 0])
        progress(step + 1, pairs.steps)
    return np.concatenate(right)


def _corpus(documents: Sequence[Sequence[int]]) -> Corpus:
    there = [np.asarray(ids, dtype=np.int64) for ids in documents if len(ids)]
    starts = np.cumsum([0, *map(len, there)])
    return Corpus(np.concatenate(there), starts, n_bytes=0, fingerprint="")
