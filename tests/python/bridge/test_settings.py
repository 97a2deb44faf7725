"""Settings: one class, read when asked for, each described once."""

from __future__ import annotations

import ast
import inspect

import pytest

from turn_journal_runtime import settings
from turn_journal_runtime.errors import RuntimeUnavailableError
from turn_journal_runtime.settings import PREFIX, Settings, current, current_call_timeout


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings._fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


def test_nothing_set_means_the_defaults() -> None:
    assert current() == Settings()


def test_every_setting_is_read_from_its_variable_and_given_on_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Settings(
        node="/opt/node",
        cache_dir="/var/cache",
        node_mirror="http://127.0.0.1/dist",
        call_timeout=1.5,
        start_timeout=2.0,
        max_journal_bytes=3,
        max_depth=4,
        max_queued=5,
        postgres_min_connections=2,
        postgres_max_connections=6,
        postgres_timeout=7.0,
        turn_lease=9.0,
        run_lease=5.0,
    )
    assert all(getattr(chosen, name) != getattr(Settings(), name) for name in Settings._fields)
    assert set(chosen.variables()) == {PREFIX + name.upper() for name in Settings._fields}
    for name, value in chosen.variables().items():
        monkeypatch.setenv(name, value)
    assert current() == chosen


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_NODE", "")
    monkeypatch.setenv("TURN_JOURNAL_MAX_DEPTH", "")
    assert current() == Settings()


def test_variables_of_other_parts_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_SIGNING_KEY", "k")
    assert current() == Settings()


def test_a_name_in_other_letters_is_no_variable_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("turn_journal_call_timeout", "1")
    monkeypatch.setenv("TURN_JOURNAL_max_depth", "1")
    assert (current(), current_call_timeout()) == (Settings(), Settings().call_timeout)


@pytest.mark.parametrize(("turn", "run"), [("90", 20.0), ("30", 20.0), ("15", 10.0)])
def test_a_run_is_free_when_its_turn_is(turn: str, run: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn's last renewal may be a third of its lease before that of its run."""
    monkeypatch.setenv("TURN_JOURNAL_TURN_LEASE", turn)
    assert current().run_lease == run


def test_a_lease_of_runs_that_would_outlast_the_turns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_RUN_LEASE", "21")
    with pytest.raises(RuntimeUnavailableError, match=r"RUN_LEASE does not fit: .*TURN_LEASE, which is 30,") as wrong:
        current()
    assert (wrong.value.kind, wrong.value.details["setting"]) == ("setting_invalid", "TURN_JOURNAL_RUN_LEASE")
    monkeypatch.setenv("TURN_JOURNAL_TURN_LEASE", "31.5")
    assert current().run_lease == 21.0


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf"])
def test_a_value_that_does_not_fit_is_named_with_its_variable(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_START_TIMEOUT", value)
    with pytest.raises(RuntimeUnavailableError, match="TURN_JOURNAL_START_TIMEOUT does not fit") as wrong:
        current()
    assert (wrong.value.kind, wrong.value.details["setting"]) == ("setting_invalid", "TURN_JOURNAL_START_TIMEOUT")


@pytest.mark.parametrize(("name", "most"), [("MAX_DEPTH", 250), ("MAX_JOURNAL_BYTES", 64 * 2**20)])
def test_limits_go_as_far_as_both_languages_can_carry(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TURN_JOURNAL_{name}", str(most))
    assert getattr(current(), name.lower()) == most
    monkeypatch.setenv(f"TURN_JOURNAL_{name}", str(most + 1))
    with pytest.raises(RuntimeUnavailableError, match=f"TURN_JOURNAL_{name} does not fit"):
        current()


def test_every_setting_is_described_where_it_stands() -> None:
    source = inspect.getsource(settings)
    lines = source.splitlines()
    (body,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    fields = [node for node in body.body if isinstance(node, ast.AnnAssign)]
    assert [node.target.id for node in fields if isinstance(node.target, ast.Name)] == list(Settings._fields)
    assert all(lines[node.lineno - 2].strip().startswith("#:") for node in fields)
