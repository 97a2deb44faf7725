/**
 * A program whose clients read a few turns and write random transitions to them, through the store alone, and log every
 * call before it is made and after it was answered: `node Writer.ts ROOT LOG NAME SEED CALLS CLIENTS TURNS`. Every two
 * clients share a store. Its twin is tests/chaos/store/writer.py.
 */
import { openSync, writeSync } from "node:fs"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { JsonObject } from "../../src/contract/Json.ts"
import { Databases } from "../../src/store/Databases.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { Dice } from "../Seed.ts"
import { pathOf } from "./Turns.ts"

const PHASES = Array.from({ length: 40 }, (_, index) => `p${index}`)

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

const [root = "", log = "", name = "", seed = "", calls = "", clients = "", turns = ""] = process.argv.slice(2)
const dice = new Dice(Number(seed))
const fd = openSync(log, "a")
const note = (entry: JsonObject): void => {
  writeSync(fd, `${JSON.stringify(entry)}\n`)
}
const now = (): number => Number(process.hrtime.bigint())
const names = Array.from({ length: Number(turns) }, (_, index) => `turn-${index}`)

/** One client, from its first call to its last. */
const work = (name: string, dice: Dice) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const remembered = new Map<string, Known | null>()

    const read = Effect.fnUntraced(function* (turn: string, call: number) {
      note({ name, call: `${call}-read`, turn, start: now() })
      const result = yield* Effect.result(store.read({ path: pathOf(root, turn) }))
      if (result._tag === "Success") remembered.set(turn, result.success as Known)
      else if (result.failure._tag === "JournalNotFound") remembered.set(turn, null)
      else return
      note({ name, call: `${call}-read`, end: now(), found: remembered.get(turn)?.operation_id ?? null })
    })

    for (let call = 0; call < Number(calls); call++) {
      const turn = dice.pick(names)
      if (dice.chance(0.8)) yield* read(turn, call)
      const known = remembered.get(turn) ?? null
      const journal = following(dice, turn, known, `${name}-${call}`)
      // A journal that is written again follows on itself: else it would stand twice, which would be right as well.
      const follows = dice.chance(0.4) || journal === known?.journal
      const expectedPrevious = follows ? (known?.operation_id ?? null) : undefined
      const expected = expectedPrevious === undefined ? {} : { expected_previous: expectedPrevious }
      note({ name, call, turn, journal, start: now(), ...expected })
      const result = yield* Effect.result(store.write({ path: pathOf(root, turn), journal, expectedPrevious }))
      const { kind, details } = result._tag === "Success" ? { kind: null, details: null } : result.failure
      const answer = result._tag === "Success" ? { ...result.success } : { refused: kind, details }
      note({ name, call, end: now(), ...answer })
    }
  })

const store = Layer.fresh(
  JournalStore.layer({ signingKey: null }).pipe(Layer.provide(Databases.layer), Layer.provide(FileDriver.layer()))
)
const pairs = Array.from({ length: Math.ceil(Number(clients) / 2) }, (_, pair) =>
  [2 * pair, 2 * pair + 1].filter((client) => client < Number(clients))
)
const program = Effect.forEach(
  pairs,
  (pair) => {
    const atWork = pair.map((client) => work(`${name}.${client}`, new Dice(Math.floor(dice.roll() * 2 ** 31))))
    return Effect.provide(Effect.all(atWork, { concurrency: "unbounded" }), store)
  },
  { concurrency: "unbounded" }
)

await Effect.runPromise(program)
