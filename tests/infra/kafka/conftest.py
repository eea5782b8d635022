"""Batches are read and made by either codec; by the native one where it is installed."""

from collections.abc import Iterator

import pytest

from siltlog.infra.kafka import native


@pytest.fixture(scope="module", params=["numpy", "native"])
def codec(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "native" and not native.IS_NATIVE:
        pytest.skip("siltlog-native is not installed: make native")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(native, "_native", None)
        yield
