/** Where a database is: from its URL to what connects to it, and to a name of it that tells no secret. */
import { readFileSync } from "node:fs"
import { connect, isIP } from "node:net"
import type { ConnectionOptions } from "node:tls"
import type * as PgPool from "@effect/sql-pg/PgPool"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import { StoreFailure } from "../../contract/Errors.ts"
import type { DatabaseOptions } from "../Databases.ts"
import { completed, type Environment, passwordFile, passwordOnFile, said, systemUser } from "./Surroundings.ts"

/** The database's name for messages: without password and parameters. */
export const nameOf = ({ protocol, username, host, pathname }: URL): string =>
  `${protocol}//${username === "" ? "" : `${username}@`}${host}${pathname}`

/**
 * What the pool is made of. Parameters, and what stands for them where the URL says nothing, mean what they mean to
 * libpq, so that Python connects with the same URL.
 */
export const poolConfig = (
  given: URL,
  options: DatabaseOptions,
  environment: Environment = process.env
): Result.Result<PgPool.Config, StoreFailure> => {
  const url = completed(given, environment)
  return Result.map(Result.andThen(understood(url), tlsOf(url)), (ssl) => configOf(url, ssl, options, environment))
}

const configOf = (
  url: URL,
  ssl: ConnectionOptions | undefined,
  { minConnections, maxConnections, idle, timeout }: DatabaseOptions,
  environment: Environment
): PgPool.Config => {
  const username = said(url, "user") || systemUser()
  return {
    url: Redacted.make(url.href),
    ...(username === "" ? {} : { username }),
    ...(said(url, "password") === "" ? { password: looked(url, username, environment) } : {}),
    ...(ssl === undefined ? {} : { ssl }),
    ...(url.searchParams.has("connect_timeout") ? {} : { connectTimeout: `${timeout} seconds` as const }),
    ...(url.searchParams.has("application_name") ? {} : { applicationName: "turn-journal" }),
    keepAlive: `${KEEP_ALIVE} seconds`,
    ...(said(url, "hostaddr") === "" ? {} : reaching(url, said(url, "hostaddr"))),
    minConnections: Math.min(minConnections, maxConnections),
    maxConnections,
    idleTimeout: `${idle} seconds`,
    // A journal of the largest size is sent as one message.
    maxMessageSize: MAX_MESSAGE
  }
}

/** Connections to an address; the name of the host is what its certificate is held against. */
const reaching = (url: URL, address: string): Pick<PgPool.Config, "host" | "stream"> => ({
  ...(said(url, "host") === "" ? { host: address } : {}),
  stream: () =>
    connect({
      host: address,
      port: Number(said(url, "port") || DEFAULT_PORT),
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE * 1000
    })
})

const DEFAULT_PORT = "5432"
/** Seconds of silence after which it is asked whether the other side is still there. */
const KEEP_ALIVE = 30

/** The file of passwords is read for each connection: who changes a password there need not start the core again. */
const looked = (url: URL, user: string, environment: Environment) =>
  Effect.sync(() => {
    const login = {
      host: said(url, "host") || said(url, "hostaddr") || "localhost",
      port: said(url, "port") || DEFAULT_PORT,
      database: said(url, "dbname") || user,
      user
    }
    const file = said(url, "passfile") || passwordFile(environment)
    return Redacted.make(passwordOnFile(file, login) ?? "")
  })

const MAX_MESSAGE = 1024 * 1024 * 1024

/** Refuses what the connection would refuse again and again. */
const understood = (url: URL): Result.Result<void, StoreFailure> => {
  const several = ["host", "hostaddr"].find((parameter) => said(url, parameter).includes(","))
  if (several !== undefined) return Result.fail(severalHosts(url, several))
  const odd = Object.entries(PARAMETERS).find(([name, form]) => !form.test(url.searchParams.get(name) ?? ""))
  if (odd === undefined) return Result.succeed(undefined)
  return Result.fail(
    new StoreFailure({
      kind: "store_denied",
      message: `The parameter ${odd[0]} of the URL, or the variable that stands for it, does not have a value that it can have.`,
      details: { database: nameOf(url), parameter: odd[0] }
    })
  )
}

const severalHosts = (url: URL, parameter: string): StoreFailure =>
  new StoreFailure({
    kind: "store_unsupported",
    message:
      "The URL, or PGHOST or PGHOSTADDR, names several hosts, and turns connect to one: give the name that leads to the server that is written to.",
    details: { database: nameOf(url), parameter }
  })

const PARAMETERS: Readonly<Record<string, Pick<RegExp, "test">>> = {
  sslmode: /^(|disable|allow|prefer|require|verify-ca|verify-full)$/,
  connect_timeout: /^\d*$/,
  port: /^\d*$/,
  hostaddr: { test: (value) => value === "" || isIP(value) !== 0 }
}

/**
 * TLS as `sslmode`, `sslrootcert`, `sslcert` and `sslkey` ask for it; undefined: as the connection takes it from the
 * URL, which is none without `sslmode`, and opportunistic for `prefer` and `allow`.
 */
const tlsOf = (url: URL): Result.Result<ConnectionOptions | undefined, StoreFailure> => {
  const parameter = (name: string) => url.searchParams.get(name)
  const mode = parameter("sslmode")
  if (mode === null || !CHECKS.has(mode)) return Result.succeed(undefined)
  const authority = parameter("sslrootcert")
  // As in libpq: `require` alone only encrypts, and checks the certificate where an authority is given.
  const checks = mode === "require" && authority !== null ? "verify-ca" : mode
  const files = { ca: authority === "system" ? null : authority, cert: parameter("sslcert"), key: parameter("sslkey") }
  const options: ConnectionOptions = {
    rejectUnauthorized: checks !== "require",
    ...(checks === "verify-full" ? {} : { checkServerIdentity: () => undefined }),
    ...(parameter("sslpassword") === null ? {} : { passphrase: parameter("sslpassword") ?? "" })
  }
  for (const [name, file] of Object.entries(files)) {
    if (file === null) continue
    try {
      Object.assign(options, { [name]: readFileSync(file) })
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? "unreadable"
      return Result.fail(unreadable(url, file, code))
    }
  }
  return Result.succeed(options)
}

const CHECKS: ReadonlySet<string> = new Set(["require", "verify-ca", "verify-full"])

const unreadable = (url: URL, file: string, code: string): StoreFailure =>
  new StoreFailure({
    kind: "store_denied",
    message: `A file that the URL names for TLS cannot be read (${code}): ${file}.`,
    details: { database: nameOf(url), code }
  })
