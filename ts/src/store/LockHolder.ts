/**
 * Who holds a lock, asked of the kernel: it costs the holder nothing and cannot be out of date. Linux says it; where
 * the system does not, the holder stays unnamed.
 */
import { lstatSync, readFileSync } from "node:fs"

export interface LockHolder {
  readonly pid: number
  readonly command: string
}

/** `1: POSIX  ADVISORY  WRITE 4711 fe:01:123456 1073741824 1073742335`; waiters have an arrow before the type. */
const HELD = /^\d+: POSIX +\S+ +(READ|WRITE) +(-?\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) /

/** The process that keeps others from a lock file; a writer before a reader. */
export const holderOf = (lockFile: string): LockHolder | null => {
  try {
    const { ino } = lstatSync(lockFile, { bigint: true })
    const held = readFileSync("/proc/locks", "utf8")
      .split("\n")
      .map((line) => HELD.exec(line))
      .filter((match) => match?.[3] === String(ino))
    const pid = Number((held.find((match) => match?.[1] === "WRITE") ?? held[0])?.[2])
    return Number.isInteger(pid) && pid > 0 ? { pid, command: commandOf(pid) } : null
  } catch {
    return null
  }
}

const commandOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim()
  } catch {
    return "of another user or container"
  }
}
