import { assert, describe, it } from "@effect/vitest"
import { AuthenticationError, ConnectionError, SqlError } from "effect/sql/SqlError"
import { fateOf } from "../../../src/store/postgres/Failure.ts"

const fate = (operation: string, code: string, severity = "FATAL") =>
  fateOf(
    "postgresql://h/d",
    new SqlError({
      reason: new ConnectionError({
        cause: Object.assign(new Error(code), { code, severityUnlocalized: severity }),
        message: code,
        operation
      })
    })
  )._tag

describe("what became of a statement whose server was lost", () => {
  for (const code of ["EPIPE", "EPERM", "EBUSY", "ECONNRESET", "ECONNREFUSED", "ETIMEDOUT", "timeout"]) {
    it(`is not known when the system says ${code}, and nothing when there was no connection yet`, () => {
      assert.strictEqual(fate("query", code), "Unsure")
      assert.strictEqual(fate("connect", code), "Again")
    })
  }

  it("is not known when the server says that it ends, and nothing when it does not let anybody in yet", () => {
    assert.strictEqual(fate("query", "57P01"), "Unsure")
    assert.strictEqual(fate("connect", "57P03"), "Again")
  })

  it("is not known when the server ended its transaction, or does not know itself", () => {
    for (const code of ["25P03", "25P04", "40003"]) assert.strictEqual(fate("query", code), "Unsure")
  })

  it("is nothing where the server refused", () => {
    for (const code of ["40001", "40P01", "55P03", "57014"]) assert.strictEqual(fate("query", code, "ERROR"), "Again")
    for (const code of ["23505", "42P01", "25006"]) assert.strictEqual(fate("query", code, "ERROR"), "Refused")
  })

  it("is a refusal where the URL has no password", () => {
    const message = "No password configured"
    const reason = new AuthenticationError({ cause: new Error(message), message, operation: "connect" })
    const found = fateOf("postgresql://h/d", new SqlError({ reason }))
    assert.strictEqual(found._tag === "Refused" && found.error.kind, "store_denied")
    assert.include(found._tag === "Refused" && found.error.message, "password")
  })
})
