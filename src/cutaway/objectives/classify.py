"""Labels of a text, of a pair of texts or of each token: classes or numbers.

Fine-tuning a decoder works better with an auxiliary language-modelling loss (Radford et al. 2018, section 3.2):
L = L(labels) + λ · L(next token). For an encoder the auxiliary loss is BERT's masked language modelling, in a second
pass, because the classifier has to read the unmasked tokens.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.model.model import DecoderModel, Model
from cutaway.model.upcast import upcast
from cutaway.objectives.loss import IGNORED, class_loss, summed_cross_entropy
from cutaway.objectives.masked import Hiding, join_parts
from cutaway.objectives.objective import Arrays, Objective, Tensors

NO_LABEL = {"classify": IGNORED, "tag": IGNORED, "regress": np.nan}


class Labels(Objective):
    """From `text`, or `first` and `second`, with their lengths, and `label`; `task` is classify, regress or tag.

    The two texts of a pair come in rows of equal width, and together are no longer than that.
    """

    def __init__(
        self,
        task: str,
        *,
        cls_id: int | None = None,
        sep_id: int | None = None,
        segments: bool = False,
        smoothing: float = 0.0,
        auxiliary: float = 0.0,
        hiding: Hiding | None = None,
    ) -> None:
        if task not in NO_LABEL:
            raise ConfigError(f"task={task!r} is not one of {', '.join(NO_LABEL)}")
        self.label_task, self.smoothing, self.auxiliary, self.hiding = task, smoothing, auxiliary, hiding
        self.cls_id, self.sep_id, self.segments = cls_id, sep_id, segments
        self.targets: Mapping[str, str] = {"label": "targets"} | ({"auxiliary": "words"} if auxiliary else {})
        self.weights: Mapping[str, float] = {"auxiliary": auxiliary}

    @property
    def extra(self) -> int:
        """How many special tokens are added to each text."""
        return int(self.cls_id is not None) + int(self.sep_id is not None)

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        names = ["text"] if "text" in batch else ["first", "second"]
        parts = [(batch[name], batch[f"{name}_length"]) for name in names]
        whole = join_parts(parts, self.cls_id, self.sep_id, batch["example"] >= 0)
        width = whole[0].shape[1] - sum(rows.shape[1] for rows, _ in parts[1:])
        ids, segments, real = (rows[:, :width] for rows in whole)
        prepared: Arrays = {"ids": ids, "real": real, "targets": self._targets(batch, ids.shape)}
        if self.segments:
            prepared["segments"] = segments
        if self.auxiliary:
            prepared.update(self._words(ids, prepared["real"], random))
        return prepared

    def _targets(self, batch: Arrays, shape: tuple[int, ...]) -> Any:
        label, there = batch["label"], batch["example"] >= 0
        if self.label_task != "tag":
            label = label.astype(np.float32 if self.label_task == "regress" else np.int64)
            return np.where(there, label, np.array(NO_LABEL[self.label_task], dtype=label.dtype))
        targets = np.full(shape, IGNORED, dtype=np.int64)
        front = int(self.cls_id is not None)
        inside = np.arange(label.shape[1]) < batch["text_length"][:, None]
        targets[:, front : front + label.shape[1]] = np.where(inside, label, IGNORED)
        return targets

    def _words(self, ids: Any, real: Any, random: np.random.Generator) -> Arrays:
        """The targets of the auxiliary loss: the next tokens, or the masked ones."""
        if self.hiding is None:
            following = np.roll(ids, -1, axis=1)
            counted = np.roll(real, -1, axis=1) & real
            counted[:, -1] = False
            return {"words": np.where(counted, following, IGNORED)}
        hidden, chosen = self.hiding(ids, real, random)
        return {"hidden_ids": hidden, "words": np.where(chosen, ids, IGNORED)}

    def losses(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        more = {"segments": batch["segments"]} if "segments" in batch else {}
        hidden = model.hidden(batch["ids"], real=batch["real"], **more)
        scores = model.head(hidden, batch["real"])
        losses = {"label": label_loss(self.label_task, scores, batch["targets"], smoothing=self.smoothing)}
        if self.auxiliary:
            if "hidden_ids" in batch:
                hidden = model.hidden(batch["hidden_ids"], real=batch["real"], **more)
            elif not isinstance(model, DecoderModel):
                raise ConfigError("an encoder's auxiliary loss needs masked tokens: give `hiding`")
            matrix: Tensor = model.embedding.tokens.matrix  # type: ignore[union-attr, assignment]
            losses["auxiliary"] = summed_cross_entropy(hidden, matrix, batch["words"])
        return losses

    def answers(self, model: Model, batch: Tensors) -> Tensor:
        """The logits of the classes, or the number."""
        more = {"segments": batch["segments"]} if "segments" in batch else {}
        return model(batch["ids"], real=batch["real"], **more)


def label_loss(task: str, scores: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy for classes; the squared error for numbers."""
    if task != "regress":
        return class_loss(scores, targets, smoothing=smoothing)
    there, scores = ~targets.isnan(), upcast(scores.squeeze(-1))
    error = F.mse_loss(scores, targets.where(there, 0.0).to(scores.dtype), reduction="none")
    return error.where(there, 0.0).sum()
