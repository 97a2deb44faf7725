/** The type of what a step gives, held by `tsc`; that the values are of it, by the run. */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { expectTypeOf } from "vitest"
import type { Recorded, Value } from "../../src/run/Payload.ts"
import { withJournal } from "./Journals.ts"

interface Booking {
  readonly city: string
  readonly nights: number
  readonly tags: ReadonlyArray<string>
  readonly note?: string
}

describe("what a step gives", () => {
  it.live("is of the type of its effect, live and replayed", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const booking: Booking = { city: "Oslo", nights: 2, tags: ["sea"] }
        for (let drive = 0; drive < 2; drive++) {
          const city = yield* journal.drive("r", (run) =>
            Effect.gen(function* () {
              const cities = yield* run.model(Effect.succeed(["Oslo"]), { request: "Where to?" })
              expectTypeOf(cities).toEqualTypeOf<Array<string>>()
              const booked = yield* run.tool("book", { cities }, Effect.succeed(booking))
              expectTypeOf(booked).toEqualTypeOf<Booking>()
              const noted = yield* run.tool("note", {}, Effect.void)
              expectTypeOf(noted).toEqualTypeOf<Value>()
              assert.isNull(noted)
              assert.deepStrictEqual(booked, booking)
              return cities.map((one) => one.toUpperCase()).join()
            })
          )
          assert.strictEqual(city, "OSLO")
        }
      })
    )
  )

  it("is some JSON where its effect gives none", () => {
    expectTypeOf<Recorded<Date>>().toEqualTypeOf<Value>()
    expectTypeOf<Recorded<bigint>>().toEqualTypeOf<Value>()
    expectTypeOf<Recorded<undefined>>().toEqualTypeOf<Value>()
    expectTypeOf<Recorded<Map<string, string>>>().toEqualTypeOf<Value>()
    expectTypeOf<Recorded<{ readonly at: Date }>>().toEqualTypeOf<Value>()
    expectTypeOf<Recorded<() => string>>().toEqualTypeOf<Value>()
    expectTypeOf<Recorded<unknown>>().toEqualTypeOf<Value>()
    // biome-ignore lint/suspicious/noExplicitAny: that none of it leaks is what is tested
    expectTypeOf<Recorded<any>>().toEqualTypeOf<Value>()
  })

  it("is its own type where that is JSON", () => {
    expectTypeOf<Recorded<string | null>>().toEqualTypeOf<string | null>()
    expectTypeOf<Recorded<readonly [string, number]>>().toEqualTypeOf<readonly [string, number]>()
    expectTypeOf<Recorded<Value>>().toEqualTypeOf<Value>()
    expectTypeOf<Recorded<never>>().toEqualTypeOf<never>()
  })
})
