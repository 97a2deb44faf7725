// Builds the core, the TypeScript library beside it, and the copy the Python package carries. What speaks to databases
// is a part of its own, which the core loads when it is asked for one.
import { spawnSync } from "node:child_process"
import { copyFileSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"
import { digestOfSchemas } from "./src/Build.ts"

const root = join(dirname(fileURLToPath(import.meta.url)), "..")
const embedded = join(root, "python", "turn_journal_runtime", "_core")
const schemas = join(root, "schemas")
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))

const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: { core: "ts/src/main.ts" },
  outdir: "dist/new",
  outExtension: { ".js": ".mjs" },
  chunkNames: "core-[hash]",
  bundle: true,
  splitting: true,
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

const put = (source, target) => {
  copyFileSync(source, `${target}.new`)
  renameSync(`${target}.new`, target)
}
const removeBut = (folder, names, isOurs) => {
  for (const name of readdirSync(folder)) if (isOurs(name) && !names.includes(name)) rmSync(join(folder, name))
}

// Renamed into place, the entry last, so that whoever starts the core meanwhile has the old one or the new one.
const built = join(root, "dist", "new")
const parts = Object.keys(metafile.outputs)
  .map((path) => basename(path))
  .sort((left, right) => Number(left === "core.mjs") - Number(right === "core.mjs"))
const names = readdirSync(schemas).filter((name) => name.endsWith(".json"))
mkdirSync(join(embedded, "schemas"), { recursive: true })
for (const folder of [join(root, "dist"), embedded]) {
  for (const part of parts) put(join(built, part), join(folder, part))
  removeBut(folder, parts, (name) => /^core.*\.mjs$/.test(name))
}
rmSync(built, { recursive: true })
for (const name of names) put(join(schemas, name), join(embedded, "schemas", name))
removeBut(join(embedded, "schemas"), names, () => true)

// What a source that is no more, or another setting, once made of it is not shipped.
const library = join(root, "dist", "lib")
rmSync(library, { recursive: true, force: true })
const tsc = join(root, "node_modules", "typescript", "bin", "tsc")
const { status } = spawnSync(process.execPath, [tsc, "-p", "tsconfig.build.json"], { cwd: root, stdio: "inherit" })
if (status !== 0) process.exit(1)

// The library is shipped without crash points, too: tsc has no `define`.
const fault = join(library, "store", "Fault.js")
writeFileSync(fault, readFileSync(fault, "utf8").replace("process.env.TURN_JOURNAL_FAULT", "undefined"))
