/**
 * Questions over many turns: turn-journal.md section 8. They take no locks: each journal is read whole, as it stands at
 * that moment, and a walk over thousands of turns holds up no writer.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { type CoreError, JournalConflict } from "../contract/Errors.ts"
import type { JsonObject } from "../contract/Json.ts"
import type {
  FindSettlementResult,
  ListedTurn,
  ListResult,
  RecoverableResult,
  RecoverableTurn,
  TurnDamage
} from "../contract/Store.ts"
import { type Examination, examine } from "../journal/Examination.ts"
import { operationId } from "../journal/OperationId.ts"
import { decideRecovery } from "../journal/Recovery.ts"
import { settlementOf } from "../journal/Settlement.ts"
import { asObject, get, isIdentity } from "../journal/Value.ts"
import type { Driver, Near } from "./Driver.ts"
import * as Place from "./Place.ts"
import type { IsPruned } from "./Prune.ts"
import { decode, type JournalLimits } from "./Stored.ts"
import { AT_A_TIME, placesOf, type Range, type TurnPlace, type Walks } from "./Walk.ts"

export interface FindSettlementRequest {
  readonly runtimeRoot: string
  readonly goalId: string
  readonly agentId: string
  readonly todoId: string
  readonly turnInstanceId: string
}

export interface ListRequest extends Range {
  readonly status?: string | null | undefined
}

export interface RecoverableRequest extends Range {
  readonly retryFailed?: boolean | undefined
}

interface Found {
  readonly journal: JsonObject
  readonly updatedAt: number
}

export interface Queries {
  readonly findSettlement: (request: FindSettlementRequest) => Effect.Effect<FindSettlementResult, CoreError>
  readonly list: (request: ListRequest) => Effect.Effect<ListResult, CoreError>
  readonly recoverable: (request: RecoverableRequest) => Effect.Effect<RecoverableResult, CoreError>
}

export const make = (driver: Driver["Service"], walks: Walks, isPruned: IsPruned, limits: JournalLimits): Queries => {
  /** The journal of a turn that was listed; null when it went away since. */
  const glance = (near: Near, place: TurnPlace): Effect.Effect<Found | null, CoreError> =>
    Effect.flatMap(near.glance(place), (snapshot) =>
      snapshot === null
        ? Effect.succeed(null)
        : Effect.fromResult(
            Result.map(decode(snapshot.bytes, limits), (journal) => ({ journal, updatedAt: snapshot.updatedAt }))
          )
    )

  const list: Queries["list"] = ({ status = null, ...range }) =>
    Effect.map(
      walks.page(
        { ...range, wanted: { status, open: false }, reads: "journals" },
        (place, near) =>
          Effect.match(glance(near, place), {
            onFailure: (error): ListedTurn => ({ ...UNREAD, ...named(place), damage: damageOf(error) }),
            onSuccess: (found) => {
              const row = found === null ? null : listed(place, found)
              return status == null || row?.status === status ? row : null
            }
          }),
        (goalId, error): ListedTurn => ({ ...UNREAD, goal_id: goalId, turn_key: "", damage: damageOf(error) })
      ),
      ({ found, next }) => ({ turns: found, next })
    )

  /** A turn that can go on; one that failed and was pruned cannot, whatever its journal says. */
  const stopped = (place: TurnPlace, journal: JsonObject, retryFailed: boolean) => {
    const turn = goesOn(place, journal, retryFailed)
    return turn?.status === "failed"
      ? Effect.map(isPruned(place, journal), (pruned) => (pruned ? null : turn))
      : Effect.succeed(turn)
  }

  const recoverable: Queries["recoverable"] = ({ retryFailed = false, ...range }) =>
    Effect.map(
      walks.page(
        { ...range, wanted: { status: null, open: true }, reads: "journals" },
        (place, near) =>
          glance(near, place).pipe(
            Effect.flatMap((found) =>
              found === null ? Effect.succeed(null) : stopped(place, found.journal, retryFailed)
            ),
            Effect.catch((error) =>
              Effect.succeed<RecoverableTurn>({ ...UNDECIDED, ...named(place), damage: damageOf(error) })
            )
          ),
        (goalId, error): RecoverableTurn => ({ ...UNDECIDED, goal_id: goalId, turn_key: "", damage: damageOf(error) })
      ),
      ({ found, next }) => ({ turns: found, next })
    )

  const findSettlement: Queries["findSettlement"] = Effect.fnUntraced(function* (request) {
    const { runtimeRoot, goalId } = request
    yield* Effect.fromResult(Place.ofTurn(runtimeRoot, { goalId, turnKey: "turn" }))
    let match: string | null = null
    const keys = yield* Effect.catch(driver.turns(runtimeRoot, goalId), (error) => unknownHistory(null, error))
    for (let from = 0; from < keys.length; from += AT_A_TIME) {
      const places = yield* placesOf(runtimeRoot, goalId, keys.slice(from, from + AT_A_TIME))
      const near = yield* Effect.catch(driver.ahead(places, "journals"), (error) => unknownHistory(null, error))
      for (const [index, place] of places.entries()) {
        const turnKey = keys[from + index] ?? ""
        const found = yield* Effect.catch(glance(near, place as TurnPlace), (error) => unknownHistory(turnKey, error))
        if (found === null || !(yield* settles(found.journal, turnKey, request))) continue
        if (match !== null)
          return yield* conflict("Two stored turns settle this work.", { turn_keys: [match, turnKey] })
        match = turnKey
      }
      yield* Effect.yieldNow
    }
    return { turn_key: match }
  })

  return { list, recoverable, findSettlement }
}

const named = ({ address }: TurnPlace) => ({ goal_id: address.goalId, turn_key: address.turnKey })

const damageOf = ({ kind, message }: CoreError): TurnDamage => ({ kind, message })

const UNREAD = { status: null, completed_phases: null, operation_id: null, updated_at: null }

const listed = (place: TurnPlace, { journal, updatedAt }: Found): ListedTurn => {
  const { status, completed } = examine(journal, null)
  return {
    ...named(place),
    damage: null,
    status,
    completed_phases: completed,
    operation_id: operationId(journal),
    updated_at: new Date(updatedAt).toISOString()
  }
}

const UNDECIDED = { agent_id: null, status: null, completed_phases: null, recovery_decision: null }

/** A turn that can go on for its own owner; null for one that cannot. */
const goesOn = (place: TurnPlace, journal: JsonObject, retryFailed: boolean): RecoverableTurn | null => {
  const agentId = ownerOf(examine(journal, null))
  if (agentId === null) return null
  const examination = examine(journal, { ...place.address, agentId })
  const decision = decideRecovery(examination, { retryFailed, sessionCheck: null })
  if (!decision.can_continue) return null
  return {
    ...named(place),
    damage: null,
    agent_id: agentId,
    status: examination.status,
    completed_phases: examination.completed,
    recovery_decision: decision
  }
}

const ownerOf = ({ identities }: Examination): string | null => identities.owner.find(isIdentity) ?? null

/** Whether a stored turn settles the work; one that does not say which work it is of cannot be passed over. */
const settles = (
  journal: JsonObject,
  turnKey: string,
  { goalId, agentId, todoId, turnInstanceId }: FindSettlementRequest
): Effect.Effect<boolean, JournalConflict> => {
  if (examine(journal, null).plain) return Effect.succeed(false)
  const transaction = asObject(get(asObject(get(journal, "plan")), "transaction"))
  const raw = asObject(get(asObject(get(transaction, "settlement_plan")), "identity"))
  if (!isIdentity(get(transaction, "turn_instance_id")) && !isIdentity(get(raw, "turn_instance_id"))) {
    return conflict("A stored turn does not say which work it is of.", { turn_key: turnKey })
  }
  const { identity, valid } = settlementOf(transaction)
  return Effect.succeed(
    valid &&
      identity?.goalId === goalId &&
      identity.agentId === agentId &&
      identity.binding === "todo" &&
      identity.bindingId === todoId.trim() &&
      identity.turnInstanceId === turnInstanceId
  )
}

const unknownHistory = (turnKey: string | null, error: CoreError): Effect.Effect<never, JournalConflict> =>
  conflict(`A stored turn cannot be read: ${error.message}`, { turn_key: turnKey, cause: error.kind })

/** Unknown history never authorises a fresh turn. */
const conflict = (why: string, details: JournalConflict["details"]): Effect.Effect<never, JournalConflict> =>
  Effect.fail(
    new JournalConflict({
      kind: "journal_readback_conflict",
      message: `${why} Whether the work was done is not known: look at the turn before a new one is started.`,
      details
    })
  )
