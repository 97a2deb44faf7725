"""Runs the code blocks of one Markdown page, in order, in one fresh folder: `python tests/docs/page.py PAGE`.

How a block is tested depends on its language:

- `python`: run; the blocks of a page share their names, as a reader would type them one after the other. With
  `title="agent.py"` it is written to that file instead, for a later command to run.
- `bash` or `sh`: each command is run and has to succeed. `pip`, `npm`, `npx`, `git` and `make` are not: their targets
  are looked up.
- `text title="output"`: what the block before it printed, exactly; `…` stands for anything within a line.
- `json`, `toml`: has to parse. `mermaid`: has to begin with a diagram's name and close what it opens.
- `ts`: run by Node; `turn-journal-core` is this checkout.
- `text`: anything.

A comment before a block changes that: `<!-- exit: 1 -->` for a command that is to end with that code, `<!-- raises:
SomeError -->` for Python that is to raise it. There is no way to skip a block.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"(?:^<!-- (?P<note>exit|raises): (?P<value>\S+) -->\n)?^(?P<indent> *)```(?P<language>\w*)(?P<options>[^\n]*)\n"
    r"(?P<code>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
_DIAGRAMS = ("sequenceDiagram", "stateDiagram-v2", "flowchart", "graph", "classDiagram", "erDiagram")
_BRACKETS = {")": "(", "]": "[", "}": "{"}
#: Programs that would change the machine or need the network: looked up, not run.
_LOOKED_UP = {"pip", "npm", "npx", "git", "make", "uv", "pipx", "source", "export"}


class Block(NamedTuple):
    """One fenced block."""

    line: int
    language: str
    title: str | None
    exit_code: int
    raises: str | None
    code: str


class DocumentError(Exception):
    """A block does not do what the page says."""


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page, in order."""
    found = []
    for match in _FENCE.finditer(text):
        title = _TITLE.search(match["options"])
        indent = match["indent"]
        code = "".join(line.removeprefix(indent) for line in match["code"].splitlines(keepends=True))
        found.append(
            Block(
                line=text.count("\n", 0, match.start("language")) + 1,
                language=match["language"],
                title=title[1] if title else None,
                exit_code=int(match["value"]) if match["note"] == "exit" else 0,
                raises=match["value"] if match["note"] == "raises" else None,
                code=code,
            )
        )
    return found


class Page:
    """The blocks of a page while they are run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._output = ""

    def run(self) -> int:
        """Runs all blocks; how many there were."""
        blocks = blocks_of(self.path.read_text(encoding="utf-8"))
        for block in blocks:
            try:
                self._run(block)
            except Exception as error:
                raise DocumentError(f"{self.path}:{block.line}: {type(error).__name__}: {error}") from error
        return len(blocks)

    def _run(self, block: Block) -> None:
        if block.title is not None and block.title != "output":
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.code, encoding="utf-8")
            if block.language == "python":
                compile(block.code, block.title, "exec")
            return
        match block.language:
            case "python":
                self._python(block)
            case "bash" | "sh":
                self._output = "".join(_command(line, block.exit_code) for line in _commands(block.code))
            case "ts":
                self._output = _typescript(block.code, block.exit_code)
            case "json":
                json.loads(block.code)
            case "toml":
                tomllib.loads(block.code)
            case "mermaid":
                _check_diagram(block.code)
            case "text":
                if block.title == "output":
                    self._compare(block.code)
            case other:
                raise DocumentError(f"no rule says how a block of {other!r} is tested; tests/docs/page.py has them")

    def _python(self, block: Block) -> None:
        printed = io.StringIO()
        # Numbered as in the page, so that a traceback leads there.
        code = compile("\n" * block.line + block.code, str(self.path), "exec")
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, self._names)  # noqa: S102 - running the page is what this is for
        except Exception as error:
            if type(error).__name__ != block.raises:
                raise
        else:
            if block.raises is not None:
                raise DocumentError(f"was to raise {block.raises}, and did not")
        self._output = printed.getvalue()

    def _compare(self, expected: str) -> None:
        pattern = re.escape(expected.strip()).replace("…", "[^\n]*")
        printed = "\n".join(line.rstrip() for line in self._output.strip().splitlines())
        if not re.fullmatch(pattern, printed):
            raise DocumentError(f"the page says\n{expected}\nand it printed\n{self._output}")


def _commands(code: str) -> list[str]:
    joined = code.replace("\\\n", " ")
    return [line for line in map(str.strip, joined.splitlines()) if line and not line.startswith("#")]


def _command(line: str, exit_code: int) -> str:
    words = shlex.split(line, comments=True)
    if words[0] in _LOOKED_UP:
        _look_up(words)
        return ""
    if words[0] == "cat" and words[1] == ">":
        raise DocumentError("give the block a title instead of writing a file by hand")
    done = subprocess.run(  # noqa: S602 - a page's commands are shell
        line, shell=True, capture_output=True, text=True, timeout=240, check=False, env=_environment()
    )
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    if code != exit_code:
        raise DocumentError(f"`{line}` ended with {code}, not {exit_code}: {done.stderr or done.stdout}")
    return done.stdout + done.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}


def _look_up(words: list[str]) -> None:
    """Whether a command that is not run could be."""
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        missing = [word for word in words[1:] if "=" not in word and word not in targets]
        if missing:
            raise DocumentError(f"make has no target {missing}")
    if words[:2] == ["npm", "run"]:
        scripts = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["scripts"]
        name = next(word for word in words[2:] if not word.startswith("-"))
        if name not in scripts:
            raise DocumentError(f"npm has no script {name}")
    if words[:2] == ["npx", "turn-journal-core"]:
        command = [_node(), str(ROOT / "dist" / "core.mjs"), "--help"]
        offered = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout.split()
        missing = [word for word in words[2:] if (word.startswith("-") or word == words[2]) and word not in offered]
        if missing:
            raise DocumentError(f"turn-journal-core has no {missing}")
    if words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for word in words[2:]:
            named = re.fullmatch(r"turn-journal-runtime\[([\w,-]+)\]", word)
            for extra in named[1].split(",") if named else []:
                if extra not in project["optional-dependencies"]:
                    raise DocumentError(f"there is no extra {extra}")


def _typescript(code: str, exit_code: int) -> str:
    # Inside the checkout, where `turn-journal-core` and `effect` are found as beside an installed package.
    with tempfile.NamedTemporaryFile("w", suffix=".ts", dir=ROOT / "dist", prefix="page-", encoding="utf-8") as file:
        file.write(code)
        file.flush()
        done = subprocess.run(
            [_node(), "--disable-warning=ExperimentalWarning", file.name],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    if done.returncode != exit_code:
        raise DocumentError(f"ended with {done.returncode}, not {exit_code}: {done.stderr or done.stdout}")
    return done.stdout


def _node() -> str:
    from turn_journal_runtime.bridge.node import locate_node
    from turn_journal_runtime.settings import Settings

    return locate_node(Settings()).path


def _check_diagram(code: str) -> None:
    if not code.strip().startswith(_DIAGRAMS):
        raise DocumentError(f"a diagram begins with one of {_DIAGRAMS}")
    opened: list[str] = []
    for character in re.sub(r'"[^"\n]*"', "", code):
        if character in _BRACKETS.values():
            opened.append(character)
        elif character in _BRACKETS and (not opened or opened.pop() != _BRACKETS[character]):
            raise DocumentError(f"the diagram closes {character!r} without opening it")
    if opened:
        raise DocumentError(f"the diagram does not close {opened}")


if __name__ == "__main__":
    page = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        print(Page(page).run())
