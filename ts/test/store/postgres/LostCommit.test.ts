/** A database that is lost while it commits: never a false "failed", never a false "done", nothing twice. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import type { CoreError } from "../../../src/contract/Errors.ts"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import * as PostgresDriver from "../../../src/store/postgres/PostgresDriver.ts"
import { Dice, SEED } from "../../Seed.ts"
import { kindOf, pathOf, plainTurn } from "../Turns.ts"
import { type Network, networkTo } from "./Network.ts"
import { connection, root } from "./Roots.ts"

const first = plainTurn("turn-1", "in_progress", [])
const second = plainTurn("turn-1", "in_progress", ["a"])

/** A root that is reached through a network that can be cut, and directly. */
const cuttable = Effect.gen(function* () {
  const direct = yield* root
  return { direct, network: yield* networkTo(direct) }
})

const store = (timeout: number) =>
  Layer.provide(JournalStore.layer({ signingKey: null }), PostgresDriver.layer({ timeout, maxConnections: 2 }))

const seqs = (journals: JournalStore["Service"], path: string) =>
  Effect.map(journals.history({ path }), ({ transitions }) => transitions.map(({ seq }) => seq))

layer(store(5), { excludeTestServices: true })("a commit whose answer is lost", (it) => {
  for (const cut of ["before", "after", "forgotten"] as const) {
    it.effect(`is found out: ${cut}`, () =>
      Effect.gen(function* () {
        const { direct, network } = yield* cuttable
        const journals = yield* JournalStore
        const path = pathOf(network.url, "turn-1")
        yield* journals.list({ runtimeRoot: network.url })
        // The first line of a turn, and one that follows: they are written by different statements.
        for (const [index, journal] of [first, second].entries()) {
          network.cut(cut)
          const { appended } = yield* journals.write({ path, journal })
          assert.isTrue(appended)
          assert.deepStrictEqual(yield* seqs(journals, pathOf(direct, "turn-1")), index === 0 ? [1] : [1, 2])
        }
        assert.isTrue((yield* journals.verify({ runtimeRoot: direct })).ok)
      })
    )
  }

  it.effect("is found out wherever a pruning is cut, which leaves one line of the history", () =>
    Effect.gen(function* () {
      const { direct, network } = yield* cuttable
      const journals = yield* JournalStore
      // A goal of its own for each, so that each pruning says the same things.
      const prune = (goalId: string) => journals.prune({ runtimeRoot: network.url, goalId, olderThan: 0 })
      const done = (goal: string) =>
        Effect.forEach(
          [
            ["started", []],
            ["in_progress", ["a"]],
            ["committed", ["a", "b", "c"]]
          ] as const,
          ([status, phases]) =>
            journals.write({
              path: pathOf(direct, "turn-1", goal),
              journal: plainTurn("turn-1", status, phases, { goal_id: goal })
            })
        )
      yield* done("goal")
      const begun = network.said()
      yield* prune("goal")
      // A connection that has to be made again says one thing more.
      const messages = network.said() - begun + 1
      assert.isAbove(messages, 5)
      for (let message = 0; message < messages; message++) {
        for (const cut of ["before", "after"] as const) {
          const goal = `goal-${message}-${cut}`
          yield* done(goal)
          network.cut(cut, message)
          const { turns } = yield* prune(goal)
          network.cut(cut, Number.POSITIVE_INFINITY)
          assert.lengthOf(turns, 1, `${cut} message ${message}`)
          assert.lengthOf(yield* seqs(journals, pathOf(direct, "turn-1", goal)), 1)
        }
      }
      assert.isTrue((yield* journals.verify({ runtimeRoot: direct })).ok)
    })
  )

  it.effect("waits for a commit that still runs where nobody listens any more", () =>
    Effect.gen(function* () {
      const { direct, network } = yield* cuttable
      const journals = yield* JournalStore
      const path = pathOf(network.url, "turn-1")
      yield* journals.write({ path, journal: first })
      const schema = new URL(direct).searchParams.get("options")?.split("=")[1]
      const admin = yield* connection
      yield* admin.query("BEGIN")
      yield* admin.query(`SELECT * FROM ${schema}.turn_journal_turns FOR UPDATE`)
      network.cut("forgotten")
      const writing = yield* Effect.forkChild(journals.write({ path, journal: second }))
      const waits = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%turn_journal_turns%'`
      const other = yield* connection
      // The write that nobody listens to, and the question what became of it.
      while ((yield* other.query(waits)).rows.length < 2) yield* Effect.sleep(10)
      yield* admin.query("COMMIT")
      assert.isTrue((yield* Fiber.join(writing)).appended)
      assert.deepStrictEqual(yield* seqs(journals, pathOf(direct, "turn-1")), [1, 2])
    })
  )

  it.effect(`answers as if nothing had been, however often connections are ended (seed ${SEED})`, () =>
    Effect.gen(function* () {
      const dice = new Dice(SEED)
      const url = new URL(yield* root)
      url.searchParams.set("application_name", "victims")
      const journals = yield* JournalStore
      const path = pathOf(url.href, "turn-1")
      yield* journals.write({ path, journal: first })
      const admin = yield* connection
      const end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victims'"
      for (let n = 0; n < 60; n++) {
        const journal = plainTurn("turn-1", "in_progress", ["a"], { n })
        // Somewhere in the middle of it.
        const ending = yield* Effect.forkChild(Effect.andThen(Effect.sleep(dice.roll() * 4), admin.query(end)))
        assert.isTrue((yield* journals.write({ path, journal })).appended, `write ${n}`)
        yield* Fiber.join(ending)
      }
      assert.lengthOf(yield* seqs(journals, path), 61)
      assert.isTrue((yield* journals.verify({ runtimeRoot: url.href })).ok)
    })
  )
})

layer(store(5), { excludeTestServices: true })("a call", (it) => {
  it.effect("is one round trip, but for what has to be read first", () =>
    Effect.gen(function* () {
      const { network } = yield* cuttable
      const journals = yield* JournalStore
      const path = pathOf(network.url, "turn-1")
      const trips = <A, E>(act: Effect.Effect<A, E>) =>
        Effect.suspend(() => {
          const before = network.said()
          return Effect.map(act, () => network.said() - before)
        })
      const other = { ...first, turn_key: "turn-2" }
      yield* journals.write({ path: pathOf(network.url, "turn-2"), journal: other })
      assert.strictEqual(yield* trips(journals.write({ path, journal: first })), 1, "a first write")
      assert.strictEqual(yield* trips(journals.write({ path, journal: second })), 1, "a write that follows")
      assert.strictEqual(yield* trips(journals.write({ path, journal: second })), 1, "a replay")
      assert.strictEqual(yield* trips(journals.read({ path })), 1, "a read")
      const ask = { runtimeRoot: network.url, goalId: "goal-1", agentId: "agent-1", turnKey: "turn-1" }
      assert.strictEqual(yield* trips(journals.inspectStored(ask)), 1, "an inspection")
    })
  )
})

layer(store(1.5), { excludeTestServices: true })("a database that stays away", (it) => {
  const away = (
    act: (network: Network, journals: JournalStore["Service"], path: string) => Effect.Effect<unknown, CoreError>
  ) =>
    Effect.gen(function* () {
      const { network } = yield* cuttable
      const journals = yield* JournalStore
      const path = pathOf(network.url, "turn-1")
      yield* journals.write({ path, journal: first })
      network.open(false)
      network.cut("after")
      const kind = yield* kindOf(act(network, journals, path))
      network.open(true)
      return { kind, journals, path }
    })

  it.effect("is said not to answer, when nothing was changed", () =>
    Effect.gen(function* () {
      const { kind } = yield* away((_, journals, path) => journals.read({ path }))
      assert.strictEqual(kind, "store_unavailable")
    })
  )

  it.effect("is said to have an outcome that is not known, and the same write finds it out", () =>
    Effect.gen(function* () {
      const { kind, journals, path } = yield* away((_, journals, path) => journals.write({ path, journal: second }))
      assert.strictEqual(kind, "store_outcome_unknown")
      assert.isTrue((yield* journals.write({ path, journal: second })).replayed)
      assert.deepStrictEqual(yield* seqs(journals, path), [1, 2])
    })
  )

  it.effect("is not taken for others who write, when each write is lost and nothing else", () =>
    Effect.gen(function* () {
      const { network } = yield* cuttable
      const journals = yield* JournalStore
      const path = pathOf(network.url, "turn-1")
      yield* journals.write({ path, journal: first })
      network.lose("lost on its way")
      const journal = { ...second, note: "lost on its way" }
      assert.strictEqual(yield* kindOf(journals.write({ path, journal })), "store_unavailable")
      assert.deepStrictEqual(yield* seqs(journals, path), [1])
    })
  )

  it.effect("is waited for no longer than is said, behind a row that somebody holds", () =>
    Effect.gen(function* () {
      const { direct } = yield* cuttable
      const journals = yield* JournalStore
      const path = pathOf(direct, "turn-1")
      yield* journals.write({ path, journal: first })
      const holder = yield* connection
      const schema = new URL(direct).searchParams.get("options")?.split("=")[1]
      yield* holder.query("BEGIN")
      yield* holder.query(`SELECT * FROM ${schema}.turn_journal_turns FOR UPDATE`)
      const begun = performance.now()
      assert.strictEqual(yield* kindOf(journals.write({ path, journal: second })), "store_outcome_unknown")
      assert.isBelow(performance.now() - begun, 15_000, "the statement and the look at what became of it, 1.5 s each")
      yield* holder.query("ROLLBACK")
      // Nothing of it is carried out later, and the connections that were given up on are not missed.
      yield* journals.write({ path, journal: second })
      assert.deepStrictEqual(yield* seqs(journals, path), [1, 2])
    })
  )
})
