/** Whatever is changed in a turn's files, `verify` says that it was, and where. */
import * as crypto from "node:crypto"
import { copyFileSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { JsonObject } from "../../src/contract/Json.ts"
import type { TurnHead, VerifiedTurn } from "../../src/contract/Store.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { SOAK } from "../Seed.ts"
import { GOAL, kindOf, pathOf, placeOf, plainTurn, quickFolder } from "./Turns.ts"

const JOURNALS: ReadonlyArray<JsonObject> = [
  plainTurn("turn-1", "in_progress", []),
  plainTurn("turn-1", "in_progress", ["a"]),
  plainTurn("turn-1", "in_progress", ["a", "b"]),
  plainTurn("turn-1", "committed", ["a", "b", "c"], { note: "é\ufffd" })
]

const KEY = Redacted.make("a key for this test")
const storeWith = (signingKey: Redacted.Redacted<string> | null) =>
  JournalStore.layer({ signingKey }).pipe(Layer.provide(FileDriver.layer()))

/** Writes the turn and hands its files to a test, which sees the store with a key or without. */
const tampering = (
  signingKey: Redacted.Redacted<string> | null,
  test: (turn: Turn) => Effect.Effect<void, unknown, JournalStore>
) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const root = yield* quickFolder
    for (const journal of JOURNALS) yield* store.write({ path: pathOf(root, "turn-1"), journal })
    const { snapshot, history } = filesOf(placeOf(root, "turn-1"))
    const verify = (heads: ReadonlyArray<TurnHead> | null = null) =>
      Effect.map(
        store.verify({ runtimeRoot: root, goalId: GOAL, turnKey: "turn-1", heads }),
        ({ turns }): VerifiedTurn => turns[0] ?? assert.fail("nothing was verified")
      )
    const { heads } = yield* store.heads({ runtimeRoot: root })
    yield* test({ root, snapshot, history, verify, heads })
  }).pipe(Effect.scoped, Effect.provide(storeWith(signingKey)), Effect.runPromise)

interface Turn {
  readonly root: string
  readonly snapshot: string
  readonly history: string
  readonly verify: (heads?: ReadonlyArray<TurnHead> | null) => Effect.Effect<VerifiedTurn, unknown>
  readonly heads: ReadonlyArray<TurnHead>
}

/** Puts other bytes into a file for the length of one verification. */
const withBytes = (file: string, bytes: Uint8Array, { verify }: Turn) =>
  Effect.gen(function* () {
    const before = readFileSync(file)
    writeFileSync(file, bytes)
    const found = yield* verify()
    writeFileSync(file, before)
    return found
  })

const without = (bytes: Buffer, at: number): Buffer => Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1)])
const changed = (bytes: Buffer, at: number, value: number): Buffer => {
  const copy = Buffer.from(bytes)
  copy[at] = value
  return copy
}
const inserted = (bytes: Buffer, at: number, value: number): Buffer =>
  Buffer.concat([bytes.subarray(0, at), Buffer.from([value]), bytes.subarray(at)])

/** The line that a byte is in, counted from 1. */
const lineOf = (bytes: Buffer, at: number): number => bytes.subarray(0, at).filter((byte) => byte === 10).length + 1

describe("tampering", () => {
  it("shows in every byte of a history, with its line", { timeout: 120_000 }, () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        const bytes = readFileSync(turn.history)
        assert.isTrue((yield* turn.verify()).ok)
        let tried = 0
        for (let at = 0; at < bytes.length; at++) {
          const byte = bytes[at] ?? 0
          const others = [changed(bytes, at, byte ^ 0x80), without(bytes, at), inserted(bytes, at, 0x20)]
          // What is left of a letter of several bytes may be read as the letter for "unreadable", which stands there too.
          const isWhole = SOAK || byte >= 0x80
          const variants = [changed(bytes, at, byte ^ 1), ...(isWhole ? others : [others[at % others.length] ?? bytes])]
          for (const variant of variants) {
            if (variant.equals(bytes)) continue
            const { ok, problem } = yield* withBytes(turn.history, variant, turn)
            const line = lineOf(bytes, at)
            const where = `byte ${at} in line ${line}`
            assert.isFalse(ok, where)
            // A last line without its end is one that no snapshot goes with.
            if (problem?.line === null) assert.deepStrictEqual([problem.kind, line], ["snapshot_not_last", 4], where)
            else assert.strictEqual(problem?.line, line, where)
            tried++
          }
        }
        process.stdout.write(`tampering: ${tried} changes of ${bytes.length} bytes of history\n`)
      })
    )
  )

  it("shows when the end of a line says that the line may not have stood, and a line follows that did", () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        const bytes = readFileSync(turn.history)
        for (let at = 0; at < bytes.length - 1; at++) {
          if (bytes[at] !== 10) continue
          const { ok, problem } = yield* withBytes(turn.history, changed(bytes, at, 13), turn)
          assert.deepStrictEqual([ok, problem?.kind, problem?.line], [false, "line_damaged", lineOf(bytes, at)])
        }
      })
    ))

  it("shows in every byte of a journal", { timeout: 120_000 }, () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        const bytes = readFileSync(turn.snapshot)
        for (let at = 0; at <= bytes.length; at++) {
          const byte = bytes[at] ?? 0
          const variants = [
            inserted(bytes, at, 0x20),
            bytes.subarray(0, at),
            ...(at < bytes.length ? [changed(bytes, at, byte ^ 1), without(bytes, at)] : [])
          ]
          for (const variant of variants) {
            if (variant.equals(bytes)) continue
            const { ok, problem } = yield* withBytes(turn.snapshot, variant, turn)
            assert.isFalse(ok, `byte ${at}`)
            assert.include(["snapshot_damaged", "snapshot_not_last", "snapshot_rewritten"], problem?.kind)
          }
        }
      })
    )
  )

  it("shows when lines are cut, removed, doubled, swapped or put in", () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        const bytes = readFileSync(turn.history)
        for (let length = 0; length < bytes.length; length++) {
          const { ok } = yield* withBytes(turn.history, bytes.subarray(0, length), turn)
          assert.isFalse(ok, `cut to ${length} bytes`)
        }
        const lines = bytes.toString("utf8").split("\n").slice(0, -1)
        const verifyLines = (edited: ReadonlyArray<string>) =>
          withBytes(turn.history, Buffer.from(edited.map((line) => `${line}\n`).join("")), turn)
        for (let index = 0; index < lines.length; index++) {
          const removed = yield* verifyLines(lines.filter((_, at) => at !== index))
          const isLast = index === lines.length - 1
          assert.deepStrictEqual<unknown>(
            [removed.problem?.kind, removed.problem?.line],
            isLast ? ["snapshot_not_last", null] : ["line_out_of_place", index + 1]
          )
          const doubled = yield* verifyLines(lines.flatMap((line, at) => (at === index ? [line, line] : [line])))
          assert.deepStrictEqual([doubled.problem?.kind, doubled.problem?.line], ["line_out_of_place", index + 2])
          if (isLast) continue
          const swapped = [...lines]
          swapped.splice(index, 2, lines[index + 1] ?? "", lines[index] ?? "")
          const { problem } = yield* verifyLines(swapped)
          assert.deepStrictEqual([problem?.kind, problem?.line], ["line_out_of_place", index + 1])
        }
      })
    ))

  it("shows when an older journal is put back", () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        for (const older of JOURNALS.slice(0, -1)) {
          const { problem } = yield* withBytes(turn.snapshot, Buffer.from(JSON.stringify(older)), turn)
          assert.strictEqual(problem?.kind, "snapshot_not_last")
        }
      })
    ))

  it("shows when a journal is written anew that a line follows which never stood", () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        const bytes = readFileSync(turn.history)
        writeFileSync(turn.history, changed(bytes, bytes.length - 1, "\r".charCodeAt(0)))
        const third = (JSON.parse(bytes.toString("utf8").split("\n")[2] ?? "") as { readonly journal: JsonObject })
          .journal
        const stood = yield* withBytes(turn.snapshot, Buffer.from(JSON.stringify(third)), turn)
        assert.deepStrictEqual([stood.ok, stood.unfinished], [true, true])
        const { problem } = yield* withBytes(turn.snapshot, Buffer.from(JSON.stringify(third, null, 2)), turn)
        assert.strictEqual(problem?.kind, "snapshot_rewritten")
      })
    ))

  it("shows when a line in the middle has no signature", () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        const mixed = plainTurn("turn-2", "in_progress", [])
        const path = pathOf(turn.root, "turn-2")
        const write = (journal: JsonObject, key: Redacted.Redacted<string> | null) =>
          Effect.provide(
            Effect.flatMap(JournalStore, (store) => store.write({ path, journal })),
            storeWith(key),
            { local: true }
          )
        yield* write(mixed, null)
        yield* write({ ...mixed, completed_phases: ["a"] }, KEY)
        const store = yield* JournalStore
        const { turns } = yield* store.verify({ runtimeRoot: turn.root, goalId: GOAL, turnKey: "turn-2" })
        assert.deepStrictEqual(
          turns.map(({ ok, signed }) => ({ ok, signed })),
          [{ ok: true, signed: false }]
        )
      })
    ))

  it("shows when a history is taken to another turn", () =>
    tampering(null, ({ root, snapshot, history }) =>
      Effect.gen(function* () {
        const store = yield* JournalStore
        const other = filesOf(placeOf(root, "turn-2"))
        for (const state of ["whole", "pruned"]) {
          if (state === "pruned") {
            const { turns } = yield* store.prune({ runtimeRoot: root, olderThan: 0 })
            assert.include(
              turns.map(({ turn_key, damage }) => (damage === null ? turn_key : "")),
              "turn-1"
            )
          }
          copyFileSync(snapshot, other.snapshot)
          copyFileSync(history, other.history)
          const { turns } = yield* store.verify({ runtimeRoot: root, goalId: GOAL, turnKey: "turn-2" })
          assert.deepStrictEqual(
            turns.map(({ problem }) => [problem?.kind, problem?.line]),
            [["line_out_of_place", 1]],
            state
          )
        }
      })
    ))

  it("shows against heads when the end is cut together with the journal, and not without them", () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        const lines = readFileSync(turn.history, "utf8").split("\n").slice(0, 2)
        writeFileSync(turn.history, lines.map((line) => `${line}\n`).join(""))
        // As the store itself writes it: sorted.
        const journal = (JSON.parse(lines[1] ?? "") as { readonly journal: JsonObject }).journal
        writeFileSync(turn.snapshot, JSON.stringify(journal))
        assert.isTrue((yield* turn.verify()).ok)
        assert.strictEqual((yield* turn.verify(turn.heads)).problem?.kind, "head_missing")
      })
    ))

  it("shows to a writer that knows the history from before", () =>
    Effect.gen(function* () {
      const store = yield* JournalStore
      const root = yield* quickFolder
      const path = pathOf(root, "turn-1")
      const { history } = filesOf(placeOf(root, "turn-1"))
      const [first, second, third, fourth] = JOURNALS.map((journal) => ({ path, journal }))
      if (first === undefined || second === undefined || third === undefined || fourth === undefined) return
      yield* store.write(first)
      yield* store.write(second)
      const bytes = readFileSync(history)
      const at = bytes.indexOf("turn-1")
      writeFileSync(history, changed(bytes, at, "T".charCodeAt(0)))
      assert.strictEqual(yield* kindOf(store.write(third)), "history_corrupt", "in its place")
      writeFileSync(history, bytes)
      yield* store.write(third)

      yield* Effect.provide(
        Effect.flatMap(JournalStore, (other) => other.write(fourth)),
        storeWith(null),
        { local: true }
      )
      writeFileSync(`${history}.new`, changed(readFileSync(history), at, "T".charCodeAt(0)))
      renameSync(`${history}.new`, history)
      assert.strictEqual(yield* kindOf(store.write(fourth)), "history_corrupt", "by another file that is longer")
    }).pipe(Effect.scoped, Effect.provide(storeWith(null)), Effect.runPromise))

  it("shows when the journal is gone, and makes no room for another one", () =>
    tampering(null, ({ root, snapshot, history, verify }) =>
      Effect.gen(function* () {
        const store = yield* JournalStore
        const path = pathOf(root, "turn-1")
        const before = readFileSync(history)
        rmSync(snapshot)
        assert.strictEqual((yield* verify()).problem?.kind, "snapshot_missing")
        const journal = plainTurn("turn-1", "in_progress", [])
        assert.strictEqual(yield* kindOf(store.write({ path, journal })), "history_corrupt")
        assert.strictEqual(yield* kindOf(store.read({ path })), "history_corrupt")
        assert.deepStrictEqual(readFileSync(history), before)
      })
    ))

  it("shows when a line is made to fit", () =>
    tampering(KEY, (turn) =>
      Effect.gen(function* () {
        const text = readFileSync(turn.history, "utf8")
        const start = text.lastIndexOf("\n", text.length - 2) + 1
        for (const [edit, kind] of [
          [(line: string) => line.replace(/"hmac":"[0-9a-f]+"/, '"hmac":"ab"'), "signature_invalid"],
          [(line: string) => line.replace(/"operation_id":"sha256:[0-9a-f]+"/, '"operation_id":"x"'), "line_changed"]
        ] as const) {
          const bare = edit(text.slice(start, -1)).replace(/"hash":"[^"]+",/, "")
          const hash = `"hash":"sha256:${crypto.hash("sha256", bare, "hex")}",`
          const line = bare.replace('"hmac"', `${hash}"hmac"`)
          const { problem } = yield* withBytes(turn.history, Buffer.from(`${text.slice(0, start)}${line}\n`), turn)
          assert.deepStrictEqual([problem?.kind, problem?.line], [kind, 4])
        }
      })
    ))

  it("shows with a key when a whole history is forged", () =>
    tampering(KEY, (turn) =>
      Effect.gen(function* () {
        assert.deepStrictEqual((yield* turn.verify()).signed, true)
        const signed = readFileSync(turn.history, "utf8")
        const forge = (signingKey: Redacted.Redacted<string> | null) =>
          Effect.scoped(
            Effect.gen(function* () {
              const store = yield* JournalStore
              const elsewhere = yield* quickFolder
              const path = pathOf(elsewhere, "turn-1")
              for (const journal of JOURNALS) yield* store.write({ path, journal })
              return readFileSync(filesOf(placeOf(elsewhere, "turn-1")).history, "utf8")
            })
          ).pipe(Effect.provide(storeWith(signingKey), { local: true }))
        for (const [forged, kind] of [
          [yield* forge(null), "signature_missing"],
          [yield* forge(Redacted.make("another key")), "signature_invalid"]
        ] as const) {
          writeFileSync(turn.history, forged)
          const { problem } = yield* turn.verify()
          assert.deepStrictEqual([problem?.kind, problem?.line], [kind, 1])
          const blind = yield* Effect.provide(
            Effect.flatMap(JournalStore, (store) => store.verify({ runtimeRoot: turn.root })),
            storeWith(null),
            { local: true }
          )
          assert.isTrue(blind.ok, "a forged chain is whole in itself")
        }
        const stripped = signed.replaceAll(/"hmac":"[0-9a-f]+",/g, "")
        writeFileSync(turn.history, stripped)
        assert.strictEqual((yield* turn.verify()).problem?.kind, "line_changed")
      })
    ))

  it("is told from a crash: one byte says that a writer was cut off before it could seal", () =>
    tampering(null, (turn) =>
      Effect.gen(function* () {
        const bytes = readFileSync(turn.history)
        const unsealed = changed(bytes, bytes.length - 1, "\r".charCodeAt(0))
        const { ok, unfinished } = yield* withBytes(turn.history, unsealed, turn)
        assert.deepStrictEqual({ ok, unfinished }, { ok: true, unfinished: false })
      })
    ))
})
