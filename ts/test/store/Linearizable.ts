/**
 * Checks what many clients logged against the histories they left, in folders or in a database: one linear order in
 * which every acknowledged write stands once, every refusal is right for a state that its call can have met, and every
 * read answers one. A write counts as unknown only where its error says so. `node Linearizable.ts ROOT LOGS`.
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
import { Databases } from "../../src/store/Databases.ts"
import { Driver } from "../../src/store/Driver.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { placeOf } from "./Turns.ts"

interface Entry {
  readonly name: string
  readonly call: number | string
  readonly turn: string
  readonly start: number
  /** When it was answered; never, when its client was killed or the outcome is not known. */
  end: number
}

interface Read extends Entry {
  /** The operation id of the journal; null where there was none. */
  found?: string | null
}

interface Call extends Entry {
  readonly journal: JsonObject
  readonly expected_previous?: string | null
  appended?: boolean
  replayed?: boolean
  refused?: string
}

/** Says that it is not known what became of a write. */
const UNKNOWN = "store_outcome_unknown"
/** Say that the store could not be asked, and that nothing was changed. */
const NOT_ASKED: ReadonlySet<string> = new Set(["turn_busy", "store_unavailable"])

const fail = (why: string, call?: Entry): never => {
  process.stderr.write(`${why} ${call === undefined ? "" : JSON.stringify(call)}\n`)
  process.exit(1)
}

const entriesIn = (folder: string): ReadonlyArray<Call | Read> => {
  const entries = new Map<string, Call | Read>()
  for (const file of readdirSync(folder)) {
    for (const line of readFileSync(join(folder, file), "utf8").split("\n").slice(0, -1)) {
      const entry = JSON.parse(line) as Call
      const name = `${entry.name}/${entry.call}`
      const begun = entries.get(name)
      if (begun === undefined) entries.set(name, { ...entry, end: Number.POSITIVE_INFINITY })
      else Object.assign(begun, { ...entry, start: begun.start })
    }
  }
  return [...entries.values()]
}

/** What a write comes to in a state: the rules alone, without a store. */
const outcomeIn = (call: Call, stored: Admission | null): string => {
  const decided = Result.flatMap(admit(call.journal, null), (incoming) =>
    decideTransition(incoming, stored, call.expected_previous)
  )
  return Result.isSuccess(decided) ? decided.success : decided.failure.kind
}

const [root = "", logs = ""] = process.argv.slice(2)
const entries = entriesIn(logs)
const calls = entries.filter((entry): entry is Call => "journal" in entry)
const reads = entries.filter((entry): entry is Read => !("journal" in entry))

interface Left {
  readonly lines: ReadonlyArray<string>
  readonly snapshot: string | null
}

const look = Effect.gen(function* () {
  const store = yield* JournalStore
  const driver = yield* Driver
  const verified = yield* store.verify({ runtimeRoot: root })
  if (!verified.ok) fail(`a history is not whole: ${JSON.stringify(verified.turns)}`)
  const left = new Map<string, Left>()
  for (const turn of new Set(entries.map(({ turn }) => turn))) {
    const lines: Array<string> = []
    const take = ({ text, end }: { readonly text: string; readonly end: string }) => {
      if (end !== "") lines.push(text)
      return true
    }
    const { snapshot } = yield* driver.scan(placeOf(root, turn), take, "settled")
    left.set(turn, { lines, snapshot: snapshot === null ? null : Buffer.from(snapshot.bytes).toString() })
  }
  return left
})
const left = await Effect.runPromise(
  Effect.provide(
    look,
    JournalStore.layer({ signingKey: null }).pipe(
      Layer.provideMerge(Databases.layer),
      Layer.provideMerge(FileDriver.layer())
    )
  )
)

const counts = {
  calls: calls.length,
  appended: 0,
  replayed: 0,
  refused: 0,
  unknown: 0,
  unanswered: 0,
  reads: 0,
  stands: 0
}
for (const [turn, { lines, snapshot }] of left) {
  const states = lines.map((line) =>
    Result.getOrThrow(admit((JSON.parse(line) as { journal: JsonValue }).journal, null))
  )
  const standing = snapshot === null ? undefined : operationId(JSON.parse(snapshot) as JsonObject)
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

  for (const call of ofTurn) if (call.refused === UNKNOWN) call.end = Number.POSITIVE_INFINITY
  const placed = ofTurn.map((call) => ({ call, index: indexOf.get(operationId(call.journal)) ?? -1 }))
  const seen = reads
    .filter((read) => read.turn === turn && read.found !== undefined)
    .map((read) => ({
      call: read,
      index: read.found === null ? -1 : (indexOf.get(read.found ?? "") ?? fail("a read of what never stood", read))
    }))
  const certain: ReadonlyArray<Placed> = [...placed.filter(({ call }) => call.appended === true), ...seen]
  /** The states that a call can have met: after all that was known before it, before all that began after it. */
  const window = (call: Entry) => ({
    earliest: Math.max(-1, ...certain.filter((other) => other.call.end < call.start).map(({ index }) => index)),
    latest: Math.max(-1, ...placed.filter((other) => other.call.start < call.end).map(({ index }) => index))
  })

  for (const { call, index } of seen) {
    counts.reads++
    const { earliest, latest } = window(call)
    if (index < earliest) fail("a read of what was no longer so when it began", call)
    if (index > latest) fail("a read of what was written after it", call)
  }
  for (const { call, index } of placed) {
    const { earliest, latest } = window(call)
    const met = states.map((_, at) => at).slice(Math.max(0, earliest), latest + 1)
    const outcomes = [...(earliest < 0 ? [null] : []), ...met.map((at) => states[at] ?? null)]
    if (call.appended === true) {
      counts.appended++
      if (index < 0) fail("an acknowledged write is lost", call)
      if (index <= earliest) fail("a write stands before what was known when it began", call)
      const before = states[index - 1]?.operationId ?? null
      if (call.expected_previous !== undefined && call.expected_previous !== before)
        fail("it followed on another", call)
    } else if (call.replayed === true) {
      counts.replayed++
      if (!outcomes.some((state) => outcomeIn(call, state) === "replay")) fail("a replay of what never stood", call)
    } else if (call.refused === UNKNOWN) counts.unknown++
    else if (call.refused !== undefined) {
      counts.refused++
      if (index >= 0 && call.journal["mark"] === `${call.name}-${call.call}`) fail("a refused write stands", call)
      const isRight = NOT_ASKED.has(call.refused) || outcomes.some((state) => outcomeIn(call, state) === call.refused)
      if (!isRight) fail("a refusal that is not right for any state it met", call)
    } else counts.unanswered++
  }
}
process.stdout.write(`${JSON.stringify(counts)}\n`)

interface Placed {
  readonly call: Entry
  readonly index: number
}
