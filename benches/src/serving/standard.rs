//! Standard serving: an engine of mistral.rs for each model, and a dispatcher outside that sends each token as a request of
//! its own. It changes nothing of those engines.
//!
//! As documented, without prefix cache, every token costs the prefill of everything before it. The prefix cache of
//! mistralrs-core 0.8.1 never hits for such requests, or hits one position too many; the best-effort form therefore asks for
//! two tokens, of which a logits processor makes the first a sentinel that is never continued with, and has one request at
//! a time in each engine. The key of the cache then ends where the next request differs, and every hit is right.

use super::{Case, Fault, Outcome, System, draws, plan, prompts, route, to_large};
use candle_core::{Device, Tensor};
use mistralrs_core::{
    CustomLogitsProcessor, DefaultSchedulerMethod, DeviceMapSetting, MistralRs, MistralRsBuilder,
    ModelDType, NormalLoaderBuilder, NormalLoaderType, NormalRequest, NormalSpecificConfig,
    Request, RequestMessage, Response, SamplingParams, SchedulerConfig, TokenSource,
};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokenrouter_policies::{Position, Token};
use tokio::sync::mpsc;

/// A model folder that is gone with the case.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self, Fault> {
        let model = tokenrouter_models::demo(name).ok_or("there is no such demo model")?;
        let path =
            std::env::temp_dir().join(format!("tokenrouter-serving-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        let folder = Self(path);
        let write = |file: &str, bytes: &[u8]| std::fs::write(folder.0.join(file), bytes);
        write("config.json", model.config.as_bytes())?;
        write("model.safetensors", model.weights)?;
        write("tokenizer.json", model.tokenizer.as_bytes())?;
        write("tokenizer_config.json", model.tokenizer_config.as_bytes())?;
        write("generation_config.json", model.generation_config.as_bytes())?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// One engine.
struct Server {
    engine: Arc<MistralRs>,
    /// Held by whoever has a request in it, in the best-effort form.
    gate: Option<tokio::sync::Mutex<()>>,
    ids: AtomicUsize,
}

/// Notes the token that greedy sampling takes, and lets the sentinel be sampled in its place.
#[derive(Default)]
struct Sentinel(Mutex<Option<Token>>);

impl CustomLogitsProcessor for Sentinel {
    fn apply(&self, logits: &Tensor, _context: &[u32]) -> candle_core::Result<Tensor> {
        let mut values = logits.flatten_all()?.to_vec1::<f32>()?;
        let best = values.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        let token = best.map_or(0, |(token, _)| token as Token);
        let sentinel = usize::from(token == 0);
        // The second token is nobody's.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(token);
        values[sentinel] = 1e9;
        Tensor::from_vec(values, logits.shape(), logits.device())
    }
}

impl Server {
    async fn new(folder: &Path, name: &str, best_effort: bool) -> Result<Self, Fault> {
        let folder = folder.to_string_lossy().into_owned();
        let config = NormalSpecificConfig::default();
        let loader = NormalLoaderBuilder::new(config, None, None, Some(folder), false, None)
            .build(Some(NormalLoaderType::Qwen3))?;
        let pipeline = loader.load_model_from_hf(
            None,
            TokenSource::None,
            &ModelDType::F32,
            &Device::Cpu,
            true,
            DeviceMapSetting::dummy(),
            None,
            None,
        )?;
        let method = DefaultSchedulerMethod::Fixed(NonZeroUsize::new(16).ok_or("no room")?);
        let scheduler = SchedulerConfig::DefaultScheduler { method };
        let engine = MistralRsBuilder::new(pipeline, scheduler, false, None)
            .with_model_id(name)
            .with_no_prefix_cache(!best_effort)
            .with_disable_eos_stop(true)
            .build()
            .await;
        let gate = best_effort.then(tokio::sync::Mutex::default);
        Ok(Self { engine, gate, ids: AtomicUsize::new(0) })
    }

    /// The greedy token after these.
    async fn next(&self, tokens: Vec<Token>) -> Result<Token, Fault> {
        let _turn = match &self.gate {
            Some(gate) => Some(gate.lock().await),
            None => None,
        };
        let sentinel = self.gate.as_ref().map(|_| Arc::new(Sentinel::default()));
        let (response, mut answers) = mpsc::channel(1);
        let mut sampling = SamplingParams::deterministic();
        // Without this it samples, among one.
        sampling.temperature = Some(0.0);
        sampling.top_n_logprobs = 1;
        sampling.max_len = Some(if sentinel.is_some() { 2 } else { 1 });
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let message = RequestMessage::CompletionTokens(tokens);
        let mut request = NormalRequest::new_simple(message, sampling, response, id, None, None);
        request.return_logprobs = sentinel.is_none();
        request.logits_processors =
            sentinel.clone().map(|sentinel| vec![sentinel as Arc<dyn CustomLogitsProcessor>]);
        self.engine.get_sender(None)?.send(Request::Normal(Box::new(request))).await?;
        let answer = answers.recv().await.ok_or("the engine gave no answer")?;
        let done = match answer {
            Response::CompletionDone(done) => done,
            Response::CompletionModelError(reason, _) => return Err(reason.into()),
            Response::InternalError(error) | Response::ValidationError(error) => {
                return Err(error.to_string().into());
            }
            _ => return Err("the engine gave another kind of answer".into()),
        };
        if let Some(sentinel) = sentinel {
            let noted = *sentinel.0.lock().unwrap_or_else(PoisonError::into_inner);
            return noted.ok_or_else(|| "no token was sampled".into());
        }
        let logprobs = done.choices.first().and_then(|choice| choice.logprobs.as_ref());
        let first = logprobs.and_then(|logprobs| logprobs.content.as_ref()?.first());
        let top = first.and_then(|first| first.top_logprobs.first());
        Ok(top.ok_or("the answer names no token")?.token)
    }
}

/// Runs a case.
///
/// # Errors
/// An engine that fails.
pub async fn run(case: &Case) -> Result<Outcome, Fault> {
    let best_effort = case.system == System::StandardBestEffort;
    let folders = [Folder::new("small")?, Folder::new("large")?];
    let small = Server::new(&folders[0].0, "small", best_effort).await?;
    let large = Server::new(&folders[1].0, "large", best_effort).await?;
    let route = route(&plan()?)?;
    // What the first request ever pays is nobody's.
    for server in [&small, &large] {
        server.next(vec![3, 4, 5]).await?;
    }
    let limit = (case.seconds > 0.0).then(|| Duration::from_secs_f64(case.seconds));
    let begun = Instant::now();
    let mut runs = Vec::new();
    for index in 0..case.requests {
        let mut tokens = prompts(&route, case, index)?.concat();
        let (small, large) = (&small, &large);
        runs.push(async move {
            let (draws, prompt) = (draws(index), tokens.len());
            while tokens.len() < prompt + case.tokens as usize
                && limit.is_none_or(|limit| begun.elapsed() < limit)
            {
                let mut next = small.next(tokens.clone()).await?;
                if to_large(draws, tokens.len() as Position) {
                    next = large.next(tokens.clone()).await?;
                }
                tokens.push(next);
            }
            Ok::<_, Fault>(tokens.split_off(prompt))
        });
    }
    let replies = futures::future::try_join_all(runs).await?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Outcome { seconds, replies, ..Outcome::default() })
}
