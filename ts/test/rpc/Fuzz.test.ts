/** Whatever is sent: the core neither dies nor stalls, and answers every line as often as it must. */
import { assert, describe, it } from "@effect/vitest"
import { isObject, type JsonValue } from "../../src/contract/Json.ts"
import { methods } from "../../src/rpc/Methods.ts"
import { jsonText, mutated, randomBytes } from "../RandomJson.ts"
import { Dice, SEED, SOAK } from "../Seed.ts"
import { isAnswer } from "./Cases.ts"
import { inMemory, overPipes, type Session, store } from "./Session.ts"

const LINES = SOAK ? 1_000_000 : 4_000
const ROUND = 500

const request = (dice: Dice): string => {
  const id = dice.pick(["1", "null", '"x"', "-5", "1.5", "[]", "true", "9007199254740993"])
  const method = dice.pick(["runtime.info", "turn_journal.inspect", "session_recovery.assess", "no_such", "__proto__"])
  const params = dice.pick([
    "{}",
    "[]",
    jsonText(dice),
    `{"journal":${jsonText(dice)},"goal_id":"g","agent_id":"a","turn_key":"k"}`,
    `{"journal":${jsonText(dice)},"goal_id":"g","agent_id":"a","turn_key":"k","retry_failed":true}`,
    `{"request":{"session":{}},"journal":${jsonText(dice)},"binding":{"status":"pending"}}`
  ])
  const parts = [`"jsonrpc":"2.0"`, `"id":${id}`, `"method":"${method}"`, `"params":${params}`]
  return `{${parts.filter(() => dice.chance(0.93)).join(",")}}`
}

const line = (dice: Dice): Uint8Array => {
  const made = dice.pick<() => Uint8Array>([
    () => randomBytes(dice, dice.below(60)),
    () => Buffer.from(jsonText(dice)),
    () => Buffer.from(request(dice)),
    () => mutated(dice, Buffer.from(request(dice))),
    () => Buffer.from(`[${Array.from({ length: dice.below(4) }, () => request(dice))}]`)
  ])()
  return made.map((byte) => (byte === 10 ? 32 : byte))
}

const read = (bytes: Uint8Array): JsonValue | undefined => {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes))
  } catch {
    return undefined
  }
}

const isNotification = (value: JsonValue): boolean =>
  isObject(value) && !Object.hasOwn(value, "id") && value["jsonrpc"] === "2.0" && typeof value["method"] === "string"

/** Only a line of nothing but notifications may go unanswered. */
const maySayNothing = (value: JsonValue | undefined): boolean =>
  value !== undefined &&
  (Array.isArray(value) ? value.length > 0 && value.every(isNotification) : isNotification(value))

const mayAnswer = (value: JsonValue | undefined, answer: JsonValue): boolean => {
  if (!isAnswer(answer)) return false
  if (Array.isArray(answer)) return Array.isArray(value) && answer.length <= value.length
  if (!isObject(answer)) return false
  const { id, error } = answer
  if (id === null) return isObject(error) || (isObject(value) && value["id"] === null)
  return isObject(value) && value["id"] === id
}

/** Sends lines, each followed by a request of our own, so that what comes between belongs to that line. */
const round = async (session: Session, dice: Dice, lines: ReadonlyArray<Uint8Array>): Promise<void> => {
  const bytes = Buffer.concat(
    lines.flatMap((one, index) => [
      one,
      Buffer.from(`\n{"jsonrpc":"2.0","id":"after ${index}","method":"runtime.info"}\n`)
    ])
  )
  for (let at = 0; at < bytes.length; ) {
    const end = at + 1 + dice.below(5000)
    session.send(bytes.subarray(at, end))
    at = end
  }
  for (const [index, one] of lines.entries()) {
    const said: Array<string> = []
    for (let next = await session.next(); !next?.includes(`"id":"after ${index}"`); next = await session.next()) {
      assert.isNotNull(next, "the core has ended")
      said.push(next ?? "")
    }
    const value = read(one)
    const text = `${Buffer.from(one).toString("latin1")}\nwas answered by\n${said.join("\n")}`
    assert.isAtMost(said.length, 1, text)
    assert.isTrue(said.length === 1 || maySayNothing(value), text)
    assert.isTrue(
      said.every((answer) => mayAnswer(value, JSON.parse(answer))),
      text
    )
  }
}

const places: ReadonlyArray<[string, () => Session]> = [
  ["in memory", () => inMemory(methods, store)],
  ["over pipes, the built bundle", () => overPipes()]
]

describe.each(places)("%s", (_place, open) => {
  it(`answers ${LINES} random lines, seed ${SEED}`, { timeout: SOAK ? 3_600_000 : 60_000 }, async () => {
    const dice = new Dice(SEED)
    const session = open()
    await session.next()
    for (let left = LINES; left > 0; left -= ROUND) {
      await round(
        session,
        dice,
        Array.from({ length: Math.min(ROUND, left) }, () => line(dice))
      )
    }
    session.close()
    assert.isNull(await session.next())
    assert.equal(await session.ended, 0)
  })
})
