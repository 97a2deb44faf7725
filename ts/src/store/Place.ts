/** Where a turn is kept: from a path, or from a root and a turn's address. runtime.md section 6. */
import { basename, dirname, isAbsolute, join, normalize, sep } from "node:path"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { InvalidJournal } from "../contract/Errors.ts"
import { addressOfPath, segmentsOf, type TurnAddress } from "../journal/Address.ts"

export interface Place {
  /** The journal's own path: one name per turn, whatever the driver. Of a database, it may carry a password. */
  readonly path: string
  /** The runtime root: of a database always, of a folder where the path has the canonical layout. */
  readonly root: string | null
  /** The turn that the path names, where it has the canonical layout. */
  readonly address: TurnAddress | null
}

/** Ends the name of a journal, and of nothing beside it: so no two journals have a file in common. */
export const SUFFIX = ".json"

/** Segments of a canonical path under its root. */
const DEPTH = 4

/** Stands between a database's URL and the path of a turn in it: no URL of PostgreSQL has a fragment. */
const FRAGMENT = "#"

/** Whether a root, or a path under one, is in a database. */
export const isDatabase = (root: string): boolean => root.startsWith("postgresql://") || root.startsWith("postgres://")

/** The path of a turn within its database. */
export const withinDatabase = ({ path }: Place): string => path.slice(path.indexOf(FRAGMENT) + 1)

/** The place that an absolute path names, or `<URL of a database>#goals/<goal>/turns/<name>.json`. */
export const ofPath = (path: string): Result.Result<Place, InvalidJournal> => {
  if (isDatabase(path)) return ofDatabasePath(path)
  if (!isAbsolute(path) || !isPlain(path) || !path.endsWith(SUFFIX)) {
    return Result.fail(noPlace("path", "The path of a journal is absolute and ends in .json."))
  }
  const whole = normalize(path)
  const segments = whole.split(sep)
  const address = addressOfPath(segments)
  const root = address === null ? null : segments.slice(0, -DEPTH).join(sep) || sep
  return Result.succeed({ path: whole, root, address })
}

const ofDatabasePath = (path: string): Result.Result<Place, InvalidJournal> => {
  const end = path.indexOf(FRAGMENT)
  const root = path.slice(0, Math.max(end, 0))
  const segments = path.slice(end + 1).split("/")
  const isOdd = segments.some((segment) => ["", ".", ".."].includes(segment)) || !path.endsWith(SUFFIX)
  if (end < 0 || !isPlain(path) || !isUrl(root) || isOdd) {
    return Result.fail(noPlace("path", "The path of a journal in a database is <URL>#goals/<goal>/turns/<name>.json."))
  }
  return Result.succeed({ path, root, address: segments.length === DEPTH ? addressOfPath(segments) : null })
}

/** The place of a turn under a runtime root: a folder's absolute path, or a database's URL. */
export const ofTurn = (root: string, address: TurnAddress): Result.Result<Place, InvalidJournal> => {
  if (isDatabase(root)) {
    if (!isUrl(root)) {
      return Result.fail(
        noPlace(
          "runtime_root",
          "The URL of a database is postgresql://user:password@host:port/database?parameters, of one host; `#`, `/`, `@` and `%` in a name or password are written %23, %2F, %40 and %25."
        )
      )
    }
    return Result.map(segmentsOf(address), (segments) => ({
      path: `${root}${FRAGMENT}${segments.join("/")}`,
      root,
      address
    }))
  }
  if (!isAbsolute(root) || !isPlain(root)) {
    return Result.fail(noPlace("runtime_root", "The runtime root is an absolute path, or postgresql://…."))
  }
  return Result.map(segmentsOf(address), (segments) => {
    const whole = normalize(root)
    return { path: join(whole, ...segments), root: whole, address }
  })
}

/** The path of a turn under a runtime root, as `write`, `read` and `history` take it. */
export const turnJournalPath = (root: string, turn: TurnAddress): Effect.Effect<string, InvalidJournal> =>
  Effect.fromResult(Result.map(ofTurn(root, turn), ({ path }) => path))

/** One that every reader parts at the same signs: a bare `@` or `/` in a password would make its rest a name. */
const isUrl = (root: string): boolean => {
  if (root === lastUrl) return true
  const bare = /:\/\/[^/?]*(@[^/?]*@|\/[^?]*@)/
  const isOne =
    isPlain(root) &&
    !root.includes(FRAGMENT) &&
    URL.canParse(root) &&
    !bare.test(root) &&
    !/%(?![0-9a-f]{2})/i.test(root)
  if (isOne) lastUrl = root
  return isOne
}

/** The URL of the call before, which most calls name again. */
let lastUrl = ""

/** A path that every file system call takes for what it is. */
const isPlain = (path: string): boolean => path.isWellFormed() && !path.includes("\0")

const noPlace = (field: string, message: string): InvalidJournal =>
  new InvalidJournal({ kind: "invalid_request", message, details: { field } })

/**
 * The files of a turn: the journal that others read, and what stands beside it and is ignored by them. A turn's name may
 * have dots, so what each name ends in is the end of no other file's name but of those of its kind.
 */
export interface Files {
  readonly folder: string
  readonly snapshot: string
  readonly history: string
  readonly lock: string
  /** The number of the turn's driver. */
  readonly lease: string
  /** The lock that the driver of a number holds. */
  readonly leaseLock: (number: number) => string
  /** What a commit writes before it is renamed; only the holder of the lock has one. */
  readonly snapshotDraft: string
  readonly historyDraft: string
}

export const filesOf = ({ path }: Place): Files => {
  const folder = dirname(path)
  const stem = join(folder, basename(path, SUFFIX))
  return {
    folder,
    snapshot: path,
    history: `${stem}.history.jsonl`,
    lock: `${stem}.lock`,
    lease: `${stem}.lease`,
    leaseLock: (number) => `${stem}.lease-${number}`,
    snapshotDraft: `${stem}.tmp`,
    historyDraft: `${stem}.history.draft`
  }
}
