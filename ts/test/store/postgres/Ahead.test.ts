/** Questions over many turns ask the database for many at once, and get what they would get one by one. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Driver } from "../../../src/store/Driver.ts"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import * as PostgresDriver from "../../../src/store/postgres/PostgresDriver.ts"
import { GOAL, pathOf, plainTurn, wholeTurn } from "../Turns.ts"
import { networkTo } from "./Network.ts"
import { connection, root } from "./Roots.ts"

const TURNS = 70
const LONG = "turn-long"
const stores = JournalStore.layer({ signingKey: null }).pipe(
  Layer.provideMerge(PostgresDriver.layer({ maxConnections: 2 }))
)

/** The same store, for which nothing is read ahead. */
const oneByOne = Effect.gen(function* () {
  const driver = yield* Driver
  const alone = { ...driver, ahead: () => Effect.succeed({ glance: driver.glance, scan: driver.scan }) }
  return yield* Effect.provide(
    JournalStore,
    Layer.provide(JournalStore.layer({ signingKey: null }), Layer.succeed(Driver, alone))
  )
})

layer(stores, { excludeTestServices: true })("many turns", (it) => {
  it.effect("are a statement for 32 of them, and one for each that is long", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const network = yield* networkTo(yield* root)
        const store = yield* JournalStore
        const runtimeRoot = network.url
        for (let number = 0; number < TURNS; number++) {
          const turnKey = `turn-${String(number).padStart(3, "0")}`
          const work = { turnKey, todoId: `todo-${number}`, instanceId: turnKey }
          const written = wholeTurn(work).slice(0, number % 2 === 0 ? 2 : undefined)
          for (const journal of written) yield* store.write({ path: pathOf(runtimeRoot, turnKey), journal })
        }
        const note = { note: "n".repeat(200_000) }
        yield* store.write({ path: pathOf(runtimeRoot, LONG), journal: plainTurn(LONG, "started", [], note) })

        const asked = <A, E>(act: Effect.Effect<A, E>) =>
          Effect.suspend(() => {
            const before = network.said()
            return Effect.map(act, (answer) => ({ answer, trips: network.said() - before }))
          })
        const work = { runtimeRoot, goalId: GOAL, agentId: "agent-1", todoId: "todo-7", turnInstanceId: "turn-007" }
        const questions = {
          list: (one: JournalStore["Service"]) => one.list({ runtimeRoot }),
          recoverable: (one: JournalStore["Service"]) => one.recoverable({ runtimeRoot }),
          findSettlement: (one: JournalStore["Service"]) => one.findSettlement(work),
          verify: (one: JournalStore["Service"]) => one.verify({ runtimeRoot }),
          heads: (one: JournalStore["Service"]) => one.heads({ runtimeRoot })
        }
        // The goals, the keys, three statements for 71 turns (two for the 36 that are open), and the long one.
        const trips = { list: 6, recoverable: 5, findSettlement: 5, verify: 6, heads: 6 }
        const alone = yield* oneByOne
        for (const [name, question] of Object.entries(questions)) {
          const found = yield* asked(question(store) as Effect.Effect<unknown>)
          assert.strictEqual(found.trips, trips[name as keyof typeof trips], name)
          assert.deepStrictEqual(found.answer, yield* question(alone) as Effect.Effect<unknown>, name)
        }
        assert.lengthOf((yield* store.list({ runtimeRoot })).turns, TURNS + 1)
        assert.strictEqual((yield* store.findSettlement(work)).turn_key, "turn-007")

        // Who never saw them sees that they are damaged, too: a journal that is none, and one whose line is gone.
        const admin = yield* connection
        const schema = new URL(runtimeRoot).searchParams.get("options")?.split("=")[1]
        const last = (key: string) =>
          `(turn, line) = (SELECT turn, line FROM ${schema}.turn_journal_turns WHERE turn_key = '${key}')`
        yield* admin.query(`UPDATE ${schema}.turn_journal_transitions SET record = '[]' WHERE ${last("turn-001")}`)
        yield* admin.query(`DELETE FROM ${schema}.turn_journal_transitions WHERE ${last("turn-003")}`)
        const [listed, verified] = yield* Effect.provide(
          Effect.flatMap(JournalStore, (fresh) =>
            Effect.all([fresh.list({ runtimeRoot }), fresh.verify({ runtimeRoot })])
          ),
          Layer.fresh(stores)
        )
        const kinds = listed.turns.map(({ turn_key, damage }) => [turn_key, damage?.kind])
        assert.lengthOf(kinds, TURNS + 1)
        assert.deepStrictEqual(
          kinds.filter(([, kind]) => kind !== undefined),
          [
            ["turn-001", "journal_corrupt"],
            ["turn-003", "journal_corrupt"]
          ]
        )
        assert.deepStrictEqual(
          verified.turns.filter(({ ok }) => !ok).map(({ turn_key }) => turn_key),
          ["turn-001", "turn-003"]
        )
      })
    )
  )
})
