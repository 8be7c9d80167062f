//! Every fault is told with origin, key and reason.

use super::*;

fn parse(text: &str) -> Result<Topology, Error> {
    let sources = Sources { file: Some("t.yaml".into()), ..Sources::default() };
    Topology::from_text(text, &sources)
}

fn fault(text: &str) -> String {
    match parse(text) {
        Ok(topology) => panic!("accepted: {topology:?}"),
        Err(error) => error.to_string(),
    }
}

const MODELS: &str = "models: { a: x, b: { path: y } }\n";

#[test]
fn the_built_in_topology_is_accepted() {
    let topology = Topology::load(&Sources::default()).unwrap();
    assert_eq!(
        topology.models.keys().collect::<Vec<_>>(),
        ["large", "mid", "small", "small-co-llm"]
    );
    assert_eq!(topology.models["small"].path, "demo:small");
    let demo = &topology.routes["demo"];
    assert_eq!((demo.entry.as_str(), demo.policy.kind.as_str()), ("small", "r-stitch"));
    assert_eq!(topology.http.listen.to_string(), "127.0.0.1:8080");
}

#[test]
fn defaults_fill_what_is_not_written() {
    let topology = parse("models: { a: folder }\nbatching:\n  a: { max_batch_rows: 3 }\n").unwrap();
    assert_eq!(topology.models["a"].path, "folder");
    assert_eq!(topology.memory.cpu, Bytes(2 << 30));
    assert_eq!(topology.batching["a"].max_batch_rows, 3);
    assert_eq!(topology.batching["a"].max_batch_tokens, 512);
    assert!(topology.routes.is_empty());
}

#[test]
fn thresholds_are_numbers_tables_or_left_to_the_planner() {
    let text = "models: { a: x, b: x, c: x, d: x }
batching:
  a: { threshold: 3, max_wait: off }
  b: { threshold: { 1: 1, 6: 3 }, max_wait: 5ms }
  c: { threshold: auto }
scheduler: { mode: model-sync, plan: plan.json, tune: false, objective: { p99_tpot: 80ms } }
";
    let topology = parse(text).unwrap();
    let of =
        |name: &str| (topology.batching[name].threshold.clone(), topology.batching[name].max_wait);
    let ms = Duration::from_millis;
    assert_eq!(of("a"), (Threshold::Fixed(3), None));
    assert_eq!(of("b"), (Threshold::Table(vec![(1, 1), (6, 3)]), Some(ms(5))));
    assert_eq!(of("c"), (Threshold::Auto, Some(ms(50))));
    let scheduler = &topology.scheduler;
    assert_eq!((scheduler.mode, scheduler.tune), (SchedulerMode::ModelSync, Tune(false)));
    assert_eq!(scheduler.objective, Objective::P99Tpot(ms(80)));
    assert_eq!(scheduler.plan.as_deref(), Some(std::path::Path::new("plan.json")));
    let plain = parse("models: { a: x }").unwrap().scheduler;
    assert_eq!((plain.tune, plain.objective), (Tune(true), Objective::Throughput));
}

#[test]
fn an_empty_section_is_as_good_as_none() {
    let topology = parse("models: { a: x }\nroutes:\n  # none yet\nlimits:\n").unwrap();
    assert!(topology.routes.is_empty());
    assert_eq!(topology.limits.requests, 256);
}

#[test]
fn values_have_units() {
    let topology = parse(&format!(
        "{MODELS}memory: {{ cpu: 512MiB }}\nlimits: {{ grace: 250ms, body: 1MiB, requests: 4 }}\n"
    ))
    .unwrap();
    assert_eq!(topology.memory.cpu, Bytes(512 << 20));
    assert_eq!(topology.limits.grace, Duration::from_millis(250));
    assert_eq!(topology.limits.requests, 4);
}

/// A text, and how the fault in it is told.
const FAULTS: &[(&str, &str)] = &[
    (
        "models: { a: x }\nmodles: {}\n",
        "t.yaml:2: `modles`: there is no such setting; known here are http, ",
    ),
    ("models: { a: x }\nhttp:\n  port: 1\n", "t.yaml:3: `http.port`: there is no such setting"),
    (
        "models:\n  a: { path: x, kv: 3 }\n",
        "t.yaml:2: `models.a.kv`: there is no such setting; known here",
    ),
    ("models:\n  a: { device: cpu }\n", "t.yaml:2: `models.a.path`: is missing"),
    ("routes: {}\n", "`models`: is missing"),
    ("models: {}\n", "t.yaml:1: `models`: there is no model"),
    ("models: 3\n", "t.yaml:1: `models`: expected settings with their names, found"),
    ("models: { a: 3 }\n", "`models.a`: expected a path, or settings with a `path`, found"),
    ("models: { 'a/b': x }\n", "`models.a/b`: a name consists of letters"),
    (
        "models: { a: { path: x, device: tpu } }\n",
        "`models.a.device`: the device `tpu` is not yet supported",
    ),
    (
        "models: { a: { path: x, quantize: q8_0 } }\n",
        "`models.a.quantize`: quantisation is not yet supported",
    ),
    (
        "models: { a: { path: x, threads: 0 } }\n",
        "`models.a.threads`: a model needs at least 1 thread",
    ),
    (
        "models: { a: { path: x, threads: -1 } }\n",
        "`models.a.threads`: expected a whole number, not negative, found",
    ),
    ("models: { a: { path: x, kv_positions: 0 } }\n", "`models.a.kv_positions`: a KV cache of 0"),
    ("models: { a: x }\nnodes: { n: {} }\n", "t.yaml:2: `nodes.n.quic`: is missing"),
    (
        "models: { a: x }\nhttp: { listen: here }\n",
        "t.yaml:2: `http.listen`: `here` is not an address",
    ),
    (
        "models: { a: x }\nlimits: { grace: 5 }\n",
        "`limits.grace`: expected a duration with its unit",
    ),
    ("models: { a: x }\nlimits: { requests: 0 }\n", "`limits.requests`: must be at least 1"),
    (
        "models: { a: x }\nlimits: { requests: many }\n",
        "`limits.requests`: expected a whole number, not negative, found string",
    ),
    ("models: { a: x }\nmemory: { cpu: lots }\n", "`memory.cpu`: `lots` is not a size"),
    ("models: { a: x }\nlog: { format: xml }\n", "`log.format`: `xml` is not one of text, json"),
    (
        "models: { a: x }\nbatching: { b: {} }\n",
        "`batching.b`: there is no model `b`; the topology has a",
    ),
    (
        "models: { a: x }\nbatching: { a: { threshold: 0 } }\n",
        "`batching.a.threshold`: must be at least 1",
    ),
    (
        "models: { a: x }\nbatching: { a: { threshold: -1 } }\n",
        "`batching.a.threshold`: must be at least 1",
    ),
    (
        "models: { a: x }\nbatching: { a: { threshold: many } }\n",
        "`batching.a.threshold`: expected a number of requests, a table",
    ),
    (
        "models: { a: x }\nbatching: { a: { threshold: { few: 1 } } }\n",
        "`batching.a.threshold`: `few` is not a number; the keys of a table",
    ),
    (
        "models: { a: x }\nbatching: { a: { max_wait: 5 } }\n",
        "`batching.a.max_wait`: expected a duration with its unit, such as 50ms, or off",
    ),
    (
        "models: { a: x }\nbatching: { a: { max_wait: 10s } }\n",
        "`batching.a.max_wait`: 10s is too long: `limits.stall_timeout`, 30s, must be",
    ),
    (
        "models: { a: x }\nscheduler: { mode: eager }\n",
        "`scheduler.mode`: `eager` is not one of asynchronous, model-sync, step-sync",
    ),
    (
        "models: { a: x }\nscheduler: { objective: { p99_tpot: 0ms } }\n",
        "`scheduler.objective`: `p99_tpot` must be longer than nothing",
    ),
    (
        "models: { a: x }\nscheduler: { objective: { p50_tpot: 1ms } }\n",
        "`scheduler.objective.p50_tpot`: there is no such setting",
    ),
    (
        "models: { a: x }\nbatching: { a: { max_batch_rows: 0 } }\n",
        "`batching.a.max_batch_rows`: must be",
    ),
    ("", "t.yaml:1: `models`: is missing"),
    ("models: { a: x }\nlimits: [1]\n", "t.yaml:2: `limits`: expected settings with their names"),
    ("models: { a: x }\nlog: [info]\n", "t.yaml:2: `log`: expected settings with their names"),
    (
        "models: { a: x }\nbatching: { a: [1, 1] }\n",
        "`batching.a`: expected settings with their names",
    ),
    ("models: { a: x }\nroutes: { r: 1 }\n", "`routes.r`: expected settings with their names"),
    ("models: { a: { path: x, threads: 1025 } }\n", "`models.a.threads`: a model needs at least 1"),
    (
        "models: { a: x }\nlimits: { requests: 2305843009213693952 }\n",
        "`limits.requests`: must be at most 1048576",
    ),
    (
        "models: { a: x }\nhttp: { cors: ['a b'] }\n",
        "t.yaml:2: `http.cors.0`: `a b` is not an origin",
    ),
    (
        "models: { a: x }\nhttp: { cors: ['*', 'http://a/'] }\n",
        "`http.cors.1`: `http://a/` is not an origin",
    ),
    (
        "models: { a: x }\nhttp: { listen: '0.0.0.0:80' }\nadmin: { enabled: true }\n",
        "t.yaml:3: `admin.enabled`: others could kill actors through 0.0.0.0:80; set `admin.api_key`",
    ),
    (
        "models: { a: x }\nadmin: { enabled: true, api_key: '' }\n",
        "`admin.api_key`: a key is made of visible ASCII characters",
    ),
    (
        "models: { a: x }\nadmin: { api_key: 12345 }\n",
        "`admin.api_key`: expected a text; put it in quotes",
    ),
    (
        "models: { a: x }\nhttp: { api_keys: [good, 'no good'] }\n",
        "`http.api_keys.1`: a key is made of visible ASCII characters",
    ),
    ("- a\n", "the document is not a mapping"),
];

#[test]
fn faults_name_file_line_key_and_reason() {
    for (text, expected) in FAULTS {
        let told = fault(text);
        assert!(told.contains(expected), "{text:?} gave {told:?}, not {expected:?}");
        assert!(told.starts_with("t.yaml"), "{told:?}");
    }
}

#[test]
fn faults_of_routes_are_told() {
    let cases = [
        ("routes: { a: { entry: a, policy: { kind: always } } }", "`routes.a`: the name is taken"),
        (
            "routes: { r: { entry: c, policy: { kind: always } } }",
            "`routes.r.entry`: there is no model `c`",
        ),
        ("routes: { r: { policy: { kind: always } } }", "`routes.r.entry`: is missing"),
        ("routes: { r: { entry: a } }", "`routes.r.policy`: is missing"),
        ("routes: { r: { entry: a, policy: always } }", "`routes.r.policy`: a policy is a mapping"),
        ("routes: { r: { entry: a, policy: { to: b } } }", "`routes.r.policy.kind`: is missing"),
        (
            "routes: { r: { entry: a, policy: { kind: 3 } } }",
            "`routes.r.policy.kind`: expected the name",
        ),
        (
            "routes: { r: { entry: a, policy: { kind: x }, via: b } }",
            "`routes.r.via`: there is no such",
        ),
    ];
    for (text, expected) in cases {
        let told = fault(&format!("{MODELS}{text}\n"));
        assert!(told.contains(expected) && told.starts_with("t.yaml:2"), "{text:?} gave {told:?}");
    }
}

#[test]
fn bad_yaml_and_duplicate_keys_are_told_with_their_line() {
    let told = fault("models: { a: x }\nhttp: [\n");
    assert!(told.starts_with("t.yaml:2: unclosed bracket"), "{told:?}");
    let told = fault("models:\n  a: x\n  a: y\n");
    assert!(told.starts_with("t.yaml:3") && told.contains("duplicate"), "{told:?}");
    let told = fault("models: { a: x }\nmodels: { b: x }\n");
    assert!(told.starts_with("t.yaml:2") && told.contains("duplicate"), "{told:?}");
    assert!(!told.contains("Options"), "{told:?}");
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let sources = Sources { file: Some("no/such/file.yaml".into()), ..Sources::default() };
    let told = Topology::load(&sources).unwrap_err().to_string();
    assert!(told.starts_with("no/such/file.yaml: the file cannot be read"), "{told:?}");
}

#[test]
fn the_environment_goes_over_the_file_and_flags_over_both() {
    let environment = vec![
        ("TOKENROUTER_HTTP__LISTEN".to_owned(), "127.0.0.1:1".to_owned()),
        ("TOKENROUTER_LIMITS__REQUESTS".to_owned(), "7".to_owned()),
        ("TOKENROUTER_PORT".to_owned(), "tcp://10.0.0.1:80".to_owned()),
        ("HTTP__LISTEN".to_owned(), "nothing".to_owned()),
    ];
    let mut sources = Sources { environment, ..Sources::default() };
    let topology = Topology::load(&sources).unwrap();
    assert_eq!(topology.http.listen.port(), 1);
    assert_eq!(topology.limits.requests, 7);
    assert_eq!(topology.models.len(), 4, "other sections stay");

    sources.flags.push(Setting {
        flag: "--listen",
        key: "http.listen".into(),
        value: "127.0.0.1:2".into(),
    });
    assert_eq!(Topology::load(&sources).unwrap().http.listen.port(), 2);
}

#[test]
fn the_admin_listens_to_others_only_with_a_key() {
    let cases = [
        "admin: { enabled: true }",
        "http: { listen: '[::1]:80' }\nadmin: { enabled: true }",
        "http: { listen: '0.0.0.0:80' }\nadmin: { enabled: true, api_key: k }",
        "http: { listen: '0.0.0.0:80' }\nadmin: { enabled: false }",
    ];
    for text in cases {
        assert!(parse(&format!("{MODELS}{text}\n")).is_ok(), "{text}");
    }
}

#[test]
fn keys_do_not_show_themselves() {
    let text = format!("{MODELS}http: {{ api_keys: [hidden] }}\nadmin: {{ api_key: hidden }}\n");
    let topology = parse(&text).unwrap();
    assert_eq!(topology.http.api_keys[0].reveal(), "hidden");
    assert!(!format!("{:?} {:?}", topology.http, topology.admin).contains("hidden"));
}

#[test]
fn origins_have_the_form_that_browsers_send() {
    let text =
        format!("{MODELS}http: {{ cors: ['*', 'null', 'https://a.org', 'http://[::1]:80'] }}\n");
    assert_eq!(parse(&text).unwrap().http.cors.len(), 4);
}

#[test]
fn more_routes_than_can_be_told_apart_are_refused() {
    let mut topology =
        parse("models: { a: x }\nroutes: { r: { entry: a, policy: { kind: k } } }\n").unwrap();
    let route = topology.routes["r"].clone();
    topology.routes = (1..65_535).map(|number| (format!("r{number}"), route.clone())).collect();
    assert_eq!(topology.check(), Ok(()));
    topology.routes.insert("one-more".to_owned(), route);
    let told = topology.check().unwrap_err().to_string();
    assert!(told.contains("`routes`: there are more than 65535 routes and models"), "{told}");
}

#[test]
fn a_variable_full_of_brackets_is_a_text() {
    for bracket in ["[", "{a=", "[{"] {
        let value = bracket.repeat(30_000);
        let environment = vec![("TOKENROUTER_LIMITS__REQUESTS".to_owned(), value)];
        let told = Topology::load(&Sources { environment, ..Sources::default() }).unwrap_err();
        assert!(told.to_string().contains("`limits.requests`: expected a whole number"), "{told}");
    }
}

#[test]
fn a_fault_from_environment_or_flag_names_it() {
    let variable = |name: &str, value: &str| Sources {
        environment: vec![(name.to_owned(), value.to_owned())],
        ..Sources::default()
    };
    let cases = [
        (
            variable("TOKENROUTER_LIMITS__REQUESTS", "0"),
            "environment variable TOKENROUTER_LIMITS__REQUESTS: `limits.requests`: must be",
        ),
        (
            variable("TOKENROUTER_LIMITS__REQUESTS", "x"),
            "environment variable TOKENROUTER_LIMITS__REQUESTS: `limits.requests`: expected",
        ),
        (
            variable("TOKENROUTER_LIMITS__SPEED", "1"),
            "environment variable TOKENROUTER_LIMITS__SPEED: `limits.speed`: there is no",
        ),
        (
            variable("TOKENROUTER_NODES__A", "1"),
            "environment variable TOKENROUTER_NODES__A: `nodes.a`: expected settings",
        ),
    ];
    for (sources, expected) in cases {
        let told = Topology::load(&sources).unwrap_err().to_string();
        assert!(told.starts_with(expected), "{told:?}");
    }
    let flags =
        vec![Setting { flag: "--listen", key: "http.listen".into(), value: "nowhere".into() }];
    let told = Topology::load(&Sources { flags, ..Sources::default() }).unwrap_err().to_string();
    assert!(
        told.starts_with("flag --listen: `http.listen`: `nowhere` is not an address"),
        "{told:?}"
    );
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    to: String,
    threshold: f32,
}

#[test]
fn a_policy_section_is_parsed_strictly_and_without_its_kind() {
    let route = |policy: &str| {
        let text = format!("{MODELS}routes:\n  v1.0:\n    entry: a\n    policy: {policy}\n");
        parse(&text).unwrap().routes["v1.0"].policy.clone()
    };
    let good: Settings = route("{ kind: k, to: b, threshold: 0.5 }").parse().unwrap();
    assert_eq!((good.to.as_str(), good.threshold), ("b", 0.5));
    let whole: Settings = route("{ kind: k, to: b, threshold: 1 }").parse().unwrap();
    assert_eq!(whole.threshold, 1.0);

    let cases = [
        (
            "{ kind: k, to: b, threshold: 0.5, up: 1 }",
            "t.yaml:5: `routes.v1.0.policy.up`: there is no such",
        ),
        ("{ kind: k, threshold: 0.5 }", "t.yaml:5: `routes.v1.0.policy.to`: is missing"),
        (
            "{ kind: k, to: b, threshold: high }",
            "t.yaml:5: `routes.v1.0.policy.threshold`: expected a number",
        ),
    ];
    for (policy, expected) in cases {
        let told = route(policy).parse::<Settings>().unwrap_err().to_string();
        assert!(told.starts_with(expected), "{told:?}");
    }
    let own = route("{ kind: k, to: b }").error("to", "no");
    assert_eq!((own.key.as_str(), own.reason.as_str()), ("routes.v1.0.policy.to", "no"));
}

#[test]
fn a_section_can_stand_alone() {
    let section = PolicySection::from_yaml("kind: k\nto: b\nthreshold: 0.1").unwrap();
    assert_eq!(section.kind, "k");
    assert_eq!(section.parse::<Settings>().unwrap().to, "b");
    assert_eq!(section.error("to", "no").to_string(), "built-in topology, line 3: `policy.to`: no");
    assert!(PolicySection::from_yaml("to: b").is_err());
}
