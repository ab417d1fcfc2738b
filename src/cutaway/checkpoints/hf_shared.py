"""What the files of names share."""

from collections.abc import Sequence

from cutaway.checkpoints.layout import Joined, Layout, LayoutRule, Same, Transposed

ACTIVATION_NAMES = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu", "tanh": "tanh"}


def activation_out(name: str) -> str:
    """Their word for our activation."""
    return ACTIVATION_NAMES[name]


def other_than(usual: float, value: float) -> float | None:
    """A number of its own, None where it is the usual one."""
    return None if value == usual else value


def linear_rules(ours: str, theirs: str, *, bias: bool = True) -> dict[str, LayoutRule]:
    """A matrix and its bias under another name."""
    rules: dict[str, LayoutRule] = {f"{ours}.weight": Same(f"{theirs}.weight")}
    return rules | {f"{ours}.bias": Same(f"{theirs}.bias")} if bias else rules


def joined_rule(ours: str, theirs: list[str], heights: list[int], *, bias: bool = True) -> dict[str, LayoutRule]:
    """Several linear maps of theirs that are one of ours: query, key and value; gate and up."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return {f"{ours}.{kind}": Joined([Same(f"{name}.{kind}") for name in theirs], heights) for kind in kinds}


def encoder_block(
    ours: str, theirs: str, d_model: int, *, attention: str, norms: Sequence[str], bias: bool = True
) -> dict[str, LayoutRule]:
    """A block as BERT's file names it, and as those do that came after: only the attention and the norms vary."""
    asked = [f"{theirs}.attention.{attention}.{part}" for part in ("query", "key", "value")]
    attention_norm, feed_forward_norm = norms
    return (
        joined_rule(f"{ours}.attention.query_key_value", asked, [d_model] * 3, bias=bias)
        | linear_rules(f"{ours}.attention.output", f"{theirs}.attention.output.dense")
        | linear_rules(f"{ours}.attention_norm", f"{theirs}.{attention_norm}")
        | linear_rules(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        | linear_rules(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        | linear_rules(f"{ours}.feed_forward_norm", f"{theirs}.{feed_forward_norm}")
    )


def decoder_block(ours: str, theirs: str) -> dict[str, LayoutRule]:
    """A block of GPT and GPT-2, whose matrices map rows to columns."""
    rules = linear_rules(f"{ours}.attention_norm", f"{theirs}.ln_1") | linear_rules(
        f"{ours}.feed_forward_norm", f"{theirs}.ln_2"
    )
    for own, name in (
        ("attention.query_key_value", "attn.c_attn"),
        ("attention.output", "attn.c_proj"),
        ("feed_forward.up", "mlp.c_fc"),
        ("feed_forward.down", "mlp.c_proj"),
    ):
        rules[f"{ours}.{own}.weight"] = Transposed(f"{theirs}.{name}.weight")
        rules[f"{ours}.{own}.bias"] = Same(f"{theirs}.{name}.bias")
    return rules


def head_rules(task: str, *, tied: bool, tokens: str) -> Layout:
    """The head on a decoder: classes, or words, whose matrix may be the embedding's `tokens`."""
    match task:
        case "classify" | "regress":
            return Layout({"head.classes.weight": Same("score.weight")})
        case "language_model" if tied:
            return Layout({}, {"lm_head.weight": tokens})
        case "language_model":
            return Layout({"head.weight": Same("lm_head.weight")})
    return Layout({})
