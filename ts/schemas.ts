// Writes schemas/ from the core's Effect Schemas; with --check, says what is stale and changes nothing.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import * as Schema from "effect/Schema"
import { ERRORS } from "./src/contract/Errors.ts"
import { isObject, type JsonObject, type JsonValue } from "./src/contract/Json.ts"
import { Ready } from "./src/contract/Messages.ts"
import { PROTOCOL_ERRORS } from "./src/contract/ProtocolErrors.ts"
import { methods } from "./src/rpc/Methods.ts"

const USAGE = "npm run schemas [-- --check]"

const asked = (): { readonly check?: boolean | undefined; readonly help?: boolean | undefined } => {
  try {
    return parseArgs({ options: { check: { type: "boolean" }, help: { type: "boolean", short: "h" } } }).values
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n${USAGE}\n`)
    process.exit(2)
  }
}

const { check, help } = asked()
if (help) {
  process.stdout.write(`${USAGE}\nWrites schemas/ from the core's schemas; with --check, only says what is stale.\n`)
  process.exit(0)
}

const folder = fileURLToPath(new URL("../schemas/", import.meta.url))

const jsonSchema = (title: string, schema: Schema.Constraint, open = false): unknown => {
  const document = Schema.toJsonSchemaDocument(schema, { onExcessProperty: open ? "ignore" : "error" })
  const definitions = Object.keys(document.definitions).length === 0 ? {} : { $defs: document.definitions }
  const whole = { $schema: "https://json-schema.org/draft/2020-12/schema", title, ...document.schema, ...definitions }
  return plainly(whole as JsonObject)
}

/** What is said of a field, beside what it is: Effect writes it as one more condition that the field has to meet. */
const plainly = (schema: JsonValue): JsonValue => {
  if (Array.isArray(schema)) return schema.map(plainly)
  if (!isObject(schema)) return schema
  const { allOf = [], ...rest } = schema
  const whole = [rest, ...(allOf as ReadonlyArray<JsonObject>)].flatMap((part) => Object.entries(part))
  const names = whole.map(([name]) => name)
  if (new Set(names).size < names.length) throw new Error(`two conditions of one name: ${names.join(", ")}`)
  return Object.fromEntries(whole.map(([name, value]) => [name, plainly(value)]))
}

/** One row per class of error; the kinds of JSON-RPC's own errors are theirs alone. */
const errors = [
  ...Object.entries(PROTOCOL_ERRORS).map(([kind, { code, error }]) => ({
    error,
    code,
    kinds: [kind],
    retryable: false
  })),
  ...ERRORS.map(({ tag, code, kinds, retryable }) => ({ error: tag, code, kinds, retryable }))
]

const documents = new Map<string, unknown>([
  ["errors.json", { title: "Every error the core answers with: its class, JSON-RPC code and kinds", errors }],
  // The handshake can grow: unknown keys are ignored.
  ["runtime.ready.json", jsonSchema("runtime.ready", Ready, true)],
  ...methods.flatMap(
    ({ name, params, result }): Array<[string, unknown]> => [
      [`${name}.params.json`, jsonSchema(`${name}: params`, params)],
      [`${name}.result.json`, jsonSchema(`${name}: result`, result)]
    ]
  )
])

mkdirSync(folder, { recursive: true })
const present = readdirSync(folder).filter((name) => name.endsWith(".json"))
const wanted = new Map([...documents].map(([name, document]) => [name, `${JSON.stringify(document, null, 2)}\n`]))
const stale = [
  ...present.filter((name) => !wanted.has(name)),
  ...[...wanted]
    .filter(([name, text]) => !present.includes(name) || readFileSync(join(folder, name), "utf8") !== text)
    .map(([name]) => name)
]

if (check) {
  if (stale.length > 0) {
    process.stderr.write(
      `schemas/ is stale (${stale.sort().join(", ")}): run \`npm run schemas\` and commit the result\n`
    )
    process.exitCode = 1
  }
} else {
  for (const name of stale) {
    const text = wanted.get(name)
    if (text === undefined) rmSync(join(folder, name))
    else writeFileSync(join(folder, name), text)
  }
}
