"""Nothing that a test of hosts started is left at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    for child in left:
        child.kill()
    assert not left, f"processes outlived the test: {left}"
