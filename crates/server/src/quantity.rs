//! Numbers as people read them: counts with their nouns, and bytes with their units.

use std::fmt;

/// A count and its noun, in the plural unless the count is one.
pub(crate) struct Count(pub(crate) u64, pub(crate) &'static str);

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match (self.0, self.1.ends_with("ch")) {
            (1, _) => "",
            (_, true) => "es",
            (_, false) => "s",
        };
        write!(out, "{} {}{ending}", self.0, self.1)
    }
}

/// A number of bytes, for people.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let power = (self.0.max(1).ilog2() / 10).min(5);
        let whole = self.0 >> (10 * power);
        let tenths = ((self.0 - (whole << (10 * power))) * 10) >> (10 * power);
        let unit = units[power as usize];
        if tenths == 0 { write!(out, "{whole} {unit}") } else { write!(out, "{whole}.{tenths} {unit}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_every_other_count_plural() {
        for (count, noun, text) in [
            (0, "segment", "0 segments"),
            (1, "segment", "1 segment"),
            (1, "batch", "1 batch"),
            (2, "batch", "2 batches"),
        ] {
            assert_eq!(Count(count, noun).to_string(), text);
        }
    }

    #[test]
    fn bytes_for_people() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (u64::MAX, "16383.9 PiB")]
        {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
