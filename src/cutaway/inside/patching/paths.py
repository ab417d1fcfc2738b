"""Path patching: how much of a sender's effect takes a given path?

Patching a head shows its effect through everything that comes after it. Path patching (Wang et al. 2022, the
indirect-object paper, section 3.1) lets the change travel along chosen paths only:

1. a run of `inputs` in which every attention head (of all layers, and of cross-attention) is held at its value, while
   the senders have their values from the run of `source`. Feed-forwards are recomputed, as in that paper, or held too
   (`feed_forward="held"`). So the change reaches only what reads the stream directly;
2. the logits of that run are the direct path (`receivers="logits"`); otherwise the values that arrive at the receivers
   (queries, keys or values of heads, or any other tap) are kept, and
3. a run of `inputs` with these values at the receivers, and everything else computed as usual.

Held norms (`norms="held"`) use the scales of the run of `inputs`: then the direct path of a head is exactly its
difference through the output matrix, the final norm at that scale and the unembedding.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.patching.activations import record_activations
from cutaway.inside.patching.interventions import Intervention, Patch, intervene
from cutaway.inside.patching.place import Place, as_places
from cutaway.model.model import Model
from cutaway.model.tap import Seen, tap_names

Places = Iterable[Place | str] | Place | str
HEADS = ("attention.heads", "cross.heads")


@checked
@torch.no_grad()
def patch_paths(
    model: Model,
    inputs: Tensor | Sequence[Tensor],
    source: Tensor | Sequence[Tensor],
    senders: Places,
    receivers: Places = "logits",
    *,
    feed_forward: str = "recomputed",
    norms: str = "recomputed",
    **more: Any,
) -> Tensor:
    """The logits of `inputs` when the senders have their values from the run of `source` for the receivers only.

    >>> patch_paths(model, ids, other_ids, "decoder.0.attention.1").shape

    patch_paths(model, ids, other, "decoder.9.attention.9")                                  # straight to the logits
    patch_paths(model, ids, other, "decoder.7.attention.3", Place("decoder.9.attention.query", heads=9))
    """
    for word, how in (("feed_forward", feed_forward), ("norms", norms)):
        if how not in ("recomputed", "held"):
            raise InputError(f"{word}={how!r} is neither recomputed nor held")
    own, other = ((given,) if isinstance(given, Tensor) else tuple(given) for given in (inputs, source))
    if not own or len(own) != len(other):
        raise InputError(f"{len(own)} inputs and {len(other)} of the source: both need all inputs of the model")
    names = tap_names(model)
    senders = as_places(senders)
    held = [tap for tap in names if tap.endswith(HEADS)]
    if feed_forward == "held":
        held += [tap for tap in names if tap.endswith("feed_forward.output")]
    scales = [tap for tap in names if tap.endswith("norm.scale")] if norms == "held" else []
    kept = record_activations(model, *own, places=held + scales, **more)
    changed = record_activations(model, *other, places=senders, **more)
    first = _hold(kept, held + scales) + [Patch(place, changed) for place in senders]
    if isinstance(receivers, str) and receivers == "logits":
        with intervene(model, first):
            return model(*own, **more)
    places = as_places(receivers)
    _check_readable(places, names, held)
    with intervene(model, first):
        arrived = record_activations(model, *own, places=places, **more)
    with intervene(model, [*_hold(kept, scales), *(Patch(place, arrived) for place in places)]):
        return model(*own, **more)


def _hold(kept: Seen, taps: Iterable[str]) -> list[Intervention]:
    return [Patch(Place(tap), kept) for tap in taps]


def _check_readable(receivers: Iterable[Place], names: dict[str, str], held: Sequence[str]) -> None:
    for place in receivers:
        for tap in place.taps(names):
            if tap in held:
                raise InputError(f"the receiver {tap!r} is held while the change travels: choose a query, key or value")
