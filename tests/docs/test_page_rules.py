"""The page runner finds what is wrong with a page."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from tests.docs.page import DocumentError, Page


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(text: str) -> int:
    page = Path("page.md")
    page.write_text(dedent(text), encoding="utf-8")
    return Page(page).run()


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```\n",
        "<!-- raises: KeyError -->\n```python\n1 / 0\n```\n",
        "<!-- raises: KeyError -->\n```python\n1\n```\n",
        "```bash\nfalse\n```\n",
        "<!-- exit: 3 -->\n```bash\ntrue\n```\n",
        "```bash\nmake nothing-of-the-kind\n```\n",
        "```bash\nnpm run nothing-of-the-kind\n```\n",
        '```bash\npip install "turn-journal-runtime[nothing]"\n```\n',
        "```json\n{a: 1}\n```\n",
        "```toml\na =\n```\n",
        "```mermaid\npie\n```\n",
        "```mermaid\nflowchart LR\n  a[b\n```\n",
        '```python\nprint(1)\n```\n\n```text title="output"\n2\n```\n',
        "```\nno language\n```\n",
        "```ruby\nputs 1\n```\n",
        '```python title="x.py"\nthis is no python\n```\n',
    ],
)
def test_a_block_that_is_wrong_fails_its_page(text: str) -> None:
    with pytest.raises(DocumentError, match=r"page\.md:\d+"):
        _run(text)


def test_blocks_share_names_files_and_output() -> None:
    text = """
        ```python
        a = 1
        ```

        ```python
        print("a is", a)
        ```

        ```text title="output"
        a is …
        ```

        ```python title="made.py"
        print("made")
        ```

        ```bash
        python made.py
        ```

        ```text title="output"
        made
        ```

        <!-- raises: ZeroDivisionError -->
        ```python
        1 / 0
        ```

        1. In a list:

            ```bash
            # a comment
            echo one \\
              two
            ```

            ```text title="output"
            one two
            ```
        """
    assert _run(text) == 9
