/** JSON that survives the trip, both ways, and the limits: runtime.md section 4. The texts are contract cases. */
import { assert, describe, it } from "@effect/vitest"
import * as Arbitrary from "effect/Arbitrary"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { check, type JsonFaultReason, type JsonValue, MAX_DEPTH, parse, stringify } from "../../src/contract/Json.ts"
import { sameJson } from "../../src/journal/Value.ts"
import { SEED, SOAK } from "../Seed.ts"

const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth)

const read = (text: string): JsonValue => Result.getOrThrow(parse(text))

describe("reading", () => {
  it("takes 128 levels and refuses the 129th", () => {
    assert.strictEqual(stringify(read(nested(MAX_DEPTH))), nested(MAX_DEPTH))
    const refused = parse(nested(MAX_DEPTH + 1))
    assert.deepInclude(Result.isFailure(refused) ? refused.failure : {}, {
      reason: "too_deep",
      path: `$${"[0]".repeat(MAX_DEPTH)}`
    })
  })

  it("refuses a million levels without a stack for them", () => {
    for (const text of [nested(1_000_000), '{"a":'.repeat(1_000_000)]) {
      const refused = parse(text)
      assert.strictEqual(Result.isFailure(refused) && refused.failure.reason, "too_deep")
    }
  })

  it("takes an object of 10,000 keys, and finds the one that stands twice", () => {
    const keys = Array.from({ length: 10_000 }, (_, index) => `"k${index}":${index}`)
    assert.strictEqual(Object.keys(read(`{${keys.join()}}`) as object).length, 10_000)
    const refused = parse(`{${keys.join()},"k5000":1}`)
    assert.deepInclude(Result.isFailure(refused) ? refused.failure : {}, { reason: "duplicate_key", path: "$.k5000" })
  })

  it.each([
    "secret",
    '"secret" "secret"',
    '{"secret":secret}',
    "{secret}",
    '{"a":"secret',
    '["secret",]',
    '{"a":"secret\n"}'
  ])("says that %j is no JSON, and repeats none of it", (text) => {
    const refused = parse(text)
    assert.deepInclude(Result.isFailure(refused) ? refused.failure : {}, { reason: "syntax", path: "$" })
    assert.notInclude(JSON.stringify(refused), "secret")
  })

  it("keeps __proto__ and constructor as data", () => {
    const value = read('{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}')
    assert.deepStrictEqual(Object.keys(value as object), ["__proto__", "constructor"])
    assert.isUndefined((value as { polluted?: unknown }).polluted)
    assert.isUndefined(({} as { polluted?: unknown }).polluted)
    assert.strictEqual(
      stringify(value),
      '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}'
    )
  })
})

describe("writing", () => {
  it.each([
    [2 ** 53 - 1, "9007199254740991"],
    [-(2 ** 53 - 1), "-9007199254740991"],
    [2 ** 53, "9.007199254740992e+15"],
    [-(2 ** 53), "-9.007199254740992e+15"],
    [1e20, "1e+20"],
    [1e21, "1e+21"],
    [1.7976931348623157e308, "1.7976931348623157e+308"],
    [1234567890123456.8, "1234567890123456.8"],
    [-0, "0"],
    [0.1, "0.1"]
  ])("writes %d so that no reader takes it for another number", (value, text) => {
    assert.strictEqual(stringify([value]), `[${text}]`)
    assert.deepStrictEqual(read(`[${text}]`), [value === 0 ? 0 : value])
  })

  it("writes long numbers wherever they stand", () => {
    assert.strictEqual(stringify(2 ** 60), "1.152921504606847e+18")
    assert.strictEqual(
      stringify({ a: [1e16, "10000000000000000"], b: 1e17 }),
      '{"a":[1e+16,"10000000000000000"],"b":1e+17}'
    )
  })
})

describe("checking a value of TypeScript", () => {
  it.each<[string, unknown, JsonFaultReason, string]>([
    ["NaN", { a: [Number.NaN] }, "number_out_of_range", "$.a[0]"],
    ["an infinity", [Number.NEGATIVE_INFINITY], "number_out_of_range", "$[0]"],
    ["half of a pair", { a: "\ud800" }, "invalid_text", "$.a"],
    ["half of a pair in a key", { a: { "\udc00": 1 } }, "invalid_text", "$.a"],
    ["undefined", { a: undefined }, "syntax", "$.a"],
    ["a big integer", [1n], "syntax", "$[0]"],
    ["a function", { toJSON: () => 1 }, "syntax", "$.toJSON"],
    ["a symbol", Symbol.iterator, "syntax", "$"],
    ["a date", { at: new Date(0) }, "syntax", "$.at"],
    ["a map", new Map(), "syntax", "$"],
    ["a hole in an array", new Array(1), "syntax", "$[0]"],
    ["129 levels", JSON.parse(nested(129)), "too_deep", `$${"[0]".repeat(128)}`]
  ])("refuses %s and says where", (_, value, reason, path) => {
    assert.deepInclude(check(value), { reason, path })
  })

  it("refuses a circle", () => {
    const circle: Array<unknown> = []
    circle.push(circle)
    assert.strictEqual(check(circle)?.reason, "too_deep")
  })

  it.each<[string, unknown]>([
    ["128 levels", JSON.parse(nested(128))],
    ["an object without a prototype", Object.assign(Object.create(null), { a: 1 })],
    ["a key called __proto__", JSON.parse('{"__proto__":1}')]
  ])("accepts %s", (_, value) => {
    assert.isNull(check(value))
  })
})

describe(`any JSON, seed ${SEED}`, () => {
  it.prop(
    "what is written MUST be read as the same, exactly when it is checked to be JSON",
    [Arbitrary.schema(Schema.Json)],
    ([value]) => {
      const found = parse(stringify(value))
      assert.strictEqual(Result.isSuccess(found), check(value) === null)
      if (Result.isSuccess(found)) assert.isTrue(sameJson(found.success, value))
    },
    { arbitrary: { seed: SEED, runs: SOAK ? 100_000 : 2000, size: 20 }, timeout: 600_000 }
  )
})
