/** One database as the store speaks to it: statements, transactions, and patience with a server that comes and goes. */
import type * as PgConnection from "@effect/sql-pg/PgConnection"
import * as PgPool from "@effect/sql-pg/PgPool"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import { ConnectionError, SqlError } from "effect/sql/SqlError"
import type { DatabaseOptions } from "../Databases.ts"
import type { StoreError } from "../Failure.ts"
import * as Address from "./Address.ts"
import { fateOf, outcomeUnknown, Unsure, unavailable } from "./Failure.ts"

export type Row = PgConnection.Row
export type Parameters = ReadonlyArray<unknown>
export type Query = (sql: string, parameters: Parameters) => Effect.Effect<ReadonlyArray<Row>, SqlError>

export interface Server {
  /** Its name for messages. */
  readonly name: string
  /** How long a call is patient, in milliseconds. */
  readonly patience: number
  /** Sends a statement that may be carried out twice, until it is answered. */
  readonly ask: (sql: string, parameters: Parameters) => Effect.Effect<ReadonlyArray<Row>, StoreError>
  /** The same for a statement that changes something: where no answer comes, it is not said that nothing was changed. */
  readonly change: (sql: string, parameters: Parameters) => Effect.Effect<ReadonlyArray<Row>, StoreError>
  /** Sends a statement once; nothing is sent again that may have been carried out. */
  readonly tell: (sql: string, parameters: Parameters) => Effect.Effect<ReadonlyArray<Row>, StoreError | Unsure>
  /** Several statements as one transaction, sent once. `body` gives null to have it undone. */
  readonly transact: <A, E>(
    isolation: "read committed" | "repeatable read",
    body: (query: Query) => Effect.Effect<A | null, E | SqlError>
  ) => Effect.Effect<A | null, Exclude<E, SqlError> | StoreError | Unsure>
}

/** First wait before a server is tried again, and the longest one, in milliseconds. */
const FIRST_WAIT = 10
const LONGEST_WAIT = 500
/** The longest time that the server takes. */
const MAX_MILLIS = 2 ** 31 - 1

export const connect = (root: string, options: DatabaseOptions): Effect.Effect<Server, StoreError, Scope.Scope> =>
  Effect.gen(function* () {
    const url = new URL(root)
    const config = yield* Effect.fromResult(Address.poolConfig(url, options))
    const name = Address.nameOf(url)
    const pool = yield* Effect.mapError(PgPool.make(config), ({ reason }) => unavailable(name, reason._tag))
    return make(name, pool, options.timeout * 1000)
  })

const make = (name: string, pool: PgPool.PgPool, patience: number): Server => {
  const inTime = <A, E>(work: Effect.Effect<A, E>) => within(work, patience)

  /** Gives it another try as long as nothing can have been done, or where doing it twice is as good as once. */
  const patiently = <A, E>(
    once: Effect.Effect<A, E | SqlError>,
    mayRepeat: boolean
  ): Effect.Effect<A, Exclude<E, SqlError> | StoreError | Unsure> =>
    Effect.catch(once, (first) => repeat(once, first, mayRepeat))

  const repeat = <A, E>(once: Effect.Effect<A, E | SqlError>, first: E | SqlError, mayRepeat: boolean) =>
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      const until = clock.currentTimeMillisUnsafe() + patience
      let failure = first
      let isUnsure = false
      for (let wait = FIRST_WAIT; ; wait = Math.min(wait * 2, LONGEST_WAIT)) {
        if (!(failure instanceof SqlError)) return yield* Effect.fail(failure as Exclude<E, SqlError>)
        const fate = fateOf(name, failure)
        if (fate._tag === "Refused") return yield* fate.error
        isUnsure ||= fate._tag === "Unsure"
        const isOver = fate.code === TOO_LATE || clock.currentTimeMillisUnsafe() + wait > until
        if (isUnsure && (isOver || !mayRepeat)) return yield* new Unsure({ code: fate.code })
        if (isOver) return yield* unavailable(name, fate.code)
        yield* Effect.sleep(wait * (0.5 + Math.random() / 2))
        const again = yield* Effect.result(once)
        if (again._tag === "Success") return again.success
        failure = again.failure
      }
    })

  const query = (sql: string, parameters: Parameters) =>
    inTime(pool.use((connection) => Effect.map(connection.query(sql, parameters), ({ rows }) => rows)))

  return {
    name,
    patience,
    ask: (sql, parameters) =>
      Effect.catchTag(patiently(query(sql, parameters), true), "Unsure", ({ code }) =>
        Effect.fail(unavailable(name, code))
      ),
    change: (sql, parameters) =>
      Effect.catchTag(patiently(query(sql, parameters), true), "Unsure", ({ code }) =>
        Effect.fail(outcomeUnknown(name, code))
      ),
    tell: (sql, parameters) => patiently(query(sql, parameters), false),
    transact: (isolation, body) =>
      patiently(
        Effect.scoped(
          Effect.gen(function* () {
            const connection = yield* inTime(Scope.provide(pool.reserve, yield* Effect.scope))
            const send = (sql: string, parameters: Parameters) => inTime(connection.query(sql, parameters))
            return yield* inTransaction(send, isolation, patience, body)
          })
        ),
        false
      )
  }
}

/** `Effect.timeoutOrElse` with one fiber and one timer instead of a race: every statement pays for it. */
const within = <A, E>(work: Effect.Effect<A, E>, millis: number): Effect.Effect<A, E | SqlError> =>
  Effect.withFiber((caller) =>
    Effect.callback((resume) => {
      const fiber = Effect.runForkWith(caller.context)(work)
      const late = setTimeout(() => resume(Effect.andThen(Fiber.interrupt(fiber), Effect.fail(tooLate))), millis)
      fiber.addObserver((exit) => {
        clearTimeout(late)
        resume(exit)
      })
      return Effect.suspend(() => {
        clearTimeout(late)
        return Fiber.interrupt(fiber)
      })
    })
  )

/**
 * Each statement has its time; a transaction may have many, and large ones. The server ends one whose client is silent
 * for as long between two of them: what it has locked is free again when a host was cut off.
 */
const inTransaction = <A, E>(
  send: (sql: string, parameters: Parameters) => Effect.Effect<PgConnection.Result, SqlError>,
  isolation: string,
  patience: number,
  body: (query: Query) => Effect.Effect<A | null, E>
): Effect.Effect<A | null, E | SqlError> => {
  const run = (sql: string) => send(sql, [])
  const query: Query = (sql, parameters) => Effect.map(send(sql, parameters), ({ rows }) => rows)
  const whole = Effect.gen(function* () {
    yield* run(`BEGIN ISOLATION LEVEL ${isolation.toUpperCase()}`)
    yield* run(`SET LOCAL idle_in_transaction_session_timeout = ${Math.min(Math.ceil(patience), MAX_MILLIS)}`)
    const answer = yield* body(query)
    const { command } = yield* run(answer === null ? "ROLLBACK" : "COMMIT")
    if (answer !== null && command === "ROLLBACK") return yield* Effect.fail(undone)
    return answer
  })
  return Effect.onError(whole, () => Effect.ignore(run("ROLLBACK")))
}

const lost = (message: string, code: string): SqlError =>
  new SqlError({
    reason: new ConnectionError({
      cause: Object.assign(new Error(message), { code, severityUnlocalized: "ERROR" }),
      message,
      operation: "query"
    })
  })

const TOO_LATE = "timeout"
const tooLate = lost("the statement took too long", TOO_LATE)
/** `COMMIT` of a transaction in which a statement failed. */
const undone = lost("the transaction was rolled back", "40001")
