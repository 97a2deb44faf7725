/** Pruning of runs: in parts, and with nothing left behind. The rules are cases: tests/contract/run_journal/journal.json. */
import { existsSync, readFileSync, statSync } from "node:fs"
import { DatabaseSync } from "node:sqlite"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { make } from "../../src/run/RunJournal.ts"
import { type Journal, withJournal } from "./Journals.ts"

const TABLES = ["journal", "runs", "run_drives", "step_attempts", "run_lineage"]

const fill = (journal: Journal, runId: string) =>
  journal.drive(runId, (run) =>
    Effect.gen(function* () {
      for (let number = 0; number < 20; number++) {
        yield* run.tool("look", { number }, Effect.succeed("the secret ".repeat(50)))
      }
      yield* Effect.ignore(run.tool("fail", {}, Effect.fail(new Error("no"))))
      yield* run.iteration(1)
    })
  )

const bytesOf = (path: string): string =>
  [path, `${path}-wal`].map((file) => (existsSync(file) ? readFileSync(file, "latin1") : "")).join("")

it.live.each(["deleteRun", "prune"] as const)("what %s removes is in no table, no page and no log", (remove) =>
  withJournal((journal, path) =>
    Effect.gen(function* () {
      yield* fill(journal, "origin")
      yield* journal.fork("origin", "r", 21)
      yield* fill(journal, "r")
      assert.include(bytesOf(path), "the secret")
      if (remove === "prune") assert.deepStrictEqual(yield* journal.prune(0), ["origin", "r"])
      else for (const runId of ["origin", "r"]) yield* journal.deleteRun(runId)
      assert.notInclude(bytesOf(path), "the secret")
      const connection = new DatabaseSync(path)
      const left = TABLES.filter((table) => connection.prepare(`SELECT 1 FROM ${table}`).get() !== undefined)
      connection.close()
      assert.deepStrictEqual(left, [])
    })
  )
)

it.live("removes while another one writes, and says which runs went", () =>
  withJournal((journal, path) =>
    Effect.gen(function* () {
      const other = yield* make({ path })
      const runIds = Array.from({ length: 1200 }, (_, number) => `r${number}`)
      for (const runId of runIds) {
        yield* journal.openRun(runId)
        yield* journal.closeRun(runId)
      }
      const pruning = yield* Effect.forkChild(journal.prune(0))
      yield* Effect.yieldNow
      yield* other.append({ runId: "other", seq: 0, kind: "iteration", payload: { index: 0 } })
      assert.deepStrictEqual(yield* Fiber.join(pruning), runIds)
      assert.lengthOf(yield* other.events("other"), 1)
    }).pipe(Effect.scoped)
  )
)

it.live("a reader is not waited for, and vacuum gives the space back", () =>
  withJournal((journal, path) =>
    Effect.gen(function* () {
      for (let number = 0; number < 20; number++) yield* fill(journal, `r${number}`)
      const reader = new DatabaseSync(path)
      reader.exec("BEGIN")
      reader.prepare("SELECT * FROM journal").get()
      assert.lengthOf(yield* journal.prune(0, { keep: 1 }), 19)
      reader.exec("COMMIT")
      reader.close()
      const size = statSync(path).size
      const kept = yield* journal.events("r19")
      yield* journal.vacuum
      assert.isBelow(statSync(path).size, size / 2)
      assert.deepStrictEqual(yield* journal.events("r19"), kept)
    })
  )
)
