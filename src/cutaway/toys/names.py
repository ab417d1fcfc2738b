"""A small GPT for indirect objects, trained in a minute on the sentences of `cutaway.inside.circuits.ioi`.

It reads "When Mary and John met near the park, John handed a book to" and predicts Mary: of two names, the one that is
not repeated. Its tokens are words. It is small enough that one can look for the heads that do this.
"""

from collections.abc import Callable
from typing import Any

import tokenizers
import torch
import torch.nn.functional as F
from tokenizers import models, pre_tokenizers

from cutaway.families import build
from cutaway.inside.circuits.ioi import IOI_TEMPLATES, IoiTemplates, ioi_prompts
from cutaway.model.model import DecoderModel
from cutaway.tokens import Tokenizer


def word_tokenizer(templates: IoiTemplates = IOI_TEMPLATES) -> Tokenizer:
    """A token for every word of the templates."""
    split = pre_tokenizers.Whitespace()
    texts = [*templates.sentences, *templates.names, *templates.places, *templates.objects]
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    backend = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<unk>", *words])}, "<unk>"))
    backend.pre_tokenizer = split
    return Tokenizer(backend)


def train_names(
    templates: IoiTemplates = IOI_TEMPLATES,
    *,
    steps: int = 400,
    n_layers: int = 3,
    batch: int = 64,
    rate: float = 3e-3,
    seed: int = 0,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> tuple[DecoderModel, Tokenizer]:
    """A small GPT trained on `steps` × `batch` sentences, to predict only the name at their end."""
    tokenizer = word_tokenizer(templates)
    numbers: dict[str, Any] = {
        "n_layers": n_layers,
        "d_model": 64,
        "n_heads": 4,
        "d_ff": 128,
        "max_len": 32,
        "dropout": 0.0,
    }
    model = build("gpt", seed=seed, vocab_size=tokenizer.vocab_size, **numbers)
    assert isinstance(model, DecoderModel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 50, 2 * (1 - step / steps))
        some = ioi_prompts(tokenizer, batch, templates=templates, seed=(seed + 1) * 10**9 + step)
        hidden = model.hidden(some.ids, real=some.real)
        last = hidden[torch.arange(batch), some.at["end"]]
        loss = F.cross_entropy(model.head(last[:, None])[:, 0], some.io)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step + 1, loss.item())
    return model.eval(), tokenizer
