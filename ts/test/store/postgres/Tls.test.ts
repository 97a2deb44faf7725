/** The TLS parameters of a URL mean to the core what they mean to libpq. */
import { readFileSync } from "node:fs"
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net"
import { TLSSocket } from "node:tls"
import { fileURLToPath } from "node:url"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import * as PostgresDriver from "../../../src/store/postgres/PostgresDriver.ts"
import { kindOf } from "../Turns.ts"
import { root } from "./Roots.ts"

const file = (name: string) => fileURLToPath(new URL(`tls/${name}`, import.meta.url))
const [key, cert] = [readFileSync(file("server.key")), readFileSync(file("server.crt"))]

/** What PostgreSQL answers to who asks for TLS. */
const YES = "S"

/** Speaks TLS in front of a server that does not. */
const encrypted = (target: URL) =>
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<{ readonly port: number; readonly close: () => void }>((resolve) => {
          const sockets = new Set<Socket>()
          const server = createServer((client) => {
            sockets.add(client)
            client.on("error", () => client.destroy())
            client.once("data", () => {
              client.write(YES)
              const inside = new TLSSocket(client, { isServer: true, key, cert })
              const database = createConnection(Number(target.port), target.hostname)
              for (const socket of [inside, database]) socket.on("error", () => client.destroy())
              client.on("close", () => database.destroy())
              inside.pipe(database).pipe(inside)
            })
          })
          server.listen(0, () => {
            const close = () => {
              for (const socket of sockets) socket.destroy()
              server.close()
            }
            resolve({ port: (server.address() as AddressInfo).port, close })
          })
        })
    ),
    ({ close }) => Effect.sync(close)
  )

const CASES: ReadonlyArray<readonly [string, string, string | null, "fits" | "does not fit"]> = [
  ["require", "127.0.0.1", null, "fits"],
  ["require", "127.0.0.1", "authority.crt", "fits"],
  ["require", "127.0.0.1", "stranger.crt", "does not fit"],
  ["verify-ca", "127.0.0.1", "authority.crt", "fits"],
  ["verify-ca", "127.0.0.1", "stranger.crt", "does not fit"],
  ["verify-ca", "127.0.0.1", null, "does not fit"],
  ["verify-full", "localhost", "authority.crt", "fits"],
  ["verify-full", "127.0.0.1", "authority.crt", "does not fit"],
  ["verify-full", "localhost", "stranger.crt", "does not fit"],
  ["verify-full", "localhost", "system", "does not fit"]
]

/** Hosts that are connected to by address: their name is what the certificate is held against. */
const BY_ADDRESS: ReadonlyArray<readonly [string, "fits" | "does not fit"]> = [
  ["localhost", "fits"],
  ["nowhere.invalid", "does not fit"],
  ["", "does not fit"]
]

layer(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(PostgresDriver.layer({ timeout: 20 }))), {
  excludeTestServices: true
})("sslmode", (it) => {
  for (const [mode, host, authority, outcome] of CASES) {
    it.effect(`${mode}, ${host}, ${authority ?? "no authority"}: ${outcome}`, () =>
      Effect.gen(function* () {
        const url = new URL(yield* root)
        const { port } = yield* encrypted(new URL(url))
        url.port = String(port)
        url.hostname = host
        url.searchParams.set("sslmode", mode)
        if (authority !== null)
          url.searchParams.set("sslrootcert", authority === "system" ? authority : file(authority))
        const store = yield* JournalStore
        const list = store.list({ runtimeRoot: url.href })
        if (outcome === "fits") assert.deepStrictEqual((yield* list).turns, [])
        else assert.strictEqual(yield* kindOf(list), "store_denied")
      })
    )
  }

  for (const [host, outcome] of BY_ADDRESS) {
    it.effect(`verify-full, host ${JSON.stringify(host)} at an address: ${outcome}`, () =>
      Effect.gen(function* () {
        const url = new URL(yield* root)
        const { port } = yield* encrypted(new URL(url))
        const { username, password, pathname, search } = url
        const whole = new URL(`postgresql://${pathname}${search}`)
        const given = { host, hostaddr: url.hostname, port: String(port), user: username, password }
        const parameters = { ...given, sslmode: "verify-full", sslrootcert: file("authority.crt") }
        for (const [name, value] of Object.entries(parameters)) if (value !== "") whole.searchParams.set(name, value)
        const list = Effect.flatMap(JournalStore, (store) => store.list({ runtimeRoot: whole.href }))
        if (outcome === "fits") assert.deepStrictEqual((yield* list).turns, [])
        else assert.strictEqual(yield* kindOf(list), "store_denied")
      })
    )
  }
})
