"""What goes out says the same words: `AutoTokenizer` and `generate` on an exported folder, and ours on the model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

import cutaway
from cutaway.checkpoints import export, load, load_tokenizer
from cutaway.decoding import translate_all
from cutaway.decoding.generate import prompt_ids
from cutaway.decoding.translate import tag_for
from cutaway.decoding.translate_sentences import encode_sources
from cutaway.errors import CheckpointError
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer, train_tokenizer

TEXTS = ["I ate an apple.", "a bird sang", "a", "Old birds, new apples: I ate."]
KINDS = {"word": None, "char": None, "byte": None, "bpe": 280, "wordpiece": 60, "unigram": 60}  # kind → vocab_size
N = 12


def tokenizer_of(kind: str, **options: Any) -> Tokenizer:
    return train_tokenizer(TEXTS * 4, kind=kind, vocab_size=KINDS[kind], **options)


def speaker(name: str, tokenizer: Tokenizer, **changes: Any) -> Model:
    ids = {"start_id": tokenizer.bos_id, "end_ids": None if tokenizer.eos_id is None else (tokenizer.eos_id,)}
    numbers: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "max_len": 64, "pad_id": tokenizer.pad_id, **ids}
    return tiny(name, dtype=torch.float32, **numbers | changes)


def continued(folder: Path, text: str) -> list[int]:
    given = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt", return_token_type_ids=False)
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    return theirs.generate(**given, max_new_tokens=N, do_sample=False)[0, given.input_ids.shape[1] :].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt", "gpt2", "llama"])
def test_a_text_goes_on_there_as_here(name: str, kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind)
    model = speaker(name, tokenizer, **({"d_ff": 96} if name == "gpt" else {}))
    export(model, tmp_path / "out", tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert [theirs(text).input_ids for text in TEXTS] == [prompt_ids(model, tokenizer, text) for text in TEXTS]
    if kind == "bpe":
        ids = continued(tmp_path / "out", TEXTS[0])
        assert tokenizer.decode(ids) == cutaway.generate(model, tokenizer, TEXTS[0], max_tokens=N)
        again = load(tmp_path / "out"), load_tokenizer(tmp_path / "out")
        assert tokenizer.decode(ids) == cutaway.generate(*again, TEXTS[0], max_tokens=N)


@pytest.mark.parametrize("changes", [{"start_id": None}, {"start_id": 2, "end_ids": (2,)}], ids=["none", "end"])
def test_what_is_no_beginning_here_is_none_there(changes: dict[str, Any], tmp_path: Path) -> None:
    """WordPiece would put [CLS] … [SEP] around a prompt, and a word behind [SEP] is another one."""
    tokenizer = tokenizer_of("wordpiece")
    model = speaker("gpt2", tokenizer, **changes)
    export(model, tmp_path / "out", tokenizer)
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(TEXTS[0]).input_ids == prompt_ids(model, tokenizer, TEXTS[0])


def translator(tokenizer: Tokenizer, **changes: Any) -> Model:
    ids = {"start_id": tokenizer.bos_id, "end_ids": (tokenizer.eos_id,), "pad_id": tokenizer.pad_id}
    numbers = {"vocab_size": tokenizer.vocab_size, "max_len": 64, "seed": 1}
    made = tiny("transformer", dtype=torch.float32, **numbers | ids | changes)
    with torch.no_grad():
        (
            made.decoder.final_norm or made.decoder[-1].feed_forward_norm
        ).weight.neg_()  # a tied output would repeat what it reads
    return made


@pytest.mark.parametrize("tags", [(), ("de", "fr")], ids=["one", "tags"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "wordpiece"])
def test_a_source_is_read_there_as_here(kind: str, tags: tuple[str, ...], tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tags=tags)
    model = translator(tokenizer)
    export(model, tmp_path / "out", tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    for to in tags or (None,):
        ours = encode_sources(model, tokenizer, TEXTS, tag_for(tokenizer, to), tokenizer.eos_id)
        assert [theirs(f"<2{to}> {text}" if to else text).input_ids for text in TEXTS] == ours


@pytest.mark.parametrize("wiring", ["post_norm", "pre_norm"])
@pytest.mark.parametrize("positions", ["sinusoidal", "sinusoidal_halves"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_text_is_translated_there_as_here(wiring: str, positions: str, beam: int, tmp_path: Path) -> None:
    """The paper's order of positions goes out as Marian's; with pre-norm, as `cutaway train` makes it, as Pegasus."""
    tokenizer = tokenizer_of("char")
    model = translator(tokenizer, positions=positions, wiring=wiring)
    export(model, tmp_path / "out", tokenizer)
    read = AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    told = []
    for text in TEXTS:
        given = read(text, return_tensors="pt", return_token_type_ids=False)
        written = theirs.generate(**given, num_beams=beam, early_stopping=False, max_new_tokens=N)
        told.append(read.decode(written[0], skip_special_tokens=True))
    found = translate_all(model, tokenizer, TEXTS, beam=beam, max_len=N)
    assert told == found
    assert len(set(found)) > 2


@pytest.mark.parametrize("name", ["transformer", "transformer-pre-norm"])
def test_reordered_weights_are_the_same_model(name: str, tmp_path: Path) -> None:
    model = tiny(name, start_id=1, output_bias=True)
    export(model, tmp_path / "out")
    again = load(tmp_path / "out", dtype=torch.float64)
    assert again.config == replace(model.config, positions="sinusoidal_halves")
    source, target = torch.arange(14).view(2, 7), torch.arange(30, 40).view(2, 5)
    ours, theirs = model(source, target), again(source, target)
    assert (ours - theirs).abs().max() <= 1e-12 * ours.abs().max()
    assert not torch.equal(again.target_embedding.tokens.weight, model.target_embedding.tokens.weight)


def test_hidden_states_keep_their_order(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot express positions='sinusoidal'"):
        export(tiny("transformer", task="hidden", start_id=1), tmp_path / "out")
