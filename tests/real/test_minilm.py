"""all-MiniLM-L6-v2, a BERT of six layers: its sentence vectors are `transformers`', and they mean something."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from helpers.real_weights import real_weights
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertModel

from cutaway import embed
from cutaway.checkpoints import export, load, load_tokenizer, save
from cutaway.model.model import Model

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PAIRS = [
    ("A man is playing a guitar.", "Someone plays an instrument with strings."),
    ("How do I reset my password?", "I forgot my login and want to choose a new one."),
    ("The cat sleeps on the warm windowsill.", "A kitten is napping by the window in the sun."),
    ("Shares fell sharply after the bank's report.", "The stock market dropped on bad news from a lender."),
]
ODD = ["", "!", "Ünïcödé, 数学, Ελληνικά and 🙂 in one line.", "word " * 200]
SENTENCES = [sentence for pair in PAIRS for sentence in pair] + ODD


@pytest.fixture(scope="module")
def folder() -> Path:
    return real_weights("minilm")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Model:
    return load(folder)


@pytest.fixture(scope="module")
def batch(folder: Path) -> tuple[Tensor, Tensor]:
    """Ids and what of them is real, for all sentences at once, the longest cut at 128 tokens."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding()
    lines = tokenizer.encode_batch(SENTENCES)
    return torch.tensor([line.ids for line in lines]), torch.tensor([line.attention_mask for line in lines]).bool()


@torch.no_grad()
def vectors(hidden: Tensor, real: Tensor) -> Tensor:
    """One vector per sentence: the mean over its real tokens, made as long as 1."""
    return F.normalize((hidden * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True), dim=-1)


def test_it_is_a_body_with_its_pooler(ours: Model):
    assert (ours.config.task, ours.config.pooler) == ("hidden", True)
    assert ours.n_parameters() == 22_713_216


@torch.no_grad()
def test_sentence_vectors_are_theirs(folder: Path, ours: Model, batch: tuple[Tensor, Tensor]):
    ids, real = batch
    theirs = BertModel.from_pretrained(folder).eval()
    output = theirs(ids, attention_mask=real.long())
    hidden = ours(ids, real=real)
    assert (vectors(hidden, real) - vectors(output.last_hidden_state, real)).abs().max() <= 1e-5
    assert (hidden - output.last_hidden_state)[real].abs().max() <= 1e-5 * hidden.abs().max()
    assert (ours.head.pool(hidden, real) - output.pooler_output).abs().max() <= 1e-5


@torch.no_grad()
def test_a_sentence_alone_is_the_sentence_in_a_batch(ours: Model, batch: tuple[Tensor, Tensor]):
    ids, real = batch
    together = vectors(ours(ids, real=real), real)
    for row, length in enumerate(real.sum(dim=1).tolist()):
        alone = vectors(ours(ids[row : row + 1, :length]), real[row : row + 1, :length])
        assert (alone[0] - together[row]).abs().max() <= 1e-5


def test_embed_gives_these_vectors(folder: Path, ours: Model, batch: tuple[Tensor, Tensor]):
    ids, real = batch
    expected = vectors(ours(ids, real=real), real)
    found = embed(ours, load_tokenizer(folder), SENTENCES, cut=128)
    assert (torch.from_numpy(found) - expected).abs().max() <= 1e-5


def test_paraphrases_are_closer_than_strangers(ours: Model, batch: tuple[Tensor, Tensor]):
    ids, real = batch
    found = vectors(ours(ids, real=real), real)[: 2 * len(PAIRS)].detach()
    likeness = found @ found.T
    for sentence in range(len(found)):
        partner = sentence ^ 1
        strangers = [other for other in range(len(found)) if other not in (sentence, partner)]
        assert likeness[sentence, partner] > likeness[sentence, strangers].max() + 0.1


def test_it_goes_out_and_is_kept(folder: Path, ours: Model, tmp_path: Path):
    export(ours, tmp_path / "out")
    save(ours, tmp_path / "native")
    theirs = dict(BertModel.from_pretrained(folder).named_parameters())
    again = dict(BertModel.from_pretrained(tmp_path / "out").named_parameters())
    assert theirs.keys() == again.keys()
    assert all(torch.equal(theirs[name], again[name]) for name in theirs)
    kept = dict(load(tmp_path / "native").named_parameters())
    assert all(torch.equal(weight, kept[name]) for name, weight in ours.named_parameters())
