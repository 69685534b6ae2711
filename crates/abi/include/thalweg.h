/* The C interface of typed services. Written by `cargo xtask header` from crates/abi. Do not edit.
 *
 * Functions answer with a code of `enum thalweg_fault`, THALWEG_OK (0) when nothing went wrong; what exactly did is then in
 * `thalweg_error_detail()`. A client or server has no thread of its own: it is driven by turns, by waiting, or by `run`. It
 * may be used from any thread, but from one at a time; what may be used from several says so. Pointers to bytes and options
 * may be null where there are none. Handles that are null are THALWEG_BAD_ARGUMENT, freeing one is fine. */

#ifndef THALWEG_H
#define THALWEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "thalweg_faults.h"

/**
 * What an event is.
 */
enum thalweg_event_kind {
  /**
   * Nothing came.
   */
  THALWEG_EVENT_KIND_NOTHING = 0,
  /**
   * One item of a stream; more will come.
   */
  THALWEG_EVENT_KIND_ITEM = 1,
  /**
   * The answer, or the end of a stream. Nothing more will come of the call.
   */
  THALWEG_EVENT_KIND_END = 2,
  /**
   * There is no answer: `fault` and `detail` say why. Nothing more will come of the call.
   */
  THALWEG_EVENT_KIND_FAILED = 3,
};

/**
 * One connection to a service, with any number of calls in flight, and no thread. From `thalweg_client_open`, to be
 * handed to `thalweg_client_close`.
 */
struct thalweg_client;

/**
 * How a client connects and what bounds it keeps. Begin with `thalweg_client_defaults()`.
 */
struct thalweg_client_options {
  /**
   * SHA-256 of the schema the caller was generated from; zeros fit any. The server refuses another.
   */
  uint8_t schema[32];
  /**
   * How long to go on trying to connect: until somebody listens, has room, and says welcome. 0 tries once.
   */
  uint64_t connect_within_ms;
  /**
   * How long anybody wants the answer of a call that says nothing else; 0 for ever.
   */
  uint64_t deadline_ms;
  /**
   * The first pause before connecting anew once the connection has ended, and the longest; 0 never connects anew.
   */
  uint64_t reconnect_first_ms;
  /**
   * See `reconnect_first_ms`.
   */
  uint64_t reconnect_most_ms;
  /**
   * Bytes at most that wait to be sent before a further call is THALWEG_OVERLOADED. One frame always fits.
   */
  uint64_t unsent_bytes_max;
  /**
   * Calls in flight at most; one more is THALWEG_OVERLOADED.
   */
  uint32_t in_flight_max;
  /**
   * The longest request to send and the longest answer to take.
   */
  uint32_t frame_bytes_max;
  /**
   * Bytes of each ring of shared memory to ask for; 0 leaves that to the server.
   */
  uint32_t ring_bytes;
  /**
   * Ask for shared memory on a `.sock` too, and do without where there is none. A `.shm` is never anything else.
   */
  bool shared;
  /**
   * May look for some microseconds for an answer in shared memory before sleeping, where that makes sense.
   */
  bool spin;
  /**
   * Speak plain frames: no hello, answers in order, neither cancellation nor credit.
   */
  bool plain;
};

/**
 * What one call may be given. Zeros give it what the client's options say.
 */
struct thalweg_call_options {
  /**
   * How long anybody wants the answer; 0 for what the client's options say.
   */
  uint64_t deadline_ms;
  /**
   * Of a stream: how many items may come before `thalweg_client_grant` lets more come; 0 for what the server says.
   */
  uint32_t credit;
};

/**
 * What came of a call. What it points to is lent until the next function is called with this client.
 */
struct thalweg_event {
  /**
   * Of which call.
   */
  uint64_t call;
  /**
   * The frame that brought it, `length` bytes.
   */
  const uint8_t *frame;
  /**
   * Bytes of the frame; 0 where none came.
   */
  size_t length;
  /**
   * Of a failure: what, where, and what to do. Never null.
   */
  const char *detail;
  /**
   * Of a failure: its fault. Else 0.
   */
  uint16_t fault;
  /**
   * What it is.
   */
  enum thalweg_event_kind kind;
};

/**
 * What a client is doing.
 */
struct thalweg_client_state {
  /**
   * Calls that have not ended.
   */
  size_t in_flight;
  /**
   * Items that each new stream may send before it is granted more; 0 where streams know no credit.
   */
  uint32_t credit;
  /**
   * Frames go through shared memory.
   */
  bool shared;
  /**
   * There is a connection now.
   */
  bool connected;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Connects to an endpoint (`*.sock`, `*.shm`), trying again within `connect_within_ms` while that may help. Null options
 * are the defaults. Faults: THALWEG_NO_SERVER, THALWEG_CONNECT_TIMEOUT, THALWEG_PERMISSION_DENIED,
 * THALWEG_NO_SHARED_MEMORY, THALWEG_SCHEMA_MISMATCH, THALWEG_VERSION_MISMATCH, THALWEG_BAD_ARGUMENT.
 *
 * Requires:
 * `endpoint` is a string that a NUL ends; `options` is null or points to options; `client` to a place for a handle.
 */
uint16_t thalweg_client_open(const char *endpoint,
                             const struct thalweg_client_options *options,
                             struct thalweg_client **client);

/**
 * As `thalweg_client_open`, without waiting: calls may be made at once and leave when the connection is there, which
 * turns bring about. They fail if it does not come.
 *
 * Requires:
 * As of `thalweg_client_open`.
 */
uint16_t thalweg_client_begin(const char *endpoint,
                              const struct thalweg_client_options *options,
                              struct thalweg_client **client);

/**
 * Ends the connection and frees the client; null is fine. Calls in flight are not heard of any more.
 *
 * Requires:
 * `client` is null, or came from `thalweg_client_open` or `_begin` and was not closed.
 */
void thalweg_client_close(struct thalweg_client *client);

/**
 * The descriptor for a foreign loop: readable whenever `thalweg_client_turn` without waiting has something to do. One such
 * turn comes first, and one after each round of calls. It belongs to the client, and stays the same through
 * reconnections.
 *
 * Requires:
 * `client` is null or a client; `descriptor` points to a place for a number.
 */
uint16_t thalweg_client_descriptor(struct thalweg_client *client,
                                   int *descriptor);

/**
 * Queues a request, `length` bytes that are copied, and says by which number the call goes; no two calls of a client have
 * the same. It leaves with the next flush, turn or wait. Null options give the call what the client's say. Faults:
 * THALWEG_FRAME_TOO_LARGE, THALWEG_OVERLOADED, THALWEG_DRAINING, or why there is no connection; then nothing was queued
 * and the client may be used as before.
 *
 * Requires:
 * `client` is null or a client; `request` points to `length` bytes; `options` is null or points to options; `call` to a
 * place for a number.
 */
uint16_t thalweg_client_call(struct thalweg_client *client,
                             const uint8_t *request,
                             size_t length,
                             const struct thalweg_call_options *options,
                             uint64_t *call);

/**
 * Says that nobody waits for the answer any more. The call still ends: with its answer if that was faster, else with
 * THALWEG_CANCELLED. A call that there is not is none.
 *
 * Requires:
 * `client` is null or a client.
 */
uint16_t thalweg_client_cancel(struct thalweg_client *client,
                               uint64_t call);

/**
 * Cancels the call and never says anything of it again.
 *
 * Requires:
 * `client` is null or a client.
 */
uint16_t thalweg_client_forget(struct thalweg_client *client, uint64_t call);

/**
 * Lets a stream send so many items more.
 *
 * Requires:
 * `client` is null or a client.
 */
uint16_t thalweg_client_grant(struct thalweg_client *client, uint64_t call, uint32_t items);

/**
 * Writes what is queued, as far as it can be now. A connection that ended shows in what comes of the calls.
 *
 * Requires:
 * `client` is null or a client.
 */
uint16_t thalweg_client_flush(struct thalweg_client *client);

/**
 * Writes what is queued, waits for something to come (0: not at all; so many milliseconds; negative: as long as it takes)
 * and reads it: then `thalweg_client_next` has what came. `happened`, which may be null, is how much did; 0 at the end of
 * the wait and after a signal. Faults: nothing is in flight and there is no connection, so that nothing could come;
 * THALWEG_SYSTEM.
 *
 * Requires:
 * `client` is null or a client; `happened` is null or points to a place for a number.
 */
uint16_t thalweg_client_turn(struct thalweg_client *client,
                             int64_t wait_ms,
                             size_t *happened);

/**
 * What came next, of whatever call, in order of arrival; of the kind THALWEG_EVENT_KIND_NOTHING until another turn.
 *
 * Requires:
 * `client` is null or a client; `event` points to a place for one.
 */
uint16_t thalweg_client_next(struct thalweg_client *client,
                             struct thalweg_event *event);

/**
 * What came next of one call; of the kind THALWEG_EVENT_KIND_NOTHING until another turn, or when there is no such call.
 *
 * Requires:
 * As of `thalweg_client_next`.
 */
uint16_t thalweg_client_take(struct thalweg_client *client,
                             uint64_t call,
                             struct thalweg_event *event);

/**
 * Waits for what comes next of one call: its answer, or of a stream an item or the end. What comes of other calls meanwhile
 * is kept for them. Why the call has no answer is an event too; THALWEG_BAD_ARGUMENT says that there is no such call.
 *
 * Requires:
 * As of `thalweg_client_next`.
 */
uint16_t thalweg_client_wait(struct thalweg_client *client,
                             uint64_t call,
                             struct thalweg_event *event);

/**
 * What the client is doing; all zeros for null.
 *
 * Requires:
 * `client` is null or a client.
 */
struct thalweg_client_state thalweg_client_state(const struct thalweg_client *client);

/**
 * What suits a client of a local service.
 */
struct thalweg_client_options thalweg_client_defaults(void);

/**
 * What went wrong last on this thread, in words, with what to do about it. Only of use right after a function has
 * answered with a fault: one that succeeds leaves it as it was. Lent until the next function fails on this thread; never
 * null.
 */
const char *thalweg_error_detail(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THALWEG_H */
