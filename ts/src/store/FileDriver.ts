/** Turns in files that other programs read: runtime.md section 6. */
import { closeSync, type Dirent, lstatSync, readdirSync } from "node:fs"
import { dirname, join } from "node:path"
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type { JournalConflict } from "../contract/Errors.ts"
import { MAX_JOURNAL_BYTES } from "../contract/Json.ts"
import { isGoalId, turnKeyOfName } from "../journal/Address.ts"
import { type Disk, exists } from "./Disk.ts"
import { Driver, type Encoded, type HistoryEnd, type Scanned, type Snapshot, type Step } from "./Driver.ts"
import { attempt, isErrno, type StoreError, unsafe } from "./Failure.ts"
import { configuredDisk } from "./Fault.ts"
import * as FileCommit from "./FileCommit.ts"
import { eachPiece, makeHistoryCache } from "./HistoryFile.ts"
import { latestLease, leaseLost } from "./Lease.ts"
import * as Lock from "./Lock.ts"
import { filesOf, type Place, SUFFIX } from "./Place.ts"
import { folderStands, openPlain, readSnapshot, refuseLinks } from "./SafeFile.ts"

export interface FileDriverOptions {
  /** Seconds that a call waits for a turn that somebody else holds; `TURN_JOURNAL_LOCK_TIMEOUT` unless it is given. */
  readonly lockTimeout?: number
  /** Turns whose lock file is kept open. */
  readonly openLocks?: number
  /** Turns of which it is remembered how their history ends. */
  readonly rememberedTurns?: number
  readonly disk?: Disk
  /** Size of a journal as compact JSON: that of the store above. */
  readonly journalBytes?: number
}

const DEFAULTS = { openLocks: 256, rememberedTurns: 4096, journalBytes: MAX_JOURNAL_BYTES }
const DEFAULT_LOCK_TIMEOUT = 5

const configuredLockTimeout = Config.withDefault(
  Config.schema(Schema.Finite.check(Schema.isGreaterThan(0)), "TURN_JOURNAL_LOCK_TIMEOUT"),
  DEFAULT_LOCK_TIMEOUT
)

export const layer = (options: FileDriverOptions = {}): Layer.Layer<Driver, Config.ConfigError> =>
  Layer.effect(
    Driver,
    Effect.gen(function* () {
      const settings = { ...DEFAULTS, disk: configuredDisk(), ...options }
      const patienceMs = (options.lockTimeout ?? (yield* configuredLockTimeout)) * 1000
      const locks = yield* Effect.acquireRelease(
        Effect.sync(() => Lock.make({ patienceMs, maxOpen: settings.openLocks, disk: settings.disk })),
        (locks) => Effect.sync(locks.closeAll)
      )
      return make(locks, settings)
    })
  )

const make = (
  locks: Lock.Locks,
  {
    disk,
    rememberedTurns,
    journalBytes
  }: Required<Pick<FileDriverOptions, "disk" | "rememberedTurns" | "journalBytes">>
): Driver["Service"] => {
  const lineBytes = LINE_GROWTH * journalBytes
  const histories = makeHistoryCache(rememberedTurns, lineBytes)
  const commits = FileCommit.make(disk, histories, { capacity: rememberedTurns, lineBytes })
  const snapshotOf = (place: Place): Snapshot | null => readSnapshot(place.path, INDENTED * journalBytes)

  const snapshot: Driver["Service"]["snapshot"] = (place) =>
    Effect.flatten(
      attempt("read the journal", place.path, (): Effect.Effect<Snapshot | null, StoreError> => {
        if (!folderStands(place)) return Effect.succeed(null)
        const { lock } = filesOf(place)
        const held = locks.tryShared(lock)
        if (held === null) return locks.with(lock, "shared", readLocked(place))
        try {
          return Effect.succeed(snapshotOf(place))
        } finally {
          if (held !== "open") held.release()
        }
      })
    )

  const readLocked = (place: Place): Effect.Effect<Snapshot | null, StoreError> =>
    attempt("read the journal", place.path, () => snapshotOf(place))

  const underSharedLock = <A>(place: Place, nothing: A, read: Effect.Effect<A, StoreError>) =>
    Effect.flatMap(
      attempt("read the turn", place.path, () => folderStands(place)),
      (stands) => (stands ? locks.with(filesOf(place).lock, "shared", read) : Effect.succeed(nothing))
    )

  /** Reads journal and history; the caller holds the lock. */
  const readBoth = <A>(place: Place, absent: A, read: (history: string, fd: number) => Effect.Effect<A>) =>
    Effect.gen(function* () {
      const { history } = filesOf(place)
      const snapshot = yield* readLocked(place)
      const fd = yield* attempt("read the history", history, () => openPlain(history))
      if (fd === null) return { snapshot, history: absent }
      const close = Effect.sync(() => closeSync(fd))
      return { snapshot, history: yield* Effect.ensuring(read(history, fd), close) }
    })

  const loadLocked = (place: Place): Effect.Effect<Encoded, StoreError> =>
    Effect.flatMap(
      attempt("read the turn", place.path, () => {
        const { history } = filesOf(place)
        const known = histories.recall(history)
        if (known !== null) return { snapshot: snapshotOf(place), history: known }
        // In this order: where there is no lock yet, a turn's first writer may come in between, whose history is there
        // before its journal is. The other way round a journal would be seen without its history.
        const snapshot = exists(place.path) ? snapshotOf(place) : null
        return exists(history) ? null : { snapshot, history: null }
      }),
      (known) =>
        known === null
          ? readBoth<HistoryEnd | null>(place, null, (history, fd) => histories.follow(history, fd, place.address))
          : Effect.succeed(known)
    )

  const load: Driver["Service"]["load"] = (place) => underSharedLock(place, NOTHING, loadLocked(place))

  const scan: Driver["Service"]["scan"] = (place, visit, mode) => {
    const read = readBoth(place, false, (_, fd) => Effect.as(eachPiece(fd, { from: 0, lineBytes }, visit), true))
    if (mode === "settled") return underSharedLock(place, NOTHING_SCANNED, read)
    return Effect.flatMap(
      attempt("read the turn", place.path, () => folderStands(place)),
      (stands) => (stands ? read : Effect.succeed(NOTHING_SCANNED))
    )
  }

  const glance: Driver["Service"]["glance"] = (place) =>
    attempt("read the journal", place.path, () => (folderStands(place) ? snapshotOf(place) : null))

  const makeFolders = (place: Place): void => {
    const missing: Array<string> = []
    for (let at = dirname(place.path); !exists(at); at = dirname(at)) missing.unshift(at)
    for (const folder of missing) {
      try {
        disk.makeFolder("folder.make", folder)
      } catch (error) {
        if (!isErrno(error) || error.code !== "EEXIST") throw error
      }
    }
    if (!folderStands(place)) throw unsafe(dirname(place.path), "it was removed while it was written to")
  }

  const transact = <A, E>(
    place: Place,
    decide: (stored: Encoded) => Result.Result<Step<A>, E>,
    lease: number | null
  ): Effect.Effect<A, E | StoreError | JournalConflict> => {
    const files = filesOf(place)
    const fence = attempt("read the lease", files.lease, () => latestLease(files.lease))

    const decideAndCommit = Effect.fnUntraced(function* (foreseen: Step<A> | null) {
      if (lease !== null) {
        const latest = yield* fence
        if (latest !== lease) return yield* leaseLost(lease, latest)
      }
      const stored = yield* loadLocked(place)
      const isNew = stored.snapshot === null && stored.history === null
      const { answer, commit, forget } =
        foreseen !== null && isNew ? foreseen : yield* Effect.fromResult(decide(stored))
      if (commit !== null) yield* commits.commit(files, stored, commit)
      else if (stored.snapshot !== null) yield* commits.settle(files)
      if (forget === true) yield* commits.forget(files)
      return answer
    })

    // Where no writer of ours ever was, a refusal leaves no trace: no folder, and no lock file.
    const foresee = Effect.fnUntraced(function* (stands: boolean) {
      const stored = stands ? yield* locks.with(files.lock, "shared", loadLocked(place)) : NOTHING
      const step = yield* Effect.fromResult(decide(stored))
      if (!stands) yield* attempt("make the turn's folder", place.path, () => makeFolders(place))
      return stored.snapshot === null && stored.history === null ? step : null
    })

    return Effect.gen(function* () {
      const found = yield* attempt("read the turn", place.path, () => {
        const stands = folderStands(place)
        return { stands, lock: stands && exists(files.lock) }
      })
      const foreseen = found.lock ? null : yield* foresee(found.stands)
      return yield* locks.with(files.lock, "exclusive", decideAndCommit(foreseen))
    })
  }

  return {
    snapshot,
    load,
    scan,
    transact,
    goals: (root) =>
      attempt("list the goals", root, () =>
        entriesIn(root, ["goals"])
          .filter((entry) => !entry.isFile() && isGoalId(entry.name))
          .map(({ name }) => name)
          .sort()
      ),
    turns: (root, goalId) =>
      attempt("list the turns", root, () =>
        entriesIn(root, ["goals", goalId, "turns"])
          .filter(({ name }) => name.endsWith(SUFFIX))
          .map(({ name }) => turnKeyOfName(name.slice(0, -SUFFIX.length)))
          .filter((key) => key !== null)
          .sort()
      ),
    glance,
    ahead: () => Effect.succeed({ glance, scan }),
    isDriven: (place) => {
      const { lease, leaseLock } = filesOf(place)
      // A driver that comes takes the turn's own lock first, so that it does not meet this look in its way.
      return underSharedLock(
        place,
        false,
        attempt("look at the lease", lease, () => {
          const number = latestLease(lease)
          const held = number === null ? "open" : locks.tryShared(leaseLock(number))
          if (held === null) return true
          if (held !== "open") held.release()
          return false
        })
      )
    }
  }
}

/** How many times as long a file may be as its journal's compact JSON, when another writer indented it. */
const INDENTED = 2
/** Canonical JSON writes `1e20` in full, so a line can be longer than its journal. */
const LINE_GROWTH = 6

const NOTHING: Encoded = { snapshot: null, history: null }
const NOTHING_SCANNED: Scanned = { snapshot: null, history: false }

const entriesIn = (root: string, segments: ReadonlyArray<string>): ReadonlyArray<Dirent> => {
  const folder = join(root, ...segments)
  refuseLinks(root, folder)
  const stat = lstatSync(folder, { throwIfNoEntry: false })
  if (stat === undefined) return []
  if (!stat.isDirectory()) throw unsafe(folder, "it is not a folder")
  return readdirSync(folder, { withFileTypes: true })
}
