/** What a folder is known by. */
import { mkdirSync, rmdirSync } from "node:fs"
import { join } from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { folderIdentity } from "../../src/store/SafeFile.ts"
import { folder } from "./Turns.ts"

it.live("a folder that is removed and made again is another one, also when it gets the number of the first", () =>
  Effect.gen(function* () {
    const path = join(yield* folder, "made")
    const seen = new Set<string>()
    for (let times = 0; times < 5; times++) {
      mkdirSync(path)
      assert.strictEqual(folderIdentity(path), folderIdentity(path))
      seen.add(folderIdentity(path))
      rmdirSync(path)
      // A file system's clock may tick every ten milliseconds.
      yield* Effect.sleep(20)
    }
    assert.strictEqual(seen.size, 5)
  })
)
