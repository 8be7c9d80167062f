//! The program itself: what it prints, and how it ends.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of the functions that the lint spares"
)]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokenrouter"));
    command.args(arguments).env_clear();
    command
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = program(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A file that is gone after the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tokenrouter-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn a_good_topology_is_summed_up() {
    let (code, out, err) = run(&["check"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("small with large"), "{out}");
}

#[test]
fn output_that_cannot_be_written_is_told() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = program(&["check"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("error: standard output cannot be written: "), "{told}");
}

#[test]
fn a_bad_topology_ends_with_2_and_file_key_and_reason() {
    let cases = [
        (
            "unknown",
            "models: { a: 'demo:small' }\nmodles: {}\n",
            ":2: `modles`: there is no such setting",
        ),
        (
            "value",
            "models: { a: 'demo:small', b: 'demo:large' }\nroutes:\n  r:\n    entry: a\n    policy: { kind: r-stitch, to: b, threshold: -1 }\n",
            "is not between 0 and 1",
        ),
        ("level", "models: { a: 'demo:small' }\nlog: { level: a=b=c }\n", ":2: `log.level`: "),
        ("syntax", "models: [\n", ":1: unclosed bracket"),
    ];
    for (name, text, expected) in cases {
        let file = File::new(&format!("{name}.yaml"), text);
        for command in ["check", "serve"] {
            let (code, _, err) = run(&[command, file.name()]);
            assert_eq!(code, 2, "{err}");
            assert!(err.contains(expected) && err.contains(file.name()), "{err}");
        }
    }
    assert_eq!(run(&["check", "no-such-file.yaml"]).0, 2);
    let (code, _, err) = run(&["serve", "--listen", "nowhere"]);
    assert_eq!(code, 2);
    assert!(err.contains("flag --listen: `http.listen`"), "{err}");
    let (code, _, err) = run(&["serve", "--log", "a=b=c"]);
    assert_eq!((code, err.contains("flag --log: `log.level`")), (2, true), "{err}");
}

#[test]
fn a_port_in_use_ends_with_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, err) = run(&["serve", "--listen", &address]);
    assert_eq!(code, 1);
    assert!(err.contains(&format!("cannot listen on {address}")), "{err}");
}

/// Starts the server and waits for its greeting.
fn serve() -> (Child, String) {
    let mut child = program(&["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut greeting = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut greeting).unwrap();
    (child, greeting)
}

#[test]
fn a_signal_ends_an_idle_server_with_0() {
    for signal in ["-TERM", "-INT"] {
        let (mut child, greeting) = serve();
        assert!(greeting.contains("http://127.0.0.1:") && greeting.contains("demo"), "{greeting}");
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let mut log = String::new();
        child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(log.contains("stopping"), "{log}");
    }
}

/// Two problems, of which `large` solves one.
const PROBLEMS: &str = "{\"question\": \"What is (37 * 46) + 15?\", \"answer\": \"1717\"}\n\n{\"question\": \"What is 1 + 1?\", \"answer\": \"-5\"}\n";

#[test]
fn eval_measures_what_it_is_told() {
    let file = File::new("problems.jsonl", PROBLEMS);
    let begin = "{\"routes\":[{\"route\":\"demo\",\"accuracy\":0.5,\"large_share\":0.";
    // A file can be named in either place.
    for place in [&[file.name()][..], &["--problems", file.name()]] {
        let line = [&["eval", "--routes", "demo,large", "--json"], place].concat();
        let (code, out, err) = run(&line);
        assert_eq!((code, out.starts_with(begin)), (0, true), "{out}{err}");
    }
    let (code, out, _) = run(&["eval", "--routes", "large", "--problems", "1", "--skip", "999"]);
    assert_eq!((code, out.lines().count()), (0, 3), "{out}");
}

#[test]
fn eval_sweeps_compares_and_writes_table_json_and_picture() {
    let file = File::new("sweep.jsonl", PROBLEMS);
    let folder = std::env::temp_dir().join(format!("tokenrouter-{}-eval", std::process::id()));
    let sweep = "demo:threshold=1.0,0.03";
    let out = folder.to_str().unwrap();
    let (code, table, err) = run(&["eval", file.name(), "--sweep", sweep, "--out", out]);
    assert_eq!((code, err.as_str()), (0, ""), "{table}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("eval.md"), table);
    assert!(read("eval.svg").contains("demo:threshold</text>"));
    let json: serde_json::Value = serde_json::from_str(&read("eval.json")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let facts = |index: usize| {
        let route = &json["routes"][index];
        (route["route"].as_str().unwrap(), route["accuracy"].as_f64().unwrap())
    };
    // No entropy is above 1, so the first value never hands over.
    let expected =
        [("small", 0.0), ("large", 0.5), ("demo:threshold=1.0", 0.0), ("demo:threshold=0.03", 0.5)];
    assert_eq!([0, 1, 2, 3].map(facts), expected);
    assert_eq!(json["routes"][2]["large_share"], 0.0);
    let curve = &json["references"]["query_level"]["curve"];
    assert_eq!((&curve[0]["accuracy"], &curve[2]["accuracy"]), (&0.0.into(), &0.5.into()));
    assert_eq!(json["references"]["query_level"]["measured"].as_array().unwrap().len(), 4);
}

#[test]
fn eval_refuses_what_it_cannot_use_with_2_and_its_name() {
    let bad = File::new("bad.jsonl", "{\"question\": 1}\n");
    let empty = File::new("empty.jsonl", "\n");
    let cases: [(&[&str], &str); 9] = [
        (
            &["--routes", "none"],
            "there is no route `none`; there are large, mid, small, small-co-llm, demo",
        ),
        (&[bad.name()], "bad.jsonl:1: not a problem"),
        (&[empty.name()], "there are no problems in it"),
        (&["--problems", "nowhere.jsonl"], "nowhere.jsonl: the file cannot be read"),
        (&["--skip", "1000"], "it has 1000 problems and 1000 are skipped"),
        (&["--sweep", "demo"], "expected ROUTE:KEY=VALUES"),
        (&["--sweep", "none:threshold=1"], "there is no route `none` with a policy"),
        (
            &["--sweep", "demo:treshold=1"],
            "flag --sweep: `routes.demo.policy.treshold`: there is no",
        ),
        (
            &["--sweep", "demo:threshold=2"],
            "flag --sweep: `routes.demo.policy.threshold`: 2 is not",
        ),
    ];
    for (arguments, expected) in cases {
        let (code, out, err) = run(&[&["eval"], arguments].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(expected), "{expected} is not in {err}");
    }
}

#[test]
fn convert_head_writes_two_files_and_executes_nothing() {
    let heads = PathBuf::from("../engine/tests/heads");
    let checkpoint = |name: &str| heads.join(name).to_str().unwrap().to_owned();
    let weights = File::new("head.safetensors", "");
    let card = File(weights.0.with_extension("json"));
    let convert = |name: &str| run(&["convert-head", &checkpoint(name), "--out", weights.name()]);

    let (code, _, err) = convert("citer.pth");
    assert_eq!((code, err.contains("exists; name another with --out")), (1, true), "{err}");
    std::fs::remove_file(&weights.0).unwrap();
    for name in ["evil.pt", "evil-within.pt"] {
        let (code, _, err) = convert(name);
        assert_eq!(code, 1, "{err}");
        assert!(err.contains("names `posix.system`, which is not data"), "{err}");
        assert!(!weights.0.exists() && !card.0.exists());
    }
    let (code, out, err) = convert("hidden.pt");
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("HiddenStatesClassifier, "), "{out}");
    assert!(out.contains("threshold 0.405") && out.contains(weights.name()), "{out}");
    let written = std::fs::read_to_string(&card.0).unwrap();
    assert!(written.contains("\"normalize_input\": true"), "{written}");

    // It was made for a model with hidden states of 12 numbers.
    let topology = format!(
        "models: {{ a: 'demo:small', b: 'demo:large' }}\nroutes: {{ r: {{ entry: a, policy: {{ kind: r2r, to: b, head: '{}' }} }} }}\n",
        weights.name()
    );
    let topology = File::new("head.yaml", &topology);
    let (code, _, err) = run(&["check", topology.name()]);
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("hidden states of 12 numbers, but the model's have 64")
            && err.contains(":2: `routes.r.policy.head`"),
        "{err}"
    );
}

const NUMBERS: &[&str] =
    &["plan", "--times", "6.0,27.9", "--moves", "0.65,0.35/1,0", "--commits", "1,0/1,0"];

#[test]
fn plan_finds_the_published_thresholds_from_numbers() {
    let (code, out, err) = run(&[NUMBERS, &["--live", "4", "--tick", "0.1", "--json"]].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["best"]["thresholds"], serde_json::json!([1, 3]));
    let table = json["table"].as_array().unwrap();
    let row = |row: &serde_json::Value| {
        let tokens = row["tokens_per_s"].as_f64().unwrap();
        (row["thresholds"].to_string(), (tokens * 10.0).round() / 10.0)
    };
    let expected = [("[1,1]", 187.2), ("[1,2]", 195.4), ("[1,3]", 208.0), ("[1,4]", 190.7)];
    let expected = expected.map(|(thresholds, tokens)| (thresholds.to_owned(), tokens));
    assert_eq!(table.iter().map(row).collect::<Vec<_>>(), expected);
}

#[test]
fn plan_refuses_what_it_cannot_use_with_2_and_a_hint() {
    let moves = ["plan", "--times", "6,27.9", "--commits", "1,0/1,0", "--moves"];
    let cases: [(Vec<&str>, &str); 7] = [
        ([&moves[..], &["0.6,0.35/1,0"]].concat(), "add up to 0.95, not to 1"),
        ([&moves[..], &["1.2,-0.2/1,0"]].concat(), "it must lie between 0 and 1"),
        (
            vec!["plan", "--times=-6,27.9", "--moves", "0.65,0.35/1,0", "--commits", "1,0/1,0"],
            "a step time is above 0",
        ),
        (
            vec!["plan", "--times", "0,27.9", "--moves", "0.65,0.35/1,0", "--commits", "1,0/1,0"],
            "a step time is above 0",
        ),
        ([NUMBERS, &["--live", "4", "--thresholds", "3,3"]].concat(), "must stay below 4"),
        ([&["plan", "x.yaml"], &NUMBERS[1..]].concat(), "cannot be used with"),
        (vec!["plan", "--route", "none"], "there is no route `none`"),
    ];
    for (arguments, expected) in cases {
        let (code, out, err) = run(&arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(expected), "{expected} is not in {err}");
    }
}

/// The demo pair, with a threshold that somebody plans.
const PLANNED: &str = "models: { small: 'demo:small', large: 'demo:large' }\n\
    routes: { demo: { entry: small, policy: { kind: random, to: large, probability: 0.35 } } }\n";

#[test]
fn plan_profiles_a_topology_and_its_file_can_be_served() {
    let topology = File::new("plan.yaml", PLANNED);
    let (plan, svg) = (File::new("plan.json", ""), File::new("plan.svg", ""));
    let flags = ["--live", "3", "--problems", "4", "--max-tokens", "40", "--contexts", "32"];
    let files = ["--out", plan.name(), "--svg", svg.name(), "--verify", "--verify-time", "60ms"];
    let line = [&["plan", topology.name()], &flags[..], &files[..]].concat();
    let (code, out, err) = run(&line);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for expected in ["| small | 32 |", "| large | 32 |", "measured", "Best with 3 live requests"] {
        assert!(out.contains(expected), "{expected} is not in {out}");
    }
    let stored: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&plan.0).unwrap()).unwrap();
    assert_eq!(stored["models"], serde_json::json!(["large", "small"]));
    let from_small = &stored["plan"]["system"]["moves"][1];
    let to_large = from_small[0].as_f64().unwrap();
    assert!((to_large - 0.35).abs() < 0.15, "{from_small}");
    assert!(std::fs::read_to_string(&svg.0).unwrap().contains("</svg>"));

    let auto = "batching: { large: { threshold: auto }, small: { threshold: auto } }\n";
    let served = format!("{PLANNED}{auto}scheduler: {{ plan: '{}' }}\n", plan.name());
    let served = File::new("planned.yaml", &served);
    let (code, _, err) = run(&["check", served.name()]);
    assert_eq!(code, 0, "{err}");
    std::fs::write(&plan.0, "{}").unwrap();
    let (code, _, err) = run(&["check", served.name()]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains(plan.name()) && err.contains("scheduler.plan"), "{err}");
}

#[test]
fn bench_measures_a_server_and_names_who_wrote() {
    let (mut child, greeting) = serve();
    let url = greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let url = url.trim_end_matches([';', ',']);
    let folder = std::env::temp_dir();
    let name = format!("tokenrouter-{}-bench.json", std::process::id());
    let flags = ["--num-prompts", "6", "--max-concurrency", "3", "--output-len", "30"];
    let more = ["--model", "demo", "--ignore-eos", "--num-warmups", "1", "--save-result"];
    let saved = ["--save-detailed", "--result-dir", folder.to_str().unwrap()];
    let line =
        [&["bench", "--base-url", url], &flags[..], &more, &saved, &["--result-filename", &name]];
    let (code, table, err) = run(&line.concat());
    let read = std::fs::read_to_string(folder.join(&name)).unwrap();
    std::fs::remove_file(folder.join(&name)).unwrap();
    assert_eq!((code, err.as_str()), (0, ""), "{table}");
    let json: serde_json::Value = serde_json::from_str(&read).unwrap();
    for (key, expected) in [("completed", 6), ("failed", 0), ("total_output_tokens", 180)] {
        assert_eq!(json[key], expected, "{key}");
    }
    assert_eq!(json["output_lens"], serde_json::json!([30, 30, 30, 30, 30, 30]));
    let calls: f64 = ["small", "large"]
        .map(|model| json["models"][model]["model_call_ratio"].as_f64().unwrap())
        .iter()
        .sum();
    assert!((calls - 1.0).abs() < 1e-9 && json["handoffs"].as_u64().unwrap() > 0, "{json}");
    assert!(table.contains("Output token throughput") && table.contains("P99 ITL"), "{table}");

    // Prompts by chance, at a rate, as completions: cut to the same length by the server's own tokeniser.
    let random = ["--dataset-name", "random", "--input-len", "17", "--request-rate", "200"];
    let more = ["--backend", "openai", "--model", "small", "--num-prompts", "4", "--json"];
    let (code, out, err) = run(&[&["bench", "--base-url", url][..], &random, &more].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["completed"], &json["endpoint_type"]), (&4.into(), &"openai".into()));
    assert_eq!(json["total_input_tokens"], 4 * 17);

    let refused = ["bench", "--base-url", url, "--model", "nobody", "--num-prompts", "2"];
    let (code, _, err) = run(&refused);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("2 of 2 requests failed") && err.contains("nobody"), "{err}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn bench_refuses_what_it_cannot_use() {
    let cases: [(&[&str], i32, &str); 7] = [
        (&["--request-rate", "0"], 2, "flag --request-rate: 0 is not above 0"),
        (&["--metric-percentiles", "101"], 2, "101 is not between 0 and 100"),
        (&["--base-url", "ftp://x"], 2, "does not begin with http://"),
        (&["--header", "x"], 2, "write NAME=VALUE"),
        (&["--extra-body", "[]"], 2, "is no JSON object"),
        (&["--dataset-name", "custom"], 2, "--dataset-path"),
        (&["--base-url", "http://127.0.0.1:1"], 1, "is the server running?"),
    ];
    for (arguments, expected_code, expected) in cases {
        let (code, out, err) = run(&[&["bench"], arguments].concat());
        assert_eq!((code, out.as_str()), (expected_code, ""), "{err}");
        assert!(err.contains(expected), "{expected} is not in {err}");
    }
}
