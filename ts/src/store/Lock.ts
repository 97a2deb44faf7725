/**
 * Kernel-held locks on the lock file beside a journal, the same that `filelock.ReadWriteLock` takes in Python: a SQLite
 * database whose exclusive transaction is the writer's lock and whose read transaction is a reader's. The kernel frees
 * them when the holder dies, however it dies. runtime.md section 6.
 *
 * The locks are POSIX record locks: closing any descriptor of the file drops all that this process holds on it. So the
 * file is never opened here but by SQLite, except once to make it.
 */
import { accessSync, constants, lstatSync } from "node:fs"
import { DatabaseSync, type StatementSync } from "node:sqlite"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Semaphore from "effect/Semaphore"
import { TurnBusy } from "../contract/Errors.ts"
import { networkFileSystem } from "../platform/FileSystemKind.ts"
import { type Disk, exists } from "./Disk.ts"
import { attempt, ioFailure, isErrno, type StoreError, unsafe, unsupported } from "./Failure.ts"
import { holderOf, type LockHolder } from "./LockHolder.ts"
import { GUARDED } from "./SafeFile.ts"

export type Mode = "shared" | "exclusive"

/** A lock that is held; to be released in the same breath or by an `ensuring`. */
export interface Held {
  readonly release: () => void
}

export interface Locks {
  /**
   * Takes the shared lock at once: null when a writer holds it, also when one of this process does. `"open"` when there
   * is no lock file: no writer of ours was ever here.
   */
  readonly tryShared: (lockFile: string) => Held | "open" | null
  /** Waits for the lock, at most until the deadline, and holds it while `use` runs, which is not interrupted. */
  readonly with: <A, E>(lockFile: string, mode: Mode, use: Effect.Effect<A, E>) => Effect.Effect<A, E | StoreError>
  readonly closeAll: () => void
}

export interface LockOptions {
  /** How long a call waits for a turn that somebody else holds. */
  readonly patienceMs: number
  /** Lock files kept open between calls; opening one costs as much as a whole inspection. */
  readonly maxOpen: number
  readonly disk: Disk
}

const { O_RDWR, O_CREAT, O_EXCL } = constants
const SQLITE_BUSY = 5
/** Another process' critical section lasts about a millisecond; past that, waiting longer costs nothing. */
const PAUSES_MS = [1, 1, 2, 4, 8, 16, 25]
/** A lock database is empty; a big one is somebody's data, and its schema would be read at every lock. */
const MAX_LOCK_BYTES = 64 * 1024

export const make = ({ patienceMs, maxOpen, disk }: LockOptions): Locks => {
  const handles = new Map<string, Handle>()
  const queues = new Map<string, Queue>()

  /** An open handle; "open" when there is nothing to lock, null when the lock is too busy to be looked at. */
  const handleFor = (lockFile: string, mode: Mode): Handle | "open" | null => {
    const known = handles.get(lockFile)
    if (known !== undefined) {
      handles.delete(lockFile)
      if (mode === "shared" || known.writable) {
        handles.set(lockFile, known)
        return known
      }
      known.close()
    }
    if (!exists(lockFile)) {
      if (mode === "shared") return "open"
      makeLockFile(disk, lockFile)
    }
    const opened = openHandle(lockFile, mode)
    if (opened === null) return null
    for (const [path, oldest] of handles) {
      if (handles.size < maxOpen) break
      if (oldest.held) continue
      oldest.close()
      handles.delete(path)
    }
    handles.set(lockFile, opened)
    return opened
  }

  const take = (lockFile: string, mode: Mode): Held | "open" | null => {
    for (let attempts = 0; ; attempts++) {
      const handle = handleFor(lockFile, mode)
      if (handle === null || handle === "open") return handle
      if (!handle.begin(mode)) return null
      // The lock is on the file, and whoever comes next opens the name.
      if (lstatSync(lockFile, { throwIfNoEntry: false, bigint: true })?.ino === handle.ino) return handle
      handle.release()
      handle.close()
      handles.delete(lockFile)
      if (attempts === 3) throw unsafe(lockFile, "it is replaced all the time")
    }
  }

  const waitFor = (lockFile: string, mode: Mode, deadline: number, restore: Restore) =>
    Effect.gen(function* () {
      for (let round = 0; ; round++) {
        const held = yield* attempt("lock the turn", lockFile, () => take(lockFile, mode))
        if (held !== null) return held
        const now = yield* Clock.currentTimeMillis
        if (now >= deadline) return yield* Effect.fail(busy(lockFile, holderOf(lockFile), deadline - patienceMs))
        const pause = PAUSES_MS[Math.min(round, PAUSES_MS.length - 1)] ?? 1
        yield* restore(Effect.sleep(Math.min(pause, deadline - now)))
      }
    })

  const enter = (lockFile: string): Queue => {
    const queue = queues.get(lockFile) ?? { semaphore: Semaphore.makeUnsafe(1), members: 0 }
    queue.members++
    queues.set(lockFile, queue)
    return queue
  }

  const leave = (lockFile: string, queue: Queue): void => {
    queue.members--
    if (queue.members === 0) queues.delete(lockFile)
  }

  /** Waits for the callers before it as long as for another process: one of them may wait for a disk that hangs. */
  const inTurn = <A, E>(semaphore: Semaphore.Semaphore, use: Effect.Effect<A, E>, late: () => TurnBusy) =>
    Effect.flatMap(semaphore.withPermitsIfAvailable(1)(use), (done) =>
      Option.isSome(done)
        ? Effect.succeed(done.value)
        : Effect.uninterruptibleMask((restore) =>
            Effect.flatMap(
              restore(
                Effect.timeoutOrElse(semaphore.take(1), {
                  duration: patienceMs,
                  orElse: () => Effect.fail(late())
                })
              ),
              () => Effect.ensuring(restore(use), semaphore.release(1))
            )
          )
    )

  return {
    tryShared: (lockFile) => (queues.has(lockFile) ? null : take(lockFile, "shared")),
    with: (lockFile, mode, use) =>
      Effect.flatMap(Clock.currentTimeMillis, (start) => {
        // Within the process callers queue, first come first served; only the first of them asks the kernel.
        const queue = enter(lockFile)
        const locked = Effect.uninterruptibleMask((restore) =>
          Effect.flatMap(waitFor(lockFile, mode, start + patienceMs, restore), (lock) =>
            lock === "open" ? use : Effect.ensuring(use, Effect.sync(lock.release))
          )
        )
        return Effect.ensuring(
          inTurn(queue.semaphore, locked, () => busy(lockFile, SELF, start)),
          Effect.sync(() => leave(lockFile, queue))
        )
      }),
    closeAll: () => {
      for (const handle of handles.values()) handle.close()
      handles.clear()
    }
  }
}

type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

interface Queue {
  readonly semaphore: Semaphore.Semaphore
  members: number
}

interface Handle extends Held {
  readonly ino: bigint
  readonly writable: boolean
  held: boolean
  /** False when the lock is busy. */
  readonly begin: (mode: Mode) => boolean
  readonly close: () => void
}

const makeLockFile = (disk: Disk, lockFile: string): void => {
  try {
    disk.close(disk.open("lock.make", lockFile, O_RDWR | O_CREAT | O_EXCL | GUARDED))
  } catch (error) {
    if (!isErrno(error) || error.code !== "EEXIST") throw error
  }
}

/** Null when the lock is so busy that not even its settings can be read. */
const openHandle = (lockFile: string, mode: Mode): Handle | null => {
  const ino = identityOf(lockFile)
  const kind = networkFileSystem(lockFile)
  if (kind !== null) throw unsupported(lockFile, kind)
  const writable = mayWrite(lockFile)
  if (mode === "exclusive" && !writable) throw ioFailure(denied(), "lock the turn", lockFile)
  // On a database that it may only read, SQLite takes a reader's lock for a writer's: hence the check above.
  const database = new DatabaseSync(lockFile, { timeout: 0, readOnly: !writable, allowExtension: false })
  try {
    keepInMemory(database)
  } catch (error) {
    database.close()
    if (isBusy(error)) return null
    throw notALock(error, lockFile)
  }
  let look: StatementSync | null = null
  const handle: Handle = {
    ino,
    writable,
    held: false,
    begin: (wanted) => {
      try {
        database.exec(BEGIN[wanted])
        if (wanted === "shared") {
          look ??= database.prepare("SELECT name FROM sqlite_master LIMIT 1")
          look.get()
        }
      } catch (error) {
        if (database.isTransaction) database.exec(END)
        if (isBusy(error)) return false
        throw notALock(error, lockFile)
      }
      handle.held = true
      return true
    },
    release: () => {
      handle.held = false
      database.exec(END)
    },
    close: () => database.close()
  }
  return handle
}

/** Checks that it is a lock file and nothing else, without opening it. */
const identityOf = (lockFile: string): bigint => {
  const stat = lstatSync(lockFile, { bigint: true })
  if (!stat.isFile()) throw unsafe(lockFile, "a lock file is a plain file")
  if (stat.size > MAX_LOCK_BYTES) throw unsafe(lockFile, "a lock file is empty, and this one holds data")
  for (const suffix of ["-journal", "-wal", "-shm"]) {
    if (lstatSync(lockFile + suffix, { throwIfNoEntry: false }) !== undefined) {
      throw unsafe(lockFile + suffix, "a lock file has no such companion")
    }
  }
  return stat.ino
}

/** A read transaction holds its lock from its first read on. */
const BEGIN: Readonly<Record<Mode, string>> = { exclusive: "BEGIN EXCLUSIVE", shared: "BEGIN" }
const END = "ROLLBACK"

/**
 * A write-ahead log would let readers in beside a writer; and the lock of a file that is empty would leave a journal
 * beside it when its holder is killed, which is a companion that no lock file has.
 */
const keepInMemory = (database: DatabaseSync): void => {
  const { journal_mode: mode } = database.prepare("PRAGMA journal_mode=MEMORY").get() as { journal_mode: string }
  if (mode === "wal") throw new Error("the database is in WAL mode")
}

const mayWrite = (path: string): boolean => {
  try {
    accessSync(path, constants.W_OK)
    return true
  } catch {
    return false
  }
}

const denied = (): NodeJS.ErrnoException => Object.assign(new Error("permission denied"), { code: "EACCES" })

interface SqliteError extends NodeJS.ErrnoException {
  readonly errcode: number
}

const isSqlite = (error: unknown): error is SqliteError =>
  error instanceof Error && (error as NodeJS.ErrnoException).code === "ERR_SQLITE_ERROR"

const isBusy = (error: unknown): boolean => isSqlite(error) && (error.errcode & 0xff) === SQLITE_BUSY

/** SQLite's own complaints about the file, in the store's words. */
const notALock = (error: unknown, lockFile: string): unknown =>
  isSqlite(error) ? unsafe(lockFile, `it does not serve as a lock (${error.message})`) : error

const SELF: LockHolder = { pid: process.pid, command: "another call of this core" }

/** Since when the holder has it, nobody knows: what is known is since when this call has waited. */
const busy = (lockFile: string, holder: LockHolder | null, waitingSince: number): TurnBusy => {
  const who =
    holder === null ? "another process (the system does not say which)" : `process ${holder.pid} (${holder.command})`
  return new TurnBusy({
    kind: "turn_busy",
    message: `The turn is held by ${who}, and was all the time that this call waited: try again, or end that process.`,
    details: {
      lock: lockFile,
      holder: holder === null ? null : { ...holder },
      waiting_since: new Date(waitingSince).toISOString()
    }
  })
}
