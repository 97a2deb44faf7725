/** JSON texts at random, of the kinds that readers disagree on, and texts that are nearly JSON. */
import type { Dice } from "./Seed.ts"

const KEYS = ["a", "b", "id", "plan", "", "__proto__", "constructor", "é", "\\u0061", "\\ud83d\\ude00", "10", "2"]
const SCALARS = [
  "null",
  "true",
  "false",
  "0",
  "-0",
  "-0.0",
  "1.50",
  "9007199254740991",
  "9007199254740992",
  "-9007199254740993",
  "123456789012345",
  "1e5",
  "1E400",
  "5e-324",
  "1e16",
  "0.1000000000000000055",
  '""',
  '"text"',
  '"\\\\"',
  '"\\""',
  '"\\\\\\"a\\\\"',
  '"é\\n€"',
  '"\\ud800"',
  '"\\udc00\\ud800"',
  '"\\ud83d\\ude00"',
  '"\\u0000"',
  '"{[:,1e9"'
]

/** Strict or not, but always JSON. */
export const jsonText = (dice: Dice, depth = 0): string => {
  if (depth > 5 || dice.chance(0.4)) return dice.pick(SCALARS)
  const items = Array.from({ length: dice.below(4) }, () => jsonText(dice, depth + 1))
  const gap = dice.pick(["", "", " ", "\t"])
  return dice.chance(0.4)
    ? `[${items.join(`${gap},`)}]`
    : `{${items.map((item) => `"${dice.pick(KEYS)}"${gap}:${item}`).join(",")}}`
}

/** The same bytes with a few of them changed, removed, doubled or moved. */
export const mutated = (dice: Dice, bytes: Uint8Array): Uint8Array => {
  let changed = bytes
  for (let times = 1 + dice.below(3); times > 0; times--) {
    const at = dice.below(changed.length + 1)
    const end = Math.min(changed.length, at + 1 + dice.below(8))
    const before = changed.subarray(0, at)
    const part = changed.subarray(at, end)
    const after = changed.subarray(end)
    changed = dice.pick([
      () => Buffer.concat([before, after]),
      () => Buffer.concat([before, part, part, after]),
      () => Buffer.concat([before, randomBytes(dice, part.length), after]),
      () =>
        Buffer.concat([
          before,
          Buffer.from(dice.pick(['"', "{", "}", "[", "]", ",", ":", "\\", "e9", "-", "\ud83d"])),
          after
        ]),
      () => Buffer.concat([after, part, before])
    ])()
  }
  return changed
}

export const randomBytes = (dice: Dice, length: number): Uint8Array =>
  Uint8Array.from({ length }, () => dice.below(256))
