//! The flags of `bench`: those of `vllm bench serve`, as far as they make sense for a router.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// `bench`
#[derive(Debug, Args)]
pub struct Bench {
    /// Where.
    #[command(flatten)]
    pub target: Target,
    /// How fast.
    #[command(flatten)]
    pub load: Load,
    /// What.
    #[command(flatten)]
    pub prompts: Prompts,
    /// What becomes of the results.
    #[command(flatten)]
    pub results: Results,
}

/// The server that is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct Target {
    /// openai-chat for /v1/chat/completions, openai for /v1/completions
    #[arg(long, value_enum, default_value_t = Backend::OpenaiChat)]
    pub backend: Backend,
    /// The server, such as http://127.0.0.1:8080; made of --host and --port if it is not named
    #[arg(long, value_name = "URL", conflicts_with_all = ["host", "port"])]
    pub base_url: Option<String>,
    /// Its host
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Its port
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// The path; the backend's own if none is named
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// The model, which here is a route; the first of /v1/models if none is named
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// A header for every request, as NAME=VALUE; may be given several times. OPENAI_API_KEY is sent as a bearer token
    #[arg(long, value_name = "NAME=VALUE")]
    pub header: Vec<String>,
    /// How long the server may take to answer at all; it is asked again meanwhile
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub ready_check_timeout_sec: u64,
}

/// The API that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// `/v1/completions`
    Openai,
    /// `/v1/chat/completions`
    OpenaiChat,
}

/// How requests come.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct Load {
    /// How many requests
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub num_prompts: u32,
    /// The most requests at a time. With an infinite rate it is a closed loop of so many workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_concurrency: Option<u32>,
    /// Requests a second, or inf to send all at once
    #[arg(long, value_name = "RATE", default_value_t = f64::INFINITY)]
    pub request_rate: f64,
    /// How evenly they come: 1 is a Poisson process, less comes in bursts, more is steadier
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0)]
    pub burstiness: f64,
    /// Requests that are sent first and not counted
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub num_warmups: u32,
    /// For random prompts and times
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// What is asked.
#[derive(Debug, Args)]
#[command(next_help_heading = "Prompts")]
pub struct Prompts {
    /// Where prompts come from
    #[arg(long, value_enum, default_value_t = Dataset::Problems)]
    pub dataset_name: Dataset,
    /// The file of a custom dataset: one JSON object with `prompt` a line, and `output_tokens` where it differs
    #[arg(long, value_name = "FILE", required_if_eq("dataset_name", "custom"))]
    pub dataset_path: Option<PathBuf>,
    /// Tokens of a random prompt
    #[arg(long, value_name = "N", alias = "random-input-len", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub input_len: u32,
    /// The most tokens of a reply
    #[arg(long, value_name = "N", aliases = ["random-output-len", "custom-output-len"], default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub output_len: u32,
    /// Let replies go on to that length
    #[arg(long)]
    pub ignore_eos: bool,
    /// Sampling temperature; the server's own if nothing is said
    #[arg(long)]
    pub temperature: Option<f64>,
    /// Nucleus sampling
    #[arg(long)]
    pub top_p: Option<f64>,
    /// Other fields of every request, as a JSON object
    #[arg(long, value_name = "JSON")]
    pub extra_body: Option<String>,
}

/// Where prompts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dataset {
    /// The built-in arithmetic problems
    Problems,
    /// Words by chance, cut to length by the server's /tokenize where it has one
    Random,
    /// A file
    Custom,
}

/// What becomes of the results.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub struct Results {
    /// Percentiles to report
    #[arg(long, value_name = "P,…", value_delimiter = ',', default_values_t = [50.0, 90.0, 99.0])]
    pub metric_percentiles: Vec<f64>,
    /// Write the results to a file
    #[arg(long)]
    pub save_result: bool,
    /// With every request's own times in it
    #[arg(long, requires = "save_result")]
    pub save_detailed: bool,
    /// Its folder
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub result_dir: PathBuf,
    /// Its name; made of backend, rate, model and time if none is given
    #[arg(long, value_name = "FILE")]
    pub result_filename: Option<String>,
    /// Show no progress
    #[arg(long)]
    pub disable_tqdm: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// How long a reply may stand still before it counts as failed
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = tokenrouter_config::units::parse_duration)]
    pub timeout: Duration,
}
