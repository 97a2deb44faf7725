/** Keeps a PostgreSQL server while the tests of its project run: `tests/postgres_server.py`. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  interface ProvidedContext {
    postgresUrl: string
  }
}

const program = fileURLToPath(new URL("../../../../tests/postgres_server.py", import.meta.url))

export default async ({ provide }: TestProject): Promise<() => Promise<void>> => {
  const server = spawn("python3", [program], { stdio: ["pipe", "pipe", "inherit"] })
  const ended = once(server, "exit")
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]()
  const { value, done } = await lines.next()
  if (done === true) throw new Error("the PostgreSQL server did not start: is `.venv/bin` on PATH? See `make setup`")
  provide("postgresUrl", value)
  return async () => {
    server.stdin.end()
    await ended
  }
}
