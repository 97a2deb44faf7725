/** What holds of every journal: random ones, near the rules and far from them. */
import { assert, describe, it } from "@effect/vitest"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { Inspection, VIOLATIONS } from "../../src/contract/Inspection.ts"
import { isObject, type JsonObject, type JsonValue } from "../../src/contract/Json.ts"
import { TRANSACTION_PHASES } from "../../src/contract/Names.ts"
import { RecoveryCheck } from "../../src/contract/Recovery.ts"
import { admit } from "../../src/journal/Admission.ts"
import { inspect } from "../../src/journal/Inspection.ts"
import { operationId } from "../../src/journal/OperationId.ts"
import { decideTransition } from "../../src/journal/Transition.ts"
import { asObject, canonicalText, get, isIdentity, sameJson } from "../../src/journal/Value.ts"
import { SEED } from "../Seed.ts"
import { among, anyJson, document, frozen, journal, reordered, tried, walk, written } from "./Arbitraries.ts"

const question = Arbitrary.all({
  document,
  names: Arbitrary.schema(Schema.Struct({ goalId: Schema.String, agentId: Schema.String, turnKey: Schema.String })),
  namesOfJournal: among([true, true, true, false]),
  retryFailed: Arbitrary.schema(Schema.Boolean),
  sessionCheck: Arbitrary.schema(Schema.NullOr(RecoveryCheck))
})
type Question = typeof question extends Arbitrary.Arbitrary<infer Q> ? Q : never

const ask = ({ document, names, namesOfJournal, retryFailed, sessionCheck }: Question): Inspection =>
  inspect(document, namesOfJournal ? ownNames(document) : names, { retryFailed, sessionCheck })

const ownNames = (document: JsonValue) => {
  const journal = asObject(document)
  const envelope = asObject(get(asObject(get(journal, "plan")), "turn_envelope"))
  const text = (value: JsonValue | undefined): string => (isIdentity(value) ? value : "")
  return {
    goalId: text(get(journal, "goal_id")),
    agentId: text(get(envelope, "agent_id") ?? get(journal, "agent_id")),
    turnKey: text(get(journal, "turn_key"))
  }
}

describe(`inspection, seed ${SEED}`, () => {
  const isInspection = Schema.is(Inspection)

  it.prop(
    "MUST NOT fail on any JSON, nor change it",
    [question],
    ([asked]) => {
      const found = ask({ ...asked, document: frozen(asked.document) })
      assert.isTrue(isInspection(found))
    },
    tried(2000)
  )

  it.prop(
    "MUST be that of no retry and no session where neither is named",
    [question],
    ([{ document, names }]) => {
      const plain = inspect(document, names, { retryFailed: false, sessionCheck: null })
      assert.deepStrictEqual(inspect(document, names), plain)
    },
    tried(200)
  )

  it.prop(
    "MUST be a function of its input",
    [question],
    ([asked]) => {
      assert.deepStrictEqual(ask({ ...asked, document: structuredClone(asked.document) }), ask(asked))
    },
    tried(500)
  )

  it.prop(
    "MUST NOT depend on the order of keys",
    [question],
    ([asked]) => {
      assert.deepStrictEqual(ask({ ...asked, document: reordered(asked.document) }), ask(asked))
    },
    tried(500)
  )

  it.prop(
    "replay_legal MUST imply a consistent tombstone without violations",
    [question],
    ([asked]) => {
      const found = ask(asked)
      assert.strictEqual(found.replay_legal, found.violations.length === 0)
      assert.strictEqual(found.decision, found.replay_legal ? "replay_legal" : "replay_blocked")
      if (found.replay_legal) assert.isTrue(found.journal_consistent && found.tombstone_retained)
      if (found.replay_legal) assert.isTrue(found.goal_matches && found.owner_matches && found.turn_key_matches)
    },
    tried(2000)
  )

  it.prop(
    "continue MUST imply a consistent turn and a phase to resume",
    [question],
    ([asked]) => {
      const { journal_consistent, recovery_decision } = ask(asked)
      const { action, can_continue, resume_from, reinvoke_host, checks } = recovery_decision
      assert.strictEqual(can_continue, action === "continue")
      assert.strictEqual(checks[0]?.kind, "journal_consistency")
      if (action === "continue") assert.isTrue(journal_consistent && resume_from !== null)
      if (action === "continue") assert.isFalse(checks.some(({ outcome }) => outcome === "failed"))
      if (reinvoke_host) assert.strictEqual(action, "continue")
      if (!journal_consistent) assert.strictEqual(action, "blocked")
    },
    tried(2000)
  )

  it.effect("is asked about every decision and nearly every violation", () =>
    Effect.gen(function* () {
      // Guards the generator: properties of documents that are all alike say nothing.
      const found = (yield* Arbitrary.sampleEffect(question, { count: 3000, seed: 0 })).map(ask)
      const actions = new Set(found.map(({ recovery_decision }) => recovery_decision.action))
      assert.deepStrictEqual([...actions].sort(), ["blocked", "continue", "return_existing"])
      const met = new Set(found.flatMap(({ violations }) => violations))
      assert.isAbove(met.size, VIOLATIONS.length - 5)
    })
  )
})

describe(`writes, seed ${SEED}`, () => {
  it.prop(
    "an admitted journal MUST be consistent, and bear the name of its canonical form",
    [journal(2)],
    ([incoming]) => {
      const admitted = admit(frozen(incoming), null)
      if (Result.isFailure(admitted)) return
      assert.isTrue(admitted.success.examination.consistent)
      assert.strictEqual(admitted.success.operationId, operationId(reordered(incoming)))
    },
    tried(2000)
  )

  it.prop(
    "no sequence of writes MUST skip a checkpoint, fork or regress phases, or change a terminal record",
    [walk],
    ([writes]) => {
      let stored: JsonObject | null = null
      for (const write of writes) {
        const next: JsonObject = written(write, stored)
        if (!isAccepted(stored, next)) continue
        if (stored === null) assert.deepStrictEqual(next["completed_phases"], [])
        else assertFollows(stored, next)
        stored = next
      }
    },
    tried(500, 60)
  )

  it.effect("are accepted often enough", () =>
    Effect.gen(function* () {
      // Guards the generator: walks that never leave the first write say nothing.
      const walks = yield* Arbitrary.sampleEffect(walk, { count: 300, seed: 0, size: 60 })
      const lengths = walks.map((writes) => {
        const history: Array<JsonObject> = []
        for (const write of writes) {
          const stored = history.at(-1) ?? null
          const next = written(write, stored)
          if (isAccepted(stored, next) && !sameJson(stored ?? undefined, next)) history.push(next)
        }
        return history.length
      })
      assert.isAbove(lengths.filter((length) => length > 4).length, 60)
    })
  )
})

const isAccepted = (stored: JsonObject | null, next: JsonObject): boolean => {
  const incoming = admit(next, null)
  const before = stored === null ? null : admit(stored, null)
  if (Result.isFailure(incoming) || (before !== null && Result.isFailure(before))) return false
  return Result.isSuccess(decideTransition(incoming.success, before === null ? null : before.success, undefined))
}

const CHECKPOINTS: ReadonlyArray<number> = [0, 2, 3, 4, 5, 7]

/** What a reader of the page expects of two journals that stood after one another. */
const assertFollows = (stored: JsonObject, next: JsonObject): void => {
  const phasesOf = (of: JsonObject) => of["completed_phases"] as ReadonlyArray<string>
  const [before, after] = [phasesOf(stored), phasesOf(next)]
  const short = Math.min(before.length, after.length)
  assert.isTrue(sameJson(stored["plan"], next["plan"]))
  assert.deepStrictEqual(after.slice(0, short), before.slice(0, short))
  if (after.length < before.length) {
    assert.deepStrictEqual([stored["status"], next["status"]], ["failed", "in_progress"])
    assert.strictEqual(get(asObject(stored["receipt"]), "failed_phase"), "validation")
  }
  if (isObject(get(asObject(stored["plan"]), "transaction")) && after.length > before.length) {
    assert.strictEqual(CHECKPOINTS.indexOf(after.length), CHECKPOINTS.indexOf(before.length) + 1)
    assert.isTrue(CHECKPOINTS.includes(before.length))
    assert.deepStrictEqual(after, TRANSACTION_PHASES.slice(0, after.length))
  }
  if (stored["status"] === "committed" || stored["status"] === "stopped") {
    assert.isTrue(sameJson({ ...next, recovery_audit: null }, { ...stored, recovery_audit: null }))
  }
}

describe(`operation ids, seed ${SEED}`, () => {
  it.prop(
    "two documents MUST have one canonical form exactly when they are one",
    [Arbitrary.all([document, document])],
    ([[left, right]]) => {
      const pairs = [left, right, reordered(left)].filter(hasCanonicalForm)
      for (const one of pairs) {
        for (const other of pairs) assert.strictEqual(sameJson(one, other), canonicalText(one) === canonicalText(other))
      }
    },
    tried(500)
  )

  it.prop(
    "the canonical form MUST be the form of what it says",
    [anyJson],
    ([value]) => {
      if (!hasCanonicalForm(value)) return
      const text = canonicalText(value)
      assert.strictEqual(canonicalText(JSON.parse(text)), text)
      assert.isTrue(sameJson(JSON.parse(text), value))
    },
    tried(1000)
  )
})

const hasCanonicalForm = (value: JsonValue): boolean => {
  try {
    canonicalText(value)
    return true
  } catch {
    return false
  }
}
