/** The contract cases of tests/contract/turn_journal, read as the README beside them says. */
import { readdirSync, readFileSync } from "node:fs"
import { isObject, type JsonObject, type JsonValue } from "../../src/contract/Json.ts"

const contract = new URL("../../../tests/contract/", import.meta.url)

/** A journal by its name, as a change of another one, or as it is. */
export type JournalSpec = string | ({ readonly base: JournalSpec } & Changes) | { readonly value: JsonValue }

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

export interface SchemaCases {
  readonly schema: string
  readonly valid: ReadonlyArray<{ readonly name: string; readonly value: JsonValue }>
  /** A value, or a change of the first valid one. */
  readonly invalid: ReadonlyArray<{ readonly name: string; readonly value?: JsonValue } & Changes>
}

export const schemaCases = (): ReadonlyArray<SchemaCases> =>
  readdirSync(new URL("schemas/", contract))
    .filter((name) => name.endsWith(".json"))
    .sort()
    .map((name) => ({ ...read<SchemaCases>(`schemas/${name}`), schema: name.slice(0, -".json".length) }))

export const namedJournals: Readonly<Record<string, JournalSpec>> = read("journals.json")

/** The journal that a case means. */
export const journalOf = (spec: JournalSpec): JsonValue => {
  if (typeof spec === "string") {
    const named = namedJournals[spec]
    if (named === undefined) throw new Error(`journals.json has no "${spec}"`)
    return journalOf(named)
  }
  if ("value" in spec) return spec.value
  return withChanges(journalOf(spec.base), spec)
}

export interface Changes {
  readonly set?: JsonObject
  readonly drop?: ReadonlyArray<string>
}

export const withChanges = (document: JsonValue, { set = {}, drop = [] }: Changes): JsonValue => {
  const dropped = drop.reduce((rest, pointer) => changed(rest, pointer), document)
  return Object.entries(set).reduce((rest, [pointer, value]) => changed(rest, pointer, value), dropped)
}

/** A copy with another value at a JSON pointer, or without it. */
export const changed = (value: JsonValue, pointer: string, to?: JsonValue): JsonValue => {
  const [key, ...rest] = pointer.split("/").slice(1)
  if (key === undefined) throw new Error("a pointer names a key")
  if (Array.isArray(value)) {
    const item = value[Number(key)] as JsonValue
    return value.with(Number(key), rest.length > 0 || to === undefined ? changed(item, `/${rest.join("/")}`, to) : to)
  }
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
