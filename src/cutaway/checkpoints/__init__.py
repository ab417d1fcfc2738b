"""Models on disk: our own folders, and what others have published. No pickle is read, nothing in a folder is run.

model = load("folder")            # ours, or a Hugging Face folder; a .gguf file; a llama2.c .bin file
model = load("en-de")             # a bundled model by name: `cutaway models` lists them
tokenizer = load_tokenizer(…)     # of any of these
save(model, "folder", tokenizer)  # a folder of our own
export(model, "folder")           # in the Hugging Face layout; with to="ctranslate2" or "onnx" for those engines
import_model(source, "folder")    # any of them as a folder of our own
pack(source, "folder")            # the same in a quarter of the bytes
"""

from cutaway.checkpoints.convert import import_model, pack
from cutaway.checkpoints.loading import load, load_tokenizer, read_config, tokenizer_of
from cutaway.checkpoints.saving import export, export_to, save

__all__ = [
    "export",
    "export_to",
    "import_model",
    "load",
    "load_tokenizer",
    "pack",
    "read_config",
    "save",
    "tokenizer_of",
]
