"""Names of tensors that several Hugging Face layouts have in common."""

from collections.abc import Collection, Mapping, Sequence

from cutaway.checkpoints.layout import Joined, Layout, LayoutRule, Same, Transposed

# Which part of ours is which of theirs, without `.weight` and `.bias`. Several names are joined into one matrix.
Names = Mapping[str, str]


def block_rules(
    ours: str,
    theirs: str,
    names: Names,
    heights: Mapping[str, Sequence[int]],
    *,
    no_bias: Collection[str] = (),
) -> dict[str, LayoutRule]:
    """The weights and biases of one block; `heights` are the rows of each part of a joined matrix."""
    rules: dict[str, LayoutRule] = {}
    for own, other in names.items():
        parts = [f"{theirs}.{part}" for part in other.split()]
        for kind in ("weight",) if own in no_bias else ("weight", "bias"):
            same = [Same(f"{part}.{kind}") for part in parts]
            rules[f"{ours}.{own}.{kind}"] = same[0] if len(same) == 1 else Joined(same, heights[own])
    return rules


def linear_rules(ours: str, theirs: str) -> dict[str, LayoutRule]:
    """A matrix and its bias under another name."""
    return {f"{ours}.{kind}": Same(f"{theirs}.{kind}") for kind in ("weight", "bias")}


def gpt_block_rules(ours: str, theirs: str) -> dict[str, LayoutRule]:
    """A block of GPT and GPT-2, whose matrices map rows to columns."""
    rules = linear_rules(f"{ours}.attention_norm", f"{theirs}.ln_1")
    rules |= linear_rules(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
    for own, name in (
        ("attention.query_key_value", "attn.c_attn"),
        ("attention.output", "attn.c_proj"),
        ("feed_forward.up", "mlp.c_fc"),
        ("feed_forward.down", "mlp.c_proj"),
    ):
        rules[f"{ours}.{own}.weight"] = Transposed(f"{theirs}.{name}.weight")
        rules[f"{ours}.{own}.bias"] = Same(f"{theirs}.{name}.bias")
    return rules


def decoder_head(task: str, *, tied: bool, tokens: str) -> Layout:
    """The head on a decoder: classes, or words, whose matrix may be the embedding's `tokens`."""
    match task:
        case "classify" | "regress":
            return Layout({"head.classes.weight": Same("score.weight")})
        case "language_model" if tied:
            return Layout({}, {"lm_head.weight": tokens})
        case "language_model":
            return Layout({"head.weight": Same("lm_head.weight")})
    return Layout({})
