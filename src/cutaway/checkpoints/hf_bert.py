"""BERT in the Hugging Face layout; RoBERTa and RoFormer name their bodies in the same way."""

from typing import Any

from cutaway.checkpoints.hf_config import ENCODER_FIELDS, Field, Fields, HFConfig, read_fields, write_fields
from cutaway.checkpoints.hf_layout import block_rules, linear_rules
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.errors import CheckpointError
from cutaway.families.bert import BERTConfig

ARCHITECTURES = {
    "BertForPreTraining": "pretrain",
    "BertForMaskedLM": "masked_language_model",
    "BertForNextSentencePrediction": "next_sentence",
    "BertForSequenceClassification": "classify",
    "BertForTokenClassification": "tag",
    "BertModel": "hidden",
}
PREFIX = "bert."
# Older files store the positions 0, 1, 2 …; a pooler that the task does not use is skipped, as in `transformers`.
IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight", "pooler.dense.bias")


FIELDS: Fields = {
    "vocab_size": Field("vocab_size", 30522),
    "n_segments": Field("type_vocab_size", 2),
    **ENCODER_FIELDS,
    "classifier_dropout": Field("classifier_dropout", kind=float),
    "tied": Field("tie_word_embeddings", True),
}
BLOCK = {
    "attention.query_key_value": "attention.self.query attention.self.key attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}


def read_config(values: HFConfig, task: str) -> BERTConfig:
    if task == "masked_language_model" and values.has_tensor("cls.seq_relationship.weight"):
        task = "pretrain"  # bert-base-uncased calls itself a masked language model, but has a next-sentence head
    values.expect("pooler_type", "first_token_transform")
    values.ignore("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")
    return BERTConfig(
        task=task,
        max_len=values.get("max_position_embeddings", 512),
        pooler=has_pooler(values, task),
        **read_encoder(values, FIELDS, task),
        **values.special_tokens(defaults=(0, None, None)),
    )


def read_encoder(values: HFConfig, fields: Fields, task: str) -> dict[str, Any]:
    """What the configs of BERT, RoBERTa and RoFormer have in common."""
    values.expect("position_embedding_type", "absolute")
    return read_fields(values, fields) | values.classes(task)


def has_pooler(values: HFConfig, task: str) -> bool:
    """Their config does not say whether a body has a pooler; its tensors do."""
    return task != "hidden" or values.has_tensor("pooler.dense.weight")


def write_config(c: BERTConfig) -> dict[str, Any]:
    return {"model_type": "bert", "max_position_embeddings": c.max_len} | write_encoder(c)


def write_encoder(c: BERTConfig) -> dict[str, Any]:
    if c.task in ("classify", "regress") and c.pooling == "mean":
        raise CheckpointError(
            f'{c.family}\'s layout has no classifier on the mean of the states: train with pooling="first"'
        )
    return write_fields(c, FIELDS)


def layout(c: BERTConfig) -> Layout:
    rules: dict[str, LayoutRule] = {"embedding.positions.weight": Same("bert.embeddings.position_embeddings.weight")}
    pooler, follows = "bert.pooler.dense", "cls.seq_relationship"
    match c.task:
        case "pretrain":
            rules |= linear_rules("head.next_sentence.pool.dense", pooler)
            rules |= linear_rules("head.next_sentence.classes", follows)
        case "next_sentence":
            rules |= linear_rules("head.pool.dense", pooler) | linear_rules("head.classes", follows)
        case "classify" | "regress":
            rules |= linear_rules("head.pool.dense", pooler) | linear_rules("head.classes", "classifier")
        case "tag":
            rules |= linear_rules("head.classes", "classifier")
        case "hidden" if c.pooler:
            rules |= linear_rules("head.pool.dense", pooler)
    whole = body(c, "bert") | Layout(rules)
    if c.task == "pretrain":
        return whole | masked_head(c, "bert", "head.masked")
    return whole | masked_head(c, "bert", "head") if c.task == "masked_language_model" else whole


def body(c: BERTConfig, name: str) -> Layout:
    """Tokens, segments and blocks; each family has its own positions."""
    embeddings = f"{name}.embeddings"
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same(f"{embeddings}.word_embeddings.weight"),
        "embedding.segments.weight": Same(f"{embeddings}.token_type_embeddings.weight"),
    }
    rules |= linear_rules("embedding.norm", f"{embeddings}.LayerNorm")
    heights = {"attention.query_key_value": [c.d_model] * 3}
    for layer in range(c.n_layers):
        rules |= block_rules(f"encoder.{layer}", f"{name}.encoder.layer.{layer}", BLOCK, heights)
    return Layout(rules, ignored=IGNORED)


def classifier_rules(c: BERTConfig, pooler: str = "") -> dict[str, LayoutRule]:
    """The heads of RoBERTa and RoFormer for classes, and the pooler of a body that has one."""
    match c.task:
        case "classify" | "regress":
            dense = linear_rules("head.pool.dense", "classifier.dense")
            return dense | linear_rules("head.classes", "classifier.out_proj")
        case "tag":
            return linear_rules("head.classes", "classifier")
        case "hidden" if c.pooler:
            return linear_rules("head.pool.dense", pooler)
    return {}


def masked_head(
    c: BERTConfig,
    name: str,
    ours: str,
    theirs: str = "cls.predictions",
    *,
    dense: str = "transform.dense",
    norm: str = "transform.LayerNorm",
) -> Layout:
    """The head that predicts masked words."""
    rules = linear_rules(f"{ours}.dense", f"{theirs}.{dense}") | linear_rules(f"{ours}.norm", f"{theirs}.{norm}")
    if not c.tied:  # theirs has two biases then, and adds only the decoder's
        return Layout(rules | linear_rules(f"{ours}.words", f"{theirs}.decoder"), ignored=(f"{theirs}.bias",))
    rules[f"{ours}.words.bias"] = Same(f"{theirs}.bias")
    tokens = f"{name}.embeddings.word_embeddings.weight"
    return Layout(rules, {f"{theirs}.decoder.weight": tokens, f"{theirs}.decoder.bias": f"{theirs}.bias"})
