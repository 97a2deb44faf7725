/**
 * The commands of the core: `serve`, and one call at a time of `inspect`, `write`, `read` and `migrate`.
 *
 * A result is JSON on standard output; an error is the protocol's error object on standard error. `--help` and
 * `--version` are text.
 */
import { readFile } from "node:fs/promises"
import { resolve } from "node:path"
import { buffer } from "node:stream/consumers"
import { type ParseArgsConfig, parseArgs } from "node:util"
import * as Cause from "effect/Cause"
import * as Config from "effect/Config"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Result from "effect/Result"
import { version } from "./Build.ts"
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

/** What was done could not be said; null when nobody reads any more. */
class Unsaid extends Data.TaggedError("Unsaid")<{ readonly reason: string | null }> {}

type Values = Readonly<Record<string, string | boolean | undefined>>

interface Command {
  readonly about: string
  readonly usage: string
  readonly options: NonNullable<ParseArgsConfig["options"]>
  readonly required: ReadonlyArray<string>
  readonly method: Method<Core | Databases | JournalStore | Limits>
  readonly params: (values: Values) => Json.JsonObject
}

const text = { type: "string" } as const
const flag = { type: "boolean" } as const

const COMMANDS: Readonly<Record<string, Command>> = {
  inspect: {
    about: "may the turn go on, and why",
    usage: "--root DIR|URL --goal G --agent A --turn-key K [--retry-failed]",
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
    about: "store a turn's journal: each write is one transition",
    usage: "--path P --journal FILE|- [--expected-effect-id ID] [--expected-previous OPERATION_ID|none]",
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
    about: "the journal as it is, or as it was after transition N",
    usage: "--path P [--at N]",
    options: { path: text, at: text },
    required: ["path"],
    method: read,
    params: (values) => ({
      path: pathIn(values, "path"),
      ...(values["at"] === undefined ? {} : { at: numberIn(values, "at") })
    })
  },
  migrate: {
    about: "make or update a database's tables",
    usage: "--root URL",
    options: { root: text },
    required: ["root"],
    method: migrate,
    params: (values) => ({ runtime_root: pathIn(values, "root") })
  }
}

const textIn = (values: Values, name: string): string => String(values[name] ?? "")
/** What is no number is left to the params' schema. */
const numberIn = (values: Values, name: string): number | string => {
  const given = textIn(values, name)
  return /^\d+$/.test(given) ? Number(given) : given
}
const pathIn = (values: Values, name: string): string => {
  const given = textIn(values, name)
  return isDatabase(given) ? given : resolve(given)
}
const previousIn = (values: Values): string | null =>
  values["expected-previous"] === "none" ? null : textIn(values, "expected-previous")

const SERVE = { usage: "", about: "the protocol on the standard streams, until the input ends" }

const usage = (): ReadonlyArray<string> =>
  Object.entries({ serve: SERVE, ...COMMANDS }).map(([name, { usage }]) => `turn-journal-core ${name} ${usage}`.trim())

const help = (): string =>
  Object.entries({ serve: SERVE, ...COMMANDS })
    .map(([name, { usage, about }]) => `turn-journal-core ${name} ${usage}`.trim().concat(`\n    ${about}`))
    .concat(
      "turn-journal-core --help | --version",
      "A relative path is of the working folder. Exit codes: 0 done, 1 refused, 2 the command line or a setting is wrong,",
      "3 no such turn, 4 what is stored is damaged."
    )
    .join("\n")

/** Runs a command to its exit code. */
export const run = (argv: ReadonlyArray<string>): Effect.Effect<number> => answer(argv).pipe(Effect.catchCause(report))

const answer = (argv: ReadonlyArray<string>) => {
  const [name, ...rest] = argv
  if (argv.some((word) => word === "--help" || word === "-h")) return say(help())
  if (name === "--version" && rest.length === 0) return say(version())
  if (name === "serve") {
    if (rest.length > 0) return Effect.fail(new Usage({ message: `Unexpected '${rest[0]}': serve takes nothing.` }))
    return Effect.as(NodeRuntime.serve, EXIT.done)
  }
  const command = name !== undefined && Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (command === undefined) return Effect.fail(new Usage({ message: "There is no such command." }))
  return call(command, rest).pipe(
    Effect.flatMap((result) => say(JSON.stringify(result, null, 2))),
    Effect.provide(NodeRuntime.layer)
  )
}

const call = Effect.fnUntraced(function* (command: Command, argv: ReadonlyArray<string>) {
  const values = yield* Effect.try({
    try: () => parseArgs({ args: [...argv], options: command.options, allowPositionals: false }).values as Values,
    catch: (error) => new Usage({ message: (error as Error).message })
  })
  const missing = command.required.filter((name) => values[name] === undefined)
  if (missing.length > 0) return yield* new Usage({ message: `--${missing[0]} is missing.` })
  const limits = yield* Limits
  const params = command.params(values)
  const journal = values["journal"]
  if (typeof journal !== "string") return yield* command.method.invoke(asCall(command.method.name, params), 0, limits)
  const given = yield* journalFrom(journal)
  const parsed = Json.parse(given, limits.depth)
  if (Result.isFailure(parsed)) return yield* notStrict(parsed.failure)
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

/** A journal's text. It is waited for beside the signals: who types at a terminal may leave. */
const journalFrom = (source: string): Effect.Effect<string, Usage> =>
  Effect.tryPromise({
    try: async () => {
      const bytes = await (source === "-" ? buffer(process.stdin) : readFile(source))
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes)
    },
    catch: (error) => new Usage({ message: `The journal at ${source} cannot be read: ${(error as Error).message}` })
  })

/** Says on standard error what went wrong. */
const report = (cause: Cause.Cause<unknown>): Effect.Effect<number> => {
  const failure = cause.reasons.find(Cause.isFailReason)?.error
  if (failure instanceof Unsaid && failure.reason === null) return Effect.succeed(EXIT.refused)
  const [code, error] = described(failure, cause)
  return Effect.as(Effect.ignore(print(process.stderr, JSON.stringify(error, null, 2))), code)
}

const described = (failure: unknown, cause: Cause.Cause<unknown>): readonly [number, ErrorObject] => {
  if (failure instanceof Usage) {
    return [EXIT.usage, protocolError("invalid_params", { usage: usage() }, failure.message)]
  }
  if (failure instanceof Config.ConfigError) {
    return [EXIT.usage, protocolError("invalid_params", {}, `A setting does not fit: ${failure.cause.message}`)]
  }
  if (failure instanceof Unsaid) {
    const message = `It was done, and what it answered could not be written: ${failure.reason}`
    return [EXIT.refused, protocolError("internal_error", {}, message)]
  }
  if (isRefusal(failure)) return [codeOf(failure), errorObject(failure)]
  return [EXIT.refused, protocolError("internal_error", { cause: Cause.pretty(cause) })]
}

const codeOf = (failure: CoreError | InvalidParams): number => {
  switch (failure._tag) {
    case "InvalidParams":
      return EXIT.usage
    case "InvalidJournal":
      return failure.kind === "invalid_request" ? EXIT.usage : EXIT.refused
    case "JournalNotFound":
      return EXIT.notFound
    case "JournalCorrupt":
      return EXIT.damaged
    default:
      return EXIT.refused
  }
}

const isRefusal = (failure: unknown): failure is CoreError | InvalidParams =>
  failure instanceof InvalidParams || ERRORS.some(({ tag }) => Predicate.isTagged(failure, tag))

const say = (text: string): Effect.Effect<number, Unsaid> => Effect.as(print(process.stdout, text), EXIT.done)

/** Prints a text, and goes on when it has left the process. */
const print = (stream: NodeJS.WriteStream, text: string): Effect.Effect<void, Unsaid> =>
  Effect.callback((resume) => {
    const done = (error?: NodeJS.ErrnoException | null): void => {
      if (error == null) resume(Effect.void)
      else resume(Effect.fail(new Unsaid({ reason: error.code === "EPIPE" ? null : error.message })))
    }
    stream.once("error", done)
    stream.write(`${text}\n`, done)
  })
