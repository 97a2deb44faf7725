/** Which journal may be stored by itself: turn-journal.md section 6, steps 1 to 3. */
import * as Result from "effect/Result"
import { InvalidJournal, JournalConflict } from "../contract/Errors.ts"
import { check, isObject, type JsonObject, type JsonValue } from "../contract/Json.ts"
import { TURN_JOURNAL_SCHEMA } from "../contract/Names.ts"
import type { TurnAddress } from "./Address.ts"
import { type Examination, examine } from "./Examination.ts"
import { violationsOf } from "./Inspection.ts"
import { operationIdOf } from "./OperationId.ts"
import { recoveryAudit } from "./RecoveryAudit.ts"
import { canonical, get, has } from "./Value.ts"

/** A journal that may be stored, with what a transition needs to know of it. */
export interface Admission extends Named {
  readonly journal: JsonObject
  readonly examination: Examination
  readonly effectId: string | null
}

/** A journal as canonical JSON, which is what is hashed and what is stored, and the name that it has by that. */
export interface Named {
  readonly canonical: string
  readonly operationId: string
}

export type Refusal = InvalidJournal | JournalConflict

const snapshotInvalid = (message: string, details: JsonObject = {}): InvalidJournal =>
  new InvalidJournal({ kind: "journal_snapshot_invalid", message, details })

const statusConflict = (message: string, details: JsonObject): JournalConflict =>
  new JournalConflict({ kind: "journal_transition_conflict", message, details })

/**
 * Holds a journal against itself and against the turn that its canonical path names; the same for reads and writes.
 * `known` is its canonical JSON and operation id, where they were made before; what they are made of here is a copy, so
 * that what is admitted stays as it is whoever changes the journal.
 */
export const admit = (
  journal: JsonValue,
  address: TurnAddress | null,
  known?: Named
): Result.Result<Admission, Refusal> => {
  if (!isObject(journal)) return Result.fail(snapshotInvalid("A journal is one JSON object."))
  if (get(journal, "schema_version") !== TURN_JOURNAL_SCHEMA) {
    return Result.fail(snapshotInvalid(`A journal's schema_version is "${TURN_JOURNAL_SCHEMA}".`))
  }
  const named = known === undefined ? nameOf(journal) : Result.succeed({ ...known, journal })
  const examination = examine(Result.isSuccess(named) ? named.success.journal : journal, null)
  const refusal = addressRefusal(examination, address) ?? contentRefusal(examination)
  if (refusal !== null) return Result.fail(refusal)
  return Result.map(named, ({ journal, canonical, operationId }) => ({
    journal,
    examination,
    effectId: examination.effectId,
    canonical,
    operationId
  }))
}

/** The journal as canonical JSON and as a copy, or what in it that cannot carry. */
const nameOf = (journal: JsonObject): Result.Result<Named & Pick<Admission, "journal">, InvalidJournal> =>
  Result.try({
    try: () => {
      const { text, value } = canonical(journal)
      return { canonical: text, operationId: operationIdOf(text), journal: value as JsonObject }
    },
    catch: () => {
      const fault = check(journal)
      return snapshotInvalid(`A journal is canonical JSON: ${fault?.message}.`, { path: fault?.path ?? "$" })
    }
  })

const addressRefusal = ({ identities }: Examination, address: TurnAddress | null): Refusal | null => {
  if (address === null) return null
  const differs = [
    { field: "goal_id", value: identities.goal.find((value) => value !== undefined), expected: address.goalId },
    { field: "turn_key", value: identities.turnKey.find((value) => value !== undefined), expected: address.turnKey }
  ].find(({ value, expected }) => value !== undefined && value !== expected)
  return differs === undefined
    ? null
    : new InvalidJournal({
        kind: "journal_path_mismatch",
        message: `The journal's ${differs.field} is not the one of its path: write it to the path of its own turn.`,
        details: { field: differs.field }
      })
}

const contentRefusal = (examination: Examination): Refusal | null => {
  const violations = violationsOf(examination)
  const { goalReferenceViolation, prepared, statusPhaseViolation, consistent, journal } = examination
  if (goalReferenceViolation !== null) {
    return snapshotInvalid(`The goal reference is not bound: ${goalReferenceViolation}.`, { violations })
  }
  if (prepared.violation !== null) {
    return statusConflict(`The prepared effect does not stand: ${prepared.violation}.`, { violations })
  }
  if (statusPhaseViolation !== null) {
    return statusConflict("The status does not fit the completed phases.", { violations })
  }
  if (!consistent) {
    return snapshotInvalid(`The journal is not consistent: ${violations.join(", ")}.`, { violations })
  }
  if (has(journal, "recovery_audit") && recoveryAudit(get(journal, "recovery_audit")) === null) {
    return snapshotInvalid("The recovery_audit is malformed: correct it, or leave the key out.")
  }
  return null
}

/** Refuses a writer that expected to write for another effect; null or blank expects nothing. */
export const expectEffect = (admission: Admission, expected: string | null | undefined): Refusal | null => {
  const wanted = (expected ?? "").trim()
  return wanted === "" || wanted === admission.effectId
    ? null
    : new InvalidJournal({
        kind: "invalid_request",
        message: "The journal's effect id is not the expected one: it belongs to another turn.",
        details: { expected_effect_id: wanted, effect_id: admission.effectId }
      })
}
