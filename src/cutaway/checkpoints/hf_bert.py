"""BERT in the Hugging Face layout; RoBERTa and RoFormer name their bodies in the same way."""

from typing import Any

from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.hf_shared import activation_out, encoder_block, linear_rules, other_than
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.errors import CheckpointError
from cutaway.families.bert import BERTConfig
from cutaway.families.parts import either

ARCHITECTURES = {
    "BertForPreTraining": "pretrain",
    "BertForMaskedLM": "masked_language_model",
    "BertForNextSentencePrediction": "next_sentence",
    "BertForSequenceClassification": "classify",
    "BertForTokenClassification": "tag",
    "BertModel": "hidden",
}
PREFIX = "bert."
# Older files store the numbers 0, 1, 2 …; and a pooler that the task does not ask is left out, as they do.
IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight", "pooler.dense.bias")


def config_in(keys: Keys, task: str) -> BERTConfig:
    if task == "masked_language_model" and keys.holds("cls.seq_relationship.weight"):
        task = "pretrain"  # bert-base-uncased says that it fills blanks, and brings its next-sentence head along
    keys.expect("pooler_type", "first_token_transform")
    for unused in ("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"):
        keys.take(unused)
    return BERTConfig(
        task=task,
        vocab_size=keys.take("vocab_size", 30522),
        max_len=keys.take("max_position_embeddings", 512),
        pooler=pooler_in(keys, task),
        **numbers_in(keys),
        **keys.classes(task),
        **keys.special(defaults=(0, None, None)),
    )


def numbers_in(keys: Keys) -> dict[str, Any]:
    """What BERT, RoBERTa and RoFormer say in the same words."""
    keys.expect("position_embedding_type", "absolute")
    dropout = keys.take("hidden_dropout_prob", 0.1)
    attention_dropout = keys.take("attention_probs_dropout_prob", 0.1)
    return {
        "n_segments": keys.take("type_vocab_size", 2),
        "n_layers": keys.take("num_hidden_layers", 12),
        "d_model": keys.take("hidden_size", 768),
        "n_heads": keys.take("num_attention_heads", 12),
        "d_ff": keys.take("intermediate_size", 3072),
        "activation": keys.activation("hidden_act", "gelu"),
        "norm_eps": keys.take("layer_norm_eps", 1e-12),
        "dropout": dropout,
        "attention_dropout": other_than(dropout, attention_dropout),
        "classifier_dropout": keys.take("classifier_dropout", kind=float),
        "tied": keys.take("tie_word_embeddings", True),
    }


def pooler_in(keys: Keys, task: str) -> bool:
    """Their config does not say whether a body has a pooler; its tensors do."""
    return task != "hidden" or keys.holds("pooler.dense.weight")


def config_out(c: BERTConfig) -> dict[str, Any]:
    return {"model_type": "bert", "max_position_embeddings": c.max_len} | numbers_out(c)


def numbers_out(c: BERTConfig) -> dict[str, Any]:
    if c.task in ("classify", "regress") and c.pooling == "mean":
        raise CheckpointError(
            f'{c.family}\'s layout has no classifier on the mean of the states: train with pooling="first"'
        )
    return {
        "vocab_size": c.vocab_size,
        "type_vocab_size": c.n_segments,
        "num_hidden_layers": c.n_layers,
        "hidden_size": c.d_model,
        "num_attention_heads": c.n_heads,
        "intermediate_size": c.d_ff,
        "hidden_act": activation_out(c.activation),
        "layer_norm_eps": c.norm_eps,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": either(c.attention_dropout, c.dropout),
        "classifier_dropout": c.classifier_dropout,
        "tie_word_embeddings": c.tied,
    }


def layout(c: BERTConfig) -> Layout:
    pooler, follows, classifier = "bert.pooler.dense", "cls.seq_relationship", "classifier"
    rules: dict[str, LayoutRule] = {"embedding.positions.weight": Same("bert.embeddings.position_embeddings.weight")}
    match c.task:
        case "pretrain":
            rules |= linear_rules("head.next_sentence.pool.dense", pooler) | linear_rules(
                "head.next_sentence.classes", follows
            )
        case "next_sentence":
            rules |= linear_rules("head.pool.dense", pooler) | linear_rules("head.classes", follows)
        case "classify" | "regress":
            rules |= linear_rules("head.pool.dense", pooler) | linear_rules("head.classes", classifier)
        case "tag":
            rules |= linear_rules("head.classes", classifier)
        case "hidden" if c.pooler:
            rules |= linear_rules("head.pool.dense", pooler)
    whole = body(c, "bert") | Layout(rules)
    if c.task == "pretrain":
        return whole | blanks(c, "bert", "head.masked")
    return whole | blanks(c, "bert", "head") if c.task == "masked_language_model" else whole


def body(c: BERTConfig, name: str) -> Layout:
    """Tokens, segments and blocks; each family has its own positions."""
    embeddings = f"{name}.embeddings"
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same(f"{embeddings}.word_embeddings.weight"),
        "embedding.segments.weight": Same(f"{embeddings}.token_type_embeddings.weight"),
    }
    rules |= linear_rules("embedding.norm", f"{embeddings}.LayerNorm")
    norms = ("attention.output.LayerNorm", "output.LayerNorm")
    for layer in range(c.n_layers):
        ours, theirs = f"encoder.{layer}", f"{name}.encoder.layer.{layer}"
        rules |= encoder_block(ours, theirs, c.d_model, attention="self", norms=norms)
    return Layout(rules, ignored=IGNORED)


def blanks(
    c: BERTConfig,
    name: str,
    ours: str,
    theirs: str = "cls.predictions",
    *,
    dense: str = "transform.dense",
    norm: str = "transform.LayerNorm",
) -> Layout:
    """The head that fills blanks."""
    rules = linear_rules(f"{ours}.dense", f"{theirs}.{dense}") | linear_rules(f"{ours}.norm", f"{theirs}.{norm}")
    if not c.tied:  # theirs has two biases then, and adds only the decoder's
        return Layout(rules | linear_rules(f"{ours}.words", f"{theirs}.decoder"), ignored=(f"{theirs}.bias",))
    rules[f"{ours}.words.bias"] = Same(f"{theirs}.bias")
    tokens = f"{name}.embeddings.word_embeddings.weight"
    return Layout(rules, {f"{theirs}.decoder.weight": tokens, f"{theirs}.decoder.bias": f"{theirs}.bias"})
