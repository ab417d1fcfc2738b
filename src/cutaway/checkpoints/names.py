"""What the files of names share."""

from cutaway.checkpoints.layout import Joined, Rule, Same

ACTIVATION_NAMES = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu", "tanh": "tanh"}


def activation_out(name: str) -> str:
    """Their word for our activation."""
    return ACTIVATION_NAMES[name]


def linear(ours: str, theirs: str, *, bias: bool = True) -> dict[str, Rule]:
    """A matrix and its bias under another name."""
    rules: dict[str, Rule] = {f"{ours}.weight": Same(f"{theirs}.weight")}
    return rules | {f"{ours}.bias": Same(f"{theirs}.bias")} if bias else rules


def joined(ours: str, theirs: list[str], heights: list[int], *, bias: bool = True) -> dict[str, Rule]:
    """Several linear maps of theirs that are one of ours: query, key and value; gate and up."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return {f"{ours}.{kind}": Joined([Same(f"{name}.{kind}") for name in theirs], heights) for kind in kinds}
