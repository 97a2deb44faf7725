/** A damaged turn is made usable again: what is cut is said first, and kept. And leases fence writers off. */
import { readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs"
import { basename, dirname } from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { JsonObject } from "../../src/contract/Json.ts"
import { Driver } from "../../src/store/Driver.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { kindOf, pathOf, placeOf, plainTurn, quickFolder, writeElsewhere } from "./Turns.ts"

const JOURNALS: ReadonlyArray<JsonObject> = [
  plainTurn("turn-1", "in_progress", []),
  plainTurn("turn-1", "in_progress", ["a"]),
  plainTurn("turn-1", "in_progress", ["a", "b"])
]
const LAST = plainTurn("turn-1", "committed", ["a", "b", "c"])

const written = Effect.gen(function* () {
  const store = yield* JournalStore
  const root = yield* quickFolder
  const path = pathOf(root, "turn-1")
  for (const journal of JOURNALS) yield* store.write({ path, journal })
  const files = filesOf(placeOf(root, "turn-1"))
  const lines = readFileSync(files.history, "utf8").split("\n").slice(0, -1)
  return { store, root, path, files, lines }
})

layer(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer())), { excludeTestServices: true })(
  (it) => {
    /** Damages the turn, plans, checks that planning changed nothing, repairs, and goes on. */
    const repaired = (
      damage: (turn: Effect.Success<typeof written>) => void,
      expected: {
        readonly repair: string
        readonly kept: number
        readonly cut: () => string
        readonly standing: JsonObject
      }
    ) =>
      Effect.gen(function* () {
        const turn = yield* written
        const { store, path, files } = turn
        damage(turn)
        const contents = () =>
          [...readdirSync(files.folder)].map((name) => readFileSync(`${files.folder}/${name}`, "latin1"))
        const before = contents()
        const { repair, kept, cut_bytes, plan, done } = yield* store.repair({ path })
        assert.deepStrictEqual(
          { repair, kept, cut_bytes, done },
          { repair: expected.repair, kept: expected.kept, cut_bytes: expected.cut().length, done: false }
        )
        assert.deepStrictEqual(contents(), before, "what is only said changes nothing")
        if (plan === null) return assert.fail("no plan")

        const wrong = plan.replace(/.$/, (digit) => (digit === "0" ? "1" : "0"))
        assert.strictEqual(yield* kindOf(store.repair({ path, plan: wrong })), "journal_previous_conflict")
        assert.isTrue((yield* store.repair({ path, plan })).done)
        const aside = readdirSync(files.folder).filter((name) => name.startsWith(`${basename(files.history)}.cut-`))
        assert.deepStrictEqual(
          aside.map((name) => readFileSync(`${files.folder}/${name}`, "latin1")),
          expected.cut() === "" ? [] : [expected.cut()]
        )
        assert.deepStrictEqual<unknown>((yield* store.read({ path })).journal, expected.standing)
        const root = dirname(dirname(dirname(files.folder)))
        assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok)
        assert.strictEqual((yield* store.repair({ path })).repair, "nothing")
        yield* store.write({ path, journal: LAST })
        assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok)
      })

    const last = JOURNALS[2] as JsonObject

    it.effect("cuts a history before its first damaged line, and goes on with the journal as it stands", () => {
      let cut = ""
      return repaired(
        ({ files, lines: [first = "", second = "", third = ""] }) => {
          cut = [second.replace('"status"', '"Status"'), third, ""].join("\n")
          writeFileSync(files.history, `${first}\n${cut}`)
        },
        { repair: "cut_history", kept: 1, cut: () => cut, standing: last }
      )
    })

    it.effect("cuts what follows the line of the journal that stands, which is not taken over again", () =>
      Effect.gen(function* () {
        const { store, path, files, lines } = yield* written
        writeFileSync(files.history, [...lines, "{}", ""].join("\n"))
        const { repair, plan } = yield* store.repair({ path })
        assert.strictEqual(repair, "cut_history")
        assert.isTrue((yield* store.repair({ path, plan })).done)
        assert.lengthOf((yield* store.history({ path })).transitions, lines.length)
      })
    )

    it.effect("refuses to write to a damaged turn, and leaves it as it is", () =>
      Effect.gen(function* () {
        const { store, path, files, lines } = yield* written
        const damaged = [lines[0], "{}", lines[2], ""].join("\n")
        writeFileSync(files.history, damaged)
        assert.strictEqual(yield* kindOf(store.write({ path, journal: LAST })), "history_corrupt")
        writeFileSync(files.history, [lines[0]?.replace("goal-1", "goal-2"), lines[1], lines[2], ""].join("\n"))
        assert.strictEqual(yield* kindOf(store.write({ path, journal: LAST })), "history_corrupt", "also of one length")
        const dated = statSync(files.history)
        writeFileSync(files.history, [lines[0], lines[1], lines[2], ""].join("\n"))
        utimesSync(files.history, dated.atime, dated.mtime)
        assert.strictEqual((yield* store.write({ path, journal: last })).replayed, true, "it is whole again")
        writeFileSync(files.history, [lines[0]?.replace("goal-1", "goal-2"), lines[1], lines[2], ""].join("\n"))
        utimesSync(files.history, dated.atime, dated.mtime)
        assert.strictEqual(yield* kindOf(store.write({ path, journal: LAST })), "history_corrupt", "also of one date")
        writeFileSync(files.history, damaged)
        assert.strictEqual(yield* kindOf(store.history({ path })), "history_corrupt")
        assert.strictEqual(yield* kindOf(store.read({ path, at: 3 })), "history_corrupt")
        assert.strictEqual(readFileSync(files.history, "utf8"), damaged)
        assert.deepStrictEqual<unknown>((yield* store.read({ path })).journal, last, "the journal can still be read")
      })
    )

    it.effect("brings a journal back that is gone or damaged", () =>
      Effect.gen(function* () {
        const expected = { repair: "restore_snapshot", kept: 3, cut: () => "", standing: last }
        yield* repaired(({ files }) => rmSync(files.snapshot), expected)
        yield* repaired(({ files }) => writeFileSync(files.snapshot, "{"), expected)
      })
    )

    it.effect("takes a journal over that another program put in its place", () =>
      Effect.gen(function* () {
        yield* repaired(({ files }) => writeFileSync(files.snapshot, JSON.stringify(LAST)), {
          repair: "take_snapshot_over",
          kept: 3,
          cut: () => "",
          standing: LAST
        })
      })
    )

    it.effect("cuts what a writer left that was cut off", () =>
      repaired(({ files }) => writeFileSync(files.history, "half a li", { flag: "a" }), {
        repair: "cut_unfinished",
        kept: 3,
        cut: () => "half a li",
        standing: last
      })
    )

    it.effect("keeps what follows several transitions that were put in place and not sealed", () =>
      repaired(
        ({ files, lines }) => writeFileSync(files.history, [...lines.map((line) => `${line}\r`), "half a li"].join("")),
        { repair: "cut_unfinished", kept: 3, cut: () => "half a li", standing: last }
      )
    )

    const MEANWHILE: Record<string, (turn: Effect.Success<typeof written>) => void> = {
      "was written to": ({ path }) => assert.strictEqual(writeElsewhere(path, LAST), "ok"),
      "has another history": ({ files, lines }) => writeFileSync(files.history, [...lines, ""].join("\n")),
      "has another journal": ({ files }) => writeFileSync(files.snapshot, JSON.stringify(last, null, 2))
    }
    for (const [what, change] of Object.entries(MEANWHILE)) {
      it.effect(`carries out no plan for a turn that ${what} between a look at it and its lock`, () =>
        Effect.gen(function* () {
          const turn = yield* written
          const { path, files } = turn
          writeFileSync(files.history, "half a li", { flag: "a" })
          const contents = () => [files.history, files.snapshot].map((file) => readFileSync(file, "utf8"))
          let changed: ReadonlyArray<string> = []
          const overtaken = Layer.effect(
            Driver,
            Effect.map(Driver, (driver) =>
              Driver.of({
                ...driver,
                transact: (place, decide, lease) => {
                  change(turn)
                  changed = contents()
                  return driver.transact(place, decide, lease)
                }
              })
            )
          ).pipe(Layer.provide(FileDriver.layer()))
          yield* Effect.gen(function* () {
            const store = yield* JournalStore
            const { plan } = yield* store.repair({ path })
            assert.strictEqual(yield* kindOf(store.repair({ path, plan })), "journal_previous_conflict")
          }).pipe(Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(overtaken))))
          assert.deepStrictEqual(contents(), changed)
        })
      )
    }

    it.effect("says when nothing is left to repair with", () =>
      Effect.gen(function* () {
        const { store, path, files } = yield* written
        writeFileSync(files.history, "rubbish\n")
        writeFileSync(files.snapshot, "rubbish")
        assert.strictEqual(yield* kindOf(store.repair({ path })), "journal_corrupt")
        assert.strictEqual(readFileSync(files.history, "utf8"), "rubbish\n")
      })
    )

    it.effect("takes the writes of the latest driver only", () =>
      Effect.gen(function* () {
        const { store, path, files } = yield* written
        const since = Date.now()
        const write = (lease: number) => store.write({ path, journal: LAST, lease })
        assert.strictEqual(yield* kindOf(write(1)), "turn_lease_lost")
        writeFileSync(files.lease, JSON.stringify({ number: 2, pid: 1, host: "here", since: 1 }))
        assert.strictEqual(yield* kindOf(write(1)), "turn_lease_lost")
        assert.strictEqual(yield* kindOf(write(3)), "turn_lease_lost")
        assert.isTrue((yield* write(2)).appended)
        assert.strictEqual(yield* kindOf(write(1)), "turn_lease_lost")
        writeFileSync(files.lease, JSON.stringify({ number: 3, pid: 1, host: "here", since: 1 }))
        const retried = yield* store.write({ path, journal: LAST, lease: 2, retrySince: since })
        assert.isTrue(retried.replayed, "it was written while its driver was the latest")
        assert.strictEqual(yield* kindOf(write(2)), "turn_lease_lost")
        for (const text of ["", "{}", '{"number":0}', '{"number":1.5}', "[2]"]) {
          writeFileSync(files.lease, text)
          assert.strictEqual(yield* kindOf(write(3)), "journal_corrupt")
        }
      })
    )
  }
)
