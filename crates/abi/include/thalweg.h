/* The C interface of typed services and of JSON-RPC. Written by `cargo xtask header` from crates/abi. Do not edit.
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
 * What a producer of a stream does next.
 */
enum thalweg_flow {
  /**
   * There is room for the next item.
   */
  THALWEG_FLOW_GO = 0,
  /**
   * The item was taken, but there is no room for another yet: see `thalweg_reply_changed`. A producer that
   * does not wait has its call ended before long.
   */
  THALWEG_FLOW_WAIT = 1,
  /**
   * Nobody waits for more: end the call.
   */
  THALWEG_FLOW_GONE = 2,
};

/**
 * How a program ended.
 */
enum thalweg_exit_kind {
  /**
   * It has not.
   */
  THALWEG_EXIT_KIND_RUNNING = 0,
  /**
   * By itself, with a code.
   */
  THALWEG_EXIT_KIND_CODE = 1,
  /**
   * By a signal.
   */
  THALWEG_EXIT_KIND_SIGNAL = 2,
  /**
   * Nobody knows how: this process ignores SIGCHLD, or waits elsewhere for all its children.
   */
  THALWEG_EXIT_KIND_UNKNOWN = 3,
};

/**
 * Where a serial handler's answer is put together.
 */
struct thalweg_answer;

/**
 * One connection to a service, with any number of calls in flight, and no thread. From
 * `thalweg_client_open`, to be handed to `thalweg_client_close`.
 */
struct thalweg_client;

/**
 * The right, and the duty, to answer one call: once, now or later, from any thread, but from one at a time.
 * Its owner hands it to `thalweg_reply_end`, `thalweg_reply_fail` or `thalweg_reply_drop`, each of which
 * takes it away.
 */
struct thalweg_reply;

/**
 * Connections to services that are called by JSON-RPC, and no thread. From `thalweg_rpc_open`, to be handed
 * to `thalweg_rpc_close`.
 */
struct thalweg_rpc;

/**
 * A server, with no thread. From `thalweg_server_open`, to be handed to `thalweg_server_close`.
 */
struct thalweg_server;

/**
 * A program that serves an endpoint. From `thalweg_spawned_start`, to be handed to `thalweg_spawned_close`.
 */
struct thalweg_spawned;

/**
 * What stops a server from wherever one is.
 */
struct thalweg_stopper;

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
   * The deadline of a call that has none of its own; 0 for none.
   */
  uint64_t deadline_ms;
  /**
   * The first pause before connecting anew once the connection has ended, and the longest; 0 never
   * connects anew.
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
   * Ask for shared memory on a `.sock` too, and do without where there is none. A `.shm` is never anything
   * else.
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
  /**
   * Only a server that this process's user runs, or root, is spoken to.
   */
  bool same_user_only;
};

/**
 * What one call may be given. Zeros give it what the client's options say.
 */
struct thalweg_call_options {
  /**
   * The call's deadline; 0 for the one in the client's options.
   */
  uint64_t deadline_ms;
  /**
   * Of a stream: how many items may come before `thalweg_client_grant` lets more come; 0 for what the
   * server says.
   */
  uint32_t credit;
  /**
   * One frame answers: an item of a stream in its place fails the call as THALWEG_BAD_ANSWER, and cancels
   * it. Without this either may come, and the caller has to tell them apart.
   */
  bool unary;
};

/**
 * What came of a call. What it points to is lent until the next function is called with this client, other
 * than `thalweg_client_grant` and `thalweg_client_state_of`.
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

/**
 * What a client of JSON-RPC allows itself. Begin with `thalweg_rpc_defaults()`.
 */
struct thalweg_rpc_options {
  /**
   * How long an answer is waited for, connecting included, where a call says nothing else; 0 for ever.
   */
  uint64_t deadline_ms;
  /**
   * How long a connection is kept while nothing goes over it.
   */
  uint64_t idle_for_ms;
  /**
   * The longest answer.
   */
  uint64_t answer_bytes_max;
  /**
   * Connections to one address at once; further calls wait for one of them.
   */
  uint32_t connections_max;
  /**
   * Connections that are kept while nothing goes over them, of all addresses together.
   */
  uint32_t idle_max;
  /**
   * Requests that have not ended; one more is THALWEG_OVERLOADED.
   */
  uint32_t in_flight_max;
  /**
   * Services that `thalweg_rpc_target` keeps beside the client's own.
   */
  uint32_t targets_max;
  /**
   * What lets it in where a server has tokens: a string that a NUL ends, which goes with every request, or
   * null for none. It is read while the client is opened, and not afterwards.
   */
  const char *token;
  /**
   * May look for some microseconds for an answer before sleeping, as long as that finds any.
   */
  bool spin;
};

/**
 * A call: strings that a NUL ends.
 */
struct thalweg_rpc_call {
  /**
   * The method.
   */
  const char *method;
  /**
   * A JSON array or object; null for none.
   */
  const char *params;
};

/**
 * How calls are made. Zeros are what the client's options say, at its own service.
 */
struct thalweg_rpc_ask {
  /**
   * How long their answers are waited for; 0 for what the client's options say.
   */
  uint64_t deadline_ms;
  /**
   * Of which service: a number from `thalweg_rpc_target`, or 0.
   */
  uint32_t target;
  /**
   * They go as a batch, even if there is one.
   */
  bool batch;
  /**
   * They have no answers.
   */
  bool notifies;
  /**
   * Twice is as good as once: may be sent again when a connection ends before the answer comes.
   */
  bool idempotent;
};

/**
 * What came of calls.
 */
struct thalweg_rpc_done {
  /**
   * Of which; 0 where nothing came.
   */
  uint64_t call;
  /**
   * The number of answers for `thalweg_rpc_answer_at`: one for each call that has an answer, 0 after a
   * fault.
   */
  size_t answers;
  /**
   * Of a fault: what, where, and what to do. Never null, and lent until the next function is called with
   * this client.
   */
  const char *detail;
  /**
   * Why there are no answers; 0 where there are.
   */
  uint16_t fault;
};

/**
 * An answer. What it points to is lent until the next function is called with this client.
 */
struct thalweg_rpc_answer {
  /**
   * The result, or what an error holds beside its words: JSON, `length` bytes, without a NUL.
   */
  const uint8_t *json;
  /**
   * Bytes of it; 0 for an error that holds nothing else.
   */
  size_t length;
  /**
   * Of an error: its words. Never null.
   */
  const char *message;
  /**
   * Of an error: its number in JSON-RPC. Else 0.
   */
  int64_t code;
  /**
   * Of an error of a server of ours: its fault. Else 0.
   */
  uint16_t fault;
  /**
   * The server answered with an error.
   */
  bool is_error;
};

/**
 * What a client of JSON-RPC has done so far.
 */
struct thalweg_rpc_statistics {
  /**
   * Connections opened.
   */
  uint64_t opened;
  /**
   * Connections closed, by either side.
   */
  uint64_t closed;
  /**
   * Requests that went over a connection that had served another.
   */
  uint64_t reused;
  /**
   * Requests that waited for a connection to be free.
   */
  uint64_t waits;
  /**
   * Requests that were sent again.
   */
  uint64_t retried;
  /**
   * Connections that nothing goes over now.
   */
  size_t idle;
  /**
   * Connections in all, now.
   */
  size_t connections;
  /**
   * Requests that have not ended.
   */
  size_t in_flight;
};

/**
 * What a server allows. Begin with `thalweg_server_defaults()`.
 */
struct thalweg_server_options {
  /**
   * SHA-256 of the schema it was made from; zeros fit any.
   */
  uint8_t schema[32];
  /**
   * The tag of the service's error, for answers that the server makes itself. Copied; null for the
   * default.
   */
  const char *error_tag;
  /**
   * Bytes of answers that one connection has not taken. A connection over this bound is not read from, and
   * its streams are told to wait.
   */
  uint64_t unsent_bytes_max;
  /**
   * Bytes of the requests of one connection's calls that have begun and not ended. A connection at this
   * bound is not read from; one request always fits.
   */
  uint64_t in_flight_bytes_max;
  /**
   * How long clients may take, once the server was stopped, to take their last answers.
   */
  uint64_t drain_grace_ms;
  /**
   * How long a client that connected may take to say what it speaks. One that has said only a part of it
   * by then is disconnected; one that has said nothing gives its place to another that waits.
   */
  uint64_t hello_within_ms;
  /**
   * The longest request. A longer one is refused and skipped.
   */
  uint32_t frame_bytes_max;
  /**
   * The largest ring of shared memory a client may ask for, in bytes, each way.
   */
  uint32_t ring_bytes_max;
  /**
   * Clients at once. More wait to be accepted.
   */
  uint32_t clients_max;
  /**
   * Calls of one connection that have begun and not ended. A connection at this bound is not read from.
   */
  uint32_t in_flight_max;
  /**
   * Items that a new stream may send before its client asks for more.
   */
  uint32_t stream_credit;
  /**
   * Look again for a moment before sleeping while work comes fast.
   */
  bool spin;
  /**
   * Only this process's user may connect.
   */
  bool same_user_only;
};

/**
 * A request, with the duty to answer it.
 */
struct thalweg_request {
  /**
   * Who asked; no two clients of a server have the same number.
   */
  uint64_t client;
  /**
   * The request, `length` bytes. From a turn it is lent until the next function is called with the server;
   * to a callback, until that returns.
   */
  const uint8_t *frame;
  /**
   * Bytes of the frame.
   */
  size_t length;
  /**
   * Milliseconds until the call's deadline; negative for none.
   */
  int64_t deadline_ms;
  /**
   * What answers it, and is the receiver's; null when there is no request.
   */
  struct thalweg_reply *reply;
  /**
   * Nothing else waits or is in flight, and no other client asked within the last millisecond: to answer
   * at once delays nobody.
   */
  bool alone;
};

/**
 * What a server has done so far, and what it is busy with.
 */
struct thalweg_server_statistics {
  /**
   * Clients connected.
   */
  uint64_t clients;
  /**
   * Of them over shared memory.
   */
  uint64_t shared_clients;
  /**
   * Calls that were handed out and have not been answered.
   */
  uint64_t in_flight;
  /**
   * Bytes of their requests, as far as their clients are connected.
   */
  uint64_t in_flight_bytes;
  /**
   * Requests that came, but those that were too long to be taken.
   */
  uint64_t requests;
  /**
   * Of these, those whose calls ended: answered, refused, cancelled, overdue, or left by a client that is
   * gone.
   */
  uint64_t answers;
  /**
   * System calls that read.
   */
  uint64_t reads;
  /**
   * System calls that wrote.
   */
  uint64_t writes;
  /**
   * System calls that woke a peer behind shared memory.
   */
  uint64_t bells;
  /**
   * System calls that waited, or asked what is ready.
   */
  uint64_t waits;
};

/**
 * How a program is started, and what happens when it does not do as it should. Begin with
 * `thalweg_spawn_defaults()`. Strings end with a NUL.
 */
struct thalweg_spawn_options {
  /**
   * What it is told: `arguments_count` strings.
   */
  const char *const *arguments;
  /**
   * See `arguments`.
   */
  size_t arguments_count;
  /**
   * Variables it gets beside those of this process: `environment_count` strings, `NAME=VALUE` each.
   */
  const char *const *environment;
  /**
   * See `environment`.
   */
  size_t environment_count;
  /**
   * Where it runs; null for where this process does.
   */
  const char *directory;
  /**
   * The file that its output and its errors are appended to, to be quoted when it fails; null for where
   * those of this process go.
   */
  const char *log;
  /**
   * How long it may take until its endpoint answers.
   */
  uint64_t ready_within_ms;
  /**
   * How long it may take to end when it is asked to, before it is killed.
   */
  uint64_t end_within_ms;
  /**
   * The period in which it is started anew at most `respawn_most` times.
   */
  uint64_t respawn_within_ms;
  /**
   * The most restarts within `respawn_within_ms` after it ended unasked; 0 for none.
   */
  uint32_t respawn_most;
  /**
   * It speaks plain frames only.
   */
  bool plain;
  /**
   * Over `-` it gets two pipes, and not a socket.
   */
  bool pipes;
};

/**
 * How a program ended, and the code or the signal.
 */
struct thalweg_exit {
  /**
   * How.
   */
  enum thalweg_exit_kind kind;
  /**
   * The code, or the signal's number; 0 while it runs, -1 where nobody knows.
   */
  int32_t number;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Connects to an endpoint (`*.sock`, `*.shm`, `-`), trying again within `connect_within_ms` while that may
 * help. Null options are the defaults. Faults: THALWEG_NO_SERVER, THALWEG_CONNECT_TIMEOUT,
 * THALWEG_PERMISSION_DENIED, THALWEG_NO_SHARED_MEMORY, THALWEG_SCHEMA_MISMATCH, THALWEG_VERSION_MISMATCH,
 * THALWEG_BAD_ARGUMENT.
 *
 * Requires:
 * `endpoint` is a string that a NUL ends; `options` is null or points to options; `client` to a place for a
 * handle.
 */
uint16_t thalweg_client_open(const char *endpoint,
                             const struct thalweg_client_options *options,
                             struct thalweg_client **client);

/**
 * As `thalweg_client_open`, without waiting: calls may be made at once and leave when the connection is
 * there, which turns bring about. They fail if it does not come.
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
 * The descriptor for a foreign loop: readable whenever `thalweg_client_turn` without waiting has something
 * to do. One such turn comes first, and one after each round of calls. It belongs to the client, and stays
 * the same through reconnections.
 *
 * Requires:
 * `client` is null or a client; `descriptor` points to a place for a number.
 */
uint16_t thalweg_client_descriptor(struct thalweg_client *client,
                                   int *descriptor);

/**
 * Queues a request, `length` bytes that are copied, and says by which number the call goes; no two calls of
 * a client have the same. It leaves with the next flush, turn or wait. Null options give the call what the
 * client's say. Faults: THALWEG_FRAME_TOO_LARGE, THALWEG_OVERLOADED, THALWEG_DRAINING, or why there is no
 * connection; then nothing was queued and the client may be used as before.
 *
 * Requires:
 * `client` is null or a client; `request` points to `length` bytes; `options` is null or points to options;
 * `call` to a place for a number.
 */
uint16_t thalweg_client_call(struct thalweg_client *client,
                             const uint8_t *request,
                             size_t length,
                             const struct thalweg_call_options *options,
                             uint64_t *call);

/**
 * Cancels the call. It still ends: with its answer if that was faster, else with THALWEG_CANCELLED. What
 * such an answer names may be gone: a server may take it back. An unknown call is ignored.
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
 * Lets a stream send `items` more items.
 *
 * Requires:
 * `client` is null or a client.
 */
uint16_t thalweg_client_grant(struct thalweg_client *client, uint64_t call, uint32_t items);

/**
 * Writes what is queued, as far as it can be now, and has the descriptor tell again of what came and was not
 * taken. A connection that ended shows in what comes of the calls.
 *
 * Requires:
 * `client` is null or a client.
 */
uint16_t thalweg_client_flush(struct thalweg_client *client);

/**
 * Writes what is queued, waits for input up to `wait_ms` milliseconds (0: does not wait; negative: without a
 * limit) and reads it: then `thalweg_client_next` has what came. It does not wait while an event of any call
 * was not taken. `happened`, which may be null, is the number of things that happened; 0 at the end of the
 * wait and after a signal. Faults: nothing is in flight and there is no connection, so that nothing could
 * come; THALWEG_SYSTEM.
 *
 * Requires:
 * `client` is null or a client; `happened` is null or points to a place for a number.
 */
uint16_t thalweg_client_turn(struct thalweg_client *client,
                             int64_t wait_ms,
                             size_t *happened);

/**
 * As `thalweg_client_turn`, for a caller that takes what comes of one call by `thalweg_client_take`: what
 * came of others, and was not taken, does not keep it from waiting. THALWEG_OVERRUN as of
 * `thalweg_client_wait`.
 *
 * Requires:
 * As of `thalweg_client_turn`.
 */
uint16_t thalweg_client_turn_for(struct thalweg_client *client,
                                 uint64_t call,
                                 int64_t wait_ms,
                                 size_t *happened);

/**
 * What came next, of whatever call, in order of arrival; of the kind THALWEG_EVENT_KIND_NOTHING until
 * another turn. A foreign loop asks until then: the descriptor says nothing of what was left.
 *
 * Requires:
 * `client` is null or a client; `event` points to a place for one.
 */
uint16_t thalweg_client_next(struct thalweg_client *client,
                             struct thalweg_event *event);

/**
 * What came next of one call; of the kind THALWEG_EVENT_KIND_NOTHING until another turn, or when there is no
 * such call.
 *
 * Requires:
 * As of `thalweg_client_next`.
 */
uint16_t thalweg_client_take(struct thalweg_client *client,
                             uint64_t call,
                             struct thalweg_event *event);

/**
 * Waits for what comes next of one call: its answer, or of a stream an item or the end. What comes of other
 * calls meanwhile is kept for them. Why the call has no answer is an event too; THALWEG_BAD_ARGUMENT says
 * that there is no such call, THALWEG_OVERRUN that 4 MiB of items of plain streams before it were kept
 * and not taken: then it is still in flight.
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
struct thalweg_client_state thalweg_client_state_of(const struct thalweg_client *client);

/**
 * What suits a client of a local service.
 */
struct thalweg_client_options thalweg_client_defaults(void);

/**
 * What went wrong last on this thread, in words, with what to do about it. Only of use right after a
 * function has answered with a fault, or has handed out why a call has no answer: one that succeeds leaves
 * it as it was. Lent until that happens again on this thread; never null.
 */
const char *thalweg_error_detail(void);

/**
 * Ends the call with a response frame, or with the service's own error. Takes the reply away.
 *
 * Requires:
 * `reply` is null or one that was not taken away; `frame` points to `length` bytes.
 */
uint16_t thalweg_reply_end(struct thalweg_reply *reply, const uint8_t *frame, size_t length);

/**
 * Ends the call with a fault (a code of `enum thalweg_fault`) and a message for people, `length` bytes of
 * UTF-8. Takes the reply away. An unknown code is THALWEG_BAD_ARGUMENT, and the call ends as
 * THALWEG_ABANDONED.
 *
 * Requires:
 * `reply` is null or one that was not taken away; `message` points to `length` bytes.
 */
uint16_t thalweg_reply_fail(struct thalweg_reply *reply,
                            uint16_t fault,
                            const uint8_t *message,
                            size_t length);

/**
 * Ends the call as THALWEG_ABANDONED. Takes the reply away; null is fine.
 *
 * Requires:
 * `reply` is null or one that was not taken away.
 */
void thalweg_reply_drop(struct thalweg_reply *reply);

/**
 * Sends one item of a stream, and says whether to make another.
 *
 * Requires:
 * `reply` is null or one that was not taken away; `frame` points to `length` bytes.
 */
enum thalweg_flow thalweg_reply_item(struct thalweg_reply *reply,
                                     const uint8_t *frame,
                                     size_t length);

/**
 * Whether nobody waits for the answer any more: the call was cancelled, its deadline passed, or its client
 * is gone. It is to be ended, or dropped, all the same.
 *
 * Requires:
 * `reply` is null or one that was not taken away.
 */
bool thalweg_reply_cancelled(const struct thalweg_reply *reply);

/**
 * Has `wake` called with `context` once a stream may go on or nobody waits for the answer any more; at once
 * if it is so already, before this returns. It is called from whatever thread brought that about, which must
 * not be held up: let it set a flag or wake somebody, and not use the reply. One that was given before is
 * forgotten. What takes the reply away forgets it too: no `wake` begins after that, but one that another
 * thread has begun may still run. `release`, which may be null, is called once, from any thread, when `wake`
 * will not be called (any more), whatever this function answers: then nobody uses `context`. What takes the
 * reply away calls it before it returns, unless such a wake still runs, which calls it when it is over.
 *
 * Requires:
 * `reply` is null or one that was not taken away; `wake` and `release` may be called with `context` from any
 * thread.
 */
uint16_t thalweg_reply_changed(struct thalweg_reply *reply,
                               void (*wake)(void *context),
                               void *context,
                               void (*release)(void *context));

/**
 * A minute for an answer, eight connections to an address, of which two are kept.
 */
struct thalweg_rpc_options thalweg_rpc_defaults(void);

/**
 * A client of the service at a URL, `http://host:port/rpc/name`. Connects with the first call. Null options
 * are the defaults. Faults: THALWEG_BAD_ARGUMENT for a URL that is none or an option that cannot be right, a
 * token among them; THALWEG_NO_SERVER for a host that nobody knows.
 *
 * Requires:
 * `url` is a string that a NUL ends, and so is the token of the options if there is one; `options` is null
 * or points to options; `client` to a place for a handle.
 */
uint16_t thalweg_rpc_open(const char *url,
                          const struct thalweg_rpc_options *options,
                          struct thalweg_rpc **client);

/**
 * Closes every connection and frees the client; null is fine. Calls under way are not heard of any more.
 *
 * Requires:
 * `client` is null, or came from `thalweg_rpc_open` and was not closed.
 */
void thalweg_rpc_close(struct thalweg_rpc *client);

/**
 * Another service, or the same at another address, over the same connections: its number, for
 * `struct thalweg_rpc_ask`. At most `targets_max` are kept. One more replaces the least recently called one
 * that has neither a connection nor a call that waits for one: its number is THALWEG_BAD_ARGUMENT from then
 * on. Its URL gets a new number when it is named again. Faults: as of `thalweg_rpc_open`.
 *
 * Requires:
 * `client` is null or a client; `url` is a string that a NUL ends; `target` points to a place for a number.
 */
uint16_t thalweg_rpc_target(struct thalweg_rpc *client,
                            const char *url,
                            uint32_t *target);

/**
 * The descriptor for a foreign loop: readable whenever `thalweg_rpc_turn` without waiting has something to
 * do. One such turn comes first, and one after each round of calls. It belongs to the client.
 *
 * Requires:
 * `client` is null or a client; `descriptor` points to a place for a number.
 */
uint16_t thalweg_rpc_descriptor(struct thalweg_rpc *client,
                                int *descriptor);

/**
 * Begins calls, which go together, and says by which number; no two of a client have the same. They leave
 * with the next turn or wait. Without an `ask` one call goes alone and several as a batch. Faults:
 * THALWEG_OVERLOADED, THALWEG_BAD_ARGUMENT; then nothing was begun.
 *
 * Requires:
 * `client` is null or a client; `calls` points to `calls_count` calls whose pointers point to what they say;
 * `ask` is null or points to one; `number` to a place for a number.
 */
uint16_t thalweg_rpc_begin(struct thalweg_rpc *client,
                           const struct thalweg_rpc_call *calls,
                           size_t calls_count,
                           const struct thalweg_rpc_ask *ask,
                           uint64_t *number);

/**
 * Cancels these calls; no event reports them. Their connection is closed, by which a server may notice.
 * Unknown calls are ignored.
 *
 * Requires:
 * `client` is null or a client.
 */
uint16_t thalweg_rpc_cancel(struct thalweg_rpc *client,
                            uint64_t call);

/**
 * Writes what was begun, waits for input up to `wait_ms` milliseconds (0: does not wait; negative: without a
 * limit) and reads it: then `thalweg_rpc_next` has what came. `happened`, which may be null, is the number
 * of things that came; 0 at the end of the wait and after a signal. Faults: THALWEG_SYSTEM.
 *
 * Requires:
 * `client` is null or a client; `happened` is null or points to a place for a number.
 */
uint16_t thalweg_rpc_turn(struct thalweg_rpc *client,
                          int64_t wait_ms,
                          size_t *happened);

/**
 * What came next, of whatever calls, in order of arrival; of call 0 until another turn.
 *
 * Requires:
 * `client` is null or a client; `done` points to a place for one.
 */
uint16_t thalweg_rpc_next(struct thalweg_rpc *client, struct thalweg_rpc_done *done);

/**
 * Waits for what comes of calls that were begun. What comes of others meanwhile is kept for them. Why they
 * have no answers is said there too; THALWEG_BAD_ARGUMENT says that there are no such calls.
 *
 * Requires:
 * As of `thalweg_rpc_next`.
 */
uint16_t thalweg_rpc_wait(struct thalweg_rpc *client,
                          uint64_t call,
                          struct thalweg_rpc_done *done);

/**
 * One of the answers to the calls that were taken last, by the place of its call among them.
 * THALWEG_BAD_ARGUMENT: there is none at that place.
 *
 * Requires:
 * `client` is null or a client; `answer` points to a place for one.
 */
uint16_t thalweg_rpc_answer_at(struct thalweg_rpc *client,
                               size_t place,
                               struct thalweg_rpc_answer *answer);

/**
 * Asks whether the client's own service was made from the schema with this hash of 32 bytes, as generated
 * code has it, and waits for what the server says. Faults: THALWEG_SCHEMA_MISMATCH where it was not; why
 * there is no answer, or which fault it is.
 *
 * Requires:
 * `client` is null or a client; `hash` is null or points to 32 bytes.
 */
uint16_t thalweg_rpc_expect_schema(struct thalweg_rpc *client,
                                   const uint8_t *hash);

/**
 * What the client has done so far; all zeros for null.
 *
 * Requires:
 * `client` is null or a client.
 */
struct thalweg_rpc_statistics thalweg_rpc_statistics_of(const struct thalweg_rpc *client);

/**
 * Listens at `count` endpoints (`*.sock`, `*.shm`, `-`). A path is taken over only from a server that is
 * dead. Null options are the defaults. Faults: THALWEG_ADDRESS_IN_USE, THALWEG_PERMISSION_DENIED,
 * THALWEG_BAD_ARGUMENT, THALWEG_SYSTEM.
 *
 * Requires:
 * `endpoints` points to `count` strings that a NUL ends; `options` is null or points to options; `server` to
 * a place for a handle.
 */
uint16_t thalweg_server_open(const char *const *endpoints,
                             size_t count,
                             const struct thalweg_server_options *options,
                             struct thalweg_server **server);

/**
 * Ends every connection, removes the paths and frees the server; null is fine. (While another process holds
 * a directory's lock the paths stay; the next server that binds there removes them.) Replies that are still
 * out may be used, and answer nobody. One of its callbacks cannot close it: then nothing is done.
 *
 * Requires:
 * `server` is null, or came from `thalweg_server_open` and was not closed.
 */
void thalweg_server_close(struct thalweg_server *server);

/**
 * The descriptor for a foreign loop: readable whenever `thalweg_server_turn` without waiting has something
 * to do. It belongs to the server. -1 for null, and to a callback of a run.
 *
 * Requires:
 * `server` is null or a server.
 */
int thalweg_server_descriptor(const struct thalweg_server *server);

/**
 * Reads, writes and waits up to `wait_ms` milliseconds (0: does not wait; negative: without a limit): then
 * `thalweg_server_next` has the requests that came. `happened`, which may be null, is the number of things
 * that happened.
 *
 * Requires:
 * `server` is null or a server; `happened` is null or points to a place for a number.
 */
uint16_t thalweg_server_turn(struct thalweg_server *server,
                             int64_t wait_ms,
                             size_t *happened);

/**
 * Whether the server was stopped and everything that was begun is answered: the end of a loop of turns.
 * Never while it runs.
 *
 * Requires:
 * `server` is null or a server.
 */
bool thalweg_server_is_stopped(const struct thalweg_server *server);

/**
 * The next request that came; one whose reply is null when there is none until another turn. A foreign loop
 * asks until then, whatever became of a request: only then do answers leave, and does the descriptor tell of
 * what comes.
 *
 * Requires:
 * `server` is null or a server; `request` points to a place for one.
 */
uint16_t thalweg_server_next(struct thalweg_server *server,
                             struct thalweg_request *request);

/**
 * Answers requests one after the other, on this thread, until the server is stopped: `handle` is lent a
 * request until it returns, and says its answer by `thalweg_answer_write`. One that writes nothing answers
 * with an empty frame. It may use a stopper, and nothing else of the server: THALWEG_BAD_ARGUMENT.
 *
 * Requires:
 * `server` is null or a server; `handle` may be called with `context`, and does not unwind.
 */
uint16_t thalweg_server_run(struct thalweg_server *server,
                            void (*handle)(void *context,
                                           const uint8_t *frame,
                                           size_t length,
                                           struct thalweg_answer *answer),
                            void *context);

/**
 * Appends to the answer that a serial handler gives.
 *
 * Requires:
 * `answer` is null or the one a handler was called with, which has not returned; `bytes` points to `length`
 * bytes.
 */
uint16_t thalweg_answer_write(struct thalweg_answer *answer,
                              const uint8_t *bytes,
                              size_t length);

/**
 * Hands requests out as they come, on this thread, until the server is stopped; then takes no more and
 * returns when each one that was handed out has been answered. `take` is lent the request until it returns,
 * but for the reply, which is its own: what is answered before it returns costs neither lock nor copy. It
 * may use a stopper, and nothing else of the server: THALWEG_BAD_ARGUMENT.
 *
 * Requires:
 * `server` is null or a server; `take` may be called with `context`, and does not unwind.
 */
uint16_t thalweg_server_run_reactor(struct thalweg_server *server,
                                    void (*take)(void *context,
                                                 const struct thalweg_request *request),
                                    void *context);

/**
 * What stops this server, to be handed to `thalweg_stopper_free`. It may outlive the server. Any thread may
 * ask, and a callback, while the server is open.
 *
 * Requires:
 * `server` is null or a server; `stopper` points to a place for a handle.
 */
uint16_t thalweg_server_stopper(const struct thalweg_server *server,
                                struct thalweg_stopper **stopper);

/**
 * Stops the server, from any thread: it takes nothing new, what has begun is answered, then its `run`
 * returns. More than once is fine, and so is null.
 *
 * Requires:
 * `stopper` is null or one that was not freed.
 */
void thalweg_stopper_stop(const struct thalweg_stopper *stopper);

/**
 * Frees a stopper; null is fine.
 *
 * Requires:
 * `stopper` is null, or came from `thalweg_server_stopper` and was not freed.
 */
void thalweg_stopper_free(struct thalweg_stopper *stopper);

/**
 * What the server has done so far; all zeros for null, and to a callback of a run.
 *
 * Requires:
 * `server` is null or a server.
 */
struct thalweg_server_statistics thalweg_server_statistics_of(const struct thalweg_server *server);

/**
 * What suits a service whose clients are local programs.
 */
struct thalweg_server_options thalweg_server_defaults(void);

/**
 * No arguments, ten seconds to answer, five to end, and no second start.
 */
struct thalweg_spawn_options thalweg_spawn_defaults(void);

/**
 * Starts a program (a path, or a name that is looked for as a shell does) and waits until its endpoint
 * answers. Null options are the defaults. Faults: THALWEG_BAD_ARGUMENT where there is no such program,
 * THALWEG_PERMISSION_DENIED where it may not be run, THALWEG_ADDRESS_IN_USE where another server answers
 * already, THALWEG_NO_SERVER when it ended before it answered, THALWEG_CONNECT_TIMEOUT when it did not
 * answer in time and was ended. `thalweg_error_detail` quotes the end of its log.
 *
 * Requires:
 * `program` and `endpoint` are strings that a NUL ends; `options` is null or points to options whose
 * pointers point to what they say; `spawned` to a place for a handle.
 */
uint16_t thalweg_spawned_start(const char *program,
                               const char *endpoint,
                               const struct thalweg_spawn_options *options,
                               struct thalweg_spawned **spawned);

/**
 * Ends the program as `thalweg_spawned_stop` does, and frees what is known of it; null is fine.
 *
 * Requires:
 * `spawned` is null, or came from `thalweg_spawned_start` and was not closed.
 */
void thalweg_spawned_close(struct thalweg_spawned *spawned);

/**
 * Looks whether the program still runs, and starts it anew if it does not and may be: then `respawned`,
 * which may be null, is how it had ended. THALWEG_NO_SERVER: it ended, and stays so. THALWEG_CLOSED: it was
 * stopped.
 *
 * Requires:
 * `spawned` is null or a program; `respawned` is null or points to a place for an exit.
 */
uint16_t thalweg_spawned_tend(struct thalweg_spawned *spawned,
                              struct thalweg_exit *respawned);

/**
 * Tends the program, then connects to it. Over `-`, once. The client is the caller's, and outlives the
 * program as one whose connection ended.
 *
 * Requires:
 * `spawned` is null or a program; `options` is null or points to options; `client` to a place for a handle.
 */
uint16_t thalweg_spawned_connect(struct thalweg_spawned *spawned,
                                 const struct thalweg_client_options *options,
                                 struct thalweg_client **client);

/**
 * Ends a program that does not do as it should, by force if it must be, and starts it anew.
 *
 * Requires:
 * `spawned` is null or a program.
 */
uint16_t thalweg_spawned_restart(struct thalweg_spawned *spawned);

/**
 * Asks the program to end (TERM), and kills it when it has not within `end_within_ms`. `exit`, which may be
 * null, is how it ended.
 *
 * Requires:
 * `spawned` is null or a program; `exit` is null or points to a place for an exit.
 */
uint16_t thalweg_spawned_stop(struct thalweg_spawned *spawned,
                              struct thalweg_exit *exit);

/**
 * Readable when the program ended, and another one after it was started anew. It belongs to the program. -1
 * while there is none.
 *
 * Requires:
 * `spawned` is null or a program.
 */
int thalweg_spawned_descriptor(const struct thalweg_spawned *spawned);

/**
 * The program's process, 0 while there is none.
 *
 * Requires:
 * `spawned` is null or a program.
 */
uint32_t thalweg_spawned_process(const struct thalweg_spawned *spawned);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THALWEG_H */
