/** The protocol cases of tests/contract/protocol, read and compared as its README says. */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { isObject, type JsonValue } from "../../src/contract/Json.ts"

type Chunk = { readonly text: string } | { readonly hex: string } | { readonly repeat: string; readonly times: number }

export interface Case {
  readonly title: string
  readonly lines?: ReadonlyArray<string>
  readonly chunks?: ReadonlyArray<Chunk>
  readonly answers: ReadonlyArray<JsonValue>
  readonly never?: ReadonlyArray<string>
  readonly end?: "input" | "shutdown"
}

const folder = fileURLToPath(new URL("../../../tests/contract/protocol/", import.meta.url))

export const caseFiles: ReadonlyArray<{ readonly about: string; readonly cases: ReadonlyArray<Case> }> = readdirSync(
  folder
)
  .filter((name) => name.endsWith(".json"))
  .sort()
  .map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")))

export const sent = ({ lines, chunks = [] }: Case): ReadonlyArray<Uint8Array> =>
  lines === undefined ? chunks.map(bytesOf) : [Buffer.from(lines.map((line) => `${line}\n`).join(""))]

const bytesOf = (chunk: Chunk): Uint8Array => {
  if ("hex" in chunk) return Buffer.from(chunk.hex, "hex")
  return Buffer.from("text" in chunk ? chunk.text : chunk.repeat.repeat(chunk.times))
}

export const matches = (pattern: JsonValue, value: JsonValue | undefined): boolean => {
  if (value === undefined) return false
  if (isObject(pattern)) {
    return isObject(value) && Object.entries(pattern).every(([key, part]) => matches(part, value[key]))
  }
  if (Array.isArray(pattern)) {
    return (
      Array.isArray(value) &&
      value.length === pattern.length &&
      pattern.every((part: JsonValue, index) => matches(part, value[index]))
    )
  }
  return Object.is(pattern, value)
}

/** Whether every pattern stands for one answer of its own, and no answer is left. */
export const pair = (patterns: ReadonlyArray<JsonValue>, answers: ReadonlyArray<JsonValue>): boolean => {
  const [pattern, ...others] = patterns
  if (pattern === undefined) return answers.length === 0
  return answers.some((answer, index) => matches(pattern, answer) && pair(others, answers.toSpliced(index, 1)))
}

const keys = (value: JsonValue | undefined): string =>
  isObject(value) ? Object.keys(value).sort().join() : typeof value

/** Whether a line is one response, or a batch of them, with exactly the keys it may have. */
export const isAnswer = (value: JsonValue): boolean => {
  if (Array.isArray(value))
    return value.length > 0 && value.every((one: JsonValue) => !Array.isArray(one) && isAnswer(one))
  if (!isObject(value) || value["jsonrpc"] !== "2.0") return false
  const { id, error } = value
  if (id !== null && typeof id !== "string" && typeof id !== "number") return false
  if (keys(value) === "id,jsonrpc,result") return true
  return (
    keys(value) === "error,id,jsonrpc" &&
    keys(error) === "code,data,message" &&
    isObject(error) &&
    Number.isInteger(error["code"]) &&
    typeof error["message"] === "string" &&
    keys(error["data"]) === "details,error,kind"
  )
}
