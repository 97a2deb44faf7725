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

describe("the files of two turns", () => {
  const KEYS = ["a", "a.history", "a.lease", "a.lease-1", "a.lock", "a.tmp", "a.history.jsonl", "a.json", "a.draft"]
  const filesOf = (turnKey: string) => {
    const { folder, leaseLock, ...files } = Place.filesOf(
      Result.getOrThrow(Place.ofTurn("/root", { goalId: "goal", turnKey }))
    )
    return [...Object.values(files), leaseLock(1)]
  }

  it("are never the same, whatever their keys end in", () => {
    const all = KEYS.flatMap(filesOf)
    assert.strictEqual(new Set(all).size, all.length)
  })

  it("are never the same for journals of other paths: a name without .json is none", () => {
    for (const path of ["/root/a", "/root/a.lock", "postgresql://host/db#a", "postgresql://host/db#goals/g/turns/t"]) {
      assert.isTrue(Result.isFailure(Place.ofPath(path)), path)
    }
    assert.isNull(Result.getOrThrow(Place.ofPath("postgresql://host/db#a.json")).address)
    assert.isNull(Result.getOrThrow(Place.ofPath("/root/a.json")).address)
  })
})

it("a turn may be kept under the root of the file system", () => {
  assert.strictEqual(Result.getOrThrow(Place.ofPath("/goals/goal/turns/turn.json")).root, "/")
})
