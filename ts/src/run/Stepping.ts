/** What each step of a run does. The twin of run_journal/stepping.py: run-journal.md, section 4. */
import { randomUUID } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Tracer from "effect/Tracer"
import type { Attempt } from "./Attempts.ts"
import type { Attempting, Driving } from "./Driving.ts"
import { CurrentIdempotencyKey, type DurableRun, type ModelOptions, type ToolOptions, Unknown } from "./DurableRun.ts"
import {
  changedValue,
  hasStopped,
  invalid,
  noValue,
  type StepError,
  TurnSuspended,
  uncertainEffect,
  unrecordable
} from "./Errors.ts"
import {
  KIND_APPROVAL,
  KIND_ITERATION,
  KIND_MODEL_DECISION,
  KIND_TOOL_CALL,
  KIND_TOOL_RESULT,
  KIND_VERIFICATION,
  type Kind
} from "./Events.ts"
import { failure, keptOf, saidBy } from "./Failure.ts"
import { asStored, differingFields, digest, encode, type Payload, type Value } from "./Payload.ts"
import * as Sleeps from "./Sleeps.ts"

/** What a tool's step has to do. */
type Plan =
  | { readonly _tag: "Known"; readonly value: Value }
  | { readonly _tag: "Begin"; readonly call: string }
  | { readonly _tag: "Again"; readonly key: string; readonly attempt: Attempt | undefined }

/** What the record gives is JSON; of which type, its reader has to know. */
interface Untyped {
  readonly model: <E, R>(
    ask: Effect.Effect<unknown, E, R>,
    options?: ModelOptions
  ) => Effect.Effect<Value, StepError, R>
  readonly tool: <E, R, E2 = never, R2 = never>(
    name: string,
    args: unknown,
    run: Effect.Effect<unknown, E, R>,
    options?: ToolOptions<E2, R2>
  ) => Effect.Effect<Value, StepError | E2, R | R2>
}

/** The steps of a drive. */
export const make = (driving: Driving, attempting: Attempting): DurableRun => {
  const { runId, lastSeq, step, halt, record, at, recordedAt, recordable, diverge, expectNothing, mustBeOpen } = driving

  /**
   * A step as a span, with its ids alone, where the program has a tracer: spans of Effect's own go nowhere, and cost half a
   * step. One that is on record does nothing, and is none.
   */
  const traced = <A, E, R>(
    kind: "tool" | "model" | "sleep",
    seq: number,
    live: Effect.Effect<A, E, R>,
    more: Readonly<Record<string, string>> = {}
  ): Effect.Effect<A, E, R> =>
    Effect.flatMap(Effect.tracer, (tracer) =>
      tracer === Tracer.nativeTracer
        ? live
        : Effect.withSpan(live, `turn_journal ${kind}`, {
            attributes: { "turn_journal.run_id": runId, "turn_journal.seq": seq, ...more },
            captureStackTrace: false
          })
    )

  /** Records what a tool or a model has failed with, which is its failure from here on. */
  const failed = (seq: number, kind: Kind, error: unknown): Effect.Effect<never, StepError> => {
    const said = saidBy(error)
    const { kept } = recordable({ error_type: said.errorType, message: said.message })
    const attempt: Attempt = { kind, state: "failed", ...keptOf(kept), nextSeq: driving.following() }
    return Effect.andThen(
      attempting(() => record.attempt(seq, attempt)),
      Effect.fail(failure(runId, seq, said.errorType, said.message))
    )
  }

  /** Runs a tool or a model. */
  const running = <A, E, R>(seq: number, kind: Kind, work: Effect.Effect<A, E, R>) =>
    Effect.catch(driving.within(work), (error: E): Effect.Effect<never, StepError> => {
      if (hasStopped(error)) return Effect.fail(halt(error))
      // Steps of fibers that are forked together with this one get their numbers first: they do not follow from its failure.
      return Effect.flatMap(Effect.yieldNow, () => failed(seq, kind, error))
    })

  const attemptTool = <E, R>(seq: number, key: string, work: Effect.Effect<unknown, E, R>) =>
    Effect.gen(function* () {
      const keyed = Effect.provideService(work, CurrentIdempotencyKey, key)
      const recorded = Effect.flatMap(keyed, (result) =>
        Effect.mapError(
          attempting(() => recordable({ result: result ?? null })),
          (error) => (error._tag === "InvalidJournal" ? unrecordable(runId, seq, error) : error)
        )
      )
      const { value, kept } = yield* running(seq, KIND_TOOL_CALL, recorded)
      yield* attempting(() => record.insert(seq, KIND_TOOL_RESULT, encode(kept)))
      return value["result"] ?? null
    })

  const tool: Untyped["tool"] = (name, args, run, options = {}) =>
    step((seq) =>
      Effect.gen(function* () {
        const key = `${runId}:${seq}:${name}`
        const live = (plan: Exclude<Plan, { readonly _tag: "Known" }>) =>
          Effect.gen(function* () {
            if (plan._tag === "Begin") {
              yield* attempting(() => record.insert(seq, KIND_TOOL_CALL, plan.call))
              return yield* attemptTool(seq, key, run)
            }
            if (plan.attempt?.state === "absent") {
              // The word that it did not happen holds for one attempt.
              yield* attempting(() => record.attempt(seq, AGAIN))
            } else if (options.restartSafe !== true) {
              const answer = options.readback === undefined ? Unknown : yield* options.readback(plan.key)
              if (answer._tag === "Committed") {
                const { value, kept } = yield* Effect.mapError(
                  attempting(() => recordable({ result: answer.result ?? null })),
                  halt // the effect has happened, and nothing on record says so
                )
                yield* attempting(() => record.insert(seq, KIND_TOOL_RESULT, encode(kept)))
                return value["result"] ?? null
              }
              if (answer._tag === "Unknown") {
                return yield* Effect.fail(halt(uncertainEffect(runId, seq, name, plan.key, plan.attempt)))
              }
            }
            return yield* attemptTool(seq, plan.key, run)
          })
        const plan = yield* attempting((): Plan => {
          if (name === "") throw invalid("A tool's name is a text that is not empty.")
          const { kept } = recordable({ name, args: args ?? {} })
          const recorded = recordedAt(seq, KIND_TOOL_CALL)
          if (recorded === null) {
            expectNothing(seq, KIND_TOOL_CALL, kept)
            mustBeOpen()
            const label = options.label === undefined ? {} : { tool_call_id: options.label }
            return { _tag: "Begin", call: encode({ ...kept, idempotency_key: key, ...label }) }
          }
          const fields = differingFields(calledBy(recorded), calledBy(kept))
          if (fields.length > 0) {
            throw diverge(seq, { kind: KIND_TOOL_CALL, ...kept }, fields, `tool ${JSON.stringify(name)}`)
          }
          const result = recordedAt(seq, KIND_TOOL_RESULT)
          if (result !== null) return { _tag: "Known", value: result["result"] ?? null }
          driving.repeatFailure(seq)
          mustBeOpen()
          return { _tag: "Again", key: String(recorded["idempotency_key"] ?? key), attempt: driving.attemptAt(seq) }
        })
        if (plan._tag === "Known") return plan.value
        return yield* traced("tool", seq, live(plan), { "turn_journal.tool": name })
      })
    )

  const fingerprints = (request: unknown): Payload => {
    if (request === undefined || request === null) return {}
    const kept = recordable({ request }).kept["request"] ?? null
    const fields = isObject(kept) ? kept : { request: kept }
    return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, digest(value)]))
  }

  const model: Untyped["model"] = (ask, options = {}) =>
    step((seq) =>
      Effect.gen(function* () {
        type Plan =
          | { readonly _tag: "Known"; readonly value: Value }
          | { readonly _tag: "Ask"; readonly prints: Payload; readonly superseded: ReadonlyArray<Value> }
        const plan = yield* attempting((): Plan => {
          const prints = fingerprints(options.request)
          const recorded = recordedAt(seq, KIND_MODEL_DECISION)
          if (recorded === null) {
            expectNothing(seq, KIND_MODEL_DECISION, { request: prints })
            mustBeOpen()
            return { _tag: "Ask", prints, superseded: [] }
          }
          const isOurs = Object.hasOwn(recorded, "response")
          const fields = isOurs ? differingFields(recorded["request"] ?? {}, prints, "request") : ["response"]
          if (fields.length === 0) return { _tag: "Known", value: recorded["response"] ?? null }
          if (options.onChange !== "ask_again") {
            throw diverge(seq, { kind: KIND_MODEL_DECISION, request: prints }, fields, "a model request")
          }
          mustBeOpen()
          const { superseded = [], ...former } = recorded
          return { _tag: "Ask", prints, superseded: [...(superseded as ReadonlyArray<Value>), former] }
        })
        if (plan._tag === "Known") return plan.value
        const recorded = Effect.flatMap(ask, (response) => attempting(() => recordable({ response: response ?? null })))
        const asked = running(seq, KIND_MODEL_DECISION, recorded)
        const { value } = yield* traced(
          "model",
          seq,
          Effect.tap(asked, ({ kept }) =>
            attempting(() => {
              const isAgain = plan.superseded.length > 0
              const text = encode({
                request: plan.prints,
                ...kept,
                ...(isAgain ? { superseded: plan.superseded } : {})
              })
              if (isAgain) record.replace(seq, KIND_MODEL_DECISION, text)
              else record.insert(seq, KIND_MODEL_DECISION, text)
            })
          )
        )
        return value["response"] ?? null
      })
    )

  const approval: DurableRun["approval"] = (question, binds = null) =>
    step((seq) =>
      attempting(() => {
        if (question === "") throw invalid("A question is a text that is not empty.")
        const { value, kept } = recordable({ question, binds })
        const issued: Payload = { ...kept, binds_digest: digest(value["binds"] ?? null) }
        const suspended = (): TurnSuspended =>
          halt(
            new TurnSuspended({
              kind: "turn_suspended",
              message: `Run ${JSON.stringify(runId)} waits for a decision at step ${seq}. Record it with \`approve\`, then drive the run again.`,
              details: { run_id: runId, seq, question: issued["question"], binds: issued["binds"] }
            })
          )
        const recorded = recordedAt(seq, KIND_APPROVAL)
        if (recorded === null) {
          expectNothing(seq, KIND_APPROVAL, issued)
          mustBeOpen()
          record.insert(seq, KIND_APPROVAL, encode(issued))
          throw suspended()
        }
        const identity = ({ question, binds_digest }: Payload): Payload => ({
          question: question ?? null,
          binds: binds_digest ?? null
        })
        const fields = differingFields(identity(recorded), identity(issued))
        if (fields.length === 0 && recorded["decision"] !== undefined) return recorded["decision"]
        mustBeOpen()
        if (fields.length > 0 && seq < lastSeq) {
          throw diverge(seq, { kind: KIND_APPROVAL, ...issued }, fields, "a question")
        }
        if (fields.length > 0) {
          // Nothing was done on the old decision yet: the new arguments are a new question.
          const { superseded = [], ...former } = recorded
          const all = [...(superseded as ReadonlyArray<Value>), former]
          record.replace(seq, KIND_APPROVAL, encode({ ...issued, superseded: all }))
        }
        throw suspended()
      })
    )

  /** Records a payload, or returns the one on record when it has the same identity. */
  const recordedOnce = (
    seq: number,
    kind: Kind,
    make: (isRecorded: boolean) => Payload,
    identity: ReadonlyArray<string>,
    refuseCall = false
  ): Effect.Effect<Payload, StepError> =>
    attempting(() => {
      const recorded = recordedAt(seq, kind)
      const payload = make(recorded !== null)
      const pick = (from: Payload): Payload => Object.fromEntries(identity.map((name) => [name, from[name] ?? null]))
      const issued = { kind, ...pick(payload) }
      if (refuseCall && at(seq).has(KIND_TOOL_CALL)) {
        throw diverge(seq, { ...issued, kind: "value" }, ["kind"], `the value ${JSON.stringify(payload["name"])}`)
      }
      if (recorded === null) {
        expectNothing(seq, kind, pick(payload))
        mustBeOpen()
        const { value, kept } = recordable(payload)
        record.insert(seq, kind, encode(kept))
        return value
      }
      const fields = differingFields(pick(recorded), pick(recordable(pick(payload)).kept))
      if (fields.length > 0) throw diverge(seq, issued, fields, kind)
      return recorded
    })

  const once = (kind: Kind, make: () => Payload, identity: ReadonlyArray<string>): Effect.Effect<Payload, StepError> =>
    step((seq) => recordedOnce(seq, kind, make, identity))

  const valueAt = <A extends Value>(
    seq: number,
    name: string,
    make: () => A,
    isOne: (value: Value | undefined) => value is A,
    given: Payload = {}
  ) =>
    Effect.flatMap(
      recordedOnce(
        seq,
        KIND_TOOL_RESULT,
        (isRecorded) => {
          const payload = { name, ...given, result: isRecorded ? null : make() }
          if (!isRecorded && recordable(payload).kept["result"] !== payload.result) throw changedValue(runId, seq, name)
          return payload
        },
        ["name", ...Object.keys(given)],
        true
      ),
      ({ result }): Effect.Effect<A, StepError> =>
        isOne(result) ? Effect.succeed(result) : Effect.fail(halt(noValue(runId, seq, name)))
    )

  const value = <A extends Value>(
    name: string,
    make: () => A,
    isOne: (value: Value | undefined) => value is A
  ): Effect.Effect<A, StepError> => step((seq) => valueAt(seq, name, make, isOne))

  const sleep = (asked: () => Sleeps.Sleep, options: Sleeps.SleepOptions = {}): Effect.Effect<void, StepError> =>
    step((seq) =>
      Effect.gen(function* () {
        const { name, given, until, longest } = yield* attempting(asked)
        const now = yield* Sleeps.now
        const due = yield* valueAt(seq, name, () => until(now), Predicate.isNumber, given)
        const waiting = yield* Sleeps.waiting(driving, attempting, seq, due, longest, options)
        if (waiting !== null) yield* traced("sleep", seq, waiting)
      })
    )

  return {
    runId,
    model: model as DurableRun["model"],
    tool: tool as DurableRun["tool"],
    approval,
    iteration: (index) =>
      Effect.map(
        once(KIND_ITERATION, () => {
          if (!Number.isSafeInteger(index)) throw invalid("An iteration is an integer.")
          return { index }
        }, ["index"]),
        () => index
      ),
    verification: (name, success, details = {}) =>
      once(KIND_VERIFICATION, () => asStored({ name, success, ...details }), ["name"]),
    now: value("now", () => Date.now() / 1000, Predicate.isNumber),
    random: value("random", Math.random, Predicate.isNumber),
    uuid: value("uuid", () => randomUUID(), Predicate.isString),
    sleep: (duration, options) => sleep(() => Sleeps.lasting(duration), options),
    sleepUntil: (moment, options) => sleep(() => Sleeps.until(moment), options),
    finish: driving.finish
  }
}

const AGAIN: Attempt = { kind: KIND_TOOL_CALL, state: "again", errorType: null, message: null, nextSeq: null }

/** What of a call a replay is compared with: `redact` may add to it. */
const calledBy = (call: Payload): Payload => ({ name: call["name"] ?? null, args: call["args"] ?? null })

const isObject = (value: Value): value is Payload =>
  typeof value === "object" && value !== null && !Array.isArray(value)
