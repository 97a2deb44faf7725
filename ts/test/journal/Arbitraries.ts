/** Random documents for the properties. */
import * as Arbitrary from "effect/Arbitrary"
import * as Schema from "effect/Schema"
import { isObject, type JsonObject, type JsonValue } from "../../src/contract/Json.ts"
import { TRANSACTION_PHASES } from "../../src/contract/Names.ts"
import { SEED, SOAK } from "../Seed.ts"
import { changed, journalOf, namedJournals } from "./Cases.ts"

/** How often a property is tried, and with how large values. */
export const tried = (runs: number, size = 10) => ({
  timeout: SOAK ? 1_800_000 : 60_000,
  arbitrary: { seed: SEED, runs: SOAK ? runs * 50 : runs, size }
})

export const anyJson: Arbitrary.Arbitrary<JsonValue> = Arbitrary.schema(Schema.Json)

/** One of several values, each as likely. */
export const among = <A>(choices: ReadonlyArray<A>): Arbitrary.Arbitrary<A> =>
  Arbitrary.map(upTo(choices.length - 1), (index) => choices[index] as A)

const upTo = (maximum: number): Arbitrary.Arbitrary<number> =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum })))

const oneOf = <A>(choices: ReadonlyArray<Arbitrary.Arbitrary<A>>): Arbitrary.Arbitrary<A> =>
  Arbitrary.flatMap(among(choices), (choice) => choice)

const STATUSES = ["in_progress", "started", "scheduler_action_required", "committed", "stopped", "failed"]

/** Values that some rule looks for, in places where it may not expect them. */
const known = among<JsonValue>([
  ...TRANSACTION_PHASES,
  ...["terminal_closeout", "task_postcondition", "prepared", "think", "act", "check", "i1", "t1", "o1", "ship-it"],
  ...STATUSES,
  ...[
    "coder",
    "night-1",
    "",
    " ",
    "\ufeff",
    "\u0085",
    "\ud800",
    "__proto__",
    null,
    true,
    false,
    0,
    -0,
    1,
    3,
    1.5,
    2 ** 53
  ]
])

const phases = Arbitrary.map(upTo(8), (count): JsonValue => TRANSACTION_PHASES.slice(0, count))

const value = oneOf<JsonValue>([known, phases, anyJson])

/** Every pointer into the named journals, and some that lead nowhere yet. */
const pointers = [
  ...new Set([
    ...Object.keys(namedJournals).flatMap((name) => pointersInto(journalOf(name))),
    ...["/effect_attempts", "/effect_id", "/note", "/scheduler", "/validation_stage", "/__proto__", "/host_result"]
  ])
]

function pointersInto(document: JsonValue, prefix = ""): ReadonlyArray<string> {
  return isObject(document)
    ? Object.entries(document).flatMap(([key, inner]) => [
        `${prefix}/${key}`,
        ...pointersInto(inner, `${prefix}/${key}`)
      ])
    : []
}

const effect = Arbitrary.map(
  Arbitrary.all({
    step: among(["durable_writeback", "quota_spend", "terminal_closeout", "act", "check"]),
    status: among(["prepared", "prepared", "prepared", "sent"]),
    owner: among(["ship-it:coder:t1:i1", "ship-it:coder:t1:i1", "night-1", ""])
  }),
  ({ step, status, owner }) => ({ [step]: { status, effect_ref: `${owner}#${step}` } })
)

interface Edit {
  readonly pointer: string
  readonly to?: JsonValue
}

const edit: Arbitrary.Arbitrary<Edit> = oneOf<Edit>([
  Arbitrary.all({ pointer: among(pointers), to: value }),
  Arbitrary.all({ pointer: among(pointers) }),
  Arbitrary.all({ pointer: Arbitrary.Constant("/completed_phases"), to: phases }),
  Arbitrary.all({ pointer: Arbitrary.Constant("/status"), to: among(STATUSES) }),
  Arbitrary.all({ pointer: Arbitrary.Constant("/effect_attempts"), to: effect }),
  Arbitrary.all({ pointer: Arbitrary.Constant("/receipt"), to: Arbitrary.all({ failed_phase: value }) })
])

/** An edit that does not fit the document leaves it as it is. */
const edited = (document: JsonValue, { pointer, to }: Edit): JsonValue => {
  try {
    return changed(document, pointer, to)
  } catch {
    return document
  }
}

/** A named journal with up to so many changes. */
export const journal = (maxLength: number): Arbitrary.Arbitrary<JsonObject> =>
  Arbitrary.map(
    Arbitrary.all({
      name: among(Object.keys(namedJournals)),
      edits: Arbitrary.array(edit, { maxLength })
    }),
    ({ name, edits }) => edits.reduce(edited, journalOf(name)) as JsonObject
  )

/** One write of a walk through a turn: a named journal or, for null, the one that is stored, with some changes. */
export interface Write {
  readonly name: string | null
  readonly edits: ReadonlyArray<Edit>
}

const TURNS: ReadonlyArray<ReadonlyArray<string>> = [
  ["opened", "executed", "validated", "written", "spent", "scheduling", "committed", "stopped"],
  ["opened", "executed", "failed at validation", "failed at the host", "failed at writeback", "validated"],
  ["custom", "custom open", "custom failed", "custom committed"],
  ["plain", "plain committed"]
]

/** Writes of one turn, one after another. */
export const walk: Arbitrary.Arbitrary<ReadonlyArray<Write>> = Arbitrary.flatMap(among(TURNS), (names) =>
  Arbitrary.array(
    Arbitrary.all({
      name: among([null, ...names]),
      edits: oneOf([Arbitrary.Constant<Array<Edit>>([]), Arbitrary.array(edit, { maxLength: 2 })])
    }),
    { maxLength: 60 }
  )
)

/** The journal that a write would put after the stored one. */
export const written = ({ name, edits }: Write, stored: JsonObject | null): JsonObject =>
  edits.reduce(edited, name === null ? (stored ?? {}) : journalOf(name)) as JsonObject

export const document: Arbitrary.Arbitrary<JsonValue> = oneOf<JsonValue>([journal(4), journal(1), anyJson])

/** A value that throws when somebody writes to it. */
export const frozen = <Value extends JsonValue>(of: Value): Value => {
  if (typeof of === "object" && of !== null) {
    for (const inner of Object.values(of)) frozen(inner)
    Object.freeze(of)
  }
  return of
}

/** The same document with the keys of all its objects the other way round. */
export const reordered = (of: JsonValue): JsonValue => {
  if (Array.isArray(of)) return of.map(reordered)
  if (!isObject(of)) return of
  return Object.fromEntries(
    Object.entries(of)
      .reverse()
      .map(([key, inner]) => [key, reordered(inner)])
  )
}
