"""RoFormer in the Hugging Face layout, where the numbers that are turned together are neighbours."""

from typing import Any

from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.hf_bert import blanks, body, numbers_in, numbers_out
from cutaway.checkpoints.hf_shared import linear_rules
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


def config_in(keys: Keys, task: str) -> RoFormerConfig:
    numbers = numbers_in(keys)
    keys.expect("embedding_size", numbers["d_model"], None)
    keys.expect("rotary_value", False)
    return RoFormerConfig(
        task=task,
        vocab_size=keys.take("vocab_size", 50000),
        max_len=keys.take("max_position_embeddings", 1536),
        pooler=False,
        **numbers,
        **keys.classes(task),
        **keys.special(defaults=(0, None, None)),
    )


def config_out(c: RoFormerConfig) -> dict[str, Any]:
    if c.task == "hidden" and c.pooler:
        raise CheckpointError("RoFormer's layout has no pooler: set pooler=False")
    own = {"max_position_embeddings": c.max_len, "embedding_size": c.d_model, "rotary_value": False}
    return {"model_type": "roformer"} | own | numbers_out(c)


def layout(c: RoFormerConfig) -> Layout:
    rules: dict[str, LayoutRule] = {}
    for layer in range(c.n_layers):
        attention = f"roformer.encoder.layer.{layer}.attention.self"
        for kind in ("weight", "bias"):
            query, key = (Turned(f"{attention}.{part}.{kind}", c.n_heads) for part in ("query", "key"))
            parts = [query, key, Same(f"{attention}.value.{kind}")]
            rules[f"encoder.{layer}.attention.query_key_value.{kind}"] = Joined(parts, [c.d_model] * 3)
    match c.task:
        case "classify" | "regress":
            rules |= linear_rules("head.pool.dense", "classifier.dense") | linear_rules(
                "head.classes", "classifier.out_proj"
            )
        case "tag":
            rules |= linear_rules("head.classes", "classifier")
    # the angles' sines and cosines, which are the 2017 positions of one head
    d_head = c.d_model // c.n_heads
    angles = LayoutTable((c.max_len, d_head), lambda: SinusoidalHalves(c.max_len, d_head).rows())
    whole = body(c, "roformer") | Layout(rules, tables={"roformer.encoder.embed_positions.weight": angles})
    return whole | blanks(c, "roformer", "head") if c.task == "masked_language_model" else whole
