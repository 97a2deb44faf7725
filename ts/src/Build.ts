/** What is known of this build: its version and the digest of the schemas it was made with. */
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

/** Baked into the bundle by build.mjs; absent where the modules run by themselves, beside package.json and schemas/. */
declare const BUILD: { readonly version: string; readonly schemas: string }
const baked = typeof BUILD === "undefined" ? undefined : BUILD

const beside = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url))

export const version = (): string =>
  baked?.version ?? (JSON.parse(readFileSync(beside("package.json"), "utf8")) as { version: string }).version

export const schemasDigest = (): string => baked?.schemas ?? digestOfSchemas(beside("schemas"))

/**
 * SHA-256 over every `*.json` of a folder, by name in code unit order: name, newline, bytes, newline. Python computes
 * the same over the files it carries, so that the two sides notice when they are not of one build.
 */
export const digestOfSchemas = (folder: string): string => {
  const hash = createHash("sha256")
  for (const name of readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .sort()) {
    hash
      .update(`${name}\n`)
      .update(readFileSync(join(folder, name)))
      .update("\n")
  }
  return hash.digest("hex")
}
