/**
 * Who holds a lock, asked of the kernel: it costs the holder nothing, and unlike a note beside the lock it cannot be out
 * of date. Linux says it of processes that this one may see; elsewhere the holder stays unnamed.
 */
import { lstatSync, readFileSync } from "node:fs"

export interface LockHolder {
  readonly pid: number
  readonly command: string
}

/** `1: POSIX  ADVISORY  WRITE 4711 fe:01:123456 1073741824 1073742335`; waiters have an arrow before the type. */
const HELD = /^\d+: POSIX +\S+ +(READ|WRITE) +(-?\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) (\d+) \d+$/
/** The first byte that SQLite locks. The device says nothing: some file systems tell `stat` another one. */
const PENDING_BYTE = 0x4000_0000

/** The process that keeps others from a lock file; a writer before a reader. */
export const holderOf = (lockFile: string): LockHolder | null => {
  try {
    const { ino } = lstatSync(lockFile, { bigint: true })
    const pid = pidIn(readFileSync("/proc/locks", "utf8"), ino)
    return pid === null ? null : { pid, command: commandOf(pid) }
  } catch {
    return null
  }
}

/** The process that holds SQLite's lock on a file, by the kernel's list of locks. */
export const pidIn = (locks: string, ino: bigint): number | null => {
  const held = locks
    .split("\n")
    .map((line) => HELD.exec(line))
    .filter((match) => match?.[3] === String(ino) && Number(match[4]) >= PENDING_BYTE)
  const pid = Number((held.find((match) => match?.[1] === "WRITE") ?? held[0])?.[2])
  return Number.isInteger(pid) && pid > 0 ? pid : null
}

const commandOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim()
  } catch {
    return "of another user or container"
  }
}
