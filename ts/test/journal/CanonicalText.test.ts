/** Canonical JSON is what the library of RFC 8785 writes, whatever the value, and refused where the library refuses. */
import { assert, describe, it } from "@effect/vitest"
import canonicalize from "canonicalize"
import type { JsonValue } from "../../src/contract/Json.ts"
import { canonical, canonicalText, textOf } from "../../src/journal/Value.ts"
import { jsonText } from "../RandomJson.ts"
import { Dice, SEED } from "../Seed.ts"

const outcome = (write: () => string | undefined): string => {
  try {
    return write() ?? "nothing"
  } catch {
    return "refused"
  }
}

const same = (value: unknown): void => {
  const expected = outcome(() => canonicalize(value))
  const found = outcome(() => canonicalText(value as JsonValue))
  assert.strictEqual(found, expected === "nothing" ? "refused" : expected)
  if (found !== "refused") assert.deepStrictEqual(canonical(value as JsonValue).value, JSON.parse(found))
}

describe("canonical text", () => {
  it(`is the library's, seed ${SEED}`, () => {
    const dice = new Dice(SEED)
    for (let times = 0; times < 20_000; times++) same(JSON.parse(jsonText(dice)))
  })

  it("is the library's for what is not plain", () => {
    const many = Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`k${(index * 7) % 40}`, index]))
    for (const value of [
      many,
      { b: 1, "10": 2, "2": 3, a: 4 },
      JSON.parse('{"b":1,"__proto__":{"a":2},"a":3}'),
      { "\ue000": 1, "\u{10000}": 2, z: 3 },
      { text: "\\ud800" },
      { text: "\ud800" },
      { "\ud800": 1 },
      { at: new Date(0) },
      { a: undefined, b: 1 },
      [undefined, 1],
      new Array(2),
      Object.assign(Object.create(null), { b: 1, a: 2 }),
      { n: Number.NaN },
      { n: Number.POSITIVE_INFINITY },
      { n: -0, m: 1e21, k: 5e-324 },
      undefined,
      "\udc00",
      () => 1
    ]) {
      same(value)
    }
  })
})

describe("the text of a value", () => {
  it("is the same in whatever order its keys stand, also where it has no canonical form", () => {
    const one = { "\ud800": false, "": [{ b: "\udc00", a: 1, 2: null }], 1: {} }
    const other = { 1: {}, "": [{ 2: null, a: 1, b: "\udc00" }], "\ud800": false }
    assert.strictEqual(textOf(one), textOf(other))
    assert.deepStrictEqual(JSON.parse(textOf(one)), one)
  })
})
