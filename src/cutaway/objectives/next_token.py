"""Next-token prediction: at every position, the target is the next token of the text (GPT).

Teacher forcing: the inputs are the true tokens, not the model's predictions, so all positions are trained at once.
"""

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.objectives.loss import IGNORED, token_loss
from cutaway.objectives.objective import Arrays, Objective, Tensors


@checked
def next_token_loss(
    model: Model, ids: Int[Tensor, "batch seq"], documents: Int[Tensor, "batch seq"] | None = None
) -> Float[Tensor, ""]:
    """The mean loss of the tokens 1 … n of a text, each given those before it, within the same document."""
    targets = ids[:, 1:]
    if documents is None:
        return token_loss(model.head, model.hidden(ids[:, :-1]), targets) / targets.numel()
    if documents.shape != ids.shape:
        raise InputError(f"documents={tuple(documents.shape)} of ids={tuple(ids.shape)}: give a number for each token")
    targets = targets.masked_fill(documents[:, 1:] != documents[:, :-1], IGNORED)
    hidden = model.hidden(ids[:, :-1], documents=documents[:, :-1])
    return token_loss(model.head, hidden, targets) / (targets != IGNORED).sum()


class NextToken(Objective):
    """From windows of a stream (`text`, `document`), or from separate sequences (`text`, `text_length`)."""

    targets = {"next_token": "targets"}

    def __init__(self, *, start_id: int | None = None, end_id: int | None = None) -> None:
        self.start_id, self.end_id = start_id, end_id  # added to sequences; a stream has its <eos> already

    @property
    def extra(self) -> int:
        """How many special tokens are added to a row."""
        return int(self.start_id is not None) + int(self.end_id is not None)

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        if "text_length" in batch:
            ids, length = with_ends(batch["text"], batch["text_length"], self.start_id, self.end_id)
            targets = np.where(np.arange(1, ids.shape[1]) < length[:, None], ids[:, 1:], IGNORED)
            return {"ids": ids[:, :-1].copy(), "targets": targets}
        ids = batch["text"]
        prepared = {"ids": ids[:, :-1].copy(), "targets": ids[:, 1:].copy()}
        if "document" in batch:
            documents = batch["document"]
            prepared["targets"][documents[:, 1:] != documents[:, :-1]] = IGNORED
            prepared["documents"] = documents[:, :-1].copy()
        return prepared

    def losses(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        packed = {"documents": batch["documents"]} if "documents" in batch else {}
        # padding is on the right, where causal attention does not look: no mask is needed
        return {"next_token": token_loss(model.head, model.hidden(batch["ids"], **packed), batch["targets"])}


def with_ends(
    rows: np.ndarray, length: np.ndarray, start_id: int | None, end_id: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of tokens with <sos> before the first and <eos> after the last; rows without tokens stay empty."""
    there = length > 0
    front = int(start_id is not None)
    width = rows.shape[1] + front + int(end_id is not None)
    result = np.zeros((len(rows), width), dtype=np.int64)
    result[:, front : front + rows.shape[1]] = rows
    if start_id is not None:
        result[there, 0] = start_id
    if end_id is not None:
        result[there, (length + front)[there]] = end_id
    return result, np.where(there, length + front + int(end_id is not None), 0)
