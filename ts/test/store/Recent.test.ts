import { assert, describe, it } from "@effect/vitest"
import { Recent } from "../../src/store/Recent.ts"

const CAPACITY = 8
const kept = (recent: Recent<number, string>, upTo: number) =>
  Array.from({ length: upTo }, (_, key) => key).filter((key) => recent.get(key) !== undefined)

const filled = (count: number): Recent<number, string> => {
  const recent = new Recent<number, string>(CAPACITY)
  for (let key = 0; key < count; key++) recent.set(key, `value ${key}`)
  return recent
}

describe("what is remembered", () => {
  it("is the last half of the capacity at least, and never more than all of it", () => {
    for (let count = 1; count <= 5 * CAPACITY; count++) {
      assert.isTrue(kept(filled(count), count).length <= CAPACITY)
      for (let key = Math.max(0, count - CAPACITY / 2); key < count; key++) {
        assert.strictEqual(filled(count).get(key), `value ${key}`, `${key} of ${count}`)
      }
    }
  })

  it("is what was asked for last as well as what was set last", () => {
    const recent = filled(1)
    for (let key = 1; key < 5 * CAPACITY; key++) {
      recent.set(key, `value ${key}`)
      assert.strictEqual(recent.get(0), "value 0", `after ${key}`)
    }
  })

  it("is not less because one is set again and again", () => {
    const recent = filled(CAPACITY)
    for (let times = 0; times < CAPACITY; times++) recent.set(CAPACITY - 1, `value ${times}`)
    assert.strictEqual(recent.get(0), "value 0")
  })

  it("is the last value that was set, and nothing after it was deleted", () => {
    const recent = filled(CAPACITY)
    for (const key of [0, CAPACITY - 1]) {
      recent.set(key, "another")
      assert.strictEqual(recent.get(key), "another")
      recent.delete(key)
      assert.isUndefined(recent.get(key))
    }
  })
})
