/**
 * What libpq reads beside a URL: its variables, and the file of passwords. The core reads the same, so that both halves
 * mean the same server and the same user by one URL.
 */
import { readFileSync, statSync } from "node:fs"
import { homedir, userInfo } from "node:os"
import { join } from "node:path"

export type Environment = Readonly<Record<string, string | undefined>>

/** Which variable stands for which parameter. */
const VARIABLES: ReadonlyArray<readonly [variable: string, parameter: string]> = [
  ["PGHOST", "host"],
  ["PGHOSTADDR", "hostaddr"],
  ["PGPORT", "port"],
  ["PGUSER", "user"],
  ["PGPASSWORD", "password"],
  ["PGDATABASE", "dbname"],
  ["PGPASSFILE", "passfile"],
  ["PGAPPNAME", "application_name"],
  ["PGCONNECT_TIMEOUT", "connect_timeout"],
  ["PGOPTIONS", "options"],
  ["PGSSLMODE", "sslmode"],
  ["PGSSLROOTCERT", "sslrootcert"],
  ["PGSSLCERT", "sslcert"],
  ["PGSSLKEY", "sslkey"]
]

/** The parts of a URL that say what a parameter says as well. */
const PARTS: Readonly<Record<string, (url: URL) => string>> = {
  host: ({ hostname }) => hostname.replace(/^\[(.*)\]$/, "$1"),
  port: ({ port }) => port,
  user: ({ username }) => username,
  password: ({ password }) => password,
  dbname: ({ pathname }) => pathname.replace(/^\//, "")
}

/** What a URL says of a parameter; empty where it says nothing. A parameter goes before a part, as in libpq. */
export const said = (url: URL, parameter: string): string =>
  url.searchParams.get(parameter) ?? decoded(PARTS[parameter]?.(url) ?? "")

const decoded = (part: string): string => {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

/** The URL, with what the variables say where it says nothing. */
export const completed = (url: URL, environment: Environment): URL => {
  const whole = new URL(url)
  for (const [variable, parameter] of VARIABLES) {
    const value = environment[variable] ?? ""
    if (value !== "" && said(url, parameter) === "") whole.searchParams.set(parameter, value)
  }
  return whole
}

/** The user that this process runs as; empty where the system knows none. */
export const systemUser = (): string => {
  try {
    return userInfo().username
  } catch {
    return ""
  }
}

/** Whose password is looked for. */
export interface Login {
  readonly host: string
  readonly port: string
  readonly database: string
  readonly user: string
}

/** The password that a file of passwords has for a login; null where it has none, or is open to others. */
export const passwordOnFile = (file: string, login: Login): string | null => {
  try {
    const found = statSync(file)
    const isOpen = process.platform !== "win32" && (found.mode & OTHERS) !== 0
    return !found.isFile() || isOpen ? null : passwordIn(readFileSync(file, "utf8"), login)
  } catch {
    return null
  }
}

const OTHERS = 0o077

/** Where it is unless somebody says so. */
export const passwordFile = (environment: Environment): string =>
  process.platform === "win32"
    ? join(environment["APPDATA"] ?? "", "postgresql", "pgpass.conf")
    : join(homedir(), ".pgpass")

/** The first line that fits: `host:port:database:user:password`, each but the last one maybe `*`. */
const passwordIn = (text: string, { host, port, database, user }: Login): string | null => {
  for (const line of text.split("\n")) {
    const fields = line.startsWith("#") ? [] : [...line.replace(/\r+$/, "").matchAll(FIELD)].map(([field]) => field)
    const [password, ...wanted] = [fields[4], ...fields.slice(0, 4)]
    if (password === undefined) continue
    const given = [host, port, database, user]
    const fits = wanted.every((field, index) => field === "*" || unescaped(field) === given[index])
    if (fits) return unescaped(password)
  }
  return null
}

/** Up to the next colon that has no backslash before it; also an empty one. */
const FIELD = /(?<=^|:)(?:\\.|[^:\\])*\\?(?=:|$)/g

const unescaped = (field: string): string => field.replace(/\\(.)/g, "$1")
