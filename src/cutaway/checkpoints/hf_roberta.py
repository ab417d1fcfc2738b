"""RoBERTa in the Hugging Face layout. Its positions are counted from the padding token's id + 1."""

from typing import Any

from cutaway.checkpoints.hf_bert import FIELDS as BERT_FIELDS
from cutaway.checkpoints.hf_bert import body, classifier_rules, has_pooler, masked_head, read_encoder, write_encoder
from cutaway.checkpoints.hf_config import Field, HFConfig
from cutaway.checkpoints.layout import Layout, LayoutRule, RowsAfter
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families.roberta import RoBERTaConfig

ARCHITECTURES = {
    "RobertaForMaskedLM": "masked_language_model",
    "RobertaForSequenceClassification": "classify",
    "RobertaForTokenClassification": "tag",
    "RobertaModel": "hidden",
}
PREFIX = "roberta."


FIELDS = BERT_FIELDS | {"vocab_size": Field("vocab_size", 50265)}


def read_config(values: HFConfig, task: str) -> RoBERTaConfig:
    special = values.special_tokens(defaults=(1, 0, 2))
    if special["pad_id"] is None:
        raise ConfigError(
            f"{values.where}: pad_token_id={values.get('pad_token_id')!r} is not in the vocabulary, and positions are "
            "counted from the padding token"
        )
    return RoBERTaConfig(
        task=task,
        max_len=values.get("max_position_embeddings", 512) - special["pad_id"] - 1,
        pooler=has_pooler(values, task),
        **read_encoder(values, FIELDS, task),
        **special,
    )


def write_config(c: RoBERTaConfig) -> dict[str, Any]:
    return {"model_type": "roberta", "max_position_embeddings": c.max_len + _n_skipped(c)} | write_encoder(c)


def layout(c: RoBERTaConfig) -> Layout:
    positions = RowsAfter("roberta.embeddings.position_embeddings.weight", _n_skipped(c))
    rules: dict[str, LayoutRule] = {"embedding.positions.weight": positions}
    rules |= classifier_rules(c, "roberta.pooler.dense")
    whole = body(c, "roberta") | Layout(rules)
    if c.task == "masked_language_model":
        whole |= masked_head(c, "roberta", "head", "lm_head", dense="dense", norm="layer_norm")
    return whole


def _n_skipped(c: RoBERTaConfig) -> int:
    """How many rows of their table come before the first position."""
    if c.pad_id is None:
        raise CheckpointError("RoBERTa's layout counts positions from the padding token: give the config a pad_id")
    return c.pad_id + 1
