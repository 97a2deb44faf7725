/** The store of turn journals: what it accepts and answers is the contract's, what it keeps them in is a driver's. */
import * as Clock from "effect/Clock"
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import { type CoreError, InvalidJournal, JournalConflict } from "../contract/Errors.ts"
import { DEFAULT_PAGE, MAX_PAGE } from "../contract/Fields.ts"
import type { Inspection } from "../contract/Inspection.ts"
import {
  check,
  GREATEST_DEPTH,
  GREATEST_JOURNAL_BYTES,
  type JsonFault,
  type JsonValue,
  MAX_DEPTH,
  MAX_JOURNAL_BYTES
} from "../contract/Json.ts"
import type { ReadResult, WriteResult } from "../contract/Messages.ts"
import type { RecoveryCheck } from "../contract/Recovery.ts"
import type { HistoryResult, RepairResult } from "../contract/Store.ts"
import { type Admission, admit, expectEffect, type Refusal } from "../journal/Admission.ts"
import { inspect } from "../journal/Inspection.ts"
import { decideTransition } from "../journal/Transition.ts"
import * as Copy from "./Copy.ts"
import { Driver, type Encoded, type Snapshot, type Step } from "./Driver.ts"
import { type SigningKey, writeLine } from "./History.ts"
import * as Place from "./Place.ts"
import * as Prune from "./Prune.ts"
import * as Queries from "./Queries.ts"
import { type RepairRequest, repair } from "./Repair.ts"
import { type JournalLimits, makeReader, positionOf, present, snapshotText, standing } from "./Stored.ts"
import { historyOf, journalAt, stoodSince } from "./Transitions.ts"
import * as Verify from "./Verify.ts"
import * as Walk from "./Walk.ts"

export interface WriteRequest {
  readonly path: string
  readonly journal: JsonValue
  readonly expectedEffectId?: string | null | undefined
  /** The operation id of the stored journal that this one follows, null for "nothing stored"; absent: not checked. */
  readonly expectedPrevious?: string | null | undefined
  /** The number of the lease that the writer's driver holds; absent: it has none. */
  readonly lease?: number | null | undefined
  /** When this call was made first, in milliseconds since 1970, if it was and its outcome is not known. */
  readonly retrySince?: number | null | undefined
}

export interface ReadRequest {
  readonly path: string
  /** The number of a transition: the journal as it was then. */
  readonly at?: number | null | undefined
}

export interface HistoryRequest {
  readonly path: string
  /** The number of the last transition that is known already. */
  readonly after?: number | null | undefined
  readonly limit?: number | null | undefined
}

export interface InspectRequest {
  readonly runtimeRoot: string
  readonly goalId: string
  readonly agentId: string
  readonly turnKey: string
  readonly retryFailed?: boolean | undefined
  readonly sessionRecoveryCheck?: RecoveryCheck | null | undefined
}

/** A journal on its way into the store. */
interface Incoming {
  readonly place: Place.Place
  readonly admission: Admission
  /** The text that it is stored as. */
  readonly snapshot: string
}

export interface StoreOptions {
  /** Signs each line of a history. */
  readonly signingKey?: SigningKey | null
  /** Size of a journal as compact JSON. */
  readonly journalBytes?: number
  /** Nesting of a journal. */
  readonly depth?: number
}

export class JournalStore extends Context.Service<
  JournalStore,
  {
    readonly write: (request: WriteRequest) => Effect.Effect<WriteResult, CoreError>
    readonly read: (request: ReadRequest) => Effect.Effect<ReadResult, CoreError>
    readonly inspectStored: (request: InspectRequest) => Effect.Effect<Inspection, CoreError>
    readonly history: (request: HistoryRequest) => Effect.Effect<HistoryResult, CoreError>
    readonly repair: (request: RepairRequest) => Effect.Effect<RepairResult, CoreError>
  } & Queries.Queries &
    Verify.Verification &
    Prune.Pruning &
    Copy.Copying
>()("turn-journal-core/store/JournalStore") {
  /** Over any driver. The key is `TURN_JOURNAL_SIGNING_KEY` of the environment unless one is given. */
  static readonly layer = (options: StoreOptions = {}): Layer.Layer<JournalStore, Config.ConfigError, Driver> =>
    Layer.effect(
      JournalStore,
      Effect.gen(function* () {
        const driver = yield* Driver
        const signingKey = options.signingKey === undefined ? yield* configuredKey : options.signingKey
        const { journalBytes = MAX_JOURNAL_BYTES, depth = MAX_DEPTH } = options
        const limits = {
          journalBytes: Math.min(journalBytes, GREATEST_JOURNAL_BYTES),
          depth: Math.min(depth, GREATEST_DEPTH)
        }
        return make(driver, signingKey, limits)
      })
    )
}

const configuredKey = Effect.map(Config.option(Config.Redacted("TURN_JOURNAL_SIGNING_KEY")), Option.getOrNull)

/** Journals that are remembered as they were last read. */
const REMEMBERED_JOURNALS = 512

const make = (driver: Driver["Service"], key: SigningKey | null, limits: JournalLimits): JournalStore["Service"] => {
  const { journalBytes, depth } = limits
  const readDocument = makeReader(REMEMBERED_JOURNALS, limits)

  /**
   * What is to be written and where, if the journal may be stored by itself. Every write goes this way and the next one,
   * so they are spared the steps of a generator.
   */
  const incomingOf = ({ path, journal, expectedEffectId }: WriteRequest): Result.Result<Incoming, Refusal> => {
    const place = Place.ofPath(path)
    if (Result.isFailure(place)) return Result.fail(place.failure)
    const fault = check(journal, depth)
    if (fault !== null) return Result.fail(unstorable(fault))
    const admitted = admit(journal, place.success.address)
    if (Result.isFailure(admitted)) return Result.fail(admitted.failure)
    const admission = admitted.success
    const unexpected = expectEffect(admission, expectedEffectId)
    if (unexpected !== null) return Result.fail(unexpected)
    const snapshot = snapshotText(admission.canonical)
    const bytes = Buffer.byteLength(snapshot)
    return bytes > journalBytes
      ? Result.fail(tooLarge(bytes, journalBytes))
      : Result.succeed({ place: place.success, admission, snapshot })
  }

  /** The step from what stands to a journal. */
  const stepTo = (
    { place, admission, snapshot }: Incoming,
    { expectedPrevious }: WriteRequest,
    clock: Clock.Clock,
    encoded: Encoded
  ): Result.Result<Step<WriteResult>, CoreError> => {
    const found = standing(readDocument, place, encoded)
    if (Result.isFailure(found)) return Result.fail(found.failure)
    const { document, position } = found.success
    if (position?.pruned?.operationId === admission.operationId) return replayed(admission)
    const before = document?.admission ?? null
    if (before !== null && Result.isFailure(before)) return Result.fail(before.failure)
    const stored = before?.success ?? null
    const transition = decideTransition(admission, stored, expectedPrevious)
    if (Result.isFailure(transition)) return Result.fail(transition.failure)
    if (transition.success === "replay") return replayed(admission)
    if (stored?.examination.status === "failed" && (position?.pruned ?? null) !== null) return Result.fail(wasPruned())
    const at = new Date(clock.currentTimeMillisUnsafe()).toISOString()
    // A journal that another program wrote becomes the first line of its history.
    const adopted =
      position === null && stored !== null ? [writeLine(null, place.address, stored, { at, adopted: true, key })] : []
    const line = writeLine(adopted[0]?.link ?? position, place.address, admission, { at, key })
    return Result.succeed({
      answer: answerOf(admission, "append"),
      commit: { after: position, lines: [...adopted, line], snapshot }
    })
  }

  const write: JournalStore["Service"]["write"] = Effect.fnUntraced(function* (request) {
    const incoming = yield* Effect.fromResult(incomingOf(request))
    const { place, admission, snapshot } = incoming
    const clock = yield* Clock.Clock
    const since = request.retrySince ?? null
    const isWritten = since !== null && (yield* stoodSince(driver, readDocument, place, admission.operationId, since))
    const answer = yield* driver.transact(
      place,
      (encoded) => (isWritten ? replayed(admission) : stepTo(incoming, request, clock, encoded)),
      isWritten ? null : (request.lease ?? null)
    )
    if (answer.appended) readDocument.remember(place, snapshot, admission)
    return answer
  })

  const read: JournalStore["Service"]["read"] = Effect.fnUntraced(function* ({ path, at }) {
    const place = yield* Effect.fromResult(Place.ofPath(path))
    if (at !== undefined && at !== null) return yield* journalAt(driver, readDocument, limits, place, at)
    const stored = yield* driver.load(place)
    const document = yield* Effect.fromResult(readDocument(place, yield* Effect.fromResult(present(place, stored))))
    const position = stored.history === null ? null : positionOf(stored.history, document)
    return { journal: document.journal, operation_id: document.operationId, seq: position?.seq ?? null }
  })

  const inspectStored: JournalStore["Service"]["inspectStored"] = (request) => {
    const { runtimeRoot, goalId, turnKey } = request
    const found = Place.ofTurn(runtimeRoot, { goalId, turnKey })
    if (Result.isFailure(found)) return Effect.fail(found.failure)
    const place = found.success
    return Effect.flatMap(driver.snapshot(place), (snapshot) =>
      snapshot === null
        ? Effect.flatMap(driver.load(place), (stored) =>
            Effect.fromResult(
              Result.flatMap(present(place, stored), (snapshot) => inspectSnapshot(place, snapshot, request))
            )
          )
        : Effect.fromResult(inspectSnapshot(place, snapshot, request))
    )
  }

  const inspectSnapshot = (place: Place.Place, snapshot: Snapshot, request: InspectRequest) =>
    Result.map(readDocument(place, snapshot), ({ journal }) =>
      inspect(
        journal,
        { goalId: request.goalId, agentId: request.agentId, turnKey: request.turnKey },
        { retryFailed: request.retryFailed ?? false, sessionCheck: request.sessionRecoveryCheck ?? null }
      )
    )

  const history: JournalStore["Service"]["history"] = Effect.fnUntraced(function* ({ path, after, limit }) {
    const place = yield* Effect.fromResult(Place.ofPath(path))
    return yield* historyOf(driver, readDocument, place, after ?? 0, Math.min(limit ?? DEFAULT_PAGE, MAX_PAGE))
  })

  const walks = Walk.make(driver)
  const isPruned = Prune.isPrunedIn(driver, readDocument)
  return JournalStore.of({
    write,
    read,
    inspectStored,
    history,
    ...Queries.make(driver, walks, isPruned, limits),
    ...Verify.make(driver, walks, key, limits),
    ...Prune.make(driver, walks, isPruned, readDocument, key, limits),
    ...Copy.make(driver, walks, readDocument, { key, limits }),
    repair: (request) => repair(driver, { key, limits }, request)
  })
}

const answerOf = ({ effectId, operationId }: Admission, transition: "append" | "replay"): WriteResult => ({
  ok: true,
  appended: transition === "append",
  replayed: transition === "replay",
  effect_id: effectId,
  operation_id: operationId
})

const replayed = (admission: Admission): Result.Result<Step<WriteResult>> =>
  Result.succeed({ answer: answerOf(admission, "replay"), commit: null })

/** What a retry would go on with is gone: it would do again what was done. */
const wasPruned = (): JournalConflict =>
  new JournalConflict({
    kind: "journal_transition_conflict",
    message:
      "The turn failed and was pruned: its result and its run are gone, and it does not go on. Begin another one, with a turn_instance_id of its own.",
    details: {}
  })

/** What canonical JSON cannot carry is refused, also when it comes from TypeScript. */
const unstorable = ({ reason, path, message }: JsonFault): InvalidJournal =>
  new InvalidJournal({
    kind: reason === "too_deep" ? "journal_too_deep" : "journal_snapshot_invalid",
    message: `The journal at ${path}: ${message}.`,
    details: { path, reason }
  })

const tooLarge = (bytes: number, limit: number): InvalidJournal =>
  new InvalidJournal({
    kind: "journal_too_large",
    message: `A journal may have ${limit} bytes as compact JSON: keep large results outside and their names in it.`,
    details: { limit, bytes }
  })
