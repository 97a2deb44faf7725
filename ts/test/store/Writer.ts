/**
 * A program that writes random transitions to a few turns, through the store alone, and logs every call before it is
 * made and after it was answered: `node Writer.ts ROOT LOG NAME SEED CALLS`. Its twin is tests/chaos/store/writer.py.
 */
import { openSync, writeSync } from "node:fs"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { JsonObject } from "../../src/contract/Json.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { Dice } from "../Seed.ts"
import { pathOf } from "./Turns.ts"

const PHASES = Array.from({ length: 40 }, (_, index) => `p${index}`)
const TURNS = ["turn-0", "turn-1", "turn-2", "turn-3"]

interface Known {
  readonly journal: JsonObject
  readonly operation_id: string
}

/** A transition that may follow, or one that may not. */
const following = (dice: Dice, turn: string, known: Known | null, mark: string): JsonObject => {
  const base = {
    schema_version: "loopx_turn_journal_v0",
    goal_id: "goal-1",
    agent_id: "agent-1",
    turn_key: turn,
    effect_id: `effect-of-${turn}`,
    plan: { phases: PHASES },
    mark
  }
  const completed = known === null ? 0 : (known.journal["completed_phases"] as ReadonlyArray<string>).length
  const luck = dice.roll()
  if (known === null || luck < 0.55) {
    const more = known !== null && completed < PHASES.length - 1 && dice.chance(0.1) ? 1 : 0
    return { ...base, status: "in_progress", completed_phases: PHASES.slice(0, completed + more) }
  }
  if (luck < 0.65) {
    const receipt = { failed_phase: PHASES[completed] ?? "" }
    return { ...base, status: "failed", receipt, completed_phases: PHASES.slice(0, completed) }
  }
  if (luck < 0.8) return known.journal
  if (luck < 0.9) return { ...base, status: "in_progress", completed_phases: PHASES.slice(0, completed - 1) }
  return { ...base, status: "in_progress", completed_phases: PHASES.slice(0, completed), plan: { phases: ["other"] } }
}

const [root = "", log = "", name = "", seed = "", calls = ""] = process.argv.slice(2)
const dice = new Dice(Number(seed))
const fd = openSync(log, "a")
const note = (entry: JsonObject): void => {
  writeSync(fd, `${JSON.stringify(entry)}\n`)
}
const now = (): number => Number(process.hrtime.bigint())

const program = Effect.gen(function* () {
  const store = yield* JournalStore
  const remembered = new Map<string, Known>()
  for (let call = 0; call < Number(calls); call++) {
    const turn = dice.pick(TURNS)
    const path = pathOf(root, turn)
    if (dice.chance(0.8)) {
      const read = yield* Effect.result(store.read({ path }))
      if (read._tag === "Success") remembered.set(turn, read.success as Known)
    }
    const known = remembered.get(turn) ?? null
    const journal = following(dice, turn, known, `${name}-${call}`)
    // A journal that is written again follows on itself: else it would stand twice, which would be right as well.
    const follows = dice.chance(0.4) || journal === known?.journal
    const expectedPrevious = follows ? (known?.operation_id ?? null) : undefined
    const expected = expectedPrevious === undefined ? {} : { expected_previous: expectedPrevious }
    note({ name, call, turn, journal, start: now(), ...expected })
    const result = yield* Effect.result(store.write({ path, journal, expectedPrevious }))
    const answer = result._tag === "Success" ? { ...result.success } : { refused: result.failure.kind }
    note({ name, call, end: now(), ...answer })
  }
})

await Effect.runPromise(
  Effect.provide(program, JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer())))
)
