/** What a database keeps as values comes out as the bytes that a file has. */
import { readFileSync } from "node:fs"
import { assert, layer } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Json from "../../../src/contract/Json.ts"
import { Databases } from "../../../src/store/Databases.ts"
import { Driver } from "../../../src/store/Driver.ts"
import * as FileDriver from "../../../src/store/FileDriver.ts"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import { filesOf, type Place } from "../../../src/store/Place.ts"
import { jsonText } from "../../RandomJson.ts"
import { Dice, SEED, SOAK } from "../../Seed.ts"
import { folder, placeOf, plainTurn, settledTurn, wholeTurn } from "../Turns.ts"
import { connection, root } from "./Roots.ts"

const signed = JournalStore.layer({ signingKey: Redacted.make("a key for this test") })
const both = Layer.provideMerge(Databases.layer, FileDriver.layer())

/** Values that `jsonb` refuses, writes otherwise or keeps in another order. */
const ODD = [
  '{"":0,"10":1,"9":2,"__proto__":{"a":1},"constructor":null,"é":[],"\\ud83d\\ude00":{}}',
  '"\\u0000 in the middle \\u0000"',
  '{"\\u0000":"as a key"}',
  '"\\\\u0000 that is none"',
  "[1e300,-1e-300,5e-324,1.7976931348623157e308,0.1,1e21,1e-7,123456789012345680000,-0.0]",
  '"a text like [1e300]"'
]

const journalsOf = (dice: Dice): ReadonlyArray<Json.JsonObject> => {
  const values = [...ODD, ...Array.from({ length: SOAK ? 3000 : 150 }, () => jsonText(dice))]
    .map((text) => Json.parse(text, 100))
    .flatMap((parsed) => (Result.isSuccess(parsed) ? [parsed.success] : []))
  return values.map((odd, n) => plainTurn("turn-1", "in_progress", n === 0 ? [] : ["a"], { odd, n }))
}

/** Writes the journals a millisecond after each other, from the same moment on. */
const write = (place: Place, journals: ReadonlyArray<Json.JsonObject>) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    let now = Date.UTC(2026, 0, 1)
    const clock: Clock.Clock = Object.assign(Object.create(yield* Clock.Clock), { currentTimeMillisUnsafe: () => now })
    for (const journal of journals) {
      const { appended } = yield* Effect.provideService(store.write({ path: place.path, journal }), Clock.Clock, clock)
      assert.isTrue(appended)
      now++
    }
  })

const exported = (place: Place) =>
  Effect.gen(function* () {
    const driver = yield* Driver
    let text = ""
    const ends: Array<number> = []
    const visit = (piece: { readonly text: string; readonly end: string; readonly revision: number }) => {
      text += `${piece.text}${piece.end}`
      ends.push(piece.revision)
      return true
    }
    const { snapshot } = yield* driver.scan(place, visit, "settled")
    return { text, ends, snapshot: Buffer.from(snapshot?.bytes ?? []).toString() }
  })

layer(Layer.provideMerge(signed, both), { excludeTestServices: true })("a history in a database", (it) => {
  it.effect(`is, byte for byte, the one that files have (seed ${SEED})`, () =>
    Effect.gen(function* () {
      const turns = [
        journalsOf(new Dice(SEED)),
        wholeTurn({ turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" }),
        // More than is read at a time.
        Array.from({ length: 12 }, (_, n) =>
          plainTurn("turn-1", "in_progress", n === 0 ? [] : ["a"], { n, bulk: "x".repeat(900_000) })
        )
      ]
      for (const journals of turns) {
        const inFolder = placeOf(yield* folder, "turn-1")
        const inDatabase = placeOf(yield* root, "turn-1")
        for (const place of [inFolder, inDatabase]) yield* write(place, journals)
        const found = yield* exported(inDatabase)
        const lines = readFileSync(filesOf(inFolder).history, "utf8").split("\n")
        for (const [index, line] of found.text.split("\n").entries()) assert.strictEqual(line, lines[index])
        assert.strictEqual(found.text, lines.join("\n"))
        assert.strictEqual(found.snapshot, readFileSync(inFolder.path, "utf8"))
        assert.deepStrictEqual(found, yield* exported(inFolder))
        const store = yield* JournalStore
        const { turns } = yield* store.verify({ runtimeRoot: inDatabase.root ?? "" })
        assert.deepStrictEqual(turns, (yield* store.verify({ runtimeRoot: inFolder.root ?? "" })).turns)
        assert.isTrue(turns[0]?.ok && turns[0].signed)
      }
    })
  )

  it.effect("is kept as values that a query finds, but for those that would lose something", () =>
    Effect.gen(function* () {
      const url = yield* root
      const plain = settledTurn({ turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" }, "in_progress", 0)
      const place = placeOf(url, "turn-1")
      yield* write(place, [plain, { ...plain, odd: "\u0000" }])
      const schema = new URL(url).searchParams.get("options")?.split("=")[1]
      const asked = `SELECT record->'journal'->>'status' AS status, exact IS NULL AS is_value
        FROM ${schema}.turn_journal_transitions ORDER BY line`
      assert.deepStrictEqual(
        (yield* (yield* connection).query(asked)).rows.map((row) => ({ ...row })),
        [
          { status: "in_progress", is_value: true },
          { status: null, is_value: false }
        ]
      )
    })
  )
})
