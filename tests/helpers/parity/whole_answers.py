"""All that an architecture answers, as one row of numbers, so that nothing of it is left uncompared."""

from typing import Any

import torch
from helpers.parity.padded_batches import Batch
from torch import Tensor
from transformers import PreTrainedModel

from cutaway.model.model import Model

ANSWERS = ("prediction_logits", "logits", "last_hidden_state", "seq_relationship_logits", "pooler_output")


def our_answers(model: Model, batch: Batch, **more: Any) -> Tensor:
    """The head's scores at the real places; what else a head says when it is asked by name."""
    hidden = model.hidden(batch.ids, real=batch.real, **more)
    answers = [model.head(hidden, batch.real)]
    for name in ("next_sentence", "pool"):
        part = getattr(model.head, name, None)
        if part is not None and (name == "next_sentence" or model.config.task == "hidden"):
            answers.append(part(hidden, batch.real))
    return in_a_row(answers, batch.real)


def their_answers(model: PreTrainedModel, batch: Batch, **more: Any) -> Tensor:
    output = model(batch.ids, attention_mask=batch.mask, **more)
    return in_a_row([output[name] for name in ANSWERS if output.get(name) is not None], batch.real)


def in_a_row(answers: list[Tensor], real: Tensor) -> Tensor:
    """One answer per token counts where a token is; one answer per sequence counts always."""
    return torch.cat([(answer[real] if answer.ndim == 3 else answer).flatten() for answer in answers])
