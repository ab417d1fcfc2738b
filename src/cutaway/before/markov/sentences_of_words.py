"""Text → sentences of words, as in the lecture: lower case, no punctuation, one sentence per line."""

from collections.abc import Sequence

from cutaway.errors import InputError

SOS, EOS = "<sos>", "<eos>"
AROUND = ".,;:!?…\"'()[]«»‹›„“”‚‘’–—-"  # removed from both ends of a word, but not inside it: don't


def plain_words(text: str) -> list[str]:
    """The words of a text, whatever separates them."""
    return [word for part in text.lower().split() if (word := part.strip(AROUND))]


def sentences(text: str, name: str = "the text") -> list[list[str]]:
    """The words of each line that has any; `name` is the text's name in errors."""
    found = [words for line in text.splitlines() if (words := plain_words(line))]
    if not found:
        raise InputError(f"{name} {'has no words' if text.strip() else 'is empty'}: there is nothing to count")
    return found


def marked(lines: Sequence[Sequence[str]], order: int = 1) -> list[list[str]]:
    """Each sentence with <eos> after it, and before it as many <sos> as a chain of this order needs."""
    return [[SOS] * order + [*words, EOS] for words in lines]
