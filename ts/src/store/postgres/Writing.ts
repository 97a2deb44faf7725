/**
 * How a decision becomes a change: a change names the state that was decided on, and the database makes it only to
 * that. Where its answer is lost it is found out whether it stands; it is never guessed.
 */
import * as crypto from "node:crypto"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { type JournalConflict, TurnBusy } from "../../contract/Errors.ts"
import type { Commit, Encoded, Position, Step } from "../Driver.ts"
import type { StoreError } from "../Failure.ts"
import { leaseLost } from "../Lease.ts"
import { type Place, withinDatabase } from "../Place.ts"
import { outcomeUnknown, type Unsure, unavailable } from "./Failure.ts"
import { ABSENT, type Reading, type Standing } from "./Reading.ts"
import { keep } from "./Record.ts"
import type { Query, Row, Server } from "./Server.ts"
import * as Sql from "./Statements.ts"

type Decide<A, E> = (stored: Encoded) => Result.Result<Step<A>, E>

/** A change of a turn: what it is to, what it is made to, and its own mark, which becomes the turn's state. */
interface Change {
  readonly place: Place
  readonly before: Standing
  readonly commit: Commit | null
  readonly forget: boolean
  readonly lease: number | null
  readonly attempt: string
}

type Line = Commit["lines"][number]
/** `undone`: its answer was lost, and it does not stand. */
type Outcome = "made" | "missed" | "undone"

export const make = (reading: Reading) => {
  /**
   * Decides on what is remembered, as long as that comes to a change: only a change proves that it was right. Every
   * write goes this way, so it is spared the steps of a generator.
   */
  const transact = <A, E>(
    server: Server,
    place: Place,
    decide: Decide<A, E>,
    lease: number | null
  ): Effect.Effect<A, E | StoreError | JournalConflict> =>
    Effect.suspend(() => {
      const before = reading.remembered(place) ?? ABSENT
      const decided = decide(before.encoded)
      const careful = consider(server, place, decide, lease)
      if (Result.isFailure(decided) || decided.success.commit === null) return careful
      const { answer } = decided.success
      return Effect.flatMap(carryOut(server, changeOf(place, before, decided.success, lease)), (outcome) =>
        outcome === "made" ? Effect.succeed(answer) : careful
      )
    })

  /** Decides on what is read for it. */
  const consider = <A, E>(
    server: Server,
    place: Place,
    decide: Decide<A, E>,
    lease: number | null
  ): Effect.Effect<A, E | StoreError | JournalConflict> =>
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      const until = clock.currentTimeMillisUnsafe() + server.patience
      let outcome: Outcome
      do {
        const before = yield* reading.load(server, place)
        if (lease !== null && before.lease !== lease) return yield* leaseLost(lease, before.lease)
        const step = yield* Effect.fromResult(decide(before.encoded))
        if (step.commit === null && step.forget !== true) return step.answer
        outcome = yield* carryOut(server, changeOf(place, before, step, lease))
        if (outcome === "made") return step.answer
      } while (clock.currentTimeMillisUnsafe() < until)
      return yield* outcome === "undone" ? unavailable(server.name, "connection_lost") : busy()
    })

  const carryOut = (server: Server, change: Change): Effect.Effect<Outcome, StoreError> => {
    const { commit, before, forget } = change
    const [line, ...more] = commit?.lines ?? []
    const isAddition = commit !== null && line !== undefined && more.length === 0 && !forget && grows(before, commit)
    const sent = isAddition ? add(server, change, commit, line) : rewrite(server, change)
    return Effect.catchTag(sent, "Unsure", (unsure) => settle(server, change, unsure))
  }

  const add = (server: Server, change: Change, commit: Commit, line: Line) => {
    const { place, before, lease, attempt } = change
    const position = placeOf(line, commit.after)
    const { record, exact } = keep(line.text)
    const common = [withinDatabase(place), before.state, attempt, position.line, position.revision, record, exact]
    const { goalId = null, turnKey = null } = place.address ?? {}
    const sent =
      position.line === 1 && lease === null
        ? server.tell(Sql.BEGIN, [...common, goalId, turnKey])
        : server.tell(Sql.APPEND, [...common, lease])
    return Effect.map(sent, ([row]): Outcome => {
      if (row === undefined) return "missed"
      remember(change, commit, position, row)
      return "made"
    })
  }

  const remember = ({ place, attempt }: Change, commit: Commit, sealed: Position, row: Row): void => {
    const snapshot = { bytes: Buffer.from(commit.snapshot), updatedAt: (row["updated_at"] as Date).getTime() }
    const history = { sealed, open: [], torn: false, damage: null }
    const standing = { ...ABSENT, encoded: { snapshot, history }, state: attempt, head: sealed.line }
    reading.remember(place, standing, String(row["base"]))
  }

  /** Any other change, as a transaction of several statements. */
  const rewrite = (server: Server, change: Change) => {
    reading.forget(change.place)
    return Effect.map(
      server.transact("read committed", (query) => rewriteIn(query, change)),
      (done): Outcome => (done === null ? "missed" : "made")
    )
  }

  /** Whether a change stands whose answer was lost. It cannot come to stand later: the turn's state is another one now. */
  const settle = (server: Server, { place, before, commit, forget, attempt }: Change, { code }: Unsure) =>
    Effect.gen(function* () {
      reading.forget(place)
      const line = commit === null ? undefined : placed(commit).at(-1)
      if (line === undefined) return yield* outcomeUnknown(server.name, code)
      const { goalId = null, turnKey = null } = place.address ?? {}
      const path = withinDatabase(place)
      yield* server.ask(Sql.FENCE, [path, before.state, crypto.randomUUID(), goalId, turnKey])
      // The one that is left of a history that is forgotten is its first line then.
      const stands = yield* server.ask(Sql.STANDS, [path, forget ? 1 : line.position.line, attempt])
      return stands.length > 0 ? "made" : "undone"
    }).pipe(Effect.catchTag("StoreUnavailable", () => Effect.fail(outcomeUnknown(server.name, code)))) as Effect.Effect<
      Outcome,
      StoreError
    >

  return { transact }
}

const changeOf = (
  place: Place,
  before: Standing,
  { commit, forget = false }: Step<unknown>,
  lease: number | null
): Change => ({ place, before, commit, forget, lease, attempt: crypto.randomUUID() })

/** Whether a commit adds to all that stands, now. */
const grows = ({ encoded, head }: Standing, { after, setAside, updatedAt }: Commit): boolean =>
  setAside === undefined &&
  updatedAt === undefined &&
  (after?.line ?? 0) === head &&
  (head > 0 || encoded.snapshot === null)

/** Where a line stands in the history. */
const placeOf = ({ text, link }: Line, after: Position | null): Position => ({
  ...link,
  revision: (after === null ? 0 : after.revision + 1) + Buffer.byteLength(text),
  line: (after?.line ?? 0) + 1
})

/** The lines of a commit, each with its place in the history. */
const placed = ({ after, lines }: Commit): ReadonlyArray<{ readonly text: string; readonly position: Position }> => {
  let last = after
  return lines.map((line) => {
    last = placeOf(line, last)
    return { text: line.text, position: last }
  })
}

/** Lines that are sent as one statement. */
const MAX_LINES = 500
const MAX_BYTES = 4 * 1024 * 1024

const inParts = <A extends { readonly text: string }>(lines: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> => {
  const parts: Array<Array<A>> = []
  let bytes = 0
  for (const line of lines) {
    const part = parts.at(-1)
    bytes += line.text.length
    if (part !== undefined && part.length < MAX_LINES && bytes <= MAX_BYTES) part.push(line)
    else {
      parts.push([line])
      bytes = line.text.length
    }
  }
  return parts
}

const rewriteIn = (query: Query, { place, before, commit, forget, lease, attempt }: Change) =>
  Effect.gen(function* () {
    const path = withinDatabase(place)
    const { goalId = null, turnKey = null } = place.address ?? {}
    if (!before.hasRow && lease === null) yield* query(Sql.ENSURE, [path, goalId, turnKey])
    const lines = commit === null ? [] : placed(commit)
    const kept = commit === null ? before.head : (commit.after?.line ?? 0)
    const head = kept + lines.length
    const snapshot = commit === null ? before.encoded.snapshot : null
    const found = commit !== null && lines.length === 0 ? Buffer.from(commit.snapshot) : null
    const updatedAt = commit?.updatedAt ?? snapshot?.updatedAt
    const [turn] = yield* query(Sql.CHANGE, [
      path,
      before.state,
      attempt,
      forget ? Math.min(head, 1) : head,
      found,
      updatedAt === undefined ? null : new Date(updatedAt),
      lease
    ])
    if (turn === undefined) return null
    const id = turn["turn"]
    if (commit?.setAside !== undefined) yield* query(Sql.SET_ASIDE, [id, kept, commit.setAside])
    if (commit !== null) yield* query(Sql.CUT_AFTER, [id, kept])
    for (const some of inParts(lines)) {
      yield* query(Sql.ADD, [
        id,
        attempt,
        some.map(({ position }) => position.line),
        some.map(({ position }) => position.revision),
        some.map(({ text }) => text),
        some.map(({ text }) => keep(text).exact !== null)
      ])
    }
    if (forget && head > 1) {
      yield* query(Sql.SHORTEN, [id, head])
      yield* query(Sql.CUT_BEFORE, [id, head])
      yield* query(Sql.RENUMBER, [id, head])
    }
    return turn
  })

const busy = (): TurnBusy =>
  new TurnBusy({
    kind: "turn_busy",
    message: "Others write this turn all the time: try again.",
    details: {}
  })
