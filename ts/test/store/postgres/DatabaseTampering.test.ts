/** Whatever is changed in the tables, `verify` says where; nothing is written on top, and `repair` keeps what is whole. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import * as PostgresDriver from "../../../src/store/postgres/PostgresDriver.ts"
import { GOAL, kindOf, pathOf, plainTurn } from "../Turns.ts"
import { connection, root } from "./Roots.ts"

const JOURNALS = [[], ["a"], ["a", "b"]].map((completed) => plainTurn("turn-1", "in_progress", completed))
const NEXT = plainTurn("turn-1", "committed", ["a", "b", "c"])

/** What is done to the second of three lines, and the line at which it shows. */
const CHANGES: ReadonlyArray<readonly [string, string, number]> = [
  ["a value of the journal", `SET record = jsonb_set(record, '{journal,status}', '"failed"') WHERE line = 2`, 2],
  ["the time", `SET record = jsonb_set(record, '{at}', '"2001-01-01T00:00:00.000Z"') WHERE line = 2`, 2],
  ["a new field", `SET record = record || '{"more":1}' WHERE line = 2`, 2],
  ["a journal that is none", `SET record = jsonb_set(record, '{journal}', '7') WHERE line = 2`, 2],
  ["no record at all", "SET record = NULL WHERE line = 2", 2],
  ["another text beside it", "SET exact = '{}' WHERE line = 2", 2],
  ["the order", "SET line = CASE line WHEN 2 THEN 13 ELSE 12 END WHERE line > 1", 2],
  ["the last line's hash", `SET record = jsonb_set(record, '{hash}', '"sha256:00"') WHERE line = 3`, 3],
  ["the last line's place", "SET line = 4 WHERE line = 3", 3]
]

// A store that remembers nothing, each time.
const fresh = <A, E>(act: (journals: JournalStore["Service"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(JournalStore, act).pipe(
    Effect.provide(
      Layer.provide(JournalStore.layer({ signingKey: null }), PostgresDriver.layer({ maxConnections: 1 }))
    ),
    Effect.scoped
  )

layer(Layer.empty, { excludeTestServices: true })("a change in the tables", (it) => {
  for (const [what, change, line] of CHANGES) {
    it.effect(`shows, is not built on, and is repaired: ${what}`, () =>
      Effect.gen(function* () {
        const url = yield* root
        const path = pathOf(url, "turn-1")
        yield* fresh((store) => Effect.forEach(JOURNALS, (journal) => store.write({ path, journal })))
        const schema = new URL(url).searchParams.get("options")?.split("=")[1]
        const admin = yield* connection
        const table = (name: string) => `${schema}.turn_journal_${name}`
        yield* admin.query(`UPDATE ${table("transitions")} ${change}`)

        const verify = fresh((store) => store.verify({ runtimeRoot: url, goalId: GOAL, turnKey: "turn-1" }))
        const { turns } = yield* verify
        assert.isFalse(turns[0]?.ok)
        assert.strictEqual(turns[0]?.problem?.line, line)
        assert.strictEqual(yield* fresh((store) => kindOf(store.write({ path, journal: NEXT }))), "history_corrupt")

        const planned = yield* fresh((store) => store.repair({ path }))
        assert.isFalse(planned.done)
        const { done } = yield* fresh((store) => store.repair({ path, plan: planned.plan }))
        assert.isTrue(done)
        assert.isTrue((yield* verify).ok)
        if (planned.cut_bytes > 0) {
          const { rows } = yield* admin.query(`SELECT line FROM ${table("set_aside")}`)
          assert.isAbove(rows.length, 0)
        }
      })
    )
  }

  it.effect("is found although the store remembers the turn, once it is verified", () =>
    Effect.gen(function* () {
      const url = yield* root
      const path = pathOf(url, "turn-1")
      const schema = new URL(url).searchParams.get("options")?.split("=")[1]
      const admin = yield* connection
      yield* fresh((store) =>
        Effect.gen(function* () {
          for (const journal of JOURNALS) yield* store.write({ path, journal })
          yield* admin.query(`DELETE FROM ${schema}.turn_journal_transitions WHERE line = 1`)
          assert.isFalse((yield* store.verify({ runtimeRoot: url })).ok)
        })
      )
    })
  )

  it.effect("leaves no memory of a turn that is gone", () =>
    Effect.gen(function* () {
      const url = yield* root
      const path = pathOf(url, "turn-1")
      const schema = new URL(url).searchParams.get("options")?.split("=")[1]
      const admin = yield* connection
      yield* fresh((store) =>
        Effect.gen(function* () {
          for (const journal of JOURNALS) yield* store.write({ path, journal })
          yield* admin.query(`TRUNCATE ${schema}.turn_journal_turns, ${schema}.turn_journal_transitions`)
          const ask = { runtimeRoot: url, goalId: GOAL, agentId: "agent-1", turnKey: "turn-1" }
          assert.strictEqual(yield* kindOf(store.inspectStored(ask)), "journal_not_found")
          assert.strictEqual(yield* kindOf(store.write({ path, journal: NEXT })), "journal_transition_conflict")
          for (const journal of JOURNALS) assert.isTrue((yield* store.write({ path, journal })).appended)
          assert.strictEqual((yield* store.read({ path })).seq, 3)
        })
      )
    })
  )
})
