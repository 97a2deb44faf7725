import { defineConfig } from "vitest/config"

const POSTGRES = "ts/test/store/postgres/**/*.test.ts"

export default defineConfig({
  test: {
    projects: [
      { test: { name: "core", include: ["ts/test/**/*.test.ts"], exclude: [POSTGRES], testTimeout: 30_000 } },
      // The server is started for tests of this project alone.
      {
        test: {
          name: "postgres",
          include: [POSTGRES],
          testTimeout: 30_000,
          globalSetup: "ts/test/store/postgres/server.ts"
        }
      }
    ]
  }
})
