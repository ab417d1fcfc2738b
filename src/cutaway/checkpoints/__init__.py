"""Models on disk: our own folders, and what others have published. No pickle is read, nothing in a folder is run.

model = load("folder")            # ours, or a Hugging Face folder; a .gguf file; a llama2.c .bin file
model = load("en-de")             # a bundled model by name: `cutaway models` lists them
tokenizer = load_tokenizer(…)     # of any of these
save(model, "folder", tokenizer)  # a folder of our own
export(model, "folder")           # in the Hugging Face layout; with to="ctranslate2" or "onnx" for those engines
import_model(source, "folder")    # any of them as a folder of our own
pack(source, "folder")            # the same in a quarter of the bytes
"""

from typing import TYPE_CHECKING

from cutaway.lazy import lazy_names

if TYPE_CHECKING:
    from cutaway.checkpoints.convert import import_model as import_model
    from cutaway.checkpoints.convert import pack as pack
    from cutaway.checkpoints.loading import load as load
    from cutaway.checkpoints.loading import load_tokenizer as load_tokenizer
    from cutaway.checkpoints.loading import read_config as read_config
    from cutaway.checkpoints.loading import tokenizer_of as tokenizer_of
    from cutaway.checkpoints.saving import export as export
    from cutaway.checkpoints.saving import export_to as export_to
    from cutaway.checkpoints.saving import save as save

__getattr__, __dir__ = lazy_names(__name__)
