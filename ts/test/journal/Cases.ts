/** The contract cases of tests/contract/turn_journal, read as the README beside them says. */
import { readdirSync, readFileSync } from "node:fs"
import { isObject, type JsonObject, type JsonValue } from "../../src/contract/Json.ts"

const contract = new URL("../../../tests/contract/", import.meta.url)

/** A journal by its name, as a change of another one, or as it is. */
export type JournalSpec =
  | string
  | { readonly base: JournalSpec; readonly set?: JsonObject; readonly drop?: ReadonlyArray<string> }
  | { readonly value: JsonValue }

export interface Case {
  readonly name: string
  readonly request: JsonObject
  readonly expected: JsonValue
}

export interface CaseFile {
  readonly file: string
  readonly method: string
  /** Whose turn the inspections of the file ask for, where a case does not say. */
  readonly question?: JsonObject
  readonly cases: ReadonlyArray<Case>
}

const read = <Content>(path: string): Content => JSON.parse(readFileSync(new URL(path, contract), "utf8")) as Content

export const caseFiles = (): ReadonlyArray<CaseFile> =>
  readdirSync(new URL("turn_journal/", contract))
    .filter((name) => name.endsWith(".json"))
    .sort()
    .map((name) => ({ ...read<CaseFile>(`turn_journal/${name}`), file: name.slice(0, -".json".length) }))

export const namedJournals: Readonly<Record<string, JournalSpec>> = read("journals.json")

/** The journal that a case means. */
export const journalOf = (spec: JournalSpec): JsonValue => {
  if (typeof spec === "string") {
    const named = namedJournals[spec]
    if (named === undefined) throw new Error(`journals.json has no "${spec}"`)
    return journalOf(named)
  }
  if ("value" in spec) return spec.value
  const dropped = (spec.drop ?? []).reduce((journal, pointer) => changed(journal, pointer), journalOf(spec.base))
  return Object.entries(spec.set ?? {}).reduce((journal, [pointer, value]) => changed(journal, pointer, value), dropped)
}

/** A copy with another value at a JSON pointer, or without it. */
export const changed = (value: JsonValue, pointer: string, to?: JsonValue): JsonValue => {
  const [key, ...rest] = pointer.split("/").slice(1)
  if (key === undefined) throw new Error("a pointer names a key")
  if (!isObject(value)) throw new Error(`${pointer} leads through no object`)
  const entries = Object.entries(value)
  const at = entries.findIndex(([name]) => name === key)
  if (rest.length > 0) {
    const inner = entries[at]?.[1]
    if (inner === undefined) throw new Error(`nothing stands on the way to ${pointer}`)
    return Object.fromEntries(entries.with(at, [key, changed(inner, `/${rest.join("/")}`, to)]))
  }
  if (to === undefined) {
    if (at < 0) throw new Error(`nothing stands at ${pointer}`)
    return Object.fromEntries(entries.toSpliced(at, 1))
  }
  return Object.fromEntries(at < 0 ? [...entries, [key, to]] : entries.with(at, [key, to]))
}

/** What a case expects, with everything that it does not name taken from what was found. */
export const filledIn = (expected: JsonValue, found: unknown): unknown =>
  isObject(expected) && isObject(found)
    ? {
        ...found,
        ...Object.fromEntries(Object.entries(expected).map(([key, value]) => [key, filledIn(value, found[key])]))
      }
    : expected
