/**
 * Crash points: a disk on which one step of a commit goes wrong, before or after it is done. Armed by the environment
 * of a test build, `TURN_JOURNAL_FAULT=snapshot.rename:before:kill`; a shipped core does not have it.
 */
import { writeSync } from "node:fs"
import * as Effect from "effect/Effect"
import { type Disk, nodeDisk, STEPS, type Step, writeWhole } from "./Disk.ts"

export const FAULTS = ["kill", "kill_parent", "stop", "EIO", "ENOSPC", "short"] as const

export interface Fault {
  readonly step: Step
  readonly when: "before" | "after"
  /**
   * `kill` and `kill_parent` are SIGKILL, `stop` is SIGSTOP; an error is what the call then fails with; `short` is a
   * write of which only a part is taken, and then the disk is full.
   */
  readonly fault: (typeof FAULTS)[number]
}

export const parseFault = (text: string): Fault => {
  const [step, when, fault] = text.split(":")
  const found = {
    step: STEPS.find((name) => name === step),
    when: (["before", "after"] as const).find((name) => name === when),
    fault: FAULTS.find((name) => name === fault)
  }
  if (found.step === undefined || found.when === undefined || found.fault === undefined) {
    throw new Error(`TURN_JOURNAL_FAULT names no crash point: ${text}`)
  }
  return found as Fault
}

/** The disk of this process. */
export const configuredDisk = (): Disk => {
  const armed = process.env.TURN_JOURNAL_FAULT
  return armed === undefined ? nodeDisk : faultyDisk(nodeDisk, parseFault(armed))
}

/** A disk on which the fault happens the first time that its step is reached. */
export const faultyDisk = (disk: Disk, { step: armed, when: armedWhen, fault }: Fault): Disk => {
  let spent = false
  const reach = (step: Step, when: Fault["when"]): void => {
    if (spent || step !== armed || when !== armedWhen) return
    spent = true
    strike(fault)
  }
  const around = <A>(step: Step, call: () => A): A => {
    reach(step, "before")
    const result = call()
    reach(step, "after")
    return result
  }
  const aroundEffect = (step: Step, effect: Effect.Effect<void, unknown>) => {
    const at = (when: Fault["when"]) => Effect.try({ try: () => reach(step, when), catch: (error) => error })
    return at("before").pipe(Effect.andThen(effect), Effect.andThen(at("after")))
  }
  return {
    open: (step, path, flags) => around(step, () => disk.open(step, path, flags)),
    close: disk.close,
    write: (step, fd, bytes, position) => {
      if (!spent && step === armed && fault === "short") {
        spent = true
        const half = bytes.subarray(0, bytes.length >> 1)
        writeWhole(writeSync, fd, half, position)
        strike("ENOSPC")
      }
      around(step, () => disk.write(step, fd, bytes, position))
    },
    truncate: (step, fd, length) => around(step, () => disk.truncate(step, fd, length)),
    sync: (step, fds) => aroundEffect(step, disk.sync(step, fds)),
    rename: (step, from, to) => aroundEffect(step, disk.rename(step, from, to)),
    remove: (step, path) => around(step, () => disk.remove(step, path)),
    makeFolder: (step, path) => around(step, () => disk.makeFolder(step, path))
  }
}

const strike = (fault: Fault["fault"]): void => {
  if (fault === "kill") process.kill(process.pid, "SIGKILL")
  else if (fault === "stop") process.kill(process.pid, "SIGSTOP")
  else if (fault === "kill_parent") process.kill(process.ppid, "SIGKILL")
  else throw Object.assign(new Error(`${fault}: an armed fault`), { code: fault === "short" ? "ENOSPC" : fault })
}
