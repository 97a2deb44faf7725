import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { runMain } from "./NodeRuntime.ts"
import { Core } from "./rpc/Core.ts"
import { methods } from "./rpc/Methods.ts"
import { serve } from "./rpc/Server.ts"
import * as StdioWire from "./rpc/StdioWire.ts"

runMain(Effect.provide(serve(methods), Layer.merge(Core.layer(), StdioWire.layer)))
