import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import type { JsonObject, JsonValue } from "../../src/contract/Json.ts"
import type { RecoveryCheck } from "../../src/contract/Recovery.ts"
import { admit, expectEffect } from "../../src/journal/Admission.ts"
import { inspect } from "../../src/journal/Inspection.ts"
import { decideTransition } from "../../src/journal/Transition.ts"

const corpus = <Case>(name: string): ReadonlyArray<Case> =>
  readFileSync(new URL(`../../../tests/contract/corpus/${name}.jsonl`, import.meta.url), "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Case)

interface InspectionCase {
  readonly request: {
    readonly journal: JsonObject
    readonly goal_id: string
    readonly agent_id: string
    readonly turn_key: string
    readonly retry_failed: boolean
    readonly session_recovery_check: RecoveryCheck | null
  }
  readonly expected: unknown
}

interface TransitionCase {
  readonly request: {
    readonly existing: JsonValue
    readonly incoming: JsonValue
    readonly expected_effect_id?: string | null
  }
  readonly expected: unknown
}

describe("the corpus", () => {
  const inspections = corpus<InspectionCase>("inspections")
  const transitions = corpus<TransitionCase>("transitions")

  it("has 500 inspections and 500 transitions", () => {
    assert.deepStrictEqual([inspections.length, transitions.length], [500, 500])
  })

  it.each(inspections.map((entry, index) => ({ index, ...entry })))("inspection $index", ({ request, expected }) => {
    const { journal, goal_id, agent_id, turn_key, retry_failed, session_recovery_check } = request
    const before = JSON.stringify(journal)
    const found = inspect(
      journal,
      { goalId: goal_id, agentId: agent_id, turnKey: turn_key },
      { retryFailed: retry_failed, sessionCheck: session_recovery_check }
    )
    assert.deepStrictEqual<unknown>(found, expected)
    assert.strictEqual(JSON.stringify(journal), before)
  })

  it.each(transitions.map((entry, index) => ({ index, ...entry })))("transition $index", ({ request, expected }) => {
    assert.deepStrictEqual(outcome(request), expected)
  })
})

const outcome = ({ existing, incoming, expected_effect_id }: TransitionCase["request"]): unknown => {
  const decided = Result.gen(function* () {
    const next = yield* admit(incoming, null)
    const refusal = expectEffect(next, expected_effect_id)
    if (refusal !== null) return yield* Result.fail(refusal)
    const stored = existing === null ? null : yield* admit(existing, null)
    const transition = yield* decideTransition(next, stored, undefined)
    return { appended: transition === "append", replayed: transition === "replay", effect_id: next.effectId }
  })
  return Result.isSuccess(decided) ? decided.success : { refused: decided.failure.kind }
}
