"""Stand-ins for the core that do one thing wrong: small Node programs on the same greeting and line reader.

The real core is used wherever it can show the behaviour; these are for what it must never do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from turn_journal_runtime.bridge.schemas import PROTOCOL_VERSION, schemas_digest

_GREETING = """
import { appendFileSync, existsSync, writeFileSync } from "node:fs"
const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\\n")
const info = {
  name: "fake", version: "0", protocol: PROTOCOL, pid: process.pid, node: process.versions.node, schemas: "DIGEST",
  limits: { journal_bytes: 1, depth: 1, queued_requests: 1 }
}
const { limits, ...hello } = info
const log = (text) => appendFileSync("LOG", text + "\\n")
const answer = (request, result = info) => say({ id: request.id, result })
const ready = (changes = {}) => say({ method: "runtime.ready", params: { ...hello, ...changes } })
/** Calls `on[method](request)`, or answers with what fits. */
const serve = (on = {}) => {
  let rest = ""
  process.stdin.setEncoding("utf8")
  process.stdin.on("data", (text) => {
    const lines = (rest + text).split("\\n")
    rest = lines.pop()
    for (const line of lines) {
      const request = JSON.parse(line)
      log(request.method)
      if (on[request.method]) on[request.method](request)
      else if (request.method === "runtime.shutdown") { answer(request, { ok: true }); process.exit(0) }
      else answer(request)
    }
  })
  process.stdin.on("end", () => { log("end of input"); (on.end ?? (() => process.exit(0)))() })
  ready()
}
"""


def fake_core(folder: Path, program: str) -> str:
    """The path of a stand-in that runs `program`; what it notes with `log` is in `core.log` beside it."""
    path = folder / "core.mjs"
    greeting = _GREETING.replace("PROTOCOL", str(PROTOCOL_VERSION)).replace("DIGEST", schemas_digest())
    greeting = greeting.replace('"LOG"', orjson.dumps(str(log_path(folder))).decode())
    path.write_text(greeting + program, encoding="utf-8")
    return str(path)


def log_path(folder: Path) -> Path:
    """Where a stand-in notes what happened to it."""
    return folder / "core.log"


def logged(folder: Path) -> list[str]:
    """What a stand-in noted."""
    path = log_path(folder)
    return path.read_text("utf-8").splitlines() if path.exists() else []


def is_alive(pid: int | None) -> bool:
    """Whether a process exists, zombies not counted."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pick(value: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """Several fields at once, for one assertion on all."""
    return tuple(value.get(name) for name in names)
