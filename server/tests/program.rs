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

#[test]
fn eval_measures_and_refuses_what_it_cannot() {
    let file = File::new(
        "problems.jsonl",
        "{\"question\": \"What is (37 * 46) + 15?\", \"answer\": \"1717\"}\n\n{\"question\": \"What is 1 + 1?\", \"answer\": \"-5\"}\n",
    );
    let (code, out, err) = run(&["eval", file.name(), "--routes", "demo,large", "--json"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("{\"routes\":[{\"route\":\"demo\",\"problems\":2,\"right\":1,"),
        "{out}"
    );
    let (code, out, _) = run(&["eval", "--routes", "large", "--problems", "1"]);
    assert_eq!((code, out.lines().count()), (0, 2), "{out}");
    let (code, _, err) = run(&["eval", "--routes", "none"]);
    assert_eq!((code, err.contains("there is no route `none`")), (1, true), "{err}");
    let bad = File::new("bad.jsonl", "{\"question\": 1}\n");
    let (code, _, err) = run(&["eval", bad.name()]);
    assert_eq!((code, err.contains(":1: not a problem")), (1, true), "{err}");
}
