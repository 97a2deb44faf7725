/**
 * The file system calls that change something, each under the name of the step it is for. Tests put crash points and
 * recorders around them; nothing stands around them otherwise.
 */
import {
  closeSync,
  fstatSync,
  fsync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  renameSync,
  unlinkSync,
  writeSync
} from "node:fs"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { isErrno } from "./Failure.ts"

/** The steps of a commit, in their order; what each is for: docs/store.md. */
export const STEPS = [
  "folder.make",
  "lock.make",
  "snapshot.create",
  "snapshot.write",
  "history.open",
  "history.write",
  "history.truncate",
  "commit.sync",
  "history.rename",
  "snapshot.rename",
  "folder.sync",
  "history.seal",
  "replay.sync",
  "rollback",
  "leftover.remove",
  "aside.create",
  "aside.write",
  "aside.sync",
  "compaction.create",
  "compaction.write",
  "compaction.sync",
  "compaction.rename",
  "compaction.folder.sync"
] as const

export type Step = (typeof STEPS)[number]

/** Every method throws what Node throws. */
export interface Disk {
  readonly open: (step: Step, path: string, flags: number) => number
  readonly close: (fd: number) => void
  /** Writes all of it or throws. */
  readonly write: (step: Step, fd: number, bytes: Uint8Array, position: number) => void
  readonly truncate: (step: Step, fd: number, length: number) => void
  /** Makes files and folders durable, side by side, without holding up the event loop. */
  readonly sync: (step: Step, fds: ReadonlyArray<number>) => Effect.Effect<void, unknown>
  readonly rename: (step: Step, from: string, to: string) => Effect.Effect<void, unknown>
  readonly remove: (step: Step, path: string) => void
  readonly makeFolder: (step: Step, path: string) => void
}

/** Also true of a symbolic link that points nowhere. */
export const exists = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined

const FILE_MODE = 0o600
const FOLDER_MODE = 0o700

/** Writes what `write` takes at a time, until all of it is written. */
export const writeWhole = (
  write: (fd: number, bytes: Uint8Array, offset: number, length: number, position: number) => number,
  fd: number,
  bytes: Uint8Array,
  position: number
): void => {
  for (let done = 0; done < bytes.length; ) done += write(fd, bytes, done, bytes.length - done, position + done)
}

/** Syncs run in threads: while one waits for the disk, other requests go on. */
const syncAll = (fds: ReadonlyArray<number>): Effect.Effect<void, unknown> =>
  Effect.callback<void, unknown>((resume) => {
    let missing = fds.length
    let failure: Error | null = null
    if (missing === 0) resume(Effect.void)
    for (const fd of fds) {
      fsync(fd, (error) => {
        failure ??= error
        missing--
        if (missing === 0) resume(failure === null ? Effect.void : Effect.fail(failure))
      })
    }
  })

const BLOCKED_BY_SCANNER: ReadonlySet<string> = new Set(["EPERM", "EACCES", "EBUSY"])
const RENAME_PATIENCE_MS = 2500

const rename = (from: string, to: string): Effect.Effect<void, unknown> =>
  Effect.try({ try: () => renameSync(from, to), catch: (error) => error })

/** On Windows a virus scanner may hold the target for a moment. */
export const renamePatiently = (
  attempt: Effect.Effect<void, unknown>,
  patienceMs = RENAME_PATIENCE_MS
): Effect.Effect<void, unknown> =>
  Effect.gen(function* () {
    const deadline = (yield* Clock.currentTimeMillis) + patienceMs
    for (let pause = 5; ; pause = Math.min(pause * 2, 200)) {
      const outcome = yield* Effect.result(attempt)
      if (outcome._tag === "Success") return
      const blocked = isErrno(outcome.failure) && BLOCKED_BY_SCANNER.has(outcome.failure.code ?? "")
      if (!blocked || (yield* Clock.currentTimeMillis) >= deadline) return yield* Effect.fail(outcome.failure)
      yield* Effect.sleep(pause)
    }
  })

export const nodeDisk: Disk = {
  open: (_step, path, flags) => openSync(path, flags, FILE_MODE),
  close: closeSync,
  write: (_step, fd, bytes, position) => writeWhole(writeSync, fd, bytes, position),
  truncate: (_step, fd, length) => {
    if (fstatSync(fd).size !== length) ftruncateSync(fd, length)
  },
  sync: (_step, fds) => syncAll(fds),
  rename: (_step, from, to) => (process.platform === "win32" ? renamePatiently(rename(from, to)) : rename(from, to)),
  remove: (_step, path) => {
    if (exists(path)) unlinkSync(path)
  },
  makeFolder: (_step, path) => {
    mkdirSync(path, FOLDER_MODE)
  }
}
