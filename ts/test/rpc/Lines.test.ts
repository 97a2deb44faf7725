import { assert, it } from "@effect/vitest"
import { type Cut, Lines } from "../../src/rpc/Lines.ts"
import { randomBytes } from "../RandomJson.ts"
import { Dice, SEED, SOAK } from "../Seed.ts"

const all = (lines: Lines): ReadonlyArray<Cut> => {
  const cuts: Array<Cut> = []
  for (let cut = lines.next(); cut !== undefined; cut = lines.next()) cuts.push(cut)
  return cuts
}

const shown = (cut: Cut): string => {
  const bytes = cut._tag === "Line" ? cut.bytes : cut.head
  return `${cut._tag} ${Buffer.from(bytes).toString("latin1")}`
}

it(`cuts the same lines however the bytes come, seed ${SEED}`, { timeout: SOAK ? 600_000 : 30_000 }, () => {
  const dice = new Dice(SEED)
  const limit = 20
  for (let times = SOAK ? 200_000 : 5_000; times > 0; times--) {
    const bytes = randomBytes(dice, dice.below(200)).map((byte) => (byte < 40 ? 10 : byte))
    const expected = Buffer.from(bytes)
      .toString("latin1")
      .split("\n")
      .filter((line, index, lines) => line !== "" || index < lines.length - 1)
      .map((line) => (line.length > limit ? "TooLong" : `Line ${line}`))
    const lines = new Lines(limit)
    const found: Array<string> = []
    const text = (cut: Cut) => (cut._tag === "Line" ? shown(cut) : cut._tag)
    for (let at = 0; at < bytes.length; ) {
      const end = at + 1 + dice.below(30)
      const lent = Buffer.from(bytes.subarray(at, end))
      lines.push(lent)
      if (dice.chance(0.7)) found.push(...all(lines).map(text))
      lines.keep()
      lent.fill(0)
      at = end
    }
    found.push(...all(lines).map(text))
    const rest = lines.rest()
    if (rest !== undefined) found.push(text(rest))
    assert.deepEqual(found, expected)
  }
})

it("reports a line that is too long before its end, keeps its head and drops the rest", () => {
  const lines = new Lines(10)
  lines.push(Buffer.from("0123456"))
  assert.deepEqual(all(lines), [])
  lines.push(Buffer.from("789ab"))
  assert.deepEqual(all(lines).map(shown), ["TooLong 0123456789ab"])
  for (let times = 0; times < 1000; times++) lines.push(Buffer.from("more of it"))
  assert.deepEqual(all(lines), [])
  lines.push(Buffer.from("end\nnext\n"))
  assert.deepEqual(all(lines).map(shown), ["Line next"])
})

it("takes a line of exactly the limit", () => {
  const lines = new Lines(4)
  lines.push(Buffer.from("1234\n12345\n"))
  assert.deepEqual(all(lines).map(shown), ["Line 1234", "TooLong 12345"])
})

it("says nothing of an end without bytes before it", () => {
  const lines = new Lines(4)
  lines.push(Buffer.from("a\n"))
  assert.deepEqual(all(lines).map(shown), ["Line a"])
  assert.isUndefined(lines.rest())
})
