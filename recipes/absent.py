"""No picture of MNIST's test may be among those that are learnt from; it ends with 1 where one is.

    python recipes/absent.py ../shared/data/mnist

The other recipes check for themselves: `cutaway train` leaves out books that repeat the validation text (`data.apart`),
and recipes/en-de/prepare.py drops sentences of the test.
"""

import gzip
import sys
from pathlib import Path


def pictures(path: Path) -> set[bytes]:
    data = gzip.decompress(path.read_bytes())[16:]
    return {data[i : i + 784] for i in range(0, len(data), 784)}


if __name__ == "__main__":
    train, test = (pictures(Path(sys.argv[1]) / f"{part}-images-idx3-ubyte.gz") for part in ("train", "t10k"))
    print(f"{len(train & test)} of {len(test):,} test pictures are among the {len(train):,} to learn from")
    sys.exit(bool(train & test))
