/** From one line to its answer. Calls run side by side; those that need not wait are answered at once. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import type { CoreError } from "../contract/Errors.ts"
import * as JsonRpc from "./JsonRpc.ts"
import type { Limits } from "./Limits.ts"
import { errorObject, type InvalidParams, journalTooLarge, type Method } from "./Method.ts"
import * as Tracing from "./Tracing.ts"

/** `{"jsonrpc":…,"params":{"journal":` stand around a journal. */
const ENVELOPE_LEVELS = 2

/** Takes the answer to a line, or null where there is none. Called once for each line. */
export type Answer = (line: string | null) => void

export interface Dispatcher {
  readonly line: (bytes: Uint8Array, answer: Answer) => void
  /** A line that was too long to be kept: `head` is how it began. */
  readonly tooLong: (head: Uint8Array, answer: Answer) => void
  /** How many calls are being worked on. */
  readonly open: () => number
  /** Gives up what is still open, without waiting for it. */
  readonly abandon: Effect.Effect<void>
}

export const make = <R>(
  methods: ReadonlyArray<Method<R>>,
  limits: Limits["Service"]
): Effect.Effect<Dispatcher, never, R> =>
  Effect.contextWith((services) => {
    const table = new Map(methods.map((method) => [method.name, method]))
    const run = Effect.runForkWith(services)
    const fibers = new Set<Fiber.Fiber<unknown, CoreError | InvalidParams>>()
    const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
    const maxDepth = limits.depth + ENVELOPE_LEVELS

    const text = (bytes: Uint8Array): string | null => {
      try {
        return utf8.decode(bytes)
      } catch {
        return null
      }
    }

    const call = (message: JsonRpc.Call, lineBytes: number, answer: Answer): void => {
      const method = table.get(message.method)
      if (method === undefined) {
        answer(failed(message.id, JsonRpc.protocolError("method_not_found", {})))
        return
      }
      const work = Effect.suspend(() => method.invoke(message, lineBytes, limits))
      if (message.traced) {
        const { effect, spans } = Tracing.record(message.method, work)
        start(message.id, effect, (line) => answer(line === null ? null : JsonRpc.withSpans(line, spans())))
      } else start(message.id, work, answer)
    }

    const start = (
      id: JsonRpc.Id | undefined,
      work: Effect.Effect<unknown, CoreError | InvalidParams, R>,
      answer: Answer
    ): void => {
      const fiber = run(work)
      const exit = fiber.pollUnsafe()
      if (exit !== undefined) {
        answer(encode(id, exit))
        return
      }
      fibers.add(fiber)
      fiber.addObserver((exit) => {
        fibers.delete(fiber)
        answer(encode(id, exit))
      })
    }

    const defect = (id: JsonRpc.Id | undefined, cause: Cause.Cause<unknown>): string | null => {
      run(Effect.logError("A call failed in a way that no error names.", cause))
      return failed(id, JsonRpc.protocolError("internal_error", {}))
    }

    const encode = (id: JsonRpc.Id | undefined, exit: Exit.Exit<unknown, CoreError | InvalidParams>): string | null => {
      if (exit._tag === "Failure") {
        const error = errorOf(exit.cause)
        return error === null ? defect(id, exit.cause) : failed(id, error)
      }
      if (id === undefined) return null
      try {
        return JsonRpc.encodeResult(id, exit.value)
      } catch (unwritable) {
        return defect(id, Cause.die(unwritable))
      }
    }

    const message = (message: JsonRpc.Message, lineBytes: number, answer: Answer): void =>
      message._tag === "Call"
        ? call(message, lineBytes, answer)
        : answer(JsonRpc.encodeError(message.id, message.error))

    const batch = (messages: ReadonlyArray<JsonRpc.Message>, lineBytes: number, answer: Answer): void => {
      const answers: Array<string> = []
      let missing = messages.length
      for (const one of messages) {
        message(one, lineBytes, (line) => {
          if (line !== null) answers.push(line)
          missing--
          if (missing === 0) answer(answers.length === 0 ? null : JsonRpc.encodeBatch(answers))
        })
      }
    }

    return Effect.succeed<Dispatcher>({
      line: (bytes, answer) => {
        const received = text(bytes)
        const line =
          received === null ? JsonRpc.refusal(null, "parse_error", NOT_UTF8) : JsonRpc.decode(received, maxDepth)
        if (line._tag === "Batch") batch(line.messages, bytes.length, answer)
        else message(line, bytes.length, answer)
      },
      tooLong: (head, answer) => {
        const error = JsonRpc.coreError(journalTooLarge(limits.journalBytes))
        answer(JsonRpc.encodeError(JsonRpc.idInHead(Buffer.from(head).toString()), error))
      },
      open: () => fibers.size,
      abandon: Effect.sync(() => {
        for (const fiber of fibers) fiber.interruptUnsafe()
      })
    })
  })

const NOT_UTF8 = { reason: "invalid_utf8", path: "$" }

/** A notification is not answered, whatever becomes of it. */
const failed = (id: JsonRpc.Id | undefined, error: JsonRpc.ErrorObject): string | null =>
  id === undefined ? null : JsonRpc.encodeError(id, error)

/** The error that a failed call is answered with; null for a defect. */
const errorOf = (cause: Cause.Cause<CoreError | InvalidParams>): JsonRpc.ErrorObject | null => {
  const failure = cause.reasons.find(Cause.isFailReason)
  return failure === undefined ? null : errorObject(failure.error)
}
