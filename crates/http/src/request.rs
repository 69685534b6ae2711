//! From bytes to a whole request, and from the service's answer to a place in the connection's order.

use crate::at::At;
use crate::bodies;
use crate::connection::{Active, Body, LiveRequest, Manner, Peer, Reply};
use crate::limit::Limit;
use crate::patience::Phase;
use crate::reactor::{Http, HttpCore, Waiting};
use crate::receive::let_room_go;
use thalweg_queue::Admission;
use thalweg_wire::exchange::{Announced, Answer, Method, Refusal, Request, Response, Service, Weight};
use thalweg_wire::field::Name;
use thalweg_wire::host::HOST_UNKNOWN;
use thalweg_wire::http1::{BodyLength, ChunkedDecoder, Head, announced};

/// What one attempt at a request came to.
enum RequestOutcome<T> {
    /// More bytes are needed.
    Nothing,
    /// The head is there; its body is still to come.
    Head(Body, bool),
    /// A whole request was answered; it ends before `end`.
    Whole { answer: Answer<T>, manner: Manner, end: usize },
    /// Not a request.
    Refused(Refusal),
    /// A request that reads, for the next turn.
    PutOff,
    /// A request that reads, and has to see what those before it write.
    Held,
    /// A request that will not be answered otherwise, whatever its body says.
    Denied(Response),
}

/// How a request lies that has come whole.
struct RequestBounds {
    /// Where it ends in the input.
    end: usize,
    /// Nothing has come behind it.
    is_last: bool,
    /// Writes before it are not done.
    behind_writes: bool,
}

impl<S: Service> Http<S> {
    /// Takes one request from the input, if one is whole, or refuses what can never be one. `false`: more
    /// bytes are needed.
    pub(crate) fn take_request(&mut self, at: &mut At<'_, S>) -> bool {
        let peer = at.entry().map(|entry| entry.peer()).unwrap_or_default();
        let taken = if matches!(at.active.body, Body::Chunked { .. }) {
            self.take_chunked(at, peer)
        } else {
            self.take_plain(at, peer)
        };
        at.active.held = matches!(taken, RequestOutcome::Held);
        match taken {
            // Nothing is reserved for a body that no head has announced.
            RequestOutcome::Nothing if matches!(at.active.body, Body::Unknown) => return false,
            RequestOutcome::Nothing => {
                let body = std::mem::replace(&mut at.active.body, Body::Unknown);
                let fits = self.reserve_body(at, &body);
                at.active.body = body;
                if fits {
                    return false;
                }
                self.refuse_full(at);
            }
            RequestOutcome::Head(body, expects_continue) => {
                if !self.reserve_body(at, &body) {
                    self.refuse_full(at);
                    return true;
                }
                at.active.body = body;
                at.active.continue_owed = expects_continue;
                // Chunks may be there already; of a counted body something is missing.
                return matches!(at.active.body, Body::Chunked { .. });
            }
            RequestOutcome::PutOff => {
                self.put_off(at);
                return false;
            }
            RequestOutcome::Held => return false,
            RequestOutcome::Refused(refusal) => self.refuse(at, &refusal),
            RequestOutcome::Denied(response) => self.end_with(at.active, response),
            RequestOutcome::Whole { answer: Answer::Cold(work), .. } => self.warm_request(at, work),
            RequestOutcome::Whole { answer, mut manner, end } => {
                manner.close |= peer.overflow;
                at.active.warmings = 0;
                at.active.start = end;
                at.active.body = Body::Unknown;
                self.bodies.release(at.active);
                let_room_go(at);
                at.active.phase = Phase::Idle;
                at.active.continue_owed = false;
                at.active.closing |= manner.close;
                self.place(at, answer, manner);
            }
        }
        true
    }

    /// A request without a body or with a counted one: served where it lies, without a copy.
    fn take_plain(&mut self, at: &mut At<'_, S>, peer: Peer) -> RequestOutcome<S::Topic> {
        let unread = &at.active.input[at.active.start..];
        if unread.is_empty()
            || matches!(at.active.body, Body::Fixed { total_bytes, .. } if unread.len() < total_bytes)
        {
            return RequestOutcome::Nothing;
        }
        let head = match self.heads.parse(at.key.slot(), &mut at.active.parser, unread) {
            Ok(Some(head)) => head,
            Ok(None) => return RequestOutcome::Nothing,
            Err(refusal) => return RequestOutcome::Refused(refusal),
        };
        let length = match head.body {
            BodyLength::Known(length) if length > self.config.body_bytes_max => {
                return RequestOutcome::Refused(BODY_TOO_LARGE);
            }
            BodyLength::Known(length) => length as usize,
            BodyLength::Chunked => {
                let body = Body::Chunked {
                    head_bytes: head.bytes,
                    decoder: ChunkedDecoder::default(),
                    decoded: Vec::new(),
                };
                return self.admitted(at.core, &head, body, peer);
            }
        };
        let total_bytes = head.bytes + length;
        if unread.len() < total_bytes {
            let body = Body::Fixed { head_bytes: head.bytes, total_bytes };
            return self.admitted(at.core, &head, body, peer);
        }
        let arrived = RequestBounds {
            end: at.active.start + total_bytes,
            is_last: unread.len() == total_bytes,
            behind_writes: at.active.awaited > 0,
        };
        self.carry_out(at.core, &head, &unread[head.bytes..total_bytes], peer, arrived)
    }

    /// Has the service answer a request that has come whole, if there is room for it and it need not wait.
    fn carry_out(
        &mut self,
        core: &mut HttpCore<S>,
        head: &Head<'_>,
        body: &[u8],
        peer: Peer,
        RequestBounds { end, is_last, behind_writes }: RequestBounds,
    ) -> RequestOutcome<S::Topic> {
        if behind_writes && matches!(head.method, Method::Get | Method::Head) {
            // RFC 9112 9.3.2: what follows a write in the same connection sees it, so it waits for it.
            return RequestOutcome::Held;
        }
        let asked = request(head, body, peer);
        let weight = self.service.weight(&asked);
        if let Some(refusal) = self.unheard(core, &asked, weight, peer) {
            let answer =
                Answer::Respond(self.service.refuse(&refusal, Announced::of(&asked), Self::now(core)));
            return RequestOutcome::Whole { answer, manner: manner(head), end };
        }
        if self.load.is_spent() && weight == Weight::Read {
            return RequestOutcome::PutOff;
        }
        let alone = self.is_alone(core);
        self.service.alone(alone && is_last);
        let _span = span(head).entered();
        let manner = Manner { appends: self.service.appends(&asked), ..manner(head) };
        let answer = self.service.call(&asked, Self::now(core));
        RequestOutcome::Whole { answer, manner, end }
    }

    /// Whether no connection waits while a request is answered: neither for the rest of this turn, nor for an
    /// answer that goes with others.
    fn is_alone(&self, core: &HttpCore<S>) -> bool {
        core.alone() && self.batch.is_empty()
    }

    /// What becomes of a request whose body is still to come.
    fn admitted(
        &mut self,
        core: &mut HttpCore<S>,
        head: &Head<'_>,
        body: Body,
        peer: Peer,
    ) -> RequestOutcome<S::Topic> {
        let asked = request(head, &[], peer);
        let weight = self.service.weight(&asked);
        if let Some(refusal) = self.unheard(core, &asked, weight, peer) {
            return RequestOutcome::Refused(refusal);
        }
        match self.service.admit(&asked, Self::now(core)) {
            Some(response) => RequestOutcome::Denied(response),
            None => RequestOutcome::Head(body, head.expects_continue),
        }
    }

    /// Why the service does not hear of a request.
    fn unheard(
        &mut self,
        core: &mut HttpCore<S>,
        asked: &Request<'_>,
        weight: Weight,
        peer: Peer,
    ) -> Option<Refusal> {
        let mistaken = self.mistaken(asked, peer).copied();
        let repeated = || asked.repeated().map(|name| Refusal { field: name.as_str(), ..HEADER_DUPLICATE });
        mistaken.or_else(repeated).or_else(|| self.overload(core, weight, peer).copied())
    }

    /// Why a request that is meant for another server is not answered. No browser leaves `Host` out, so no
    /// page can.
    fn mistaken(&mut self, asked: &Request<'_>, peer: Peer) -> Option<&'static Refusal> {
        if !peer.naming {
            return None;
        }
        let host = asked.field(Name::Host)?;
        (!self.listeners.hosts.include(host)).then_some(&HOST_UNKNOWN)
    }

    /// A chunked body: taken out of the input behind the head, which stays where it is until the end.
    fn take_chunked(&mut self, at: &mut At<'_, S>, peer: Peer) -> RequestOutcome<S::Topic> {
        let Body::Chunked { head_bytes, decoder, decoded } = &mut at.active.body else {
            return RequestOutcome::Nothing;
        };
        let body_start = at.active.start + *head_bytes;
        let mut end = body_start;
        loop {
            let chunk = match decoder.decode(&at.active.input[end..]) {
                Ok(chunk) => chunk,
                Err(refusal) => return RequestOutcome::Refused(refusal),
            };
            // A chunk counts from its announcement: its bytes need not come to be refused.
            let announced = (decoded.len() + chunk.data.len()) as u64;
            if announced.saturating_add(decoder.owed_bytes()) > self.config.body_bytes_max {
                return RequestOutcome::Refused(BODY_TOO_LARGE);
            }
            bodies::take_in(decoded, chunk.data, self.config.head_limits.head_bytes_max);
            end += chunk.consumed;
            if chunk.done {
                break;
            }
            if chunk.consumed == 0 || end == at.active.input.len() {
                at.active.input.truncate(body_start);
                return RequestOutcome::Nothing;
            }
        }
        let arrived = RequestBounds {
            end,
            is_last: at.active.input.len() == end,
            behind_writes: at.active.awaited > 0,
        };
        // The head was whole and sound when the body began; the parser has nothing new to say about it.
        let taken =
            match self.heads.parse(at.key.slot(), &mut at.active.parser, &at.active.input[at.active.start..])
            {
                Ok(Some(head)) => self.carry_out(at.core, &head, decoded, peer, arrived),
                Ok(None) => RequestOutcome::Nothing,
                Err(refusal) => RequestOutcome::Refused(refusal),
            };
        if matches!(
            taken,
            RequestOutcome::PutOff
                | RequestOutcome::Held
                | RequestOutcome::Whole { answer: Answer::Cold(_), .. }
        ) {
            // It is asked again; the decoder is done, and what it took is not to be taken twice.
            at.active.input.drain(body_start..end);
        }
        taken
    }

    /// Gives an answer its place.
    fn place(&mut self, at: &mut At<'_, S>, answer: Answer<S::Topic>, manner: Manner) {
        match answer {
            Answer::Respond(response) => self.answer_at_once(at.active, Reply { response, manner }),
            Answer::After(ticket, response) => {
                self.answer_after(at, ticket, Reply { response, manner });
            }
            Answer::Later(later) => self.await_later(at.key, at.active, later, manner),
            // Handled before: a cold request has no place yet.
            Answer::Cold(_) => {}
            Answer::Live { topic_id, topic, live, head, lasts_ms } => {
                let starting = LiveRequest { topic_id, topic, live, head, lasts_ms, manner };
                at.active.starting = Some(Box::new(starting));
            }
        }
    }

    /// Answers as soon as the connection's earlier answers have left.
    #[inline]
    fn answer_at_once(&mut self, active: &mut Active<S::Topic>, reply: Reply) {
        self.append_latency.answered(&reply);
        let sequence = active.replies.expect();
        active.ready(sequence, reply);
    }

    /// Answers once a ticket is complete. If the store failed before, it says so instead.
    fn answer_after(&mut self, at: &mut At<'_, S>, ticket: u64, reply: Reply) {
        let (sequence, manner) = (at.active.replies.expect(), reply.manner);
        let waiting = Waiting { key: at.key, sequence, reply, read_us: at.core.now_us() };
        let reply = match self.waiting.wait(ticket, waiting) {
            Admission::Waits => {
                at.active.awaited += u32::from(manner.writes);
                return;
            }
            Admission::Complete(Waiting { reply, .. }) => {
                self.append_latency.answered(&reply);
                reply
            }
            Admission::Failed(Waiting { reply, .. }) => {
                let now = Self::now(at.core);
                Reply { response: self.service.failed_instead_of(&reply.response, now), manner }
            }
        };
        at.active.ready(sequence, reply);
    }

    /// Answers with a refusal as the connection's last response, behind those that are owed.
    pub(crate) fn refuse(&mut self, at: &mut At<'_, S>, refusal: &Refusal) {
        tracing::debug!(status = refusal.status, code = refusal.code, "request refused");
        let response = self.service.refuse(refusal, announced(at.active.unread()), Self::now(at.core));
        self.end_with(at.active, response);
    }

    /// There is no room for the body that is arriving.
    fn refuse_full(&mut self, at: &mut At<'_, S>) {
        self.meters.overload(Limit::Bodies);
        self.refuse(at, &bodies::FULL);
    }

    /// Answers for the last time on this connection: what it still sends is not looked at.
    fn end_with(&mut self, active: &mut Active<S::Topic>, response: Response) {
        let sequence = active.replies.expect();
        // RFC 9110 9.3.2: whatever the answer to HEAD, it has no content.
        let head_only = active.unread().trim_ascii_start().starts_with(b"HEAD ");
        let manner = Manner { close: true, head_only, ..Manner::default() };
        active.ready(sequence, Reply { response, manner });
        active.start = active.input.len();
        active.body = Body::Unknown;
        self.bodies.release(active);
        active.phase = Phase::Idle;
        active.continue_owed = false;
        active.closing = true;
        active.linger = true;
    }
}

fn request<'a>(head: &'a Head<'_>, body: &'a [u8], peer: Peer) -> Request<'a> {
    let &Head { method, path, query, .. } = head;
    Request { method, path, query, fields: &head.fields, body, secure: peer.secure }
}

/// What a request is called in the log, at `debug`. Not looked at, it costs a load and a branch.
fn span(head: &Head<'_>) -> tracing::Span {
    tracing::debug_span!("request", method = ?head.method, path = head.path)
}

fn manner(head: &Head<'_>) -> Manner {
    Manner {
        close: !head.keep_alive,
        head_only: head.method == Method::Head,
        legacy: head.minor_version == 0,
        writes: !matches!(head.method, Method::Get | Method::Head | Method::Options),
        appends: false,
    }
}

const BODY_TOO_LARGE: Refusal = Refusal {
    status: 413,
    code: "body-too-large",
    field: "body",
    detail: "The request body is larger than body_max_bytes of this server; send it in several requests.",
};

/// Of whatever field it is.
const HEADER_DUPLICATE: Refusal = Refusal {
    status: 400,
    code: "header-duplicate",
    field: "header block",
    detail: "This header may appear only once in a request.",
};

pub(crate) const TOO_SLOW: Refusal = Refusal {
    status: 408,
    code: "request-too-slow",
    field: "request",
    detail: "The request did not arrive in time; send it again.",
};
