/**
 * A program that fills a root with turns as the store leaves them, without its syncs: `node Fill.ts ROOT GOALS TURNS`.
 * Every fourth turn is open, the others are committed.
 */
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import * as Result from "effect/Result"
import type { JsonObject } from "../../src/contract/Json.ts"
import { admit } from "../../src/journal/Admission.ts"
import { type Link, writeLine } from "../../src/store/History.ts"
import { filesOf } from "../../src/store/Place.ts"
import { snapshotText } from "../../src/store/Stored.ts"
import { placeOf, wholeTurn } from "./Turns.ts"

const [root = "", goals = "", turns = ""] = process.argv.slice(2)
const at = new Date(0).toISOString()

/** The files of one turn, after the first writes of it. */
const fill = (goalId: string, number: number): void => {
  const turnKey = `turn-${String(number).padStart(6, "0")}`
  const journals = wholeTurn({ goalId, turnKey, todoId: `todo-${number}`, instanceId: turnKey })
  const place = placeOf(root, turnKey, goalId)
  const files = filesOf(place)
  let link: Link | null = null
  let history = ""
  let last: JsonObject = {}
  // An open turn has two transitions, one that is over has all six.
  const written = journals.filter((_, index) => index === 0 || index === 1 || (number % 4 !== 0 && index >= 2))
  for (const journal of written) {
    const admission = Result.getOrThrow(admit(journal, place.address))
    const line = writeLine(link, place.address, admission, { at, key: null })
    history += `${line.text}\n`
    link = line.link
    last = journal
  }
  mkdirSync(dirname(files.snapshot), { recursive: true })
  writeFileSync(files.snapshot, snapshotText(Result.getOrThrow(admit(last, place.address)).canonical))
  writeFileSync(files.history, history)
  writeFileSync(files.lock, "")
}

for (let number = 0; number < Number(turns); number++) {
  fill(`goal-${String(number % Number(goals)).padStart(4, "0")}`, number)
}
