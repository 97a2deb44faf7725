/** The conversations in docs/protocol.md happen as they are written there, and every method stands there. */
import { readFileSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { methods } from "../../src/rpc/Methods.ts"
import { inMemory, store } from "./Session.ts"

const page = readFileSync(new URL("../../../docs/protocol.md", import.meta.url), "utf8")
const conversations = [...page.matchAll(/^```text title="conversation"\n(.*?)^```$/gms)].map(([, block = ""]) =>
  block.trim().split("\n")
)

it("says of every method what it does", () => {
  const [, section = ""] = page.split("\n## The methods\n")
  const named = [...(section.split("\n## ")[0] ?? "").matchAll(/^\| `([^`]+)` \| \S/gm)].map(([, name]) => name)
  assert.sameOrderedMembers(named.toSorted(), methods.map(({ name }) => name).toSorted())
})

it("has conversations", () => assert.isAbove(conversations.length, 3))

it.each(conversations.map((lines) => [lines[0], lines] as const))("%s", async (_, lines) => {
  const session = inMemory(methods, store)
  await session.next()
  for (const line of lines) {
    const text = line.slice(4)
    if (line.startsWith("--> ")) session.send(`${text}\n`)
    else assert.deepEqual(JSON.parse((await session.next()) ?? "null"), JSON.parse(text))
  }
  session.close()
  assert.isNull(await session.next())
})
