"use strict"

const assert = require("node:assert/strict")
const { join } = require("node:path")
const { test } = require("node:test")

const home = process.env.THALWEG_PACKAGE ?? join(__dirname, "..")
const { parse, stringify } = require(join(home, "lib/rpc/json.js"))

test("every number comes back as it was, whatever stands beside it", () => {
  for (let round = 0; round < 20_000; round += 1) {
    const float = Math.random()
    const integer = BigInt(Math.floor(float * 2 ** 52)) * 4099n + 2n ** 60n
    const values = [float, -float, float * 1e300, float * 1e-300, integer, -integer, Number.MAX_SAFE_INTEGER]
    assert.deepEqual(parse(stringify(values)), values)
  }
  const text = '{"9007199254740993":9007199254740993,"a":[1234567890123456789.5,12345678901234567890e-3,-9007199254740993]}'
  assert.deepEqual(parse(text), {
    "9007199254740993": 9007199254740993n,
    a: [1234567890123456789.5, 12345678901234567890e-3, -9007199254740993n],
  })
})

// Many programs give BigInts a toJSON, because JSON.stringify throws without one.
test("integers stay integers in a program whose BigInts become strings in JSON", (context) => {
  BigInt.prototype.toJSON = function () {
    return String(this)
  }
  context.after(() => delete BigInt.prototype.toJSON)
  assert.equal(stringify({ n: 2n ** 63n, list: [1n, -5n] }), '{"n":9223372036854775808,"list":[1,-5]}')
  assert.equal(stringify(new Map([["n", 7n]])), '{"n":7}')
})

test("floats that JSON has no number for go as the words that services take for them", () => {
  const text = stringify({ a: NaN, b: [Infinity, -Infinity], c: "NaN" })
  assert.equal(text, '{"a":"NaN","b":["Infinity","-Infinity"],"c":"NaN"}')
})

test("strings of any length and content are passed over", () => {
  for (const content of ["x", "\n", '"', "\\", '"9007199254740993', "é", "\u2028"]) {
    const value = { before: 2n ** 64n - 1n, text: content.repeat((8 << 20) / content.length), behind: [2n ** 63n] }
    assert.deepEqual(parse(stringify(value)), value)
  }
})

test("what is no JSON stays none", () => {
  const texts = ['{"x":9007199254740993', '["9007199254740993', "[9007199254740993 1]", "[09007199254740993]"]
  for (const text of [...texts, "[9007199254740993-1]", "[--9007199254740993]", "9007199254740993\\"]) {
    assert.throws(() => parse(text), SyntaxError, text)
  }
})

test("a Map goes as an object, and what JSON would show nothing of is refused", () => {
  assert.equal(stringify({ a: new Map([["b", 1n], ["c", new Map([["d", Uint8Array.of(1)]])]]) }), '{"a":{"b":1,"c":{"d":"AQ=="}}}')
  assert.equal(stringify({ at: new Date(0) }), '{"at":"1970-01-01T00:00:00.000Z"}')
  for (const value of [new Set([1]), new ArrayBuffer(1), new Float64Array(1), new DataView(new ArrayBuffer(1)), /x/]) {
    assert.throws(() => stringify({ value }), { name: "ServiceError", code: "BAD_ARGUMENT" })
  }
})

test("what a value throws while it is asked what it becomes is the cause, or comes as it is", () => {
  const thrown = (value) => {
    try {
      stringify(value)
    } catch (error) {
      return error
    }
    return assert.fail("it is said")
  }
  const circle = {}
  circle.circle = circle
  for (const [kind, value] of [
    [TypeError, circle], [TypeError, { toJSON: () => undefined.x }], [TypeError, { get x() { return undefined.x } }],
    [RangeError, { toJSON: () => "x".repeat(-1) }],
  ]) {
    const error = thrown({ value })
    assert.deepEqual([error.name, error.code], ["ServiceError", "BAD_ARGUMENT"])
    assert.ok(error.cause instanceof kind, String(error.cause))
    assert.equal(error.message, `JSON cannot say it: ${error.cause.message}`)
  }
  const own = new Error("own")
  assert.equal(thrown({ toJSON() { throw own } }), own)
})
