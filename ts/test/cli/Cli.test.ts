/** The commands of the built bundle: what they print, where, and how they end. */
import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { afterAll, assert, beforeAll, it } from "@effect/vitest"
import { BUNDLE } from "../rpc/Session.ts"

let folder = ""
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "turn-journal-cli-"))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

interface Ran {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

const run = (
  args: ReadonlyArray<string>,
  { input = "", env = {} }: { input?: string; env?: NodeJS.ProcessEnv } = {}
): Ran => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--no-warnings", BUNDLE, ...args], {
    cwd: folder,
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
    input,
    env: { ...process.env, ...env }
  })
  return { code: status, stdout, stderr }
}

const done = ({ code, stdout, stderr }: Ran) => {
  assert.equal(stderr, "")
  assert.equal(code, 0)
  return JSON.parse(stdout)
}

const refused = ({ code, stdout, stderr }: Ran) => {
  assert.equal(stdout, "")
  const { data, message } = JSON.parse(stderr)
  return { code, kind: data.kind, message, details: data.details }
}

const journal = {
  schema_version: "loopx_turn_journal_v0",
  status: "started",
  plan: { action: "go" },
  completed_phases: []
}

it("writes from standard input, writes again without effect, reads and inspects", () => {
  const path = join("root", "goals", "g", "turns", "k.json")
  const write = ["write", "--path", path, "--journal", "-", "--expected-previous", "none"]
  const first = done(run(write, { input: JSON.stringify(journal) }))
  assert.deepInclude(first, { ok: true, appended: true, replayed: false })
  const again = done(run(write, { input: JSON.stringify(journal) }))
  assert.deepInclude(again, { appended: false, replayed: true, operation_id: first.operation_id })
  assert.deepEqual(done(run(["read", "--path", path])), { journal, operation_id: first.operation_id, seq: 1 })
  assert.deepEqual(done(run(["read", "--path", path, "--at", "1"])).journal, journal)
  const inspection = done(run(["inspect", "--root", "root", "--goal", "g", "--agent", "a", "--turn-key", "k"]))
  assert.equal(inspection.decision, "replay_blocked")
})

it("writes from a file, and says of a conflict that it refused with 1", () => {
  const path = join("other", "goals", "g", "turns", "k.json")
  writeFileSync(join(folder, "journal.json"), JSON.stringify({ ...journal, status: "committed" }))
  const ran = refused(run(["write", "--path", path, "--journal", "journal.json"]))
  assert.deepInclude(ran, { code: 1, kind: "journal_transition_conflict" })
  assert.notInclude(readdirSync(folder), "other")
})

it.each(["SIGINT", "SIGTERM"] as const)("is left with %s while it waits for a journal", async (signal) => {
  const path = join("left", "goals", "g", "turns", "k.json")
  const waits = spawn(process.execPath, ["--no-warnings", BUNDLE, "write", "--path", path, "--journal", "-"], {
    cwd: folder
  })
  waits.stdin.write(JSON.stringify(journal))
  let said = ""
  waits.stderr.on("data", (chunk) => {
    said += chunk
  })
  const ended = once(waits, "exit")
  await delay(1000) // long enough for it to read, which nothing shows
  waits.kill(signal)
  const timer = setTimeout(() => waits.kill("SIGKILL"), 20_000)
  const [code, by] = await ended
  clearTimeout(timer)
  assert.include([130, signal], code ?? by) // the signal ends it by itself where it has not come that far
  assert.equal(said, "")
  assert.notInclude(readdirSync(folder), "left")
})

it("prints a large journal whole into a pipe", () => {
  const path = join("large", "goals", "g", "turns", "k.json")
  const large = { ...journal, note: "x".repeat(3_000_000) }
  done(run(["write", "--path", path, "--journal", "-"], { input: JSON.stringify(large) }))
  assert.equal(done(run(["read", "--path", path])).journal.note.length, 3_000_000)
})

const INSPECT = ["inspect", "--root", "r", "--agent", "a", "--turn-key", "t"]

it.each([
  ["nothing typed", [], "invalid_params"],
  ["an unknown command", ["replay"], "invalid_params"],
  ["a name that objects have", ["constructor"], "invalid_params"],
  ["an unknown option", ["read", "--pth", "x"], "invalid_params"],
  ["an option too many", ["serve", "--port", "1"], "invalid_params"],
  ["a missing option", ["inspect", "--root", "r", "--goal", "g", "--agent", "a"], "invalid_params"],
  ["a number that is none", ["read", "--path", "x", "--at", "last"], "invalid_params"],
  ["no number", ["read", "--path", "x", "--at", ""], "invalid_params"],
  ["a name that no goal has", [...INSPECT, "--goal", "a/b"], "invalid_request"],
  ["a folder that is to be migrated", ["migrate", "--root", "r"], "invalid_request"],
  ["a journal file that is not there", ["write", "--path", "x", "--journal", "no-such.json"], "invalid_params"]
] as const)("says of %s that it cannot be run, with 2", (_, args, kind) => {
  assert.deepInclude(refused(run(args)), { code: 2, kind })
})

it.each([[["--help"]], [["-h"]], [["serve", "--help"]], [["inspect", "--root", "r", "--help"]]])(
  "says with %j what there is, as text",
  (args) => {
    const { code, stdout, stderr } = run(args)
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" })
    for (const name of ["serve", "inspect", "write", "read", "migrate"]) {
      assert.include(stdout, `\nturn-journal-core ${name}`.slice(name === "serve" ? 1 : 0))
    }
  }
)

it("says which version it is", () => {
  const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8"))
  assert.deepEqual(run(["--version"]), { code: 0, stdout: `${version}\n`, stderr: "" })
})

it.skipIf(!existsSync("/dev/full"))("says that an answer could not be written, with 1", () => {
  const path = join("full", "goals", "g", "turns", "k.json")
  done(run(["write", "--path", path, "--journal", "-"], { input: JSON.stringify(journal) }))
  const full = openSync("/dev/full", "w")
  const args = ["--no-warnings", BUNDLE, "read", "--path", path]
  const { status, stderr } = spawnSync(process.execPath, args, { cwd: folder, stdio: ["ignore", full, "pipe"] })
  closeSync(full)
  assert.equal(status, 1)
  assert.include(JSON.parse(stderr.toString()).message, "ENOSPC")
})

it("says that a setting does not fit, with 2", () => {
  for (const setting of ["many", "0", "-1", "1.5"]) {
    const ran = refused(run(["serve"], { env: { TURN_JOURNAL_MAX_QUEUED: setting } }))
    assert.equal(ran.code, 2)
    assert.include(ran.message, "TURN_JOURNAL_MAX_QUEUED")
  }
})

it("takes its limits from the environment", () => {
  const env = { TURN_JOURNAL_MAX_JOURNAL_BYTES: "60", TURN_JOURNAL_MAX_DEPTH: "2" }
  const write = ["write", "--path", "x.json", "--journal", "-"]
  assert.equal(refused(run(write, { env, input: JSON.stringify(journal) })).kind, "journal_too_large")
  assert.equal(refused(run(write, { env, input: "[[[]]]" })).kind, "journal_too_deep")
  const info = '{"jsonrpc":"2.0","id":1,"method":"runtime.info"}\n'
  const [, answer] = run(["serve"], { env, input: info }).stdout.trim().split("\n")
  assert.deepEqual(JSON.parse(answer ?? "").result.limits, { journal_bytes: 60, depth: 2, queued_requests: 100_000 })
})

it("says of a journal that is not strict JSON where, with 1", () => {
  const ran = refused(run(["write", "--path", "x.json", "--journal", "-"], { input: '{"plan":{"a":1,"a":2}}' }))
  assert.deepInclude(ran, { code: 1, kind: "journal_snapshot_invalid" })
  assert.equal(ran.details.path, "$.plan.a")
})

it("says that nothing is stored with 3, and that what is stored is damaged with 4", () => {
  assert.deepInclude(refused(run(["read", "--path", "none.json"])), { code: 3, kind: "journal_not_found" })
  writeFileSync(join(folder, "damaged.json"), '{"schema_version":"loopx_turn_journal_v0","a":1,"a":2}')
  assert.deepInclude(refused(run(["read", "--path", "damaged.json"])), { code: 4, kind: "journal_corrupt" })
})
