"""Tiny models: a second thread would cost more than it helps."""

from parity.conftest import _one_thread  # noqa: F401
