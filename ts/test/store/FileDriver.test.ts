import { mkdirSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import * as Effect from "effect/Effect"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { suite } from "./StoreSuite.ts"

suite("files", FileDriver.layer(), (path, text) =>
  Effect.sync(() => {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  })
)
