/** Every protocol case, in memory and against the built bundle. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { JsonValue } from "../../src/contract/Json.ts"
import { methods } from "../../src/rpc/Methods.ts"
import { type Case, caseFiles, isAnswer, pair, sent } from "./Cases.ts"
import { inMemory, overPipes, type Session, store } from "./Session.ts"

const END = "the end of the case"

const ready = async (session: Session): Promise<Session> => {
  const first = JSON.parse((await session.next()) ?? "null")
  assert.deepEqual(Object.keys(first).sort(), ["jsonrpc", "method", "params"])
  assert.equal(first.method, "runtime.ready")
  assert.deepEqual(Object.keys(first.params).sort(), ["name", "node", "pid", "protocol", "schemas", "version"])
  return session
}

/** Sends a case and gathers what comes back, up to the answer of a last request of our own or the end. */
const converse = async (session: Session, one: Case): Promise<ReadonlyArray<string>> => {
  for (const chunk of sent(one)) session.send(chunk)
  if (one.end === undefined) session.send(`{"jsonrpc":"2.0","id":"${END}","method":"runtime.info"}\n`)
  if (one.end === "input") session.close()
  const lines: Array<string> = []
  let over = false
  while (!over || lines.length < one.answers.length) {
    const line = await session.next()
    if (line === null) break
    if (line.includes(END)) over = true
    else lines.push(line)
  }
  if (one.end !== undefined) assert.equal(await session.ended, 0, "the exit code")
  return lines
}

const check = (one: Case, lines: ReadonlyArray<string>): void => {
  const answers = lines.map((line) => JSON.parse(line) as JsonValue)
  const shown = lines.join("\n").slice(0, 2000)
  assert.isTrue(answers.every(isAnswer), `not JSON-RPC 2.0 responses:\n${shown}`)
  assert.isTrue(pair(one.answers, answers), `expected ${JSON.stringify(one.answers)}\ngot:\n${shown}`)
  for (const text of one.never ?? [])
    assert.isFalse(
      lines.some((line) => line.includes(text)),
      `an answer contains ${text}`
    )
}

const places: ReadonlyArray<[string, () => Session]> = [
  ["in memory", () => inMemory(methods, store)],
  ["over pipes, the built bundle", () => overPipes()]
]

describe.each(places)("%s", (_place, open) => {
  let shared: Session
  beforeAll(async () => {
    shared = await ready(open())
  })
  afterAll(async () => {
    shared.close()
    assert.equal(await shared.next(), null, "nothing is said that was not asked")
    assert.equal(await shared.ended, 0)
  })

  for (const { about, cases } of caseFiles) {
    describe(about, () => {
      for (const one of cases) {
        it(one.title, async () => {
          const session = one.end === undefined ? shared : await ready(open())
          check(one, await converse(session, one))
        })
      }
    })
  }
})

it("every title begins with MUST, MUST NOT or SHOULD and stands once", () => {
  const titles = caseFiles.flatMap(({ cases }) => cases.map(({ title }) => title))
  assert.deepEqual(
    titles.filter((title) => !/^(MUST|MUST NOT|SHOULD) /.test(title)),
    []
  )
  assert.equal(new Set(titles).size, titles.length)
})
