"""The two command-line agents against stand-ins that speak their streams: results, failures, sessions."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.hosts.fake_agent import MARKER, SESSION
from tests.process.hosts.harness import DEADLINES, PROGRAM, make_request

from turn_journal_runtime.hosts import ClaudeCliHost, CodexCliHost
from turn_journal_runtime.turns.host import HostFailedError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

WORK = [["banner"], ["start"], ["work"]]
ANSWER = json.dumps({"result_kind": "validated_completion", "n": 7})
AGENTS = ("claude", "codex")


class Bench:
    """One agent in one folder, with what its stand-in was asked and the sessions that it showed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.work_dir = folder / "work"
        self.work_dir.mkdir(parents=True)
        self.asked_file = folder / "asked.jsonl"
        self.sessions: list[str] = []
        self.program = folder / name
        fake = PROGRAM.with_name("fake_agent.py")
        self.program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{fake}" {name} "$@"\n')
        self.program.chmod(0o700)

    def host(self, *script: list[str], cwd: Path | None = None, timeout: float = 30.0) -> CodexCliHost | ClaudeCliHost:
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "CODEX_HOME": str(self.folder / "codex_home"),
            "CLAUDE_CONFIG_DIR": str(self.folder / "claude_home"),
            "FAKE_ASKED": str(self.asked_file),
            "FAKE_SCRIPT": json.dumps(script),
        }
        agent = CodexCliHost if self.name == "codex" else ClaudeCliHost
        return agent(self.program, ["--fast"], cwd=cwd or self.work_dir, env=env, timeout=timeout)

    def request(self, **changes: Any) -> Any:
        return make_request(input="Do the work.", on_session=self.sessions.append, **changes)

    def asked(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self.asked_file.read_text().splitlines()] if self.asked_file.exists() else []
        )

    def failure(self, *script: list[str], **settings: Any) -> HostFailedError:
        with pytest.raises(HostFailedError) as raised:
            self.host(*script, **settings).execute(self.request())
        assert MARKER not in str(raised.value) + json.dumps(raised.value.details)
        return raised.value


@pytest.fixture(params=AGENTS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path)


def test_the_last_message_is_the_result_and_the_session_is_shown(bench: Bench) -> None:
    host = bench.host(*WORK, ["message", ANSWER], ["complete"])
    assert host.healthcheck()
    assert host.execute(bench.request()) == {"result_kind": "validated_completion", "n": 7}
    assert bench.sessions == [SESSION]
    (asked,) = bench.asked()
    assert asked["prompt"].startswith("Do the work.")
    assert "Do the work." not in " ".join(asked["argv"]), "a prompt in the arguments is seen by every user"
    assert asked["TURN_JOURNAL_EFFECT_ID"] == "goal:agent:todo:turn-1"
    assert "--fast" in asked["argv"]


def test_a_message_that_is_no_result_is_wrapped(bench: Bench) -> None:
    result = bench.host(*WORK, ["message", "All done."], ["complete"]).execute(bench.request())
    assert result == {"result_kind": "validated_progress", "message": "All done."}


@pytest.mark.parametrize(
    ("agent", "step", "kind"),
    [
        ("codex", ["fail", "exceeded retry limit, last status: 429 Too Many Requests"], "rate_limited"),
        ("codex", ["fail", "exceeded retry limit, last status: 401 Unauthorized, request id: 99cd"], "auth_failed"),
        ("codex", ["fail", "Your access token could not be refreshed because it expired."], "auth_failed"),
        ("codex", ["fail", "You've hit your usage limit. Upgrade to Pro or try again at 8:23 PM."], "quota_exhausted"),
        ("codex", ["fail", "Quota exceeded. Check your plan and billing details."], "quota_exhausted"),
        ("codex", ["fail", "Selected model is at capacity. Please try a different model."], "provider_capacity"),
        ("codex", ["fail", "We're currently experiencing high demand, which may cause errors."], "provider_overloaded"),
        ("codex", ["fail", "stream disconnected before completion: connection reset"], "transport_lost"),
        ("codex", ["fail", f"something new: {MARKER}"], "unknown"),
        (
            "claude",
            ["fail", 'API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}'],
            "provider_overloaded",
        ),
        ("claude", ["fail", 'API Error: 429 {"type":"error","error":{"type":"rate_limit_error"}}'], "rate_limited"),
        ("claude", ["fail", "Claude AI usage limit reached|1753088400"], "quota_exhausted"),
        ("claude", ["fail", "Invalid API key · Please run /login"], "auth_failed"),
        ("claude", ["status", "403"], "auth_failed"),
        ("claude", ["status", "429"], "rate_limited"),
        ("claude", ["status", "529"], "provider_overloaded"),
        ("claude", ["subtype", "error_max_turns"], "output_budget_exhausted"),
        ("claude", ["subtype", "error_during_execution"], "unknown"),
    ],
)
def test_the_tools_failures_have_their_kinds(agent: str, step: list[str], kind: str, tmp_path: Path) -> None:
    bench = Bench(agent, tmp_path)
    error = bench.failure(*WORK, step)
    assert (error.kind, error.resumable) == (kind, True)
    assert bench.sessions == [SESSION]


def test_before_a_session_was_seen_a_failure_leaves_none(bench: Bench) -> None:
    error = bench.failure(["banner"], ["die"])
    assert (error.kind, error.resumable, bench.sessions) == ("transport_lost", False, [])


def test_a_killed_agent_leaves_its_session(bench: Bench) -> None:
    error = bench.failure(*WORK, ["die"])
    assert (error.kind, error.resumable) == ("transport_lost", True)


def test_an_agent_that_hangs_is_ended_and_leaves_its_session(bench: Bench) -> None:
    for deadline in DEADLINES:
        error = bench.failure(*WORK, ["hang"], timeout=deadline)
        assert (error.kind, error.resumable) == ("executor_timeout", bool(bench.sessions))
        if bench.sessions:
            return
    pytest.fail("the agent never came to show its session")


def test_an_agent_that_hangs_after_a_failure_ran_out_of_time(bench: Bench) -> None:
    for deadline in DEADLINES:
        error = bench.failure(*WORK, ["limited"], ["hang"], timeout=deadline)
        assert error.kind == "executor_timeout"
        if bench.sessions:
            return
    pytest.fail("the agent never came to show its session")


def test_what_is_not_the_agents_last_message_is_not_taken_for_it(tmp_path: Path) -> None:
    bench = Bench("claude", tmp_path)
    bench.failure(["start"], ["aside", '{"result_kind": "x", "n": 8}'], ["die"])
    assert bench.host(*WORK, ["message", ANSWER], ["complete"]).resume(SESSION, bench.request(attempt=2))["n"] == 7
    assert len(bench.asked()) == 2


def test_of_two_records_of_a_session_the_later_one_counts(tmp_path: Path) -> None:
    bench = Bench("codex", tmp_path)
    bench.host(*WORK, ["message", ANSWER], ["complete"]).execute(bench.request())
    (later,) = (tmp_path / "codex_home" / "sessions").rglob("rollout-*.jsonl")
    earlier = later.parents[1] / "28" / later.name.replace("11-29", "11-28")
    earlier.parent.mkdir()
    earlier.write_text(later.read_text().replace('\\"n\\": 7', '\\"n\\": 6'))
    assert bench.host(["die"]).resume(SESSION, bench.request(attempt=2))["n"] == 7


def test_a_turn_that_is_over_counts_however_its_process_ends(bench: Bench) -> None:
    for deadline in DEADLINES:
        host = bench.host(*WORK, ["message", ANSWER], ["complete"], ["hang"], timeout=deadline)
        with contextlib.suppress(HostFailedError):  # it may not have said so yet
            assert host.execute(bench.request())["n"] == 7
            return
    pytest.fail("the agent never came to its end")


def test_an_end_without_a_message_is_no_result(bench: Bench) -> None:
    assert bench.failure(["start"]).kind == "contract_rejected"


def test_reconnections_on_the_way_are_no_failure(tmp_path: Path) -> None:
    bench = Bench("codex", tmp_path)
    assert bench.host(*WORK, ["reconnect"], ["message", ANSWER], ["complete"]).execute(bench.request())["n"] == 7


def test_a_session_is_continued_by_its_id_without_asking_again(bench: Bench) -> None:
    bench.failure(*WORK, ["die"])
    host = bench.host(*WORK, ["message", ANSWER], ["complete"])
    assert host.session_exists(SESSION, bench.request())
    assert host.resume(SESSION, bench.request(attempt=2))["n"] == 7
    first, second = bench.asked()
    assert SESSION not in first["argv"]
    assert second["argv"][second["argv"].index("resume" if bench.name == "codex" else "--resume") + 1] == SESSION
    assert "Do the work." not in second["prompt"]
    assert bench.sessions == [SESSION], "an id that stands for no session replaced the known one"


def test_a_session_that_never_got_the_prompt_gets_it(bench: Bench) -> None:
    bench.failure(*WORK, ["die"])
    bench.host(*WORK, ["message", ANSWER], ["complete"]).resume(SESSION, bench.request(turn_key="turn-2"))
    assert bench.asked()[1]["prompt"].startswith("Do the work.")


def test_a_result_that_the_session_recorded_is_taken_without_the_agent(bench: Bench) -> None:
    bench.host(*WORK, ["message", ANSWER], ["complete"]).execute(bench.request())
    assert bench.host(["die"]).resume(SESSION, bench.request(attempt=2))["n"] == 7
    assert len(bench.asked()) == 1


def test_a_recorded_result_of_another_turn_is_not_taken(bench: Bench) -> None:
    bench.host(*WORK, ["message", ANSWER], ["complete"]).execute(bench.request())
    host = bench.host(*WORK, ["message", '{"result_kind": "x", "n": 8}'], ["complete"])
    assert host.resume(SESSION, bench.request(turn_key="turn-2"))["n"] == 8


@pytest.mark.parametrize("session_id", ["0199a213-0000-7800-8aa1-bbab2a035a53", "../../etc/passwd", "-x", "", "*"])
def test_a_session_without_a_transcript_is_missing_and_nothing_is_started(bench: Bench, session_id: str) -> None:
    bench.failure(*WORK, ["die"])
    host = bench.host(*WORK, ["message", ANSWER], ["complete"])
    assert not host.session_exists(session_id, bench.request())
    with pytest.raises(HostFailedError) as resumed:
        host.resume(session_id, bench.request())
    with pytest.raises(HostFailedError) as planned:
        host.execute(bench.request(session={"action": "resume", "id": session_id}))
    for error in (resumed.value, planned.value):
        assert (error.kind, error.resumable) == ("session_missing", False)
    assert len(bench.asked()) == 1


def test_a_session_of_another_folder_is_missing_here(bench: Bench) -> None:
    bench.failure(*WORK, ["die"])
    elsewhere = bench.folder / "elsewhere"
    elsewhere.mkdir()
    assert not bench.host(cwd=elsewhere).session_exists(SESSION, bench.request())
    (bench.folder / "link").symlink_to(bench.work_dir)
    assert bench.host(cwd=bench.folder / "link").session_exists(SESSION, bench.request())


def test_a_session_that_was_gone_on_with_in_another_folder_too_is_found_here(bench: Bench) -> None:
    bench.failure(*WORK, ["die"])
    (transcript,) = bench.folder.glob(f"c*_home/**/*{SESSION}.jsonl")
    # Before and after it in the order of names.
    for folder in (transcript.parent.with_name("!"), transcript.parent.with_name("~")):
        folder.mkdir()
        text = transcript.read_text().replace(json.dumps(str(bench.work_dir)), '"/gone/on/with"')
        (folder / transcript.name).write_text(text)
    assert bench.host().session_exists(SESSION, bench.request())


def test_a_session_that_the_tool_does_not_find_is_missing(bench: Bench) -> None:
    bench.failure(*WORK, ["die"])
    with pytest.raises(HostFailedError) as raised:
        bench.host(["missing"]).resume(SESSION, bench.request())
    assert (raised.value.kind, raised.value.resumable) == ("session_missing", False)
