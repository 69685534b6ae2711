//! Requests that were taken back, and what becomes of those that lay around them.

use super::*;

/// The connection ends, and the server never read the last `unread` bytes of it.
pub(super) fn disconnect_unread(session: &mut Session, unread: usize) {
    let why = |left| Error::new(if left { Fault::Disconnected } else { Fault::NotSent }, "");
    session.disconnect(unread as u64, why);
}

/// With its deadline the request is taken back, if none of it left.
fn expire(session: &mut Session, call: CallId) {
    session.until(call, Instant::now());
    session.expire(Instant::now());
    assert_eq!(next(session), Some((call, "not_sent".into())));
}

#[test]
fn what_a_server_that_died_never_read_is_not_sent_whatever_was_taken_back_behind_it() {
    let head = HEADER_BYTES;
    for (behind, leaves) in [(0, 0), (1, 0), (1, head + 3), (1, head + 4), (2, 2 * (head + 4))] {
        let mut session = session(false);
        let unread = [0; 3].map(|_| ask(&mut session, b"left"));
        session.sent(3 * (head + 4));
        let late = ask(&mut session, &[0; 900]);
        let behind: Vec<CallId> = (0..behind).map(|_| ask(&mut session, b"more")).collect();
        expire(&mut session, late);
        session.sent(leaves);
        let later = ask(&mut session, &[0; 900]);
        expire(&mut session, later);
        disconnect_unread(&mut session, 2 * (head + 4) + leaves);
        let told: Vec<_> = std::iter::from_fn(|| next(&mut session)).collect();
        let calls = unread.iter().chain(&behind).enumerate();
        let expected: Vec<_> =
            calls.map(|(n, call)| (*call, if n == 0 { "disconnected" } else { "not_sent" }.into())).collect();
        assert_eq!(told, expected, "of {} behind it {leaves} bytes left", behind.len());
    }
}

/// So many that the buffer is rid of them while others still wait, which then lie elsewhere.
#[test]
fn what_lies_between_requests_that_were_taken_back_leaves_whole_and_can_be_taken_back_itself() {
    for plain in [false, true] {
        let bounds = Bounds { plain, frame_bytes_max: 1_000, in_flight_max: 64, unsent_bytes_max: 100_000 };
        let mut session = Session::new(bounds);
        let calls: Vec<CallId> = (0..60_u8).map(|n| ask(&mut session, &[n; 900])).collect();
        let frame_bytes = session.unsent_bytes() / calls.len();
        let (kept, unwanted): (Vec<usize>, Vec<usize>) = (0..60).partition(|n| n % 10 == 0);
        unwanted.iter().for_each(|n| session.forget(calls[*n]));
        assert_eq!(session.outgoing.gone(), 0, "the first one is kept");
        assert!(!session.outgoing.is_sparse(session.calls.slots()), "the buffer is rid of most");
        session.forget(calls[30]);
        let kept: Vec<usize> = kept.into_iter().filter(|n| *n != 30).collect();
        let unsent = unsent(&session);
        assert_eq!(unsent.len(), kept.len() * frame_bytes);
        for (n, frame) in kept.iter().zip(unsent.chunks(frame_bytes)) {
            assert_eq!(frame[frame_bytes - 900..], [*n as u8; 900]);
        }
        session.sent(2 * frame_bytes);
        disconnect(&mut session);
        let told: Vec<_> = std::iter::from_fn(|| next(&mut session)).collect();
        let fault = |n: usize| if n < 20 { "disconnected" } else { "not_sent" };
        let expected: Vec<_> = kept.iter().map(|n| (calls[*n], fault(*n).to_owned())).collect();
        assert_eq!(told, expected);
    }
}
