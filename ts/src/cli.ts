/**
 * The commands of the core: `serve`, and one call at a time of `inspect`, `write`, `read` and `migrate`.
 *
 * A result is JSON on standard output; an error is the protocol's error object on standard error.
 */
import { readFileSync } from "node:fs"
import { resolve } from "node:path"
import { type ParseArgsConfig, parseArgs } from "node:util"
import * as Cause from "effect/Cause"
import * as Config from "effect/Config"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Result from "effect/Result"
import { type CoreError, ERRORS } from "./contract/Errors.ts"
import * as Json from "./contract/Json.ts"
import * as NodeRuntime from "./NodeRuntime.ts"
import type { Core } from "./rpc/Core.ts"
import { migrate } from "./rpc/DatabaseMethods.ts"
import { type Call, type ErrorObject, protocolError } from "./rpc/JsonRpc.ts"
import { Limits } from "./rpc/Limits.ts"
import { errorObject, InvalidParams, type Method, notStrict } from "./rpc/Method.ts"
import { inspectStored, read, write } from "./rpc/Methods.ts"
import type { Databases } from "./store/Databases.ts"
import type { JournalStore } from "./store/JournalStore.ts"
import { isDatabase } from "./store/Place.ts"

/** The exit codes, as the command line of the package has them. */
const EXIT = { done: 0, refused: 1, usage: 2, notFound: 3, damaged: 4 } as const

/** What was typed cannot be run. */
class Usage extends Data.TaggedError("Usage")<{ readonly message: string }> {}

type Values = Readonly<Record<string, string | boolean | undefined>>

interface Command {
  readonly about: string
  readonly options: NonNullable<ParseArgsConfig["options"]>
  readonly required: ReadonlyArray<string>
  readonly method: Method<Core | Databases | JournalStore | Limits>
  readonly params: (values: Values) => Json.JsonObject
}

const text = { type: "string" } as const
const flag = { type: "boolean" } as const

const COMMANDS: Readonly<Record<string, Command>> = {
  inspect: {
    about: "--root DIR|URL --goal G --agent A --turn-key K [--retry-failed]",
    options: { root: text, goal: text, agent: text, "turn-key": text, "retry-failed": flag },
    required: ["root", "goal", "agent", "turn-key"],
    method: inspectStored,
    params: (values) => ({
      runtime_root: pathIn(values, "root"),
      goal_id: textIn(values, "goal"),
      agent_id: textIn(values, "agent"),
      turn_key: textIn(values, "turn-key"),
      retry_failed: values["retry-failed"] === true
    })
  },
  write: {
    about: "--path P --journal FILE|- [--expected-effect-id ID] [--expected-previous OPERATION_ID|none]",
    options: { path: text, journal: text, "expected-effect-id": text, "expected-previous": text },
    required: ["path", "journal"],
    method: write,
    params: (values) => ({
      path: pathIn(values, "path"),
      ...(values["expected-effect-id"] === undefined
        ? {}
        : { expected_effect_id: textIn(values, "expected-effect-id") }),
      ...(values["expected-previous"] === undefined ? {} : { expected_previous: previousIn(values) })
    })
  },
  read: {
    about: "--path P [--at N]",
    options: { path: text, at: text },
    required: ["path"],
    method: read,
    params: (values) => ({
      path: pathIn(values, "path"),
      ...(values["at"] === undefined ? {} : { at: Number(values["at"]) })
    })
  },
  migrate: {
    about: "--root URL",
    options: { root: text },
    required: ["root"],
    method: migrate,
    params: (values) => ({ runtime_root: pathIn(values, "root") })
  }
}

const textIn = (values: Values, name: string): string => String(values[name] ?? "")
const pathIn = (values: Values, name: string): string => {
  const given = textIn(values, name)
  return isDatabase(given) ? given : resolve(given)
}
const previousIn = (values: Values): string | null =>
  values["expected-previous"] === "none" ? null : textIn(values, "expected-previous")

const usage = (): ReadonlyArray<string> =>
  ["serve", ...Object.entries(COMMANDS).map(([name, { about }]) => `${name} ${about}`)].map(
    (line) => `turn-journal-core ${line}`
  )

/** Runs a command to its exit code. */
export const run = (argv: ReadonlyArray<string>): Effect.Effect<number> => {
  const [name, ...rest] = argv
  if (name === "serve" && rest.length === 0) {
    return Effect.as(NodeRuntime.serve, EXIT.done).pipe(Effect.catchCause(report))
  }
  const command = name !== undefined && Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (command === undefined) return report(Cause.fail(new Usage({ message: "There is no such command." })))
  return call(command, rest).pipe(
    Effect.flatMap((result) => print(process.stdout, result)),
    Effect.as(EXIT.done),
    Effect.provide(NodeRuntime.layer),
    Effect.catchCause(report)
  )
}

const call = Effect.fnUntraced(function* (command: Command, argv: ReadonlyArray<string>) {
  const values = yield* Effect.try({
    try: () => parseArgs({ args: [...argv], options: command.options, allowPositionals: false }).values as Values,
    catch: (error) => new Usage({ message: (error as Error).message })
  })
  const missing = command.required.filter((name) => values[name] === undefined)
  if (missing.length > 0) return yield* Effect.fail(new Usage({ message: `--${missing[0]} is missing.` }))
  const limits = yield* Limits
  const params = command.params(values)
  const journal = values["journal"]
  if (typeof journal !== "string") return yield* command.method.invoke(asCall(command.method.name, params), 0, limits)
  const given = yield* journalFrom(journal)
  const parsed = Json.parse(given, limits.depth)
  if (Result.isFailure(parsed)) return yield* Effect.fail(notStrict(parsed.failure))
  const line = asCall(command.method.name, { ...params, journal: parsed.success })
  return yield* command.method.invoke(line, Buffer.byteLength(given), limits)
})

const asCall = (method: string, params: Json.JsonObject): Call => ({
  _tag: "Call",
  id: 0,
  method,
  params,
  fault: null,
  traced: false
})

const STDIN = 0

const journalFrom = (source: string): Effect.Effect<string, Usage> =>
  Effect.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(source === "-" ? STDIN : source)),
    catch: (error) => new Usage({ message: `The journal at ${source} cannot be read: ${(error as Error).message}` })
  })

/** Says on standard error what went wrong. */
const report = (cause: Cause.Cause<unknown>): Effect.Effect<number> => {
  const failure = cause.reasons.find(Cause.isFailReason)?.error
  const [code, error] = described(failure, cause)
  return Effect.as(print(process.stderr, error), code)
}

const described = (failure: unknown, cause: Cause.Cause<unknown>): readonly [number, ErrorObject] => {
  if (failure instanceof Usage || failure instanceof Config.ConfigError) {
    return [EXIT.usage, protocolError("invalid_params", { usage: usage() }, failure.message)]
  }
  if (isRefusal(failure)) return [CODES[failure._tag] ?? EXIT.refused, errorObject(failure)]
  return [EXIT.refused, protocolError("internal_error", { cause: Cause.pretty(cause) })]
}

const CODES: Readonly<Record<string, number>> = {
  InvalidParams: EXIT.usage,
  JournalNotFound: EXIT.notFound,
  JournalCorrupt: EXIT.damaged
}

const isRefusal = (failure: unknown): failure is CoreError | InvalidParams =>
  failure instanceof InvalidParams || ERRORS.some(({ tag }) => Predicate.isTagged(failure, tag))

/** Prints a document, and goes on when it has left the process. */
const print = (stream: NodeJS.WriteStream, document: unknown): Effect.Effect<void> =>
  Effect.callback((resume) => {
    stream.write(`${JSON.stringify(document, null, 2)}\n`, () => resume(Effect.void))
  })
