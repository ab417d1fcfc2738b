"""Small models on one thread; what is tokenised is forgotten with the test."""

from parity.conftest import _one_thread  # noqa: F401
from training.conftest import _own_cache  # noqa: F401
