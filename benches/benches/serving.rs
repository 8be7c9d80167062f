//! Ours against standard serving and against the style of published reference code: the demo pair, the same weights, the
//! same routing, greedy, each case in a process of its own, tokens compared with those of the official style.
//!
//! `cargo bench -p tokenrouter-benches --bench serving [-- --only standard,long,turns,ablation,overhead --rounds N]`

use std::process::Command;
use tokenrouter_benches::serving::{
    Case, Fault, Outcome, System, memory, official, ours, standard,
};

/// Rounds in which every case of ours and of the official style runs once; medians count.
const ROUNDS: usize = 3;

/// How long standard serving as documented is watched: it would take hours to the end.
const WATCHED: f64 = 30.0;

/// The schedulers of ours, plainest first.
const OURS: [System; 4] = [System::StepSync, System::ModelSync, System::Eager, System::Delayed];

/// A part of the whole, by its name, for so many rounds.
type Part = (&'static str, fn(usize) -> Result<(), Fault>);

fn main() -> Result<(), Fault> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(case) = value(&arguments, "--case") {
        println!("{}", serde_json::to_string(&run(&serde_json::from_str(&case)?)?)?);
        return Ok(());
    }
    let only = value(&arguments, "--only");
    let wanted =
        |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|one| one.trim() == name));
    let rounds = value(&arguments, "--rounds").map_or(Ok(ROUNDS), |text| text.parse())?;
    let parts: [Part; 5] = [
        ("standard", against_standard),
        ("long", long_replies),
        ("turns", several_turns),
        ("ablation", ablation),
        ("overhead", overhead),
    ];
    for (_, part) in parts.iter().filter(|(name, _)| wanted(name)) {
        part(rounds)?;
    }
    Ok(())
}

fn value(arguments: &[String], flag: &str) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == flag)?;
    arguments.get(at + 1).cloned()
}

/// Runs a case here.
fn run(case: &Case) -> Result<Outcome, Fault> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = match case.system {
        System::StandardAsDocumented | System::StandardBestEffort => {
            runtime.block_on(standard::run(case))
        }
        System::Official => official::run(case),
        _ => runtime.block_on(ours::run(case)),
    };
    Ok(Outcome { memory: memory(), ..outcome? })
}

/// Runs a case in a process of its own.
fn apart(case: &Case) -> Result<Outcome, Fault> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--case", &serde_json::to_string(case)?])
        .env("HF_HUB_OFFLINE", "1")
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rfind(|line| line.starts_with('{'));
    match last {
        Some(line) if output.status.success() => Ok(serde_json::from_str(line)?),
        _ => {
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("{}: {told}", case.system.name()).into())
        }
    }
}

/// Runs all systems in turn, several rounds, and gives the outcome of median speed of each.
fn medians(case: &Case, systems: &[System], rounds: usize) -> Result<Vec<Outcome>, Fault> {
    let mut all: Vec<Vec<Outcome>> = vec![Vec::new(); systems.len()];
    for _ in 0..rounds {
        for (system, outcomes) in systems.iter().zip(&mut all) {
            outcomes.push(apart(&Case { system: *system, ..case.clone() })?);
        }
    }
    let median = |mut outcomes: Vec<Outcome>| {
        outcomes.sort_by(|a, b| a.speed().total_cmp(&b.speed()));
        outcomes.swap_remove(outcomes.len() / 2)
    };
    Ok(all.into_iter().map(median).collect())
}

fn short(requests: u32, tokens: u32) -> Case {
    Case {
        system: System::Official,
        requests,
        turns: 1,
        prompt: 0,
        tokens,
        seconds: 0.0,
        scripted: [0.0; 2],
    }
}

/// A row of a table for each system: speed, the same as multiples of two others, agreement with the official style.
fn table(systems: &[System], outcomes: &[Outcome], bases: [(&str, &Outcome); 2]) {
    let [(first, one), (second, two)] = bases;
    println!("| system | tokens/s | of {first} | of {second} | same tokens | memory |");
    println!("|---|---|---|---|---|---|");
    let official = systems.iter().position(|system| *system == System::Official);
    for (system, outcome) in systems.iter().zip(outcomes) {
        let speed = outcome.speed();
        let same = official.map_or(f64::NAN, |at| 100.0 * outcome.agreement(&outcomes[at]));
        println!(
            "| {} | {speed:.1} | {:.2} | {:.2} | {same:.2}% | {:.0} MB |",
            system.name(),
            speed / one.speed(),
            speed / two.speed(),
            outcome.memory,
        );
    }
}

/// Short prompts, 1,024 and 2,048 tokens: everything against the best-effort form of standard serving.
fn against_standard(rounds: usize) -> Result<(), Fault> {
    for (tokens, requests) in [(1024, 1), (1024, 4), (1024, 8), (2048, 1), (2048, 4)] {
        let case = short(requests, tokens);
        let effort = apart(&Case { system: System::StandardBestEffort, ..case.clone() })?;
        let mut systems = vec![System::Official];
        systems.extend(OURS);
        let mut outcomes = medians(&case, &systems, rounds)?;
        systems.insert(0, System::StandardBestEffort);
        outcomes.insert(0, effort);
        println!("\n## {tokens} tokens, {requests} requests\n");
        let bases = [("(a) best effort", &outcomes[0]), ("(b)", &outcomes[1])];
        table(&systems, &outcomes, bases);
    }
    for requests in [1, 4] {
        let case = Case { seconds: WATCHED, ..short(requests, 1024) };
        let documented = apart(&Case { system: System::StandardAsDocumented, ..case.clone() })?;
        let reached = documented.replies.iter().map(Vec::len).min().unwrap_or(0);
        let same = short(requests, reached.max(1) as u32);
        let effort = apart(&Case { system: System::StandardBestEffort, ..same.clone() })?;
        let mut systems = vec![System::Official];
        systems.extend(OURS);
        let mut outcomes = medians(&same, &systems, rounds)?;
        systems.insert(0, System::StandardBestEffort);
        outcomes.insert(0, effort);
        systems.insert(0, System::StandardAsDocumented);
        outcomes.insert(0, documented);
        println!(
            "\n## The first {reached} tokens, {requests} requests (as documented, in {WATCHED} s)\n"
        );
        let bases = [("(a) as documented", &outcomes[0]), ("(a) best effort", &outcomes[1])];
        table(&systems, &outcomes, bases);
    }
    Ok(())
}

/// A table of the official style and ours.
fn against_official(case: &Case, rounds: usize) -> Result<(), Fault> {
    let mut systems = vec![System::Official];
    systems.extend(OURS);
    let outcomes = medians(case, &systems, rounds)?;
    table(&systems, &outcomes, [("(b)", &outcomes[0]), ("(c) step-sync", &outcomes[1])]);
    Ok(())
}

/// Short prompts and 8,192 tokens.
fn long_replies(rounds: usize) -> Result<(), Fault> {
    for requests in [1, 4] {
        println!("\n## 8192 tokens, {requests} requests\n");
        against_official(&short(requests, 8192), rounds.min(1))?;
    }
    Ok(())
}

/// Four turns that end with 8,192 tokens before the last reply and 1,024 written.
fn several_turns(rounds: usize) -> Result<(), Fault> {
    for requests in [1, 4] {
        let case = Case { turns: 4, prompt: 1856, tokens: 256, ..short(requests, 0) };
        println!("\n## Four turns of 1856 new tokens and a reply of 256, {requests} requests\n");
        against_official(&case, rounds.min(1))?;
    }
    Ok(())
}

/// Each scheduler, and how long models were idle although enough requests were ready.
fn ablation(rounds: usize) -> Result<(), Fault> {
    let pair = short(8, 1024);
    let scripted = Case { scripted: [6.0, 27.9], tokens: 256, ..short(8, 0) };
    for (name, case) in [("the demo pair", pair), ("passes of 6.0 and 27.9 ms", scripted)] {
        let outcomes = medians(&case, &OURS, rounds)?;
        println!("\n## Schedulers, 8 requests, {} tokens, {name}\n", case.tokens);
        println!(
            "| scheduler | tokens/s | of step-sync | thresholds | idle large, small | of that, µs a pass |"
        );
        println!("|---|---|---|---|---|---|");
        for (system, outcome) in OURS.iter().zip(&outcomes) {
            let thresholds = match outcome.thresholds.is_empty() {
                true => "–".to_owned(),
                false => format!("{:?}", outcome.thresholds),
            };
            let [idle, each] = idleness(*system, outcome);
            println!(
                "| {} | {:.1} | {:.2} | {thresholds} | {idle} | {each} |",
                system.name(),
                outcome.speed(),
                outcome.speed() / outcomes[0].speed()
            );
        }
    }
    Ok(())
}

/// How much of the time each model could have run and did not, and how long before a pass in the mean. Who runs in rounds
/// waits for others by order.
fn idleness(system: System, outcome: &Outcome) -> [String; 2] {
    if matches!(system, System::StepSync | System::ModelSync) {
        return ["–".to_owned(), "–".to_owned()];
    }
    let shares = outcome.idle.iter().map(|share| format!("{:.2}%", 100.0 * share));
    let each = outcome.idle.iter().zip(&outcome.passes).map(|(share, passes)| {
        format!("{:.1}", 1e6 * share * outcome.seconds / (*passes).max(1) as f64)
    });
    [shares.collect::<Vec<_>>().join(", "), each.collect::<Vec<_>>().join(", ")]
}

/// What a token costs beside forward passes, in short and in long replies.
fn overhead(rounds: usize) -> Result<(), Fault> {
    println!("\n## Time in which no model ran a pass, one request\n");
    println!("| tokens | tokens/s | beside passes, µs/token | of that of 2048 |");
    println!("|---|---|---|---|");
    let mut base = None;
    for tokens in [2048, 8192] {
        let outcomes = medians(&short(1, tokens), &[System::Eager], rounds)?;
        let each = 1e6 * outcomes[0].outside / outcomes[0].tokens() as f64;
        let ratio = each / *base.get_or_insert(each);
        println!("| {tokens} | {:.1} | {each:.2} | {ratio:.2} |", outcomes[0].speed());
    }
    Ok(())
}
