"use strict"

// JSON whose integers are exact: those that a number cannot hold come and go as BigInt. Bytes go as base64, and floats that JSON
// has no number for as the words that services take for them. A Map goes as an object. What JSON would show nothing of, as of a Set,
// is refused.

const { randomBytes } = require("node:crypto")
const { ServiceError, badArgument } = require("../service/error.js")

// Stands before the digits of a BigInt while it is a string on its way; no other text can have it.
const MARK = randomBytes(16).toString("hex")
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g")
const LONG = /\d{16}/
const NUMBERS = /-?\d[\d.eE+-]*/g
const INTEGER = /^-?[1-9]\d{15,}$/

function replacer(key, value) {
  // Before a `toJSON` that the program gave all BigInts, or Buffer has, became something else of it.
  const original = this[key]
  if (typeof original === "bigint") return MARK + original
  if (typeof value === "bigint") return MARK + value
  if (typeof value === "number" && !Number.isFinite(value)) return String(value)
  if (original instanceof Uint8Array) {
    return Buffer.from(original.buffer, original.byteOffset, original.byteLength).toString("base64")
  }
  if (original instanceof Map) return Object.fromEntries(original)
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    const kind = Object.prototype.toString.call(value)
    if (kind !== "[object Object]") throw badArgument(`${kind} is nothing that JSON can say: give an object, an array or a Uint8Array`)
  }
  return value
}

function reviver(_key, value) {
  return typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value
}

function marked(number) {
  return !INTEGER.test(number) || Number.isSafeInteger(Number(number)) ? number : `"${MARK}${number}"`
}

/** Where the string ends that begins here; the end of the text for one that does not. */
function behindString(text, start) {
  for (let quote = text.indexOf('"', start + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let slashes = 0
    while (text[quote - slashes - 1] === "\\") slashes += 1
    if (slashes % 2 === 0) return quote + 1
  }
  return text.length
}

/** The text with long integers marked. Strings are passed over, so that digits in them stay what they are. */
function withMarks(text) {
  const parts = []
  for (let at = 0; at < text.length; ) {
    const found = text.indexOf('"', at)
    const quote = found < 0 ? text.length : found
    const end = found < 0 ? quote : behindString(text, quote)
    parts.push(text.slice(at, quote).replace(NUMBERS, marked), text.slice(quote, end))
    at = end
  }
  return parts.join("")
}

function stringify(value) {
  const text = said(value)
  if (text === undefined) throw badArgument("what becomes nothing is nothing that JSON can say")
  return text.includes(MARK) ? text.replace(MARKED, "$1") : text
}

function said(value) {
  try {
    return JSON.stringify(value, replacer)
  } catch (error) {
    // What goes in a circle is a TypeError, and what is too deep a RangeError. These two kinds are taken for JSON's own, although a
    // `toJSON` or a getter may throw them as well: the cause says where they are from. Whatever else one throws comes as it is.
    if (!(error instanceof TypeError || error instanceof RangeError)) throw error
    throw new ServiceError("BAD_ARGUMENT", `JSON cannot say it: ${error.message}`, { cause: error })
  }
}

function parse(text) {
  return LONG.test(text) ? JSON.parse(withMarks(text), reviver) : JSON.parse(text)
}

module.exports = { parse, stringify }
