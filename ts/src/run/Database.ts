/**
 * One SQLite file, looked at before it is touched, opened with settings that are read back. Everything here is
 * synchronous and throws the run journal's errors; `Busy` is for the service, which waits and tries again.
 *
 * Every write takes the write lock as it begins: a transaction is `BEGIN IMMEDIATE`, and a single statement outside of
 * one is a transaction that starts as a writer. run-journal.md, sections 1 and 5.
 */
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, statSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { DatabaseSync, type SQLInputValue, type SQLOutputValue, type StatementSync } from "node:sqlite"
import { InvalidJournal, JournalCorrupt, StoreFailure } from "../contract/Errors.ts"
import { networkFileSystem } from "../platform/FileSystemKind.ts"
import { isRunError } from "./Errors.ts"
import { SCHEMA_VERSION, STATEMENTS, TABLES } from "./Schema.ts"

export type Durability = "process" | "power"
export type Row = Readonly<Record<string, SQLOutputValue>>

export const MEMORY = ":memory:"

/** Another writer is at it; nothing was done. */
export class Busy extends Error {}

export interface Database {
  readonly path: string
  readonly write: (sql: string, ...parameters: ReadonlyArray<SQLInputValue>) => number
  readonly read: (sql: string, ...parameters: ReadonlyArray<SQLInputValue>) => ReadonlyArray<Row>
  /** As `read`, with integers as `bigint`. */
  readonly readExactly: (sql: string, ...parameters: ReadonlyArray<SQLInputValue>) => ReadonlyArray<Row>
  /** All or none; a writer from its first statement on. */
  readonly transaction: <A>(body: () => A) => A
  /** Several queries that see one state. */
  readonly snapshot: <A>(body: () => A) => A
  /** Puts what was written into the file, so that what was deleted is in the log no more; waits for nobody. */
  readonly emptyLog: () => void
  /** Writes the file anew, without what was deleted. */
  readonly vacuum: () => void
  readonly settings: () => Readonly<Record<string, SQLOutputValue>>
  readonly connection: DatabaseSync
  readonly close: () => void
}

/** How long SQLite itself waits, in ms; the service goes on waiting without holding up the process. */
const OWN_PATIENCE = 5
/**
 * How long the file that is open is taken for the one of its name, in ms: a look at each write costs a fifth of it. What is
 * written in between is lost as what was written before.
 */
const LOOK_INTERVAL = 100
const SMALLEST_PAGE = 512
/** Of new files. A commit writes whole pages, and most events are far smaller than one. */
const PAGE_SIZE = 2048
const SYNCHRONOUS: Readonly<Record<Durability, number>> = { process: 1, power: 2 }

const BUSY = 5
const LOCKED = 6
const READONLY = 8
const CORRUPT = 11
const FULL = 13
const TOOBIG = 18
const CONSTRAINT = 19
const MISMATCH = 20
const NOTADB = 26
const REFUSED = new Set([3, READONLY, 10, 14])

/** Any URL, also with one slash: as a file it would be a folder called `postgresql:`, and hold the password. */
const URL_OF_SOMETHING = /^[A-Za-z][A-Za-z0-9+.-]+:\//

export const open = (path: string, durability: Durability): Database => {
  const place = path === MEMORY ? path : resolve(path)
  return guarded(place, () => {
    if (!(durability in SYNCHRONOUS)) {
      throw new InvalidJournal({
        kind: "invalid_request",
        message: `The durability ${JSON.stringify(durability)} is unknown; use "process" or "power".`,
        details: {}
      })
    }
    if (URL_OF_SOMETHING.test(path)) {
      throw new InvalidJournal({
        kind: "invalid_request",
        message: "This run journal is a file: name one. Runs in a database are driven from Python.",
        details: { field: "path" }
      })
    }
    if (place !== MEMORY) prepareFile(place)
    const file = place === MEMORY ? null : identityOf(place)
    const connection = new DatabaseSync(place, { timeout: OWN_PATIENCE })
    try {
      if (place !== MEMORY) {
        const wanted = settingsOf(durability)
        connection.exec(`PRAGMA page_size = ${PAGE_SIZE}`)
        connection.exec("PRAGMA journal_mode = WAL")
        for (const [name, value] of Object.entries(wanted)) connection.exec(`PRAGMA ${name} = ${value}`)
        readBack(connection, place, { journal_mode: "wal", ...wanted })
      }
      makeTables(connection)
    } catch (error) {
      connection.close()
      throw error
    }
    return make(place, connection, file)
  })
}

const make = (path: string, connection: DatabaseSync, file: string | null): Database => {
  let lookedAt = Number.NEGATIVE_INFINITY
  /** What is written to a file that has lost its name is lost. */
  const refuseOtherFile = (): void => {
    const now = performance.now()
    if (file === null || now - lookedAt < LOOK_INTERVAL) return
    if (file === identityOf(path)) {
      lookedAt = now
      return
    }
    throw new StoreFailure({
      kind: "store_io_failed",
      message: `${path} was removed or replaced while it was open, and nothing was written: what is written to a file without a name is lost. Open the journal again.`,
      details: { path }
    })
  }
  const statements = new Map<string, StatementSync>()
  const prepare = (sql: string): StatementSync => {
    let statement = statements.get(sql)
    if (statement === undefined) {
      statement = connection.prepare(sql)
      statements.set(sql, statement)
    }
    return statement
  }
  const within = <A>(begin: string, body: () => A): A =>
    guarded(path, () => {
      connection.exec(begin)
      try {
        const found = body()
        connection.exec("COMMIT")
        return found
      } catch (error) {
        // Some failures have rolled back by themselves.
        if (connection.isTransaction) connection.exec("ROLLBACK")
        throw error
      }
    })
  const emptyLog = (): void => {
    try {
      connection.exec("PRAGMA wal_checkpoint(TRUNCATE)")
    } catch {
      // What was deleted is deleted, whatever becomes of this.
    }
  }
  return {
    path,
    connection,
    write: (sql, ...parameters) =>
      guarded(path, () => {
        const statement = prepare(sql)
        refuseOtherFile()
        return Number(statement.run(...parameters).changes)
      }),
    read: (sql, ...parameters) => guarded(path, () => prepare(sql).all(...parameters)),
    readExactly: (sql, ...parameters) =>
      guarded(path, () => {
        const statement = connection.prepare(sql)
        statement.setReadBigInts(true)
        return statement.all(...parameters)
      }),
    transaction: (body) =>
      within("BEGIN IMMEDIATE", () => {
        refuseOtherFile()
        return body()
      }),
    snapshot: (body) => within("BEGIN DEFERRED", body),
    emptyLog,
    vacuum: () =>
      guarded(path, () => {
        connection.exec("VACUUM")
        emptyLog()
      }),
    settings: () =>
      Object.fromEntries(["journal_mode", "synchronous", "fullfsync"].map((name) => [name, pragma(connection, name)])),
    close: () => {
      if (connection.isOpen) connection.close()
    }
  }
}

/** Which file has a name; empty when none can be found. */
const identityOf = (path: string): string => {
  try {
    const { dev, ino } = statSync(path)
    return `${dev}:${ino}`
  } catch {
    return ""
  }
}

/** Runs SQLite's calls; what it refuses becomes an error of ours. */
const guarded = <A>(path: string, calls: () => A): A => {
  try {
    return calls()
  } catch (error) {
    throw typed(error, path)
  }
}

const typed = (error: unknown, path: string): unknown => {
  if (isRunError(error) || error instanceof Busy || !(error instanceof Error)) return error
  const { code, errcode } = error as Error & { readonly code?: string; readonly errcode?: number }
  const details = { path, cause: error.message }
  if (code === "ERR_INVALID_STATE") {
    return new StoreFailure({ kind: "store_io_failed", message: "The journal is closed; open it again.", details })
  }
  if (code !== "ERR_SQLITE_ERROR") {
    if (typeof (error as NodeJS.ErrnoException).syscall !== "string") return error
    return new StoreFailure({
      kind: code === "ENOSPC" || code === "EDQUOT" ? "store_full" : "store_io_failed",
      message: `${path} cannot be made: ${error.message}. The journal needs a folder that this user may write.`,
      details
    })
  }
  const primary = (errcode ?? 0) & 0xff
  if (primary === BUSY || primary === LOCKED) return new Busy(error.message)
  if (primary === CORRUPT || primary === NOTADB) return damaged(path, error.message)
  if (primary === FULL) {
    return new StoreFailure({
      kind: "store_full",
      message: `The disk of ${path} is full; nothing was written.`,
      details
    })
  }
  if (primary === TOOBIG || primary === CONSTRAINT || primary === MISMATCH) {
    return new InvalidJournal({
      kind: "invalid_request",
      message: `The value cannot be stored: ${error.message}.`,
      details
    })
  }
  return new StoreFailure({
    kind: "store_io_failed",
    message: REFUSED.has(primary)
      ? `${path} cannot be used (${error.message}); nothing was changed. The file and its folder must be writable by this user, for reading too, and their disk must have room: where that is not so, copy the file, and its -wal beside it, to where it is.`
      : `SQLite refused the operation on ${path}: ${error.message}.`,
    details
  })
}

const damaged = (path: string, cause: string): JournalCorrupt =>
  new JournalCorrupt({
    kind: "journal_corrupt",
    message: `${path} is damaged or no SQLite file (${cause}). It was left as it is: restore a backup, or recover what can be read with \`sqlite3 <file> .recover\`.`,
    details: { path, cause }
  })

const prepareFile = (path: string): void => {
  const folder = dirname(path)
  const standing = nearestFolder(folder)
  const network = networkFileSystem(standing)
  if (network !== null) {
    throw new StoreFailure({
      kind: "store_unsupported",
      message: `The journal ${path} would lie on a network file system (${network}), where SQLite's write-ahead log corrupts under two hosts. Put it on a local disk: pass another path or set TURN_JOURNAL_HOME.`,
      details: { path, file_system: network }
    })
  }
  if (!existsSync(path) && createPrivate(path)) syncFolder(folder)
  else lookAt(path)
}

/** Makes a file, readable by its owner alone, unless it is there; says whether it was made. */
export const createPrivate = (path: string): boolean => {
  makeFolder(dirname(path))
  try {
    closeSync(openSync(path, "wx", 0o600))
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false
    throw error
  }
}

/** Node's own `recursive` never ends where a file system answers ENOENT although the parent is there, as /proc does. */
const makeFolder = (folder: string): void => {
  if (existsSync(folder)) return
  makeFolder(dirname(folder))
  try {
    mkdirSync(folder, { mode: 0o700 })
  } catch (error) {
    // Another process was first.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error
  }
}

const syncFolder = (folder: string): void => {
  if (process.platform === "win32") return
  const descriptor = openSync(folder, "r")
  fsyncSync(descriptor)
  closeSync(descriptor)
}

const nearestFolder = (folder: string): string => (existsSync(folder) ? folder : nearestFolder(dirname(folder)))

/** Refuses what is no run journal or a newer one, through a connection that cannot write. */
const lookAt = (path: string): void => {
  const stats = statSync(path)
  if (!stats.isFile()) {
    // SQLite says "disk I/O error" of both.
    const what = stats.isDirectory()
      ? `a folder: name a file in it, as ${join(path, "runs.db")}`
      : "no plain file: name another one"
    throw new StoreFailure({
      kind: "store_unsafe_path",
      message: `A run journal is a file, and ${path} is ${what}.`,
      details: { path }
    })
  }
  const { size } = stats
  // SQLite takes a file that ends before its first page for a new one.
  if (size > 0 && size < SMALLEST_PAGE) throw damaged(path, "file is not a database")
  const { version, tables } = readSchema(path)
  if (tables.size > 0 && !Object.keys(TABLES).some((name) => tables.has(name))) {
    throw new JournalCorrupt({
      kind: "journal_corrupt",
      message: `${path} is a database of something else, and has no runs in it. It was left as it is; name another file.`,
      details: { path }
    })
  }
  if (version > SCHEMA_VERSION) {
    throw new StoreFailure({
      kind: "store_unsupported",
      message: `${path} is of version ${version}; this package reads up to ${SCHEMA_VERSION}. Upgrade turn-journal-core; the file was left as it is.`,
      details: { path, version, supported: SCHEMA_VERSION }
    })
  }
  for (const [name, wanted] of Object.entries(TABLES)) {
    const found = tables.get(name) ?? new Set()
    const missing = wanted.filter((column) => !found.has(column))
    if ((found.size > 0 || version > 0) && missing.length > 0) {
      throw new JournalCorrupt({
        kind: "journal_corrupt",
        message: `${path} is no run journal: its table \`${name}\` lacks ${missing.join(", ")}. It was left as it is; name another file.`,
        details: { path, table: name }
      })
    }
  }
}

/** The version of the file, and of each of its tables the columns, as far as they are a journal's. */
const readSchema = (path: string, readOnly = true): { version: number; tables: Map<string, Set<string>> } => {
  const connection = new DatabaseSync(path, { readOnly, timeout: OWN_PATIENCE })
  try {
    // Read as of one moment: another process may be making the tables.
    connection.exec("BEGIN")
    const version = Number(pragma(connection, "user_version"))
    const names = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all()
    const columnsOf = (name: string): Set<string> =>
      new Set(
        connection
          .prepare(`PRAGMA table_info(${name})`)
          .all()
          .map((row) => String(row["name"]))
      )
    const tables = new Map(
      names.map((row) => {
        const name = String(row["name"])
        return [name, Object.hasOwn(TABLES, name) ? columnsOf(name) : new Set<string>()]
      })
    )
    return { version, tables }
  } catch (error) {
    // Whoever made the file was killed before it had a log; what it left half done has to be undone first.
    const code = (error as { readonly errcode?: number }).errcode ?? 0
    if (readOnly && (code & 0xff) === READONLY) return readSchema(path, false)
    throw error
  } finally {
    connection.close()
  }
}

const settingsOf = (durability: Durability): Readonly<Record<string, number>> => {
  // NORMAL: a commit is in the kernel's hands, which survives the process. FULL: it is on the disk. On macOS only the
  // full form of fsync reaches the platter.
  const full = durability === "power" && process.platform === "darwin" ? 1 : 0
  return {
    // What is deleted is overwritten: it was perhaps deleted for a reason.
    secure_delete: 1,
    synchronous: SYNCHRONOUS[durability],
    fullfsync: full,
    checkpoint_fullfsync: full,
    wal_autocheckpoint: (4096 * 1000) / PAGE_SIZE
  }
}

const readBack = (connection: DatabaseSync, path: string, wanted: Readonly<Record<string, string | number>>): void => {
  for (const [name, value] of Object.entries(wanted)) {
    const found = pragma(connection, name)
    if (found === value) continue
    throw new StoreFailure({
      kind: "store_unsupported",
      message: `SQLite keeps ${name} = ${found} for ${path} where ${value} is needed: what it acknowledges would not be durable. Put the journal on a local disk.`,
      details: { path, setting: name, found: String(found), wanted: value }
    })
  }
}

const makeTables = (connection: DatabaseSync): void => {
  if (Number(pragma(connection, "user_version")) >= SCHEMA_VERSION) return
  connection.exec("BEGIN IMMEDIATE")
  try {
    for (const statement of STATEMENTS) connection.exec(statement)
    connection.exec(`PRAGMA user_version = ${SCHEMA_VERSION}`)
    connection.exec("COMMIT")
  } catch (error) {
    if (connection.isTransaction) connection.exec("ROLLBACK")
    throw error
  }
}

const pragma = (connection: DatabaseSync, name: string): SQLOutputValue => {
  const row = connection.prepare(`PRAGMA ${name}`).get()
  return row === undefined ? null : (Object.values(row)[0] ?? null)
}
