"""What several families share: decoders by themselves, the head for a task, the first weights."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.model.cache import Cache
from cutaway.model.config import Config
from cutaway.model.embeddings import Embedding, TokenEmbedding, check_ids
from cutaway.model.heads import HiddenStates, LanguageModelHead, LastTokenHead
from cutaway.model.model import DecoderModel
from cutaway.model.positions import Rotation
from cutaway.model.tap import Part


class DecoderOnly(DecoderModel):
    """Embedding and decoder, without an encoder: `logits = model(ids)`."""

    embedding: Embedding
    vocab_size: int

    def hidden(  # type: ignore[override]
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        real: Bool[Tensor, "batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        check_ids(ids, self.vocab_size, real=real)
        step = self.step(ids, real, documents, cache)
        x = self.embedding(ids, step.positions)
        return self.decoder(x, step, rotation=self.rotation(step.positions))

    def rotation(self, positions: Int[Tensor, "#batch seq"]) -> Rotation | None:
        """None unless a family has rotary positions."""
        return None


def either(special: float | None, usual: float) -> float:
    """The special value if there is one, otherwise the usual value."""
    return usual if special is None else special


def decoder_head(config: Config, d_model: int, vocab_size: int, tied_to: TokenEmbedding | None) -> Part:
    """The head of a decoder by itself: it scores the next token, or reads classes off the last token."""
    match config.task:
        case "language_model":
            return LanguageModelHead(d_model, vocab_size, tied_to=tied_to)
        case "classify":
            return LastTokenHead(d_model, config.n_classes or 0)
        case "regress":
            return LastTokenHead(d_model, 1)
        case "hidden":
            return HiddenStates()
    raise ConfigError(f"no head for task={config.task!r}")


@torch.no_grad()
def draw_normal(model: nn.Module, std: float) -> None:
    """Matrices normal with standard deviation `std`, biases 0, norms 1, as in GPT-2 and BERT."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 1 and "norm" in name:
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, std)
