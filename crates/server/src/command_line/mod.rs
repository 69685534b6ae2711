//! The command line: what a line and the environment may say, how a mistake in them is told, and the pages
//! that are made from it. Never does what a line says.
//!
//! | file | what it is |
//! |---|---|
//! | [`arguments`] | every verb and flag |
//! | [`flag_ranges`] | the range of each number, for help and manual pages |
//! | [`usage`] | mistakes, for people and for programs |
//! | [`pages`] | manual pages and completions |

mod arguments;
pub(crate) mod flag_ranges;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
pub(crate) mod pages;
pub(crate) mod usage;

pub(crate) use arguments::{
    Arguments, Durability, ForkServerOptions, LogFormat, LogLevel, ServeOptions, StateHistory, Switch, Verb,
    WebhooksLoopback,
};
