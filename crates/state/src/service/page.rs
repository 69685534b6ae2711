//! How much of a list one answer has: the same for entries, changes and forks.

/// Items of one answer: by default, and at most.
const LIMIT: u32 = 1_000;
const LIMIT_MAX: u32 = 10_000;
/// Bytes of one answer at most, as they are counted, unless the first item alone has more: that one is always
/// given.
const ANSWER_BYTES: usize = 1 << 20;

/// The limit that a request asks for.
pub(super) fn limit(wanted: Option<u32>) -> usize {
    // One at least, or a client that goes on at `next` would never come to an end.
    wanted.unwrap_or(LIMIT).clamp(1, LIMIT_MAX) as usize
}

/// The first of these that fit into one answer, and the one to go on at.
pub(super) fn paged<T>(
    items: impl IntoIterator<Item = T>,
    limit: usize,
    bytes_of: impl Fn(&T) -> usize,
) -> (Vec<T>, Option<T>) {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += bytes_of(&item);
        if !taken.is_empty() && (taken.len() >= limit || bytes > ANSWER_BYTES) {
            return (taken, Some(item));
        }
        taken.push(item);
    }
    (taken, None)
}
