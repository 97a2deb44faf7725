// Writes and reads turns in a database beside bare statements by the same driver, and prints one JSON line a round.
//
//     node benchmarks/postgres/clients.mjs URL CLIENTS SECONDS ROUNDS
import * as PgPool from "@effect/sql-pg/PgPool"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { DEFAULTS } from "../../ts/src/store/Databases.ts"
import { JournalStore } from "../../ts/src/store/JournalStore.ts"
import { poolConfig } from "../../ts/src/store/postgres/Address.ts"
import * as PostgresDriver from "../../ts/src/store/postgres/PostgresDriver.ts"
import { migrate } from "../../ts/src/store/postgres/Schema.ts"
import * as Server from "../../ts/src/store/postgres/Server.ts"
import { pathOf, wholeTurn } from "../../ts/test/store/Turns.ts"

const [url, clients, seconds, rounds] = [process.argv[2], ...process.argv.slice(3).map(Number)]

const BARE = "CREATE TABLE IF NOT EXISTS bare (id TEXT PRIMARY KEY, body JSONB NOT NULL)"
const UPSERT = "INSERT INTO bare (id, body) VALUES ($1, $2::jsonb) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
const SELECT = "SELECT body FROM bare WHERE id = $1"

let turns = 0
const nextTurn = () => {
  const turnKey = `turn-${process.pid}-${turns++}`
  const path = pathOf(url, turnKey)
  return { turnKey, path, journals: wholeTurn({ turnKey, todoId: "todo-1", instanceId: turnKey }) }
}

/** What a number of clients get done in the time. `client` makes one: an effect that does one thing each time. */
const measure = (client) =>
  Effect.gen(function* () {
    const clock = yield* Clock.Clock
    const until = clock.currentTimeMillisUnsafe() + seconds * 1000
    let done = 0
    const begun = process.cpuUsage()
    const work = Effect.gen(function* () {
      const act = client()
      while (clock.currentTimeMillisUnsafe() < until) {
        yield* act()
        done++
      }
    })
    const start = performance.now()
    yield* Effect.all(Array.from({ length: clients }, () => work), { concurrency: "unbounded" })
    const { user, system } = process.cpuUsage(begun)
    return { perSecond: (done / (performance.now() - start)) * 1000, cpuMicros: (user + system) / done }
  })

/** One journal after the other, turn after turn. */
const writer = (write) => () => {
  let turn = nextTurn()
  let at = 0
  return () => {
    if (at === turn.journals.length) {
      turn = nextTurn()
      at = 0
    }
    return write(turn, turn.journals[at++])
  }
}

const program = Effect.gen(function* () {
  yield* Effect.scoped(Effect.flatMap(Server.connect(url, DEFAULTS), migrate))
  const config = yield* Effect.fromResult(poolConfig(new URL(url), DEFAULTS))
  const pool = yield* PgPool.make(config)
  const bare = (sql, parameters) => pool.use((connection) => connection.query(sql, parameters))
  yield* bare(BARE, [])
  const store = yield* JournalStore
  const { turnKey, path, journals } = nextTurn()
  for (const journal of journals) {
    yield* store.write({ path, journal })
    yield* bare(UPSERT, [turnKey, JSON.stringify(journal)])
  }
  const ask = { runtimeRoot: url, goalId: "goal-1", agentId: "agent-1", turnKey }
  const sides = {
    "bare upsert": writer(({ turnKey }, journal) => bare(UPSERT, [turnKey, JSON.stringify(journal)])),
    write: writer(({ path }, journal) => store.write({ path, journal })),
    "bare select": () => () => bare(SELECT, [turnKey]),
    inspection: () => () => store.inspectStored(ask)
  }
  for (let round = 0; round <= rounds; round++) {
    const measured = {}
    for (const [name, client] of Object.entries(sides)) measured[name] = yield* measure(client)
    // The first round only warms up.
    if (round > 0) process.stdout.write(`${JSON.stringify(measured)}\n`)
  }
})

await Effect.runPromise(
  Effect.scoped(
    Effect.provide(program, Layer.provide(JournalStore.layer({ signingKey: null }), PostgresDriver.layer()))
  )
)
