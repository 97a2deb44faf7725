import { run } from "./cli.ts"
import { runMain } from "./NodeRuntime.ts"

runMain(run(process.argv.slice(2)))
