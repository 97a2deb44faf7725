/** Roots in the server of the tests: a schema each. */
import * as crypto from "node:crypto"
import * as PgConnection from "@effect/sql-pg/PgConnection"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { inject } from "vitest"
import { DEFAULTS } from "../../../src/store/Databases.ts"
import * as PostgresDriver from "../../../src/store/postgres/PostgresDriver.ts"
import { migrate } from "../../../src/store/postgres/Schema.ts"
import * as Server from "../../../src/store/postgres/Server.ts"
import { Root } from "../Turns.ts"

/** The server's own database. */
export const serverUrl = (): URL => new URL(inject("postgresUrl"))

/** A connection beside the store's. */
export const connection = Effect.suspend(() => PgConnection.make({ url: Redacted.make(serverUrl().href) }))

const run = (sql: string) =>
  Effect.orDie(Effect.scoped(Effect.flatMap(connection, (connected) => connected.query(sql, [], false))))

/** The URL of an empty schema, without tables, and its name. */
export const schema = Effect.acquireRelease(
  Effect.suspend(() => {
    const name = `test_${crypto.randomBytes(6).toString("hex")}`
    const url = serverUrl()
    url.searchParams.set("options", `-csearch_path=${name}`)
    return Effect.as(run(`CREATE SCHEMA ${name}`), { name, url: url.href })
  }),
  ({ name }) => run(`DROP SCHEMA ${name} CASCADE`)
)

/** The URL of a root that is ready for turns. */
export const root = Effect.tap(
  Effect.map(schema, ({ url }) => url),
  (url) => Effect.orDie(Effect.scoped(Effect.flatMap(Server.connect(url, DEFAULTS), migrate)))
)

/** The driver, with roots of its own. */
export const layer = Layer.merge(PostgresDriver.layer(), Layer.succeed(Root, root))
