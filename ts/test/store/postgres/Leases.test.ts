/** One driver a turn on many hosts, by the database's clock: session-recovery.md section 4. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { TurnBusy } from "../../../src/contract/Errors.ts"
import { Databases } from "../../../src/store/Databases.ts"
import * as FileDriver from "../../../src/store/FileDriver.ts"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import { kindOf, pathOf, plainTurn } from "../Turns.ts"
import { networkTo } from "./Network.ts"
import { root } from "./Roots.ts"

const first = plainTurn("turn-1", "in_progress", [])
const second = plainTurn("turn-1", "in_progress", ["a"])
const A = { pid: 1, host: "a" }
const B = { pid: 2, host: "b", said: "\u0000 and 😀" }
const MINUTE = 60_000

const all = JournalStore.layer({ signingKey: null }).pipe(
  Layer.provideMerge(Databases.layer),
  Layer.provide(FileDriver.layer())
)

const open = Effect.gen(function* () {
  const url = yield* root
  return { url, path: pathOf(url, "turn-1"), leases: yield* Databases, store: yield* JournalStore }
})

layer(all, { excludeTestServices: true })("a lease", (it) => {
  it.effect("is one holder's at a time, and says whose", () =>
    Effect.gen(function* () {
      const { url, path, leases, store } = yield* open
      const nobody = { number: null, holder: null, since: null, expires_at: null, remaining_ms: 0 }
      assert.deepStrictEqual(yield* leases.holder(path), nobody)
      const held = yield* leases.acquire({ path, holder: B, ttl_ms: MINUTE })
      assert.strictEqual(held.number, 1)
      const busy = yield* Effect.flip(leases.acquire({ path, holder: A, ttl_ms: MINUTE }))
      assert.instanceOf(busy, TurnBusy)
      const found = yield* leases.holder(path)
      assert.deepStrictEqual({ ...found, remaining_ms: 0 }, { ...busy.details, remaining_ms: 0 } as typeof found)
      assert.deepStrictEqual([found.number, found.holder, found.expires_at], [1, B, held.expires_at])
      assert.isAbove(found.remaining_ms, MINUTE / 2)
      assert.isAtMost(found.remaining_ms, MINUTE)
      // A turn that is leased and not written is none yet.
      assert.lengthOf((yield* store.list({ runtimeRoot: url })).turns, 0)
      assert.strictEqual(yield* kindOf(store.read({ path })), "journal_not_found")
    })
  )

  it.effect("is taken by one of many who ask at once", () =>
    Effect.gen(function* () {
      const { path, leases } = yield* open
      const asked = Array.from({ length: 20 }, (_, pid) =>
        Effect.result(leases.acquire({ path, holder: { pid }, ttl_ms: MINUTE }))
      )
      const answers = yield* Effect.all(asked, { concurrency: "unbounded" })
      assert.lengthOf(
        answers.filter(({ _tag }) => _tag === "Success"),
        1
      )
    })
  )

  it.effect("grows with each holder, is given back once, and is free when its time is up", () =>
    Effect.gen(function* () {
      const { path, leases } = yield* open
      yield* leases.acquire({ path, holder: A, ttl_ms: MINUTE })
      assert.deepStrictEqual(yield* leases.release({ path, number: 1 }), { released: true })
      assert.deepStrictEqual(yield* leases.release({ path, number: 1 }), { released: false })
      assert.strictEqual((yield* leases.holder(path)).holder, null)
      assert.strictEqual(yield* kindOf(leases.renew({ path, number: 1, ttl_ms: MINUTE })), "turn_lease_lost")
      assert.strictEqual((yield* leases.acquire({ path, holder: B, ttl_ms: 1 })).number, 2)
      yield* Effect.sleep(5)
      assert.strictEqual((yield* leases.holder(path)).remaining_ms, 0)
      // Its time is up, and nobody took it: it may still be renewed.
      assert.strictEqual((yield* leases.renew({ path, number: 2, ttl_ms: 1 })).number, 2)
      yield* Effect.sleep(5)
      assert.strictEqual((yield* leases.acquire({ path, holder: A, ttl_ms: MINUTE })).number, 3)
      assert.strictEqual(yield* kindOf(leases.renew({ path, number: 2, ttl_ms: MINUTE })), "turn_lease_lost")
      assert.deepStrictEqual(yield* leases.release({ path, number: 2 }), { released: false })
      const { expires_at } = yield* leases.holder(path)
      const renewed = yield* leases.renew({ path, number: 3, ttl_ms: 2 * MINUTE })
      assert.isAbove(Date.parse(renewed.expires_at), Date.parse(expires_at ?? ""))
    })
  )

  it.effect("fences: who lost it writes nothing, and is not told that anything was written", () =>
    Effect.gen(function* () {
      const { path, leases, store } = yield* open
      const write = (journal: typeof first, lease: number) => store.write({ path, journal, lease })
      assert.strictEqual(yield* kindOf(write(first, 1)), "turn_lease_lost")
      yield* leases.acquire({ path, holder: A, ttl_ms: MINUTE })
      assert.isTrue((yield* write(first, 1)).appended)
      assert.isTrue((yield* write(first, 1)).replayed)
      yield* leases.acquire({ path, holder: B, ttl_ms: MINUTE, take_over: true })
      assert.strictEqual(yield* kindOf(write(first, 1)), "turn_lease_lost")
      assert.strictEqual(yield* kindOf(write(second, 1)), "turn_lease_lost")
      assert.isTrue((yield* write(second, 2)).appended)
      yield* leases.release({ path, number: 2 })
      // The number is the latest until somebody takes another.
      assert.isTrue((yield* write(plainTurn("turn-1", "in_progress", ["a", "b"]), 2)).appended)
      assert.strictEqual((yield* store.read({ path })).seq, 3)
    })
  )

  it.effect("never leaves two who both may write", () =>
    Effect.gen(function* () {
      const { path, leases, store } = yield* open
      yield* store.write({ path, journal: first })
      let current = 0
      const holders = Array.from({ length: 4 }, (_, pid) =>
        Effect.gen(function* () {
          for (let round = 0; round < 15; round++) {
            const { number } = yield* leases.acquire({ path, holder: { pid }, ttl_ms: MINUTE, take_over: true })
            current = Math.max(current, number)
            const journal = plainTurn("turn-1", "in_progress", ["a"], { pid, number })
            const newest = current
            const written = yield* Effect.result(store.write({ path, journal, lease: number }))
            // What was taken over before the write was sent is refused.
            if (number < newest) assert.strictEqual(written._tag, "Failure")
          }
        })
      )
      yield* Effect.all(holders, { concurrency: "unbounded" })
      const { transitions } = yield* store.history({ path })
      const numbers = yield* Effect.forEach(transitions.slice(1), ({ seq }) =>
        Effect.map(store.read({ path, at: seq }), ({ journal }) => Number(journal["number"]))
      )
      assert.deepStrictEqual(
        numbers,
        [...numbers].sort((left, right) => left - right)
      )
    })
  )

  it.effect("is known to whoever took it, also where the answer was lost", () =>
    Effect.gen(function* () {
      const { url, leases } = yield* open
      const network = yield* networkTo(url)
      const path = pathOf(network.url, "turn-1")
      yield* leases.holder(path)
      for (const [index, cut] of (["after", "before", "forgotten"] as const).entries()) {
        network.cut(cut)
        const { number } = yield* leases.acquire({ path, holder: A, ttl_ms: MINUTE })
        assert.strictEqual(number, index + 1)
        yield* leases.release({ path, number })
      }
    })
  )

  it.effect("is one acquisition for one claim, however often it is asked for", () =>
    Effect.gen(function* () {
      const { path, leases } = yield* open
      const ask = { path, holder: A, ttl_ms: MINUTE, claim: "5F0C3B0E-7F0A-4C62-9A55-0D3B8F3F9D11" }
      const held = yield* leases.acquire(ask)
      assert.deepStrictEqual(yield* leases.acquire(ask), held)
      const another = { ...ask, claim: "5f0c3b0e-7f0a-4c62-9a55-0d3b8f3f9d12" }
      assert.strictEqual(yield* kindOf(leases.acquire(another)), "turn_busy")
      yield* leases.release({ path, number: held.number })
      assert.strictEqual((yield* leases.acquire(ask)).number, held.number + 1)
    })
  )

  it.effect("belongs to databases", () =>
    Effect.gen(function* () {
      const { leases, path } = yield* open
      const large = { said: "x".repeat(5000) }
      assert.strictEqual(yield* kindOf(leases.acquire({ path, holder: large, ttl_ms: MINUTE })), "invalid_request")
      assert.strictEqual(yield* kindOf(leases.holder("/tmp/goals/g/turns/k.json")), "invalid_request")
    })
  )
})
