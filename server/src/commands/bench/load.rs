//! When requests are sent: all at once, at a rate, and never more than so many at a time. It knows nothing of what they ask.

use crate::cli::bench::Load;
use crate::commands::CommandError;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Gamma};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// One request that came to an end.
#[derive(Debug)]
pub(super) struct Run<T> {
    /// When it was sent, from the beginning of the load.
    pub(super) begun: Duration,
    /// When it ended.
    pub(super) ended: Duration,
    /// What came of it.
    pub(super) result: T,
}

/// When each request may be sent. Gaps have a gamma distribution with `burstiness` as shape and the rate's inverse as mean.
///
/// # Errors
/// A rate or a burstiness that is not above 0.
pub(super) fn arrivals(
    load: &Load,
    random: &mut StdRng,
    count: usize,
) -> Result<Vec<Duration>, CommandError> {
    let fault = |flag: &str, value: f64| {
        CommandError::Input(format!("flag --{flag}: {value} is not above 0"))
    };
    let (rate, shape) = (load.request_rate, load.burstiness);
    if rate.is_nan() || rate <= 0.0 {
        return Err(fault("request-rate", rate));
    }
    if !shape.is_finite() || shape <= 0.0 {
        return Err(fault("burstiness", shape));
    }
    if rate.is_infinite() {
        return Ok(vec![Duration::ZERO; count]);
    }
    let gaps = Gamma::new(shape, 1.0 / (rate * shape)).map_err(|_| fault("request-rate", rate))?;
    let mut at = 0.0;
    let times = (0..count).map(|_| {
        let now = at;
        at += gaps.sample(random);
        Duration::try_from_secs_f64(now).unwrap_or(Duration::MAX)
    });
    Ok(times.collect())
}

/// Does each piece of work at its time, but no more than `most` at once, and tells `done` of every end.
///
/// # Errors
/// Work that panics.
pub(super) async fn run<T, F>(
    work: Vec<(Duration, F)>,
    most: Option<u32>,
    mut done: impl FnMut(),
) -> Result<Vec<Run<T>>, CommandError>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let most = most.map_or(Semaphore::MAX_PERMITS, |most| most as usize);
    let places = Arc::new(Semaphore::new(most));
    let start = Instant::now();
    let mut running = JoinSet::new();
    for (at, work) in work {
        let places = Arc::clone(&places);
        running.spawn(async move {
            if at > Duration::ZERO {
                tokio::time::sleep_until(start + at).await;
            }
            // Nobody closes it.
            let _place = places.acquire_owned().await.ok();
            let begun = start.elapsed();
            let result = work.await;
            Run { begun, ended: start.elapsed(), result }
        });
    }
    let mut runs = Vec::new();
    while let Some(run) = running.join_next().await {
        runs.push(run.map_err(|e| CommandError::Other(format!("a request was lost: {e}")))?);
        done();
    }
    runs.sort_by_key(|run| run.begun);
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn load(request_rate: f64, burstiness: f64) -> Load {
        Load {
            num_prompts: 1,
            max_concurrency: None,
            request_rate,
            burstiness,
            num_warmups: 0,
            seed: 0,
        }
    }

    #[test]
    fn gaps_have_the_mean_and_the_spread_that_were_asked_for() {
        for shape in [0.5, 1.0, 4.0] {
            let mut random = StdRng::seed_from_u64(1);
            let times = arrivals(&load(20.0, shape), &mut random, 20_001).unwrap();
            let gaps: Vec<f64> =
                times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
            let mean = gaps.iter().sum::<f64>() / 20_000.0;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 20_000.0;
            assert!((mean * 20.0 - 1.0).abs() < 0.05, "{mean}");
            assert!((variance * 400.0 * shape - 1.0).abs() < 0.1, "{variance}");
        }
        let mut random = StdRng::seed_from_u64(1);
        let at_once = arrivals(&load(f64::INFINITY, 1.0), &mut random, 3).unwrap();
        assert_eq!(at_once, [Duration::ZERO; 3]);
        for (rate, shape) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, 0.0)] {
            assert!(arrivals(&load(rate, shape), &mut random, 3).is_err());
        }
    }

    #[tokio::test]
    async fn never_more_at_once_than_allowed() {
        let running = Arc::new(AtomicU32::new(0));
        let work = (0..20_u32).map(|index| {
            let running = Arc::clone(&running);
            let work = async move {
                let beside = running.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                (index, beside)
            };
            (Duration::ZERO, work)
        });
        let mut ended = 0;
        let runs = run(work.collect(), Some(3), || ended += 1).await.unwrap();
        let most = runs.iter().map(|run| run.result.1).max();
        assert_eq!((runs.len(), ended, most), (20, 20, Some(2)));
    }
}
