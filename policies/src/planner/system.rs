//! What the planner knows of the models that share requests: how long their steps take, where requests move, and what each
//! move commits. Numbers only; nobody is asked, and nothing is measured here.

use serde::{Deserialize, Serialize};

/// How far a row of moves may be from adding up to 1.
const ROW_TOLERANCE: f64 = 1e-6;

/// The largest step in ticks that a plan may have.
const TICKS_MAX: f64 = 1e9;

/// Models that share requests. Lists go by the number of a model, from 0; times are in seconds.
///
/// A request that ends and makes room for the next one is, to the planner, a move to the entry model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Where requests enter.
    pub entry: usize,
    /// How long each model's forward pass takes.
    pub times: Vec<StepTimes>,
    /// `moves[i][j]`: how likely a request that took a step at i takes its next one at j. Each row adds up to 1.
    pub moves: Vec<Vec<f64>>,
    /// `commits[i][j]`: how many tokens such a move commits, from 0 to 1; between them where it is measured.
    pub commits: Vec<Vec<f64>>,
    /// The most requests in one pass of each model; none means no limit.
    pub caps: Vec<Option<u32>>,
    /// The grain of time, in seconds: steps are rounded to whole ticks.
    pub tick: f64,
}

/// How long a forward pass takes, by how many requests are in it: measured points, with straight lines between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepTimes {
    /// Requests in the pass, rising, and its seconds.
    points: Vec<(u32, f64)>,
}

/// A system that cannot be planned for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Faulty {
    /// No model at all.
    #[error("there is no model; name the step time of each")]
    NoModels,
    /// A list or row that has not one entry for each model.
    #[error("{what} has {found} entries and there are {models} models; give one for each")]
    Size {
        /// Which list.
        what: String,
        /// Its length.
        found: usize,
        /// The number of models.
        models: usize,
    },
    /// An entry model that does not exist.
    #[error("the entry is model {entry} and there are {models}; they count from 0")]
    Entry {
        /// The entry.
        entry: usize,
        /// The number of models.
        models: usize,
    },
    /// A step time without points, or with sizes that do not rise.
    #[error("the step times of model {0} need batch sizes that begin at 1 or more and rise")]
    Points(usize),
    /// A step time of nothing, less, or no number.
    #[error(
        "a step of model {model} with {batch} requests takes {seconds} s; a step time is above 0"
    )]
    Time {
        /// The model.
        model: usize,
        /// How many requests are in the step.
        batch: u32,
        /// The time in seconds.
        seconds: f64,
    },
    /// A share outside of 0 to 1.
    #[error("{what} is {value}; it must lie between 0 and 1")]
    Share {
        /// Which one.
        what: String,
        /// Its value.
        value: f64,
    },
    /// Moves that do not add up.
    #[error(
        "the moves from model {model} add up to {sum}, not to 1; say for every request where it goes, with those that \
         stay at {model}, and count one that ends as a move to the entry model"
    )]
    Row {
        /// The model.
        model: usize,
        /// The sum of its row.
        sum: f64,
    },
    /// A batch of nobody.
    #[error("the largest batch of model {0} is 0; it must be at least 1")]
    Cap(usize),
    /// A tick that is no time.
    #[error("the tick is {0} s; it must be above 0")]
    Tick(f64),
    /// A tick too coarse for the steps.
    #[error(
        "the tick of {tick} s is longer than the shortest step of {shortest} s; choose a tenth of that or less"
    )]
    CoarseTick {
        /// The tick in seconds.
        tick: f64,
        /// The shortest step in seconds.
        shortest: f64,
    },
    /// A tick too fine for the steps.
    #[error("the longest step of {longest} s has too many ticks of {tick} s; choose a longer tick")]
    FineTick {
        /// The tick in seconds.
        tick: f64,
        /// The longest step in seconds.
        longest: f64,
    },
    /// Requests that are never finished.
    #[error(
        "a request that has come to model {0} never again makes a move that commits a token; check the moves and the commits"
    )]
    NothingCommitted(usize),
}

impl StepTimes {
    /// The same time for every batch, in seconds.
    pub fn fixed(seconds: f64) -> Self {
        Self { points: vec![(1, seconds)] }
    }

    /// Points of how many requests are in a pass and its seconds, in any order; [`System::validate`] judges them.
    pub fn measured(mut points: Vec<(u32, f64)>) -> Self {
        points.sort_by_key(|(batch, _)| *batch);
        Self { points }
    }

    /// The points: requests in a pass, and its seconds.
    pub fn points(&self) -> &[(u32, f64)] {
        &self.points
    }

    /// The seconds of a pass of `batch` requests: on the line between two points; below the first point its time, above the
    /// last one on the line through the last two, which never falls there.
    pub fn at(&self, batch: u32) -> f64 {
        let above = self.points.partition_point(|(size, _)| *size < batch);
        match (above.checked_sub(1).map(|i| self.points[i]), self.points.get(above)) {
            (_, Some(&(size, seconds))) if size == batch => seconds,
            (Some(below), Some(&above)) => along(below, above, batch),
            (None, Some(&(_, seconds))) => seconds,
            (Some(last), None) => match self.points.len().checked_sub(2) {
                Some(i) => along(self.points[i], last, batch).max(last.1),
                None => last.1,
            },
            (None, None) => f64::NAN,
        }
    }
}

/// The value at `x` on the line through two points.
fn along((x0, y0): (u32, f64), (x1, y1): (u32, f64), x: u32) -> f64 {
    y0 + (y1 - y0) * (f64::from(x) - f64::from(x0)) / (f64::from(x1) - f64::from(x0))
}

impl System {
    /// How many models there are.
    pub fn models(&self) -> usize {
        self.times.len()
    }

    /// The most requests in one pass of a model while `live` are alive.
    pub fn cap(&self, model: usize, live: u32) -> u32 {
        self.caps[model].map_or(live, |cap| cap.min(live))
    }

    /// How many ticks a pass of `batch` requests takes at a model: at least 1.
    pub fn ticks(&self, model: usize, batch: u32) -> u32 {
        (self.times[model].at(batch) / self.tick).round().clamp(1.0, f64::from(u32::MAX)) as u32
    }

    /// How many tokens one request's step at a model commits on average.
    pub fn yield_of(&self, model: usize) -> f64 {
        self.moves[model].iter().zip(&self.commits[model]).map(|(p, c)| p * c).sum()
    }

    /// Checks everything the planner relies on.
    ///
    /// # Errors
    /// The first fault.
    pub fn validate(&self) -> Result<(), Faulty> {
        let models = self.models();
        if models == 0 {
            return Err(Faulty::NoModels);
        }
        let sized = |what: &str, found: usize| match found == models {
            true => Ok(()),
            false => Err(Faulty::Size { what: what.to_owned(), found, models }),
        };
        sized("the list of moves", self.moves.len())?;
        sized("the list of commits", self.commits.len())?;
        sized("the list of largest batches", self.caps.len())?;
        if self.entry >= models {
            return Err(Faulty::Entry { entry: self.entry, models });
        }
        for model in 0..models {
            sized(&format!("the row of moves from model {model}"), self.moves[model].len())?;
            sized(&format!("the row of commits from model {model}"), self.commits[model].len())?;
            self.validate_rows(model)?;
            if self.caps[model] == Some(0) {
                return Err(Faulty::Cap(model));
            }
        }
        self.validate_times()?;
        self.validate_commits()
    }

    fn validate_rows(&self, model: usize) -> Result<(), Faulty> {
        let rows =
            [("the move", &self.moves[model]), ("the commit of the move", &self.commits[model])];
        for (kind, row) in rows {
            if let Some((to, &value)) =
                row.iter().enumerate().find(|(_, v)| !(0.0..=1.0).contains(*v))
            {
                let what = format!("{kind} from model {model} to model {to}");
                return Err(Faulty::Share { what, value });
            }
        }
        let sum: f64 = self.moves[model].iter().sum();
        match (sum - 1.0).abs() <= ROW_TOLERANCE {
            true => Ok(()),
            false => Err(Faulty::Row { model, sum }),
        }
    }

    fn validate_times(&self) -> Result<(), Faulty> {
        for (model, times) in self.times.iter().enumerate() {
            let points = times.points();
            let rising = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
            if points.first().is_none_or(|(batch, _)| *batch == 0) || !rising {
                return Err(Faulty::Points(model));
            }
            if let Some(&(batch, seconds)) =
                points.iter().find(|(_, s)| !s.is_finite() || *s <= 0.0)
            {
                return Err(Faulty::Time { model, batch, seconds });
            }
        }
        let tick = self.tick;
        if !tick.is_finite() || tick <= 0.0 {
            return Err(Faulty::Tick(tick));
        }
        let steps =
            || self.times.iter().flat_map(|times| times.points()).map(|(_, seconds)| *seconds);
        let (shortest, longest) =
            (steps().fold(f64::INFINITY, f64::min), steps().fold(0.0, f64::max));
        if tick > shortest * (1.0 + 1e-9) {
            return Err(Faulty::CoarseTick { tick, shortest });
        }
        match longest / tick > TICKS_MAX {
            true => Err(Faulty::FineTick { tick, longest }),
            false => Ok(()),
        }
    }

    /// Wherever requests end up for ever, tokens must be committed.
    fn validate_commits(&self) -> Result<(), Faulty> {
        let reach: Vec<Vec<bool>> = (0..self.models()).map(|from| self.reachable(from)).collect();
        for model in (0..self.models()).filter(|&model| reach[self.entry][model]) {
            let class = || (0..self.models()).filter(|&other| reach[model][other]);
            let for_ever = class().all(|other| reach[other][model]);
            if for_ever && class().all(|other| self.yield_of(other) <= 0.0) {
                return Err(Faulty::NothingCommitted(model));
            }
        }
        Ok(())
    }

    /// Which models a request at `from` can come to, itself included.
    fn reachable(&self, from: usize) -> Vec<bool> {
        let mut seen = vec![false; self.models()];
        let mut open = vec![from];
        while let Some(model) = open.pop() {
            if !std::mem::replace(&mut seen[model], true) {
                open.extend((0..self.models()).filter(|&to| self.moves[model][to] > 0.0));
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests;
