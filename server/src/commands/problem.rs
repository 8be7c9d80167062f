//! The problems: where they come from, and when a reply to one is right. Reads files, and never asks a model.

use crate::commands::CommandError;
use serde::Deserialize;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How many of the built-in problems are taken where nobody says.
const BUILT_IN: usize = 200;

/// A problem and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(in crate::commands) struct Problem {
    pub(in crate::commands) question: String,
    pub(in crate::commands) answer: String,
}

/// What `--problems` names: how many, or a file of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problems {
    /// So many, from the first that is not skipped.
    Count(usize),
    /// All of a file.
    File(PathBuf),
}

impl FromStr for Problems {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::File(text.into()), Self::Count))
    }
}

/// Which problems to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) struct Selection<'a> {
    /// The file, the built-in problems if none is named.
    file: Option<&'a Path>,
    /// How many at most; all if nobody says.
    count: Option<usize>,
    /// How many to pass over first.
    skip: usize,
}

impl<'a> Selection<'a> {
    /// What the arguments `[FILE]`, `--problems` and `--skip` say together.
    ///
    /// # Errors
    /// Two files, or a count of nothing.
    pub(in crate::commands) fn new(
        file: Option<&'a Path>,
        problems: Option<&'a Problems>,
        skip: usize,
    ) -> Result<Self, CommandError> {
        let (file, count) = match (file, problems) {
            (Some(_), Some(Problems::File(other))) => {
                let other = other.display();
                let reason = format!("flag --problems: `{other}` is a second file; name one");
                return Err(CommandError::Input(reason));
            }
            (_, Some(Problems::Count(0))) => {
                let reason = "flag --problems: 0 problems measure nothing; take at least 1";
                return Err(CommandError::Input(reason.to_owned()));
            }
            (None, Some(Problems::File(file))) => (Some(file.as_path()), None),
            (file, Some(Problems::Count(count))) => (file, Some(*count)),
            (Some(file), None) => (Some(file), None),
            (None, None) => (None, Some(BUILT_IN)),
        };
        Ok(Self { file, count, skip })
    }

    /// The selected problems, at least one.
    ///
    /// # Errors
    /// A file that cannot be read, a line that is no problem, nothing left after the skipped ones.
    pub(in crate::commands) fn load(&self) -> Result<Vec<Problem>, CommandError> {
        match self.file {
            None => self.parse("the built-in problems", tokenrouter_models::PROBLEMS),
            Some(path) => {
                let name = path.display().to_string();
                let text = std::fs::read_to_string(path).map_err(|e| {
                    CommandError::Input(format!("{name}: the file cannot be read: {e}"))
                })?;
                self.parse(&name, &text)
            }
        }
    }

    fn parse(&self, name: &str, text: &str) -> Result<Vec<Problem>, CommandError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let parse = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|e| {
                let hint = "write {\"question\": \"…\", \"answer\": \"…\"}";
                CommandError::Input(format!("{name}:{}: not a problem: {e}; {hint}", index + 1))
            })
        };
        let selected = lines.clone().skip(self.skip).take(self.count.unwrap_or(usize::MAX));
        let problems = selected.map(parse).collect::<Result<Vec<Problem>, _>>()?;
        if problems.is_empty() {
            let reason = match lines.count() {
                0 => format!("{name}: there are no problems in it"),
                all => format!("{name}: it has {all} problems and {} are skipped", self.skip),
            };
            return Err(CommandError::Input(reason));
        }
        if let Some(count) = self.count.filter(|count| *count > problems.len()) {
            tracing::warn!("{name}: {} problems are left, not {count}", problems.len());
        }
        Ok(problems)
    }
}

/// Whether a reply gives the answer: in its last `answer is …`, in its last `\boxed{…}`, or as all it says after
/// reasoning. One that only begins like the answer does not.
pub(in crate::commands) fn is_right(reply: &str, answer: &str) -> bool {
    let answer = answer.trim();
    let said = reply.rsplit("</think>").next().unwrap_or(reply).trim();
    let marked = ["answer is", "\\boxed{"].iter().filter_map(|mark| said.rsplit_once(mark));
    let mut marked = marked.peekable();
    if marked.peek().is_none() {
        return begins_with(said, answer) && said.len() <= answer.len() + 1;
    }
    marked.any(|(_, rest)| begins_with(rest.trim_start_matches([' ', ':', '*', '$', '\n']), answer))
}

/// Whether `text` begins with `answer`, and with nothing that only begins like it: 17 is neither 171 nor 17.5.
fn begins_with(text: &str, answer: &str) -> bool {
    let Some(rest) = text.strip_prefix(answer) else { return false };
    let mut rest = rest.chars();
    match rest.next() {
        Some('.' | ',') => !rest.next().is_some_and(|next| next.is_ascii_digit()),
        next => !next.is_some_and(char::is_alphanumeric),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "{\"question\": \"a\", \"answer\": \"1\"}\n\n{\"question\": \"b\", \"answer\": \"2\"}\nno problem\n";

    fn selection(count: Option<usize>, skip: usize) -> Selection<'static> {
        Selection { file: None, count, skip }
    }

    #[test]
    fn a_reply_is_right_only_with_the_whole_answer() {
        let right = [
            "<think>\n\n</think>\n\nThe answer is 17.",
            "The answer is: **17**",
            "so \\boxed{17}",
            "The answer is $\\boxed{17}$",
            "The answer is 4, no: the answer is 17, I think",
            "17",
            "<think>\nThe answer is 4.</think>\n17.",
        ];
        for reply in right {
            assert!(is_right(reply, "17"), "{reply}");
        }
        let wrong = [
            "The answer is 171.",
            "The answer is 17.5",
            "The answer is 1",
            "The answer is 17, no: the answer is 4",
            "17 of 20",
            "",
        ];
        for reply in wrong {
            assert!(!is_right(reply, "17"), "{reply}");
        }
        assert!(is_right("The answer is -5.", "-5") && !is_right("The answer is -5.", "5"));
    }

    #[test]
    fn a_selection_skips_and_counts_problems_not_lines() {
        let questions = |count, skip| -> Result<Vec<String>, String> {
            let problems = selection(count, skip).parse("f", TWO).map_err(|e| e.to_string())?;
            Ok(problems.into_iter().map(|problem| problem.question).collect())
        };
        assert_eq!(questions(Some(2), 0).unwrap(), ["a", "b"]);
        assert_eq!(questions(Some(1), 1).unwrap(), ["b"]);
        assert!(questions(None, 0).unwrap_err().starts_with("f:4: not a problem: "));
        assert_eq!(questions(None, 3).unwrap_err(), "f: it has 3 problems and 3 are skipped");
        let empty = selection(None, 0).parse("f", "\n").unwrap_err().to_string();
        assert_eq!(empty, "f: there are no problems in it");
    }

    #[test]
    fn a_number_counts_and_anything_else_is_a_file() {
        let (count, file) = ("30".parse().unwrap(), "30.jsonl".parse().unwrap());
        assert_eq!((&count, &file), (&Problems::Count(30), &Problems::File("30.jsonl".into())));
        let (one, two) = (Path::new("one"), Path::new("30.jsonl"));
        let new = |file, problems| Selection::new(file, problems, 7).map_err(|e| e.to_string());
        let made = |file, count| Ok(Selection { file, count, skip: 7 });
        assert_eq!(new(None, None), made(None, Some(200)));
        assert_eq!(new(Some(one), None), made(Some(one), None));
        assert_eq!(new(Some(one), Some(&count)), made(Some(one), Some(30)));
        assert_eq!(new(None, Some(&file)), made(Some(two), None));
        assert!(new(Some(one), Some(&file)).unwrap_err().contains("second file"));
        assert!(new(None, Some(&Problems::Count(0))).unwrap_err().contains("at least 1"));
    }
}
