//! What an error quotes of a text that was received: its beginning, so that a refusal is never as long as
//! what it refuses.

/// Characters that are told.
pub const EXCERPT_CHARS: usize = 80;

/// As much of a text as a refusal tells of it.
///
/// ```
/// use thalweg_wire::excerpt::{EXCERPT_CHARS, excerpt};
/// assert_eq!(excerpt("main"), "main");
/// assert_eq!(excerpt(&"é".repeat(1_000)), "é".repeat(EXCERPT_CHARS));
/// ```
pub fn excerpt(text: &str) -> &str {
    let end = text.char_indices().nth(EXCERPT_CHARS).map_or(text.len(), |(at, _)| at);
    &text[..end]
}
