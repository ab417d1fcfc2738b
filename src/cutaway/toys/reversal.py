"""The smallest translation: a word into the same word spelled backwards.

To write the i-th letter, the decoder has to attend to the i-th letter from the end, so that cross-attention shows a
diagonal from one corner to the other: a first picture of what a Transformer has learned.
"""

from collections.abc import Callable
from string import ascii_lowercase

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.decoding import greedy_translate
from cutaway.errors import InputError
from cutaway.families import build
from cutaway.families.transformer import Transformer, TransformerConfig
from cutaway.model.tap import watch

PAD, START, END = 0, 1, 2
TOKENS = ("<pad>", "<sos>", "<eos>", *ascii_lowercase)
LONGEST = 12

CONFIG = TransformerConfig(
    vocab_size=len(TOKENS),
    max_len=LONGEST + 2,
    n_encoder_layers=2,
    n_decoder_layers=1,
    d_model=64,
    n_heads=2,
    d_ff=128,
    dropout=0.0,
    pad_id=PAD,
    start_id=START,
    end_ids=(END,),
)


def check_word(word: str) -> None:
    if not (2 <= len(word) <= LONGEST and set(word) <= set(ascii_lowercase)):
        raise InputError(f"{word!r}: this model reverses words of 2 to {LONGEST} letters a–z")


def ids_of_words(words: list[str]) -> tuple[Int[Tensor, "batch seq"], Bool[Tensor, "batch seq"]]:
    """The letters of each word and <eos>, padded to one length, and which tokens are real."""
    rows = [[TOKENS.index(letter) for letter in word] + [END] for word in words]
    width = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    return ids, ids != PAD


def word_of(ids: list[int]) -> str:
    """The letters up to <eos>."""
    letters = ids[: ids.index(END)] if END in ids else ids
    return "".join(TOKENS[i] for i in letters)


def some_words(n: int, generator: torch.Generator) -> list[str]:
    """Words of random letters and random length."""
    lengths = torch.randint(2, LONGEST + 1, (n,), generator=generator).tolist()
    letters = torch.randint(26, (n, LONGEST), generator=generator).tolist()
    return ["".join(ascii_lowercase[i] for i in row[:k]) for row, k in zip(letters, lengths, strict=True)]


def reversal_loss(model: Transformer, words: list[str]) -> Float[Tensor, ""]:
    """Teacher forcing: <sos> and the true letters so far go in, the next true letter should come out."""
    source, source_real = ids_of_words(words)
    target, _ = ids_of_words([word[::-1] for word in words])
    shifted = F.pad(target[:, :-1], (1, 0), value=START)
    logits = model(source, shifted, source_real=source_real)
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def train_reversal(
    *, steps: int = 1000, batch: int = 64, seed: int = 0, report: Callable[[int, float], None] = lambda step, loss: None
) -> Transformer:
    """A model that spells backwards, trained on `steps` batches of random words."""
    generator = torch.Generator().manual_seed(seed)
    model = build(CONFIG, seed=seed)
    assert isinstance(model, Transformer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    for step in range(1, steps + 1):
        loss = reversal_loss(model, some_words(batch, generator))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        report(step, loss.item())
    return model.eval()


def reverse(model: Transformer, words: list[str]) -> list[str]:
    """The words that the model writes."""
    source, real = ids_of_words(words)
    return [word_of(row) for row in greedy_translate(model, source, n=LONGEST + 1, real=real).tolist()]


def reversal_accuracy(model: Transformer, n: int = 500, seed: int = 1) -> float:
    """The share of new random words that the model reverses without an error."""
    generator = torch.Generator().manual_seed(seed)
    batches = [some_words(n // 10, generator) for _ in range(10)]
    right = sum(
        answer == word[::-1] for words in batches for word, answer in zip(words, reverse(model, words), strict=True)
    )
    return right / sum(map(len, batches))


@torch.inference_mode()
def cross_attention(model: Transformer, word: str) -> tuple[Float[Tensor, "head query key"], list[str], list[str]]:
    """The cross-attention pattern of the last decoder block, with the tokens that were written and read."""
    source, _ = ids_of_words([word])
    target = greedy_translate(model, source, n=LONGEST + 1)
    name = f"decoder.{len(model.decoder) - 1}.cross.pattern"
    with watch(model, name) as seen:
        model(source, F.pad(target[:, :-1], (1, 0), value=START))
    return seen[name][0], [TOKENS[i] for i in target[0].tolist()], [TOKENS[i] for i in source[0].tolist()]
