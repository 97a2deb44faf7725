/** The tables are made on request, and checked at the first use; nothing of a URL's secret is ever said. */
import * as crypto from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Scope } from "effect/Scope"
import type { CoreError } from "../../../src/contract/Errors.ts"
import { Databases } from "../../../src/store/Databases.ts"
import * as FileDriver from "../../../src/store/FileDriver.ts"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import { MIGRATIONS, VERSION } from "../../../src/store/postgres/Schema.ts"
import { kindOf, pathOf, plainTurn } from "../Turns.ts"
import { connection, schema, serverUrl } from "./Roots.ts"

const NAMES = MIGRATIONS.map(({ name }) => name)
const SECRET = "s3cret-and-long"

const stores = JournalStore.layer({ signingKey: null }).pipe(
  Layer.provideMerge(Databases.layer),
  Layer.provide(FileDriver.layer())
)
const waiting = (seconds: string) =>
  ConfigProvider.layer(ConfigProvider.fromUnknown({ TURN_JOURNAL_POSTGRES_TIMEOUT: seconds }))
const fresh = <A, E>(act: Effect.Effect<A, E, JournalStore | Databases | Scope>, seconds = "20") =>
  Effect.scoped(Effect.provide(act, Layer.provide(stores, waiting(seconds))))

const listing = (url: string) => Effect.flatMap(JournalStore, (store) => store.list({ runtimeRoot: url }))
const writing = (url: string) =>
  Effect.flatMap(JournalStore, (store) =>
    store.write({ path: pathOf(url, "turn-1"), journal: plainTurn("turn-1", "in_progress", []) })
  )
const migrating = (url: string) => Effect.flatMap(Databases, (databases) => databases.migrate(url))

layer(Layer.empty, { excludeTestServices: true })("the tables", (it) => {
  it.effect("are missed, and made when that is asked for, once", () =>
    fresh(
      Effect.gen(function* () {
        const { url, name } = yield* schema
        for (const act of [listing(url), writing(url)]) {
          const missing = yield* Effect.flip(act as Effect.Effect<unknown, CoreError, JournalStore>)
          assert.strictEqual(missing.kind, "store_schema_missing")
          assert.include(missing.message, "turn-journal store migrate")
        }
        const admin = yield* connection
        const tables = `SELECT table_name FROM information_schema.tables WHERE table_schema = '${name}'`
        assert.lengthOf((yield* admin.query(tables)).rows, 0, "nothing is made silently")
        assert.deepStrictEqual(yield* migrating(url), { version: VERSION, applied: NAMES })
        assert.deepStrictEqual(yield* migrating(url), { version: VERSION, applied: [] })
        // The same store goes on: it need not be started anew.
        assert.isTrue((yield* writing(url)).appended)
      })
    )
  )

  it.effect("are made once by many who ask at once", () =>
    Effect.gen(function* () {
      const { url } = yield* schema
      const answers = yield* Effect.all(
        Array.from({ length: 6 }, () => fresh(migrating(url))),
        { concurrency: "unbounded" }
      )
      // One may have made the first, and another one the second.
      assert.deepStrictEqual(answers.flatMap(({ applied }) => applied).sort(), NAMES)
    })
  )

  it.effect("of another version are left alone, and it is said what to do", () =>
    Effect.gen(function* () {
      const { url, name } = yield* schema
      yield* fresh(migrating(url))
      const admin = yield* connection
      const table = `${name}.turn_journal_migrations`
      yield* admin.query(`INSERT INTO ${table} (version, name) VALUES (${VERSION + 1}, 'of tomorrow')`)
      assert.strictEqual(yield* fresh(kindOf(listing(url))), "store_schema_newer")
      assert.strictEqual(yield* fresh(kindOf(migrating(url))), "store_schema_newer")
      yield* admin.query(`DELETE FROM ${table}`)
      yield* admin.query(`INSERT INTO ${table} (version, name) VALUES (0, 'of yesterday')`)
      const older = yield* fresh(Effect.flip(listing(url)))
      assert.strictEqual(older.kind, "store_schema_older")
      assert.include(older.message, "turn-journal store migrate")
    })
  )

  it.effect("need a database of UTF-8", () =>
    Effect.gen(function* () {
      const admin = yield* connection
      const name = `latin_${crypto.randomBytes(6).toString("hex")}`
      const make = admin.query(`CREATE DATABASE ${name} TEMPLATE template0 LOCALE 'C' ENCODING 'LATIN1'`, [], false)
      yield* Effect.acquireRelease(make, () =>
        Effect.orDie(admin.query(`DROP DATABASE ${name} WITH (FORCE)`, [], false))
      )
      const url = Object.assign(serverUrl(), { pathname: `/${name}` })
      const refused = yield* fresh(Effect.flip(migrating(url.href)))
      assert.strictEqual(refused.kind, "store_unsupported")
      assert.include(refused.message, "ENCODING 'UTF8'")
    })
  )

  it.effect("need a schema to be in", () =>
    Effect.gen(function* () {
      const url = serverUrl()
      url.searchParams.set("options", "-csearch_path=nowhere")
      const missing = yield* fresh(Effect.flip(migrating(url.href)))
      assert.strictEqual(missing.kind, "store_schema_missing")
      assert.include(missing.message, "CREATE SCHEMA")
    })
  )
})

layer(Layer.empty, { excludeTestServices: true })("a database that cannot be used", (it) => {
  const secret = (change: (url: URL) => void) => {
    const url = serverUrl()
    url.password = SECRET
    url.searchParams.set("password", SECRET)
    url.searchParams.set("sslpassword", SECRET)
    change(url)
    return url.href
  }
  const CASES: ReadonlyArray<readonly [string, string, (url: URL) => void]> = [
    ["nobody there", "store_unavailable", (url) => Object.assign(url, { port: "1" })],
    ["no such host", "store_unavailable", (url) => Object.assign(url, { hostname: "nowhere.invalid" })],
    ["no such database", "store_denied", (url) => Object.assign(url, { pathname: "/nowhere" })],
    ["no such user", "store_denied", (url) => Object.assign(url, { username: "nobody" })],
    [
      "no such file",
      "store_denied",
      ({ searchParams }) => {
        searchParams.set("sslmode", "verify-ca")
        searchParams.set("sslrootcert", "/nowhere/root.crt")
      }
    ],
    ["no TLS there", "store_unavailable", (url) => url.searchParams.set("sslmode", "require")],
    ["an odd mode", "store_denied", (url) => url.searchParams.set("sslmode", SECRET)],
    ["an odd wait", "store_denied", (url) => url.searchParams.set("connect_timeout", SECRET)],
    ["an odd port", "store_denied", (url) => url.searchParams.set("port", SECRET)]
  ]
  for (const [what, kind, change] of CASES) {
    it.effect(`is said to be so, without its secret: ${what}`, () =>
      Effect.gen(function* () {
        // Whoever is not there is waited for.
        const seconds = kind === "store_unavailable" ? "0.5" : "20"
        const error = yield* fresh(Effect.flip(listing(secret(change))), seconds)
        assert.strictEqual(error.kind, kind)
        assert.notInclude(JSON.stringify([error, error.message, String(error.stack), error.cause]), SECRET)
      })
    )
  }
})
