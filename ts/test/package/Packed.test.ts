/** The package as it is installed: what is in it, that a strict project of a user compiles against it, and that it runs. */
import { execFileSync, spawn, spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, beforeAll, it } from "@effect/vitest"

const ROOT = fileURLToPath(new URL("../../../", import.meta.url))
const PAGES = ["docs/how-to/typescript.md", "docs/how-to/observe.md"]

const STRICT = {
  target: "ES2024",
  module: "NodeNext",
  lib: ["ES2024", "DOM"],
  types: ["node"],
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  verbatimModuleSyntax: true,
  skipLibCheck: false,
  noEmit: true
}

/** What the package exports beside types: a name is added or taken away here, too, and said in the changelog. */
const SURFACE = `
Absent AssessParams Assessment BindingAnswer CHECK_KINDS CHECK_OUTCOMES Committed Core CurrentIdempotencyKey Databases
Driver ERRORS FileDriver HOST_FAILURE_KINDS HOST_FAILURE_SCHEMA HOST_RECOVERY_SCHEMA HostFailure HostFailureKind
HostFailureParams INSPECTION_REQUEST_SCHEMA INSPECTION_SCHEMA INVALID_JOURNAL_KINDS Info InspectParams
InspectStoredParams Inspection InvalidJournal JOURNAL_CONFLICT_KINDS JOURNAL_CORRUPT_KINDS JournalConflict
JournalCorrupt JournalDocument JournalNotFound JournalStore Json KIND_APPROVAL KIND_ITERATION KIND_MODEL_DECISION
KIND_TOOL_CALL KIND_TOOL_RESULT KIND_VERIFICATION Limits MemoryDriver Method NoParams Observed PROTOCOL_VERSION
RECOVERY_ACTIONS RECOVERY_AUDIT_SCHEMA RECOVERY_DECISION_SCHEMA REFUSALS ReadParams ReadResult Ready RecordedEffects
RecordedToolError RecoveryAudit RecoveryCheck RecoveryDecision RefusalReason ReplayDivergence ResumeBudgetExhausted
RunEnded RunJournal RunNotFound SESSION_BINDING_SCHEMA SETTLEMENT_IDENTITY_SCOPED_SCHEMA SETTLEMENT_IDENTITY_TODO_SCHEMA
SETTLEMENT_PLAN_SCHEMA STORE_FAILURE_KINDS STORE_UNAVAILABLE_KINDS ShutdownResult StoreFailure StoreUnavailable
TASK_ORCHESTRATION_SCHEMA TERMINAL_CLOSEOUT TRANSACTION_PHASES TURN_JOURNAL_SCHEMA TurnBusy TurnSuspended
UncertainEffect Unknown VIOLATIONS Violation Wire WriteParams WriteResult assessRetry checkReplay hostFailureRecord
inspect methods operationId serve turnJournalPath
`

/** What a library exports whose functions and layers are made of ours, with the types that follow from them. */
const LIBRARY = `
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as core from "turn-journal-core"
import * as NodeRuntime from "turn-journal-core/NodeRuntime"
import * as PostgresDriver from "turn-journal-core/PostgresDriver"

export const agent = (run: core.DurableRun) => run.tool("t", {}, run.model(Effect.succeed(1)))
export const checked = (run: core.DurableRun) => run.verification("t", true)
export const runs = core.RunJournal.use((journal) => Effect.succeed(journal))
export const drive = core.RunJournal.use((journal) => journal.drive("r", agent))
export const store = core.JournalStore.use((store) => Effect.succeed(store))
export const driver = core.Driver.use((driver) => Effect.succeed(driver))
export const layers = [
  Layer.merge(NodeRuntime.layer, core.RunJournal.layer()),
  NodeRuntime.layerStore,
  core.JournalStore.layer(),
  core.FileDriver.layer(),
  core.MemoryDriver.layer,
  core.Observed.layer,
  PostgresDriver.layer()
] as const
export const rules = [core.inspect, core.operationId, core.assessRetry, core.hostFailureRecord, core.turnJournalPath] as const
export const protocol = [core.methods, core.serve(core.methods), NodeRuntime.serve] as const
export const { make } = PostgresDriver
export const { checkReplay } = core
`

let folder = ""
let files: ReadonlyArray<string> = []
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "turn-journal-package-"))
  const modules = join(folder, "node_modules")
  const installed = join(modules, "turn-journal-core")
  mkdirSync(installed, { recursive: true })
  const command = ["pack", "--ignore-scripts", "--json", "--pack-destination", folder]
  const packed = JSON.parse(execFileSync("npm", command, { cwd: ROOT, encoding: "utf8", stdio: "pipe" }))
  const [{ filename, files: listed }] = Object.values(packed) as [
    { filename: string; files: ReadonlyArray<{ path: string }> }
  ]
  files = listed.map(({ path }) => path)
  execFileSync("tar", ["-xzf", join(folder, filename), "--strip-components=1", "-C", installed])
  for (const name of ["effect", "@effect", "canonicalize", "@types", "undici-types"]) {
    symlinkSync(join(ROOT, "node_modules", name), join(modules, name), "junction")
  }
  writeFileSync(join(folder, "package.json"), '{"private":true,"type":"module"}')
}, 60_000)
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const node = (args: ReadonlyArray<string>) =>
  spawnSync(process.execPath, ["--disable-warning=ExperimentalWarning", ...args], { cwd: folder, encoding: "utf8" })

it("has the core, the library and the schemas, and nothing else", () => {
  for (const path of ["dist/core.mjs", "dist/lib/index.js", "dist/lib/index.d.ts", "schemas/errors.json"]) {
    assert.include(files, path)
  }
  const others = files.filter(
    (path) =>
      !/^dist\/(core[^/]*\.mjs|lib\/.*\.(js|d\.ts))$|^schemas\/[^/]*\.json$|^(LICENSE|README\.md|package\.json)$/.test(
        path
      )
  )
  assert.deepEqual(others, [])
})

it("has no crash points that an environment could arm", () => {
  for (const path of files.filter((path) => /\.m?js$/.test(path))) {
    const text = readFileSync(join(folder, "node_modules", "turn-journal-core", path), "utf8")
    assert.notInclude(text, "env.TURN_JOURNAL_FAULT", path)
  }
})

it("exports what it promises, and nothing else", () => {
  const { stdout } = node([
    "--input-type=module",
    "--eval",
    'console.log(Object.keys(await import("turn-journal-core")).join(" "))'
  ])
  assert.deepEqual(stdout.trim().split(" ").toSorted(), SURFACE.trim().split(/\s+/).toSorted())
})

it("compiles in a strict project: the pages' programs and the example", () => {
  for (const page of PAGES) {
    const blocks = [...readFileSync(join(ROOT, page), "utf8").matchAll(/^```ts\n(.*?)^```$/gms)]
    assert.isAbove(blocks.length, 0, page)
    for (const [index, [, code = ""]] of blocks.entries()) {
      writeFileSync(join(folder, `${page.replaceAll(/\W/g, "-")}-${index}.ts`), code)
    }
  }
  writeFileSync(join(folder, "example.ts"), readFileSync(join(ROOT, "examples", "typescript_effect.ts")))
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: STRICT, include: ["*.ts"] }))
  const { status, stdout } = node([join(ROOT, "node_modules", "typescript", "bin", "tsc"), "-p", folder])
  assert.equal(status, 0, stdout)
  assert.isAbove(readdirSync(folder).filter((name) => name.endsWith(".ts")).length, PAGES.length)
})

it("has every type that its signatures name, for the declarations of a library that is made of it", () => {
  const library = join(folder, "library")
  mkdirSync(library)
  writeFileSync(join(library, "library.ts"), LIBRARY)
  const options = { ...STRICT, noEmit: false, declaration: true, outDir: "out" }
  writeFileSync(join(library, "tsconfig.json"), JSON.stringify({ compilerOptions: options, include: ["*.ts"] }))
  const { status, stdout } = node([join(ROOT, "node_modules", "typescript", "bin", "tsc"), "-p", library])
  assert.equal(status, 0, stdout)
})

it("runs: the command, and the library with nothing left open", () => {
  const bin = join("node_modules", "turn-journal-core", "dist", "core.mjs")
  assert.match(node([bin, "--version"]).stdout, /^\d+\.\d+\.\d+\n$/)
  writeFileSync(
    join(folder, "program.mjs"),
    `import * as Effect from "effect/Effect"
     import * as Layer from "effect/Layer"
     import { JournalStore, RunJournal } from "turn-journal-core"
     import * as NodeRuntime from "turn-journal-core/NodeRuntime"
     const program = Effect.gen(function* () {
       const store = yield* JournalStore
       const runs = yield* RunJournal
       const missing = yield* Effect.flip(store.read({ path: process.cwd() + "/goals/g/turns/t.json" }))
       return [missing._tag, yield* runs.drive("r", (run) => run.tool("t", {}, Effect.succeed(7)))]
     })
     const layer = Layer.merge(NodeRuntime.layer, RunJournal.layer({ path: "runs.db" }))
     console.log(...(await Effect.runPromise(Effect.provide(program, layer))))`
  )
  const { status, stdout, stderr } = node(["program.mjs"])
  assert.deepEqual({ status, stdout, stderr }, { status: 0, stdout: "JournalNotFound 7\n", stderr: "" })
})

it.skipIf(process.platform === "win32").each(["SIGINT", "SIGTERM"] as const)(
  "runMain lets a program's finalizers run when %s comes",
  async (signal) => {
    writeFileSync(
      join(folder, "main.mjs"),
      `import * as Effect from "effect/Effect"
       import * as NodeRuntime from "turn-journal-core/NodeRuntime"
       const opened = Effect.acquireRelease(
         Effect.sync(() => console.log("opened")),
         () => Effect.andThen(Effect.sleep("20 millis"), Effect.sync(() => console.log("closed")))
       )
       NodeRuntime.runMain(Effect.scoped(Effect.andThen(opened, Effect.never)))`
    )
    const child = spawn(process.execPath, ["main.mjs"], { cwd: folder, stdio: ["ignore", "pipe", "pipe"] })
    let said = ""
    child.stderr.on("data", (bytes) => {
      said += bytes
    })
    child.stdout.on("data", (bytes) => {
      said += bytes
      if (said === "opened\n") child.kill(signal)
    })
    const code = await new Promise((resolve) => child.on("close", resolve))
    assert.deepEqual({ code, said }, { code: 130, said: "opened\nclosed\n" })
  }
)
