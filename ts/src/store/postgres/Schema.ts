/** The tables of the store: made by numbered migrations, each run once and only when somebody asks for it. */
import * as Effect from "effect/Effect"
import type { MigrateResult } from "../../contract/Database.ts"
import { StoreFailure } from "../../contract/Errors.ts"
import type { StoreError } from "../Failure.ts"
import { outcomeUnknown, schemaMissing, schemaNewer, schemaOlder } from "./Failure.ts"
import { migration as m0001 } from "./migrations/0001_turns.ts"
import { migration as m0002 } from "./migrations/0002_sessions.ts"
import type { Query, Server } from "./Server.ts"

export interface Migration {
  /** Its number and what it is about; never changed once it is released, and neither are its statements. */
  readonly name: string
  readonly statements: ReadonlyArray<string>
}

export const MIGRATIONS: ReadonlyArray<Migration> = [m0001, m0002]

/** What this program needs: the number of the last migration. */
export const VERSION = MIGRATIONS.length

const CREATE = `CREATE TABLE IF NOT EXISTS turn_journal_migrations (
  version INT4 PRIMARY KEY,
  name TEXT NOT NULL,
  applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
)`
const WHERE = "SELECT current_schema() AS name, current_setting('server_encoding') AS encoding"
const LATEST = "SELECT max(version) AS version FROM turn_journal_migrations"
// Whoever migrates at the same time waits here for the other one, and then finds the number taken.
const CLAIM =
  "INSERT INTO turn_journal_migrations (version, name) VALUES ($1::int4, $2) ON CONFLICT (version) DO NOTHING RETURNING version"

/** Refuses tables that this program does not know. */
export const check = (server: Server): Effect.Effect<void, StoreError> =>
  Effect.flatMap(server.ask(LATEST, []), ([row]) => {
    const version = row?.["version"]
    if (typeof version !== "number") return Effect.fail(schemaMissing(server.name))
    if (version < VERSION) return Effect.fail(schemaOlder(server.name, version))
    return version > VERSION ? Effect.fail(schemaNewer(server.name, version, VERSION)) : Effect.void
  })

/** Runs what is missing, each migration as one transaction. */
export const migrate = (server: Server): Effect.Effect<MigrateResult, StoreError> =>
  Effect.gen(function* () {
    const [found] = yield* server.ask(WHERE, [])
    if (found?.["name"] == null) return yield* noSchema(server.name)
    if (found["encoding"] !== "UTF8") return yield* otherEncoding(server.name, String(found["encoding"]))
    // Two who make it at the same time get in each other's way, although neither minds that it is there.
    yield* Effect.catchIf(server.ask(CREATE, []), madeMeanwhile, () => server.ask(CREATE, []))
    const [row] = yield* server.ask(LATEST, [])
    const version = typeof row?.["version"] === "number" ? row["version"] : 0
    if (version > VERSION) return yield* schemaNewer(server.name, version, VERSION)
    const applied: Array<string> = []
    for (const [index, migration] of MIGRATIONS.entries()) {
      if (index + 1 <= version) continue
      const ran = yield* server.transact("read committed", (query) => run(query, index + 1, migration))
      if (ran !== null) applied.push(migration.name)
    }
    return { version: VERSION, applied }
  }).pipe(Effect.catchTag("Unsure", ({ code }) => Effect.fail(outcomeUnknown(server.name, code))))

/** Of the table itself, its row type, or the server's own index of names: wherever the other one was a moment ahead. */
const MADE_MEANWHILE: ReadonlySet<unknown> = new Set(["42P07", "42710", "23505"])
const madeMeanwhile = (error: StoreError): boolean => MADE_MEANWHILE.has(error.details["code"])

const run = (query: Query, version: number, { name, statements }: Migration) =>
  Effect.gen(function* () {
    const claimed = yield* query(CLAIM, [version, name])
    if (claimed.length === 0) return null
    for (const statement of statements) yield* query(statement, [])
    return version
  })

const noSchema = (database: string): StoreFailure =>
  new StoreFailure({
    kind: "store_schema_missing",
    message: `The search path of ${database} names no schema that is there: create it (CREATE SCHEMA …), then migrate.`,
    details: { database }
  })

/** What such a database cannot keep it would refuse in the middle of some turn. */
const otherEncoding = (database: string, encoding: string): StoreFailure =>
  new StoreFailure({
    kind: "store_unsupported",
    message: `${database} keeps its texts as ${encoding}, in which not every journal can be written: make a database with ENCODING 'UTF8' (CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8').`,
    details: { database, encoding }
  })
