/** What the shared cases cannot say: files, owners, parallel steps, waiting. run-journal.md, sections 1, 4 and 5. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { CurrentIdempotencyKey, type DurableRun } from "../../src/run/DurableRun.ts"
import type { Payload, Value } from "../../src/run/Payload.ts"
import { make, RunJournal } from "../../src/run/RunJournal.ts"
import { SCHEMA_VERSION } from "../../src/run/Schema.ts"
import { interrupt, newPath, withJournal } from "./Journals.ts"

describe("files", () => {
  it.live("new files are the user's alone", () =>
    withJournal((journal, path) =>
      journal.drive("r", (run) =>
        Effect.map(run.iteration(0), () => {
          const files = [path, `${path}-wal`, `${path}-shm`]
          const locks = readdirSync(`${path}.owners`).map((name) => join(`${path}.owners`, name))
          for (const file of [...files, ...locks]) assert.strictEqual(statSync(file).mode & 0o777, 0o600, file)
          assert.strictEqual(statSync(`${path}.owners`).mode & 0o777, 0o700)
          assert.lengthOf(locks, 1)
        })
      )
    )
  )

  it.effect("a path that is a database's is refused, and makes no folder of that name", () =>
    Effect.gen(function* () {
      for (const path of [
        "postgresql://user:secret@127.0.0.1/runs",
        "postgres://127.0.0.1/runs",
        "sqlite:///runs.db"
      ]) {
        const error = yield* Effect.flip(Effect.scoped(make({ path })))
        assert.deepInclude(error, { _tag: "InvalidJournal", kind: "invalid_request" })
        assert.notInclude(error.message, "secret")
        assert.isFalse(existsSync("postgresql:") || existsSync("postgres:"))
      }
    })
  )

  it.effect("what is no file is named, and not taken for a fault of the disk", () =>
    Effect.gen(function* () {
      const folder = tmpdir()
      for (const [path, what] of [
        [folder, `is a folder: name a file in it, as ${join(folder, "runs.db")}`],
        ["/dev/null", "is no plain file"]
      ] as const) {
        const error = yield* Effect.flip(Effect.scoped(make({ path })))
        assert.deepInclude(error, { kind: "store_unsafe_path", details: { path } })
        assert.include(error.message, what)
      }
    })
  )

  it.effect.skipIf(process.platform !== "linux")(
    "a folder that cannot be made is an error, and not tried for ever",
    () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(Effect.scoped(make({ path: "/proc/none/deeper/journal.db" })))
        assert.strictEqual(error._tag, "StoreFailure")
        assert.include(error.message, "/proc/none/deeper/journal.db cannot be made")
      })
  )

  it.live("the settings in use are those of the durability", () =>
    Effect.gen(function* () {
      for (const [durability, synchronous] of [
        ["process", 1],
        ["power", 2]
      ] as const) {
        const settings = yield* Effect.scoped(
          Effect.flatMap(make({ path: newPath(), durability }), (journal) => journal.settings)
        )
        assert.deepInclude(settings, { journal_mode: "wal", synchronous })
      }
    })
  )

  for (const content of ["not a database, but a text of some length\n".repeat(50), "x"]) {
    it.live(`a file that is no database is refused untouched: ${content.slice(0, 20)}`, () =>
      Effect.gen(function* () {
        const path = join(mkdtempSync(join(tmpdir(), "run-journal-")), "journal.db")
        writeFileSync(path, content)
        const error = yield* Effect.flip(Effect.scoped(make({ path })))
        assert.strictEqual(error.kind, "journal_corrupt")
        assert.strictEqual(readFileSync(path, "utf8"), content)
      })
    )
  }

  for (const [table, said] of [
    ["runs", "no run journal"],
    ["orders", "of something else"]
  ] as const) {
    it.live(`a database of somebody else, with ${table}, is refused untouched`, () =>
      Effect.gen(function* () {
        const path = join(mkdtempSync(join(tmpdir(), "run-journal-")), "app.db")
        const other = new DatabaseSync(path)
        other.exec(`CREATE TABLE ${table} (id INTEGER, distance REAL)`)
        other.close()
        const before = readFileSync(path)
        const error = yield* Effect.flip(Effect.scoped(make({ path })))
        assert.strictEqual(error.kind, "journal_corrupt")
        assert.include(error.message, said)
        assert.isTrue(before.equals(readFileSync(path)))
      })
    )
  }

  it.live("a newer file is refused with its bytes unchanged", () =>
    Effect.gen(function* () {
      const path = newPath()
      yield* Effect.scoped(Effect.flatMap(make({ path }), (journal) => journal.openRun("r")))
      const newer = new DatabaseSync(path)
      newer.exec(`PRAGMA user_version = ${SCHEMA_VERSION + 1}`)
      newer.close()
      const before = readFileSync(path)
      const error = yield* Effect.flip(Effect.scoped(make({ path })))
      assert.deepInclude(error, { _tag: "StoreFailure", kind: "store_unsupported" })
      assert.isTrue(before.equals(readFileSync(path)))
    })
  )

  it.live("a closed journal refuses", () =>
    Effect.gen(function* () {
      const journal = yield* Effect.scoped(make({ path: newPath() }))
      const error = yield* Effect.flip(journal.openRun("r"))
      assert.deepInclude(error, { _tag: "StoreFailure", kind: "store_io_failed" })
    })
  )

  it.live("a writer waits for the writer before it, without holding up the process", () =>
    withJournal((journal, path) =>
      Effect.gen(function* () {
        const other = new DatabaseSync(path)
        other.exec("BEGIN IMMEDIATE")
        const writing = yield* Effect.forkChild(journal.openRun("r"), { startImmediately: true })
        yield* Effect.sleep(60)
        assert.isUndefined(writing.pollUnsafe())
        other.exec("COMMIT")
        other.close()
        yield* Fiber.join(writing)
        assert.deepStrictEqual(yield* journal.interruptedRuns(), ["r"])
      })
    )
  )

  it.live("a backup is whole and replaces nothing", () =>
    withJournal((journal, path) =>
      Effect.gen(function* () {
        yield* journal.append({ runId: "r", seq: 0, kind: "iteration", payload: { index: 7 } })
        const copy = `${path}.copy`
        yield* journal.backup(copy)
        assert.strictEqual((yield* Effect.flip(journal.backup(copy))).kind, "journal_transition_conflict")
        const found = yield* Effect.scoped(Effect.flatMap(make({ path: copy }), (other) => other.lastIteration("r")))
        assert.strictEqual(found, 7)
      })
    )
  )

  it.live("the layer gives one journal", () =>
    Effect.gen(function* () {
      const journal = yield* RunJournal
      yield* journal.openRun("r")
      assert.deepStrictEqual(yield* journal.interruptedRuns(), ["r"])
    }).pipe(Effect.provide(Layer.fresh(RunJournal.layer({ path: ":memory:" }))))
  )
})

describe("payloads", () => {
  const odd: ReadonlyArray<readonly [string, unknown, Value]> = [
    ["NaN", Number.NaN, "nan"],
    ["infinities", [Infinity, -Infinity], ["inf", "-inf"]],
    ["a date", new Date(0), "1970-01-01T00:00:00.000Z"],
    ["a symbol", Symbol.for("x"), "Symbol(x)"],
    ["a map", new Map(), "[object Map]"],
    ["undefined members", { a: undefined, b: 1 }, { b: 1 }],
    ["undefined items", [undefined], [null]],
    ["negative zero", -0, -0],
    ["big integers", [2n ** 64n, -(10n ** 40n)], [2n ** 64n, -(10n ** 40n)]],
    ["doubles that are whole", [1e20, 2 ** 53, 1.5e300], [1e20, 2 ** 53, 1.5e300]],
    ["halves of surrogate pairs", { "\udc00": ["\ud83d", 2n] }, { "\udc00": ["\ud83d", 2] }],
    ["__proto__", JSON.parse('{"__proto__": 1}'), JSON.parse('{"__proto__": 1}')]
  ]
  for (const [name, value, expected] of odd) {
    it.live(`${name} are stored as they should`, () =>
      withJournal((journal) =>
        Effect.gen(function* () {
          yield* journal.append({ runId: "r", seq: 0, kind: "model_decision", payload: { value } })
          const [event] = yield* journal.events("r")
          assert.deepStrictEqual(event?.payload["value"], expected)
        })
      )
    )
  }

  const itself: Record<string, unknown> = { a: [] }
  ;(itself["a"] as Array<unknown>).push(itself)
  const refused: ReadonlyArray<readonly [string, unknown, string]> = [
    ["a payload that refers to itself", itself, "refers_to_itself"],
    ["an object without a text", { a: new Date(Number.NaN) }, "has_no_text"],
    ["129 levels", { a: nested(129) }, "too_deep"],
    ["a list", [1], "not_json"]
  ]
  for (const [name, payload, reason] of refused) {
    it.live(`${name} is refused`, () =>
      withJournal((journal) =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(journal.append({ runId: "r", seq: 0, kind: "iteration", payload }))
          assert.strictEqual(error.details["reason"], reason)
          assert.deepStrictEqual(yield* journal.events("r"), [])
        })
      )
    )
  }

  it.live("ten megabytes survive", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const payload = { text: "ü".repeat(5_000_000), items: Array.from({ length: 20_000 }, (_, id) => ({ id })) }
        yield* journal.append({ runId: "r", seq: 0, kind: "model_decision", payload })
        const [event] = yield* journal.events("r")
        assert.deepStrictEqual(event?.payload, payload)
      })
    )
  )

  it.live("128 levels survive", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const payload = { a: nested(128) } as Payload
        yield* journal.append({ runId: "r", seq: 0, kind: "iteration", payload })
        assert.deepStrictEqual((yield* journal.events("r"))[0]?.payload, payload)
      })
    )
  )
})

function nested(depth: number): unknown {
  let value: unknown = 0
  for (let level = 0; level < depth; level++) value = [value]
  return value
}

describe("runs", () => {
  it.live("parallel steps are numbered as they start and replay whatever order they end in", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const ended: Array<string> = []
        const loop = (lastFirst: boolean) => (run: DurableRun) =>
          Effect.gen(function* () {
            const names = ["a", "b", "c"]
            const gates = new Map(
              yield* Effect.forEach(names, (name) => Effect.map(Deferred.make<void>(), (gate) => [name, gate] as const))
            )
            const order = lastFirst ? names.toReversed() : names
            const tool = (name: string) =>
              Effect.gen(function* () {
                const before = order[order.indexOf(name) - 1]
                const gate = before === undefined ? undefined : gates.get(before)
                if (gate !== undefined) yield* Deferred.await(gate)
                ended.push(name)
                const own = gates.get(name)
                if (own !== undefined) yield* Deferred.succeed(own, undefined)
                return [name, yield* CurrentIdempotencyKey]
              })
            return yield* Effect.all(
              names.map((name) => run.tool("t", { name }, tool(name))),
              { concurrency: "unbounded" }
            )
          })
        const results = [yield* journal.drive("one", loop(true)), yield* journal.drive("two", loop(false))]
        assert.deepStrictEqual(ended, ["c", "b", "a", "a", "b", "c"])
        assert.deepStrictEqual(results[0], [
          ["a", "one:0:t"],
          ["b", "one:1:t"],
          ["c", "one:2:t"]
        ])
        assert.deepStrictEqual(yield* journal.drive("one", loop(false)), results[0])
        assert.lengthOf(ended, 6)
        assert.strictEqual((yield* journal.diff("one", "two"))?.fields[0], "result")
      })
    )
  )

  it.live("a second driver is refused, and a drive that ends frees the run", () =>
    withJournal((journal, path) =>
      Effect.gen(function* () {
        const other = yield* make({ path })
        const busy = yield* journal.drive("r", (run) =>
          Effect.gen(function* () {
            yield* run.iteration(0)
            assert.deepStrictEqual(yield* other.interruptedRuns(), [])
            assert.deepStrictEqual(yield* other.interruptedRuns({ includeOwned: true }), ["r"])
            return [
              yield* Effect.flip(other.drive("r", () => Effect.void)),
              yield* Effect.flip(journal.drive("r", () => Effect.void)),
              yield* Effect.flip(other.deleteRun("r"))
            ]
          })
        )
        assert.deepStrictEqual(
          busy.map((error) => error._tag),
          ["TurnBusy", "TurnBusy", "TurnBusy"]
        )
        assert.strictEqual(yield* other.drive("r", (run) => run.iteration(0)), 0)
      }).pipe(Effect.scoped)
    )
  )

  it.live("an interrupted drive is freed and its tool is uncertain", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const begun = yield* Deferred.make<void>()
        const hangs = Effect.andThen(Deferred.succeed(begun, undefined), Effect.never)
        const driving = yield* Effect.forkChild(journal.drive("r", (run) => run.tool("t", {}, hangs)))
        yield* Deferred.await(begun)
        yield* Fiber.interrupt(driving)
        assert.deepStrictEqual(yield* journal.interruptedRuns(), ["r"])
        assert.deepStrictEqual(
          (yield* journal.uncertain("r")).map(({ tool }) => tool),
          ["t"]
        )
      })
    )
  )

  it.live("after a divergence the drive takes no further step and is not closed", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        yield* interrupt(journal, "r", (run) => run.iteration(0))
        const ran: Array<string> = []
        yield* journal.drive("r", (run) =>
          Effect.gen(function* () {
            assert.strictEqual((yield* Effect.flip(run.iteration(1)))._tag, "ReplayDivergence")
            const next = Effect.flip(
              run.tool(
                "t",
                {},
                Effect.sync(() => ran.push("t"))
              )
            )
            assert.strictEqual((yield* next)._tag, "ReplayDivergence")
          })
        )
        assert.deepStrictEqual([ran, yield* journal.interruptedRuns()], [[], ["r"]])
      })
    )
  )

  it.live("a tool fails in the same way live and on replay", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        class NoSuchCity extends Data.TaggedError("NoSuchCity")<{ readonly message: string }> {}
        const loop = (run: DurableRun) =>
          Effect.gen(function* () {
            const error = yield* Effect.flip(run.tool("t", {}, Effect.fail(new NoSuchCity({ message: "Atlantis" }))))
            yield* run.iteration(0)
            assert.strictEqual(error._tag, "RecordedToolError")
            return [error.message, error.details["error_type"] as string]
          })
        yield* interrupt(journal, "r", loop)
        assert.deepStrictEqual(yield* journal.drive("r", loop), ["Atlantis", "NoSuchCity"])
      })
    )
  )

  it.live("a run that is not there is told apart from a step that is not", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        yield* journal.openRun("r")
        for (const [runId, settling, deciding] of [
          ["nobody", 'No run "nobody"', 'No run "nobody"'],
          ["r", "no tool call at step 0", "asked nothing at step 0"]
        ] as const) {
          assert.include((yield* Effect.flip(journal.settle(runId, 0, { absent: true }))).message, settling)
          assert.include((yield* Effect.flip(journal.approve(runId, 0, "yes", "me"))).message, deciding)
        }
      })
    )
  )

  it.live("a tool that fails without a message fails with its name", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        class Refused extends Data.TaggedError("Refused")<{ readonly token: string }> {}
        for (const [runId, failure] of [
          ["error", new Refused({ token: "secret" })],
          ["object", { _tag: "Refused", token: "secret" }],
          ["number", { _tag: "Refused", message: 5 }]
        ] as const) {
          const loop = (run: DurableRun) =>
            Effect.flatMap(Effect.flip(run.tool("t", {}, Effect.fail(failure))), ({ message, details }) =>
              Effect.as(run.iteration(0), [message, details["message"]])
            )
          yield* interrupt(journal, runId, loop)
          assert.deepStrictEqual(yield* journal.drive(runId, loop), ["Refused", ""])
        }
      })
    )
  )

  it.live("a tool that throws fails with what it threw", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const throwing = () => {
          throw new RangeError("no such seat")
        }
        const works: ReadonlyArray<readonly [string, Effect.Effect<never, unknown>, Array<string>]> = [
          ["promise", Effect.tryPromise(async () => throwing()), ["RangeError", "no such seat"]],
          ["sync", Effect.try(throwing), ["RangeError", "no such seat"]],
          ["text", Effect.fail("no such seat"), ["string", "no such seat"]],
          ["nothing", Effect.fail(null), ["object", "null"]]
        ]
        for (const [runId, work, expected] of works) {
          const loop = (run: DurableRun) =>
            Effect.flatMap(Effect.flip(run.tool("t", {}, work)), ({ message, details }) =>
              Effect.as(run.iteration(0), [details["error_type"], message])
            )
          yield* interrupt(journal, runId, loop)
          assert.deepStrictEqual(yield* journal.drive(runId, loop), expected)
        }
      })
    )
  )

  it.live("a payload that is damaged is named, and not quoted", () =>
    withJournal((journal, path) =>
      Effect.gen(function* () {
        yield* journal.drive("r", (run) => run.iteration(0))
        const database = new DatabaseSync(path)
        database.exec(`UPDATE journal SET payload = CAST('{"token": secret' AS BLOB)`)
        database.close()
        const error = yield* Effect.flip(journal.events("r"))
        assert.strictEqual(error._tag, "JournalCorrupt")
        assert.include(error.message, 'run "r", step 0')
        assert.notInclude(error.message, "secret")
      })
    )
  )

  it.live("redaction spares the loop, and the replay still matches", () =>
    Effect.gen(function* () {
      const path = newPath()
      const hide = (value: Value): Value => {
        if (Array.isArray(value)) return value.map(hide)
        if (typeof value !== "object" || value === null) return value
        return Object.fromEntries(
          Object.entries(value).map(([key, item]) => [key, key === "token" ? "***" : hide(item)])
        )
      }
      const seen: Array<Value> = []
      yield* Effect.scoped(
        Effect.gen(function* () {
          const journal = yield* make({ path, redact: (payload) => hide(payload) as Payload })
          const loop = (run: DurableRun) =>
            Effect.gen(function* () {
              seen.push(yield* run.tool("t", { token: "s3cret-in" }, Effect.succeed({ token: "s3cret-out" })))
              yield* run.model(Effect.succeed({ token: "s3cret-model" }), { request: { token: "s3cret-key", p: 1 } })
            })
          yield* interrupt(journal, "r", loop)
          yield* journal.drive("r", loop)
        })
      )
      assert.deepStrictEqual(seen, [{ token: "s3cret-out" }, { token: "***" }])
      for (const file of [path, `${path}-wal`]) {
        if (existsSync(file)) assert.notInclude(readFileSync(file, "latin1"), "s3cret")
      }
    })
  )
})
