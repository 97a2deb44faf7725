/**
 * Copies turns to another root: line by line the same history, each turn whole or not at all. What is there already is
 * compared, and changed only where it is an earlier state of the same turn. runtime.md section 6.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { type CoreError, InvalidJournal } from "../contract/Errors.ts"
import type { CopiedTurn, CopyResult, TurnDamage } from "../contract/Store.ts"
import type { Driver, Encoded, HistoryEnd, Piece, Position, Snapshot, Step } from "./Driver.ts"
import type { StoreError } from "./Failure.ts"
import { type Link, linkOf, type SigningKey, type Transition } from "./History.ts"
import * as Place from "./Place.ts"
import { type JournalLimits, type Reader, type Standing, standing } from "./Stored.ts"
import * as Verify from "./Verify.ts"
import type { Range, TurnPlace, Walks } from "./Walk.ts"

export interface CopyRequest extends Range {
  readonly targetRoot: string
  /** Only compares. */
  readonly verifyOnly?: boolean | undefined
}

export interface Copying {
  readonly copy: (request: CopyRequest) => Effect.Effect<CopyResult, CoreError>
}

/** A turn is in memory while it is copied, and not larger than this. */
const MAX_HISTORY_BYTES = 256 * 1024 * 1024
/** After which the answer is given, so that none takes long. */
const MAX_PAGE_MS = 2000

type Outcome = CopiedTurn["outcome"]

interface Line {
  readonly text: string
  readonly link: Link
  readonly prev: string
  readonly adopted: boolean
}

/** A turn as it stands at its source. */
interface Original {
  readonly lines: ReadonlyArray<Line>
  readonly snapshot: Snapshot
}

/** What is found at the source: a turn, one that is left alone, or one that went away since it was listed. */
type Found =
  | { readonly _tag: "Whole"; readonly original: Original }
  | { readonly _tag: "Left"; readonly outcome: Outcome; readonly problem: TurnDamage | null }
  | { readonly _tag: "Gone" }

/** How the target's turn stands to the original: after what of it the rest follows. */
type Relation =
  | { readonly is: "same" | "conflict" }
  | { readonly is: "missing" | "behind"; readonly after: Position | null; readonly forget: boolean }

export const make = (
  driver: Driver["Service"],
  walks: Walks,
  read: Reader,
  terms: { readonly key: SigningKey | null; readonly limits: JournalLimits }
): Copying => {
  const copyTurn = Effect.fnUntraced(function* (source: TurnPlace, targetRoot: string, verifyOnly: boolean) {
    const target = (yield* Effect.fromResult(Place.ofTurn(targetRoot, source.address))) as TurnPlace
    const row = rowOf(source)
    const found = yield* ofSource(survey(source, verifyOnly))
    if (found._tag === "Gone") return null
    if (found._tag === "Left") return row(found.outcome, 0, found.problem)
    const { original } = found
    const count = original.lines.length
    const told = (outcome: Outcome) => row(outcome, count, PROBLEMS[outcome])
    return yield* ofTarget(
      Effect.gen(function* () {
        if (!verifyOnly && (yield* driver.isDriven(target))) return row("driven", count, driven("target"))
        const outcome = yield* verifyOnly ? compare(target, original) : write(target, original)
        const isThere = outcome === "same" || outcome === "copied" || outcome === "extended"
        return told(isThere && !(yield* isEqual(target, original)) ? "conflict" : outcome)
      }),
      (outcome, problem) => row(outcome, count, problem)
    )
  })

  const survey = (place: TurnPlace, verifyOnly: boolean): Effect.Effect<Found, StoreError> =>
    Effect.gen(function* () {
      if (!verifyOnly && (yield* driver.isDriven(place))) return left("driven", driven("source"))
      const lines: Array<Line> = []
      let bytes = 0
      const take = (transition: Transition, text: string): void => {
        bytes += text.length
        if (bytes > MAX_HISTORY_BYTES) lines.length = 0
        else lines.push({ text, link: linkOf(transition), prev: transition.prev, adopted: transition.adopted })
      }
      const { turn, snapshot } = yield* Verify.lookAt(driver, terms, place, { head: null, mode: "settled", take })
      if (turn.problem !== null) {
        const { kind, message } = turn.problem
        return left("damaged", { kind, message: `The source's turn is damaged: ${message}` })
      }
      if (snapshot === null) return { _tag: "Gone" }
      if (bytes > MAX_HISTORY_BYTES) return left("too_large", PROBLEMS.too_large)
      // What follows was left by a writer that was cut off: it never stood.
      return { _tag: "Whole", original: { lines: lines.slice(0, turn.transitions), snapshot } }
    })

  const compare = (target: TurnPlace, original: Original) =>
    Effect.flatMap(driver.load(target), (encoded) =>
      Effect.fromResult(Result.map(relate(target, original, encoded), ({ is }): Outcome => is))
    )

  const write = (target: TurnPlace, original: Original) =>
    driver.transact(
      target,
      (encoded) => Result.map(relate(target, original, encoded), (relation) => stepOf(original, relation, encoded)),
      null
    )

  const relate = (target: TurnPlace, original: Original, encoded: Encoded) =>
    Result.map(standing(read, target, encoded), (stands) => relationOf(original, stands, encoded.snapshot))

  /** Reads the copy anew: what was written is what is there. */
  const isEqual = (target: TurnPlace, { lines, snapshot }: Original) =>
    Effect.gen(function* () {
      let at = 0
      let equal = true
      const visit = ({ text, end }: Piece): boolean => {
        const line = lines[at++]
        // Behind the end a writer may have been cut off; what is sealed there stands.
        equal &&= line === undefined ? end !== "\n" : line.text === text
        return equal && line !== undefined
      }
      const scanned = yield* driver.scan(target, visit, "settled")
      if (!equal || at < lines.length || scanned.snapshot === null) return false
      if (Buffer.compare(scanned.snapshot.bytes, snapshot.bytes) === 0) return true
      // A journal that another program wrote may have another text; what is kept as a value has the canonical one.
      const last = lines.at(-1)
      const journal = yield* Effect.fromResult(read(target, scanned.snapshot))
      return last?.adopted === true && last.link.operationId === journal.operationId
    })

  const copy: Copying["copy"] = Effect.fnUntraced(function* ({ targetRoot, verifyOnly = false, ...range }) {
    const target = yield* Effect.fromResult(
      Place.ofTurn(targetRoot, { goalId: range.goalId ?? "goal", turnKey: "turn" })
    )
    const source = yield* Effect.fromResult(Place.ofTurn(range.runtimeRoot, { goalId: "goal", turnKey: "turn" }))
    if (source.root === target.root) return yield* sameRoot()
    let lost: StoreError | null = null
    const { found, next } = yield* walks.page(
      { ...range, within: MAX_PAGE_MS },
      (place) => copyTurn(place, targetRoot, verifyOnly),
      (goalId, error): CopiedTurn => {
        if (error._tag === "StoreUnavailable") lost = error
        return { goal_id: goalId, turn_key: "", outcome: "damaged", transitions: 0, problem: damageOf(error) }
      }
    )
    return lost === null ? { turns: found, next } : yield* Effect.fail(lost as StoreError)
  })

  return { copy }
}

const relationOf = (
  { lines, snapshot }: Original,
  { document, position }: Standing,
  found: Snapshot | null
): Relation => {
  const first = lines[0]
  if (document === null || found === null) return { is: "missing", after: null, forget: false }
  if (position === null) {
    if (first === undefined) return { is: Buffer.compare(found.bytes, snapshot.bytes) === 0 ? "same" : "conflict" }
    const began = first.adopted && first.link.operationId === document.operationId
    return began ? { is: "behind", after: null, forget: false } : { is: "conflict" }
  }
  if (first !== undefined && lines.length === 1 && first.link.pruned !== null) {
    // The original was pruned, maybe since it was copied.
    if (first.link.hash === position.hash && position.line === 1) return { is: "same" }
    const follows = first.link.hash === position.hash || first.prev === position.hash
    return follows ? { is: "behind", after: position, forget: true } : { is: "conflict" }
  }
  // Each line has the hash of all before it.
  if (lines[position.line - 1]?.link.hash !== position.hash) return { is: "conflict" }
  return position.line === lines.length ? { is: "same" } : { is: "behind", after: position, forget: false }
}

const stepOf = ({ lines, snapshot }: Original, relation: Relation, { history }: Encoded): Step<Outcome> => {
  const commit = (after: Position | null, rest: ReadonlyArray<Line>) => {
    const text = Buffer.from(snapshot.bytes).toString("utf8")
    return { after, lines: rest, snapshot: text, updatedAt: snapshot.updatedAt }
  }
  if (!("after" in relation)) {
    const after = relation.is === "same" ? unfinishedAfter(history, lines.length) : null
    return { answer: relation.is, commit: after === null ? null : commit(after, []) }
  }
  const { after, forget } = relation
  const rest = after === null ? lines : lines.filter(({ link }) => link.seq > after.seq)
  const answer = relation.is === "missing" ? "copied" : "extended"
  return forget && rest.length === 0
    ? { answer, commit: null, forget }
    : { answer, commit: commit(after, rest), forget }
}

/** The last line of a history that a writer was cut off at, so that an end is open or something follows; else null. */
const unfinishedAfter = (history: HistoryEnd | null, line: number): Position | null => {
  if (history === null || (history.open.length === 0 && !history.torn)) return null
  return [history.sealed, ...history.open].find((position) => position?.line === line) ?? null
}

const left = (outcome: Outcome, problem: TurnDamage | null): Found => ({ _tag: "Left", outcome, problem })

/** What keeps a turn from being read is said of it; where the database is away, nothing can be said of any. */
const ofSource = (reading: Effect.Effect<Found, StoreError>): Effect.Effect<Found, StoreError> =>
  Effect.catch(reading, (error) =>
    error._tag === "StoreUnavailable"
      ? Effect.fail(error)
      : Effect.succeed(left(error._tag === "TurnBusy" ? "driven" : "damaged", damageOf(error)))
  )

/** What the target itself refuses ends the copying; what is wrong with its turn is said of that turn. */
const ofTarget = <E extends CoreError>(
  writing: Effect.Effect<CopiedTurn, E>,
  row: (outcome: Outcome, problem: TurnDamage) => CopiedTurn
) =>
  Effect.catch(writing, (error: CoreError) => {
    if (error._tag === "JournalCorrupt") return Effect.succeed(row("damaged", damaged(error)))
    if (error._tag === "TurnBusy") return Effect.succeed(row("driven", damageOf(error)))
    return Effect.fail(error)
  })

const rowOf =
  ({ address }: TurnPlace) =>
  (outcome: Outcome, transitions: number, problem: TurnDamage | null): CopiedTurn => ({
    goal_id: address.goalId,
    turn_key: address.turnKey,
    outcome,
    transitions,
    problem
  })

const damageOf = ({ kind, message }: CoreError): TurnDamage => ({ kind, message })

const damaged = ({ kind, message }: CoreError): TurnDamage => ({
  kind,
  message: `The target's turn is damaged: ${message}`
})

const driven = (where: "source" | "target"): TurnDamage => ({
  kind: "turn_busy",
  message: `The turn is driven at the ${where}: let its driver end, and copy again.`
})

const PROBLEMS: Record<Outcome, TurnDamage | null> = {
  copied: null,
  extended: null,
  same: null,
  missing: { kind: "journal_not_found", message: "The target does not have the turn." },
  behind: { kind: "journal_previous_conflict", message: "The target has an earlier state of the turn." },
  conflict: {
    kind: "journal_transition_conflict",
    message: "The target's turn is another one, or went on by itself. It was left as it is: see `turn-journal history`."
  },
  driven: driven("source"),
  damaged: null,
  too_large: {
    kind: "journal_too_large",
    message: `The turn's history has more than ${MAX_HISTORY_BYTES} bytes. Prune it when the turn is over.`
  }
}

const sameRoot = (): InvalidJournal =>
  new InvalidJournal({
    kind: "invalid_request",
    message: "Source and target are the same root.",
    details: { field: "target_root" }
  })
