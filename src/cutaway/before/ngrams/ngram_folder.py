"""An n-gram model on disk together with how its text is cut, so that it reads, scores and writes text again.

write_counted(model, cut, Path("build/ngrams"))          # a folder, or of words model.arpa for other tools
model, cut = read_counted(Path("build/ngrams"))
"""

from pathlib import Path

from cutaway.before.ngrams.arpa import is_arpa, read_arpa, write_arpa
from cutaway.before.ngrams.count_arrays import FILES as NGRAM_FILES
from cutaway.before.ngrams.ngram import NGramModel
from cutaway.before.ngrams.ngram_of_classes import ClassNGramModel
from cutaway.before.units import Tokens, Units, Words, units_of
from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE, read_json, write_json
from cutaway.folders import TOKENIZER as TOKENIZER_KIND
from cutaway.folders import Kind, finish_replacing, replacing_folder

ARPA, CUT, TOKENIZER = ".arpa", "cut.json", "tokenizer.json"
KIND = Kind("model", CUT, (*NGRAM_FILES, *TOKENIZER_KIND.files, CUT))
LIMIT = 256 * MEGABYTE  # of the names of some millions of words

Counted = NGramModel | ClassNGramModel


def is_ngram_folder(path: Path) -> bool:
    """Whether a path is a model, and not a text."""
    finish_replacing(path)
    return is_arpa(path) or (path / CUT).is_file()


def write_ngram_folder(model: Counted, cut: Units, out: Path) -> None:
    """Writes a model folder; an earlier one is replaced, all its files at once."""
    if out.suffix == ARPA:
        if not isinstance(model, NGramModel) or cut.unit != Words.unit:
            odd = cut.unit if isinstance(model, NGramModel) else "classes"
            raise InputError(f"{out}: an ARPA file is one of words, with no place for {odd}; name a folder")
        write_arpa(model, out, cut.names)
        return
    with replacing_folder(out, KIND) as fresh:
        model.write(fresh)
        write_cut(model, cut, fresh)


def write_cut(model: Counted, cut: Units, out: Path) -> None:
    """Describes the tokens in a new folder, which has the tables of the model already."""
    if isinstance(cut, Tokens):
        cut.tokenizer.write(out)  # its name may mean another one elsewhere, or tomorrow
    write_json(out / CUT, {"classes": isinstance(model, ClassNGramModel), **cut.to_dict()})


def read_ngram_folder(path: Path) -> tuple[Counted, Units]:
    """Reads a model folder, or an ARPA file as a model of words."""
    finish_replacing(path)
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
        cut = units_of(unit, names, folder=path if (path / TOKENIZER).is_file() else None)
    except (CheckpointError, InputError) as error:
        raise CheckpointError(f"{path / CUT}: {error}") from None
    model = ClassNGramModel.open(path) if classes else NGramModel.open(path)
    if (model.vocab_size, model.end) != (len(cut.names), cut.end):
        raise CheckpointError(
            f"{path} has a model of {model.vocab_size:,} {cut.unit}, and {CUT} cuts into {len(cut.names):,}"
        )
    return model, cut
