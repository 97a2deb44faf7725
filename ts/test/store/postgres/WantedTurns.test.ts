/** Whoever looks for the turns that are not over does not look at those that are: most are. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Driver } from "../../../src/store/Driver.ts"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import * as PostgresDriver from "../../../src/store/postgres/PostgresDriver.ts"
import { GOAL, pathOf, plainTurn } from "../Turns.ts"
import { connection, root } from "./Roots.ts"

const DONE = ["a", "b", "c"]
const stores = JournalStore.layer({ signingKey: null }).pipe(Layer.provideMerge(PostgresDriver.layer()))

layer(stores, { excludeTestServices: true })("the turns that are wanted", (it) => {
  it.effect("are those of a status, those that are open, and those whose status nobody can tell", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const url = yield* root
        const store = yield* JournalStore
        const driver = yield* Driver
        const write = Effect.fnUntraced(function* (
          key: string,
          status: string,
          completed: ReadonlyArray<string>,
          more = {}
        ) {
          for (const journal of [plainTurn(key, "started", [], more), plainTurn(key, status, completed, more)]) {
            yield* store.write({ path: pathOf(url, key), journal })
          }
        })
        yield* write("committed", "committed", DONE)
        yield* write("begun", "started", [])
        yield* write("open", "in_progress", ["a"])
        // Kept as a text, which the database does not look into.
        yield* write("text", "committed", DONE, { note: "\u0000" })
        yield* write("tampered", "committed", DONE)
        const admin = yield* connection
        const schema = new URL(url).searchParams.get("options")?.split("=")[1]
        yield* admin.query(
          `UPDATE ${schema}.turn_journal_transitions SET record = '[]' WHERE turn =
            (SELECT turn FROM ${schema}.turn_journal_turns WHERE turn_key = 'tampered')`
        )
        const keys = (status: string | null, open: boolean) => driver.turns(url, GOAL, { status, open })
        assert.deepStrictEqual(yield* keys(null, true), ["begun", "open", "tampered", "text"])
        assert.deepStrictEqual(yield* keys("started", false), ["begun", "tampered", "text"])
        assert.deepStrictEqual(yield* keys(null, false), yield* driver.turns(url, GOAL))
        assert.lengthOf(yield* keys(null, false), 5)

        // The pages of two listings, one beside the other, have nothing to do with each other.
        const first = yield* store.list({ runtimeRoot: url, limit: 1 })
        const open = yield* store.recoverable({ runtimeRoot: url, limit: 1 })
        const rest = yield* store.list({ runtimeRoot: url, after: first.next })
        assert.deepStrictEqual(
          [...first.turns, ...rest.turns].map(({ turn_key }) => turn_key),
          ["begun", "committed", "open", "tampered", "text"]
        )
        const later = yield* store.recoverable({ runtimeRoot: url, after: open.next })
        assert.deepStrictEqual(
          [...open.turns, ...later.turns].map(({ turn_key }) => turn_key),
          ["begun", "open"]
        )
      })
    )
  )
})
