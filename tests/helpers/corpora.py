"""Hypotheses and references drawn at random."""

import random

WORDS = "Die Katze saß auf der Matte , und der Hund ( ein Dackel ) schlief . 3,5 % z. B. I'm".split()


def corpora(n: int = 60, seed: int = 0) -> tuple[list[str], list[str]]:
    """References, and hypotheses that get some words wrong."""
    choose = random.Random(seed)
    references = [" ".join(choose.choices(WORDS, k=choose.randint(1, 14))) for _ in range(n)]
    hypotheses = [
        " ".join(word if choose.random() < 0.8 else choose.choice(WORDS) for word in reference.split())
        for reference in references
    ]
    return hypotheses, references
