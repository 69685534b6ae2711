//! JSON that stays text: walked ([`Text`]), passed over, appended ([`mod@write`]), and taken for messages
//! ([`messages()`]).
//!
//! Nothing is built between the text and whatever it becomes, so an integer of 64 bits never passes through a
//! float.

mod lexeme;
mod messages;
mod skim;
mod text;
pub mod write;

pub use messages::{JsonError, Messages, end_of_message, messages};
pub use text::{DEPTH_MAX, Kind, Quoted, SyntaxError, Text};
