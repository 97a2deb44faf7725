/**
 * Whether a turn is as it was written, and the first place where it is not: runtime.md section 6.
 *
 * A chain cannot see that its end was cut together with its snapshot; against a head that was kept elsewhere that shows.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type { CoreError } from "../contract/Errors.ts"
import type { HeadsResult, TurnHead, TurnProblem, VerifiedTurn, VerifyResult } from "../contract/Store.ts"
import type { TurnAddress } from "../journal/Address.ts"
import { operationId } from "../journal/OperationId.ts"
import { canonicalText } from "../journal/Value.ts"
import * as Chain from "./Chain.ts"
import type { Damage, Driver, HistoryEnd, Near, Piece, Scanned, Snapshot } from "./Driver.ts"
import type { StoreError } from "./Failure.ts"
import type { SigningKey, Transition } from "./History.ts"
import * as Place from "./Place.ts"
import { decode, type JournalLimits, positionOf, snapshotText } from "./Stored.ts"
import type { Range, TurnPlace, Walks } from "./Walk.ts"

export interface VerifyRequest extends Range {
  readonly turnKey?: string | null | undefined
  readonly heads?: ReadonlyArray<TurnHead> | null | undefined
}

export interface Verification {
  readonly verify: (request: VerifyRequest) => Effect.Effect<VerifyResult, CoreError>
  readonly heads: (range: Range) => Effect.Effect<HeadsResult, CoreError>
}

export const make = (
  driver: Driver["Service"],
  walks: Walks,
  key: SigningKey | null,
  limits: JournalLimits
): Verification => {
  const look = (near: Near, place: TurnPlace, head: TurnHead | null, mode: "settled" | "glance") =>
    Effect.map(lookAt(near, { key, limits }, place, { head, mode }), ({ turn }) => turn)

  /** At a glance first: a turn that is whole then is whole. Anything else may be a writer at work. */
  const verifyTurn = (place: TurnPlace, near: Near, head: TurnHead | null = null): Effect.Effect<VerifiedTurn> =>
    Effect.catch(
      Effect.flatMap(look(near, place, head, "glance"), (turn) =>
        turn.ok && !turn.unfinished ? Effect.succeed(turn) : look(driver, place, head, "settled")
      ),
      (error) => Effect.succeed(unreadable(place.address, error))
    )

  const verify: Verification["verify"] = Effect.fnUntraced(function* ({ turnKey, heads, ...range }) {
    const { runtimeRoot, goalId } = range
    if (heads != null) {
      const turns: Array<VerifiedTurn> = []
      for (const head of heads) {
        const address = { goalId: head.goal_id, turnKey: head.turn_key }
        const place = yield* Effect.fromResult(Place.ofTurn(runtimeRoot, address))
        turns.push(yield* verifyTurn(place as TurnPlace, driver, head))
        yield* Effect.yieldNow
      }
      return resultOf(turns, null)
    }
    if (turnKey != null) {
      const place = yield* Effect.fromResult(Place.ofTurn(runtimeRoot, { goalId: goalId ?? "", turnKey }))
      return resultOf([yield* verifyTurn(place as TurnPlace, driver)], null)
    }
    const { found, next } = yield* walks.page({ ...range, reads: "histories" }, verifyTurn, (goalId, error) =>
      unreadable({ goalId, turnKey: "" }, error)
    )
    return resultOf(found, next)
  })

  const heads: Verification["heads"] = Effect.fnUntraced(function* (range) {
    const { found, next } = yield* walks.page({ ...range, reads: "histories" }, verifyTurn, (goalId, error) =>
      unreadable({ goalId, turnKey: "" }, error)
    )
    return {
      heads: found.flatMap(({ goal_id, turn_key, problem, head }) =>
        problem === null && head !== null ? [{ goal_id, turn_key, ...head }] : []
      ),
      damaged: found.flatMap(({ goal_id, turn_key, problem }) =>
        problem === null ? [] : [{ goal_id, turn_key, damage: { kind: problem.kind, message: problem.message } }]
      ),
      next
    }
  })

  return { verify, heads }
}

/** What is looked for in a turn, and how. */
export interface Look {
  readonly head: TurnHead | null
  readonly mode: "settled" | "glance"
  /** Gets each transition with the text of its line. */
  readonly take?: (transition: Transition, text: string) => void
}

/** Reads a turn once, and judges it. */
export const lookAt = (
  driver: Pick<Near, "scan">,
  { key, limits }: { readonly key: SigningKey | null; readonly limits: JournalLimits },
  place: TurnPlace,
  { head, mode, take }: Look
): Effect.Effect<{ readonly turn: VerifiedTurn; readonly snapshot: Snapshot | null }, StoreError> =>
  Effect.suspend(() => {
    const watch = watchHistory(head)
    let text = ""
    const chain = Chain.follow(place.address, {
      key,
      take: (transition, sealed) => {
        take?.(transition, text)
        return watch.take(transition, sealed)
      }
    })
    const visit = (piece: Piece): boolean => {
      text = piece.text
      return chain.visit(piece)
    }
    return Effect.map(driver.scan(place, visit, mode), (scanned) => ({
      turn: judge(place.address, chain, watch, scanned, { head, limits }),
      snapshot: scanned.snapshot
    }))
  })

const resultOf = (turns: ReadonlyArray<VerifiedTurn>, next: string | null): VerifyResult => ({
  ok: turns.every(({ ok }) => ok),
  turns,
  next
})

const named = ({ goalId, turnKey }: TurnAddress) => ({ goal_id: goalId, turn_key: turnKey })

const unreadable = (address: TurnAddress, { message }: CoreError): VerifiedTurn => ({
  ...named(address),
  ok: false,
  transitions: 0,
  head: null,
  signed: false,
  unfinished: false,
  problem: { kind: "unreadable", line: null, message }
})

/** What is kept of a history as it passes: little, however long it is. */
interface Watch {
  readonly take: (transition: Transition, sealed: boolean) => boolean
  /** The transitions from the last sealed one on. */
  readonly last: () => ReadonlyArray<Transition>
  readonly count: () => number
  readonly allSigned: () => boolean
  /** What the history says of the head: it has it, something else stands there, or it is not that long. */
  readonly head: () => "found" | "differs" | "missing"
}

const watchHistory = (head: TurnHead | null): Watch => {
  let last: ReadonlyArray<Transition> = []
  let count = 0
  let signed = true
  let found: ReturnType<Watch["head"]> = "missing"
  const compare = (digest: string): void => {
    found = digest === head?.digest ? "found" : "differs"
  }
  return {
    take: (transition, sealed) => {
      last = sealed ? [transition] : [...last, transition]
      count++
      signed &&= transition.hmac !== null
      if (transition.seq === head?.count) compare(transition.hash)
      // Of a history whose beginning was pruned, the line before its first is known, and none before that.
      else if (count === 1 && transition.pruned !== null && head !== null) {
        if (transition.seq - 1 === head.count) compare(transition.prev)
        else if (transition.seq - 1 > head.count) found = "found"
      }
      return true
    },
    last: () => last,
    count: () => count,
    allSigned: () => count > 0 && signed,
    head: () => found
  }
}

const judge = (
  address: TurnAddress,
  chain: Chain.Chain,
  watch: Watch,
  { snapshot, history: hasHistory }: Scanned,
  { head, limits }: { readonly head: TurnHead | null; readonly limits: JournalLimits }
): VerifiedTurn => {
  const history = chain.end()
  const journal = snapshot === null ? null : decode(snapshot.bytes, limits)
  const document = journal?._tag === "Success" ? { operationId: operationId(journal.success) } : null
  const position = positionOf(history, document) ?? null
  const standing = watch.last().find(({ seq }) => seq === position?.seq) ?? null
  const problem =
    (history.damage === null ? null : lineProblem(history.damage)) ??
    snapshotProblem(hasHistory ? history : null, snapshot, journal, position !== null, standing) ??
    (head === null ? null : headProblem(watch.head()))
  return {
    ...named(address),
    ok: problem === null,
    transitions: position?.line ?? history.sealed?.line ?? 0,
    head: position === null ? null : { count: position.seq, digest: position.hash },
    signed: watch.allSigned(),
    unfinished: history.torn || history.open.some(({ seq }) => seq > (position?.seq ?? 0)),
    problem
  }
}

const LINE_PROBLEMS: Record<Damage["fault"], string> = {
  line_damaged: "is not a line that was written here",
  line_changed: "was changed",
  line_out_of_place: "does not follow the line before it: a line was removed, inserted or moved",
  signature_missing: "is not signed",
  signature_invalid: "is signed with another key, or was changed"
}

const lineProblem = ({ fault, line }: Damage): TurnProblem => ({
  kind: fault,
  line,
  message: `Line ${line} of the history ${LINE_PROBLEMS[fault]}.`
})

const snapshotProblem = (
  history: HistoryEnd | null,
  snapshot: Snapshot | null,
  journal: ReturnType<typeof decode> | null,
  stands: boolean,
  standing: Transition | null
): TurnProblem | null => {
  const problem = (kind: TurnProblem["kind"], message: string): TurnProblem => ({ kind, line: null, message })
  if (snapshot === null || journal === null) {
    return history === null || history.sealed === null
      ? null
      : problem("snapshot_missing", "The journal is gone, and its history is there.")
  }
  if (Result.isFailure(journal)) return problem("snapshot_damaged", journal.failure.message)
  if (history === null) return null
  if (!stands) return problem("snapshot_not_last", "The journal is not the last one of its history.")
  const isOurs =
    standing === null || standing.adopted || sameText(snapshot, snapshotText(canonicalText(standing.journal)))
  return isOurs ? null : problem("snapshot_rewritten", "The journal means the same and was written by something else.")
}

const sameText = ({ bytes }: Snapshot, text: string): boolean => Buffer.compare(bytes, Buffer.from(text)) === 0

const headProblem = (found: ReturnType<Watch["head"]>): TurnProblem | null => {
  if (found === "found") return null
  const [kind, message] =
    found === "differs"
      ? (["head_mismatch", "The history is another one than when the head was exported."] as const)
      : (["head_missing", "The history is shorter than when the head was exported: its end was cut."] as const)
  return { kind, line: null, message }
}
