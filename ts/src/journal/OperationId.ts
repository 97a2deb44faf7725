/** The name of a journal's content: turn-journal.md section 6. */
import { hash } from "node:crypto"
import type { JsonValue } from "../contract/Json.ts"
import { canonicalText } from "./Value.ts"

/** `sha256:` and the SHA-256 of the canonical JSON; Python and TypeScript give the same. */
export const operationId = (journal: JsonValue): string => operationIdOf(canonicalText(journal))

/** The operation id of a journal that is canonical JSON already. */
export const operationIdOf = (canonical: string): string => `sha256:${hash("sha256", canonical, "hex")}`
