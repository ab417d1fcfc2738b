"""The text of recipes/rise.toml: Python's own library, which says the same names again and again.

python recipes/rise.py build/stdlib.txt
cutaway train recipes/rise.toml --out build/rise                                   46 minutes of one busy core
cutaway circuit build/rise --preset induction --over-training --out rise.svg       when the heads appeared
cutaway circuit build/rise --preset induction --out circuit.json                   which they are at the end
cutaway circuit build/rise --preset induction --test circuit.json                  what is lost without each
"""

import sys
import sysconfig
from pathlib import Path


def main() -> None:
    """The files of the standard library, without its tests, parted by form feeds."""
    out, library = Path(sys.argv[1]), Path(sysconfig.get_path("stdlib"))
    texts = []
    for path in sorted(library.rglob("*.py")):
        if {"site-packages", "test", "tests"} & {*path.parts}:
            continue
        try:
            texts.append(path.read_text(encoding="utf-8").replace("\f", ""))
        except UnicodeDecodeError:  # a few are kept in other encodings on purpose
            continue
    whole = "\f".join(text for text in texts if text.strip())
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(whole, encoding="utf-8")
    print(f"{out}: {len(texts)} files, {len(whole):,} characters")


if __name__ == "__main__":
    main()
