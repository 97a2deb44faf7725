/** What only a process has: standard streams that others write to, pipes that fill, and readers that go away. */
import { assert, it } from "@effect/vitest"
import { overPipes } from "./Session.ts"

const info = (id: string | number) => `${JSON.stringify({ jsonrpc: "2.0", id, method: "runtime.info" })}\n`

/** Loaded before the core: writes to standard output in every way there is, for as long as the core runs. */
const NOISE = `
  const { log } = console
  setInterval(() => {
    console.log("noise by console.log")
    log("noise by an older console.log")
    console.info("noise", { by: "console.info" })
    process.stdout.write("noise by process.stdout\\n")
    process.emitWarning("noise by a warning")
    process.stderr.write("noise by stderr ".repeat(5000) + "\\n")
  }, 1)
`

it("MUST keep standard output for the protocol, whatever else writes to it", async () => {
  const session = overPipes({ nodeFlags: ["--import", `data:text/javascript,${encodeURIComponent(NOISE)}`] })
  for (let id = 0; id < 200; id++) {
    if (id > 0) session.send(info(id))
    const line = await session.next()
    assert.deepEqual(
      Object.keys(JSON.parse(line ?? "")),
      id === 0 ? ["jsonrpc", "method", "params"] : ["jsonrpc", "id", "result"]
    )
  }
  session.close()
  assert.isNull(await session.next())
  assert.equal(await session.ended, 0)
  for (const by of ["console.log", "an older console.log", "process.stdout", "a warning"]) {
    assert.include(session.stderr(), `noise by ${by}`)
  }
})

it("MUST go on when nobody reads what it logs", async () => {
  const session = overPipes({ nodeFlags: ["--import", `data:text/javascript,${encodeURIComponent(NOISE)}`] })
  await session.next()
  session.closeStderr()
  for (let id = 0; id < 200; id++) {
    session.send(info(id))
    assert.equal(JSON.parse((await session.next()) ?? "").id, id)
  }
  session.close()
  assert.equal(await session.ended, 0)
})

it("MUST answer everything once when the peer begins to read late", async () => {
  const session = overPipes({ late: true })
  const count = 30_000
  for (let id = 0; id < count; id++) session.send(info(id))
  session.close()
  await session.next()
  const ids = new Set<number>()
  for (let line = await session.next(); line !== null; line = await session.next()) {
    const { id } = JSON.parse(line)
    assert.isFalse(ids.has(id), `a second answer to ${id}`)
    ids.add(id)
  }
  assert.equal(ids.size, count)
  assert.equal(await session.ended, 0)
})

it("MUST end with exit code 0 when nobody reads its answers any more", async () => {
  const session = overPipes()
  await session.next()
  session.hangUp()
  session.send(info(1).repeat(100))
  assert.equal(await session.ended, 0)
  assert.equal(session.stderr(), "")
})

it.skipIf(process.platform === "win32").each(["SIGINT", "SIGTERM"] as const)(
  "MUST end with 130 at %s",
  async (signal) => {
    const session = overPipes()
    session.send(info(1))
    await session.next()
    await session.next()
    process.kill(session.pid, signal)
    assert.isNull(await session.next())
    assert.equal(await session.ended, 130)
    assert.equal(session.stderr(), "")
  }
)
