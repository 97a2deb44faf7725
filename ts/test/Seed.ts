/** Random choices that can be made again: `TURN_JOURNAL_SEED` repeats a run, which is named by its seed. */

export const SEED = Number(process.env["TURN_JOURNAL_SEED"] ?? Date.now() % 2 ** 31)
/** Large numbers instead of small ones. */
export const SOAK = process.env["TURN_JOURNAL_SOAK"] === "1"

export class Dice {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  /** A number from 0 to 1, without 1 (mulberry32). */
  roll(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = this.#state
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  /** A whole number from 0 to below `limit`. */
  below(limit: number): number {
    return Math.floor(this.roll() * limit)
  }

  chance(probability: number): boolean {
    return this.roll() < probability
  }

  pick<const T>(choices: ReadonlyArray<T>): T {
    return choices[this.below(choices.length)] as T
  }
}
