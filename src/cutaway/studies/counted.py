"""An n-gram model on disk together with how its text is cut, so that it reads, scores and writes text again.

write_counted(model, cut, Path("build/ngrams"))          # a folder, or of words model.arpa for other tools
model, cut = read_counted(Path("build/ngrams"))
"""

import re
from pathlib import Path

from cutaway.baselines.arpa import is_arpa, read_arpa, write_arpa
from cutaway.baselines.class_ngram import ClassNGramModel
from cutaway.baselines.ngram import NGramModel
from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE, read_json, write_json
from cutaway.studies.cutting import Cut, Tokens, Words, cut_of

ARPA, CUT, TOKENIZER = ".arpa", "cut.json", "tokenizer.json"
OURS = re.compile(
    r"((keys|log_p|log_weight|counts|suffix)\d|class|times)\.npy"
    r"|(ngrams|counts|classes|cut|tokenizer|tokenizer_config)\.json"
)
LIMIT = 256 * MEGABYTE  # of the names of some millions of words

Counted = NGramModel | ClassNGramModel


def is_counted(path: Path) -> bool:
    """Whether a path holds a model and no text."""
    return is_arpa(path) or (path / CUT).is_file()


def holds_others(folder: Path) -> bool:
    """Whether a folder has files that are none of a model's, whole or not."""
    return not all(OURS.fullmatch(path.name) for path in folder.iterdir())


def write_counted(model: Counted, cut: Cut, out: Path, *, there: bool = False) -> None:
    """`there`: the tables lie in that folder already, for the model was trained in it."""
    if out.suffix == ARPA:
        if not isinstance(model, NGramModel) or cut.unit != Words.unit:
            odd = cut.unit if isinstance(model, NGramModel) else "classes"
            raise InputError(f"{out}: an ARPA file is one of words, with no place for {odd}; name a folder")
        write_arpa(model, out, cut.names)
        return
    (out / CUT).unlink(missing_ok=True)  # what stood here is no longer whole
    if not there:
        model.save(out)
    if isinstance(cut, Tokens):
        cut.tokenizer.save(out)  # its name may mean another one elsewhere, or tomorrow
    write_json(out / CUT, {"classes": isinstance(model, ClassNGramModel), **cut.saved()})


def read_counted(path: Path) -> tuple[Counted, Cut]:
    """ARPA files, packed or not, are read as models of words."""
    model: Counted
    if is_arpa(path):
        model, names = read_arpa(path)
        if model.end is None:
            raise CheckpointError(f"{path} has no </s>: a model that does not know where texts end is not read")
        return model, Words(names)
    about = read_json(path / CUT, LIMIT)
    try:
        classes, unit, names = bool(about["classes"]), str(about["unit"]), tuple(map(str, about.get("names", ())))
    except (KeyError, TypeError):
        raise CheckpointError(f"{path / CUT} should give classes, unit and names") from None
    try:
        cut = cut_of(unit, names, folder=path if (path / TOKENIZER).is_file() else None)
    except (CheckpointError, InputError) as error:
        raise CheckpointError(f"{path / CUT}: {error}") from None
    model = ClassNGramModel.open(path) if classes else NGramModel.open(path)
    if (model.vocab_size, model.end) != (len(cut.names), cut.end):
        raise CheckpointError(
            f"{path} has a model of {model.vocab_size:,} {cut.unit}, and {CUT} cuts into {len(cut.names):,}"
        )
    return model, cut
