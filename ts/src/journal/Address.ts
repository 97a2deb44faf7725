/** Where a turn lives: turn-journal.md section 1. */
import * as Result from "effect/Result"
import { InvalidJournal } from "../contract/Errors.ts"

/** A turn's name: its goal and its key. */
export interface TurnAddress {
  readonly goalId: string
  readonly turnKey: string
}

const HASHED_KEY = /^sha256:([0-9a-f]{64})$/
const READABLE_KEY = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/
const HEX_NAME = /^[0-9a-f]{64}$/
const HEX_NAME_ANY_CASE = /^[0-9a-fA-F]{64}$/
const CONTROL_CHARACTER = /\p{Cc}/u
const MAX_GOAL_ID_BYTES = 200
const SUFFIX = ".json"

/** Whether a text can name a goal: one path segment, not blank, without control characters. */
export const isGoalId = (goalId: string): boolean =>
  goalId.trim() !== "" &&
  goalId !== "." &&
  goalId !== ".." &&
  goalId.isWellFormed() &&
  !/[/\\]/.test(goalId) &&
  !CONTROL_CHARACTER.test(goalId) &&
  Buffer.byteLength(goalId, "utf8") <= MAX_GOAL_ID_BYTES

/** The file name (without `.json`) of a turn key; null when it is no turn key. */
export const nameOfTurnKey = (turnKey: string): string | null => {
  const hashed = HASHED_KEY.exec(turnKey)
  if (hashed !== null) return hashed[1] ?? null
  return READABLE_KEY.test(turnKey) && !HEX_NAME_ANY_CASE.test(turnKey) ? turnKey : null
}

/** The turn key that a file name (without `.json`) stands for; null when it is not a turn's. */
export const turnKeyOfName = (name: string): string | null => {
  if (HEX_NAME.test(name)) return `sha256:${name}`
  return nameOfTurnKey(name) === name ? name : null
}

/** The path segments of a turn under its runtime root. */
export const segmentsOf = ({ goalId, turnKey }: TurnAddress): Result.Result<ReadonlyArray<string>, InvalidJournal> => {
  if (!isGoalId(goalId)) {
    return refused("goal_id", "A goal_id is one path segment of at most 200 bytes, without control characters.")
  }
  const name = nameOfTurnKey(turnKey)
  return name === null
    ? refused(
        "turn_key",
        "A turn_key is sha256:<64 lower-case hex> or up to 128 letters, digits, '.', '_' and '-', starting with a letter or digit."
      )
    : Result.succeed(["goals", goalId, "turns", name + SUFFIX])
}

const refused = (field: string, message: string) =>
  Result.fail(new InvalidJournal({ kind: "invalid_request", message, details: { field } }))

/** The turn that the last segments of a path name; null when the path does not have the canonical layout. */
export const addressOfPath = (segments: ReadonlyArray<string>): TurnAddress | null => {
  const [goals, goalId, turns, file] = segments.slice(-4)
  if (goals !== "goals" || turns !== "turns" || goalId === undefined || file === undefined) return null
  if (!isGoalId(goalId) || !file.endsWith(SUFFIX)) return null
  const turnKey = turnKeyOfName(file.slice(0, -SUFFIX.length))
  return turnKey === null ? null : { goalId, turnKey }
}
