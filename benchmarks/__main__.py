"""`python -m benchmarks`: every benchmark, one after the other; BENCH_PEERS=1 adds the peers."""

from __future__ import annotations

import runpy
from pathlib import Path

if __name__ == "__main__":
    for folder in sorted(path.parent.name for path in Path(__file__).parent.glob("*/__main__.py")):
        runpy.run_module(f"benchmarks.{folder}", run_name="__main__")
