/** What the operating system refused, as the store's own errors. */
import * as Effect from "effect/Effect"
import { JournalCorrupt, StoreFailure, type StoreUnavailable, TurnBusy } from "../contract/Errors.ts"

export type StoreError = StoreFailure | StoreUnavailable | JournalCorrupt | TurnBusy

const FULL: ReadonlySet<string> = new Set(["ENOSPC", "EDQUOT"])
const UNSAFE: ReadonlySet<string> = new Set(["ELOOP", "ENOTDIR", "EISDIR", "ENXIO"])

const ADVICE: ReadonlyMap<string, string> = new Map([
  ["EACCES", "give this user access to it"],
  ["EPERM", "give this user access to it"],
  ["EROFS", "the file system is mounted read-only"],
  ["EMFILE", "raise the limit of open files"],
  ["ENFILE", "raise the limit of open files"],
  ["ENAMETOOLONG", "use a shorter path"]
])

export const isErrno = (error: unknown): error is NodeJS.ErrnoException =>
  error instanceof Error && typeof (error as NodeJS.ErrnoException).code === "string"

/** `doing` completes the sentence "The store could not …". */
export const ioFailure = (error: NodeJS.ErrnoException, doing: string, path: string): StoreFailure => {
  const code = error.code ?? "unknown"
  if (FULL.has(code)) {
    return new StoreFailure({
      kind: "store_full",
      message: `The store could not ${doing}: the disk or the quota is full (${code}). Nothing was changed; free some space.`,
      details: { path, code }
    })
  }
  if (UNSAFE.has(code)) return unsafe(path, `it is not the plain file or folder that belongs there (${code})`)
  const advice = ADVICE.get(code)
  return new StoreFailure({
    kind: "store_io_failed",
    message: `The store could not ${doing} (${code})${advice === undefined ? "" : `: ${advice}`}.`,
    details: { path, code }
  })
}

export const unsafe = (path: string, why: string): StoreFailure =>
  new StoreFailure({
    kind: "store_unsafe_path",
    message: `The store does not touch ${JSON.stringify(path)}: ${why}. Remove it or choose another runtime root.`,
    details: { path }
  })

/** On a file system for which names that differ in letter case or Unicode form are one. */
export const otherName = (path: string, there: string): StoreFailure =>
  new StoreFailure({
    kind: "store_unsafe_path",
    message: `The store does not touch ${JSON.stringify(path)}: this file system takes names that differ only in letter case or Unicode form for one, and has ${JSON.stringify(there)}. Name the goal and the turn as they are there, or in another way altogether.`,
    details: { path, there }
  })

export const corrupt = (
  kind: JournalCorrupt["kind"],
  message: string,
  details: JournalCorrupt["details"]
): JournalCorrupt => new JournalCorrupt({ kind, message, details })

/** Runs file system calls. What the system refuses becomes a typed error; anything else that is thrown is a defect. */
export const attempt = <A>(doing: string, path: string, calls: () => A): Effect.Effect<A, StoreError> =>
  Effect.suspend(() => {
    try {
      return Effect.succeed(calls())
    } catch (error) {
      return refail(error, doing, path)
    }
  })

export const refail = (error: unknown, doing: string, path: string): Effect.Effect<never, StoreError> => {
  if (error instanceof StoreFailure || error instanceof JournalCorrupt || error instanceof TurnBusy) {
    return Effect.fail(error)
  }
  return isErrno(error) ? Effect.fail(ioFailure(error, doing, path)) : Effect.die(error)
}

export const unsupported = (path: string, fileSystem: string): StoreFailure =>
  new StoreFailure({
    kind: "store_unsupported",
    message: `The runtime root is on ${fileSystem}, where locks do not hold between hosts: use a folder on a local disk, or a PostgreSQL database (postgresql://…).`,
    details: { path, file_system: fileSystem }
  })
