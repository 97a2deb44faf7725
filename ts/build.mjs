// Builds the one-file core, the TypeScript library beside it, and the copy the Python package carries.
import { execFileSync } from "node:child_process"
import { copyFileSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"
import { digestOfSchemas } from "./src/Build.ts"

const root = join(dirname(fileURLToPath(import.meta.url)), "..")
const embedded = join(root, "python", "turn_journal_runtime", "_core")
const schemas = join(root, "schemas")
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))

const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: ["ts/src/main.ts"],
  outfile: "dist/core.mjs",
  bundle: true,
  minify: true,
  metafile: true,
  platform: "node",
  target: "node22",
  format: "esm",
  legalComments: "none",
  define: {
    BUILD: JSON.stringify({ version, schemas: digestOfSchemas(schemas) }),
    // Crash points are for test builds: nothing in the environment arms a shipped core.
    "process.env.TURN_JOURNAL_FAULT": "undefined"
  },
  banner: { js: "#!/usr/bin/env node" }
})
// What the bundle is made of: `npx esbuild --analyze` reads it.
writeFileSync(join(root, "dist", "core.meta.json"), JSON.stringify(metafile))

// Renamed into place, so that whoever runs the core meanwhile sees the old one or the new one.
const put = (source, target) => {
  copyFileSync(source, `${target}.new`)
  renameSync(`${target}.new`, target)
}
const names = readdirSync(schemas).filter((name) => name.endsWith(".json"))
mkdirSync(join(embedded, "schemas"), { recursive: true })
put(join(root, "dist", "core.mjs"), join(embedded, "core.mjs"))
for (const name of names) put(join(schemas, name), join(embedded, "schemas", name))
for (const name of readdirSync(join(embedded, "schemas"))) {
  if (!names.includes(name)) rmSync(join(embedded, "schemas", name))
}

execFileSync(process.execPath, [join(root, "node_modules", "typescript", "bin", "tsc"), "-p", "tsconfig.build.json"], {
  cwd: root,
  stdio: "inherit"
})
