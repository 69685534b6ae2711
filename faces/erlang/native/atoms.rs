//! The atoms that the library itself speaks of. Atoms are words that fit every environment, so they are made
//! once.

use crate::enif::RawTerm;
use crate::term::Env;
use std::sync::OnceLock;

macro_rules! atoms {
    ($($name:ident $(= $text:literal)?),+ $(,)?) => {
        #[derive(Debug)]
        pub(crate) struct Atoms { $(pub(crate) $name: RawTerm),+ }

        impl Atoms {
            fn new(env: Env) -> Self {
                Self { $($name: env.atom(atoms!(@text $name $($text)?))),+ }
            }
        }
    };
    (@text $name:ident $text:literal) => { $text };
    (@text $name:ident) => { stringify!($name) };
}

atoms! {
    again, bytes, closed, data, done, down, error, fault, frame, idle, infinity, nan, negative_infinity,
    no_erlang_value, no_python_value, none, ok, overloaded, panicked, pending, refused, send, thalweg, thalweg_event, undefined,
    no = "false",
    yes = "true",
}

static ATOMS: OnceLock<Atoms> = OnceLock::new();

/// Makes them, and the one that workers speak of and that may not have been made yet.
pub(crate) fn prepare(env: Env) {
    ATOMS.get_or_init(|| Atoms::new(env));
    env.atom("exception");
}

/// All of them. They are there since the library was loaded.
pub(crate) fn atoms(env: Env) -> &'static Atoms {
    ATOMS.get_or_init(|| Atoms::new(env))
}
