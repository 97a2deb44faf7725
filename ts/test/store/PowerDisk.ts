/**
 * A power cut, played out: a disk that records what was asked of it, and the states that a file system may be left in
 * when the power goes at a given moment. What was not synced may be there, may be missing, may be torn, in any
 * combination; only a rename is done or not done.
 */
import { fstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import * as Effect from "effect/Effect"
import type { Disk, Step } from "../../src/store/Disk.ts"
import type { Dice } from "../Seed.ts"

type Entry =
  | { readonly kind: "create"; readonly path: string; readonly file: number }
  | { readonly kind: "write"; readonly file: number; readonly offset: number; readonly bytes: Buffer }
  | { readonly kind: "truncate"; readonly file: number; readonly length: number }
  | { readonly kind: "rename"; readonly from: string; readonly to: string }
  | { readonly kind: "remove"; readonly path: string }
  | { readonly kind: "folder"; readonly path: string }
  | { readonly kind: "gone"; readonly path: string }
  | { readonly kind: "sync"; readonly files: ReadonlyArray<number>; readonly folders: ReadonlyArray<string> }
  /** A write was begun, or acknowledged: what may stand from then on. */
  | { readonly kind: "begin" | "ack"; readonly stands: string | null }

/** What stops a process in the middle: nothing it wants of the disk afterwards is done. */
export class Killed extends Error {}

export class PowerDisk {
  readonly root: string
  readonly log: Array<Entry> = []
  /** Files that were there from the start. */
  readonly #planted = new Map<string, Buffer>()
  readonly #files = new Map<string, number>()
  #first: string | null = null

  constructor(root: string) {
    this.root = root
  }

  /** Takes what stands under the root as durable. */
  plant(stands: string): void {
    this.#first = stands
    for (const name of readdirSync(this.root, { recursive: true, encoding: "utf8" })) {
      const path = join(this.root, name)
      if (!statSync(path).isFile()) this.#planted.set(path, Buffer.alloc(0))
      else this.#planted.set(path, readFileSync(path))
    }
  }

  /** Somebody removes a folder with all that is in it, durably. */
  removeFolder(path: string): void {
    rmSync(path, { recursive: true })
    this.log.push({ kind: "gone", path })
  }

  note(kind: "begin" | "ack", stands: string | null): void {
    this.log.push({ kind, stands })
  }

  /** A disk that records; with `killedAt` the process is killed when it reaches that step. */
  over(disk: Disk, killedAt: Step | null = null): Disk {
    let killed = false
    const live = (step?: Step): void => {
      if (step !== undefined && step === killedAt) killed = true
      if (killed) throw new Killed("killed")
    }
    const record = (entry: Entry): void => {
      this.log.push(entry)
    }
    return {
      open: (step, path, flags) => {
        live(step)
        const fd = disk.open(step, path, flags)
        record({ kind: "create", path, file: this.#numberOf(fd) })
        return fd
      },
      close: disk.close,
      write: (step, fd, bytes, offset) => {
        live(step)
        disk.write(step, fd, bytes, offset)
        record({ kind: "write", file: this.#numberOf(fd), offset, bytes: Buffer.from(bytes) })
      },
      truncate: (step, fd, length) => {
        live(step)
        const isShorter = fstatSync(fd).size !== length
        disk.truncate(step, fd, length)
        if (isShorter) record({ kind: "truncate", file: this.#numberOf(fd), length })
      },
      sync: (step, fds) =>
        Effect.andThen(
          Effect.try({ try: () => live(step), catch: (error) => error }),
          Effect.sync(() => {
            const isFile = (fd: number): boolean => fstatSync(fd).isFile()
            const files = fds.filter(isFile).map((fd) => this.#numberOf(fd))
            const folders = fds.filter((fd) => !isFile(fd)).map((fd) => readlinkSync(`/proc/self/fd/${fd}`))
            record({ kind: "sync", files, folders })
          })
        ),
      rename: (step, from, to) =>
        Effect.andThen(
          Effect.try({ try: () => live(step), catch: (error) => error }),
          Effect.tap(disk.rename(step, from, to), () => Effect.sync(() => record({ kind: "rename", from, to })))
        ),
      remove: (step, path) => {
        live(step)
        disk.remove(step, path)
        record({ kind: "remove", path })
      },
      makeFolder: (step, path) => {
        live(step)
        disk.makeFolder(step, path)
        record({ kind: "folder", path })
      }
    }
  }

  /** A file's number, the same however it is opened. */
  #numberOf(fd: number): number {
    const { ino, dev } = fstatSync(fd, { bigint: true })
    const name = `${dev}:${ino}`
    const number = this.#files.get(name) ?? this.#files.size
    this.#files.set(name, number)
    return number
  }

  /** What may stand when the power goes before entry `until`. */
  allowedAt(until: number): ReadonlySet<string | null> {
    let allowed = new Set([this.#first])
    for (const entry of this.log.slice(0, until)) {
      if (entry.kind === "begin") allowed.add(entry.stands)
      if (entry.kind === "ack") allowed = new Set([entry.stands])
    }
    return allowed
  }

  /** One state that a power cut before entry `until` may leave, by chance. */
  stateAt(until: number, dice: Dice): Tree {
    const durable = this.#replay(until)
    return durable.settle(dice)
  }

  #replay(until: number): Volatile {
    const state = new Volatile()
    let planted = -1
    for (const [path, bytes] of this.#planted) {
      if (statSync(path).isDirectory()) state.names.set(path, "folder")
      else {
        state.names.set(path, planted)
        state.content.set(planted, bytes)
        planted--
      }
    }
    for (const entry of this.log.slice(0, until)) state.apply(entry)
    return state
  }
}

/** Paths to what is there: a folder, or a file's content. */
export type Tree = ReadonlyMap<string, Buffer | "folder">

type NameChange = Extract<Entry, { kind: "create" | "rename" | "remove" | "folder" }>
type ContentChange = Extract<Entry, { kind: "write" | "truncate" }>

/** What is durable, and what is still on its way. */
class Volatile {
  readonly names = new Map<string, number | "folder">()
  readonly content = new Map<number, Buffer>()
  #nameChanges: Array<NameChange> = []
  #contentChanges: Array<ContentChange> = []

  apply(entry: Entry): void {
    switch (entry.kind) {
      case "write":
      case "truncate":
        this.#contentChanges.push(entry)
        return
      case "create":
      case "rename":
      case "remove":
      case "folder":
        this.#nameChanges.push(entry)
        return
      case "gone": {
        const isLeft = (path: string): boolean => path !== entry.path && !path.startsWith(`${entry.path}/`)
        for (const path of this.names.keys()) if (!isLeft(path)) this.names.delete(path)
        this.#nameChanges = this.#nameChanges.filter((change) => isLeft(pathOf(change)))
        return
      }
      case "sync": {
        const isSynced = (change: ContentChange): boolean => entry.files.includes(change.file)
        for (const change of this.#contentChanges.filter(isSynced)) this.#changeContent(change)
        this.#contentChanges = this.#contentChanges.filter((change) => !isSynced(change))
        const isNamed = (change: NameChange): boolean => entry.folders.includes(dirname(pathOf(change)))
        for (const change of this.#nameChanges.filter(isNamed)) this.#changeName(change)
        this.#nameChanges = this.#nameChanges.filter((change) => !isNamed(change))
        return
      }
      default:
    }
  }

  /** Lets chance decide what of the rest arrived. */
  settle(dice: Dice): Tree {
    const luck = dice.pick([0, 0.5, 0.5, 1])
    for (const change of this.#contentChanges) {
      const arrived = dice.chance(luck) ? change : torn(change, dice)
      if (arrived !== null) this.#changeContent(arrived)
    }
    for (const change of this.#nameChanges) if (dice.chance(luck)) this.#changeName(change)
    const tree = new Map<string, Buffer | "folder">()
    for (const path of [...this.names.keys()].sort()) {
      const file = this.names.get(path)
      if (file === undefined || !this.#isReachable(path)) continue
      tree.set(path, file === "folder" ? file : (this.content.get(file) ?? Buffer.alloc(0)))
    }
    return tree
  }

  #isReachable(path: string): boolean {
    const parent = dirname(path)
    return !this.names.has(path)
      ? false
      : this.#madeLater(parent)
        ? this.names.has(parent) && this.#isReachable(parent)
        : true
  }

  /** Whether a folder is one that was made during the recording. */
  #madeLater(path: string): boolean {
    return this.names.has(path) || this.#nameChanges.some((change) => change.kind === "folder" && change.path === path)
  }

  #changeName(change: NameChange): void {
    switch (change.kind) {
      case "create":
        this.names.set(change.path, change.file)
        return
      case "folder":
        this.names.set(change.path, "folder")
        return
      case "remove":
        this.names.delete(change.path)
        return
      case "rename": {
        // A rename that is durable takes its file along, also where the name before it never was.
        const file = this.names.get(change.from) ?? this.#created(change.from)
        if (file === undefined) return
        this.names.delete(change.from)
        this.names.set(change.to, file)
      }
    }
  }

  #created(path: string): number | undefined {
    const found = this.#nameChanges.findLast((change) => change.kind === "create" && change.path === path)
    return found?.kind === "create" ? found.file : undefined
  }

  #changeContent(change: ContentChange): void {
    const before = this.content.get(change.file) ?? Buffer.alloc(0)
    this.content.set(change.file, change.kind === "truncate" ? resized(before, change.length) : written(before, change))
  }
}

const pathOf = (change: NameChange): string => (change.kind === "rename" ? change.to : change.path)

const resized = (before: Buffer, length: number): Buffer =>
  length <= before.length ? before.subarray(0, length) : Buffer.concat([before, Buffer.alloc(length - before.length)])

const written = (before: Buffer, { offset, bytes }: Extract<Entry, { kind: "write" }>): Buffer => {
  const after = Buffer.from(resized(before, Math.max(before.length, offset + bytes.length)))
  bytes.copy(after, offset)
  return after
}

/** What is left of a write that did not arrive as it was: nothing, its beginning, or its end, before which is what was there, or a hole. */
const torn = (change: ContentChange, dice: Dice): ContentChange | null => {
  if (change.kind === "truncate" || dice.chance(0.3)) return null
  const { bytes } = change
  const cut = dice.pick([1, bytes.length >> 1, bytes.length - 1, dice.below(bytes.length + 1)])
  if (dice.chance(0.5)) return { ...change, bytes: bytes.subarray(0, cut) }
  return { ...change, offset: change.offset + cut, bytes: bytes.subarray(cut) }
}

/** Puts a state on a real disk, under another root. */
export const materialize = (tree: Tree, from: string, to: string): void => {
  for (const [path, content] of tree) {
    const target = join(to, path.slice(from.length))
    if (content === "folder") mkdirSync(target, { recursive: true })
    else {
      mkdirSync(dirname(target), { recursive: true })
      writeFileSync(target, content)
    }
  }
}

/** States that look alike are one. */
export const fingerprint = (tree: Tree): string =>
  [...tree]
    .map(([path, content]) => `${basename(path)}=${content === "folder" ? "/" : content.toString("latin1")}`)
    .join("\u0000")
