"""A model as CTranslate2 reads it: `Translator(folder)` for an encoder–decoder, `Generator(folder)` for a decoder.

Its specifications are filled part by part, in the same way for every family. What they cannot express is refused by
name. The folder holds model.bin, config.json, the vocabulary and our tokenizer.json.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.checkpoints.agreement import Agreement, compare_answers, longest_text, random_ids
from cutaway.errors import CheckpointError, MissingExtra
from cutaway.model.attention import Attention, CrossAttention, SelfAttention
from cutaway.model.blocks import Block, pre_norm
from cutaway.model.embeddings import Embedding
from cutaway.model.encoder import Stack
from cutaway.model.feed_forward import FeedForward, GatedFeedForward
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.norms import RMSNorm
from cutaway.model.positions import Learned, RelativeBias, Rotary, Sinusoidal
from cutaway.tokens import Tokenizer

# Quantization → the largest difference allowed, as a share of the largest log-probability. Rounded weights give other
# outputs: there the limit catches gross errors only, and the measured difference is what the rounding costs.
LIMITS = {"float32": 1e-4, "int8": 0.2, "bfloat16": 0.05, "float16": 0.01}
N_TEXTS, LONGEST = 8, 24
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "tanh": "Tanh"}


def ctranslate2() -> Any:
    """The package, or an error that names the extra."""
    try:
        import ctranslate2 as package
    except ImportError:
        raise MissingExtra("ctranslate2", "ctranslate2") from None
    return package


def export_ctranslate2(model: Model, folder: Path, tokenizer: Tokenizer | None, quantization: str) -> None:
    """Writes the folder; `quantization` is the type of its matrices: float32, int8, bfloat16 or float16."""
    if quantization not in LIMITS:
        raise CheckpointError(f"quantization={quantization!r} is not one of {', '.join(LIMITS)}")
    check_supported(model)
    spec = spec_of(model)
    tokens = vocabulary(model.config.vocab_size, tokenizer)  # type: ignore[attr-defined]
    if isinstance(model, EncoderDecoderModel):
        spec.register_source_vocabulary(source_vocabulary(model, tokenizer))
        spec.register_target_vocabulary(tokens)
    else:
        spec.register_vocabulary(tokens)
    _set_special_tokens(spec.config, model, tokens, None if tokenizer is None else tokenizer.unk_id)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        tokenizer.write(folder)
    spec.save(str(folder))  # its config.json comes last, as in our own folders


def check_supported(model: Model) -> None:
    """Refuses what CTranslate2 cannot express, or computes differently."""
    c: Any = model.config
    if any(buffer.dtype == torch.int8 for buffer in model.buffers()):
        raise CheckpointError("the model was rounded to int8: export it before rounding, with quantization='int8'")
    if c.task not in ("translate", "language_model"):
        raise CheckpointError(f"CTranslate2 runs models that generate text; this one is for task={c.task!r}: try onnx")
    for name in ("start_id", "end_ids") if c.task == "translate" else ("end_ids",):
        if getattr(c, name) in (None, ()):
            raise CheckpointError(f"CTranslate2 needs to know how a text begins and ends: set {name}")
    window: int | None = getattr(model, "window", None)
    if window is not None and window < c.max_len:
        raise CheckpointError(
            f"CTranslate2 truncates prompts to the sliding window={window}, and its outputs differ: try onnx"
        )


def vocabulary(size: int, tokenizer: Tokenizer | None) -> list[str]:
    """The tokens by id: the tokenizer's names; without one, their numbers."""
    if tokenizer is None:
        return [str(id) for id in range(size)]
    names = {id: token for token, id in tokenizer.backend.get_vocab(with_added_tokens=True).items()}
    tokens = [names.get(id, f"<unused {id}>") for id in range(size)]  # the vocabulary may be padded to a round number
    if len(set(tokens)) < size:
        raise CheckpointError("two tokens of the vocabulary have one name, and CTranslate2 identifies tokens by name")
    return tokens


def source_vocabulary(model: EncoderDecoderModel, tokenizer: Tokenizer | None) -> list[str]:
    """A separate source vocabulary is named by number: the tokenizer's names are the target's."""
    c: Any = model.config
    own = getattr(c, "source_vocab_size", None)
    return vocabulary(c.vocab_size, tokenizer) if own is None else vocabulary(own, None)


def _set_special_tokens(config: Any, model: Model, tokens: Sequence[str], unknown: int | None) -> None:
    """Tells CTranslate2 the special tokens.

    All of them must be tokens of the model: any other would get an id behind the last row of the matrices, where
    CTranslate2 reads and writes memory of others. So without a start token, a text begins with the end, as in GPT-2;
    without an unknown token, padding or the end takes its place.
    """
    c: Any = model.config
    end = c.end_ids[0]
    start, padding = (end if id is None else id for id in (c.start_id, c.pad_id))
    config.eos_token, config.bos_token = tokens[end], tokens[start]
    config.unk_token = tokens[padding if unknown is None else unknown]
    config.layer_norm_epsilon = c.norm_eps
    if isinstance(model, EncoderDecoderModel):
        config.decoder_start_token = config.bos_token


def spec_of(model: Any) -> Any:
    """CTranslate2's description of the model, with a copy of its weights."""
    specs, rotary = ctranslate2().specs, getattr(model, "rotary", None)
    if hasattr(model, "encoder"):
        encoder = specs.transformer_spec.TransformerEncoderSpec(**_numbers(model, model.encoder, rotary))
        target_rotary = getattr(model, "target_rotary", None)
        decoder = specs.TransformerDecoderSpec(**_numbers(model, model.decoder, target_rotary))
        _fill(encoder, model.encoder, model.source_embedding, model.max_len)
        _fill(decoder, model.decoder, model.target_embedding, model.max_len)
        if hasattr(model, "target_bias"):
            _fill_bias(encoder, model.source_bias)
            _fill_bias(decoder, model.target_bias)
        spec = specs.TransformerSpec(encoder, decoder)
    else:
        decoder = specs.TransformerDecoderSpec(**_numbers(model, model.decoder, rotary), with_encoder_attention=False)
        _fill(decoder, model.decoder, model.embedding, model.max_len)
        if rotary is not None and rotary.scaling is not None:
            _fill_scaling(decoder, rotary)
        spec = specs.TransformerDecoderModelSpec(decoder)
    _fill_matrix(decoder.projection, model.head.matrix, model.head.bias)
    if model.head.scale != 1.0:
        decoder.scale_outputs = model.head.scale
    return spec


def _numbers(model: Any, stack: Stack, rotary: Rotary | None) -> dict[str, Any]:
    """The hyperparameters of a stack, under their names."""
    specs, block = ctranslate2().specs, stack[0]
    attention = block.attention
    numbers: dict[str, Any] = {
        "num_layers": len(stack),
        "num_heads": attention.n_heads,
        "head_dim": attention.d_head,
        "num_heads_kv": None if attention.n_kv_heads == attention.n_heads else attention.n_kv_heads,
        "pre_norm": block.wiring is pre_norm,
        "activation": specs.Activation[ACTIVATIONS[model.config.activation]],
        "ffn_glu": isinstance(block.feed_forward, GatedFeedForward),
        "rms_norm": isinstance(block.attention_norm, RMSNorm),
        "relative_attention_bias": hasattr(model, "target_bias"),
    }
    if rotary is not None:
        numbers |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": rotary.base}
        if rotary.scaling is not None:  # `Su` takes a factor per pair, whatever its kind; equal lengths add no other
            lengths = dict.fromkeys(("original_max_position_embeddings", "max_position_embeddings"), model.max_len)
            numbers |= {"rotary_scaling_type": specs.attention_spec.RotaryScalingType.Su, **lengths}
    return numbers


def _fill(spec: Any, stack: Stack, embedding: Embedding, max_len: int | None) -> None:
    """The weights of a stack and its embedding."""
    tokens = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    tokens.weight = _copy(embedding.tokens.matrix)
    spec.scale_embeddings = embedding.tokens.scale != 1.0  # by √d_model, as ours
    if hasattr(spec, "position_encodings"):
        spec.position_encodings.encodings = _positions(embedding, max_len)
    if stack.final_norm is not None:
        _fill_norm(spec.layer_norm, stack.final_norm)
    for layer, block in zip(spec.layer, stack, strict=True):
        _fill_block(layer, block)


def _positions(embedding: Embedding, max_len: int | None) -> Tensor:
    """What is added to the embeddings; zeros where positions are rotary, relative or absent."""
    match embedding.positions:
        case Learned() as learned:
            return _copy(learned.weight)
        case Sinusoidal() as fixed:
            return fixed.rows().float()
    assert embedding.positions is None
    assert max_len is not None
    return torch.zeros(max_len, embedding.tokens.matrix.shape[1])


def _fill_scaling(spec: Any, rotary: Rotary) -> None:
    assert rotary.scaling is not None
    frequencies = rotary.base ** (-torch.arange(0, rotary.d_head, 2, dtype=torch.float64) / rotary.d_head)
    factors = (frequencies / rotary.scaling(frequencies)).float()
    for layer in spec.layer:
        layer.self_attention.rotary_scaling_long_factor = factors
        layer.self_attention.rotary_scaling_short_factor = factors


def _fill_bias(spec: Any, bias: RelativeBias) -> None:
    for layer in spec.layer:
        layer.self_attention.relative_attention_bias = _copy(bias.weight)
        layer.self_attention.relative_attention_max_distance = torch.tensor(bias.max_distance, dtype=torch.int32)


def _fill_block(spec: Any, block: Block) -> None:
    _fill_attention(spec.self_attention, block.attention, block.attention_norm)
    if block.cross is not None:
        _fill_attention(spec.attention, block.cross, block.cross_norm)
    _fill_norm(spec.ffn.layer_norm, block.feed_forward_norm)
    _fill_linear(spec.ffn.linear_1, block.feed_forward.down)
    if isinstance(block.feed_forward, FeedForward):
        _fill_linear(spec.ffn.linear_0, block.feed_forward.up)
    else:
        gate_up = block.feed_forward.gate_up
        weights, biases = gate_up.weight.chunk(2), (None, None) if gate_up.bias is None else gate_up.bias.chunk(2)
        _fill_matrix(spec.ffn.linear_0, weights[0], biases[0])
        _fill_matrix(spec.ffn.linear_0_noact, weights[1], biases[1])


def _fill_attention(spec: Any, attention: Attention, norm: nn.Module) -> None:
    _fill_norm(spec.layer_norm, norm)
    if isinstance(attention, SelfAttention):
        _fill_linear(spec.linear[0], attention.query_key_value)
    elif isinstance(attention, CrossAttention):
        _fill_linear(spec.linear[0], attention.query)
        _fill_linear(spec.linear[1], attention.key_value)
    _fill_linear(spec.linear[-1], attention.output)
    if attention.scale is not None:
        spec.queries_scale = attention.scale


def _fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _copy(norm.weight)
    if not isinstance(norm, RMSNorm):
        spec.beta = _copy(norm.bias)


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    _fill_matrix(spec, linear.weight, linear.bias)


def _fill_matrix(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _copy(weight)
    if bias is not None:
        spec.bias = _copy(bias)


def _copy(weight: Tensor) -> Tensor:
    """A copy: CTranslate2 quantizes in place and would change the model's own weights."""
    return weight.detach().to("cpu", torch.float32, copy=True)


@torch.no_grad()
def measure_ctranslate2(model: Model, folder: Path, tokenizer: Tokenizer | None, quantization: str) -> Agreement:
    """Compares the log-probabilities of random texts under teacher forcing."""
    c: Any = model.config
    ours: Any = model if model.dtype == torch.float32 else copy.deepcopy(model).float()
    names, pairs = vocabulary(c.vocab_size, tokenizer), []
    translates = isinstance(model, EncoderDecoderModel)
    engine = (ctranslate2().Translator if translates else ctranslate2().Generator)(
        str(folder),
        inter_threads=1,
        intra_threads=torch.get_num_threads(),
        compute_type="int8" if quantization == "int8" else "float32",
    )
    for n in range(N_TEXTS):
        length = 2 + n * (longest_text(model, LONGEST) - 2) // N_TEXTS
        text = random_ids(1, length, c.vocab_size, seed=n)
        target = [names[id] for id in text[0].tolist()]
        if translates:
            own_names = source_vocabulary(model, tokenizer)  # type: ignore[arg-type]
            source = random_ids(1, length, len(own_names), seed=100 + n)
            (result,) = engine.score_batch([[own_names[id] for id in source[0].tolist()]], [target])
            start, end = torch.tensor([[c.start_id]]), torch.tensor([[c.end_ids[0]]])
            logits = ours(source.to(ours.device), torch.cat([start, text], dim=1).to(ours.device))
            text = torch.cat([text, end], dim=1)
        else:
            (result,) = engine.score_batch([target])
            logits, text = ours(text.to(ours.device))[:, :-1], text[:, 1:]
        pairs.append((_log_probabilities(logits, text), torch.tensor(result.log_probs)))
    ends, notes = [names[id] for id in c.end_ids], list[str]()
    if len(ends) > 1:
        notes = [f"it stops at one token, {ends[0]!r}: call generate_batch or translate_batch with end_token={ends}"]
    return compare_answers("CTranslate2", quantization, "log-probabilities", pairs, LIMITS[quantization], notes)


def _log_probabilities(logits: Tensor, text: Tensor) -> Tensor:
    return logits.double().cpu().log_softmax(dim=-1).gather(2, text[:, :, None])[0, :, 0]
