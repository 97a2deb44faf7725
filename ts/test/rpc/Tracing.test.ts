/** What a traced call says of itself. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { InvalidJournal } from "../../src/contract/Errors.ts"
import * as Dispatcher from "../../src/rpc/Dispatcher.ts"
import { Limits } from "../../src/rpc/Limits.ts"
import * as Method from "../../src/rpc/Method.ts"

const Empty = Schema.Struct({})

const methods = [
  Method.make("nested", { params: Empty, result: Schema.Number }, () =>
    Effect.sleep("2 seconds").pipe(Effect.withSpan("inner"), Effect.as(7))
  ),
  Method.make("outlived", { params: Empty, result: Schema.Number }, () =>
    Effect.never.pipe(
      Effect.withSpan("late"),
      Effect.forkDetach({ startImmediately: true }),
      Effect.andThen(Effect.void.pipe(Effect.withSpan("inmost"), Effect.withSpan("inner"))),
      Effect.as(7)
    )
  ),
  Method.make("fails", { params: Empty, result: Schema.Null }, () =>
    Effect.fail(new InvalidJournal({ kind: "invalid_request", message: "No.", details: {} }))
  )
]

const ask = Effect.fnUntraced(function* (request: object) {
  const dispatcher = yield* Dispatcher.make(methods, Limits.defaults)
  const answered = Effect.callback<string | null>((resume) => {
    dispatcher.line(new TextEncoder().encode(JSON.stringify({ jsonrpc: "2.0", id: 1, ...request })), (line) =>
      resume(Effect.succeed(line))
    )
  })
  const fiber = yield* Effect.forkChild(answered, { startImmediately: true })
  yield* TestClock.adjust("3 seconds")
  return JSON.parse((yield* Fiber.join(fiber)) ?? "null")
})

it.effect("a traced call answers with its spans, the call's own first", () =>
  Effect.gen(function* () {
    const answer = yield* ask({ method: "nested", params: {}, trace: true })
    assert.strictEqual(answer.result, 7)
    assert.deepStrictEqual(answer.spans, [
      { name: "nested", parent: null, start: "0", end: "2000000000", ok: true },
      { name: "inner", parent: 0, start: "0", end: "2000000000", ok: true }
    ])
  })
)

it.effect("a traced call leaves out the spans that have not ended, and names the parents among those it tells", () =>
  Effect.gen(function* () {
    const answer = yield* ask({ method: "outlived", params: {}, trace: true })
    assert.deepStrictEqual(
      answer.spans.map(({ name, parent }: { name: string; parent: number | null }) => ({ name, parent })),
      [
        { name: "outlived", parent: null },
        { name: "inner", parent: 0 },
        { name: "inmost", parent: 1 }
      ]
    )
  })
)

it.effect("a traced call that fails says so", () =>
  Effect.gen(function* () {
    const answer = yield* ask({ method: "fails", params: {}, trace: true })
    assert.strictEqual(answer.error.data.kind, "invalid_request")
    assert.deepStrictEqual(answer.spans, [{ name: "fails", parent: null, start: "0", end: "0", ok: false }])
  })
)

it.effect("a call that is not traced answers without", () =>
  Effect.gen(function* () {
    for (const trace of [false, null, "true", 1]) {
      assert.notProperty(yield* ask({ method: "nested", params: {}, trace }), "spans")
    }
  })
)
