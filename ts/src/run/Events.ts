/** What a run journal holds: events, and what is known of a run. run-journal.md, section 1. */
import type { Payload } from "./Payload.ts"

export const KIND_MODEL_DECISION = "model_decision"
export const KIND_TOOL_CALL = "tool_call"
export const KIND_TOOL_RESULT = "tool_result"
export const KIND_APPROVAL = "approval"
export const KIND_ITERATION = "iteration"
export const KIND_VERIFICATION = "verification"

export const KINDS = [
  KIND_MODEL_DECISION,
  KIND_TOOL_CALL,
  KIND_TOOL_RESULT,
  KIND_APPROVAL,
  KIND_ITERATION,
  KIND_VERIFICATION
] as const
export type Kind = (typeof KINDS)[number]

/** One recorded boundary of a run; a step has at most one event of each kind. */
export interface JournalEvent {
  readonly runId: string
  /** The number of the step, from 0. */
  readonly seq: number
  readonly kind: Kind
  readonly payload: Payload
  /** Seconds since the epoch. */
  readonly createdAt: number
}

/** An event that is to be stored: without a time, it is now. */
export type NewEvent = Omit<JournalEvent, "createdAt" | "payload"> & {
  readonly payload?: unknown
  readonly createdAt?: number
}

/** What is known of a run beside its events. */
export interface RunMeta {
  readonly runId: string
  readonly agent: string
  readonly task: string
  /** `running`, or `done`, `succeeded`, `failed`, `cancelled`. */
  readonly status: string
  readonly outcome: string | null
  readonly checkpointId: string | null
  readonly createdAt: number
  readonly updatedAt: number
  readonly metadata: Payload
}

export const RUNNING = "running"
const TERMINAL = ["done", "succeeded", "failed", "cancelled"]
export const isTerminal = (status: string): boolean => TERMINAL.includes(status)

export const now = (): number => Date.now() / 1000
