"""What every test shares. Nothing of cutaway may be imported above the hook."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # one thread per worker, also in the processes that tests start

import hypothesis
import pytest
import torch

if os.environ.get("CUTAWAY_TYPECHECK") != "0":
    from jaxtyping import install_import_hook

    install_import_hook("cutaway", "shape_check.check")

hypothesis.settings.register_profile(
    "cutaway",
    deadline=None,  # the first example pays for warm-up
    max_examples=25,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("cutaway")


@pytest.fixture(autouse=True)
def _same_random_numbers_every_time() -> None:
    torch.manual_seed(0)
