/** Which journal may follow which: turn-journal.md section 6, steps 4 to 6. */
import * as Result from "effect/Result"
import { JournalConflict } from "../contract/Errors.ts"
import type { JsonObject } from "../contract/Json.ts"
import type { Admission } from "./Admission.ts"
import type { Examination } from "./Examination.ts"
import { asObject, get, sameJson } from "./Value.ts"

/** What a write does: stand after the stored journal, or find itself stored already. */
export type Transition = "append" | "replay"

/** From which status to which; a status that is not named goes nowhere. */
const STATUS_TRANSITIONS: ReadonlyMap<string, ReadonlyArray<string>> = new Map([
  ["started", ["started", "in_progress", "scheduler_action_required", "committed", "stopped", "failed"]],
  ["in_progress", ["in_progress", "scheduler_action_required", "committed", "stopped", "failed"]],
  ["scheduler_action_required", ["scheduler_action_required", "committed"]],
  ["failed", ["failed", "in_progress"]],
  ["committed", ["committed"]],
  ["stopped", ["stopped"]]
])

/** Statuses that a journal keeps with nothing but its recovery audit changed. */
const AUDIT_ONLY: ReadonlyArray<string> = ["scheduler_action_required", "failed", "committed", "stopped"]

/** The checkpoints of a transaction: how far the completed phases grow at once. */
const CHECKPOINTS: ReadonlyMap<number, number> = new Map([
  [0, 2],
  [2, 3],
  [3, 4],
  [4, 5],
  [5, 7]
])

const OPENING_STATUSES: ReadonlyArray<string> = ["in_progress", "started"]

/**
 * Decides a write against what is stored.
 *
 * `expectedPrevious` is the operation id of the stored journal that the writer saw, null for "nothing stored";
 * undefined: the writer does not say.
 */
export const decideTransition = (
  incoming: Admission,
  stored: Admission | null,
  expectedPrevious: string | null | undefined
): Result.Result<Transition, JournalConflict> => {
  if (stored !== null && stored.effectId !== incoming.effectId) {
    return refuse("journal_effect_conflict", "Another turn's effects are recorded here: use this turn's own path.")
  }
  if (stored?.operationId === incoming.operationId) return Result.succeed("replay")
  if (expectedPrevious !== undefined && expectedPrevious !== (stored?.operationId ?? null)) {
    return Result.fail(
      new JournalConflict({
        kind: "journal_previous_conflict",
        message: "The stored journal is not the one this write follows: read it again and decide anew.",
        details: { expected_previous: expectedPrevious, stored: stored?.operationId ?? null }
      })
    )
  }
  if (stored === null) {
    const { status, completed } = incoming.examination
    return OPENING_STATUSES.includes(status) && completed.length === 0
      ? Result.succeed("append")
      : refuse(TRANSITION, "The first write of a turn is in progress with no completed phase.")
  }
  if (!sameJson(get(stored.journal, "plan"), get(incoming.journal, "plan"))) {
    return refuse("journal_plan_conflict", "The plan of a turn never changes: start another turn for another plan.")
  }
  const from = stored.examination
  const to = incoming.examination
  if (!STATUS_TRANSITIONS.get(from.status)?.includes(to.status)) {
    return refuse(TRANSITION, `A turn does not go from ${from.status} to ${to.status}.`)
  }
  if (
    from.status === to.status &&
    AUDIT_ONLY.includes(from.status) &&
    !sameButAudit(stored.journal, incoming.journal)
  ) {
    return refuse(TRANSITION, `While a turn stays ${from.status}, only its recovery_audit may change.`)
  }
  return phasesFollow(from, to)
    ? Result.succeed("append")
    : refuse(TRANSITION, "The completed phases do not follow: they grow by whole checkpoints and never shrink.")
}

const TRANSITION = "journal_transition_conflict"

const refuse = (kind: JournalConflict["kind"], message: string) =>
  Result.fail(new JournalConflict({ kind, message, details: {} }))

const phasesFollow = (from: Examination, to: Examination): boolean => {
  const before = from.completed.length
  const after = to.completed.length
  if (after < before) return mayGoBack(from, to)
  return after === before || from.plain || CHECKPOINTS.get(before) === after
}

/** After a refused validation the work is done again, from whichever phase. */
const mayGoBack = (from: Examination, to: Examination): boolean => {
  const failedPhase = get(asObject(get(from.journal, "receipt")), "failed_phase")
  return from.status === "failed" && to.status === "in_progress" && !from.plan.custom && failedPhase === "validation"
}

const sameButAudit = (left: JsonObject, right: JsonObject): boolean => sameJson(withoutAudit(left), withoutAudit(right))

const withoutAudit = (journal: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(journal).filter(([key]) => key !== "recovery_audit"))
