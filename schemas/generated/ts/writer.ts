// Values as bytes, each in the fewest that say it. A writer throws nothing but EncodeError: what no compiler looked at is
// checked as it is written.

/** A value that its type cannot hold: a mistake of the program that encodes it. */
export class EncodeError extends Error {
  override readonly name = "EncodeError";
  readonly code = "BAD_ARGUMENT";
  readonly retry = "never";
  /** The field being written, as `EchoBytes.data`; `message` outside of any. */
  readonly place: string;
  /** What is wrong. */
  readonly reason: string;

  constructor(place: string, reason: string) {
    super(`${place}: ${reason}`);
    this.place = place;
    this.reason = reason;
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

const encoder = new TextEncoder();

/** Whether UTF-8 can hold a string: each surrogate in it is half of a pair. */
function isWellFormed(text: string): boolean {
  const { isWellFormed } = text as { isWellFormed?: () => boolean };
  return isWellFormed === undefined ? !/\p{Surrogate}/u.test(text) : isWellFormed.call(text);
}

/** Below this many UTF-16 units a loop is faster than the encoder's start. */
const SHORT_BYTES = 24;
/** The buffer of the writer that finished last, for the next one: encoding then allocates its result and no more. */
let spare: DataView<ArrayBuffer> | undefined;
const SPARE_BYTES_MAX = 65_536;

/** Appends values. */
export class Writer {
  #view: DataView<ArrayBuffer>;
  #buffer: Uint8Array<ArrayBuffer>;
  #length = 0;
  #place = "message";

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
  refuse(reason: string): EncodeError {
    return new EncodeError(this.#place, reason);
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
    const place = this.#place;
    for (const value of values) {
      write(this, value);
      // A struct left its own field.
      this.#place = place;
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
    const place = this.#place;
    for (const [key, value] of [...values].sort(([a], [b]) => byCodePoints(a, b))) {
      this.string(key);
      write(this, value);
      this.#place = place;
    }
  }

  /** Begins a struct. */
  fields(count: number, value: object): void {
    if (typeof value !== "object" || value === null) throw this.#misfit(value, "object");
    this.#mapLength(count);
  }

  /** Begins a field of a struct; `place` is what an error says of it. */
  field(name: string, place: string): void {
    this.#place = place;
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
