/** The contract cases against the rules alone. tests/contract/test_turn_journal.py runs the same ones over the façade. */
import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import { isObject, type JsonObject, type JsonValue, parse, stringify } from "../../src/contract/Json.ts"
import type { RecoveryCheck } from "../../src/contract/Recovery.ts"
import { addressOfPath, segmentsOf } from "../../src/journal/Address.ts"
import { type Admission, admit, expectEffect } from "../../src/journal/Admission.ts"
import { inspect } from "../../src/journal/Inspection.ts"
import { operationId } from "../../src/journal/OperationId.ts"
import { decideTransition } from "../../src/journal/Transition.ts"
import { canonicalText } from "../../src/journal/Value.ts"
import { type Case, type CaseFile, caseFiles, filledIn, type JournalSpec, journalOf, namedJournals } from "./Cases.ts"

interface Question {
  readonly goal_id: string
  readonly agent_id: string
  readonly turn_key: string
  readonly retry_failed?: boolean
  readonly session_recovery_check?: RecoveryCheck | null
}

const runInspect = ({ request, expected }: Case, { question = {} }: CaseFile): void => {
  const asked = { ...question, ...request } as unknown as Question
  const found = inspect(
    journalOf(request["journal"] as JournalSpec),
    { goalId: asked.goal_id, agentId: asked.agent_id, turnKey: asked.turn_key },
    { retryFailed: asked.retry_failed ?? false, sessionCheck: asked.session_recovery_check ?? null }
  )
  assert.deepStrictEqual<unknown>(found, filledIn(expected, found))
}

interface Write {
  readonly journal: JournalSpec
  readonly expected_effect_id?: string | null
  readonly expected_previous?: string | null | { readonly operation_id_of: JournalSpec }
}

const runWrites = ({ request, expected }: Case): void => {
  const {
    writes,
    path,
    stored: seed
  } = request as unknown as {
    readonly writes: ReadonlyArray<Write>
    readonly path?: string
    readonly stored?: JournalSpec
  }
  let stored = seed === undefined ? null : journalOf(seed)
  const found = writes.map((write) => {
    const journal = journalOf(write.journal)
    const outcome = decide(journal, stored, path ?? canonicalPath(journal), write)
    if (Result.isFailure(outcome)) return { refused: outcome.failure.kind }
    if (outcome.success.appended) stored = journal
    return outcome.success
  })
  assert.deepStrictEqual<unknown>(found, expected)
}

const decide = (journal: JsonValue, stored: JsonValue | null, path: string, write: Write) =>
  Result.gen(function* () {
    const address = addressOfPath(path.split("/"))
    const incoming = yield* admit(journal, address)
    const refusal = expectEffect(incoming, write.expected_effect_id)
    if (refusal !== null) return yield* Result.fail(refusal)
    const before: Admission | null = stored === null ? null : yield* admit(stored, address)
    const { expected_previous: previous } = write
    const expected = isObject(previous) ? operationId(journalOf(previous["operation_id_of"] as JournalSpec)) : previous
    const transition = yield* decideTransition(incoming, before, expected as string | null | undefined)
    return { appended: transition === "append", replayed: transition === "replay", effect_id: incoming.effectId }
  })

const canonicalPath = (journal: JsonValue): string => {
  const { goal_id, turn_key } = journal as JsonObject
  return Result.getOrThrow(segmentsOf({ goalId: goal_id as string, turnKey: turn_key as string })).join("/")
}

const runAddress = ({ request, expected }: Case): void => {
  const found = segmentsOf({ goalId: request["goal_id"] as string, turnKey: request["turn_key"] as string })
  assert.deepStrictEqual<unknown>(
    Result.isSuccess(found) ? { path: found.success.join("/") } : { refused: found.failure.details["field"] },
    expected
  )
}

const runPath = ({ request, expected }: Case): void => {
  const address = addressOfPath((request["path"] as string).split("/"))
  assert.deepStrictEqual<unknown>(
    address === null ? null : { goal_id: address.goalId, turn_key: address.turnKey },
    expected
  )
}

const runOperationId = ({ request, expected }: Case): void => {
  const value = request["value"] as JsonValue
  assert.deepStrictEqual<unknown>({ canonical: canonicalText(value), operation_id: operationId(value) }, expected)
}

/** The text stands as the member `x` of a journal, as it would in a stored file. */
const runText = ({ request, expected }: Case): void => {
  const found = parse(`${stringify(journalOf("plain")).slice(0, -1)},"x":${request["text"]}}`)
  assert.deepStrictEqual<unknown>(
    Result.isSuccess(found)
      ? { value: sentAndRead((found.success as JsonObject)["x"] ?? null) }
      : { refused: found.failure.reason, path: found.failure.path },
    expected
  )
}

/** What a reader of the core's answer gets; minus zero leaves it as 0. */
const sentAndRead = (value: JsonValue): JsonValue => JSON.parse(stringify(value)) as JsonValue

const RUNNERS: Readonly<Record<string, (entry: Case, file: CaseFile) => void>> = {
  inspect: runInspect,
  write: runWrites,
  address: runAddress,
  path: runPath,
  operation_id: runOperationId,
  json: runText
}

describe("turn journal contract", () => {
  it.each(Object.keys(namedJournals))("the journal named %s is well described", (name) => {
    assert.isTrue(isObject(journalOf(name)))
  })

  for (const file of caseFiles()) {
    describe(file.file, () => {
      for (const entry of file.cases) {
        it(entry.name, () => {
          const run = RUNNERS[file.method]
          if (run === undefined) throw new Error(`no runner for the method "${file.method}"`)
          run(entry, file)
        })
      }
    })
  }
})
