/** Proof of life while others sweep: many start at once, and one buries what another has made and not locked yet. */
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, it } from "@effect/vitest"
import { vi } from "vitest"
import { makeOwner } from "../../src/run/Liveness.ts"

const buried = vi.hoisted((): Array<string> => [])

vi.mock("../../src/run/Database.ts", async (original) => {
  const database = await original<typeof import("../../src/run/Database.ts")>()
  return {
    ...database,
    createPrivate: (path: string): boolean => {
      const isNew = database.createPrivate(path)
      if (buried.length === 0) {
        buried.push(path)
        rmSync(path)
      }
      return isNew
    }
  }
})

const unlinked = vi.hoisted((): Array<string> => [])

vi.mock("node:sqlite", async (original) => {
  const sqlite = await original<typeof import("node:sqlite")>()
  return {
    ...sqlite,
    DatabaseSync: class extends sqlite.DatabaseSync {
      override exec(sql: string): void {
        // A sweeper that had the lock a moment ago has just let go of a file without a name.
        const file = this.location() ?? ""
        if (sql === "BEGIN EXCLUSIVE" && buried.length > 0 && unlinked.length === 0) {
          unlinked.push(file)
          rmSync(file)
        }
        super.exec(sql)
      }
    }
  }
})

it("an owner whose file is buried as a dead one's takes another", () => {
  const path = join(mkdtempSync(join(tmpdir(), "run-journal-")), "journal.db")
  const owner = makeOwner(path)
  assert.lengthOf(buried, 1)
  assert.isFalse(existsSync(buried[0] ?? ""))
  // Buried between the opening and the locking, which then locks what nobody else will find.
  assert.lengthOf(unlinked, 1)
  assert.isFalse(existsSync(unlinked[0] ?? ""))
  assert.deepStrictEqual(readdirSync(`${path}.owners`), [`${owner.token}.lock`])
  owner.release()
})
