/** What schemas/ promises of the messages. */
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import { isObject, type JsonValue } from "../../src/contract/Json.ts"
import { methods } from "../../src/rpc/Methods.ts"
import { inMemory, overPipes, store } from "./Session.ts"

const folder = fileURLToPath(new URL("../../../schemas/", import.meta.url))
// The command line's are beside them, in a folder of their own.
const files = readdirSync(folder)
  .filter((name) => name.endsWith(".json"))
  .sort()
const schema = (name: string): JsonValue => JSON.parse(readFileSync(`${folder}${name}`, "utf8"))

it("there is one file for each message, and no other", () => {
  const messages = methods.flatMap(({ name }) => [`${name}.params.json`, `${name}.result.json`])
  assert.deepEqual(files, [...messages, "runtime.ready.json", "errors.json"].sort())
})

/** Every place in a schema that describes an object by its properties. */
const objects = (part: JsonValue, path: string): ReadonlyArray<readonly [string, JsonValue]> => {
  if (Array.isArray(part)) return part.flatMap((item: JsonValue, index) => objects(item, `${path}/${index}`))
  if (!isObject(part)) return []
  const here = isObject(part["properties"]) ? [[path, part] as const] : []
  return [...here, ...Object.entries(part).flatMap(([key, value]) => objects(value, `${path}/${key}`))]
}

it("every object is closed, but for the handshake that can grow", () => {
  const open = files.flatMap((name) =>
    objects(schema(name), name)
      .filter(([, part]) => !isObject(part) || part["additionalProperties"] !== false)
      .map(([path]) => path)
  )
  assert.deepEqual(open, ["runtime.ready.json/$defs/Ready"])
})

it("the core says which schemas it was built with", async () => {
  const hash = createHash("sha256")
  for (const name of files) {
    hash.update(`${name}\n`)
    hash.update(readFileSync(`${folder}${name}`))
    hash.update("\n")
  }
  const digest = hash.digest("hex")
  for (const session of [inMemory(methods, store), overPipes()]) {
    const { params } = JSON.parse((await session.next()) ?? "null")
    assert.equal(params.schemas, digest)
    session.close()
    await session.ended
  }
})

it("every result of the corpus' inspections fits its schema", async () => {
  const corpus = readFileSync(new URL("../../../tests/contract/corpus/inspections.jsonl", import.meta.url), "utf8")
  const requests = corpus.split("\n").filter((line) => line !== "")
  const result = methods.find(({ name }) => name === "turn_journal.inspect")?.result
  const decode = Schema.decodeUnknownSync(result as Schema.Codec<unknown>, { onExcessProperty: "error" })
  const session = inMemory(methods, store)
  await session.next()
  for (const [id, line] of requests.entries()) {
    const { request, expected } = JSON.parse(line)
    session.send(`${JSON.stringify({ jsonrpc: "2.0", id, method: "turn_journal.inspect", params: request })}\n`)
    const answer = JSON.parse((await session.next()) ?? "null")
    assert.deepEqual(answer.result, expected)
    decode(answer.result)
  }
  session.close()
})
