//! The functions that Erlang sees, under the names of `src/thalweg_nif.erl`. Each reads its arguments, does
//! one thing, and says what came of it; a wrong argument is `badarg`, a panic `{error, panicked}`.

use crate::atoms::{Atoms, atoms};
use crate::connection::{Connection, ConnectionOptions, RouterStep, State, Tended, look};
use crate::encode::NoValue;
use crate::enif::RawTerm;
use crate::python::{self, RequestError};
use crate::term::{Env, same};
use crate::waiter::{self, Expect};
use crate::{decode, encode, handle};
use std::sync::MutexGuard;
use std::time::Duration;
use thalweg_events::Kind;
use thalweg_service::{CallId, CallOptions, Error};
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;

/// Hundredths of a process's turn that such a look counts for: a caller whose answers are always there never
/// sleeps, and would make hundreds of calls in a turn while others with answers in their mailboxes wait for
/// theirs.
const LOOK_PERCENT: i32 = 25;
/// Bytes of a result that count as a hundredth of a process's turn.
const PERCENT_BYTES: usize = 4 << 10;

/// What a function returns; `None` is a wrong argument.
pub(crate) type Answer = Option<RawTerm>;

/// No term: has the function called again, with the same arguments, where it may take long.
pub(crate) const AGAIN_APART: RawTerm = 0;

fn error(env: Env, reason: RawTerm) -> RawTerm {
    env.make_tuple(&[atoms(env).error, reason])
}

fn no_value(env: Env, what: NoValue) -> RawTerm {
    error(env, env.make_tuple(&[atoms(env).no_python_value, env.make_binary(what.0.as_bytes())]))
}

fn refused(env: Env, why: RequestError) -> Answer {
    match why {
        RequestError::NoValue(what) => Some(no_value(env, what)),
        RequestError::BadArgument => None,
        RequestError::Large => Some(AGAIN_APART),
    }
}

/// Writes a request into a connection's buffer. A long one is written before others are kept from the
/// connection.
fn written(
    env: Env,
    connection: &Connection,
    make: impl FnOnce(&mut Vec<u8>) -> Result<(), RequestError>,
) -> Result<MutexGuard<'_, State>, RequestError> {
    if env.is_apart() {
        let mut buffer = Vec::new();
        make(&mut buffer)?;
        let mut state = connection.lock();
        state.buffer = buffer;
        return Ok(state);
    }
    let mut state = connection.lock();
    make(&mut state.buffer)?;
    env.took((state.buffer.len() / PERCENT_BYTES) as i32);
    Ok(state)
}

/// A frame of another caller's.
fn frame(env: Env, frame: &[u8], out: &mut Vec<u8>) -> Result<(), RequestError> {
    if frame.len() > encode::INLINE_BYTES_MAX && !env.is_apart() {
        return Err(RequestError::Large);
    }
    out.clear();
    out.extend_from_slice(frame);
    Ok(())
}

fn failed(env: Env, state: &State, why: &Error) -> RawTerm {
    waiter::refusal(env, why, state.reached())
}

/// `{pending, Connection, Number}`.
fn pending(env: Env, connection: RawTerm, call: CallId) -> RawTerm {
    env.make_tuple(&[atoms(env).pending, connection, env.make_natural(call.number())])
}

/// `open(Endpoint, Router, {Schema | none, InFlightMax, ConnectWithinMs, IsShared, Reconnects, SameUserOnly})`.
pub(crate) fn open(env: Env, arguments: &[RawTerm]) -> Answer {
    let [endpoint, router, wishes] = arguments else { return None };
    let endpoint = env.iodata(*endpoint)?;
    let router = env.pid(*router)?;
    let [schema, in_flight_max, within, is_shared, reconnects, same_user_only] = env.tuple(*wishes)? else {
        return None;
    };
    let mut wanted = ConnectionOptions {
        in_flight_max: u32::try_from(env.natural(*in_flight_max)?).ok()?,
        connect_within: Duration::from_millis(env.natural(*within)?),
        is_shared: same(*is_shared, atoms(env).yes),
        reconnects: same(*reconnects, atoms(env).yes),
        same_user_only: same(*same_user_only, atoms(env).yes),
        ..ConnectionOptions::default()
    };
    if let Some(schema) = env.binary(*schema) {
        wanted.schema = schema.try_into().ok()?;
    }
    match parsed(endpoint).and_then(|endpoint| Connection::begin(&endpoint, &wanted, router)) {
        Ok(connection) => {
            let term = handle::make(env, connection)?;
            Some(env.make_tuple(&[atoms(env).ok, term]))
        }
        Err(why) => Some(waiter::failure(env, &why)),
    }
}

fn parsed(endpoint: &[u8]) -> Result<Endpoint, Error> {
    let wrong = |problem: String| Error::new(Fault::BadArgument, problem);
    let text =
        std::str::from_utf8(endpoint).map_err(|problem| wrong(format!("an endpoint is text: {problem}")))?;
    text.parse().map_err(|problem| wrong(format!("{problem}")))
}

/// `turn(Connection) -> again | idle | {down, Reason}`: the router's.
pub(crate) fn turn(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    let connection = handle::of(env, *connection)?;
    let known = atoms(env);
    let next = connection.lock().route(env);
    Some(match next {
        RouterStep::Again => known.again,
        RouterStep::Sleep if handle::watch(env, connection, known.undefined) => known.idle,
        RouterStep::Sleep | RouterStep::End => {
            let why = connection.lock().failure();
            let why = why.map_or(known.closed, |why| waiter::failure(env, &why));
            env.make_tuple(&[known.down, why])
        }
    })
}

/// The connection of several that least speaks against; of equal ones the first, whose worker is the
/// likeliest to look.
fn least_loaded<'c>(env: Env, connections: RawTerm) -> Option<(RawTerm, &'c Connection)> {
    let Some(several) = env.tuple(connections) else {
        return Some((connections, handle::of(env, connections)?));
    };
    if let [only] = several {
        return Some((*only, handle::of(env, *only)?));
    }
    let each = several.iter().filter_map(|term| {
        let connection = handle::of(env, *term)?;
        let burden = connection.lock().burden();
        Some((burden, *term, connection))
    });
    each.min_by_key(|(burden, ..)| *burden).map(|(_, term, connection)| (term, connection))
}

/// `{error, no_worker}` for an empty tuple of connections; anything else was no argument of this kind.
fn no_connection(env: Env, connections: RawTerm) -> Answer {
    env.tuple(connections)?.is_empty().then(|| error(env, env.atom("no_worker")))
}

/// Makes a call whose request `make` writes, and looks a little for its answer.
fn ask(
    env: Env,
    connections: RawTerm,
    reference: RawTerm,
    may_look: bool,
    expect: Expect,
    options: CallOptions,
    make: impl FnOnce(&mut Vec<u8>) -> Result<(), RequestError>,
) -> Answer {
    let Some((term, connection)) = least_loaded(env, connections) else {
        return no_connection(env, connections);
    };
    let mut state = match written(env, connection, make) {
        Ok(state) => state,
        Err(why) => return refused(env, why),
    };
    let looks = may_look && state.hurried() == 0;
    let call = match state.begin(env.caller(), reference, expect, options) {
        Ok(call) => call,
        Err(why) => return Some(failed(env, &state, &why)),
    };
    if !looks {
        state.leave(env);
        return Some(pending(env, term, call));
    }
    drop(state);
    let found = look(env, connection, Some(call), |state| state.awaits(call));
    env.took(LOOK_PERCENT);
    found.or_else(|| Some(pending(env, term, call)))
}

/// `await(Connection, Number) -> {ok, Value} | {error, Reason} | pending | done`: looks a little for the
/// answer of a call, where no other call is waited for; `pending` is told of by a message, which may be there
/// by now, and of what is `done` for the caller nothing comes that is not there already.
pub(crate) fn wait(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, number] = arguments else { return None };
    let call = CallId::from_number(env.natural(*number)?);
    let connection = handle::of(env, *connection)?;
    let state = connection.lock();
    if !state.is_for(call, env.caller()) {
        return Some(atoms(env).done);
    }
    let looks = state.hurried() == 1;
    drop(state);
    let found = if looks { look(env, connection, Some(call), |state| state.awaits(call)) } else { None };
    Some(found.unwrap_or(atoms(env).pending))
}

/// `awaits(Connection, Number) -> boolean()`: whether the caller will be told more of a call or a stream.
/// What it was told before that is in its mailbox by now.
pub(crate) fn awaits(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, number] = arguments else { return None };
    let call = CallId::from_number(env.natural(*number)?);
    let is_for = handle::of(env, *connection)?.lock().is_for(call, env.caller());
    Some(if is_for { atoms(env).yes } else { atoms(env).no })
}

/// `await_group(Connection, Number) -> ok`: looks a little for what is left of a group, which is told of by a
/// message.
pub(crate) fn wait_group(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, number] = arguments else { return None };
    let number = env.natural(*number)?;
    look(env, handle::of(env, *connection)?, None, |state| state.awaits_group(number));
    Some(atoms(env).ok)
}

/// `call(Connections, Ref, {Module, Name, Positional, Named, Within}, MayLook)`.
pub(crate) fn call(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connections, reference, call, may_look] = arguments else { return None };
    let (call, may_look) = (env.tuple(*call)?, same(*may_look, atoms(env).yes));
    ask(env, *connections, *reference, may_look, Expect::Outcome, CallOptions::default(), |out| {
        python::invoke(env, call, out)
    })
}

/// `source(Connection, Ref, {IsExpression, Source, Variables, Scope, Within}, MayLook)`.
pub(crate) fn source(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, reference, call, may_look] = arguments else { return None };
    let (call, may_look) = (env.tuple(*call)?, same(*may_look, atoms(env).yes));
    ask(env, *connection, *reference, may_look, Expect::Outcome, CallOptions::default(), |out| {
        python::source(env, call, out)
    })
}

/// Within so many milliseconds, or whenever.
fn deadline(env: Env, term: RawTerm) -> Option<Duration> {
    env.natural(term).map(Duration::from_millis)
}

/// `request(Connection, Ref, Frame, {MayLook, DeadlineMs | none})`: any service's.
pub(crate) fn request(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, reference, frame, wishes] = arguments else { return None };
    let [may_look, within] = env.tuple(*wishes)? else { return None };
    let (bytes, may_look) = (env.binary(*frame)?, same(*may_look, atoms(env).yes));
    let options = CallOptions { deadline: deadline(env, *within), ..CallOptions::default() };
    ask(env, *connection, *reference, may_look, Expect::Frame, options, |out| self::frame(env, bytes, out))
}

/// `gather(Connections, Ref, [{Module, Name, Positional, Named, Within}])`: one message, once all have ended.
pub(crate) fn gather(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connections, reference, calls] = arguments else { return None };
    let Some((term, connection)) = least_loaded(env, *connections) else {
        return no_connection(env, *connections);
    };
    // All of them are written before any is sent.
    let mut requests = Vec::with_capacity(env.list_length(*calls)?);
    let mut room = encode::INLINE_BYTES_MAX;
    for call in env.items(*calls) {
        let mut request = Vec::new();
        let made = env.tuple(call).ok_or(RequestError::BadArgument);
        let made = made.and_then(|call| python::invoke(env, call, &mut request));
        room = room.saturating_sub(request.len() + 1);
        if made == Err(RequestError::Large) || room == 0 && !env.is_apart() {
            return Some(AGAIN_APART);
        }
        requests.push(made.map(|()| request));
    }
    let mut state = connection.lock();
    let caller = env.caller();
    let group = match state.begin_group(caller, *reference, requests.len()) {
        Ok(group) => group,
        Err(why) => return Some(failed(env, &state, &why)),
    };
    for (at, request) in requests.into_iter().enumerate() {
        match request {
            Err(RequestError::NoValue(what)) => state.fill(env, group, at, |env| no_value(env, what)),
            Err(_) => state.fill(env, group, at, |env| error(env, env.atom("badarg"))),
            Ok(request) => {
                state.buffer = request;
                if let Err(why) =
                    state.begin(caller, *reference, Expect::Part(group, at), CallOptions::default())
                {
                    let reached = state.reached();
                    state.fill(env, group, at, |env| waiter::refusal(env, &why, reached));
                }
            }
        }
    }
    state.leave(env);
    Some(env.make_tuple(&[atoms(env).pending, term, env.make_natural(group)]))
}

/// `stream(Connections, Ref, {Module, Name, Positional, Named, Batch | none, Within | none}, Credit)`:
/// cancelled when the caller ends.
pub(crate) fn stream(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connections, reference, call, credit] = arguments else { return None };
    let Some((term, connection)) = least_loaded(env, *connections) else {
        return no_connection(env, *connections);
    };
    let credit = u32::try_from(env.natural(*credit)?).ok()?;
    let call = env.tuple(*call)?;
    let mut state = match written(env, connection, |out| python::stream(env, call, out)) {
        Ok(state) => state,
        Err(why) => return refused(env, why),
    };
    let options = CallOptions { credit: Some(credit), ..CallOptions::default() };
    let begun = state.begin(env.caller(), *reference, Expect::Values, options);
    Some(open_stream(env, connection, state, term, begun))
}

/// `request_stream(Connection, Ref, Frame, {Credit, DeadlineMs | none})`: any service's; cancelled when the
/// caller ends.
pub(crate) fn request_stream(env: Env, arguments: &[RawTerm]) -> Answer {
    let [term, reference, frame, wishes] = arguments else { return None };
    let connection = handle::of(env, *term)?;
    let [credit, within] = env.tuple(*wishes)? else { return None };
    // None is what the server says.
    let credit = Some(u32::try_from(env.natural(*credit)?).ok()?).filter(|items| *items > 0);
    let options = CallOptions { deadline: deadline(env, *within), credit, ..CallOptions::default() };
    let bytes = env.binary(*frame)?;
    let mut state = match written(env, connection, |out| self::frame(env, bytes, out)) {
        Ok(state) => state,
        Err(why) => return refused(env, why),
    };
    let begun = state.begin(env.caller(), *reference, Expect::Frames, options);
    Some(open_stream(env, connection, state, *term, begun))
}

/// Sends a stream's request, and watches its reader.
fn open_stream(
    env: Env,
    connection: &Connection,
    mut state: MutexGuard<'_, State>,
    term: RawTerm,
    begun: Result<CallId, Error>,
) -> RawTerm {
    let call = match begun {
        Ok(call) => call,
        Err(why) => return failed(env, &state, &why),
    };
    let caller = env.caller();
    if !handle::monitor(env, connection, &mut state, caller) {
        // Its last function still runs, but its end is not told any more.
        state.bereave(caller);
    }
    state.leave(env);
    pending(env, term, call)
}

/// `attend(Connection)`: events go to the caller from here on.
pub(crate) fn attend(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    let mut state = handle::of(env, *connection)?.lock();
    Some(match state.attend(env, env.caller()) {
        Ok(_) => {
            state.leave(env);
            atoms(env).ok
        }
        Err(why) => failed(env, &state, &why),
    })
}

/// `watch_process(Connection) -> boolean()`: the caller is sent
/// `{select, Connection, undefined, ready_input}` once the worker's process has ended, even if another
/// process still holds what it had open.
pub(crate) fn watch_process(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    let known = atoms(env);
    let connection = handle::of(env, *connection)?;
    let is_watched = handle::watch_process(env, connection, env.caller(), known.undefined);
    Some(if is_watched { known.yes } else { known.no })
}

/// `kill_process(Connection) -> boolean()`: ends the worker's process, or says that it is not watched.
pub(crate) fn kill_process(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    let is_known = handle::of(env, *connection)?.lock().kill_process();
    Some(if is_known { atoms(env).yes } else { atoms(env).no })
}

/// Sends a request whose answer is dropped.
fn send(
    env: Env,
    connections: RawTerm,
    expect: Expect,
    make: impl FnOnce(&mut Vec<u8>) -> Result<(), RequestError>,
) -> Answer {
    let Some((_, connection)) = least_loaded(env, connections) else {
        return no_connection(env, connections);
    };
    let mut state = match written(env, connection, make) {
        Ok(state) => state,
        Err(why) => return refused(env, why),
    };
    Some(match state.begin(env.caller(), atoms(env).undefined, expect, CallOptions::default()) {
        Ok(_) => {
            state.leave(env);
            atoms(env).ok
        }
        Err(why) => failed(env, &state, &why),
    })
}

/// `cast(Connections, {Module, Name, Positional, Named, Within})`.
pub(crate) fn cast(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connections, call] = arguments else { return None };
    let call = env.tuple(*call)?;
    send(env, *connections, Expect::Nothing, |out| python::invoke(env, call, out))
}

/// `answer(Connection, Number, IsOk, Value)`.
pub(crate) fn answer(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, number, ok, value] = arguments else { return None };
    let (number, ok) = (env.natural(*number)?, same(*ok, atoms(env).yes));
    send(env, *connection, Expect::Notice, |out| python::answer(env, number, ok, *value, out))
}

/// `post(Connection, Kind, Number, Payload)`. A kind that no event loop has is refused here, where the
/// caller is told.
pub(crate) fn post(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, kind, number, payload] = arguments else { return None };
    let (named, number) = (env.natural(*kind)?, env.natural(*number)?);
    let Some(known) = u8::try_from(named).ok().and_then(Kind::of) else {
        return Some(error(env, env.make_tuple(&[env.atom("no_such_kind"), *kind])));
    };
    let kind = known.number().into();
    send(env, *connection, Expect::Nothing, |out| python::post(env, kind, number, *payload, out))
}

/// `forget(Connection, Scope)`.
pub(crate) fn forget(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, scope] = arguments else { return None };
    let scope = env.binary(*scope)?;
    send(env, *connection, Expect::Notice, |out| {
        python::forget(scope, out);
        Ok(())
    })
}

/// `grant(Connection, Number, Items)`.
pub(crate) fn grant(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, number, items] = arguments else { return None };
    let call = CallId::from_number(env.natural(*number)?);
    let mut state = handle::of(env, *connection)?.lock();
    state.grant(call, u32::try_from(env.natural(*items)?).ok()?);
    state.leave(env);
    Some(atoms(env).ok)
}

/// `taken(Connection, Lines) -> Bytes`: so many lines of the worker's log were taken; what was left out
/// since.
pub(crate) fn taken(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, lines] = arguments else { return None };
    let lines = u32::try_from(env.natural(*lines)?).ok()?;
    Some(env.make_natural(handle::of(env, *connection)?.lock().lines.taken(lines)))
}

/// `cancel(Connection, Number)`: nothing is told of the call from here on.
pub(crate) fn cancel(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, number] = arguments else { return None };
    let call = CallId::from_number(env.natural(*number)?);
    let mut state = handle::of(env, *connection)?.lock();
    state.cancel(call);
    state.leave(env);
    Some(atoms(env).ok)
}

/// `cancel_group(Connection, Number)`.
pub(crate) fn cancel_group(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection, number] = arguments else { return None };
    let group = env.natural(*number)?;
    let mut state = handle::of(env, *connection)?.lock();
    state.cancel_group(group);
    state.leave(env);
    Some(atoms(env).ok)
}

/// `load(Connection)`: calls in flight, of those that count.
pub(crate) fn load(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    let (in_flight, _) = handle::of(env, *connection)?.lock().bound();
    Some(env.make_natural(in_flight as u64))
}

/// `tend(Connection) -> again | boolean()`: gives up calls of processes that are no more; whether to ask
/// again before long, or at once for the next part of them. The router's.
pub(crate) fn tend(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    let tended = handle::of(env, *connection)?.lock().tend(env);
    let known = atoms(env);
    Some(match tended {
        Tended::Again => known.again,
        Tended::Later => known.yes,
        Tended::Done => known.no,
    })
}

/// `close(Connection)`: every call is told so, and where that may take long, on a scheduler apart.
pub(crate) fn close(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    let connection = handle::of(env, *connection)?;
    if !env.is_apart() {
        let mut state = connection.lock();
        if state.close(env) || state.has_groups() {
            return Some(AGAIN_APART);
        }
    }
    handle::close(env, connection, atoms(env).undefined);
    Some(atoms(env).ok)
}

/// `give_up(Connection)`: every call is told that the worker ends, which goes on meanwhile; where there are
/// many, on a scheduler apart.
pub(crate) fn give_up(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    let connection = handle::of(env, *connection)?;
    let mut left = connection.lock().begun();
    while connection.lock().give_up(env, &mut left) {
        if !env.is_apart() {
            return Some(AGAIN_APART);
        }
    }
    Some(atoms(env).ok)
}

/// `unpack(Connection) -> ok | busy`: reads what was too large to be read in the middle of a process's turn,
/// unless another process does.
pub(crate) fn unpack(env: Env, arguments: &[RawTerm]) -> Answer {
    let [connection] = arguments else { return None };
    Some(if handle::of(env, *connection)?.unpack(env) { atoms(env).ok } else { env.atom("busy") })
}

/// `encode(Term)`: what a worker would be sent.
pub(crate) fn to_bytes(env: Env, arguments: &[RawTerm]) -> Answer {
    let [term] = arguments else { return None };
    let mut out = Vec::with_capacity(64);
    if let Err(why) = encode::term(env, *term, &mut out) {
        return refused(env, why.into());
    }
    env.took((out.len() / PERCENT_BYTES) as i32);
    Some(ok(env, env.make_binary(&out)))
}

/// `decode(Binary)`: what a worker would have sent.
pub(crate) fn of_bytes(env: Env, arguments: &[RawTerm]) -> Answer {
    let [bytes] = arguments else { return None };
    let bytes = env.binary(*bytes)?;
    if bytes.len() > encode::INLINE_BYTES_MAX && !env.is_apart() {
        return Some(AGAIN_APART);
    }
    env.took((bytes.len() / PERCENT_BYTES) as i32);
    Some(match decode::term(env, bytes) {
        Ok(term) => ok(env, term),
        Err(wrong) => error(env, waiter::no_value(env, &wrong.0)),
    })
}

fn ok(env: Env, value: RawTerm) -> RawTerm {
    let Atoms { ok, .. } = atoms(env);
    env.make_tuple(&[*ok, value])
}
