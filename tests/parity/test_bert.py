"""BERT against `transformers`: every architecture, in and out."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from helpers.parity.padded_batches import Batch, padded
from helpers.parity.twins import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_gradients,
    twins_of,
)
from helpers.parity.whole_answers import our_answers, their_answers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import BertConfig

from cutaway.checkpoints import load

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
GRADIENTS = {torch.float32: 1e-5, torch.float64: 1e-9}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "BertForPreTraining": ("pretrain", {}),
    "BertForMaskedLM": ("masked_language_model", {}),
    "BertForMaskedLM untied": ("masked_language_model", {"tie_word_embeddings": False}),
    "BertForMaskedLM relu": ("masked_language_model", {"hidden_act": "relu"}),
    "BertForNextSentencePrediction": ("next_sentence", {}),
    "BertForSequenceClassification": ("classify", {"num_labels": 3}),
    "BertForSequenceClassification two": ("classify", {}),
    "BertForSequenceClassification one": ("regress", {"num_labels": 1}),
    "BertForTokenClassification": ("tag", {"num_labels": 5}),
    "BertModel": ("hidden", {}),
    "BertModel without pooler": ("hidden", {}),
}


def tiny(**changes: Any) -> BertConfig:
    numbers: dict[str, Any] = {
        "vocab_size": 53,
        "max_position_embeddings": 12,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "type_vocab_size": 3,
        "layer_norm_eps": 0.01,
    }
    return BertConfig(**numbers | changes)


def twins(folder: Path, case: str, dtype: torch.dtype = torch.float32) -> Twins:
    kind = getattr(transformers, case.split()[0])
    more = {"add_pooling_layer": False} if case.endswith("without pooler") else {}
    return twins_of(kind(tiny(**TASKS[case][1]), **more), folder, dtype)


def batch(side: str = "right") -> tuple[Batch, Tensor]:
    """Rows of three lengths, and their segments."""
    found = padded([9, 5, 2], side, 53)
    return found, torch.randint(0, 3, found.ids.shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", TASKS)
def test_answers_and_gradients(tmp_path: Path, case: str, dtype: torch.dtype):
    both, (text, segments) = twins(tmp_path / "theirs", case, dtype), batch()
    assert both.ours.config.task == TASKS[case][0]
    ours = our_answers(both.ours, text, segments=segments)
    theirs = their_answers(both.theirs, text, token_type_ids=segments)
    assert_close(ours, theirs, TOLERANCE[dtype])
    assert_same_gradients(both, ours, theirs, GRADIENTS[dtype], tmp_path / "gradients")


@pytest.mark.parametrize("case", TASKS)
def test_goes_out_and_is_kept(tmp_path: Path, case: str):
    both, (text, segments) = twins(tmp_path / "theirs", case), batch()
    more = {"add_pooling_layer": False} if case.endswith("without pooler") else {}
    unused = ("cls.predictions.bias",) if case.endswith("untied") else ()
    assert_goes_out_again(
        both, lambda theirs: their_answers(theirs, text, token_type_ids=segments), tmp_path / "out", unused, **more
    )
    assert_kept_by_our_own_folder(both, lambda ours: our_answers(ours, text, segments=segments), tmp_path / "native")


@pytest.mark.parametrize("case", ["BertForMaskedLM", "BertForTokenClassification"])
def test_padding_on_the_left(tmp_path: Path, case: str):
    both, (text, segments) = twins(tmp_path, case, torch.float64), batch("left")
    ours = our_answers(both.ours, text, segments=segments)
    theirs = their_answers(both.theirs, text, token_type_ids=segments, position_ids=text.positions)
    assert_close(ours, theirs, 1e-10)


@pytest.mark.parametrize("case", ["BertForPreTraining", "BertForSequenceClassification", "BertModel"])
def test_the_first_real_token_is_read_wherever_padding_stands(tmp_path: Path, case: str):
    both, text = twins(tmp_path, case, torch.float64), padded([9, 5, 2], "left", 53)
    for row, length in enumerate((9, 5, 2)):
        alone = Batch(text.ids[row : row + 1, -length:], text.real[row : row + 1, -length:], text.positions)
        assert_close(
            our_answers(both.ours, Batch(text.ids[row : row + 1], text.real[row : row + 1], text.positions)),
            their_answers(both.theirs, alone),
            1e-10,
        )


def test_nothing_given_means_the_first_segment_and_no_padding(tmp_path: Path):
    both, ids = twins(tmp_path, "BertForMaskedLM"), torch.randint(3, 53, (2, 12))
    assert_close(both.ours(ids), both.theirs(ids).logits, 1e-5)


def test_the_oldest_files(tmp_path: Path):
    """bert-base-uncased: Greek norms, stored positions, tied weights twice, and more heads than its config names."""
    both, (text, segments) = twins(tmp_path, "BertForPreTraining"), batch()
    file = tmp_path / "model.safetensors"
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(file).items()
    }
    tensors["bert.embeddings.position_ids"] = torch.arange(12)[None]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    save_file(tensors, file)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace("BertForPreTraining", "BertForMaskedLM"))
    ours = load(tmp_path)
    assert ours.config.task == "pretrain"
    assert_close(
        our_answers(ours, text, segments=segments), their_answers(both.theirs, text, token_type_ids=segments), 1e-5
    )


def test_dropout_comes_and_goes(tmp_path: Path):
    config = tiny(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0, classifier_dropout=0.3, num_labels=3)
    both = twins_of(transformers.BertForSequenceClassification(config), tmp_path / "theirs")
    ours = both.ours.config
    assert (ours.dropout, ours.attention_dropout, ours.classifier_dropout) == (0.2, 0.0, 0.3)
    assert both.ours.encoder[0].attention.dropout == 0.0
    assert both.ours.head.dropout.p == 0.3
    assert_goes_out_again(both, lambda theirs: theirs(torch.tensor([[5, 6]])).logits, tmp_path / "out")
    again = BertConfig.from_pretrained(tmp_path / "out")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "id2label"):
        assert getattr(again, name) == getattr(config, name)
