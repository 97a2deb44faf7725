/**
 * Writes a commit to a turn's files, so that whatever cuts it off leaves the old journal or the new one. The order of
 * the steps and what each sync is for: docs/store.md. The caller holds the turn's exclusive lock.
 */
import { constants, futimesSync, lstatSync, openSync, readSync } from "node:fs"
import { dirname } from "node:path"
import * as Effect from "effect/Effect"
import { StoreFailure } from "../contract/Errors.ts"
import { type Disk, exists, type Step } from "./Disk.ts"
import type { Commit, Encoded, Position } from "./Driver.ts"
import { attempt, isErrno, refail, type StoreError } from "./Failure.ts"
import { eachPiece, type HistoryCache } from "./HistoryFile.ts"
import type { Files } from "./Place.ts"
import { Recent } from "./Recent.ts"
import { folderIdentity, GUARDED, openPlain, READ_FOLDER } from "./SafeFile.ts"

const { O_RDWR, O_CREAT, O_EXCL } = constants
const NEW_FILE = O_RDWR | O_CREAT | O_EXCL | GUARDED

/** How a line ends: written, and its snapshot may not have appeared; or sealed, and it has. */
const OPEN_END = "\r"
const SEALED_END = "\n"

export interface FileCommits {
  readonly commit: (files: Files, stored: Encoded, commit: Commit) => Effect.Effect<void, StoreError>
  /** Makes durable what stands, whoever wrote it, and removes what a writer that was cut off left. */
  readonly settle: (files: Files) => Effect.Effect<void, StoreError>
  /** Lets the history begin with its last transition. */
  readonly forget: (files: Files) => Effect.Effect<void, StoreError>
}

export const make = (
  disk: Disk,
  histories: HistoryCache,
  { capacity, lineBytes }: { readonly capacity: number; readonly lineBytes: number }
): FileCommits => {
  /** Folders whose own names are durable: which folder had the name then. */
  const durableNames = new Recent<string, string>(capacity)
  /** Snapshots that were made durable here, as they were then. */
  const settled = new Recent<string, string>(capacity)

  const sync = (step: Step, fds: ReadonlyArray<number | null>, path: string) =>
    Effect.catch(disk.sync(step, fds.filter(isOpen)), (error) => refail(error, "make the journal durable", path))

  const rename = (step: Step, from: string, to: string) =>
    Effect.catch(disk.rename(step, from, to), (error) => refail(error, "put the journal in place", to))

  /** A new file for the holder of the lock; one of that name was left by a writer that was cut off. */
  const draft = (work: Work, step: Step, path: string): number => {
    work.undo(() => disk.remove("rollback", path))
    try {
      return work.keep(disk.open(step, path, NEW_FILE))
    } catch (error) {
      if (!isErrno(error) || error.code !== "EEXIST") throw error
      disk.remove("leftover.remove", path)
      return work.keep(disk.open(step, path, NEW_FILE))
    }
  }

  /** Names of folders above the turn's files that no sync of this process has made durable. */
  const undurableNames = (folder: string): ReadonlyArray<FolderName> => {
    const names: Array<FolderName> = []
    for (let path = folder; path !== dirname(path); path = dirname(path)) {
      const identity = folderIdentity(path)
      if (durableNames.get(path) === identity) break
      names.push({ path, identity })
    }
    return names
  }

  const namesAreDurable = (names: ReadonlyArray<FolderName>): void => {
    for (const { path, identity } of names) durableNames.set(path, identity)
  }

  /** Appends in place. What stood after the transition that is followed is overwritten and cut. */
  const append = (work: Work, files: Files, stored: Encoded, { after }: Commit, bytes: Buffer): number => {
    const found = stored.history === null ? null : openPlain(files.history, O_RDWR | GUARDED)
    const history = work.keep(found ?? disk.open("history.open", files.history, NEW_FILE))
    const start = after?.revision ?? 0
    const end = after === null ? 0 : start + 1
    work.undo(() => (found === null ? disk.remove("rollback", files.history) : disk.truncate("rollback", history, end)))
    disk.write("history.write", history, bytes, start)
    disk.truncate("history.truncate", history, start + bytes.length)
    return history
  }

  /** A journal that another program wrote gets its history whole or not at all: half a one would look like damage. */
  const adopt = (work: Work, files: Files, bytes: Buffer): number => {
    const history = draft(work, "history.open", files.historyDraft)
    disk.write("history.write", history, bytes, 0)
    return history
  }

  /** Keeps what follows a transition in a file of its own, durably, before the history is cut there. */
  const keepAside = (work: Work, files: Files, after: Position | null, name: string): Effect.Effect<void, StoreError> =>
    Effect.gen(function* () {
      const path = `${files.history}.${name}`
      const kept = yield* attempt("keep what is cut", path, () => {
        const history = openPlain(files.history)
        if (history === null) return []
        return [copyFrom(work.keep(history), after, draft(work, "aside.create", path)), openFolder(work, files.folder)]
      })
      yield* sync("aside.sync", kept, path)
    })

  const copyFrom = (history: number, after: Position | null, aside: number): number => {
    const from = after === null ? 0 : after.revision + 1
    const chunk = Buffer.allocUnsafe(1024 * 1024)
    for (let at = from; ; ) {
      const length = readSync(history, chunk, 0, chunk.length, at)
      if (length === 0) return aside
      disk.write("aside.write", aside, chunk.subarray(0, length), at - from)
      at += length
    }
  }

  /** Not synced: where a seal is lost, it is looked up whether the snapshot appeared. */
  const sealLast = (files: Files, history: number | null, { after, lines }: Commit, length: number): void => {
    const last = lines.at(-1)
    if (last === undefined || history === null) {
      histories.forget(files.history)
      return
    }
    const position: Position = {
      ...last.link,
      revision: (after?.revision ?? 0) + length - 1,
      line: (after?.line ?? 0) + lines.length
    }
    try {
      disk.write("history.seal", history, Buffer.from(SEALED_END), position.revision)
      // Of an adopted journal the line before is not known; the whole history is followed then.
      if (lines.length === 1) histories.keep(files.history, history, position, after)
      else histories.forget(files.history)
      settled.set(files.snapshot, stampOf(files.snapshot))
    } catch (error) {
      // What is remembered of the history is of another state of the file, which is seen.
      if (!isErrno(error)) throw error
    }
  }

  const commit: FileCommits["commit"] = (files, stored, commit) =>
    withWork((work) =>
      Effect.gen(function* () {
        const { after, lines } = commit
        const adopting = stored.history === null && stored.snapshot !== null
        const bytes = historyBytes(commit, adopting)
        const unsealed = stored.history?.open.some(({ line }) => line < (after?.line ?? 0)) ?? false
        if (commit.setAside !== undefined) yield* keepAside(work, files, after, commit.setAside)
        if (after !== null && unsealed) yield* sealAll(files, after)
        const { written, folder, history, names } = yield* attempt("write the journal", files.snapshot, () => {
          disk.remove("leftover.remove", files.historyDraft)
          const snapshot = draft(work, "snapshot.create", files.snapshotDraft)
          disk.write("snapshot.write", snapshot, Buffer.from(commit.snapshot), 0)
          if (commit.updatedAt !== undefined) setTime(snapshot, commit.updatedAt)
          if (stored.snapshot !== null) holdReplaced(work, files.snapshot)
          const history = historyOf(work, files, stored, commit, bytes)
          const names = undurableNames(files.folder)
          const parents = names.map(({ path }) => openFolder(work, dirname(path)))
          const written = [snapshot, history, ...parents]
          return { written, folder: openFolder(work, files.folder), history, names }
        })
        yield* sync("commit.sync", written, files.snapshot)
        namesAreDurable(names)
        if (adopting && lines.length > 0) yield* rename("history.rename", files.historyDraft, files.history)
        yield* Effect.tapError(rename("snapshot.rename", files.snapshotDraft, files.snapshot), () =>
          Effect.sync(() => {
            // Also a rename that fails may have been done: then the line that it belongs to has to stay.
            if (!exists(files.snapshotDraft)) work.passPointOfNoReturn()
          })
        ).pipe(Effect.mapError((error) => (exists(files.snapshotDraft) ? error : unconfirmed(error))))
        work.passPointOfNoReturn()
        yield* Effect.mapError(sync("folder.sync", [folder], files.folder), unconfirmed)
        if (openLines(commit, adopting) > 1) yield* Effect.ignore(sealAll(files, null))
        else yield* Effect.sync(() => sealLast(files, history, commit, bytes.length))
      })
    )

  /** Null for a journal that has no history, and gets none. */
  const historyOf = (work: Work, files: Files, stored: Encoded, commit: Commit, bytes: Buffer): number | null => {
    if (stored.history === null && commit.lines.length === 0) return null
    return stored.history === null && stored.snapshot !== null
      ? adopt(work, files, bytes)
      : append(work, files, stored, commit, bytes)
  }

  const settle: FileCommits["settle"] = (files) =>
    Effect.suspend(() => {
      const stamp = stampOf(files.snapshot)
      if (settled.get(files.snapshot) === stamp && !exists(files.snapshotDraft)) return Effect.void
      return withWork((work) =>
        Effect.gen(function* () {
          const names = undurableNames(files.folder)
          const fds = yield* attempt("make the journal durable", files.snapshot, () => [
            // The history was made durable before its snapshot was put in place.
            ...[openPlain(files.snapshot)].filter(isOpen).map(work.keep),
            ...[files.folder, ...names.map(({ path }) => dirname(path))].map((path) => openFolder(work, path))
          ])
          yield* sync("replay.sync", fds, files.snapshot)
          yield* attempt("remove what was left", files.snapshotDraft, () => {
            disk.remove("leftover.remove", files.snapshotDraft)
            disk.remove("leftover.remove", files.historyDraft)
          })
          namesAreDurable(names)
          settled.set(files.snapshot, stamp)
        })
      )
    })

  const forget: FileCommits["forget"] = (files) =>
    withWork((work) =>
      Effect.gen(function* () {
        const whole = yield* attempt("read the history", files.history, () => openPlain(files.history))
        if (whole === null) return
        work.keep(whole)
        let last = ""
        let lines = 0
        yield* eachPiece(whole, { from: 0, lineBytes }, ({ text }) => {
          last = text
          lines++
          return true
        })
        if (lines > 1) {
          yield* Effect.mapError(
            replaceHistory(work, files, (write) => Effect.sync(() => write(last))),
            notShortened
          )
        }
      })
    )

  /**
   * Seals each line up to one, and drops what follows it. Of several open lines none can be sealed in place: a power cut
   * may keep the seal of a later one and lose that of an earlier one, which is what tampering looks like.
   */
  const sealAll = (files: Files, last: Position | null): Effect.Effect<void, StoreError> =>
    withWork((work) =>
      Effect.gen(function* () {
        const whole = yield* attempt("read the history", files.history, () => openPlain(files.history))
        if (whole === null) return
        work.keep(whole)
        let line = 0
        yield* replaceHistory(work, files, (write) =>
          eachPiece(whole, { from: 0, lineBytes }, ({ text, end }) => {
            line++
            return end !== "" && (last === null || line <= last.line) && write(text)
          })
        )
      })
    )

  /** Puts a history of other lines, all sealed, in the place of the one that stands; `write` is false when it failed. */
  const replaceHistory = (
    work: Work,
    files: Files,
    lines: (write: (text: string) => boolean) => Effect.Effect<unknown>
  ): Effect.Effect<void, StoreError> =>
    Effect.gen(function* () {
      const history = yield* attempt("shorten the history", files.history, () =>
        draft(work, "compaction.create", files.historyDraft)
      )
      let failure: { readonly error: unknown } | null = null
      let offset = 0
      yield* lines((text) => {
        const bytes = Buffer.from(text + SEALED_END)
        try {
          disk.write("compaction.write", history, bytes, offset)
          offset += bytes.length
        } catch (error) {
          failure = { error }
        }
        return failure === null
      })
      if (failure !== null)
        return yield* refail((failure as { error: unknown }).error, "write the history", files.history)
      const folder = yield* attempt("write the history", files.history, () => openFolder(work, files.folder))
      yield* sync("compaction.sync", [history], files.history)
      yield* rename("compaction.rename", files.historyDraft, files.history)
      work.passPointOfNoReturn()
      histories.forget(files.history)
      yield* sync("compaction.folder.sync", [folder], files.folder)
    })

  /**
   * Descriptors that are closed when the answer is on its way, and what is undone when the work fails before it took
   * effect.
   */
  const withWork = <A>(body: (work: Work) => Effect.Effect<A, StoreError>): Effect.Effect<A, StoreError> =>
    Effect.suspend(() => {
      const work = makeWork()
      return body(work).pipe(
        Effect.onError(() => Effect.sync(work.rollBack)),
        Effect.ensuring(Effect.sync(() => setImmediate(work.close, disk)))
      )
    })

  return { commit, settle, forget }
}

interface FolderName {
  readonly path: string
  readonly identity: string
}

interface Work {
  readonly keep: (fd: number) => number
  readonly undo: (action: () => void) => void
  readonly passPointOfNoReturn: () => void
  readonly rollBack: () => void
  readonly close: (disk: Disk) => void
}

const makeWork = (): Work => {
  const fds: Array<number> = []
  let undone: Array<() => void> = []
  return {
    keep: (fd) => {
      fds.push(fd)
      return fd
    },
    undo: (action) => {
      undone.unshift(action)
    },
    passPointOfNoReturn: () => {
      undone = []
    },
    rollBack: () => {
      for (const action of undone) {
        try {
          action()
        } catch {
          // What cannot be undone now is what a crash leaves: the next writer cuts it.
        }
      }
    },
    close: (disk) => {
      for (const fd of fds) {
        try {
          disk.close(fd)
        } catch {
          // What was to be durable was synced.
        }
      }
    }
  }
}

/**
 * The lines of a commit with the end of the line before them, which is sealed by it. An adopted journal stands already;
 * all others are open until the snapshot of the last one appears.
 */
const historyBytes = ({ after, lines }: Commit, adopting: boolean): Buffer =>
  Buffer.from(
    (after === null ? "" : SEALED_END) +
      lines
        .map(({ text }, index) => text + (adopting && index === 0 && lines.length > 1 ? SEALED_END : OPEN_END))
        .join("")
  )

const openLines = ({ lines }: Commit, adopting: boolean): number =>
  lines.length - (adopting && lines.length > 1 ? 1 : 0)

/** The system takes seconds and cuts them to microseconds: half of one more, and no millisecond is lost on the way. */
const setTime = (fd: number, milliseconds: number): void => {
  const seconds = (Math.floor(milliseconds * 1000) + 0.5) / 1_000_000
  futimesSync(fd, seconds, seconds)
}

const isOpen = (fd: number | null): fd is number => fd !== null

/** Null where folders cannot be opened or synced: on Windows, and where another user's is not readable. */
const openFolder = (work: Work, path: string): number | null => {
  if (process.platform === "win32") return null
  try {
    return work.keep(openSync(path, READ_FOLDER))
  } catch (error) {
    if (isErrno(error) && error.code === "EACCES") return null
    throw error
  }
}

/**
 * A file that a rename replaces is freed when nobody has it open, which takes longer than the rename: later, then.
 * Windows replaces no file that is open.
 */
const holdReplaced = (work: Work, path: string): void => {
  if (process.platform === "win32") return
  const replaced = openPlain(path)
  if (replaced !== null) work.keep(replaced)
}

const stampOf = (path: string): string => {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false })
  return stat === undefined ? "" : `${stat.ino}:${stat.size}:${stat.mtimeNs}:${stat.ctimeNs}`
}

const notShortened = (error: StoreError): StoreError =>
  error._tag === "StoreFailure"
    ? new StoreFailure({
        kind: error.kind,
        message: `The turn has its tombstone, and its history could not be shortened (${error.details["code"]}): prune again when there is space and access.`,
        details: error.details
      })
    : error

const unconfirmed = (error: StoreError): StoreError =>
  error._tag === "StoreFailure"
    ? new StoreFailure({
        kind: error.kind,
        message: `The journal was put in place, and the disk did not confirm it: write it again to be sure.`,
        details: { ...error.details, outcome: "unknown" }
      })
    : error
