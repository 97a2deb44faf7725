import { layer } from "@effect/vitest"
import * as Layer from "effect/Layer"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { copySuite } from "./CopySuite.ts"
import { folder } from "./Turns.ts"

layer(Layer.provideMerge(JournalStore.layer({ signingKey: null }), FileDriver.layer()), { excludeTestServices: true })(
  "from folder to folder",
  (it) => copySuite(it, { source: folder, target: folder })
)
