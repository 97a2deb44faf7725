"""A stand-in for the two command-line agents: it speaks their event streams and keeps their transcripts.

The shapes are those that `codex exec --json` and `claude -p --output-format stream-json` document and print; what
happens is named by FAKE_SCRIPT, one word per event. What it was asked is written to FAKE_ASKED.
"""

import json
import os
import pathlib
import re
import signal
import sys
import time

SESSION = "0199a213-81c0-7800-8aa1-bbab2a035a53"
MARKER = "secret-of-the-tool"


def emit(event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def append(path: pathlib.Path, *records: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


class Codex:
    def __init__(self, argv: list[str], prompt: str) -> None:
        resumed = argv[argv.index("resume") + 1] if "resume" in argv else None
        self.session, self.prompt = resumed or SESSION, prompt
        home = pathlib.Path(os.environ["CODEX_HOME"])
        self.rollout = home / "sessions" / "2026" / "11" / "29" / f"rollout-2026-11-29T16-00-00-{self.session}.jsonl"

    def start(self) -> None:
        if not self.rollout.exists():
            append(self.rollout, {"type": "session_meta", "payload": {"id": self.session, "cwd": os.getcwd()}})
        emit({"type": "thread.started", "thread_id": self.session})
        emit({"type": "turn.started"})
        append(
            self.rollout,
            {"type": "event_msg", "payload": {"type": "task_started", "turn_id": "1"}},
            {"type": "event_msg", "payload": {"type": "user_message", "message": self.prompt}},
        )

    def work(self) -> None:
        item = {"id": "item_0", "type": "command_execution", "command": f"cat {MARKER}", "aggregated_output": MARKER}
        emit({"type": "item.started", "item": {**item, "exit_code": None, "status": "in_progress"}})
        emit({"type": "item.completed", "item": {**item, "exit_code": 0, "status": "completed"}})

    def message(self, text: str) -> None:
        emit({"type": "item.completed", "item": {"id": "item_1", "type": "agent_message", "text": text}})
        self.text = text

    def complete(self) -> None:
        done = {"type": "task_complete", "turn_id": "1", "last_agent_message": self.text}
        append(self.rollout, {"type": "event_msg", "payload": done})
        emit({"type": "turn.completed", "usage": {"input_tokens": 9, "cached_input_tokens": 0, "output_tokens": 2}})

    def fail(self, text: str) -> None:
        emit({"type": "error", "message": text})
        emit({"type": "turn.failed", "error": {"message": text}})
        sys.exit(1)

    def limited(self) -> None:
        emit({"type": "turn.failed", "error": {"message": "429 Too Many Requests"}})

    def reconnect(self) -> None:
        emit({"type": "error", "message": "Reconnecting... 1/5 (429 Too Many Requests)"})

    def missing(self) -> None:
        sys.stderr.write(
            f"Error: thread/resume: thread/resume failed: no rollout found for thread id {self.session} (code -32600)\n"
        )
        sys.exit(1)


class Claude:
    def __init__(self, argv: list[str], prompt: str) -> None:
        resumed = argv[argv.index("--resume") + 1] if "--resume" in argv else None
        self.session, self.prompt = resumed or SESSION, prompt
        # In a resumed session the stream shows an id that has no transcript.
        self.shown = "11111111-2222-4333-8444-555555555555" if resumed else SESSION
        folder = re.sub(r"[^a-zA-Z0-9]", "-", os.getcwd())
        self.transcript = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects" / folder / f"{self.session}.jsonl"

    def start(self) -> None:
        init = {"type": "system", "subtype": "init", "session_id": self.shown, "cwd": os.getcwd(), "tools": ["Bash"]}
        emit({**init, "mcp_servers": [], "model": "claude-fake", "permissionMode": "default"})
        record = {"isSidechain": False, "cwd": os.getcwd(), "sessionId": self.session, "version": "2.1.233"}
        append(
            self.transcript,
            {"type": "summary", "summary": "x", "leafUuid": "y"},
            {**record, "type": "user", "message": {"role": "user", "content": self.prompt}},
        )

    def work(self) -> None:
        use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": f"cat {MARKER}"}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": MARKER}
        self.speak("assistant", [use], stop_reason="tool_use")
        self.speak("user", [result])

    def speak(self, role: str, content: list[object], **more: object) -> None:
        message = {"role": role, "content": content, **more}
        emit({"type": role, "message": message, "session_id": self.shown, "parent_tool_use_id": None})
        append(
            self.transcript,
            {"type": role, "isSidechain": False, "cwd": "/elsewhere", "sessionId": self.session, "message": message},
        )

    def message(self, text: str) -> None:
        self.speak("assistant", [{"type": "text", "text": text}], stop_reason="end_turn")
        self.text = text

    def conclude(self, **fields: object) -> None:
        result = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "duration_ms": 5}
        emit({**result, "session_id": self.shown, "total_cost_usd": 0.01, "usage": {}, **fields})

    def complete(self) -> None:
        self.conclude(result=self.text)

    def fail(self, text: str) -> None:
        # An API error is reported as a success that is an error.
        synthetic = {"model": "<synthetic>", "content": [{"type": "text", "text": text}]}
        emit({"type": "assistant", "message": synthetic, "error": "unknown", "session_id": self.shown})
        self.conclude(is_error=True, result=text, api_error_status=None)

    def limited(self) -> None:
        emit({"type": "assistant", "message": {"content": []}, "error": "rate_limit", "session_id": self.shown})

    def aside(self, text: str) -> None:
        """What a subagent ends with, and an API error: neither is the agent's last message."""
        message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
        record = {"type": "assistant", "cwd": os.getcwd(), "sessionId": self.session, "message": message}
        append(self.transcript, {**record, "isSidechain": True}, {**record, "isApiErrorMessage": True})

    def status(self, number: str) -> None:
        self.conclude(is_error=True, result=MARKER, api_error_status=int(number))

    def subtype(self, name: str) -> None:
        self.conclude(subtype=name, is_error=True, errors=[])
        sys.exit(1)

    def missing(self) -> None:
        text = f"No conversation found with session ID: {self.session}"
        self.conclude(subtype="error_during_execution", is_error=True, num_turns=0, errors=[text])
        sys.exit(1)


def main() -> None:
    argv = sys.argv[2:]
    prompt = sys.stdin.read()
    keys = {name: os.environ.get(name) for name in ("TURN_JOURNAL_TURN_KEY", "TURN_JOURNAL_EFFECT_ID")}
    append(pathlib.Path(os.environ["FAKE_ASKED"]), {"argv": argv, "prompt": prompt, **keys})
    agent = {"codex": Codex, "claude": Claude}[sys.argv[1]](argv, prompt)
    for step, *words in json.loads(os.environ["FAKE_SCRIPT"]):
        match step:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(3600)
            case "banner":
                print("Welcome! " + MARKER, flush=True)
                print(MARKER, file=sys.stderr, flush=True)
            case _:
                getattr(agent, step)(*words)


if __name__ == "__main__":
    main()
