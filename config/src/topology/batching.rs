//! `batching:` and `scheduler:`: when models launch their forward passes, and how large those may be.

use crate::units;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// `batching.MODEL:`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Batching {
    /// The most new tokens in one step; longer prompts are split.
    pub max_batch_tokens: u32,
    /// The most requests in one step.
    pub max_batch_rows: u32,
    /// How many requests must be ready for a step.
    pub threshold: Threshold,
    /// How long a request waits for others at most; `off` for as long as the threshold says.
    #[serde(deserialize_with = "patience")]
    pub max_wait: Option<Duration>,
}

/// How many requests must be ready for a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// What the planner finds: `auto`.
    Auto,
    /// Always the same.
    Fixed(u32),
    /// From how many live requests on, and the threshold from there.
    Table(Vec<(u32, u32)>),
}

/// `scheduler:`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduler {
    /// Who waits for whom.
    pub mode: SchedulerMode,
    /// What `tokenrouter plan` wrote; thresholds that are `auto` begin with it.
    pub plan: Option<PathBuf>,
    /// Whether thresholds that are `auto` follow what is measured while serving.
    pub tune: Tune,
    /// What thresholds that are `auto` are to be good for.
    pub objective: Objective,
}

/// Who waits for whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerMode {
    /// Every model runs whenever enough requests are ready for it.
    #[default]
    Asynchronous,
    /// In rounds: all models with somebody ready run one step each, and the slowest ends the round.
    ModelSync,
    /// In rounds of a single step: models take turns.
    StepSync,
}

/// Whether thresholds follow what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Tune(pub bool);

/// What thresholds are to be good for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Objective {
    /// The most tokens a second: `throughput`.
    #[default]
    Throughput,
    /// The most tokens a second among those where 99 of 100 replies take no longer than this for each of their tokens:
    /// `{ p99_tpot: 80ms }`.
    P99Tpot(Duration),
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            max_batch_tokens: 512,
            max_batch_rows: 64,
            threshold: Threshold::Fixed(1),
            max_wait: Some(Duration::from_millis(50)),
        }
    }
}

impl Default for Tune {
    fn default() -> Self {
        Self(true)
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ThresholdVisitor)
    }
}

struct ThresholdVisitor;

impl<'de> Visitor<'de> for ThresholdVisitor {
    type Value = Threshold;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of requests, a table by live requests such as {1: 1, 6: 3}, or auto")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Threshold, E> {
        let fits = u32::try_from(value).ok().filter(|threshold| *threshold > 0);
        fits.map(Threshold::Fixed).ok_or_else(|| E::custom("must be at least 1, and below 2^32"))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Threshold, E> {
        self.visit_u64(u64::try_from(value).unwrap_or(0))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Threshold, E> {
        match value.parse::<u64>() {
            _ if value == "auto" => Ok(Threshold::Auto),
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(de::Unexpected::Str(value), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Threshold, A::Error> {
        let mut table = Vec::new();
        while let Some((live, threshold)) = map.next_entry::<String, u32>()? {
            let live = live.parse().map_err(|_| {
                let hint = "the keys of a table are numbers of live requests, as in {1: 1, 6: 3}";
                de::Error::custom(format!("`{live}` is not a number; {hint}"))
            })?;
            table.push((live, threshold));
        }
        Ok(Threshold::Table(table))
    }
}

/// A duration, or `off`.
fn patience<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    struct Patience;
    impl Visitor<'_> for Patience {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration with its unit, such as 50ms, or off")
        }

        fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
            match value {
                "off" => Ok(None),
                other => units::parse_duration(other).map(Some).map_err(E::custom),
            }
        }

        // YAML of old reads `off` as a truth value.
        fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
            match value {
                false => Ok(None),
                true => Err(E::invalid_value(de::Unexpected::Bool(true), &self)),
            }
        }
    }
    deserializer.deserialize_any(Patience)
}

impl<'de> Deserialize<'de> for Objective {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Objective;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("throughput, or a bound such as {p99_tpot: 80ms}")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Objective, E> {
                match value {
                    "throughput" => Ok(Objective::Throughput),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Objective, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Bound {
                    #[serde(deserialize_with = "units::duration")]
                    p99_tpot: Duration,
                }
                let bound = Bound::deserialize(de::value::MapAccessDeserializer::new(map))?;
                match bound.p99_tpot.is_zero() {
                    true => Err(de::Error::custom("`p99_tpot` must be longer than nothing")),
                    false => Ok(Objective::P99Tpot(bound.p99_tpot)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}
