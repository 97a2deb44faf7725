import { defineConfig } from "vitest/config"

// For what hangs: a busy machine is no reason to fail.
const TIMES = { testTimeout: 120_000, hookTimeout: 120_000 }

const POSTGRES = "ts/test/store/postgres/**/*.test.ts"

export default defineConfig({
  test: {
    projects: [
      { test: { name: "core", include: ["ts/test/**/*.test.ts"], exclude: [POSTGRES], ...TIMES } },
      // The server is started for tests of this project alone.
      {
        test: {
          name: "postgres",
          include: [POSTGRES],
          ...TIMES,
          globalSetup: "ts/test/store/postgres/server.ts"
        }
      }
    ]
  }
})
