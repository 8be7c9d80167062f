//! The time of day and year, in UTC: for templates that ask for it, and for the names of results. A calendar of two functions,
//! since nothing else needs one.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// `format` in the manner of `strftime`, for a time in seconds since 1970. A directive that is not known stays as it is.
pub fn format(format: &str, seconds: u64) -> String {
    let days = seconds / 86_400;
    let (year, month, day) = civil(days);
    let name = MONTHS[month as usize - 1];
    let weekday = DAYS[(days % 7) as usize];
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('Y') => text += &year.to_string(),
            Some('y') => text += &format!("{:02}", year % 100),
            Some('m') => text += &format!("{month:02}"),
            Some('d') => text += &format!("{day:02}"),
            Some('B') => text += name,
            Some('b') => text += &name[..3],
            Some('A') => text += weekday,
            Some('a') => text += &weekday[..3],
            Some('H') => text += &format!("{:02}", seconds / 3600 % 24),
            Some('M') => text += &format!("{:02}", seconds / 60 % 60),
            Some('S') => text += &format!("{:02}", seconds % 60),
            Some('%') => text.push('%'),
            Some(other) => {
                text.push('%');
                text.push(other);
            }
            None => text.push('%'),
        }
    }
    text
}

/// Year, month and day of the day number `days` since 1970: whole years first, then whole months.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        let cases = [
            (0, "1970-01-01 Thu"),
            (951_782_400, "2000-02-29 Tue"),
            (1_709_164_800, "2024-02-29 Thu"),
            (1_796_083_199, "2026-11-30 Mon"),
            (4_107_542_400, "2100-03-01 Mon"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(format("%Y-%m-%d %a", seconds), expected);
        }
        assert_eq!(
            format("%d %B %Y, %H:%M:%S 100%% %q", 1_796_083_199),
            "30 November 2026, 23:59:59 100% %q"
        );
    }
}
