/**
 * A durable turn in TypeScript with Effect: `node examples/typescript_effect.ts WORKSPACE`.
 *
 * Three phases append to files. Before each one the turn says what it is about to do; a phase that was cut off is looked
 * up by its reference before anything is done again. KILL_IN=convert kills the process with SIGKILL in the middle of
 * that phase; the next call of the same command goes on from there.
 */
import { appendFileSync, existsSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { argv, env, kill, pid } from "node:process"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import { JournalStore } from "turn-journal-core"
import * as NodeRuntime from "turn-journal-core/NodeRuntime"

const workspace = resolve(argv[2] ?? ".")
const turn = { goal_id: "reports", agent_id: "converter", turn_key: "report-42" }
const path = join(workspace, "goals", turn.goal_id, "turns", `${turn.turn_key}.json`)
const phases = ["fetch", "convert", "publish"]

const journal = (status: string, completed: number, more: object = {}) => ({
  schema_version: "loopx_turn_journal_v0",
  ...turn,
  plan: { phases },
  status,
  completed_phases: phases.slice(0, completed),
  ...more
})

/** A phase's work: it really happens once for each time this is called. */
const work = (phase: string, reference: string) =>
  Effect.sync(() => {
    appendFileSync(join(workspace, phase), `${reference}\n`)
    if (env["KILL_IN"] === phase) kill(pid, "SIGKILL")
  })

/** What a real phase asks the other side: did the effect with this reference happen? */
const happened = (phase: string, reference: string) => {
  const log = join(workspace, phase)
  return existsSync(log) && readFileSync(log, "utf8").includes(reference)
}

const begin = Effect.gen(function* () {
  const store = yield* JournalStore
  const question = { runtimeRoot: workspace, goalId: turn.goal_id, agentId: turn.agent_id, turnKey: turn.turn_key }
  return yield* store
    .inspectStored(question)
    .pipe(
      Effect.catchTag("JournalNotFound", () =>
        Effect.andThen(store.write({ path, journal: journal("started", 0) }), store.inspectStored(question))
      )
    )
})

const drive = Effect.gen(function* () {
  const store = yield* JournalStore
  const { recovery_decision: decision, completed_phases } = yield* begin
  if (!decision.can_continue) return yield* Console.log(`${decision.action}: ${decision.reason}`)
  let inDoubt = decision.reason === "resolve_prepared_effect"
  for (const [index, phase] of phases.entries()) {
    if (index < completed_phases.length) continue
    const reference = `${turn.turn_key}#${phase}`
    const attempt = { effect_attempts: { [phase]: { status: "prepared", effect_ref: reference } } }
    yield* store.write({ path, journal: journal("in_progress", index, attempt) })
    if (!(inDoubt && happened(phase, reference))) yield* work(phase, reference)
    inDoubt = false
    const done = index + 1
    yield* store.write({ path, journal: journal(done === phases.length ? "committed" : "in_progress", done) })
  }
  yield* Console.log("committed")
})

NodeRuntime.runMain(Effect.provide(drive, NodeRuntime.layer))
