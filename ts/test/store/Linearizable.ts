/**
 * Checks what many writers logged against the histories they left: one linear order in which every acknowledged write
 * stands once, and every refusal is right for a state that its call can have met. `node Linearizable.ts ROOT LOGS`.
 */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import type { JsonObject, JsonValue } from "../../src/contract/Json.ts"
import { type Admission, admit } from "../../src/journal/Admission.ts"
import { operationId } from "../../src/journal/OperationId.ts"
import { decideTransition } from "../../src/journal/Transition.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { placeOf } from "./Turns.ts"

interface Call {
  readonly name: string
  readonly call: number
  readonly turn: string
  readonly journal: JsonObject
  readonly start: number
  readonly expected_previous?: string | null
  /** When it was answered; never, when its writer was killed. */
  end: number
  appended?: boolean
  replayed?: boolean
  refused?: string
}

const fail = (why: string, call?: Call): never => {
  process.stderr.write(`${why} ${call === undefined ? "" : JSON.stringify(call)}\n`)
  process.exit(1)
}

const callsIn = (folder: string): ReadonlyArray<Call> => {
  const calls = new Map<string, Call>()
  for (const file of readdirSync(folder)) {
    for (const line of readFileSync(join(folder, file), "utf8").split("\n").slice(0, -1)) {
      const entry = JSON.parse(line) as Call
      const name = `${entry.name}/${entry.call}`
      const begun = calls.get(name)
      if (begun === undefined) calls.set(name, { ...entry, end: Number.POSITIVE_INFINITY })
      else Object.assign(begun, { ...entry, start: begun.start })
    }
  }
  return [...calls.values()]
}

/** What a write comes to in a state: the rules alone, without a store. */
const outcomeIn = (call: Call, stored: Admission | null): string => {
  const decided = Result.flatMap(admit(call.journal, null), (incoming) =>
    decideTransition(incoming, stored, call.expected_previous)
  )
  return Result.isSuccess(decided) ? decided.success : decided.failure.kind
}

const [root = "", logs = ""] = process.argv.slice(2)
const calls = callsIn(logs)
const verified = await Effect.runPromise(
  Effect.flatMap(JournalStore, (store) => store.verify({ runtimeRoot: root })).pipe(
    Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer())))
  )
)
if (!verified.ok) fail(`a history is not whole: ${JSON.stringify(verified.turns)}`)

const counts = { calls: calls.length, appended: 0, replayed: 0, refused: 0, unanswered: 0, stands: 0 }
for (const turn of new Set(calls.map(({ turn }) => turn))) {
  const { history, snapshot } = filesOf(placeOf(root, turn))
  const states = readFileSync(history, "utf8")
    .split(/[\n\r]/)
    .slice(0, -1)
    .map((line) => Result.getOrThrow(admit((JSON.parse(line) as { journal: JsonValue }).journal, null)))
  const standing = operationId(JSON.parse(readFileSync(snapshot, "utf8")) as JsonObject)
  // What was written last may be a line whose writer was killed before its journal stood.
  if (states.at(-1)?.operationId !== standing) states.pop()
  if (states.at(-1)?.operationId !== standing) fail(`${turn}: the journal is not the last of its history`)
  counts.stands += states.length

  const indexOf = new Map(states.map(({ operationId }, index) => [operationId, index]))
  const ofTurn = calls.filter((call) => call.turn === turn)
  const known = new Set(ofTurn.map(({ journal }) => operationId(journal)))
  for (const [index, state] of states.entries()) {
    if (indexOf.get(state.operationId) !== index) {
      const call = ofTurn.find(({ name, call }) => `${name}-${call}` === state.journal["mark"])
      fail(`${turn}: a journal stands twice`, call)
    }
    if (!known.has(state.operationId)) fail(`${turn}: transition ${index + 1} is nobody's`)
    const decided = decideTransition(state, states[index - 1] ?? null, undefined)
    if (Result.isFailure(decided)) fail(`${turn}: transition ${index + 1} does not follow: ${decided.failure.message}`)
  }

  const placed = ofTurn.map((call) => ({ call, index: indexOf.get(operationId(call.journal)) ?? -1 }))
  for (const { call, index } of placed) {
    // The states that it can have met: after all that was acknowledged before it, and before all that began after it.
    const earliest = Math.max(-1, ...placed.filter((other) => isBefore(other, call)).map((other) => other.index))
    const latest = Math.max(-1, ...placed.filter((other) => other.call.start < call.end).map((other) => other.index))
    const met = states.map((_, at) => at).slice(Math.max(0, earliest), latest + 1)
    const outcomes = [...(earliest < 0 ? [null] : []), ...met.map((at) => states[at] ?? null)]
    if (call.appended === true) {
      counts.appended++
      if (index < 0) fail("an acknowledged write is lost", call)
      if (index <= earliest) fail("a write stands before one that was acknowledged before it began", call)
      const before = states[index - 1]?.operationId ?? null
      if (call.expected_previous !== undefined && call.expected_previous !== before)
        fail("it followed on another", call)
    } else if (call.replayed === true) {
      counts.replayed++
      if (!outcomes.some((state) => outcomeIn(call, state) === "replay")) fail("a replay of what never stood", call)
    } else if (call.refused !== undefined) {
      counts.refused++
      const isRight = outcomes.some((state) => outcomeIn(call, state) === call.refused)
      if (call.refused !== "turn_busy" && !isRight) fail("a refusal that is not right for any state it met", call)
    } else counts.unanswered++
  }
}
process.stdout.write(`${JSON.stringify(counts)}\n`)

function isBefore(other: { readonly call: Call; readonly index: number }, call: Call): boolean {
  return other.call.appended === true && other.call.end < call.start
}
