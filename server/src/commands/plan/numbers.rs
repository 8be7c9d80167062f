//! Numbers on the command line become a system to plan for. Whether they can be is the planner's to say; here it is only
//! whether they are numbers.

use crate::cli::Numbers;
use crate::commands::CommandError;
use std::str::FromStr;
use tokenrouter_policies::planner::{StepTimes, System};

/// The longest tick that is chosen where none is named, in seconds, and the ticks in the shortest step.
const TICK_MAX: f64 = 1e-4;
const TICKS_MIN: f64 = 10.0;

/// The system that the flags describe.
///
/// # Errors
/// The first text that is no number.
pub(super) fn system(numbers: &Numbers, times: &str) -> Result<System, CommandError> {
    let times = list("times", times, step_times)?;
    let models = times.len();
    let caps: Vec<u32> = match &numbers.caps {
        Some(text) => list("caps", text, |text| number("caps", text))?,
        None => vec![0; models],
    };
    let steps = || times.iter().flat_map(|times| times.points()).map(|(_, seconds)| *seconds);
    let tick = (steps().fold(f64::INFINITY, f64::min) / TICKS_MIN).min(TICK_MAX);
    Ok(System {
        entry: numbers.entry,
        moves: matrix("moves", numbers.moves.as_deref())?,
        commits: matrix("commits", numbers.commits.as_deref())?,
        caps: caps.into_iter().map(|cap| Some(cap).filter(|cap| *cap > 0)).collect(),
        tick: numbers.tick.map_or(tick, |ms| ms / 1e3),
        times,
    })
}

/// `6.0`, or by how many requests are in a pass `1:6.0/8:7.5`; in milliseconds.
fn step_times(text: &str) -> Result<StepTimes, CommandError> {
    let seconds = |text: &str| number("times", text).map(|ms: f64| ms / 1e3);
    if !text.contains(':') {
        return Ok(StepTimes::fixed(seconds(text)?));
    }
    let point = |text: &str| match text.split_once(':') {
        Some((batch, time)) => Ok((number("times", batch)?, seconds(time)?)),
        None => Err(fault("times", text, "write REQUESTS:MILLISECONDS, as in 1:6.0/8:7.5")),
    };
    Ok(StepTimes::measured(text.split('/').map(point).collect::<Result<_, CommandError>>()?))
}

fn matrix(flag: &str, text: Option<&str>) -> Result<Vec<Vec<f64>>, CommandError> {
    let rows = text.unwrap_or_default().split('/');
    rows.map(|row| list(flag, row, |text| number(flag, text))).collect()
}

fn list<T>(
    flag: &str,
    text: &str,
    entry: impl Fn(&str) -> Result<T, CommandError>,
) -> Result<Vec<T>, CommandError> {
    match text.trim() {
        "" => Err(fault(flag, text, "write a number for each model, with commas between them")),
        text => text.split(',').map(entry).collect(),
    }
}

fn number<T: FromStr>(flag: &str, text: &str) -> Result<T, CommandError> {
    text.trim().parse().map_err(|_| fault(flag, text, "write a number"))
}

fn fault(flag: &str, text: &str, hint: &str) -> CommandError {
    CommandError::Input(format!("flag --{flag}: `{}` cannot be read; {hint}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(moves: &str, caps: Option<&str>) -> Numbers {
        Numbers {
            times: None,
            moves: Some(moves.to_owned()),
            commits: Some("1,0/1,0".to_owned()),
            caps: caps.map(str::to_owned),
            entry: 0,
            tick: None,
            thresholds: Vec::new(),
        }
    }

    #[test]
    fn rows_and_points_are_read() {
        let system = system(&numbers("0.65, 0.35/1,0", Some("0,4")), "6.0,1:20/8:41.5").unwrap();
        assert_eq!(system.moves, [[0.65, 0.35], [1.0, 0.0]]);
        assert_eq!(system.times[1].points(), [(1, 0.02), (8, 0.0415)]);
        assert_eq!((system.caps, system.tick), (vec![None, Some(4)], 1e-4));
    }

    #[test]
    fn what_is_no_number_is_named_with_its_flag() {
        let error = |moves: &str, times: &str| {
            system(&numbers(moves, None), times).unwrap_err().to_string()
        };
        let cases = [
            (error("0.65,x/1,0", "6,27.9"), "flag --moves: `x` cannot be read"),
            (error("0.65,0.35/", "6,27.9"), "flag --moves: `` cannot be read"),
            (error("1,0/1,0", "6;27.9"), "flag --times: `6;27.9` cannot be read"),
            (error("1,0/1,0", "6,1:3/4"), "flag --times: `4` cannot be read; write REQUESTS:"),
        ];
        for (error, expected) in cases {
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
