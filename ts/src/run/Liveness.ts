/**
 * Proof that an owner lives, which the kernel keeps: the twin of run_journal/liveness.py.
 *
 * An owner holds SQLite's exclusive lock on a file of its own beside the journal for as long as it lives. The kernel frees
 * it when the process dies, however it dies: a lock that can be taken is proof of death, one that cannot is proof of
 * life. Tokens are never used twice. run-journal.md, section 4.
 */
import { randomBytes } from "node:crypto"
import { existsSync, readdirSync, rmSync } from "node:fs"
import { hostname } from "node:os"
import { basename, join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { pathToFileURL } from "node:url"
import { StoreFailure } from "../contract/Errors.ts"
import { createPrivate, MEMORY } from "./Database.ts"

export interface Owner {
  readonly token: string
  /** What it says of itself, for those whom it keeps out. */
  readonly holder: string
  readonly release: () => void
}

/** Tokens of this process. Such a file is never opened again: closing it once would drop the lock. */
const held = new Set<string>()

/** A new claim to be alive; one for a journal in memory, which has no second process, needs no lock. */
export const makeOwner = (path: string): Owner => {
  const holder = JSON.stringify({
    pid: process.pid,
    host: hostname(),
    language: "typescript",
    since: Date.now() / 1000
  })
  if (path === MEMORY) return { token: newToken(), holder, release: () => undefined }
  const folder = folderOf(path)
  try {
    sweep(folder)
    return { ...hold(folder), holder }
  } catch (error) {
    throw new StoreFailure({
      kind: "store_io_failed",
      message: `The lock of this process cannot be held in ${folder}: ${(error as Error).message}. The folder must be on a local disk and writable by this user.`,
      details: { path: folder }
    })
  }
}

/** Whether the owner of a token lives; what a dead one left is removed. */
export const isAlive = (path: string, token: string): boolean => !bury(join(folderOf(path), `${token}.lock`))

const folderOf = (path: string): string => `${path}.owners`

const newToken = (): string => `${process.pid}-${randomBytes(12).toString("hex")}`

const hold = (folder: string): Pick<Owner, "token" | "release"> => {
  for (;;) {
    const token = newToken()
    const file = join(folder, `${token}.lock`)
    held.add(token)
    createPrivate(file)
    // A sweeper may come between the making and the locking, and bury the file as a dead owner's.
    const lock = takeUnlessBuried(file)
    if (lock !== null && existsSync(file)) {
      const release = (): void => {
        rmSync(file, { force: true })
        lock.close()
        held.delete(token)
      }
      return { token, release }
    }
    lock?.close()
    held.delete(token)
  }
}

const takeUnlessBuried = (file: string): DatabaseSync | null => {
  try {
    return take(file)
  } catch (error) {
    if (existsSync(file)) throw error
    return null
  }
}

const sweep = (folder: string): void => {
  if (!existsSync(folder)) return
  for (const name of readdirSync(folder)) if (name.endsWith(".lock")) bury(join(folder, name))
}

/** Removes the file of a dead owner; false when it lives, or when nothing can be proven. */
const bury = (file: string): boolean => {
  if (held.has(basename(file, ".lock"))) return false
  if (!existsSync(file)) return true
  let lock: DatabaseSync | null
  try {
    // Shared: whoever else looks at this moment is no owner.
    lock = take(file, "shared")
  } catch {
    return !existsSync(file)
  }
  if (lock === null) return false
  // Removed while it is held, so that nobody takes it up in between.
  rmSync(file, { force: true })
  lock.close()
  return true
}

const SQLITE_BUSY = 5

/** Locks an existing file; null when somebody else holds it. */
const take = (file: string, mode: "exclusive" | "shared" = "exclusive"): DatabaseSync | null => {
  const url = pathToFileURL(file)
  url.searchParams.set("mode", "rw")
  const lock = new DatabaseSync(url, { timeout: 0 })
  try {
    // Nothing is ever written: a journal beside the lock would only be left behind.
    lock.exec("PRAGMA journal_mode = MEMORY")
    lock.exec(mode === "shared" ? "BEGIN" : "BEGIN EXCLUSIVE")
    lock.exec("SELECT 1 FROM sqlite_master") // a shared lock is taken by reading
    return lock
  } catch (error) {
    lock.close()
    if ((((error as { readonly errcode?: number }).errcode ?? 0) & 0xff) === SQLITE_BUSY) return null
    throw error
  }
}
