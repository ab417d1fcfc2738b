"""A Llama in a GGUF file."""

from typing import Any

from helpers.parity.tiny_llama import tiny
from helpers.parity.twins import draw
from transformers import LlamaForCausalLM


def made(**changes: Any) -> LlamaForCausalLM:
    theirs = LlamaForCausalLM(tiny(**changes)).eval()
    draw(theirs)
    return theirs
