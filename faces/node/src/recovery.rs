//! What opening a store found, on its way to JavaScript.

use napi::Either;
use napi::bindgen_prelude::Null;
use napi_derive::napi;
use thalweg_log::{Damage, Recovered};

/// What recovery found.
#[napi(object)]
pub struct RecoveryRow {
    pub logs: f64,
    pub checkpoint: Either<f64, Null>,
    pub batches: f64,
    pub clean: bool,
    pub discarded_bytes: f64,
    pub damage: Vec<DamageRow>,
    pub unnamed: Either<DamageRow, Null>,
}

/// A span that does not read back as it was written.
#[napi(object)]
pub struct DamageRow {
    pub message: String,
    pub file: String,
    pub from: f64,
    pub resumes: Either<f64, Null>,
    pub logs: Either<Vec<f64>, Null>,
}

impl From<&Recovered> for RecoveryRow {
    fn from(found: &Recovered) -> RecoveryRow {
        RecoveryRow {
            logs: found.logs as f64,
            checkpoint: or_null(found.checkpoint.map(|position| position as f64)),
            batches: found.batches as f64,
            clean: found.clean,
            discarded_bytes: found.discarded_bytes as f64,
            damage: found.damage.iter().map(DamageRow::from).collect(),
            unnamed: or_null(found.unnamed.as_ref().map(DamageRow::from)),
        }
    }
}

impl From<&Damage> for DamageRow {
    fn from(damage: &Damage) -> DamageRow {
        let logs = damage.logs.known().map(|logs| logs.iter().map(|log| *log as f64).collect());
        DamageRow {
            message: damage.to_string(),
            file: damage.file.clone(),
            from: damage.from as f64,
            resumes: or_null(damage.resumes.map(|position| position as f64)),
            logs: or_null(logs),
        }
    }
}

fn or_null<T>(value: Option<T>) -> Either<T, Null> {
    value.map_or(Either::B(Null), Either::A)
}
