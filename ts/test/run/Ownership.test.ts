/** Who drives a run, looked at while its driver ends. */
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, it } from "@effect/vitest"
import { open } from "../../src/run/Database.ts"
import { make } from "../../src/run/Ownership.ts"

it("a run that its owner ended before it died, and after it was read, is not interrupted", () => {
  const path = join(mkdtempSync(join(tmpdir(), "run-journal-")), "journal.db")
  mkdirSync(`${path}.owners`)
  writeFileSync(`${path}.owners/dead.lock`, "")
  const database = open(path, "process")
  const [driven, left] = [
    { run_id: "ended", owner: "dead" },
    { run_id: "left", owner: "dead" }
  ]
  const reads = [[driven, left], [left]]
  assert.deepStrictEqual(
    make(database).undriven(() => reads.shift() ?? []),
    [left]
  )
  database.close()
})
