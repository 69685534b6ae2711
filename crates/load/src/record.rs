//! What a record holds, so that a follower knows when it was sent and whether one before it is missing: 20
//! digits of nanoseconds, a blank, a 12-digit number that counts from zero, a blank, and dots. Never a line
//! end, so that it is one line of an event.

/// Bytes of the least record.
pub(crate) const RECORD_BYTES_MIN: usize = TIME_DIGITS + SERIAL_DIGITS + 2;

const TIME_DIGITS: usize = 20;
const SERIAL_DIGITS: usize = 12;

/// A record of `bytes` bytes, at least [`RECORD_BYTES_MIN`], with time and number zero.
pub(crate) fn blank(bytes: usize) -> Vec<u8> {
    let mut record = vec![b'.'; bytes.max(RECORD_BYTES_MIN)];
    stamp(&mut record, 0, 0);
    record
}

/// Writes time and number into a record.
pub(crate) fn stamp(record: &mut [u8], sent_ns: u64, serial: u64) {
    digits(&mut record[..TIME_DIGITS], sent_ns);
    record[TIME_DIGITS] = b' ';
    digits(&mut record[TIME_DIGITS + 1..=TIME_DIGITS + SERIAL_DIGITS], serial);
    record[TIME_DIGITS + SERIAL_DIGITS + 1] = b' ';
}

/// When a record left and what its number is; `None`: it is no record.
pub(crate) fn read(record: &[u8]) -> Option<(u64, u64)> {
    let head = record.get(..RECORD_BYTES_MIN)?;
    let time = number(&head[..TIME_DIGITS])?;
    Some((time, number(&head[TIME_DIGITS + 1..=TIME_DIGITS + SERIAL_DIGITS])?))
}

fn digits(into: &mut [u8], mut number: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_written_into_it() {
        let mut record = blank(256);
        stamp(&mut record, 1_234_567_890_123_456_789, 987_654_321_098);
        assert_eq!((record.len(), read(&record)), (256, Some((1_234_567_890_123_456_789, 987_654_321_098))));
        assert_eq!(blank(1).len(), RECORD_BYTES_MIN);
        assert_eq!(read(&record[..RECORD_BYTES_MIN - 1]), None);
        assert_eq!(read(&[b'x'; 40]), None);
    }
}
