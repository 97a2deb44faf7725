/** The power goes at every moment of a turn's life, and the file system is left in any state that it may be left in. */
import { closeSync, constants, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { JsonObject } from "../../src/contract/Json.ts"
import { operationId } from "../../src/journal/OperationId.ts"
import { type Disk, nodeDisk, type Step } from "../../src/store/Disk.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { Dice, SEED, SOAK } from "../Seed.ts"
import { fingerprint, materialize, PowerDisk, type Tree } from "./PowerDisk.ts"
import { pathOf, placeOf, quickFolder, wholeTurn } from "./Turns.ts"

const TURN = { turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" }
const JOURNALS = wholeTurn(TURN)
const journal = (index: number): JsonObject => JOURNALS[index] ?? assert.fail("no such journal")
/** Different states for one moment. */
const STATES_PER_MOMENT = SOAK ? 4000 : 50

const storeOn = (disk: Disk): Layer.Layer<JournalStore, unknown> =>
  JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ disk })))

const same = (disk: Disk): Disk => disk

/** One write, of a process that is there already. */
const aWrite = (power: PowerDisk, index: number) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const stands = operationId(journal(index))
    power.note("begin", stands)
    yield* store.write({ path: pathOf(power.root, TURN.turnKey), journal: journal(index) })
    power.note("ack", stands)
  })

/** One process that writes journals until it ends or is killed. */
const aProcess = (power: PowerDisk, indexes: ReadonlyArray<number>, killedAt: Step | null = null, around = same) =>
  Effect.forEach(indexes, (index) => aWrite(power, index)).pipe(
    Effect.provide(storeOn(around(power.over(nodeDisk, killedAt)))),
    Effect.exit
  )

/** Another root in which a turn stands as it was after some of its writes. */
const writeElsewhere = (root: string, journals: ReadonlyArray<JsonObject>) =>
  Effect.forEach(journals, (journal) =>
    Effect.flatMap(JournalStore, (store) => store.write({ path: pathOf(root, TURN.turnKey), journal }))
  ).pipe(Effect.provide(storeOn(nodeDisk)))

const copyFrom = (source: string, power: PowerDisk, killedAt: Step | null) =>
  Effect.flatMap(JournalStore, (store) => store.copy({ runtimeRoot: source, targetRoot: power.root })).pipe(
    Effect.provide(storeOn(power.over(nodeDisk, killedAt))),
    Effect.exit
  )

const SCENARIOS: Record<string, (power: PowerDisk) => Effect.Effect<unknown, unknown>> = {
  "a turn from its first write on": (power) => aProcess(power, [0, 1, 2]),
  "a writer that is killed before its rename, and one that goes on": (power) =>
    Effect.gen(function* () {
      yield* aProcess(power, [0, 1])
      yield* aProcess(power, [2], "snapshot.rename")
      yield* aProcess(power, [2, 3])
    }),
  "a writer that is killed after its rename, and one that replays": (power) =>
    Effect.gen(function* () {
      yield* aProcess(power, [0])
      yield* aProcess(power, [1], "folder.sync")
      yield* aProcess(power, [1])
    }),
  "a writer that is killed after its rename, and one that had written before it and replays": (power) =>
    Effect.gen(function* () {
      yield* aWrite(power, 0)
      yield* aProcess(power, [1], "folder.sync")
      yield* aWrite(power, 1)
    }).pipe(Effect.provide(storeOn(power.over(nodeDisk)))),
  "folders that are removed and made again, and one that had written before": (power) =>
    Effect.gen(function* () {
      yield* aWrite(power, 0)
      const { folder } = filesOf(placeOf(power.root, TURN.turnKey))
      for (const removed of [folder, dirname(folder), dirname(dirname(folder))]) {
        power.note("begin", null)
        power.removeFolder(removed)
        yield* aWrite(power, 0)
      }
    }).pipe(Effect.provide(storeOn(power.over(nodeDisk)))),
  "a first writer that is killed, and one that replays": (power) =>
    Effect.gen(function* () {
      yield* aProcess(power, [0], "folder.sync")
      yield* aProcess(power, [0])
      yield* aProcess(power, [1])
    }),
  "a journal of another program, which made nothing durable, and one that replays": (power) =>
    Effect.gen(function* () {
      const path = pathOf(power.root, TURN.turnKey)
      const disk = power.over(nodeDisk)
      power.note("begin", operationId(journal(0)))
      const turns = dirname(path)
      for (const made of [dirname(dirname(turns)), dirname(turns), turns]) disk.makeFolder("folder.make", made)
      const fd = disk.open("snapshot.create", `${path}.new`, constants.O_RDWR | constants.O_CREAT)
      disk.write("snapshot.write", fd, Buffer.from(JSON.stringify(journal(0))), 0)
      yield* disk.sync("commit.sync", [fd])
      yield* disk.rename("snapshot.rename", `${path}.new`, path)
      closeSync(fd)
      yield* aProcess(power, [0])
    }),
  "a journal of another program, adopted": (power) =>
    Effect.gen(function* () {
      const path = pathOf(power.root, TURN.turnKey)
      mkdirSync(dirname(path), { recursive: true })
      writeFileSync(path, JSON.stringify(journal(1), null, 2))
      power.plant(operationId(journal(1)))
      yield* aProcess(power, [2], "snapshot.rename")
      yield* aProcess(power, [2, 3])
    }),
  "a copy of several transitions, and of what was written since": (power) =>
    Effect.scoped(
      Effect.gen(function* () {
        const source = yield* quickFolder
        for (const [from, to] of [
          [0, 3],
          [3, 6]
        ] as const) {
          yield* writeElsewhere(source, JOURNALS.slice(from, to))
          const stands = operationId(journal(to - 1))
          power.note("begin", stands)
          // Put in place, and not sealed: the next one has to.
          yield* copyFrom(source, power, "compaction.create")
          assert.strictEqual((yield* copyFrom(source, power, null))._tag, "Success")
          power.note("ack", stands)
        }
      })
    ),
  "a copy that is killed before its lines are sealed, and a writer that goes on": (power) =>
    Effect.scoped(
      Effect.gen(function* () {
        const source = yield* quickFolder
        yield* writeElsewhere(source, JOURNALS.slice(0, 3))
        const stands = operationId(journal(2))
        power.note("begin", stands)
        yield* copyFrom(source, power, "compaction.create")
        power.note("ack", stands)
        yield* aProcess(power, [3, 4])
      })
    ),
  "a copy that is killed before its lines are sealed, a writer that is killed before its rename, and one that goes on":
    (power) =>
      Effect.scoped(
        Effect.gen(function* () {
          const source = yield* quickFolder
          yield* writeElsewhere(source, JOURNALS.slice(0, 2))
          const stands = operationId(journal(1))
          power.note("begin", stands)
          yield* copyFrom(source, power, "compaction.create")
          power.note("ack", stands)
          yield* aProcess(power, [2], "snapshot.rename")
          yield* aProcess(power, [2])
        })
      ),
  "a turn that is pruned": (power) =>
    Effect.gen(function* () {
      yield* aProcess(power, [0, 1, 2, 3, 4, 5])
      const prune = Effect.gen(function* () {
        const store = yield* JournalStore
        const request = { runtimeRoot: power.root, olderThan: 0 }
        const planned = (yield* store.prune({ ...request, dryRun: true })).turns[0]?.operation_id ?? null
        power.note("begin", planned)
        yield* store.prune(request)
        power.note("ack", planned)
      })
      yield* Effect.provide(prune, storeOn(power.over(nodeDisk)))
    })
}

const check = (root: string, allowed: ReadonlySet<string | null>, where: string) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const path = pathOf(root, TURN.turnKey)
    const stored = yield* Effect.result(store.read({ path }))
    if (stored._tag === "Failure") assert.strictEqual(stored.failure.kind, "journal_not_found", where)
    const standing = stored._tag === "Success" ? stored.success.operation_id : null
    assert.isTrue(allowed.has(standing), `${where}: ${standing} stands`)
    const verified = yield* store.verify({ runtimeRoot: root })
    assert.deepStrictEqual(
      verified.turns.flatMap(({ problem }) => (problem === null ? [] : [problem])),
      [],
      where
    )
    const at = JOURNALS.findIndex((journal) => operationId(journal) === standing)
    const isPruned = standing !== null && at < 0
    const next = journal(isPruned ? JOURNALS.length - 1 : Math.min(at + 1, JOURNALS.length - 1))
    assert.isTrue((yield* store.write({ path, journal: next })).ok, where)
    assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok, where)
  }).pipe(Effect.provide(storeOn(UNSYNCED)))

/** What is looked at after the power cut is thrown away: it need not be durable. */
const UNSYNCED: Disk = { ...nodeDisk, sync: () => Effect.void }

/** The states that a power cut may leave before each step from one on, each of them once. */
function* statesOf(power: PowerDisk, from = 0): Generator<{ readonly tree: Tree; readonly until: number }> {
  const dice = new Dice(SEED)
  for (let until = from; until <= power.log.length; until++) {
    const seen = new Set<string>()
    for (let tried = 0; tried < STATES_PER_MOMENT; tried++) {
      const tree = power.stateAt(until, dice)
      const print = fingerprint(tree)
      if (!seen.has(print)) yield { tree, until }
      seen.add(print)
    }
  }
}

/** Plays a scenario and looks at what a power cut before each of its steps may leave; how many states were tried. */
const play = (name: string, scenario: (power: PowerDisk) => Effect.Effect<unknown, unknown>) =>
  Effect.scoped(
    Effect.gen(function* () {
      const root = yield* quickFolder
      const power = new PowerDisk(join(root, "recorded"))
      mkdirSync(power.root)
      yield* scenario(power)
      let states = 0
      for (const { tree, until } of statesOf(power)) {
        const place = join(root, "left")
        mkdirSync(place)
        materialize(tree, power.root, place)
        yield* check(place, power.allowedAt(until), `seed ${SEED}, before step ${until}, state ${states}`)
        rmSync(place, { recursive: true })
        states++
      }
      process.stdout.write(`power loss, ${name}: ${states} states of ${power.log.length + 1} moments\n`)
      return { states, moments: power.log.length }
    })
  )

describe(`a power cut (seed ${SEED})`, () => {
  for (const [name, scenario] of Object.entries(SCENARIOS)) {
    it(name, { timeout: 3_600_000 }, async () => {
      const { states, moments } = await Effect.runPromise(play(name, scenario))
      assert.isAbove(states, moments)
    })
  }

  it("leaves what a repair cuts, in the history or beside it", () =>
    Effect.runPromise(
      Effect.scoped(
        Effect.gen(function* () {
          const power = new PowerDisk(yield* quickFolder)
          const path = pathOf(power.root, TURN.turnKey)
          const { history } = filesOf(placeOf(power.root, TURN.turnKey))
          yield* aProcess(power, [0, 1, 2])
          const disk = power.over(nodeDisk)
          const second = readFileSync(history).indexOf("\n") + 1
          const fd = disk.open("history.open", history, constants.O_RDWR)
          disk.write("history.write", fd, Buffer.from("#"), second)
          yield* disk.sync("commit.sync", [fd])
          closeSync(fd)
          const cut = readFileSync(history).subarray(second)

          const from = power.log.length
          yield* Effect.gen(function* () {
            const store = yield* JournalStore
            const { plan } = yield* store.repair({ path })
            assert.isTrue((yield* store.repair({ path, plan })).done)
          }).pipe(Effect.provide(storeOn(disk)))
          let states = 0
          for (const { tree, until } of statesOf(power, from)) {
            const isKept = [...tree.values()].some((content) => content !== "folder" && content.includes(cut))
            assert.isTrue(isKept, `seed ${SEED}, before step ${until}, state ${states}`)
            states++
          }
          assert.isAbove(states, power.log.length - from)
        })
      )
    ))

  for (const [step, files] of [
    ["commit.sync", ["the draft", "the history"]],
    ["folder.sync", ["the folder"]]
  ] as const) {
    for (const [index, file] of files.entries()) {
      it(`would lose something without the sync of ${file}`, { timeout: 60_000 }, async () => {
        const lazy = (disk: Disk): Disk => ({
          ...disk,
          sync: (at, fds) => disk.sync(at, at === step ? fds.filter((_, other) => other !== index) : fds)
        })
        const scenario = (power: PowerDisk) => aProcess(power, [0, 1, 2], null, lazy)
        const played = await Effect.runPromise(Effect.exit(play(`without the sync of ${file}`, scenario)))
        assert.include(played._tag === "Failure" ? Cause.pretty(played.cause) : "", "before step")
      })
    }
  }
})
