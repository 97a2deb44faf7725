/** Journals in files of their own, and drives that are left as an error would leave them. */
import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type { DurableRun } from "../../src/run/DurableRun.ts"
import { make, type RunJournal } from "../../src/run/RunJournal.ts"

export type Journal = RunJournal["Service"]

/** The file of a new journal, in folders that are yet to be made. */
export const newPath = (): string => join(mkdtempSync(join(tmpdir(), "run-journal-")), "runs", "journal.db")

export const withJournal = <A, E>(use: (journal: Journal, path: string) => Effect.Effect<A, E>) => {
  const path = newPath()
  return Effect.scoped(Effect.flatMap(make({ path }), (journal) => use(journal, path)))
}

export class Killed extends Data.TaggedError("Killed") {}

/** Drives a loop and leaves it as an error would. */
export const interrupt = <A, E>(journal: Journal, runId: string, loop: (run: DurableRun) => Effect.Effect<A, E>) =>
  Effect.flip(journal.drive(runId, (run) => Effect.andThen(loop(run), Effect.fail(new Killed()))))
