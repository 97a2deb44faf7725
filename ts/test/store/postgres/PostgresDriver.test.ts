import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { Driver } from "../../../src/store/Driver.ts"
import * as Place from "../../../src/store/Place.ts"
import { suite } from "../StoreSuite.ts"
import { layer } from "./Roots.ts"

suite("postgres", layer, (path, text) =>
  Effect.gen(function* () {
    const driver = yield* Driver
    const place = yield* Effect.fromResult(Place.ofPath(path))
    const commit = { after: null, lines: [], snapshot: text }
    yield* driver.transact(place, () => Result.succeed({ answer: undefined, commit }), null)
  })
)
