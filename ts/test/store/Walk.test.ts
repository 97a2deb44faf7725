/** Pages of a root, as one process after another asks for them. */
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { MAX_PAGE } from "../../src/contract/Fields.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import * as Place from "../../src/store/Place.ts"
import { plainTurn, quickFolder } from "./Turns.ts"

/** A process that remembers nothing of another one. */
const anew = Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer())), {
  local: true
})

it.live("a page goes on where the one before ended, also for a process that did not give that one", () =>
  Effect.gen(function* () {
    const root = yield* quickFolder
    const turns = ["a", "b", "c"].flatMap((goalId) => ["x", "y"].map((turnKey) => ({ goalId, turnKey })))
    for (const turn of turns) {
      const path = yield* Place.turnJournalPath(root, turn)
      const journal = { ...plainTurn(turn.turnKey, "in_progress", []), goal_id: turn.goalId }
      yield* anew(Effect.flatMap(JournalStore, (store) => store.write({ path, journal })))
    }
    const found: Array<string> = []
    for (let after: string | null = null, pages = 0; pages === 0 || after !== null; pages++) {
      const page = yield* anew(
        Effect.flatMap(JournalStore, (store) => store.list({ runtimeRoot: root, after, limit: 1 }))
      )
      found.push(...page.turns.map(({ goal_id, turn_key }) => `${goal_id}/${turn_key}`))
      after = page.next
      if (pages > turns.length) break
    }
    assert.deepStrictEqual(
      found,
      turns.map(({ goalId, turnKey }) => `${goalId}/${turnKey}`)
    )
  })
)

it.live("a page ends after twice as many turns as it may have, however few of them are wanted", () =>
  Effect.gen(function* () {
    const root = yield* quickFolder
    const count = 2 * MAX_PAGE + 1
    for (let at = 0; at < count; at++) {
      const path = yield* Place.turnJournalPath(root, { goalId: "goal", turnKey: `t-${at}` })
      if (at === 0) mkdirSync(dirname(path), { recursive: true })
      writeFileSync(path, "{}")
    }
    const store = yield* JournalStore
    const first = yield* store.list({ runtimeRoot: root, status: "committed" })
    assert.lengthOf(first.turns, 0)
    assert.isNotNull(first.next, "the answer comes soon")
    assert.isNull((yield* store.list({ runtimeRoot: root, status: "committed", after: first.next })).next)
  }).pipe(anew)
)
