/** What the server does with calls that take time or fail, on methods made for it. */
import { assert, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import {
  type CoreError,
  ERRORS,
  InvalidJournal,
  JournalConflict,
  JournalCorrupt,
  JournalNotFound,
  StoreFailure,
  StoreUnavailable,
  TurnBusy
} from "../../src/contract/Errors.ts"
import { JournalDocument, NoParams } from "../../src/contract/Messages.ts"
import type { Core } from "../../src/rpc/Core.ts"
import { Limits } from "../../src/rpc/Limits.ts"
import * as Method from "../../src/rpc/Method.ts"
import { info, shutdown } from "../../src/rpc/Methods.ts"
import { inMemory } from "./Session.ts"

/** Calls of `wait` go on when the test lets them. */
class Gate extends Context.Service<Gate, { readonly doors: Map<string, Deferred.Deferred<void>>; entered: number }>()(
  "Gate"
) {
  static readonly make = () => ({ doors: new Map<string, Deferred.Deferred<void>>(), entered: 0 })
}

const Text = Schema.Struct({ text: Schema.String })

const toys = [
  Method.make("echo", { params: Text, result: Text }, Effect.succeed),
  Method.make("wait", { params: Text, result: Text }, (params) =>
    Effect.gen(function* () {
      const gate = yield* Gate
      const door = Deferred.makeUnsafe<void>()
      gate.doors.set(params.text, door)
      gate.entered++
      yield* Deferred.await(door)
      return params
    })
  ),
  Method.make("sleep", { params: Schema.Struct({ seconds: Schema.Number }), result: Schema.Number }, ({ seconds }) =>
    Effect.as(Effect.sleep(seconds * 1000), seconds)
  ),
  Method.make("throws", { params: NoParams, result: Schema.Null }, () => {
    throw new Error("a fault at /home/somebody/secret.ts")
  }),
  Method.make("dies", { params: NoParams, result: Schema.Null }, () => Effect.die("a defect")),
  Method.make("diesLater", { params: NoParams, result: Schema.Null }, () =>
    Effect.andThen(Effect.yieldNow, Effect.die("a later defect"))
  ),
  Method.make("unwritable", { params: NoParams, result: Schema.Unknown }, () => Effect.succeed({ big: 1n })),
  Method.make(
    "looks",
    { params: Schema.Struct({ journal: JournalDocument }), result: Schema.Null, journal: "inspected" },
    () => Effect.succeed(null)
  ),
  Method.make("fails", { params: Text, result: Schema.Null }, ({ text }) =>
    Effect.fail(failures[text] ?? failures["TurnBusy"])
  )
]

const details = { field: "value" }
const message = "What is wrong and what to do."
const failures: Record<string, CoreError> & { TurnBusy: CoreError } = {
  InvalidJournal: new InvalidJournal({ kind: "journal_snapshot_invalid", message, details }),
  JournalConflict: new JournalConflict({ kind: "journal_effect_conflict", message, details }),
  JournalNotFound: new JournalNotFound({ kind: "journal_not_found", message, details }),
  JournalCorrupt: new JournalCorrupt({ kind: "history_corrupt", message, details }),
  TurnBusy: new TurnBusy({ kind: "turn_busy", message, details }),
  StoreFailure: new StoreFailure({ kind: "store_full", message, details }),
  StoreUnavailable: new StoreUnavailable({ kind: "store_unavailable", message, details })
}

const methods: ReadonlyArray<Method.Method<Gate | Core | Limits>> = [...toys, info, shutdown]

const open = Effect.fnUntraced(function* (
  queuedRequests = Limits.defaults.queuedRequests,
  journalBytes = Limits.defaults.journalBytes
) {
  const context = yield* Effect.context<never>()
  const gate = Gate.make()
  const logged: Array<string> = []
  const logger = Logger.make(({ cause, message }) => {
    logged.push(`${message} ${Cause.pretty(cause)}`)
  })
  const services = Layer.merge(Layer.succeed(Gate, gate), Logger.layer([logger]))
  const session = inMemory(methods, services, { limits: { ...Limits.defaults, queuedRequests, journalBytes }, context })
  const next = Effect.map(
    Effect.promise(() => session.next()),
    (line) => (line === null ? null : JSON.parse(line))
  )
  yield* next
  return {
    gate,
    logged,
    wire: session.wire,
    next,
    ended: Effect.promise(() => session.ended),
    close: Effect.sync(session.close),
    say: (...lines: ReadonlyArray<string>) =>
      Effect.sync(() => session.send(lines.map((line) => `${line}\n`).join(""))),
    openDoor: (name: string) =>
      Effect.suspend(() => {
        const door = gate.doors.get(name)
        return door === undefined ? Effect.die(`nobody waits at ${name}`) : Deferred.succeed(door, undefined)
      })
  }
})

const request = (id: unknown, method: string, params: unknown = {}) =>
  JSON.stringify({ jsonrpc: "2.0", id, method, params })

it.effect("MUST answer a call that is done before one that came earlier", () =>
  Effect.gen(function* () {
    const { say, next, openDoor } = yield* open()
    yield* say(
      request(1, "wait", { text: "first" }),
      request(2, "wait", { text: "second" }),
      request(3, "echo", { text: "" })
    )
    assert.equal((yield* next).id, 3)
    yield* openDoor("second")
    assert.equal((yield* next).id, 2)
    yield* openDoor("first")
    assert.deepEqual(yield* next, { jsonrpc: "2.0", id: 1, result: { text: "first" } })
  })
)

it.effect("MUST answer a batch with one line, when its last call is done", () =>
  Effect.gen(function* () {
    const { say, next, openDoor } = yield* open()
    yield* say(
      `[${request(1, "wait", { text: "slow" })},${request(2, "echo", { text: "fast" })}]`,
      request(3, "echo", { text: "" })
    )
    assert.equal((yield* next).id, 3)
    yield* openDoor("slow")
    assert.sameMembers(
      (yield* next).map(({ id }: { id: number }) => id),
      [1, 2]
    )
  })
)

it.effect.each(["throws", "dies", "diesLater", "unwritable"])(
  "MUST answer a defect with -32603 and the caller's id, and tell only standard error more: %s",
  (method) =>
    Effect.gen(function* () {
      const { say, next, logged } = yield* open()
      yield* say(request("mine", method), request("other", "echo", { text: "still here" }))
      const answers = [yield* next, yield* next].sort((left, right) => left.id.localeCompare(right.id))
      assert.deepEqual(answers[0], {
        jsonrpc: "2.0",
        id: "mine",
        error: {
          code: -32603,
          message: "The core failed; its standard error says more.",
          data: { kind: "internal_error", error: "InternalError", details: {} }
        }
      })
      assert.equal(answers[1].result.text, "still here")
      assert.match(logged.join("\n"), /fault|defect|BigInt/)
    })
)

it.effect("MUST NOT answer a notification that fails, and MUST say so on standard error", () =>
  Effect.gen(function* () {
    const { say, next, logged } = yield* open()
    yield* say(`{"jsonrpc":"2.0","method":"dies"}`, request(1, "echo", { text: "" }))
    assert.equal((yield* next).id, 1)
    assert.match(logged.join("\n"), /a defect/)
  })
)

it.effect.each(ERRORS.map(({ tag, code }) => ({ tag, code })))(
  "MUST answer $tag with $code, its kind and details",
  ({ tag, code }) =>
    Effect.gen(function* () {
      const { say, next } = yield* open()
      yield* say(request(1, "fails", { text: tag }))
      assert.deepEqual(yield* next, {
        jsonrpc: "2.0",
        id: 1,
        error: { code, message, data: { kind: failures[tag]?.kind, error: tag, details } }
      })
    })
)

it.effect("MUST stop reading when as many calls are open as may be, and read on when answers leave", () =>
  Effect.gen(function* () {
    const { say, next, openDoor, gate, wire } = yield* open(3)
    yield* say(...["a", "b", "c", "d", "e"].map((text) => request(text, "wait", { text })))
    assert.deepEqual([...gate.doors.keys()], ["a", "b", "c"])
    assert.isTrue(wire.paused)
    yield* openDoor("b")
    assert.equal((yield* next).id, "b")
    assert.deepEqual([...gate.doors.keys()], ["a", "b", "c", "d"])
    for (const text of ["a", "c", "d"]) yield* openDoor(text)
    for (let left = 3; left > 0; left--) yield* next
    assert.deepEqual([...gate.doors.keys()], ["a", "b", "c", "d", "e"])
    assert.isFalse(wire.paused)
    yield* openDoor("e")
    assert.equal((yield* next).id, "e")
  })
)

it.effect("MUST count each call of a batch as open", () =>
  Effect.gen(function* () {
    const { say, next, openDoor, wire } = yield* open(3)
    yield* say(`[${["a", "b", "c", "d"].map((text) => request(text, "wait", { text }))}]`)
    assert.isTrue(wire.paused)
    for (const text of ["a", "b", "c"]) yield* openDoor(text)
    yield* openDoor("d")
    assert.equal((yield* next).length, 4)
    assert.isFalse(wire.paused)
  })
)

it.effect("MUST measure a journal as compact JSON, which may be longer than the line that it came in", () =>
  Effect.gen(function* () {
    const { say, next } = yield* open(undefined, 500)
    const looks = (count: number) =>
      request(1, "looks", { journal: "?" }).replace('"?"', `[${Array(count).fill("1e15")}]`)
    yield* say(looks(28), looks(40))
    assert.deepEqual(yield* next, { jsonrpc: "2.0", id: 1, result: null })
    const { error } = yield* next
    assert.deepEqual([error.data.kind, error.data.details], ["journal_too_large", { limit: 500, bytes: 681 }])
  })
)

it.effect("MUST stop reading while the peer does not take its answers", () =>
  Effect.gen(function* () {
    const { say, next, wire } = yield* open()
    wire.busy = true
    yield* say(request(1, "echo", { text: "" }))
    assert.equal((yield* next).id, 1)
    assert.isTrue(wire.paused)
    yield* say(request(2, "echo", { text: "" }))
    wire.catchUp()
    assert.equal((yield* next).id, 2)
    assert.isFalse(wire.paused)
  })
)

it.effect("MUST finish what is in flight when the input ends", () =>
  Effect.gen(function* () {
    const { say, next, close, ended } = yield* open()
    yield* say(request(1, "sleep", { seconds: 4 }))
    yield* close
    yield* TestClock.adjust("4 seconds")
    assert.deepEqual(yield* next, { jsonrpc: "2.0", id: 1, result: 4 })
    assert.isNull(yield* next)
    assert.equal(yield* ended, 0)
  })
)

it.effect("MUST finish what is in flight after runtime.shutdown, and take nothing more", () =>
  Effect.gen(function* () {
    const { say, next, ended } = yield* open()
    yield* say(request(1, "sleep", { seconds: 4 }), request(2, "runtime.shutdown"))
    assert.deepEqual(yield* next, { jsonrpc: "2.0", id: 2, result: { ok: true } })
    yield* TestClock.adjust("1 second")
    yield* say(request(3, "echo", { text: "too late" }))
    yield* TestClock.adjust("3 seconds")
    assert.equal((yield* next).id, 1)
    assert.isNull(yield* next)
    assert.equal(yield* ended, 0)
  })
)

it.effect("MUST NOT wait longer than five seconds for what is in flight", () =>
  Effect.gen(function* () {
    const { say, close, ended, gate } = yield* open()
    yield* say(request(1, "wait", { text: "for ever" }))
    yield* close
    yield* TestClock.adjust("5 seconds")
    assert.equal(yield* ended, 0)
    assert.equal(gate.entered, 1)
  })
)

it.effect("MUST NOT wait longer than five seconds for a peer that takes nothing", () =>
  Effect.gen(function* () {
    const { say, close, ended, wire, openDoor } = yield* open()
    yield* say(request(1, "wait", { text: "answered to nobody" }))
    yield* close
    wire.busy = true
    yield* openDoor("answered to nobody")
    yield* TestClock.adjust("5 seconds")
    assert.equal(yield* ended, 0)
  })
)

it.effect("MUST end at once when nobody listens any more", () =>
  Effect.gen(function* () {
    const { say, ended, wire } = yield* open()
    yield* say(request(1, "wait", { text: "for ever" }))
    wire.hangUp()
    assert.equal(yield* ended, 0)
  })
)
