/** What stands for a URL that does not say it: variables and the file of passwords, as libpq reads them. */
import * as crypto from "node:crypto"
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { afterEach, vi } from "vitest"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import * as PostgresDriver from "../../../src/store/postgres/PostgresDriver.ts"
import { completed, passwordOnFile, said } from "../../../src/store/postgres/Surroundings.ts"
import { kindOf } from "../Turns.ts"
import { connection, root, schema } from "./Roots.ts"

afterEach(() => {
  vi.unstubAllEnvs()
})

const SECRET = "s3:cr\\et"
const ESCAPED = SECRET.replace(/[\\:]/g, "\\$&")

/** The URL of a ready root for a role that is asked for its password, which the URL does not give. */
const locked = Effect.gen(function* () {
  const url = new URL(yield* root)
  const { name: role } = yield* Effect.acquireRelease(
    Effect.sync(() => ({ name: `asked_${crypto.randomBytes(6).toString("hex")}` })),
    ({ name }) => run(`DROP OWNED BY ${name}`, `DROP ROLE ${name}`)
  )
  const within = url.searchParams.get("options")?.split("=").at(-1)
  yield* run(
    `CREATE ROLE ${role} LOGIN PASSWORD '${SECRET}'`,
    `GRANT USAGE ON SCHEMA ${within} TO ${role}`,
    `GRANT SELECT ON ALL TABLES IN SCHEMA ${within} TO ${role}`
  )
  url.username = role
  return url
})

const run = (...statements: ReadonlyArray<string>) =>
  Effect.orDie(
    Effect.scoped(
      Effect.flatMap(connection, (connected) =>
        Effect.forEach(statements, (statement) => connected.query(statement, [], false))
      )
    )
  )

const fileOf = (text: string, mode = 0o600) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "pgpass-"))),
      (folder) => Effect.sync(() => rmSync(folder, { recursive: true }))
    ),
    (folder) => {
      const file = join(folder, ".pgpass")
      writeFileSync(file, text)
      chmodSync(file, mode)
      return { folder, file }
    }
  )

const turnsIn = (url: URL | string) =>
  Effect.flatMap(JournalStore, (store) => store.list({ runtimeRoot: typeof url === "string" ? url : url.href }))

layer(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(PostgresDriver.layer({ timeout: 20 }))), {
  excludeTestServices: true
})("a password that the URL does not give", (it) => {
  it.effect("is missed, and none is shown", () =>
    Effect.gen(function* () {
      const url = yield* locked
      vi.stubEnv("PGPASSWORD", "another s3cret")
      const error = yield* Effect.flip(turnsIn(url))
      assert.strictEqual((error as { readonly kind?: string }).kind, "store_denied")
      assert.notInclude(JSON.stringify(error), "s3cret")
      assert.include((error as { readonly message: string }).message, "PGPASSWORD")
    })
  )

  it.effect("is PGPASSWORD's", () =>
    Effect.gen(function* () {
      const url = yield* locked
      vi.stubEnv("PGPASSWORD", SECRET)
      assert.deepStrictEqual((yield* turnsIn(url)).turns, [])
    })
  )

  it.effect("is not PGPASSWORD's where the URL gives one", () =>
    Effect.gen(function* () {
      const url = yield* locked
      vi.stubEnv("PGPASSWORD", "another")
      url.password = encodeURIComponent(SECRET)
      assert.deepStrictEqual((yield* turnsIn(url)).turns, [])
    })
  )

  for (const where of ["PGPASSFILE", "passfile", "home"] as const) {
    it.effect(`is the one of the file of passwords (${where})`, () =>
      Effect.gen(function* () {
        const url = yield* locked
        const { folder, file } = yield* fileOf(
          `# mine\n*:*:*:other:no\n${url.hostname}:${url.port}:*:${url.username}:${ESCAPED}\n`
        )
        if (where === "home") vi.stubEnv("HOME", folder)
        else if (where === "passfile") url.searchParams.set("passfile", file)
        else vi.stubEnv("PGPASSFILE", file)
        assert.deepStrictEqual((yield* turnsIn(url)).turns, [])
      })
    )
  }

  it.effect("is not taken from a file that others may read", () =>
    Effect.gen(function* () {
      const url = yield* locked
      const { file } = yield* fileOf(`*:*:*:*:${ESCAPED}\n`, 0o640)
      vi.stubEnv("PGPASSFILE", file)
      assert.strictEqual(yield* kindOf(turnsIn(url)), "store_denied")
    })
  )

  it.effect("comes with all else that the URL does not say", () =>
    Effect.gen(function* () {
      const url = yield* locked
      vi.stubEnv("PGHOST", url.hostname)
      vi.stubEnv("PGPORT", url.port)
      vi.stubEnv("PGUSER", url.username)
      vi.stubEnv("PGDATABASE", url.pathname.slice(1))
      vi.stubEnv("PGOPTIONS", url.searchParams.get("options") ?? "")
      vi.stubEnv("PGPASSWORD", SECRET)
      assert.deepStrictEqual((yield* turnsIn(`postgresql://?application_name=${url.username}`)).turns, [])
    })
  )

  it.effect("is not asked for where TLS is, and the server has none", () =>
    Effect.gen(function* () {
      const { url } = yield* schema
      vi.stubEnv("PGSSLMODE", "require")
      assert.notStrictEqual(yield* kindOf(turnsIn(url)), "store_schema_missing")
      vi.stubEnv("PGSSLMODE", "perhaps")
      assert.strictEqual(yield* kindOf(turnsIn(`${url}&application_name=odd`)), "store_denied")
    })
  )

  it.effect("is of one host, and of one port", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* kindOf(turnsIn("postgresql://a:1,b:2/none")), "invalid_request")
    })
  )

  for (const [where, url, variable] of [
    ["the URL", "postgresql://a,b/none", null],
    ["a parameter", "postgresql:///none?host=a,b", null],
    ["PGHOST", "postgresql:///none", "PGHOST"],
    ["the parameter of addresses", "postgresql:///none?hostaddr=::1,127.0.0.1", null],
    ["PGHOSTADDR", "postgresql:///none", "PGHOSTADDR"]
  ] as const) {
    it.effect(`is of one host: several in ${where} are refused at once`, () =>
      Effect.gen(function* () {
        if (variable !== null) vi.stubEnv(variable, "a,b")
        assert.strictEqual(yield* kindOf(turnsIn(url)), "store_unsupported")
      })
    )
  }
})

layer(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(PostgresDriver.layer({ timeout: 20 }))), {
  excludeTestServices: true
})("an address", (it) => {
  const elsewhere = Effect.map(root, (text) => {
    const url = new URL(text)
    const { hostname: address } = url
    url.hostname = "nowhere.invalid"
    return { url, address }
  })

  it.effect("is where the server is, whatever the host's name is", () =>
    Effect.gen(function* () {
      const { url, address } = yield* elsewhere
      url.searchParams.set("hostaddr", address)
      assert.deepStrictEqual((yield* turnsIn(url)).turns, [])
    })
  )

  it.effect("is PGHOSTADDR's where the URL gives none", () =>
    Effect.gen(function* () {
      const { url, address } = yield* elsewhere
      vi.stubEnv("PGHOSTADDR", address)
      assert.deepStrictEqual((yield* turnsIn(url)).turns, [])
    })
  )

  it.effect("stands for the name of the host in the file of passwords, where there is no name", () =>
    Effect.gen(function* () {
      const { hostname: address, port, username, pathname, search } = yield* locked
      const { file } = yield* fileOf(`localhost:*:*:*:no\n${address}:${port}:*:${username}:${ESCAPED}\n`)
      vi.stubEnv("PGPASSFILE", file)
      const url = new URL(`postgresql://${pathname}${search}`)
      for (const [name, value] of Object.entries({ hostaddr: address, port, user: username })) {
        url.searchParams.set(name, value)
      }
      assert.deepStrictEqual((yield* turnsIn(url)).turns, [])
    })
  )

  it.effect("is no name", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* kindOf(turnsIn("postgresql://localhost/none?hostaddr=localhost")), "store_denied")
    })
  )
})

describe("a URL", () => {
  it("goes before the variables, also in its parameters", () => {
    const environment = { PGHOST: "far", PGPORT: "1", PGUSER: "nobody", PGDATABASE: "none", PGPASSWORD: "x" }
    for (const given of [
      "postgresql://me:mine@near:2/some",
      "postgresql://?host=near&port=2&user=me&dbname=some&password=mine"
    ]) {
      const url = completed(new URL(given), environment)
      const found = ["host", "port", "user", "dbname", "password"].map((parameter) => said(url, parameter))
      assert.deepStrictEqual(found, ["near", "2", "me", "some", "mine"])
    }
  })
})

describe("a line of the file of passwords", () => {
  const login = { host: "h:1", port: "5432", database: "d", user: "u" }
  const CASES: ReadonlyArray<readonly [string, string | null]> = [
    ["h\\:1:5432:d:u:p", "p"],
    ["*:*:*:*:p", "p"],
    ["*:*:*:*:a\\:b\\\\c", "a:b\\c"],
    ["*:*:*:*:p:and more", "p"],
    ["*:*:*:*:p\r", "p"],
    ["h:1:5432:d:u:p", null],
    ["*:5433:*:*:p", null],
    ["*:*:other:*:p", null],
    ["#*:*:*:*:p", null],
    ["*:*:*:*", null],
    ["", null],
    ["*:*:*:v:q\n*:*:*:u:p\n*:*:*:*:r", "p"]
  ]
  for (const [text, expected] of CASES) {
    it.effect(JSON.stringify(text), () =>
      Effect.gen(function* () {
        const { file } = yield* fileOf(text)
        assert.strictEqual(passwordOnFile(file, login), expected)
      })
    )
  }
})
