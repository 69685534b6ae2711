// The generated TypeScript against the golden frames; `crates/codegen/tests/golden.rs` says what is judged and why.
// Arguments: the directory of frames, and the file that takes what became of each frame.

import { deepStrictEqual, match, ok, rejects, strictEqual, throws } from "node:assert/strict";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { EchoClient, EchoSyncClient } from "../../../schemas/generated/ts/echo_client.js";
import { dispatchUnordered, service as echoService } from "../../../schemas/generated/ts/echo_server.js";
import type { EchoHandler } from "../../../schemas/generated/ts/echo_server.js";
import * as echo from "../../../schemas/generated/ts/echo_types.js";
import { DecodeError, EncodeError, Reader } from "../../../schemas/generated/ts/messagepack.js";
import { Forks, Refused } from "../../../schemas/generated/ts/service.js";
import type { Access, Transport } from "../../../schemas/generated/ts/service.js";

const [directory = "", outcomesPath = ""] = process.argv.slice(2);
let passed = 0;
let failed = 0;

async function check(name: string, judge: () => void | Promise<void>): Promise<void> {
  try {
    await judge();
    passed++;
  } catch (error) {
    failed++;
    console.error(`  FAILED: ${name}: ${error instanceof Error ? error.stack : error}`);
  }
}

function frames(path: string): Map<string, Uint8Array> {
  const names = readdirSync(path).filter((name) => name.endsWith(".bin")).sort();
  return new Map(names.map((name) => [name.slice(0, -4), new Uint8Array(readFileSync(join(path, name)))]));
}

function again(frame: Uint8Array): Uint8Array {
  if (frame[0] === 0x91) return echo.encodeRequest(echo.decodeRequest(frame));
  return echo.encodeResponse(echo.decodeResponse(frame));
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

let state = 0x7ea19e65;
function below(bound: number): number {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % bound;
}

function mutate(all: Uint8Array[]): Uint8Array {
  const frame = [...(all[below(all.length)] as Uint8Array)];
  const edits = below(2);
  for (let n = 0; n <= edits; n++) {
    const what = below(8);
    const at = below(frame.length);
    const byte = below(256);
    if (what === 0) frame.splice(at, 1);
    else if (what === 1) frame.splice(at, 0, byte);
    else if (what === 2) frame[at] = byte;
    else frame[at] = (frame[at] as number) ^ (1 << (byte & 7));
  }
  return Uint8Array.from(frame);
}

const golden = frames(directory);
const named = (name: string): Uint8Array => golden.get(name) as Uint8Array;

for (const [name, frame] of golden) {
  await check(name, () => strictEqual(hex(again(frame)), hex(frame)));
  await check(`every prefix of ${name}`, () => {
    for (let length = 0; length < frame.length; length++) {
      throws(() => again(frame.subarray(0, length)), DecodeError, `cut at ${length}`);
    }
  });
}
for (const [name, frame] of frames(join(directory, "accepted"))) {
  await check(name, () => strictEqual(hex(again(frame)), hex(named(name.split(".")[0] as string))));
}
for (const [name, frame] of frames(join(directory, "refused"))) {
  await check(`refused ${name}`, () => throws(() => again(frame), DecodeError));
}
await check("what is wrong is placed by its name on the wire", () => {
  const placed = (frame: Uint8Array, place: string, reason: string, at: number) =>
    throws(() => again(frame), { place, reason, at });
  const head = "\x91\x92\xaaEchoPlaces\x82\xa6places\x91\x83\xa4name\xa0";
  const frame = (rest: string) => Buffer.from(head + rest, "latin1");
  // An enum's word, by its field and where it begins.
  placed(frame("\xa5moods\x81\xa1a\xa4glad"), "Place.moods", "a word the enum does not have", 38);
  // The struct, behind a field that holds another.
  placed(frame("\xa5inner\x81\xa6values\x90\x07"), "Place", "expected a string, found byte 0x07", 44);
  throws(() => again(frames(join(directory, "refused")).get("trailing_byte") as Uint8Array), { place: "frame" });
  throws(() => again(Buffer.from("\x91\x92\xabEchoAliases\x80", "latin1")), { place: "EchoAliases.sequenceNumber" });
});

/** A struct of optional fields is one byte on the wire, and so is a map. */
await check("what reading holds in memory is bounded by the frame", () => {
  const reads: [number, (reader: Reader) => unknown][] = [
    [0x80, (reader) => reader.fields("Wide", 40)],
    [0x80, (reader) => reader.map(1, (inner) => inner.u8())],
  ];
  for (const [byte, read] of reads) {
    const frame = (count: number) => {
      const bytes = new Uint8Array(5 + count).fill(byte);
      bytes[0] = 0xdd;
      new DataView(bytes.buffer).setUint32(1, count);
      return new Reader(bytes);
    };
    strictEqual(frame(10_000).list(1, read).length, 10_000);
    throws(() => frame(4_000_000).list(1, read), { reason: "values that take too much memory for such a frame" });
  }
});

await check("a name longer than any that is declared is passed over", () => {
  const bytes = new Uint8Array(5 + (16 << 20)).fill(0x61);
  bytes[0] = 0xdb;
  new DataView(bytes.buffer).setUint32(1, 16 << 20);
  strictEqual(new Reader(bytes).key(), "");
  const longest = Uint8Array.of(0xd9, 255, ...new Array<number>(255).fill(0x61));
  strictEqual(new Reader(longest).key(), "a".repeat(255));
});

await check("mutations", () => {
  const outcomes: string[] = [];
  const all = [...golden.values()];
  const mutated = Array.from({ length: 10_000 }, () => mutate(all));
  for (const frame of [...frames(join(directory, "refused")).values(), ...mutated]) {
    try {
      const back = again(frame);
      strictEqual(hex(again(back)), hex(back));
      outcomes.push(hex(back));
    } catch (error) {
      ok(error instanceof DecodeError, `${hex(frame)}: ${error}`);
      outcomes.push(`- ${error.place} ${error.at}`);
    }
  }
  writeFileSync(outcomesPath, outcomes.map((line) => `${line}\n`).join(""));
});

await check("values are what the frames say", () => {
  const value: echo.EchoNumbersResponse = {
    tiny: 127, small: 128, medium: 256, large: 65_536n,
    signedTiny: -128, signedSmall: -32_768, signedMedium: -2_147_483_648, signedLarge: -9_223_372_036_854_775_808n,
    single: -1.5, precise: -Math.PI,
  };
  strictEqual(hex(echo.encodeResponse({ tag: "EchoNumbersResponse", value })), hex(named("echo_numbers_min")));
  const places = echo.decodeRequest(named("echo_places_request"));
  ok(places.tag === "EchoPlaces");
  strictEqual(places.value.places[0]?.moods.get("tuesday"), "in-a-hurry");
  deepStrictEqual(places.value.grid, [[1, undefined], [-32_768, -1], [32_767, -32]]);
  strictEqual(places.value.counts.get("\u{10000}"), 256n);
});

await check("values that do not fit are refused", () => {
  const numbers = {
    tiny: 1, small: 1, medium: 1, large: 1n, signedTiny: 1, signedSmall: 1, signedMedium: 1, signedLarge: 1n, single: 1, precise: 1,
  };
  const fields = { count: 1.5, total: 0n, name: "" };
  throws(() => echo.encodeRequest({ tag: "EchoFields", value: fields }), EncodeError);
  throws(() => echo.encodeRequest({ tag: "EchoFields", value: { ...fields, count: 1, total: 1n << 64n } }), EncodeError);
  throws(() => echo.encodeRequest({ tag: "EchoBlobs", value: { parts: [] } }), EncodeError);
  // What no compiler looked at.
  const wrong: [string, echo.EchoRequest["tag"], object | null, RegExp][] = [
    ["a null for a struct", "EchoFields", null, /^message: null is no object$/],
    ["nothing for a string", "EchoFields", { count: 1, total: 1n }, /^EchoFields\.name: undefined is no string$/],
    ["a string for a u32", "EchoFields", { count: "5", total: 1n, name: "" }, /^EchoFields\.count: "5" is no integer from 0 to 4294967295$/],
    ["a number for a u64", "EchoFields", { count: 5, total: 1, name: "" }, /^EchoFields\.total: 1 is no bigint/],
    ["a string for bytes", "EchoBytes", { data: "ab" }, /^EchoBytes\.data: "ab" is no Uint8Array$/],
    ["an array for bytes", "EchoBytes", { data: [1, 2] }, /^EchoBytes\.data: a value of Array is no Uint8Array$/],
    ["a string for a list", "EchoPlaces", { places: "ab" }, /^EchoPlaces\.places: "ab" is no array$/],
    // Behind a struct, by the field of the list that both stand in.
    ["a number for a struct", "EchoPlaces", { places: [{ name: "", moods: new Map() }, 5] }, /^EchoPlaces\.places: 5 is no object$/],
    ["a word of no enum", "EchoPlaces", { places: [{ name: "", moods: new Map([["now", "glad"]]) }] },
      /^Place\.moods: "glad" is no word of calm, in-a-hurry, lost$/],
    ["an object for a map", "EchoPlaces", { places: [{ name: "", moods: { now: "calm" } }] },
      /^Place\.moods: a value of Object is no Map$/],
    // Each alone would be read as the same key, and both together as one that is there twice.
    ["half a character for a key", "EchoPlaces", { places: [{ name: "", moods: new Map([["\ud800", "calm"], ["\ud801", "lost"]]) }] },
      /^Place\.moods: "\\ud800" is no string: UTF-8 has no lone surrogate$/],
    ["half a character", "EchoFail", { reason: "a \udc00 b" }, /^EchoFail\.reason: "a \\udc00 b" is no string: UTF-8 has no lone surrogate$/],
    ["a string for an i64", "EchoNumbers", { ...numbers, signedLarge: "5" }, /^EchoNumbers\.signedLarge: "5" is no bigint/],
    ["a string for an f64", "EchoNumbers", { ...numbers, precise: "5" }, /^EchoNumbers\.precise: "5" is no number$/],
    ["too much for an f32", "EchoNumbers", { ...numbers, single: 1e300 }, /^EchoNumbers\.single: 1e\+300 is no 32-bit float$/],
  ];
  for (const [what, tag, value, message] of wrong) {
    throws(() => echo.encodeRequest({ tag, value } as echo.EchoRequest), (error) => {
      ok(error instanceof EncodeError, what);
      match(error.message, message);
      strictEqual(error.retry, "never");
      return true;
    }, what);
  }
  throws(() => echo.encodeRequest({ tag: "EchoNothing", value: {} } as unknown as echo.EchoRequest), EncodeError);
  throws(() => echo.toDigest(new Uint8Array(31)), RangeError);
});

const service: EchoHandler = {
  bytes: ({ data }) => ({ data }),
  fields: async (request) => request,
  nested: async (request) => request,
  aliases: async (request) => request,
  blobs: async (request) => request,
  fail: async ({ reason }) => { throw new Error(reason); },
  numbers: async (request) => request,
  places: async (request) => request,
  async *count({ first, last }) {
    for (let value = first; value <= last; value++) yield { value };
    return { count: last - first + 1 };
  },
  put: async () => ({ version: 1n }),
  peek: async () => ({}),
  peekCommitted: async () => ({ value: Uint8Array.of(1) }),
};

async function carry(request: Uint8Array, handler = service): Promise<Uint8Array[]> {
  const answers: Uint8Array[] = [];
  await dispatchUnordered(handler, request, {
    signal: new AbortController().signal,
    item: async (frame) => answers.push(frame) < 5,
    end: (frame) => void answers.push(frame),
  });
  return answers;
}

await check("a service is all that a server has to know", async () => {
  const { schema, errorTag, dispatch } = echoService(service);
  strictEqual(schema, echo.SCHEMA_HASH);
  const answers: Uint8Array[] = [];
  const { signal } = new AbortController();
  await dispatch(Uint8Array.of(1), { signal, item: async () => true, end: (frame) => void answers.push(frame) });
  strictEqual(echo.decodeResponse(answers[0] as Uint8Array).tag, errorTag);
});

const transport: Transport = {
  call: async (request) => (await carry(request))[0] as Uint8Array,
  async *stream(request) { yield* await carry(request); },
};

await check("calls are answered", async () => {
  const client = new EchoClient(transport);
  deepStrictEqual(await client.bytes({ data: Uint8Array.of(1, 2) }), { data: Uint8Array.of(1, 2) });
  deepStrictEqual(await client.peekCommitted({ fork: "" }), { value: Uint8Array.of(1) });
  const error: unknown = await client.fail({ reason: "because" }).then(() => undefined, (error: unknown) => error);
  ok(error instanceof Refused && error.message === "because");
  const waiting = new EchoSyncClient({ call: () => named("echo_bytes_response"), stream: () => [] });
  strictEqual(waiting.bytes({ data: Uint8Array.of() }).data.length, 5);
  const [answer] = await carry(Uint8Array.of(1));
  strictEqual(echo.decodeResponse(answer as Uint8Array).tag, "EchoErrorResponse");
});

await check("streams bring items and then their end", async () => {
  const items = new EchoClient(transport).count({ first: 7, last: 8 });
  deepStrictEqual(await items.next(), { done: false, value: { value: 7 } });
  deepStrictEqual(await items.next(), { done: false, value: { value: 8 } });
  deepStrictEqual(await items.next(), { done: true, value: { count: 2 } });
  const endless = await carry(echo.encodeRequest({ tag: "EchoCount", value: { first: 0, last: 0xffffffff } }));
  strictEqual(endless.length, 6);
  strictEqual(echo.decodeResponse(endless[5] as Uint8Array).tag, "EchoErrorResponse");
});

await check("closing a stream that waits closes the transport's stream", async () => {
  for (const how of ["return", "throw"] as const) {
    let closed = 0;
    let wake: ((over: IteratorResult<Uint8Array>) => void) | undefined;
    const over: IteratorResult<Uint8Array> = { done: true, value: undefined };
    const never: AsyncIterableIterator<Uint8Array> = {
      [Symbol.asyncIterator]: () => never,
      next: () => new Promise((resolve) => { wake = resolve; }),
      return: async () => {
        closed++;
        wake?.(over);
        return over;
      },
    };
    const items = new EchoClient({ ...transport, stream: () => never }).count({ first: 1, last: 2 });
    const waiting = items.next();
    const closing = items[how](undefined as never).catch(() => over);
    strictEqual(closed, 1);
    deepStrictEqual(await waiting, over);
    ok((await closing).done);
    strictEqual(closed, 1);
  }
});

await check("what a stream is asked is checked as it is called", () => {
  throws(() => new EchoClient(transport).count({ first: -1, last: 0 }), { place: "EchoCount.first" });
  const sync = new EchoSyncClient({ call: () => Uint8Array.of(), stream: () => [] });
  throws(() => sync.count({ first: -1, last: 0 }), { place: "EchoCount.first" });
});

await check("a call that was given up while it waited is not begun", async () => {
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const slow: EchoHandler = {
    ...service,
    async put({ fork, value }) {
      begun.push(`${fork} ${value[0]}`);
      await new Promise<void>((resolve) => ends.push(resolve));
      return { version: 1n };
    },
  };
  const { dispatch } = echoService(slow);
  const put = (value: number) => {
    const given = new AbortController();
    const frame = echo.encodeRequest({ tag: "EchoPut", value: { fork: "a", value: Uint8Array.of(value) } });
    return { given, over: dispatch(frame, { signal: given.signal, item: async () => true, end: () => {} }) };
  };
  const [first, second, third] = [put(1), put(2), put(3)];
  second.given.abort();
  ends.shift()?.();
  await first.over;
  await new Promise((resolve) => setImmediate(resolve));
  deepStrictEqual(begun, ["a 1", "a 3"]);
  ends.shift()?.();
  await Promise.all([second.over, third.over]);
});

await check("a job that throws before its promise is there leaves its fork", async () => {
  const forks = new Forks();
  const access: Access = { access: "write", fork: "a" };
  await rejects(() => forks.order(access, () => { throw new Error("at once"); }), /^Error: at once$/);
  let begun = false;
  const next = forks.order(access, async () => { begun = true; });
  ok(begun, "the fork is free");
  await next;
});

await check("a call that is ordered as another begins comes behind it", async () => {
  for (const access of ["read", "write"] as const) {
    const forks = new Forks();
    const steps: string[] = [];
    let inner: Promise<void> | undefined;
    await forks.order({ access: "write", fork: "a" }, async () => {
      inner = forks.order({ access, fork: "a" }, async () => void steps.push(access));
      await new Promise((resolve) => setImmediate(resolve));
      steps.push("over");
    });
    await inner;
    deepStrictEqual(steps, ["over", access]);
  }
});

await check("only a call that waits is asked for its signal, and is not made once that is aborted", async () => {
  const forks = new Forks();
  const access = { access: "write", fork: "a" } as const;
  const made: string[] = [];
  const asked: string[] = [];
  const controller = new AbortController();
  const order = (name: string) =>
    forks.order(access, async () => void made.push(name), {
      get signal() {
        asked.push(name);
        return controller.signal;
      },
    });
  const first = order("first");
  const second = order("second");
  controller.abort(new Error("not awaited"));
  await first;
  await rejects(second, /^Error: not awaited$/);
  deepStrictEqual([made, asked], [["first"], ["second"]]);
});

await check("an error without words is told by its name", async () => {
  const wordless: EchoHandler = { ...service, async put() { throw new RangeError(); } };
  const request = echo.encodeRequest({ tag: "EchoPut", value: { fork: "a", value: Uint8Array.of() } });
  const [answer] = await carry(request, wordless);
  deepStrictEqual(echo.decodeResponse(answer as Uint8Array).value, { message: "RangeError" });
});

await check("a stream whose item cannot be written lets go of what it holds", async () => {
  let held = 0;
  const wrong: EchoHandler = {
    ...service,
    async *count() {
      held++;
      try {
        yield { value: 1 };
        yield { value: -1 };
        return { count: 2 };
      } finally {
        held--;
      }
    },
  };
  const request = echo.encodeRequest({ tag: "EchoCount", value: { first: 0, last: 1 } });
  const tags = (await carry(request, wrong)).map((frame) => echo.decodeResponse(frame).tag);
  deepStrictEqual(tags, ["EchoCountItem", "EchoErrorResponse"]);
  strictEqual(held, 0);
});

await check("requests say how they are ordered", () => {
  const value = { fork: "main", value: Uint8Array.of() };
  deepStrictEqual(echo.accessOf({ tag: "EchoPut", value }), { access: "write", fork: "main" });
  strictEqual(echo.accessOf({ tag: "EchoFail", value: { reason: "" } }), undefined);
});

await check("calls are ordered per fork", async () => {
  const forks = new Forks();
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  const begin = (name: string, access: "read committed" | "read" | "write", fork: string | bigint | Uint8Array) =>
    forks.order({ access, fork }, () => {
      begun.push(name);
      return new Promise<void>((resolve) => ends.set(name, resolve));
    });
  const all = [begin("r1", "read", "a"), begin("w1", "write", "a"), begin("r2", "read", "a"), begin("w2", "write", "a")];
  // Text is the same fork as its bytes, and a negative number as its two's complement.
  all.push(begin("r3", "read", "b"), begin("c1", "read committed", "a"), begin("w3", "write", Uint8Array.of(97)));
  all.push(begin("w4", "write", -1n), begin("w5", "write", 2n ** 64n - 1n));
  const now = async (...expected: string[]) => {
    await settled();
    deepStrictEqual(begun.splice(0), expected);
  };
  await now("r1", "r3", "c1", "w4");
  ends.get("w4")?.();
  await now("w5");
  ends.get("r1")?.();
  await now("w1");
  ends.get("w1")?.();
  await now("r2");
  ends.get("r2")?.();
  await now("w2");
  ends.get("w2")?.();
  await now("w3");
  for (const name of ["w3", "w5", "r3", "c1"]) ends.get(name)?.();
  await Promise.all(all);
  const failed: unknown = await forks.order({ access: "write", fork: "a" }, () => Promise.reject(new Error("no"))).catch(() => 1);
  strictEqual(failed, 1);
  strictEqual(await forks.order({ access: "write", fork: "a" }, async () => 2), 2);
});

console.log(`golden-ts: ${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
