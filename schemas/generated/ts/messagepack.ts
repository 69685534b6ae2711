// MessagePack as typed services use it. Integers of any width are read where the value fits, and written in the fewest
// bytes; a field nobody declared is refused, and so is one that comes twice. Reading throws nothing but DecodeError, writing
// nothing but EncodeError: what no compiler looked at is checked as it is written.

/** Why bytes are not the value they should be. */
export class DecodeError extends Error {
  override readonly name = "DecodeError";
  /** Of an answer: what was asked may have been done. */
  readonly retry = "unknown";

  constructor(
    /** The field or message being read, as `EchoBytes.data`; `frame` outside of any. */
    readonly place: string,
    /** What is wrong. */
    readonly wrong: string,
    /** Where in the frame. */
    readonly at: number,
  ) {
    super(`${place}: ${wrong} at byte ${at}`);
  }

  /** Whether it is the frame's name that nobody knows. */
  get isUnknownMessage(): boolean {
    return this.wrong === "a message nobody declared";
  }
}

/** A value that its type cannot hold: a mistake of the program that encodes it. */
export class EncodeError extends Error {
  override readonly name = "EncodeError";
  readonly code = "BAD_ARGUMENT";
  readonly retry = "never";

  constructor(
    /** The field being written; `message` outside of any. */
    readonly field: string,
    /** What is wrong. */
    readonly wrong: string,
  ) {
    super(`${field}: ${wrong}`);
  }
}

/** Whether a value is of a built-in class, of whatever realm. */
function isA(value: unknown, name: "Map" | "Uint8Array"): boolean {
  return (value as { [Symbol.toStringTag]?: unknown } | null | undefined)?.[Symbol.toStringTag] === name;
}

/** A value as an error shows it. */
function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === "object" && value !== null) return `a value of ${value.constructor?.name ?? "no class"}`;
  return typeof value === "function" ? "a function" : String(value);
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();
/** Whether UTF-8 can hold a string: each surrogate in it is half of a pair. */
function isWellFormed(text: string): boolean {
  const { isWellFormed } = text as { isWellFormed?: () => boolean };
  return isWellFormed === undefined ? !/\p{Surrogate}/u.test(text) : isWellFormed.call(text);
}

/** Below this many bytes a loop is faster than the decoder's start. */
const SHORT_BYTES = 24;
/** No name that is declared is longer. */
const KEY_BYTES_MAX = 255;
/** What structs, lists and maps of a frame may take in memory: so much for each of its bytes, and so much besides. */
const HELD_PER_BYTE = 64;
const HELD_BESIDES = 16 << 20;
/** What the smallest of each takes, in words of 8 bytes; a struct has one more for each field. */
const STRUCT_WORDS = 4;
const LIST_WORDS = 6;
const MAP_WORDS = 27;

/** Walks one frame. */
export class Reader {
  readonly #frame: Uint8Array;
  readonly #view: DataView;
  #at = 0;
  #place = "frame";
  #room: number;

  constructor(frame: Uint8Array) {
    this.#frame = frame;
    this.#room = frame.length * HELD_PER_BYTE + HELD_BESIDES;
    this.#view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  }

  #error(wrong: string, at: number): DecodeError {
    return new DecodeError(this.#place, wrong, at);
  }

  /** An error about what was read last. */
  refuse(wrong: string, place: string): DecodeError {
    return new DecodeError(place, wrong, this.#at);
  }

  /** Ends the frame. */
  finish(): void {
    if (this.#at < this.#frame.length) throw this.refuse("bytes behind the message", "frame");
  }

  /** Passes `count` bytes and returns where they begin. */
  #take(count: number): number {
    const at = this.#at;
    if (count > this.#frame.length - at) throw this.#error("the frame ends too early", this.#frame.length);
    this.#at = at + count;
    return at;
  }

  #byte(): number {
    return this.#frame[this.#take(1)] as number;
  }

  #kind(expected: string, found: number): DecodeError {
    return this.#error(`expected ${expected}, found byte 0x${found.toString(16).padStart(2, "0")}`, this.#at - 1);
  }

  boolean(): boolean {
    const tag = this.#byte();
    if (tag !== 0xc2 && tag !== 0xc3) throw this.#kind("a boolean", tag);
    return tag === 0xc3;
  }

  /** An integer of at most 32 bits between two bounds. */
  integer(least: number, most: number): number {
    const at = this.#at;
    const tag = this.#byte();
    let value: number;
    if (tag < 0x80) value = tag;
    else if (tag >= 0xe0) value = tag - 256;
    else {
      switch (tag) {
        case 0xcc: value = this.#view.getUint8(this.#take(1)); break;
        case 0xcd: value = this.#view.getUint16(this.#take(2)); break;
        case 0xce: value = this.#view.getUint32(this.#take(4)); break;
        case 0xd0: value = this.#view.getInt8(this.#take(1)); break;
        case 0xd1: value = this.#view.getInt16(this.#take(2)); break;
        case 0xd2: value = this.#view.getInt32(this.#take(4)); break;
        // Whether rounded or not, what does not fit 32 bits stays out of bounds.
        case 0xcf: value = Number(this.#view.getBigUint64(this.#take(8))); break;
        case 0xd3: value = Number(this.#view.getBigInt64(this.#take(8))); break;
        default: throw this.#kind("an integer", tag);
      }
    }
    if (value < least || value > most) throw this.#error("an integer out of range", at);
    return value;
  }

  u8(): number { return this.integer(0, 0xff); }
  u16(): number { return this.integer(0, 0xffff); }
  u32(): number { return this.integer(0, 0xffffffff); }
  i8(): number { return this.integer(-0x80, 0x7f); }
  i16(): number { return this.integer(-0x8000, 0x7fff); }
  i32(): number { return this.integer(-0x80000000, 0x7fffffff); }

  /** An integer of any width between two bounds. */
  #wide(least: bigint, most: bigint): bigint {
    const at = this.#at;
    const tag = this.#frame[at];
    let value: bigint;
    if (tag === 0xcf || tag === 0xd3) {
      this.#at = at + 1;
      const from = this.#take(8);
      value = tag === 0xcf ? this.#view.getBigUint64(from) : this.#view.getBigInt64(from);
    } else {
      value = BigInt(this.integer(-0x80000000, 0xffffffff));
    }
    if (value < least || value > most) throw this.#error("an integer out of range", at);
    return value;
  }

  u64(): bigint { return this.#wide(0n, 0xffffffffffffffffn); }
  i64(): bigint { return this.#wide(-0x8000000000000000n, 0x7fffffffffffffffn); }

  f32(): number {
    const tag = this.#byte();
    if (tag !== 0xca) throw this.#kind("a 32-bit float", tag);
    return this.#view.getFloat32(this.#take(4));
  }

  f64(): number {
    const tag = this.#byte();
    if (tag === 0xcb) return this.#view.getFloat64(this.#take(8));
    if (tag === 0xca) return this.#view.getFloat32(this.#take(4));
    throw this.#kind("a float", tag);
  }

  #stringLength(): number {
    const tag = this.#byte();
    if (tag >= 0xa0 && tag <= 0xbf) return tag & 31;
    if (tag === 0xd9) return this.#byte();
    if (tag === 0xda) return this.#view.getUint16(this.#take(2));
    if (tag === 0xdb) return this.#view.getUint32(this.#take(4));
    throw this.#kind("a string", tag);
  }

  string(): string {
    const length = this.#stringLength();
    const start = this.#take(length);
    const end = start + length;
    if (length < SHORT_BYTES) {
      let text = "";
      let at = start;
      for (; at < end; at++) {
        const byte = this.#frame[at] as number;
        if (byte >= 0x80) break;
        text += String.fromCharCode(byte);
      }
      if (at === end) return text;
    }
    try {
      return decoder.decode(this.#frame.subarray(start, end));
    } catch {
      throw this.#error("a string that is not UTF-8", start);
    }
  }

  /** A view of the frame: copy it to keep it longer than the frame. */
  bytes(): Uint8Array {
    const tag = this.#byte();
    let length: number;
    if (tag === 0xc4) length = this.#byte();
    else if (tag === 0xc5) length = this.#view.getUint16(this.#take(2));
    else if (tag === 0xc6) length = this.#view.getUint32(this.#take(4));
    else throw this.#kind("bytes", tag);
    const at = this.#take(length);
    return this.#frame.subarray(at, at + length);
  }

  bin32(): Uint8Array {
    const at = this.#at;
    const bytes = this.bytes();
    if (bytes.length !== 32) throw this.#error(`expected a length of 32, found ${bytes.length}`, at);
    return bytes;
  }

  optional<T>(read: (reader: Reader) => T): T | undefined {
    if (this.#frame[this.#at] === 0xc0) {
      this.#at++;
      return undefined;
    }
    return read(this);
  }

  #arrayLength(): number {
    const tag = this.#byte();
    if (tag >= 0x90 && tag <= 0x9f) return tag & 15;
    if (tag === 0xdc) return this.#view.getUint16(this.#take(2));
    if (tag === 0xdd) return this.#view.getUint32(this.#take(4));
    throw this.#kind("an array", tag);
  }

  #mapLength(): number {
    const tag = this.#byte();
    if (tag >= 0x80 && tag <= 0x8f) return tag & 15;
    if (tag === 0xde) return this.#view.getUint16(this.#take(2));
    if (tag === 0xdf) return this.#view.getUint32(this.#take(4));
    throw this.#kind("a map", tag);
  }

  /** Refuses a count of values that the rest of the frame cannot hold. */
  #believe(count: number, itemBytesMin: number): number {
    if (count * itemBytesMin > this.#frame.length - this.#at) {
      throw this.#error("the frame ends too early", this.#frame.length);
    }
    return count;
  }

  /** Counts what a value takes in memory: one that is a byte on the wire may be large there. */
  #hold(words: number): void {
    this.#room -= words * 8;
    if (this.#room < 0) throw this.#error("values that take too much memory for such a frame", this.#at);
  }

  list<T>(itemBytesMin: number, read: (reader: Reader) => T): T[] {
    const count = this.#believe(this.#arrayLength(), itemBytesMin);
    this.#hold(LIST_WORDS);
    // Of just that length: one that grows is given room for seventeen at once.
    const values = new Array<T>(count);
    this.#each(values, read);
    return values;
  }

  array<T>(expected: number, read: (reader: Reader) => T): T[] {
    const at = this.#at;
    const found = this.#arrayLength();
    if (found !== expected) throw this.#error(`expected a length of ${expected}, found ${found}`, at);
    this.#hold(LIST_WORDS);
    const values = new Array<T>(expected);
    this.#each(values, read);
    return values;
  }

  /** Reads as many values as there is room for. Behind a struct, the place is that of the whole again. */
  #each<T>(values: T[], read: (reader: Reader) => T): void {
    const place = this.#place;
    for (let n = 0; n < values.length; n++) values[n] = read(this);
    this.#place = place;
  }

  map<T>(itemBytesMin: number, read: (reader: Reader) => T): Map<string, T> {
    const count = this.#believe(this.#mapLength(), itemBytesMin + 1);
    this.#hold(MAP_WORDS);
    const values = new Map<string, T>();
    const place = this.#place;
    for (let n = 0; n < count; n++) {
      const at = this.#at;
      const key = this.string();
      if (values.has(key)) throw this.#error("a field or key that is there twice", at);
      values.set(key, read(this));
      this.#place = place;
    }
    return values;
  }

  /** Begins a struct of so many fields: how many of them follow. */
  fields(place: string, declared: number): number {
    this.#place = place;
    const count = this.#believe(this.#mapLength(), 2);
    this.#hold(STRUCT_WORDS + declared);
    return count;
  }

  /** The name of a struct's field, as `key`. */
  fieldOf(struct: string): string {
    // A field that holds a struct left that one's place.
    this.#place = struct;
    return this.key();
  }

  /** An error about an enum's word, which begins at `at`. */
  unknownWord(at: number): DecodeError {
    return this.#error("a word the enum does not have", at);
  }

  /** The byte that comes next. */
  get at(): number {
    return this.#at;
  }

  /** A string, to be compared with what is declared. One that is not UTF-8 is none that is declared, and neither is one too long, which comes out empty. */
  key(): string {
    const length = this.#stringLength();
    const start = this.#take(length);
    let text = "";
    if (length > KEY_BYTES_MAX) return text;
    for (let at = start; at < start + length; at++) text += String.fromCharCode(this.#frame[at] as number);
    return text;
  }

  /** Begins a field's value; `seen` says whether it was there already. */
  once(seen: boolean, place: string): this {
    this.#place = place;
    if (seen) throw this.#error("a field or key that is there twice", this.#at);
    return this;
  }

  /** A field that has to be there. */
  required<T>(value: T | undefined, place: string): T {
    if (value === undefined) throw this.refuse("a field is missing", place);
    return value;
  }

  /** Begins a request's envelope and returns its tag. */
  request(): string {
    this.#envelope(1);
    return this.response();
  }

  /** Begins the envelope of a response, an item or an error, and returns its tag. */
  response(): string {
    this.#envelope(2);
    return this.key();
  }

  #envelope(expected: number): void {
    const at = this.#at;
    const found = this.#arrayLength();
    if (found !== expected) throw this.#error(`expected a length of ${expected}, found ${found}`, at);
  }
}

/** The buffer of the writer that finished last, for the next one: encoding then allocates its result and no more. */
let spare: DataView<ArrayBuffer> | undefined;
const SPARE_BYTES_MAX = 65_536;

/** Appends values. */
export class Writer {
  #view: DataView<ArrayBuffer>;
  #buffer: Uint8Array<ArrayBuffer>;
  #length = 0;
  #field = "message";

  constructor() {
    this.#view = spare ?? new DataView(new ArrayBuffer(1024));
    spare = undefined;
    this.#buffer = new Uint8Array(this.#view.buffer);
  }

  /** What was written, in a buffer of its own; the writer is done with. */
  finish(): Uint8Array {
    const written = this.#buffer.slice(0, this.#length);
    if (this.#buffer.length <= SPARE_BYTES_MAX) spare = this.#view;
    this.#buffer = new Uint8Array(0);
    this.#length = 0;
    return written;
  }

  /** Makes room and returns where it begins. */
  #room(count: number): number {
    const at = this.#length;
    this.#length = at + count;
    if (this.#length > this.#buffer.length) {
      const larger = new Uint8Array(Math.max(this.#buffer.length * 2, this.#length));
      larger.set(this.#buffer.subarray(0, at));
      this.#buffer = larger;
      this.#view = new DataView(larger.buffer);
    }
    return at;
  }

  /** An error about the field that is being written. */
  refuse(wrong: string): EncodeError {
    return new EncodeError(this.#field, wrong);
  }

  #misfit(value: unknown, what: string): EncodeError {
    return this.refuse(`${shown(value)} is no ${what}`);
  }

  byte(value: number): void {
    const at = this.#room(1);
    this.#buffer[at] = value;
  }

  #tagged8(tag: number, value: number): void {
    const at = this.#room(2);
    this.#buffer[at] = tag;
    this.#buffer[at + 1] = value;
  }

  #tagged16(tag: number, value: number): void {
    const at = this.#room(3);
    this.#buffer[at] = tag;
    this.#view.setUint16(at + 1, value);
  }

  #tagged32(tag: number, value: number): void {
    const at = this.#room(5);
    this.#buffer[at] = tag;
    this.#view.setUint32(at + 1, value);
  }

  boolean(value: boolean): void {
    if (typeof value !== "boolean") throw this.#misfit(value, "boolean");
    this.byte(value ? 0xc3 : 0xc2);
  }

  /** An integer of at most 32 bits between two bounds. */
  #integer(value: number, least: number, most: number): void {
    if (!Number.isInteger(value) || value < least || value > most) {
      throw this.#misfit(value, `integer from ${least} to ${most}`);
    }
    if (value >= 0) {
      if (value < 0x80) this.byte(value);
      else if (value <= 0xff) this.#tagged8(0xcc, value);
      else if (value <= 0xffff) this.#tagged16(0xcd, value);
      else this.#tagged32(0xce, value);
    } else if (value >= -32) this.byte(value);
    else if (value >= -0x80) this.#tagged8(0xd0, value);
    else if (value >= -0x8000) this.#tagged16(0xd1, value);
    else this.#tagged32(0xd2, value);
  }

  u8(value: number): void { this.#integer(value, 0, 0xff); }
  u16(value: number): void { this.#integer(value, 0, 0xffff); }
  u32(value: number): void { this.#integer(value, 0, 0xffffffff); }
  i8(value: number): void { this.#integer(value, -0x80, 0x7f); }
  i16(value: number): void { this.#integer(value, -0x8000, 0x7fff); }
  i32(value: number): void { this.#integer(value, -0x80000000, 0x7fffffff); }

  u64(value: bigint): void {
    if (typeof value !== "bigint" || value < 0n || value > 0xffffffffffffffffn) {
      throw this.#misfit(value, "bigint from 0 to 2^64 - 1");
    }
    if (value <= 0xffffffffn) return this.u32(Number(value));
    const at = this.#room(9);
    this.#buffer[at] = 0xcf;
    this.#view.setBigUint64(at + 1, value);
  }

  i64(value: bigint): void {
    if (typeof value !== "bigint" || value < -0x8000000000000000n || value > 0x7fffffffffffffffn) {
      throw this.#misfit(value, "bigint from -2^63 to 2^63 - 1");
    }
    if (value >= 0n) return this.u64(value);
    if (value >= -0x80000000n) return this.i32(Number(value));
    const at = this.#room(9);
    this.#buffer[at] = 0xd3;
    this.#view.setBigInt64(at + 1, value);
  }

  f32(value: number): void {
    if (typeof value !== "number" || (Number.isFinite(value) && !Number.isFinite(Math.fround(value)))) {
      throw this.#misfit(value, "32-bit float");
    }
    const at = this.#room(5);
    this.#buffer[at] = 0xca;
    if (Number.isNaN(value)) this.#view.setUint32(at + 1, 0x7fc00000);
    else this.#view.setFloat32(at + 1, value);
  }

  f64(value: number): void {
    if (typeof value !== "number") throw this.#misfit(value, "number");
    const at = this.#room(9);
    this.#buffer[at] = 0xcb;
    if (Number.isNaN(value)) this.#view.setBigUint64(at + 1, 0x7ff8000000000000n);
    else this.#view.setFloat64(at + 1, value);
  }

  string(value: string): void {
    if (typeof value !== "string") throw this.#misfit(value, "string");
    const units = value.length;
    if (units < SHORT_BYTES) {
      const start = this.#room(units + 1);
      let n = 0;
      for (; n < units; n++) {
        const unit = value.charCodeAt(n);
        if (unit >= 0x80) break;
        this.#buffer[start + 1 + n] = unit;
      }
      if (n === units) {
        this.#buffer[start] = 0xa0 | units;
        return;
      }
      this.#length = start;
    }
    if (!isWellFormed(value)) throw this.refuse(`${shown(value)} is no string: UTF-8 has no lone surrogate`);
    const bytes = encoder.encode(value);
    const length = bytes.length;
    if (length < 32) this.byte(0xa0 | length);
    else if (length <= 0xff) this.#tagged8(0xd9, length);
    else if (length <= 0xffff) this.#tagged16(0xda, length);
    else this.#tagged32(0xdb, length);
    this.#append(bytes);
  }

  /** A word of an enum. */
  word<T extends string>(value: T, words: readonly T[]): void {
    if (!words.includes(value)) throw this.#misfit(value, `word of ${words.join(", ")}`);
    this.string(value);
  }

  bytes(value: Uint8Array): void {
    if (!isA(value, "Uint8Array")) throw this.#misfit(value, "Uint8Array");
    const length = value.length;
    if (length <= 0xff) this.#tagged8(0xc4, length);
    else if (length <= 0xffff) this.#tagged16(0xc5, length);
    else this.#tagged32(0xc6, length);
    this.#append(value);
  }

  bin32(value: Uint8Array): void {
    if (!isA(value, "Uint8Array") || value.length !== 32) throw this.#misfit(value, "Uint8Array of 32 bytes");
    this.bytes(value);
  }

  #append(bytes: Uint8Array): void {
    const at = this.#room(bytes.length);
    this.#buffer.set(bytes, at);
  }

  optional<T>(value: T | undefined | null, write: (writer: Writer, value: T) => void): void {
    if (value === undefined || value === null) this.byte(0xc0);
    else write(this, value);
  }

  #arrayLength(length: number): void {
    if (length < 16) this.byte(0x90 | length);
    else if (length <= 0xffff) this.#tagged16(0xdc, length);
    else this.#tagged32(0xdd, length);
  }

  #mapLength(length: number): void {
    if (length < 16) this.byte(0x80 | length);
    else if (length <= 0xffff) this.#tagged16(0xde, length);
    else this.#tagged32(0xdf, length);
  }

  list<T>(values: readonly T[], write: (writer: Writer, value: T) => void): void {
    if (!Array.isArray(values)) throw this.#misfit(values, "array");
    this.#arrayLength(values.length);
    const field = this.#field;
    for (const value of values) {
      write(this, value);
      // A struct left its own field.
      this.#field = field;
    }
  }

  array<T>(expected: number, values: readonly T[], write: (writer: Writer, value: T) => void): void {
    if (values?.length !== expected) throw this.refuse(`${values?.length} values where ${expected} belong`);
    this.list(values, write);
  }

  /** By the byte order of the keys' UTF-8. */
  map<T>(values: ReadonlyMap<string, T>, write: (writer: Writer, value: T) => void): void {
    if (!isA(values, "Map")) throw this.#misfit(values, "Map");
    this.#mapLength(values.size);
    const field = this.#field;
    for (const [key, value] of [...values].sort(([a], [b]) => byCodePoints(a, b))) {
      this.string(key);
      write(this, value);
      this.#field = field;
    }
  }

  /** Begins a struct. */
  fields(count: number, value: object): void {
    if (typeof value !== "object" || value === null) throw this.#misfit(value, "object");
    this.#mapLength(count);
  }

  /** Begins a field of a struct. */
  field(name: string): void {
    this.#field = name;
    this.string(name);
  }

  /** Begins a request's envelope. */
  request(tag: string): void {
    this.byte(0x91);
    this.response(tag);
  }

  /** Begins the envelope of a response, an item or an error. */
  response(tag: string): void {
    this.byte(0x92);
    this.string(tag);
  }
}

/** UTF-16 puts surrogates before U+E000 to U+FFFF, UTF-8 behind. */
function byCodePoints(a: string, b: string): number {
  const shared = Math.min(a.length, b.length);
  for (let n = 0; n < shared; n++) {
    const x = a.charCodeAt(n);
    const y = b.charCodeAt(n);
    if (x !== y) return (isSurrogate(x) ? x + 0x10000 : x) - (isSurrogate(y) ? y + 0x10000 : y);
  }
  return a.length - b.length;
}

function isSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}
