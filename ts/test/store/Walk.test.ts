/** Pages of a root, as one process after another asks for them. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
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
