/** Runs as wholes: what moves them believes nothing, and one that is driven is not ended from elsewhere. */
import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Payload } from "../../src/run/Payload.ts"
import { make } from "../../src/run/RunJournal.ts"
import { interrupt, type Journal, newPath, withJournal } from "./Journals.ts"

describe("a run that is driven", () => {
  it.live("is not closed through another handle, and may be through its own", () =>
    withJournal((journal, path) =>
      Effect.scoped(
        Effect.gen(function* () {
          const other = yield* make({ path })
          yield* journal.drive("r", (run) =>
            Effect.gen(function* () {
              yield* run.iteration(0)
              const refused = yield* Effect.flip(other.closeRun("r", "cancelled"))
              assert.strictEqual(refused._tag, "TurnBusy")
              yield* journal.closeRun("r", "failed")
            })
          )
          assert.strictEqual((yield* other.runMeta("r"))?.status, "failed")
          yield* interrupt(journal, "s", (run) => run.iteration(0))
          yield* other.closeRun("s", "cancelled")
          assert.deepStrictEqual(yield* journal.interruptedRuns(), [])
        })
      )
    )
  )
})

describe("two runs", () => {
  it.live("part with what each has there, or one of them ends", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        for (const [runId, steps] of [
          ["a", ["iteration", "model_decision"]],
          ["b", ["iteration", "iteration"]],
          ["c", ["iteration"]]
        ] as const) {
          yield* journal.openRun(runId)
          yield* journal.appendMany(steps.map((kind, seq) => ({ runId, seq, kind, payload: { seq } })))
        }
        const parted = yield* journal.diff("a", "b")
        assert.deepStrictEqual([parted?.kinds, parted?.ended], [["model_decision", "iteration"], null])
        const ended = yield* journal.diff("c", "a")
        assert.deepStrictEqual([ended?.seq, ended?.kinds, ended?.ended], [1, [null, "model_decision"], "a"])
      })
    )
  )

  it.live("are forked at a step's number alone", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        yield* journal.openRun("r")
        for (const upto of [-1, 0.5, Number.NaN]) {
          assert.strictEqual((yield* Effect.flip(journal.fork("r", "s", upto)))._tag, "InvalidJournal")
        }
        assert.isNull(yield* journal.runMeta("s"))
      })
    )
  )
})

const exported = (journal: Journal) =>
  Effect.gen(function* () {
    yield* Effect.ignore(
      journal.drive("r", (run) =>
        Effect.andThen(
          run.model(Effect.succeed("hush"), { request: "hush" }),
          run.tool("t", {}, Effect.fail(new Error("the word is hush")))
        )
      )
    )
    return yield* journal.exportRun("r")
  })

/** An export with another value at one place, whose last line vouches for it all the same. */
const edited = (lines: ReadonlyArray<string>, line: number, path: ReadonlyArray<string>, to: unknown) => {
  const found = lines.slice(0, -1).map((text) => JSON.parse(text))
  const place = path.slice(0, -1).reduce((at, name) => at[name], found.at(line))
  place[path.at(-1) ?? ""] = to
  const texts = found.map((value) => JSON.stringify(value))
  const sha256 = createHash("sha256")
    .update(texts.map((text) => `${text}\n`).join(""))
    .digest("hex")
  return [...texts, JSON.stringify({ lines: texts.length, sha256 })]
}

const EDITS: ReadonlyArray<readonly [number, ReadonlyArray<string>, unknown]> = [
  [0, ["run", "run_id"], 5],
  [0, ["run", "agent"], null],
  [0, ["run", "created_at"], "today"],
  [0, ["run", "metadata"], "{}"],
  [0, ["run", "status"], "asleep"],
  [0, ["fence"], "1"],
  [0, ["resumes"], true],
  [0, ["parent"], "r"],
  [0, ["parent"], { run_id: "r", upto: "1" }],
  [1, ["event", "seq"], "first"],
  [1, ["event", "seq"], 1.5],
  [1, ["event", "seq"], -1],
  [1, ["event", "seq"], 2 ** 63],
  [1, ["event", "kind"], null],
  [1, ["event", "kind"], "of another program"],
  [1, ["event", "kind"], 2 ** 60],
  [1, ["else"], 1],
  [1, ["event", "payload"], "text"],
  [1, ["event", "created_at"], null],
  [-1, ["attempt", "seq"], "x"],
  [-1, ["attempt", "next_seq"], "x"],
  [-1, ["attempt", "attempt"], -1],
  [-1, ["attempt", "state"], "asleep"],
  [-1, ["attempt", "kind"], "of another program"]
]

describe("an export", () => {
  it.live("with a field of another type is refused whole", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const lines = yield* exported(journal)
        assert.strictEqual(yield* journal.importRun(edited(lines, 0, ["run", "task"], ""), { overwrite: true }), "r")
        const before = yield* journal.exportRun("r")
        for (const [line, path, to] of EDITS) {
          const refused = yield* Effect.flip(journal.importRun(edited(lines, line, path, to), { overwrite: true }))
          assert.strictEqual(refused._tag, "InvalidJournal", `${path}: ${to}`)
        }
        assert.deepStrictEqual(yield* journal.exportRun("r"), before)
      })
    )
  )

  it.live("of a newer version says that it is", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const newer = edited(yield* exported(journal), 0, ["version"], 2)
        const refused = yield* Effect.flip(journal.importRun(newer, { overwrite: true }))
        assert.deepInclude(refused, { _tag: "StoreFailure", kind: "store_unsupported" })
      })
    )
  )

  it.live("is stored without what may not be kept", () =>
    withJournal((journal) =>
      Effect.scoped(
        Effect.gen(function* () {
          const lines = yield* exported(journal)
          assert.include(lines.join(), "hush")
          const redact = (payload: Payload): Payload => JSON.parse(JSON.stringify(payload).replaceAll("hush", "…"))
          const other = yield* make({ path: newPath(), redact })
          yield* other.importRun(lines)
          const kept = yield* other.exportRun("r")
          assert.notInclude(kept.join(), "hush")
          assert.lengthOf(kept, lines.length)
        })
      )
    )
  )

  it.live("is stored with nothing where nothing may be kept", () =>
    withJournal((journal) =>
      Effect.scoped(
        Effect.gen(function* () {
          const other = yield* make({ path: newPath(), redact: () => ({}) })
          yield* other.openRun("opened", { agent: "a", task: "t", metadata: { m: 1 } })
          yield* other.importRun(yield* exported(journal))
          for (const id of ["opened", "r"]) {
            assert.deepInclude(yield* other.runMeta(id), { agent: "", task: "", metadata: {} })
          }
          const kept = (yield* other.exportRun("r"))
            .map((line) => JSON.parse(line))
            .flatMap((line) => line.attempt ?? [])
          assert.isNotEmpty(kept)
          for (const attempt of kept) assert.deepInclude(attempt, { error_type: "Error", message: "" })
        })
      )
    )
  )
})
