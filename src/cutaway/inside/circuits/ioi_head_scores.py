"""Which heads do what in the circuit of indirect-object identification: scores for each role, and a head's role.

The prompts, and the roles in words, are in `ioi`.
"""

from typing import Literal, cast

import torch
from torch import nn

from cutaway.arguments import checked
from cutaway.inside.attribution.rollout import attention_parts, projected_values
from cutaway.inside.circuits.head_scores import HeadScores, attention_between, attention_patterns
from cutaway.inside.circuits.ioi import IoiPrompts
from cutaway.model.model import DecoderModel, Model
from cutaway.model.tap import uncompiled, watch

ROLES = {
    "s_inhibition": ("end", "s2"),
    "duplicate_token": ("s2", "s1"),
    "induction": ("s2", "s1+1"),
    "name_mover": ("end", "io"),
    "previous_token": ("s1+1", "s1"),
}


@checked
def ioi_head_scores(model: nn.Module, asked: IoiPrompts, *, copying_rows: int = 16) -> dict[str, HeadScores]:
    """For each role, the score of every head: how much it looks from and to the positions of the role, 0 … 1.

    >>> ioi_head_scores(namer, ioi_prompts(name_words, 2))["name_mover"].best(1)

    The score of a name mover is multiplied by its `copying` score. A head that looks at S2 may inform heads above, or
    write against John itself: `s_suppression` is how much it looks there times how often it does that. `end_to_s1` is
    for comparison: a head that looks at both names is not a name mover.
    """
    asked = asked.to(cast(Model, uncompiled(model)).device)
    found = attention_patterns(model, asked.ids, parts="decoder.*.attention", real=asked.real)
    scores = {role: attention_between(role, found, asked.at[a], asked.at[b]) for role, (a, b) in ROLES.items()}
    scores["end_to_io"] = scores["name_mover"]
    scores["end_to_s1"] = attention_between("end_to_s1", found, asked.at["end"], asked.at["s1"])
    copied = scores["copying"] = copying_scores(model, asked, rows=copying_rows)
    against = copying_scores(model, asked, rows=copying_rows, name="s2", against=True)
    scores["name_mover"] = _product("name_mover", scores["end_to_io"], copied)
    return scores | {"s_suppression": _product("s_suppression", scores["s_inhibition"], against)}


@checked
def ioi_role(node: str, scores: dict[str, HeadScores], least: float = 0.3) -> str | None:
    """The role in which a head scores highest in `ioi_head_scores`, if the score is at least `least`.

    >>> ioi_role("decoder.0.attention.1", ioi_head_scores(namer, ioi_prompts(name_words, 2)))
    """
    role = max(ROLES, key=lambda name: scores[name].scores.get(node, 0.0))
    if role == "s_inhibition" and scores["s_suppression"].scores.get(node, 0.0) >= least:
        role = "s_suppression"  # it writes against the name itself
    return role if scores[role].scores.get(node, 0.0) >= least else None


def _product(what: str, first: HeadScores, second: HeadScores) -> HeadScores:
    return HeadScores(what, {head: score * second.scores[head] for head, score in first.scores.items()})


@torch.no_grad()
def copying_scores(
    model: nn.Module,
    asked: IoiPrompts,
    *,
    rows: int = 16,
    best: int = 5,
    name: Literal["io", "s1", "s2"] = "io",
    against: bool = False,
) -> HeadScores:
    """The share of prompts in which a head would write the name, if it looked at the indirect object alone.

    It would write its value there through its part of W_O, the final norm and the unembedding; the name has to be among
    the `best` tokens, or with `against` among the last. (Wang et al. use the stream after the first feed-forward.)
    """
    body = cast(DecoderModel, uncompiled(model))
    asked = asked.to(body.device)
    real = None if asked.real is None else asked.real[:rows]
    token, at = (asked.io if name == "io" else asked.s)[:rows], asked.at[name][:rows]
    with watch(body, "decoder.*.attention.value") as seen:
        body.hidden(asked.ids[:rows], real=real)
    found = {}
    for part, attention in attention_parts(body).items():
        value = seen[f"{part}.value"][torch.arange(len(at), device=at.device), :, at][:, :, None]
        handed = projected_values(attention, value)[:, :, 0]
        norm = body.decoder.final_norm
        logits = body.head(handed if norm is None else norm(handed))
        logits = -logits if against else logits
        own = logits.gather(-1, token[:, None, None].expand(*logits.shape[:2], 1))
        found[part] = ((logits > own).sum(dim=-1) < best).double().mean(dim=0)
    return HeadScores.of("copying", found)
