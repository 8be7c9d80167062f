//! Real processes of one topology on loopback, and what tests ask of them.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Longer than anything here takes, so that a hang is a failure and not a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Small writes, and for every third token large is asked.
pub(crate) const MODELS: &str = "models: { small: 'demo:small', large: 'demo:large' }
log: { level: info }
limits: { grace: 300ms, stall_timeout: 2s }
cluster: { idle_timeout: 400ms }
";

/// One process.
pub(crate) struct Process {
    child: Child,
    /// Where it takes HTTP, if it does.
    pub(crate) url: Option<String>,
}

/// The processes' common folder.
pub(crate) struct Cluster {
    folder: TempDir,
}

impl Cluster {
    /// A topology of these nodes, each with what it has besides an address: `("a", "http: 127.0.0.1:0, models: [small]")`.
    pub(crate) fn new(on_loss: &str, nodes: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut text = format!(
            "{MODELS}routes:
  mixed: {{ entry: small, on_loss: {on_loss}, policy: {{ kind: random, to: large, probability: 0.3 }} }}
"
        );
        if !nodes.is_empty() {
            text += "nodes:\n";
        }
        for (name, settings) in nodes {
            text += &format!("  {name}: {{ quic: '{}', {settings} }}\n", free());
        }
        std::fs::write(folder.path().join("cluster.yaml"), text).unwrap();
        let cluster = Self { folder };
        if !nodes.is_empty() {
            let names: Vec<&str> = nodes.iter().map(|(name, _)| *name).collect();
            cluster.run(&["certs", "init", "--nodes", &names.join(",")]);
            cluster.run(&["check", "cluster.yaml"]);
        }
        cluster
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokenrouter"));
        command.args(arguments).env_clear().current_dir(self.folder.path());
        command
    }

    /// Runs a command that succeeds.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.program(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts a node, and waits until it says that it runs.
    pub(crate) fn start(&self, node: &str) -> Process {
        self.serve(&["serve", "cluster.yaml", "--node", node], node)
    }

    /// Starts a node of a topology with another word in it.
    pub(crate) fn other(&self, node: &str, (from, to): (&str, &str)) -> Process {
        let text = std::fs::read_to_string(self.folder.path().join("cluster.yaml")).unwrap();
        assert!(text.contains(from));
        std::fs::write(self.folder.path().join("other.yaml"), text.replacen(from, to, 1)).unwrap();
        self.serve(&["serve", "other.yaml", "--node", node], node)
    }

    /// Runs a command that is refused; why.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.program(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        told
    }

    /// Where the others reach a node.
    pub(crate) fn address(&self, node: &str) -> SocketAddr {
        let text = std::fs::read_to_string(self.folder.path().join("cluster.yaml")).unwrap();
        let line =
            text.lines().find(|line| line.trim_start().starts_with(&format!("{node}: {{ quic")));
        line.and_then(|line| line.split('\'').nth(1)?.parse().ok()).unwrap()
    }

    /// Lets others read a node's key.
    pub(crate) fn open_key(&self, node: &str) {
        let key = self.folder.path().join(format!("certs/{node}.key"));
        std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o644)).unwrap();
    }

    /// Takes a certificate away.
    pub(crate) fn remove(&self, file: &str) {
        std::fs::remove_file(self.folder.path().join("certs").join(file)).unwrap();
    }

    /// Starts a single process of the same models and routes.
    pub(crate) fn alone(&self) -> Process {
        self.serve(&["serve", "cluster.yaml", "--listen", "127.0.0.1:0"], "alone")
    }

    fn serve(&self, arguments: &[&str], name: &str) -> Process {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path(name));
        let mut command = self.program(arguments);
        command.stdout(Stdio::piped()).stderr(log.unwrap());
        let mut child = command.spawn().unwrap();
        let mut greeting = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut greeting).unwrap();
        assert!(greeting.starts_with("TokenRouter"), "{greeting:?}: {}", self.log(name));
        let url = greeting.split_whitespace().find(|word| word.starts_with("http://"));
        Process { child, url: url.map(|url| url.trim_end_matches(';').to_owned()) }
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// What a process has logged.
    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_path(name)).unwrap()
    }
}

impl Process {
    /// Sends it a signal: `KILL`, `STOP`, `CONT`.
    pub(crate) fn signal(&mut self, name: &str) {
        let (signal, id) = (format!("-{name}"), self.child.id().to_string());
        assert!(Command::new("kill").args([&signal, &id]).status().unwrap().success());
        if name == "KILL" {
            self.child.wait().unwrap();
        }
    }

    fn url(&self) -> &str {
        self.url.as_deref().unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let response = client().get(format!("{}{path}", self.url())).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// Waits until it is linked with all others, or has waited for them long enough.
    pub(crate) async fn ready(&self) {
        until(async || self.get("/ready").await.0 == 200).await;
    }

    /// Waits until there are so many links.
    pub(crate) async fn linked(&self, links: usize) {
        until(async || {
            let metrics = self.get("/metrics").await.1;
            let up = |line: &&str| line.starts_with("tokenrouter_link_up{") && line.ends_with(" 1");
            metrics.lines().filter(up).count() == links
        })
        .await;
    }

    /// Asks for reply `number`. Gives the whole stream, event by event.
    pub(crate) async fn stream(&self, number: usize, heard: impl Fn()) -> Vec<String> {
        let body = json!({
            "model": "mixed", "stream": true, "max_tokens": 40, "seed": number, "temperature": 0.8,
            "ignore_eos": true,
            "messages": [{"role": "user", "content": format!("What is ({number} * 46) + 15?")}],
        });
        let url = format!("{}/v1/chat/completions", self.url());
        let mut response = client().post(url).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.unwrap() {
            heard();
            bytes.extend_from_slice(&piece);
        }
        let text = String::from_utf8(bytes).unwrap();
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    /// Reply `number` as one text, and what the last chunk says of the routing.
    pub(crate) async fn reply(&self, number: usize, heard: impl Fn()) -> (String, Value) {
        let events = self.stream(number, heard).await;
        let (done, chunks) = events.split_last().unwrap();
        assert_eq!(done, "[DONE]", "reply {number}: {events:?}");
        let (mut text, mut routing) = (String::new(), Value::Null);
        for chunk in chunks {
            let chunk: Value = serde_json::from_str(chunk).unwrap();
            assert!(chunk["error"].is_null(), "reply {number}: {chunk}");
            text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            if !chunk["choices"][0]["finish_reason"].is_null() {
                assert_eq!(chunk["choices"][0]["finish_reason"], "length", "reply {number}");
                routing = chunk["token_routing"].clone();
            }
        }
        (text, routing)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is as good as killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An address of UDP that nobody uses.
pub(crate) fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().timeout(PATIENCE).build().unwrap()
}

/// Waits for something that will be so.
pub(crate) async fn until(holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it never came to be");
}
