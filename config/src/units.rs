//! Sizes and durations as people write them: `2GiB`, `50ms`.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;
use std::time::Duration;

/// A number of bytes: written `2GiB`, `512MB` or as a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const BYTE_UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

/// In seconds. `ms` stands before `m` and `s`, which end like it.
const TIME_UNITS: [(&str, f64); 5] =
    [("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size {
                return write!(f, "{:.1} {unit}", self.0 as f64 / size as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// Reads a size.
///
/// # Errors
/// A text that is not a number with a unit, or a size beyond `u64`.
pub fn parse_bytes(text: &str) -> Result<Bytes, String> {
    let fault =
        || format!("`{text}` is not a size; write a number and a unit, such as 512MiB or 2GiB");
    let text = text.trim();
    let unit = BYTE_UNITS.iter().find_map(|&(unit, size)| Some((text.strip_suffix(unit)?, size)));
    let (number, size) = unit.unwrap_or((text, 1));
    let number: f64 = number.trim().parse().map_err(|_| fault())?;
    let bytes = number * size as f64;
    if !(0.0..9e18).contains(&bytes) {
        return Err(fault());
    }
    Ok(Bytes(bytes as u64))
}

/// Reads a duration. A unit is asked for, since a bare `5` could be anything.
///
/// # Errors
/// A text that is not a number with a unit, a negative duration, or one of more than a year.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let fault = || {
        format!("`{text}` is not a duration; write a number and a unit, such as 50ms, 10s or 2m")
    };
    let trimmed = text.trim();
    let (number, scale) = TIME_UNITS
        .iter()
        .find_map(|&(unit, scale)| Some((trimmed.strip_suffix(unit)?, scale)))
        .ok_or_else(fault)?;
    let seconds = number.trim().parse::<f64>().map_err(|_| fault())? * scale;
    if !(0.0..=366.0 * 86_400.0).contains(&seconds) {
        return Err(fault());
    }
    Ok(Duration::from_secs_f64(seconds))
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as 512MiB or 2GiB")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Bytes, E> {
        Ok(Bytes(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Bytes, E> {
        u64::try_from(value).map(Bytes).map_err(|_| E::custom("a size cannot be negative"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Bytes, E> {
        parse_bytes(value).map_err(E::custom)
    }
}

/// For `#[serde(deserialize_with)]`: a duration with its unit.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_any(DurationVisitor)
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration with its unit, such as 50ms, 10s or 2m")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Duration, E> {
        parse_duration(value).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        let cases =
            [("2GiB", 2 << 30), ("1.5 MiB", 3 << 19), ("4096", 4096), ("3kB", 3000), ("7B", 7)];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "two", "-1GiB", "NaN", "inf", "2XiB", "99999999999TiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        let cases = [("50ms", 50), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000)];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "NaNs", "infs", "9e99h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_prints_in_the_largest_fitting_unit() {
        assert_eq!(Bytes(2 << 30).to_string(), "2.0 GiB");
        assert_eq!(Bytes(1000).to_string(), "1000 B");
    }
}
