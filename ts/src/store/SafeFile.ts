/**
 * Reading what may have been put there by anybody: nothing is followed, nothing hangs, nothing is read without a bound.
 */
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readSync,
  realpathSync,
  type Stats,
  statSync
} from "node:fs"
import { basename, dirname, join } from "node:path"
import type { Snapshot } from "./Driver.ts"
import { corrupt, isErrno, otherName, unsafe } from "./Failure.ts"
import type { Place } from "./Place.ts"

const { O_RDONLY } = constants
/** Windows has none of these. */
const { O_NOFOLLOW = 0, O_NONBLOCK = 0, O_DIRECTORY = 0 } = constants as Partial<typeof constants>

/** Never follows a link at the end of the path, and opens a FIFO without waiting for its other end. */
export const GUARDED = O_NOFOLLOW | O_NONBLOCK
export const READ = O_RDONLY | GUARDED
export const READ_FOLDER = O_RDONLY | O_DIRECTORY

/** What tells one state of a file from another, as far as a file system says. */
export interface Stamp {
  readonly dev: bigint
  readonly ino: bigint
  readonly size: bigint
  readonly mtimeNs: bigint
  readonly ctimeNs: bigint
}

export const sameStamp = (left: Stamp, right: Stamp): boolean =>
  left.dev === right.dev &&
  left.ino === right.ino &&
  left.size === right.size &&
  left.mtimeNs === right.mtimeNs &&
  left.ctimeNs === right.ctimeNs

/** Opens a plain file, or refuses; null when there is none. */
export const openPlain = (path: string, flags: number = READ): number | null => openFile(path, flags)?.fd ?? null

const openFile = (path: string, flags: number): { readonly fd: number; readonly stat: Stats } | null => {
  let fd: number
  try {
    fd = openSync(path, flags)
  } catch (error) {
    if (isErrno(error) && error.code === "ENOENT") return null
    throw isErrno(error) && error.code === "EMLINK" ? unsafe(path, "it is a symbolic link") : error
  }
  const stat = fstatSync(fd)
  if (stat.isFile()) return { fd, stat }
  closeSync(fd)
  throw unsafe(path, "it is not a plain file")
}

/** Reads a snapshot whole, of at most so many bytes; null when there is none. */
export const readSnapshot = (path: string, most: number): Snapshot | null => {
  const opened = openFile(path, READ)
  if (opened === null) return null
  const { fd, stat } = opened
  try {
    const { size, mtimeMs } = stat
    if (size > most) {
      throw corrupt("journal_corrupt", "The stored journal is larger than any journal may be.", {
        reason: "too_large",
        bytes: size,
        limit: most
      })
    }
    const bytes = Buffer.allocUnsafe(size)
    let length = 0
    while (length < size) {
      const got = readSync(fd, bytes, length, size - length, length)
      if (got === 0) break
      length += got
    }
    return { bytes: bytes.subarray(0, length), updatedAt: mtimeMs }
  } finally {
    closeSync(fd)
  }
}

const roots = new Map<string, string>()
const MAX_ROOTS = 256

const realRoot = (root: string): string => {
  const real = realpathSync.native(root)
  if (roots.size >= MAX_ROOTS) roots.clear()
  roots.set(root, real)
  return real
}

/**
 * Whether the folder of a place is there. Refuses one that is reached through a symbolic link below the runtime root;
 * the root itself may be one. Refuses names that the file system takes for those of another goal or turn as well.
 */
export const folderStands = (place: Place): boolean => {
  const folder = dirname(place.path)
  let real: string
  try {
    real = realpathSync.native(folder)
  } catch (error) {
    if (isErrno(error) && error.code === "ENOENT") {
      // A link that points nowhere looks like nothing, and a writer would make folders through it.
      if (place.root !== null) refuseLinks(place.root, folder)
      return false
    }
    throw error
  }
  if (place.root !== null && real !== folder) refuseDetour(place.root, folder, real)
  if (process.platform !== "linux") refuseOtherName(place.path)
  return true
}

const refuseDetour = (root: string, folder: string, real: string): void => {
  const below = folder.slice(root.length)
  const known = roots.get(root)
  if (known !== undefined && real === join(known, below)) return
  const direct = join(realRoot(root), below)
  if (real === direct) return
  throw folded(real) === folded(direct)
    ? otherName(folder, real)
    : unsafe(folder, "it is reached through a symbolic link")
}

/** Refuses a journal that stands under the name of another turn. On Linux names are as they are written. */
const refuseOtherName = (path: string): void => {
  try {
    const there = basename(realpathSync.native(path))
    if (there !== basename(path) && folded(there) === folded(basename(path))) throw otherName(path, there)
  } catch (error) {
    if (!isErrno(error) || error.code !== "ENOENT") throw error
  }
}

const folded = (name: string): string => name.normalize("NFC").toLowerCase()

/** Refuses symbolic links between a runtime root and a folder below it. */
export const refuseLinks = (root: string, folder: string): void => {
  for (let at = folder; at.length > root.length; at = dirname(at)) {
    if (lstatSync(at, { throwIfNoEntry: false })?.isSymbolicLink() === true) throw unsafe(at, "it is a symbolic link")
  }
}

/** Which folder it is that has a name. Its time of birth belongs to it: a number that became free is given out again. */
export const folderIdentity = (path: string): string => {
  const { ino, birthtimeNs } = statSync(path, { bigint: true })
  return `${ino}:${birthtimeNs}`
}
