/** Work that takes long does not keep short calls waiting. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, beforeAll, it } from "@effect/vitest"
import { overPipes, type ProcessSession } from "./Session.ts"

const TURNS = 300

let root = ""
let session: ProcessSession
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), "turn-journal-side-"))
  session = overPipes()
  await session.next()
  for (let turn = 0; turn < TURNS; turn++) {
    const journal = {
      schema_version: "loopx_turn_journal_v0",
      status: "started",
      plan: { action: "go" },
      completed_phases: []
    }
    ask(turn, "turn_journal.write", { path: join(root, "goals", `g${turn % 7}`, "turns", `k${turn}.json`), journal })
  }
  for (let turn = 0; turn < TURNS; turn++) assert.property(JSON.parse((await session.next()) ?? "null"), "result")
})
afterAll(async () => {
  session.close()
  await session.ended
  rmSync(root, { recursive: true, force: true })
})

const ask = (id: unknown, method: string, params: unknown) =>
  session.send(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`)

it.each([
  ["turn_journal.verify", {}],
  ["turn_journal.list", {}],
  ["turn_journal.recoverable", {}],
  ["turn_journal.heads", {}],
  ["turn_journal.prune", { older_than: 0, dry_run: true }]
])("an inspection that comes later is answered before %s of a whole root", async (method, params) => {
  const inspection = { journal: {}, goal_id: "g", agent_id: "a", turn_key: "k" }
  // On a busy machine the long call may be over before this process comes to ask the short one; not every time.
  for (let attempt = 1; ; attempt++) {
    ask("long", method, { runtime_root: root, limit: 1000, ...params })
    // In a chunk of its own: the long call has begun when it comes.
    await new Promise((resolve) => setImmediate(resolve))
    ask("short", "turn_journal.inspect", inspection)
    const answers = [JSON.parse((await session.next()) ?? "null"), JSON.parse((await session.next()) ?? "null")]
    for (const answer of answers) assert.property(answer, "result")
    const order = answers.map(({ id }) => id)
    if (order[0] === "short") return
    assert.isBelow(attempt, 10, `the order of the answers was ${order}`)
  }
})
