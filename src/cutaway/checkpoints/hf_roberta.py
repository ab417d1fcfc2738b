"""RoBERTa in the Hugging Face layout. Its positions are counted from the padding token's id + 1."""

from typing import Any

from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.hf_bert import blanks, body, numbers_in, numbers_out, pooler_in
from cutaway.checkpoints.hf_shared import linear_rules
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


def config_in(keys: Keys, task: str) -> RoBERTaConfig:
    special = keys.special(defaults=(1, 0, 2))
    if special["pad_id"] is None:
        raise ConfigError(f"{keys.where}: pad_token_id={keys.take('pad_token_id')!r} names no token to count from")
    return RoBERTaConfig(
        task=task,
        vocab_size=keys.take("vocab_size", 50265),
        max_len=keys.take("max_position_embeddings", 512) - special["pad_id"] - 1,
        pooler=pooler_in(keys, task),
        **numbers_in(keys),
        **keys.classes(task),
        **special,
    )


def config_out(c: RoBERTaConfig) -> dict[str, Any]:
    return {"model_type": "roberta", "max_position_embeddings": c.max_len + _before(c)} | numbers_out(c)


def layout(c: RoBERTaConfig) -> Layout:
    positions = RowsAfter("roberta.embeddings.position_embeddings.weight", _before(c))
    rules: dict[str, LayoutRule] = {"embedding.positions.weight": positions}
    match c.task:
        case "classify" | "regress":
            rules |= linear_rules("head.pool.dense", "classifier.dense") | linear_rules(
                "head.classes", "classifier.out_proj"
            )
        case "tag":
            rules |= linear_rules("head.classes", "classifier")
        case "hidden" if c.pooler:
            rules |= linear_rules("head.pool.dense", "roberta.pooler.dense")
    whole = body(c, "roberta") | Layout(rules)
    if c.task == "masked_language_model":
        whole |= blanks(c, "roberta", "head", "lm_head", dense="dense", norm="layer_norm")
    return whole


def _before(c: RoBERTaConfig) -> int:
    """How many rows of their table stand before the first position."""
    if c.pad_id is None:
        raise CheckpointError("RoBERTa's layout counts positions from the padding token: give the config a pad_id")
    return c.pad_id + 1
