"""The checks of ``checks.py`` under pytest; each is skipped by name without a GPU."""

import pytest
from tests.gpu.cases import has_gpu
from tests.gpu.checks import CHECKS


@pytest.mark.skipif(not has_gpu(), reason="needs CuPy and an NVIDIA GPU")
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name):
    CHECKS[name]()
