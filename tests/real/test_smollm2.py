"""SmolLM2-135M-Instruct from its GGUF file (Q4_1), token for token what `transformers` writes.

The peer's weights come through transformers' own GGUF reader, which shares no line with ours.
"""

import re
from pathlib import Path

import pytest
import torch
from helpers.real_peers import N, assembled, our_tokens, their_tokens
from helpers.real_weights import real_weights
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from cutaway.checkpoints import export, import_model, load, load_tokenizer
from cutaway.decoding import greedy
from cutaway.model.model import Model
from cutaway.serving.chat_template import render, special_tokens
from cutaway.tokens import Tokenizer

QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = [
    QUESTION,
    "The Transformer is a neural network that",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at",
]


@pytest.fixture(scope="module")
def path() -> Path:
    return real_weights("smollm2")


@pytest.fixture(scope="module")
def ours(path: Path) -> Model:
    return load(path)


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def theirs(path: Path) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        names = LlamaForCausalLM(config)
    return assembled(config, load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=names)["tensors"])


def test_it_is_the_size_of_that_name(ours: Model):
    assert ours.n_parameters() == 134_515_008


def test_fifty_tokens_of_five_prompts(ours: Model, theirs: LlamaForCausalLM, tokenizer: Tokenizer):
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    expected = their_tokens(theirs, prompts)
    assert expected.shape == (5, N)
    assert torch.equal(our_tokens(ours, prompts), expected)


def test_the_capital_of_france(ours: Model, tokenizer: Tokenizer):
    written = greedy(ours, torch.tensor([tokenizer.encode(QUESTION)]), n=20)
    assert written[0, -1] == tokenizer.id("<|im_end|>")
    assert tokenizer.decode(written[0].tolist()) == "The capital of France is Paris."


def test_exported_it_is_what_transformers_reads(ours: Model, tokenizer: Tokenizer, tmp_path: Path):
    export(ours, tmp_path, tokenizer)
    theirs, their_tokenizer = LlamaForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert their_tokenizer(QUESTION).input_ids == tokenizer.encode(QUESTION)
    assert (their_tokenizer.eos_token, their_tokenizer.bos_token) == ("<|im_end|>", "<|im_start|>")
    ids = torch.tensor([tokenizer.encode(PROMPTS[1])])
    with torch.inference_mode():
        expected = theirs(ids).logits
        assert (ours(ids) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_the_example_of_the_guide_runs_and_prints_what_the_guide_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    (block,) = re.findall(r"^```python\n(import torch\n.*?)^```$", guide, re.M | re.S)
    import_model(path, tmp_path / "build/smollm2")
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    said = capsys.readouterr().out
    assert "The capital of France is Paris." in said
    assert "tensor(0.80" in said


def test_its_chat_template_writes_what_transformers_writes(
    path: Path, ours: Model, tokenizer: Tokenizer, tmp_path: Path
):
    """Also after import and export, each of which keeps it."""
    import_model(path, tmp_path / "own")
    own = load_tokenizer(tmp_path / "own")
    assert own.chat_template == tokenizer.chat_template
    export(ours, tmp_path / "out", own)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    question, answer = (
        {"role": "user", "content": "What is\nthe capital?"},
        {"role": "assistant", "content": "Paris {{ x }}"},
    )
    for messages in ([question], [{"role": "system", "content": "Be brief."}, question, answer, question]):
        for ask in (False, True):
            expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask)
            assert expected.endswith("<|im_start|>assistant\n") is ask
            found = render(own.chat_template, messages, add_generation_prompt=ask, tokens=special_tokens(own))
            assert found == expected
