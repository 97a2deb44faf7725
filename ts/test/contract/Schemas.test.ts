/** Every schema's valid and invalid documents, against the Effect Schemas. Python runs the same against schemas/. */
import { readdirSync, readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import { isObject, type JsonObject, type JsonValue } from "../../src/contract/Json.ts"
import { Ready } from "../../src/contract/Messages.ts"
import { asObject } from "../../src/journal/Value.ts"
import { methods } from "../../src/rpc/Methods.ts"
import { schemaCases, withChanges } from "../journal/Cases.ts"

interface Contract {
  readonly schema: Schema.Decoder<unknown>
  readonly open: boolean
}

const CONTRACTS = new Map<string, Contract>([
  ["runtime.ready", { schema: Ready, open: true }],
  ...methods.flatMap(
    ({ name, params, result }): ReadonlyArray<[string, Contract]> => [
      [`${name}.params`, { schema: params as Schema.Decoder<unknown>, open: false }],
      [`${name}.result`, { schema: result as Schema.Decoder<unknown>, open: false }]
    ]
  )
])

const all = schemaCases()

const FOLDER = new URL("../../../schemas/", import.meta.url)
const SENTENCE = /^[A-Z`].*[^.…]…?\.$/

/** The places of a schema that say nothing of what they are, or no sentence. */
const unsaid = (schema: JsonValue, path: string): ReadonlyArray<string> => {
  if (Array.isArray(schema)) return schema.flatMap((part) => unsaid(part, path))
  if (!isObject(schema)) return []
  const named = { ...asObject(schema["properties"]), ...asObject(schema["$defs"]) }
  const here = Object.entries(named).flatMap(([name, part]) =>
    name === "JournalDocument" || SENTENCE.test(String(asObject(part)["description"])) ? [] : [`${path}.${name}`]
  )
  return [...here, ...Object.entries(schema).flatMap(([name, part]) => unsaid(part, `${path}.${name}`))]
}

it("every message, document and field is said in one sentence", () => {
  for (const { schema } of all) {
    const document = JSON.parse(readFileSync(new URL(`${schema}.json`, FOLDER), "utf8")) as JsonObject
    if (!Object.hasOwn(document, "$ref")) assert.match(String(document["description"]), SENTENCE, schema)
    assert.deepStrictEqual(unsaid(document, schema), [])
  }
})

it("every schema has cases", () => {
  const files = readdirSync(FOLDER)
    .filter((name) => name.endsWith(".json"))
    .map((name) => name.replace(".json", ""))
  const named = all.map(({ schema }) => schema)
  assert.deepStrictEqual(named, files.filter((name) => name !== "errors").sort())
  assert.deepStrictEqual([...CONTRACTS.keys()].sort(), named)
  for (const { valid, invalid } of all) assert.isAbove(Math.min(valid.length, invalid.length), 0)
})

describe.each(all)("$schema", ({ schema, valid, invalid }) => {
  const fits = (value: unknown): boolean => {
    const contract = CONTRACTS.get(schema)
    if (contract === undefined) throw new Error(`no Effect Schema of the name ${schema}`)
    const options = { onExcessProperty: contract.open ? "ignore" : "error" } as const
    return Exit.isSuccess(Schema.decodeUnknownExit(contract.schema, options)(value))
  }

  for (const { name, value } of valid) {
    it(`accepts ${name}`, () => assert.isTrue(fits(value)))
  }

  for (const { name, value, ...changes } of invalid) {
    it(`refuses ${name}`, () =>
      assert.isFalse(fits(value === undefined ? withChanges(valid[0]?.value ?? null, changes) : value)))
  }
})
