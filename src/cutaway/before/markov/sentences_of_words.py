"""Text → sentences of words, as the lecture reads it: small letters, no punctuation, a sentence on each line."""

from collections.abc import Sequence

from cutaway.errors import InputError

SOS, EOS = "<sos>", "<eos>"
AROUND = ".,;:!?…\"'()[]«»‹›„“”‚‘’–—-"  # cut from both ends of a word; what stands inside stays: don't


def plain_words(text: str) -> list[str]:
    """Its words, whatever parts them."""
    return [word for part in text.lower().split() if (word := part.strip(AROUND))]


def sentences(text: str, name: str = "the text") -> list[list[str]]:
    """The words of each line that has any; `name` is what an error calls the text."""
    found = [words for line in text.splitlines() if (words := plain_words(line))]
    if not found:
        raise InputError(f"{name} {'has no words' if text.strip() else 'is empty'}: there is nothing to count")
    return found


def marked(lines: Sequence[Sequence[str]], order: int = 1) -> list[list[str]]:
    """Each sentence with <eos> behind it, and before it as many <sos> as a chain of that order looks at."""
    return [[SOS] * order + [*words, EOS] for words in lines]
