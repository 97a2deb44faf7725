/** The two looks at JSON text, the quick and the careful, accept the same. */
import { assert, it } from "@effect/vitest"
import * as Json from "../../src/contract/Json.ts"
import { jsonText, mutated } from "../RandomJson.ts"
import { Dice, SEED, SOAK } from "../Seed.ts"

/** Beside a number with an exponent no document is left to the quick look. */
const parseCarefully = (text: string) => Json.parse(`[1e0,${text}]`)

it(`never accept differently, seed ${SEED}`, { timeout: SOAK ? 600_000 : 30_000 }, () => {
  const dice = new Dice(SEED)
  const seen = { accepted: 0, refused: 0, malformed: 0 }
  for (let times = SOAK ? 2_000_000 : 30_000; times > 0; times--) {
    const json = jsonText(dice)
    const text = dice.chance(0.3) ? Buffer.from(mutated(dice, Buffer.from(json))).toString("latin1") : json
    const found = Json.parse(text)
    if (text !== json && !isJson(text)) {
      // A mutation may close the array around it; then the two are not the same document.
      seen.malformed++
      assert.equal(found._tag, "Failure", text)
      continue
    }
    assert.equal(found._tag, parseCarefully(text)._tag, text)
    if (found._tag === "Success") {
      seen.accepted++
      assert.deepEqual(found.success, JSON.parse(text))
    } else seen.refused++
  }
  assert.isAbove(Math.min(seen.accepted, seen.refused, seen.malformed), 1000, "every kind was seen")
})

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
