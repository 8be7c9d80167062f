//! The command line.

use crate::commands::Problems;
use crate::commands::eval::Sweep;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use tokenrouter_config::{Setting, Sources};

pub mod bench;

/// Several language models that write one reply together, behind one OpenAI-compatible server.
#[derive(Debug, Parser)]
#[command(name = "tokenrouter", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a topology over HTTP; without a file, the demo models
    Serve(Serve),
    /// Check a topology without starting it
    Check(Check),
    /// Measure accuracy and the share of each model's tokens, route by route
    Eval(Eval),
    /// Find the best thresholds of delayed batching, from numbers or from a topology that is profiled on this machine
    Plan(Plan),
    /// Put load on an OpenAI-compatible server and measure how fast it answers
    Bench(bench::Bench),
    /// Make the certificates by which the nodes of a cluster know each other
    Certs(Certs),
    /// Turn a router head as its makers publish it into the two files that a topology can name
    ConvertHead(ConvertHead),
}

/// `serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// The topology file; the built-in demo if none is named
    pub topology: Option<PathBuf>,
    /// Which of the topology's nodes this is
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// The address to listen on, such as 0.0.0.0:8080; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Logging.
    #[command(flatten)]
    pub log: Log,
}

/// `certs`
#[derive(Debug, Args)]
pub struct Certs {
    /// What to do with them
    #[command(subcommand)]
    pub command: CertsCommand,
}

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Make an authority and a certificate for each node; what is there is kept, so that nodes can join later
    Init(CertsInit),
}

/// `certs init`
#[derive(Debug, Args)]
pub struct CertsInit {
    /// The names of the nodes, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub nodes: Vec<String>,
    /// The folder
    #[arg(long, value_name = "FOLDER", default_value = "certs")]
    pub dir: PathBuf,
}

/// `check`
#[derive(Debug, Args)]
pub struct Check {
    /// The topology file; the built-in demo if none is named
    pub topology: Option<PathBuf>,
}

/// `eval`
#[derive(Debug, Args)]
pub struct Eval {
    /// Problems, one JSON object with `question` and `answer` a line; the built-in ones if none is named
    #[arg(value_name = "FILE")]
    pub problems_file: Option<PathBuf>,
    /// The topology file; the built-in demo if none is named
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// The routes to measure, with commas between them; if neither these nor a sweep are named, all
    #[arg(long, value_delimiter = ',')]
    pub routes: Vec<String>,
    /// How many problems, from the first that is not skipped, or a file of them; 200 of the built-in ones or all of a file
    /// if nothing is said
    #[arg(long, value_name = "N|FILE")]
    pub problems: Option<Problems>,
    /// How many problems to pass over first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: usize,
    /// Also measure a route with other values of a setting of its policy: demo:threshold=0.01,0.03. May be given several
    /// times
    #[arg(long, value_name = "ROUTE:KEY=VALUES")]
    pub sweep: Vec<Sweep>,
    /// A folder for a table (eval.md), JSON (eval.json) and a picture (eval.svg). With it, or with a sweep, the routes are
    /// compared with the smallest and the largest model alone and with query-level routing
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// The most tokens of a reply
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// How many problems at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency: u32,
    /// How often to run everything; each route's fastest round counts for speed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Logging.
    #[command(flatten)]
    pub log: Log,
}

/// `plan`
#[derive(Debug, Args)]
pub struct Plan {
    /// The topology file to profile on this machine; the built-in demo if neither it nor --times is given
    #[arg(conflicts_with = "times")]
    pub topology: Option<PathBuf>,
    /// How many requests are alive; a topology is planned for 1 to so many
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub live: u32,
    /// The most time per token that 99 of 100 replies may take in the mean, such as 80ms; a topology's own objective if
    /// nothing is said
    #[arg(long, value_name = "TIME", value_parser = tokenrouter_config::units::parse_duration)]
    pub p99_tpot: Option<Duration>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Numbers.
    #[command(flatten)]
    pub numbers: Numbers,
    /// What is measured of a topology.
    #[command(flatten)]
    pub profile: Profile,
    /// Logging.
    #[command(flatten)]
    pub log: Log,
}

/// Numbers in place of a topology.
#[derive(Debug, Args)]
#[command(next_help_heading = "From numbers")]
pub struct Numbers {
    /// Milliseconds of each model's forward pass: 6.0,27.9; or by how many requests are in it: 1:6.0/8:7.5,27.9
    #[arg(long, requires_all = ["moves", "commits"])]
    pub times: Option<String>,
    /// How likely a request goes from each model to each, a row for each model: 0.65,0.35/1,0
    #[arg(long, requires = "times")]
    pub moves: Option<String>,
    /// How many tokens each of these moves commits: 1,0/1,0
    #[arg(long, requires = "times")]
    pub commits: Option<String>,
    /// The most requests in a pass of each model, 0 for no limit: 0,4
    #[arg(long, requires = "times")]
    pub caps: Option<String>,
    /// The model where requests enter, from 0
    #[arg(long, requires = "times", default_value_t = 0)]
    pub entry: usize,
    /// The grain of time in milliseconds; a tenth of the shortest step, and at most 0.1, if nothing is said
    #[arg(long, requires = "times")]
    pub tick: Option<f64>,
    /// Say only what these thresholds bring: 1,3
    #[arg(long, requires = "times", value_delimiter = ',')]
    pub thresholds: Vec<u32>,
}

/// What is measured of a topology.
#[derive(Debug, Args)]
#[command(next_help_heading = "From a topology")]
pub struct Profile {
    /// The route whose requests are measured; the first that joins models if none is named
    #[arg(long, conflicts_with = "times")]
    pub route: Option<String>,
    /// How many of the built-in problems to put to it, or a file of problems as for eval
    #[arg(long, value_name = "N|FILE", conflicts_with = "times")]
    pub problems: Option<Problems>,
    /// The most tokens of a reply
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// Positions of context at which passes are timed
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512])]
    pub contexts: Vec<u32>,
    /// A file for the plan, for `scheduler: { plan: FILE }` and `threshold: auto`
    #[arg(long, value_name = "FILE.json", conflicts_with = "times")]
    pub out: Option<PathBuf>,
    /// A file for a picture of throughput over thresholds
    #[arg(long, value_name = "FILE.svg", conflicts_with = "times")]
    pub svg: Option<PathBuf>,
    /// Also run the thresholds, and set what they bring beside what was predicted
    #[arg(long, conflicts_with = "times")]
    pub verify: bool,
    /// How long to run each of them
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = tokenrouter_config::units::parse_duration)]
    pub verify_time: Duration,
}

/// `convert-head`
#[derive(Debug, Args)]
pub struct ConvertHead {
    /// The checkpoint: one of R2R's .pt files, or CITER's .pth
    pub checkpoint: PathBuf,
    /// Where the weights go, with a .json beside them; next to the checkpoint if it is not named
    #[arg(long, value_name = "FILE.safetensors")]
    pub out: Option<PathBuf>,
    /// The threshold to note for it, in place of the checkpoint's own
    #[arg(long)]
    pub threshold: Option<f64>,
}

/// Flags for the log.
#[derive(Debug, Args)]
pub struct Log {
    /// error, warn, info, debug, trace, or a list like info,tokenrouter=debug
    #[arg(long = "log", value_name = "LEVEL")]
    pub level: Option<String>,
    /// text or json
    #[arg(long = "log-format", value_name = "FORMAT")]
    pub format: Option<String>,
}

impl Serve {
    /// Where the settings come from.
    pub fn sources(&self) -> Sources {
        let key = match &self.node {
            Some(node) => format!("nodes.{node}.http"),
            None => "http.listen".to_owned(),
        };
        let listen = setting("--listen", &key, &self.listen);
        sources(&self.topology, listen.into_iter().chain(self.log.settings()))
    }
}

impl Check {
    /// Where the settings come from.
    pub fn sources(&self) -> Sources {
        sources(&self.topology, [])
    }
}

impl Eval {
    /// Where the settings come from.
    pub fn sources(&self) -> Sources {
        sources(&self.topology, self.log.settings())
    }
}

impl Plan {
    /// Where the settings come from.
    pub fn sources(&self) -> Sources {
        sources(&self.topology, self.log.settings())
    }
}

impl Log {
    fn settings(&self) -> Vec<Setting> {
        let level = setting("--log", "log.level", &self.level);
        let format = setting("--log-format", "log.format", &self.format);
        level.into_iter().chain(format).collect()
    }
}

fn setting(flag: &'static str, key: &str, value: &Option<String>) -> Option<Setting> {
    value.clone().map(|value| Setting { flag, key: key.to_owned(), value })
}

fn sources(file: &Option<PathBuf>, flags: impl IntoIterator<Item = Setting>) -> Sources {
    // A variable that is not text cannot be one of ours.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Sources { file: file.clone(), environment, flags: flags.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_become_settings() {
        let line = ["tokenrouter", "serve", "t.yaml", "--listen", "127.0.0.1:1", "--log", "debug"];
        let Command::Serve(serve) = Cli::parse_from(line).command else { panic!("not serve") };
        let sources = serve.sources();
        let flags: Vec<_> =
            sources.flags.iter().map(|s| (s.flag, s.key.as_str(), s.value.as_str())).collect();
        assert_eq!(
            flags,
            [("--listen", "http.listen", "127.0.0.1:1"), ("--log", "log.level", "debug")]
        );
        assert_eq!(sources.file, Some("t.yaml".into()));
    }
}
