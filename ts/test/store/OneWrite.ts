/**
 * A process that reads a journal, writes the next one, and prints `ok` or the kind of the error of that:
 * `node OneWrite.ts PATH JOURNAL UID`; root becomes that user.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { JsonObject } from "../../src/contract/Json.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"

const [path = "", journal = "", uid = ""] = process.argv.slice(2)
if (process.getuid?.() === 0) process.setuid?.(Number(uid))

const said = Effect.flatMap(JournalStore, (store) =>
  Effect.andThen(Effect.ignore(store.read({ path })), store.write({ path, journal: JSON.parse(journal) as JsonObject }))
).pipe(
  Effect.match({ onFailure: ({ kind }) => kind, onSuccess: () => "ok" }),
  Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer())))
)
process.stdout.write(await Effect.runPromise(said))
