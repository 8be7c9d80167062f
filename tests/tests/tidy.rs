//! The house rules that no compiler checks: the walls between layers, and the size and opening of files.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Every crate, and which others of ours it may depend on.
const LAYERS: [(&str, &[&str]); 11] = [
    ("config", &[]),
    ("policies", &["config"]),
    ("protocol", &["config", "policies"]),
    ("engine", &["config", "policies", "protocol"]),
    ("transport", &["policies", "protocol"]),
    ("actors", &["config", "policies", "protocol", "engine", "transport"]),
    ("models", &[]),
    ("server", &["config", "policies", "protocol", "engine", "transport", "actors", "models"]),
    (
        "tests",
        &["config", "policies", "protocol", "engine", "transport", "actors", "models", "server"],
    ),
    // Policies, protocol and the seeded world are not dependencies of it but copies.
    ("tests/planted", &["config"]),
    (
        "benches",
        &["config", "policies", "protocol", "engine", "transport", "actors", "models", "server"],
    ),
];

/// Crates of others that only some of ours may name.
const RESERVED: [(&str, &[&str]); 10] = [
    ("ractor", &["actors"]),
    ("bincode", &["transport"]),
    ("quinn", &["transport"]),
    ("rustls", &["transport"]),
    ("rcgen", &["transport"]),
    ("candle-core", &["engine", "benches"]),
    ("candle-nn", &["engine", "benches"]),
    ("mistralrs-core", &["engine", "benches"]),
    ("mistralrs-quant", &["engine", "benches"]),
    ("tokio", &["engine", "transport", "actors", "server", "tests", "benches"]),
];

/// Longest file.
const LINES_MAX: usize = 500;

/// Words that stand for work left undone.
const BANNED: [&str; 4] = ["#[ignore", "todo!(", "unimplemented!(", "dbg!("];

fn root() -> PathBuf {
    PathBuf::from("..")
}

/// The dependencies a manifest names, those for tests included.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
    let mut within = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            within = line.contains("dependencies");
        } else if within && let Some((key, _)) = line.split_once('=') {
            found.push(key.trim().trim_end_matches(".workspace").trim_matches('"').to_owned());
        }
    }
    assert!(name == "models" || !found.is_empty(), "no dependencies found in {name}/Cargo.toml");
    found
}

/// Every Rust file of the workspace with its text.
fn sources() -> BTreeMap<PathBuf, String> {
    let mut folders: Vec<PathBuf> = LAYERS.iter().map(|(name, _)| root().join(name)).collect();
    let mut files = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.insert(path, text);
            }
        }
    }
    assert!(files.len() > 60, "only {} files found", files.len());
    files
}

#[test]
fn the_walls_stand() {
    for (name, allowed) in LAYERS {
        for dependency in dependencies(name) {
            if let Some(ours) = dependency.strip_prefix("tokenrouter-") {
                assert!(allowed.contains(&ours), "{name} must not depend on {ours}");
            }
            for (reserved, holders) in RESERVED {
                let reserved = dependency == reserved;
                assert!(!reserved || holders.contains(&name), "{name} must not name {dependency}");
            }
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for (path, text) in sources() {
        let path = path.display();
        assert!(text.starts_with("//! "), "{path} does not open with what it is");
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{path} has {lines} lines");
    }
}

#[test]
fn nothing_is_left_undone() {
    for (path, text) in sources().into_iter().filter(|(path, _)| !path.ends_with("tidy.rs")) {
        for banned in BANNED {
            assert!(!text.contains(banned), "{} contains {banned}", path.display());
        }
    }
}
