"""RoFormer in the Hugging Face layout, where the two numbers of a rotary pair are neighbours."""

from typing import Any

from cutaway.checkpoints.hf_bert import FIELDS as BERT_FIELDS
from cutaway.checkpoints.hf_bert import body, classifier_rules, masked_head, read_encoder, write_encoder
from cutaway.checkpoints.hf_config import Field, HFConfig
from cutaway.checkpoints.layout import Joined, Layout, LayoutRule, LayoutTable, Same, Turned
from cutaway.errors import CheckpointError
from cutaway.families.roformer import RoFormerConfig
from cutaway.model.positions import SinusoidalHalves

ARCHITECTURES = {
    "RoFormerForMaskedLM": "masked_language_model",
    "RoFormerForSequenceClassification": "classify",
    "RoFormerForTokenClassification": "tag",
    "RoFormerModel": "hidden",
}
PREFIX = "roformer."


FIELDS = BERT_FIELDS | {"vocab_size": Field("vocab_size", 50000)}


def read_config(values: HFConfig, task: str) -> RoFormerConfig:
    ours = read_encoder(values, FIELDS, task)
    values.expect("embedding_size", ours["d_model"], None)
    values.expect("rotary_value", False)
    return RoFormerConfig(
        task=task,
        max_len=values.get("max_position_embeddings", 1536),
        pooler=False,
        **ours,
        **values.special_tokens(defaults=(0, None, None)),
    )


def write_config(c: RoFormerConfig) -> dict[str, Any]:
    if c.task == "hidden" and c.pooler:
        raise CheckpointError("RoFormer's layout has no pooler: set pooler=False")
    own = {"max_position_embeddings": c.max_len, "embedding_size": c.d_model, "rotary_value": False}
    return {"model_type": "roformer"} | own | write_encoder(c)


def layout(c: RoFormerConfig) -> Layout:
    rules: dict[str, LayoutRule] = {}
    for layer in range(c.n_layers):
        attention = f"roformer.encoder.layer.{layer}.attention.self"
        for kind in ("weight", "bias"):
            query, key = (Turned(f"{attention}.{part}.{kind}", c.n_heads) for part in ("query", "key"))
            parts = [query, key, Same(f"{attention}.value.{kind}")]
            rules[f"encoder.{layer}.attention.query_key_value.{kind}"] = Joined(parts, [c.d_model] * 3)
    rules |= classifier_rules(c)
    # the sines and cosines of the angles: the sinusoidal positions of one head
    d_head = c.d_model // c.n_heads
    angles = LayoutTable((c.max_len, d_head), lambda: SinusoidalHalves(c.max_len, d_head).rows())
    whole = body(c, "roformer") | Layout(rules, tables={"roformer.encoder.embed_positions.weight": angles})
    return whole | masked_head(c, "roformer", "head") if c.task == "masked_language_model" else whole
