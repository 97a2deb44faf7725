/** Whether JSON text can be left to `JSON.parse`: the way of nearly every message. */

const QUOTE = 34
const COMMA = 44
const MINUS = 45
const POINT = 46
const OPEN_ARRAY = 91
const CLOSE_ARRAY = 93
const OPEN_OBJECT = 123
const CLOSE_OBJECT = 125
const LETTER_E = 101
const LETTER_U = 117

/** Deeper nesting, an object with more keys and a longer number are left to the careful look. */
const PLAIN_DEPTH = 128
const PLAIN_KEYS = 64
const PLAIN_NUMBER = 15
const keyHashes = new Int32Array(PLAIN_DEPTH * PLAIN_KEYS)

/**
 * A quick look, five times as fast as the careful one: true says that `JSON.parse` reads the text exactly or not at
 * all; false says nothing. Keys are compared by hash, so that two different ones may look alike, equal ones never not.
 */
export const isPlain = (text: string, maxDepth: number): boolean => {
  if (!text.isWellFormed()) return false
  /** Where the hashes of each open object's keys begin; -1 for an array. */
  const levels: Array<number> = []
  let firstKey = -1
  let keys = 0
  let expectsKey = false
  let escape = nextEscape(text, 0)
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) {
      const start = at + 1
      let end = text.indexOf('"', start)
      if (end < 0) return true
      if (escape < end) {
        if (expectsKey) return false
        while (escape < end) {
          const escaped = text.charCodeAt(escape + 1)
          if (escaped === LETTER_U) return false
          if (escape + 1 === end) end = text.indexOf('"', end + 1)
          if (end < 0) return true
          escape = nextEscape(text, escape + 2)
        }
      }
      if (expectsKey) {
        let hash = 0
        for (let index = start; index < end; index++) hash = (Math.imul(hash, 31) + text.charCodeAt(index)) | 0
        for (let index = firstKey; index < keys; index++) if (keyHashes[index] === hash) return false
        if (keys - firstKey === PLAIN_KEYS) return false
        keyHashes[keys++] = hash
        expectsKey = false
      }
      at = end
    } else if (code === COMMA) {
      expectsKey = firstKey >= 0
    } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
      if (levels.length === maxDepth || levels.length === PLAIN_DEPTH) return false
      levels.push(firstKey)
      expectsKey = code === OPEN_OBJECT
      firstKey = expectsKey ? keys : -1
    } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
      if (levels.length === 0) return true
      if (firstKey >= 0) keys = firstKey
      firstKey = levels.pop() ?? -1
      expectsKey = false
    } else if (code === MINUS || (code >= 48 && code <= 57)) {
      const end = endOfPlainNumber(text, at)
      if (end < 0) return false
      at = end - 1
    }
  }
  return true
}

const nextEscape = (text: string, from: number): number => {
  const at = text.indexOf("\\", from)
  return at < 0 ? text.length : at
}

/** -1 for a number that a double may not hold exactly. */
const endOfPlainNumber = (text: string, start: number): number => {
  let at = start + 1
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if ((code | 32) === LETTER_E) return -1
    if (code !== POINT && (code < 48 || code > 57)) break
  }
  return at - start > PLAIN_NUMBER ? -1 : at
}
