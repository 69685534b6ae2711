// A browser as a judge: a page from another origin follows a stream with EventSource while records are
// written, is reloaded, and sees its server killed and started again; and uses `fetch` to write and to revalidate.

import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import { chromium } from "playwright-core"
import * as harness from "./harness.js"

const { check, sleep, within } = harness
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium"
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"]
const WRITE_EVERY_MS = 8
const JSON_TYPE = { "Content-Type": "application/json" }
const TEXT_TYPE = { "Content-Type": "text/plain" }
const url = (name) => `${harness.base}/v1/stream/browser-${name}`

const pageText = readFileSync(new URL("page.html", import.meta.url))
const site = createServer((request, response) => {
  if (request.url !== "/where") return response.setHeader("Content-Type", "text/html").end(pageText)
  response.setHeader("Content-Type", "application/json").end(JSON.stringify({ stream: url("followed") }))
})
await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve))
const origin = `http://127.0.0.1:${site.address().port}`
const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS })

/** A page of a browser that remembers nothing yet, and what it complains of. */
async function open(hash = "") {
  const page = await (await browser.newContext()).newPage()
  const problems = []
  page.on("pageerror", (error) => problems.push(error))
  await page.goto(`${origin}/${hash}`)
  return { page, problems }
}

/** Writes numbered records, each until it is acknowledged; a repetition is the server's to recognise. */
function writer() {
  const state = { acknowledged: [], stopped: false }
  const append = async (n) => {
    const headers = { ...JSON_TYPE, "Producer-Id": "judge", "Producer-Epoch": "0", "Producer-Seq": `${n}` }
    const response = await fetch(url("followed"), { method: "POST", headers, body: JSON.stringify({ n }) })
    assert.ok(response.status === 200 || response.status === 204, `append ${n}: ${response.status}`)
  }
  state.ended = (async () => {
    for (let n = 0; !state.stopped; ) {
      try {
        await append(n)
        state.acknowledged.push(n++)
        await sleep(WRITE_EVERY_MS)
      } catch (error) {
        if (!(error instanceof TypeError)) throw error
        await sleep(30)
      }
    }
  })()
  state.stop = async () => {
    state.stopped = true
    await state.ended
  }
  return state
}

const shown = (page) => page.$$eval("#shown li", (items) => items.map((item) => Number(item.textContent)))

/** Waits until the page has shown everything that is acknowledged by now, and some more. */
async function caughtUp(page, writing, more = 20) {
  const least = writing.acknowledged.length + more
  const enough = (count) => document.querySelectorAll("#shown li").length >= count
  const gaveUp = writing.ended.then(() => assert.fail("the writer ended"))
  await within(50_000, Promise.race([page.waitForFunction(enough, least), gaveUp]), `${least} records on the page`)
}

/** Nothing missing, nothing twice, nothing out of order, as far as the page has got. */
function inOrder(list) {
  assert.deepEqual(list, list.map((_, n) => n))
}

let writing, followed
await check("EventSource follows from another origin", async () => {
  const created = await fetch(url("followed"), { method: "PUT", headers: JSON_TYPE })
  assert.equal(created.status, 201)
  writing = writer()
  followed = await open("#follow")
  await caughtUp(followed.page, writing)
  inOrder(await shown(followed.page))
})

await check("the ends of responses lose and double nothing", async () => {
  // The server ends a response after one to two seconds; the page goes on in the next.
  await within(50_000, followed.page.waitForFunction(() => window.openings >= 3), "a third response")
  await caughtUp(followed.page, writing)
  inOrder(await shown(followed.page))
})

await check("a reload loses and doubles nothing", async () => {
  const before = (await shown(followed.page)).length
  await followed.page.reload()
  const atOnce = await shown(followed.page)
  assert.ok(atOnce.length >= before, `${before} before, ${atOnce.length} after`)
  await caughtUp(followed.page, writing)
  inOrder(await shown(followed.page))
})

await check("a kill of the server loses and doubles nothing", async () => {
  await harness.killServer()
  await sleep(200)
  await harness.startServer()
  await caughtUp(followed.page, writing)
  inOrder(await shown(followed.page))
})

await check("nor does a reload while there is no server", async () => {
  await harness.killServer()
  await followed.page.reload()
  await sleep(300)
  await harness.startServer()
  await caughtUp(followed.page, writing)
  inOrder(await shown(followed.page))
})

await check("a second page catches up and follows, and both see the end", async () => {
  const second = await open("#follow")
  await caughtUp(second.page, writing)
  await writing.stop()
  const closed = await fetch(url("followed"), { method: "POST", headers: { "Stream-Closed": "true" } })
  assert.equal(closed.status, 204)
  for (const { page, problems } of [followed, second]) {
    const ended = () => document.body.dataset.closed === "true"
    await within(50_000, page.waitForFunction(ended), "the end on the page")
    assert.deepEqual(await shown(page), writing.acknowledged)
    assert.deepEqual(problems, [])
  }
  console.log(`${writing.acknowledged.length} records on two pages`)
})

const { page } = await open()

/** `fetch` in the page: status, text, and those headers that a page from another origin may read. */
const fetched = (target, options = {}) => page.evaluate(async ([target, options]) => {
  const response = await fetch(target, options)
  return { status: response.status, text: await response.text(), headers: Object.fromEntries(response.headers) }
}, [target, options])

const put = (name, body, more) => fetched(url(name), { method: "PUT", headers: { ...TEXT_TYPE, ...more }, body })
const post = (name, body, more) => fetched(url(name), { method: "POST", headers: { ...TEXT_TYPE, ...more }, body })

await check("a page writes, and reads what its headers say", async () => {
  const created = await put("page", "one")
  assert.deepEqual([created.status, created.headers.location], [201, url("page")])
  const producer = { "Stream-Seq": "1", "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0" }
  const append = () => post("page", " two", producer)
  const appended = await append()
  assert.deepEqual([appended.status, appended.headers["producer-seq"]], [200, "0"])
  assert.equal((await append()).status, 204)
  const read = await fetched(url("page"))
  const next = appended.headers["stream-next-offset"]
  assert.deepEqual([read.status, read.text], [200, "one two"])
  assert.deepEqual([read.headers["stream-next-offset"], read.headers["stream-up-to-date"]], [next, "true"])
  assert.ok(read.headers.etag, "no ETag is readable")
  const head = await fetched(url("page"), { method: "HEAD" })
  assert.deepEqual([head.status, head.headers["stream-next-offset"]], [200, next])
  const polled = await fetched(`${url("page")}?offset=${next}&live=long-poll`)
  assert.deepEqual([polled.status, polled.headers["stream-next-offset"]], [204, next])
  assert.ok(polled.headers["stream-cursor"], "no cursor is readable")
})

await check("refusals are readable from another origin", async () => {
  const missing = await fetched(url("missing"))
  assert.deepEqual([missing.status, JSON.parse(missing.text).status], [404, 404])
  await put("page-closed", "all", { "Stream-Closed": "true" })
  const late = await post("page-closed", "late")
  assert.deepEqual([late.status, late.headers["stream-closed"]], [409, "true"])
  assert.equal((await fetched(url("page-closed"), { method: "DELETE" })).status, 204)
  assert.equal((await fetched(url("page-closed"), { cache: "no-store" })).status, 404)
})

await check("the page revalidates with an ETag", async () => {
  await put("etag", "one")
  const first = await fetched(url("etag"), { cache: "no-store" })
  const again = () => fetched(url("etag"), { cache: "no-store", headers: { "If-None-Match": first.headers.etag } })
  const unchanged = await again()
  assert.deepEqual([unchanged.status, unchanged.text], [304, ""])
  await post("etag", " two")
  const changed = await again()
  assert.deepEqual([changed.status, changed.text], [200, "one two"])
  assert.notEqual(changed.headers.etag, first.headers.etag)
})

await check("the browser's own cache revalidates", async () => {
  await put("cache", "one")
  const network = await page.context().newCDPSession(page)
  const statuses = []
  await network.send("Network.enable")
  network.on("Network.responseReceivedExtraInfo", ({ statusCode }) => statuses.push(statusCode))
  const read = async () => (await fetched(url("cache"), { cache: "no-cache" })).text
  assert.deepEqual([await read(), await read()], ["one", "one"])
  await post("cache", " two")
  assert.equal(await read(), "one two")
  assert.deepEqual(statuses, [200, 304, 204, 200])
  await network.detach()
})

/** The `data` of a closed stream's events, one after the other, as EventSource gives it. */
const events = (name) => page.evaluate((target) => new Promise((resolve, reject) => {
  const source = new EventSource(`${target}?offset=-1&live=sse`)
  const data = []
  source.addEventListener("data", (event) => data.push(event.data))
  source.addEventListener("control", (event) => {
    if (!JSON.parse(event.data).streamClosed) return
    source.close()
    resolve(data)
  })
  source.addEventListener("error", () => (source.close(), reject(new Error("it ended before the stream did"))))
}), url(name))

await check("EventSource left to itself hears everything once, and asks no more at the end", async () => {
  await put("alone", "first")
  const heard = page.evaluate((target) => new Promise((resolve) => {
    const source = new EventSource(`${target}?offset=-1&live=sse`)
    const data = []
    let openings = 0
    source.addEventListener("open", () => (openings += 1))
    source.addEventListener("data", (event) => data.push(event.data))
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) resolve({ data, openings })
    })
  }), url("alone"))
  // The server ends a response after one to two seconds, and the browser waits for some before it asks again.
  await sleep(6_000)
  await post("alone", "second")
  await post("alone", "third", { "Stream-Closed": "true" })
  const { data, openings } = await within(50_000, heard, "the end of the source")
  assert.equal(data.join(""), "firstsecondthird")
  assert.ok(openings >= 2, `${openings} responses`)
})

await check("a stream that is opened as a page is a page of no origin", async () => {
  const script = "<title>quiet</title><script>document.title = origin</script>"
  assert.equal((await put("page.html", script, { "Content-Type": "text/html" })).status, 201)
  const opened = await (await browser.newContext()).newPage()
  await opened.goto(url("page.html"))
  assert.equal(await opened.title(), "quiet")
  await opened.close()
})

await check("EventSource reads lines as they were written", async () => {
  const text = "one\n\n  indented\ndata: no field\n: no comment\n\u{1f30d}\u2028\n"
  await put("lines", text, { "Stream-Closed": "true" })
  assert.equal((await events("lines")).join(""), text)
})

await check("EventSource reads bytes as base64", async () => {
  const bytes = Uint8Array.from({ length: 1000 }, (_, n) => (n * 31) ^ (n >> 3))
  const headers = { "Content-Type": "application/octet-stream", "Stream-Closed": "true" }
  await fetch(url("bytes"), { method: "PUT", headers, body: bytes })
  const data = await events("bytes")
  assert.ok(Buffer.concat(data.map((text) => Buffer.from(text, "base64"))).equals(Buffer.from(bytes)))
})

await check("EventSource gives up on a stream that is not there", async () => {
  const state = await page.evaluate((target) => new Promise((resolve) => {
    const source = new EventSource(`${target}?offset=-1&live=sse`)
    source.addEventListener("error", () => resolve(source.readyState))
  }), url("missing"))
  assert.equal(state, 2)
})

await check("what the README has a newcomer try, in a tab at the server", async () => {
  const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8")
  const [, program] = readme.match(/```js\n(const url = [^]*?)```/)
  await put("readme", "first line\n")
  const tab = await (await browser.newContext()).newPage()
  const heard = tab.waitForEvent("console", { predicate: (line) => line.text() === "first line\n", timeout: 50_000 })
  await tab.goto(`${harness.base}/healthz`)
  await tab.addScriptTag({ content: program.replace(/"http.*"/, JSON.stringify(url("readme"))) })
  await heard
  const goesOnFrom = tab.waitForFunction(() => localStorage.getItem("hello"))
  await within(50_000, goesOnFrom, "the offset to go on from")
  await tab.close()
})

await browser.close()
harness.done()
