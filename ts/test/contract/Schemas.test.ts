/** Every schema's valid and invalid documents, against the Effect Schemas. Python runs the same against schemas/. */
import { readdirSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import { Ready } from "../../src/contract/Messages.ts"
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

it("every schema has cases", () => {
  const files = readdirSync(new URL("../../../schemas/", import.meta.url))
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
