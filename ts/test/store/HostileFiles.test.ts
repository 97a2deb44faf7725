/** Files that somebody else put where a turn's files belong: refused by name, nothing followed, nothing waited for. */
import { execFileSync } from "node:child_process"
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { createServer, type Server } from "node:net"
import { dirname, join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { assert, describe, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { CoreError } from "../../src/contract/Errors.ts"
import { mountTypeOf, networkKind } from "../../src/platform/FileSystemKind.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { AGENT, fresh, GOAL, kindOf, pathOf, placeOf, plainTurn, writeElsewhere } from "./Turns.ts"

const FIRST = plainTurn("turn-1", "in_progress", [])
const NEXT = plainTurn("turn-1", "in_progress", ["a"])

/** Everything that touches a turn, by name. */
const calls = (store: JournalStore["Service"], root: string): Record<string, Effect.Effect<unknown, CoreError>> => ({
  write: store.write({ path: pathOf(root, "turn-1"), journal: NEXT }),
  read: store.read({ path: pathOf(root, "turn-1") }),
  inspect: store.inspectStored({ runtimeRoot: root, goalId: GOAL, agentId: AGENT, turnKey: "turn-1" }),
  history: store.history({ path: pathOf(root, "turn-1") }),
  repair: store.repair({ path: pathOf(root, "turn-1") })
})

/** Queries go on past a damaged turn, or refuse to say that there is none. */
const queriesTell = (store: JournalStore["Service"], root: string, where: string) =>
  Effect.gen(function* () {
    const { turns } = yield* store.list({ runtimeRoot: root })
    assert.isTrue(
      turns.some(({ damage }) => damage !== null),
      `${where}: listed as damaged`
    )
    assert.isFalse((yield* store.verify({ runtimeRoot: root })).ok, where)
    const work = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, todoId: "t", turnInstanceId: "i" }
    assert.strictEqual(yield* kindOf(store.findSettlement(work)), "journal_readback_conflict", where)
  })

describe("hostile files", () => {
  layer(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ lockTimeout: 0.2 }))), {
    excludeTestServices: true
  })((it) => {
    const written = Effect.gen(function* () {
      const { store, root } = yield* fresh
      const inside = join(root, "root")
      yield* store.write({ path: pathOf(inside, "turn-1"), journal: FIRST })
      return { store, outside: root, root: inside, files: filesOf(placeOf(inside, "turn-1")) }
    })

    it.effect("follows no symbolic link to a folder, at any level", () =>
      Effect.gen(function* () {
        for (const level of ["goals", `goals/${GOAL}`, `goals/${GOAL}/turns`]) {
          for (const target of ["outside", "inside", "nowhere"] as const) {
            const { store, outside, root } = yield* written
            const link = join(root, level)
            const moved = join(target === "inside" ? root : outside, "moved")
            renameSync(link, moved)
            symlinkSync(target === "nowhere" ? join(outside, "nothing") : moved, link)
            const before = readdirSync(outside, { recursive: true }).sort()
            for (const [name, call] of Object.entries(calls(store, root))) {
              assert.strictEqual(yield* kindOf(call), "store_unsafe_path", `${name} through ${level} ${target}`)
            }
            assert.deepStrictEqual(readdirSync(outside, { recursive: true }).sort(), before)
          }
        }
      })
    )

    it.effect("follows no symbolic link to a file", () =>
      Effect.gen(function* () {
        for (const file of ["snapshot", "history", "lock", "snapshotDraft", "historyDraft"] as const) {
          for (const target of ["outside", "nowhere"] as const) {
            const { store, outside, root, files } = yield* written
            const secret = join(outside, "secret")
            if (target === "outside") writeFileSync(secret, "untouched")
            if (existsSync(files[file])) renameSync(files[file], join(outside, "moved"))
            symlinkSync(secret, files[file])
            const outcome = yield* Effect.result(calls(store, root)["write"] ?? Effect.void)
            // A draft is nobody's but the writer's: the link itself is removed.
            if (file.endsWith("Draft")) assert.strictEqual(outcome._tag, "Success", file)
            else {
              assert.strictEqual(outcome._tag === "Failure" ? outcome.failure.kind : "", "store_unsafe_path", file)
            }
            if (target === "outside") assert.strictEqual(readFileSync(secret, "utf8"), "untouched")
            else assert.isFalse(existsSync(secret), `${file}: nothing was made`)
            if (file === "snapshot") yield* queriesTell(store, root, "a linked snapshot")
          }
        }
      })
    )

    it.effect("takes no folder and no FIFO for a file, and waits for none", () =>
      Effect.gen(function* () {
        for (const kind of ["folder", "FIFO"] as const) {
          for (const file of ["snapshot", "history", "lock"] as const) {
            const { store, outside, root, files } = yield* written
            renameSync(files[file], join(outside, "moved"))
            if (kind === "folder") mkdirSync(files[file])
            else execFileSync("mkfifo", [files[file]])
            const { write, read, inspect } = calls(store, root)
            const all = file === "history" ? { write, read } : { write, read, inspect }
            for (const [name, call] of Object.entries(all)) {
              const where = `${name}, the ${file} is a ${kind}`
              assert.strictEqual(yield* kindOf(call ?? Effect.void), "store_unsafe_path", where)
            }
            if (file === "snapshot") yield* queriesTell(store, root, kind)
          }
        }
      })
    )

    it.effect("makes no draft where something else stands, but for what can be removed at once", () =>
      Effect.gen(function* () {
        for (const [kind, plant] of [
          ["folder", (path: string) => mkdirSync(path)],
          ["FIFO", (path: string) => execFileSync("mkfifo", [path])]
        ] as const) {
          for (const file of ["snapshotDraft", "historyDraft"] as const) {
            const { store, root, files } = yield* written
            plant(files[file])
            const outcome = yield* Effect.result(calls(store, root)["write"] ?? Effect.void)
            const where = `the ${file} is a ${kind}`
            if (kind === "FIFO") assert.strictEqual(outcome._tag, "Success", where)
            else assert.isTrue(outcome._tag === "Failure" && outcome.failure._tag === "StoreFailure", where)
            const standing = kind === "FIFO" ? NEXT : FIRST
            assert.deepStrictEqual<unknown>((yield* store.read({ path: files.snapshot })).journal, standing, where)
            assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok, where)
          }
        }
      })
    )

    it.effect("takes no file for a folder", () =>
      Effect.gen(function* () {
        for (const level of ["goals", `goals/${GOAL}`, `goals/${GOAL}/turns`]) {
          const { store, outside, root } = yield* written
          renameSync(join(root, level), join(outside, "moved"))
          writeFileSync(join(root, level), "a file")
          for (const [name, call] of Object.entries(calls(store, root))) {
            assert.strictEqual(yield* kindOf(call), "store_unsafe_path", `${name}, ${level} is a file`)
          }
        }
      })
    )

    it.effect("reads no more than a journal can be", () =>
      Effect.gen(function* () {
        const GIB = 2 ** 30
        for (const [file, kind] of [
          ["snapshot", "journal_corrupt"],
          ["history", "history_corrupt"],
          ["lock", "store_unsafe_path"]
        ] as const) {
          const { store, root, files } = yield* written
          // Another process of ours would open the lock anew.
          if (file === "lock") renameSync(files.lock, `${files.lock}.old`)
          writeFileSync(files[file], "")
          truncateSync(files[file], GIB)
          assert.strictEqual(yield* kindOf(calls(store, root)["write"] ?? Effect.void), kind, file)
        }
      })
    )

    it.effect("has no write-ahead log in its lock, which would let readers in beside a writer", () =>
      Effect.gen(function* () {
        const { store, root, files } = yield* written
        renameSync(files.lock, `${files.lock}.old`)
        const other = new DatabaseSync(files.lock)
        other.exec("PRAGMA journal_mode=WAL; CREATE TABLE one (id INTEGER)")
        for (const [name, call] of Object.entries(calls(store, root))) {
          assert.strictEqual(yield* kindOf(call), "store_unsafe_path", name)
        }
        other.close()
        yield* calls(store, root)["write"] as Effect.Effect<unknown, CoreError>
        const modeInHeader = readFileSync(files.lock).subarray(18, 20)
        assert.deepStrictEqual([...modeInHeader], [1, 1])
      })
    )

    it.effect("takes no database that holds data for a lock, and leaves it as it is", () =>
      Effect.gen(function* () {
        const { store, root, files } = yield* written
        renameSync(files.lock, `${files.lock}.old`)
        const database = new DatabaseSync(files.lock)
        database.exec("CREATE TABLE data AS SELECT zeroblob(100000) AS value")
        database.close()
        const before = readFileSync(files.lock)
        for (const [name, call] of Object.entries(calls(store, root))) {
          assert.strictEqual(yield* kindOf(call), "store_unsafe_path", name)
        }
        assert.deepStrictEqual(readFileSync(files.lock), before)
      })
    )

    it.effect(
      "writes nothing under a lock that it may only read: SQLite takes a reader's lock then, and says nothing",
      () =>
        Effect.gen(function* () {
          const { outside, root, files } = yield* written
          for (const folder of [outside, root, join(root, "goals"), join(root, "goals", GOAL)]) chmodSync(folder, 0o755)
          chmodSync(files.folder, 0o777)
          for (const file of [files.snapshot, files.history]) chmodSync(file, 0o666)
          chmodSync(files.lock, 0o444)
          assert.strictEqual(writeElsewhere(files.snapshot, NEXT, NOBODY), "store_io_failed")
          assert.deepStrictEqual<unknown>(JSON.parse(readFileSync(files.snapshot, "utf8")), FIRST)
          chmodSync(files.lock, 0o600)
        })
    )

    it.effect("takes no socket for a journal", () =>
      Effect.gen(function* () {
        const { store, files } = yield* written
        rmSync(files.snapshot)
        yield* Effect.acquireRelease(
          Effect.promise(
            () =>
              new Promise<Server>((resolve) => {
                const server = createServer().listen(files.snapshot, () => resolve(server))
              })
          ),
          (server) => Effect.sync(() => server.close())
        )
        assert.strictEqual(yield* kindOf(store.read({ path: files.snapshot })), "store_unsafe_path")
      })
    )

    it.effect("syncs no folder that it may not read, and writes all the same", () =>
      Effect.gen(function* () {
        const { outside, root, files } = yield* written
        for (const folder of [outside, root, join(root, "goals"), join(root, "goals", GOAL)]) chmodSync(folder, 0o711)
        chmodSync(files.folder, 0o777)
        for (const file of [files.snapshot, files.history, files.lock]) chmodSync(file, 0o666)
        assert.strictEqual(writeElsewhere(files.snapshot, NEXT, NOBODY), "ok")
      })
    )

    it.effect("names no goal or turn with a control character, a separator or too many letters", () =>
      Effect.gen(function* () {
        const { store, root, files } = yield* written
        for (const goalId of ["a\nb", "a/b", "..", "", "x".repeat(201), "a\u0000b", "\ud800"]) {
          const ask = { runtimeRoot: root, goalId, agentId: AGENT, turnKey: "turn-1" }
          assert.strictEqual(yield* kindOf(store.inspectStored(ask)), "invalid_request")
        }
        for (const turnKey of ["a\nb", "../x", "", ".hidden", "A".repeat(64), "sha256:AB"]) {
          const ask = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, turnKey }
          assert.strictEqual(yield* kindOf(store.inspectStored(ask)), "invalid_request")
        }
        for (const path of ["relative.json", "", `${root}/a\u0000.json`]) {
          assert.strictEqual(yield* kindOf(store.write({ path, journal: FIRST })), "invalid_request")
        }
        writeFileSync(join(dirname(files.snapshot), "strange\nname.json"), "{")
        const strange = join(root, "goals", "strange\ngoal", "turns")
        mkdirSync(strange, { recursive: true })
        copyFileSync(files.snapshot, join(strange, "turn-1.json"))
        writeFileSync(join(root, "goals", ".DS_Store"), "")
        const { turns } = yield* store.list({ runtimeRoot: root })
        assert.deepStrictEqual(
          turns.map(({ turn_key, damage }) => ({ turn_key, damage })),
          [{ turn_key: "turn-1", damage: null }]
        )
      })
    )

    it.effect("says what it may not read or write", () =>
      Effect.gen(function* () {
        for (const [file, kind] of [
          ["snapshot", "store_io_failed"],
          ["history", "store_io_failed"],
          ["folder", "store_io_failed"]
        ] as const) {
          const { store, outside, root, files } = yield* written
          for (const folder of [outside, root, join(root, "goals"), join(root, "goals", GOAL)]) chmodSync(folder, 0o755)
          chmodSync(files[file], 0)
          const { write = Effect.void } = calls(store, root)
          assert.strictEqual(yield* asNobody(kindOf(write)), kind, file)
          chmodSync(files[file], file === "folder" ? 0o700 : 0o600)
          assert.strictEqual((yield* store.read({ path: files.snapshot })).seq, 1)
        }
      })
    )
  })

  layer(Layer.empty)((it) => {
    it.effect("knows file systems on which locks do not hold", () =>
      Effect.sync(() => {
        assert.strictEqual(networkKind(0x6969, ""), "NFS")
        assert.strictEqual(networkKind(0xff534d42, ""), "CIFS")
        assert.strictEqual(networkKind(0x65735546, "fuse.sshfs"), "fuse.sshfs")
        assert.strictEqual(networkKind(0x65735546, "fuse.gocryptfs"), null)
        assert.strictEqual(networkKind(0xef53, "ext4"), null)
        const mounts = [
          "24 1 253:1 / / rw,relatime - ext4 /dev/vda rw",
          "30 24 0:40 / /mnt/far rw - fuse.sshfs host:/ rw",
          "31 24 0:41 / /mnt/far\\040away rw - fuse.rclone x rw"
        ].join("\n")
        assert.strictEqual(mountTypeOf("/mnt/far/a", mounts), "fuse.sshfs")
        assert.strictEqual(mountTypeOf("/mnt/far away/a", mounts), "fuse.rclone")
        assert.strictEqual(mountTypeOf("/mnt/farther", mounts), "ext4")
      })
    )
  })
})

const NOBODY = 65534

/** Root may read everything: as root, becomes nobody for a while. */
const asNobody = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  if (process.getuid?.() !== 0) return effect
  return Effect.acquireUseRelease(
    Effect.sync(() => process.seteuid?.(NOBODY)),
    () => effect,
    () => Effect.sync(() => process.seteuid?.(0))
  )
}
