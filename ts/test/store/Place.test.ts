import * as Result from "effect/Result"
import { assert, describe, it } from "vitest"
import * as Place from "../../src/store/Place.ts"

const ADDRESS = { goalId: "goal", turnKey: "turn" }

describe("the URL of a database", () => {
  for (const password of ["s3c/ret", "12/s3cret", "x@s3cret", "s3c#ret", "s3c%ret", "s3cret%"]) {
    it(`is refused and not repeated when its password would part it: ${password}`, () => {
      const root = `postgresql://user:${password}@127.0.0.1:1/db`
      for (const place of [Place.ofTurn(root, ADDRESS), Place.ofPath(`${root}#goals/goal/turns/k.json`)]) {
        assert.isTrue(Result.isFailure(place))
        assert.notInclude(JSON.stringify(place), "s3c")
      }
    })
  }

  for (const root of [
    "postgresql://user:s3c%2Fre%40t@host/db",
    "postgresql://user@%2Ftmp%2Fsocket:5432/db",
    "postgresql:///db?host=/tmp/socket&user=me@company",
    "postgres://user@[::1]:5432/db?options=-c%20search_path%3Da"
  ]) {
    it(`is taken: ${root}`, () => {
      const place = Result.getOrThrow(Place.ofTurn(root, ADDRESS))
      assert.strictEqual(place.root, root)
      assert.deepStrictEqual(Result.getOrThrow(Place.ofPath(place.path)).address, ADDRESS)
    })
  }
})
