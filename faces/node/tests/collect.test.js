"use strict"

// What the garbage collector gets of a store that is closed, destroyed or forgotten: its maps, and with them its files.

const assert = require("node:assert/strict")
const { readFileSync } = require("node:fs")
const test = require("node:test")
const { setImmediate: turn } = require("node:timers/promises")
const v8 = require("node:v8")
const vm = require("node:vm")
const { folder, open, text } = require("./helpers.js")

v8.setFlagsFromString("--expose-gc")
const collect = vm.runInNewContext("gc")

const maps = (path) => readFileSync("/proc/self/maps", "latin1").split("\n").filter((line) => line.includes(path)).length

/** Waits until no file of a folder is mapped. */
async function unmapped(path) {
  for (let rounds = 0; rounds < 200 && maps(path) > 0; rounds++) {
    collect()
    await turn()
  }
  return maps(path) === 0
}

/** A store in which somebody waited for an entry, and for the disk. */
async function waited(path) {
  const store = open(path)
  const log = store.log("a")
  const tail = log.tail()
  const next = tail.next()
  await log.append("x")
  assert.equal(text((await next).value.data), "x")
  await tail.return()
  assert.ok(maps(path) > 0)
  return store
}

for (const how of ["close", "destroy"]) {
  test(`a store leaves no map behind: ${how}`, async (context) => {
    const path = `${folder(context)}/store`
    await (async () => (await waited(path))[how]())()
    assert.ok(await unmapped(path), `${maps(path)} maps are left`)
  })
}

test("a store that is forgotten is closed, and can be opened anew", async (context) => {
  const path = `${folder(context)}/store`
  await (async () => void (await waited(path)))()
  assert.ok(await unmapped(path), `${maps(path)} maps are left`)
  const again = open(path)
  assert.deepEqual([...again.log("a").query()].map(({ data }) => text(data)), ["x"])
  await again.close()
})

test("an append that nobody but its waiter has lasts all the same", async (context) => {
  const path = folder(context)
  const appended = open(path).log("a").append("kept")
  for (let rounds = 0; rounds < 10; rounds++) collect()
  assert.equal(await appended, 0)
})

test("a tail that nobody but its loop has is woken all the same", async (context) => {
  const path = folder(context)
  const store = open(path)
  const read = (async () => {
    for await (const entry of store.log("a").tail()) return text(entry.data)
  })()
  for (let rounds = 0; rounds < 10; rounds++) {
    collect()
    await turn()
  }
  store.log("a").appendSync("woken")
  assert.equal(await read, "woken")
  await store.close()
})
