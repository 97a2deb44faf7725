"""Many processes of both languages write to the same turns and are killed at random: the history is one linear order in
which every acknowledged write stands once, and every refusal is right for the state that it met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.chaos.store.many_clients import Shape, many_clients
from tests.conftest import SOAK

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.chaos

SHAPE = Shape(processes=8 if SOAK else 4, clients=1, calls=130 if SOAK else 50, turns=4, kill_pace=40)


@pytest.mark.timeout(1800)
def test_one_linear_order(node: str, tmp_path: Path) -> None:
    counts = many_clients(node, str(tmp_path / "runtime"), tmp_path, SHAPE)
    assert counts["killed"] > 2
    assert counts["unknown"] == 0
