"use strict"

// Programs that serve: slow to start, dying, wedged, missing, started again, and ended with the thread that started them.

const assert = require("node:assert/strict")
const { execFile, spawn: start } = require("node:child_process")
const { existsSync, readFileSync, readdirSync, writeFileSync } = require("node:fs")
const { join } = require("node:path")
const test = require("node:test")
const { promisify } = require("node:util")
const {
  Client, HOME, SpawnError, after, bytes, echo, endpoint, failure, folder, serve, spawn, text,
} = require("./service-helpers.js")
const binding = require(join(HOME, "../../binding.js"))

// As long as a busy machine may take: the tests' own time is the only limit where none is tested.
const PATIENT = { readyWithinMs: 600_000, stopWithinMs: 600_000 }

const soon = () => new Promise((resolve) => setTimeout(resolve, 10))

/** A program in a folder of its own that has `Server`, `path` and `home`. */
function program(context, source) {
  const home = folder(context)
  const path = join(home, "a.sock")
  const file = join(home, "program.js")
  writeFileSync(file, `
    const { Server } = require(${JSON.stringify(HOME)})
    const path = ${JSON.stringify(path)}
    const home = ${JSON.stringify(home)}
    const echo = (frame, reply) => reply.end(frame)
    const serve = async () => {
      const server = await Server.listen(path, echo)
      process.on("SIGTERM", () => server.close())
    }
    ${source}`)
  return { home, path, file }
}

async function begin(context, source, options = {}) {
  const { home, path, file } = program(context, source)
  const logFile = join(home, "log")
  const spawned = await spawn(process.execPath, [file], { endpoint: path, logFile, ...PATIENT, ...options })
  after(context, () => spawned.close())
  return { spawned, path, home, logFile }
}

async function says(path, word) {
  const client = await Client.connect(path)
  assert.equal(text(await client.call(bytes(word))), word)
  client.close()
}

const isAlive = (pid) => {
  try {
    // A zombie is nobody.
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "latin1"))
  } catch {
    return false
  }
}

/** Whether a process runs a file, which no other process names. */
const runs = (file) =>
  readdirSync("/proc").some((name) => {
    if (!/^[0-9]+$/.test(name) || Number(name) === process.pid) return false
    try {
      return readFileSync(`/proc/${name}/cmdline`, "latin1").split("\0").includes(file)
    } catch {
      return false
    }
  })

test("a slow start is waited for", async (context) => {
  const { spawned, path } = await begin(context, `setTimeout(serve, 200)`)
  await says(path, "hello")
  const { pid } = spawned
  assert.deepEqual(await spawned.close(), { code: 0, signal: null })
  assert.equal(isAlive(pid), false)
  assert.equal(existsSync(path), false)
})

test("one that dies says how, with the end of its log", async (context) => {
  const error = await failure(begin(context, `console.error("no licence"); process.exit(7)`))
  assert.ok(error instanceof SpawnError)
  assert.deepEqual([error.code, error.retry, error.exitCode, error.signal], ["DIED", "safe", 7, null])
  assert.match(error.message, /exit code 7/)
  assert.match(error.logTail, /no licence/)
  const killed = await failure(begin(context, `process.kill(process.pid, "SIGKILL"); setInterval(() => {}, 1000)`))
  assert.deepEqual([killed.code, killed.exitCode, killed.signal], ["DIED", null, "SIGKILL"])
})

test("of its log an error says what this one wrote, from the beginning of a line", async (context) => {
  const logFile = join(folder(context), "log")
  writeFileSync(logFile, "said by the one before\n")
  const ends = (source) => failure(begin(context, source, { logFile }))
  const silent = await ends(`process.exit(7)`)
  assert.deepEqual([silent.code, silent.logTail], ["DIED", ""])
  const line = `${"é".repeat(999)}|`
  const wordy = await ends(`for (let n = 0; n < 5; n++) console.log(${JSON.stringify(line)}); process.exit(7)`)
  assert.equal(wordy.logTail, `${line}\n${line}`)
})

test("another server at its endpoint is not taken for it", async (context) => {
  const { home, path, file } = program(context, `require("node:fs").writeFileSync(home + "/begun", ""); serve()`)
  const server = await serve(context, path, echo)
  const error = await failure(spawn(process.execPath, [file], { endpoint: path, ...PATIENT }))
  assert.deepEqual([error.name, error.code, error.retry], ["SpawnError", "ADDRESS_IN_USE", "never"])
  assert.equal(existsSync(join(home, "begun")), false)
  await server.close()
  const spawned = await spawn(process.execPath, [file], { endpoint: path, ...PATIENT })
  await spawned.close()
})

test("one that dies is started again once what it left has let go of its endpoint", async (context) => {
  const { spawned, path } = await begin(context, "serve()", { respawn: { limit: 3, firstMs: 1 } })
  const { isEndpointTaken } = binding
  after(context, () => (binding.isEndpointTaken = isEndpointTaken))
  let asked = 0
  binding.isEndpointTaken = (path) => ++asked < 3 || isEndpointTaken(path)
  process.kill(spawned.pid, "SIGKILL")
  while (spawned.respawns < 1) await soon()
  assert.equal(asked, 3)
  await says(path, "again")
})

test("no program is spoken to over this one's own standard input and output", async () => {
  const error = await failure(spawn("/bin/cat", [], { endpoint: "-", readyWithinMs: 100 }))
  assert.deepEqual([error.name, error.code], ["ServiceError", "BAD_ARGUMENT"])
})

test("one that may not be ended is no mystery", async (context) => {
  const { startProgram } = binding
  after(context, () => (binding.startProgram = startProgram))
  let child
  // As of a program that has become another user's.
  const refuse = () => {
    throw new Error(JSON.stringify({ code: "SYSTEM", message: "Operation not permitted" }))
  }
  binding.startProgram = (...given) => {
    child = startProgram(...given)
    return {
      id: () => child.id(), watch: (ended) => child.watch(ended), ended: () => child.ended(), logTail: () => "",
      terminate: refuse, kill: refuse,
    }
  }
  const { path, file } = program(context, "serve()")
  const spawned = await spawn(process.execPath, [file], { endpoint: path, ...PATIENT })
  const error = await failure(spawned.close())
  child.kill()
  assert.deepEqual([error.name, error.code, error.message], ["ServiceError", "SYSTEM", "Operation not permitted"])
})

test("a signal that has no name has its number", async (context) => {
  const killed = await failure(spawn("/bin/sh", ["-c", "kill -34 $$"], { endpoint: endpoint(context), ...PATIENT }))
  assert.deepEqual([killed.code, killed.exitCode, killed.signal], ["DIED", null, "SIG34"])
  assert.match(killed.message, /by SIG34/)
})

test("one whose end nobody knows says so", async (context) => {
  // Node.js takes back that it ignores SIGCHLD when it begins, and waits for none but its own: what the native side says then is said
  // in its place.
  const { startProgram } = binding
  after(context, () => (binding.startProgram = startProgram))
  binding.startProgram = (...given) => {
    const child = startProgram(...given)
    return { id: () => child.id(), watch: (ended) => child.watch(ended), ended: () => child.ended() && {}, logTail: () => "" }
  }
  const lost = await failure(spawn("/bin/true", [], { endpoint: endpoint(context), ...PATIENT }))
  assert.deepEqual([lost.code, lost.retry, lost.exitCode, lost.signal], ["DIED", "safe", null, null])
  assert.match(lost.message, /nobody knows: this process ignores SIGCHLD, or waits elsewhere for all its children/)
})

test("one that never answers is asked to end, and then ended", async (context) => {
  const wedged = "setInterval(() => {}, 1000)"
  const ends = async (source) => {
    const { path, file } = program(context, source)
    // Time to begin, which a busy machine may not give: what has not begun to hear of TERM is ended all the same.
    const options = { endpoint: path, readyWithinMs: 10_000, stopWithinMs: 50 }
    const error = await failure(spawn(process.execPath, [file], options))
    assert.deepEqual([error.code, error.retry], ["WEDGED", "safe"])
    assert.equal(runs(file), false)
  }
  await Promise.all([wedged, `process.on("SIGTERM", () => {}); ${wedged}`].map(ends))
})

test("a program that is missing, or none", async (context) => {
  const home = folder(context)
  writeFileSync(join(home, "text"), "words")
  for (const name of ["/nowhere/at/all", join(home, "text")]) {
    const error = await failure(spawn(name, [], { endpoint: join(home, "a.sock") }))
    assert.deepEqual([error.name, error.code, error.retry], ["SpawnError", "NO_PROGRAM", "never"])
  }
})

test("one that dies later is started again, and clients go on", async (context) => {
  const { spawned, path } = await begin(context, "serve()", { respawn: { firstMs: 1 } })
  const client = await Client.connect(path, { reconnect: true })
  after(context, () => client.close())
  for (let n = 1; n <= 3; n++) {
    const { pid } = spawned
    process.kill(pid, "SIGKILL")
    while (spawned.respawns < n) await soon()
    await spawned.ready
    assert.notEqual(spawned.pid, pid)
    await client.call(bytes("lost")).catch(() => {})
    assert.equal(text(await client.call(bytes("again"))), "again")
  }
})

test("one that keeps dying is given up", async (context) => {
  const source = `
    const fs = require("node:fs")
    if (fs.existsSync(home + "/once")) process.exit(3)
    fs.writeFileSync(home + "/once", "")
    serve()`
  let told
  const gone = new Promise((resolve) => (told = resolve))
  const { spawned } = await begin(context, source, { respawn: { limit: 2, firstMs: 1 }, onGone: told })
  process.kill(spawned.pid, "SIGKILL")
  const error = await gone
  assert.deepEqual([error.code, error.exitCode, spawned.respawns], ["DIED", 3, 0])
  assert.equal(await failure(spawned.ready), error)
})

test("without respawn a caller that asks is told", async (context) => {
  let told
  const gone = new Promise((resolve) => (told = resolve))
  const { spawned } = await begin(context, "serve()", { onGone: told })
  process.kill(spawned.pid, "SIGKILL")
  assert.equal((await gone).signal, "SIGKILL")
  assert.equal((await failure(spawned.ready)).code, "DIED")
})

test("one that ignores TERM is killed when it is closed", async (context) => {
  const { spawned } = await begin(context, `process.on("SIGTERM", () => {}); Server.listen(path, echo)`, { stopWithinMs: 50 })
  assert.deepEqual(await spawned.close(), { code: null, signal: "SIGKILL" })
})

test("one that may take for ever to end is not killed", async (context) => {
  const source = `process.on("SIGTERM", () => setTimeout(() => process.exit(7), 200)); Server.listen(path, echo)`
  const { spawned } = await begin(context, source, { stopWithinMs: Infinity })
  assert.deepEqual(await spawned.close(), { code: 7, signal: null })
})

test("a clock that is set does not make one that keeps dying look sound", async (context) => {
  const source = `
    const fs = require("node:fs")
    if (!fs.existsSync(home + "/once")) serve()
    fs.writeFileSync(home + "/once", "")`
  const { now } = Date
  after(context, () => (Date.now = now))
  let told
  const gone = new Promise((resolve) => (told = resolve))
  const { spawned } = await begin(context, source, { respawn: { limit: 1, firstMs: 1 }, onGone: told })
  spawned.tries = 1
  Date.now = () => now() + 3_600_000
  process.kill(spawned.pid, "SIGKILL")
  assert.equal((await gone).signal, "SIGKILL")
  assert.deepEqual([spawned.tries, spawned.respawns], [1, 0])
})

test("it ends with the thread that started it", async (context) => {
  const { path, file } = program(context, "serve()")
  const source = `
    const { spawn } = require(${JSON.stringify(HOME)})
    spawn(process.execPath, [${JSON.stringify(file)}], { endpoint: ${JSON.stringify(path)}, readyWithinMs: 600_000 }).then((spawned) => {
      console.log(spawned.pid)
      HOW
    })`
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", source.replace("HOW", "process.exit()")])
  while (isAlive(Number(stdout))) await soon()
  // Killed, it can say nothing to anybody: the kernel has to.
  const parent = start(process.execPath, ["-e", source.replace("HOW", "")], { stdio: ["ignore", "pipe", "inherit"] })
  const pid = await new Promise((resolve) => parent.stdout.once("data", (data) => resolve(Number(data))))
  assert.ok(isAlive(pid))
  parent.kill("SIGKILL")
  while (isAlive(pid)) await soon()
})

test("a signal ends a program that does not answer yet, and means nothing to one that does", async (context) => {
  const controller = new AbortController()
  const { signal } = controller
  const { spawned, path } = await begin(context, "serve()", { signal })
  const { home, path: quiet, file } = program(context, `
    require("node:fs").writeFileSync(home + "/begun", String(process.pid))
    require("node:fs").renameSync(home + "/begun", home + "/pid")
    setInterval(() => {}, 1000)`)
  const given = failure(spawn(process.execPath, [file], { endpoint: quiet, signal, readyWithinMs: 600_000 }))
  while (!existsSync(join(home, "pid"))) await soon()
  const reason = new Error("enough")
  controller.abort(reason)
  assert.equal(await given, reason)
  assert.throws(() => process.kill(Number(readFileSync(join(home, "pid"), "utf8")), 0), { code: "ESRCH" })
  const client = await Client.connect(path)
  client.close()
  assert.equal(spawned.respawns, 0)
  assert.equal(await failure(spawn(process.execPath, [file], { endpoint: quiet, signal })), reason)
  const wrong = await failure(spawn(process.execPath, [file], { endpoint: quiet, signal: {} }))
  assert.equal(wrong.code, "BAD_ARGUMENT")
})
