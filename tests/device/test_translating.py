"""Translations with terms, prefixes and alignments, and the certificate, on a GPU as on the CPU."""

from tempfile import TemporaryDirectory

import torch
from helpers.tiny_models import tiny

from cutaway import verify
from cutaway.checkpoints import load, save
from cutaway.decoding.translate import translate
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer_training import train_tokenizer

DEVICE = "cuda"
TEXTS = ["The dog runs. The cat sleeps.", "A dog, a house", "one two three", "x"]
ASKED = {
    "plain": {},
    "greedy": {"beam": 1},
    "terms": {"terms": {"dog": "Rüde", "cat": "Katze", "two": "zwo"}, "beam": 3},
    "a prefix": {"prefix": "Der "},
    "alignments": {"align": True, "n_best": 2, "scores": True},
}


def translator() -> tuple[Model, Tokenizer]:
    tokenizer = train_tokenizer([], kind="byte")
    numbers = {"vocab_size": tokenizer.vocab_size, "max_len": 64, "dtype": torch.float64}
    return tiny("transformer", start_id=tokenizer.bos_id, end_ids=(tokenizer.eos_id,), **numbers), tokenizer


def test_what_is_asked_of_translations_is_what_the_cpu_says():
    model, tokenizer = translator()
    here = {name: translate(model, tokenizer, TEXTS, **asked) for name, asked in ASKED.items()}
    model = model.to(DEVICE)
    for name, asked in ASKED.items():
        for _ in range(2):  # recorded steps are there the second time
            found = translate(model, tokenizer, TEXTS, **asked)
            if name == "alignments":
                assert [one.alignment.pharaoh() for one in found] == [one.alignment.pharaoh() for one in here[name]]
                found, expected = ([[c.text for c in one.n_best] for one in some] for some in (found, here[name]))
                assert found == expected
            else:
                assert found == here[name], name
    assert all("Rüde" in text for text in here["terms"][:2])


def test_the_certificate_holds():
    for name in ("transformer", "gpt2", "llama", "bert"):
        with TemporaryDirectory() as folder:
            tokenizer = train_tokenizer([], kind="byte", mask=True)
            save(tiny(name, vocab_size=tokenizer.vocab_size, dtype=torch.float32), folder, tokenizer)
            assert load(folder, device=DEVICE).device.type == DEVICE
            found = verify(folder, device=DEVICE, quick=True)
            failed = [entry for entry in found.entries if entry.verdict in ("failed", "error")]
            assert found.passed, (name, failed)
            assert found.machine["device"] == DEVICE
