"""What every test shares. Nothing of cutaway may be imported above the hook."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # one thread per worker, also in the processes that tests start

import hypothesis
import pytest
import torch

CHECKED = os.environ.get("CUTAWAY_TYPECHECK") != "0"
if CHECKED:
    from helpers import shape_check

    shape_check.install()

hypothesis.settings.register_profile(
    "cutaway",
    deadline=None,  # the first example pays for warm-up
    max_examples=25,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("cutaway")


@pytest.fixture(autouse=True)
def _every_test_begins_alike() -> None:
    torch.manual_seed(0)
    if CHECKED:
        shape_check.next_test()
