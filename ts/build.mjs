// Builds the one-file core, the TypeScript library beside it, and the copy the Python package carries.
import { execFileSync } from "node:child_process"
import { copyFileSync, mkdirSync, readdirSync, rmSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"

const root = join(dirname(fileURLToPath(import.meta.url)), "..")
const embedded = join(root, "python", "turn_journal_runtime", "_core")

await build({
  absWorkingDir: root,
  entryPoints: ["ts/src/main.ts"],
  outfile: "dist/core.mjs",
  bundle: true,
  minify: true,
  platform: "node",
  target: "node22",
  format: "esm",
  legalComments: "none",
  banner: { js: "#!/usr/bin/env node" }
})
execFileSync(process.execPath, [join(root, "node_modules", "typescript", "bin", "tsc"), "-p", "tsconfig.build.json"], {
  cwd: root,
  stdio: "inherit"
})

rmSync(embedded, { recursive: true, force: true })
mkdirSync(join(embedded, "schemas"), { recursive: true })
copyFileSync(join(root, "dist", "core.mjs"), join(embedded, "core.mjs"))
for (const name of readdirSync(join(root, "schemas")).filter((name) => name.endsWith(".json"))) {
  copyFileSync(join(root, "schemas", name), join(embedded, "schemas", name))
}
