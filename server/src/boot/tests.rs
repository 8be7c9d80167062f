//! Plans of the built-in topology and of broken ones. Nothing is loaded.

use super::*;
use tokenrouter_config::Sources;

fn plan(text: &str) -> Result<Plan, Error> {
    let sources = Sources { file: Some("t.yaml".into()), ..Sources::default() };
    Plan::new(Topology::from_text(text, &sources)?)
}

fn fault(text: &str) -> String {
    plan(text).map(|_| "accepted".to_owned()).unwrap_or_else(|e| e.to_string())
}

#[test]
fn the_built_in_topology_has_a_plan() {
    let plan = Plan::new(Topology::load(&Sources::default()).unwrap()).unwrap();
    let catalog = plan.catalog();
    assert_eq!(catalog.models, ["large", "mid", "small", "small-co-llm"]);
    let names = catalog.names();
    assert!(names.is_sorted() && names.contains(&"demo") && names.contains(&"small"));
    let demo = catalog.find("demo").unwrap();
    assert_eq!((demo.entry, demo.reaches.as_slice()), (ModelIx(2), &[ModelIx(0), ModelIx(2)][..]));
    assert_eq!(demo.context, 32768);
    assert_eq!(catalog.find("mid").unwrap().reaches, [ModelIx(1)]);
    assert_eq!(plan.by_size(), [2, 3, 1, 0].map(ModelIx));
    assert_eq!(demo.index.index(), names.iter().position(|name| *name == "demo").unwrap());

    let spent: u64 = plan.models().iter().map(|model| model.weights.0 + model.pool.0).sum();
    assert!(spent <= plan.topology().memory.cpu.0, "{spent}");
}

#[test]
fn a_pool_of_its_own_bounds_the_context_of_its_routes() {
    let plan = plan(
        "models: { a: { path: 'demo:small', kv_positions: 100 }, b: { path: 'demo:mid' } }\n\
         routes: { r: { entry: b, policy: { kind: random, to: a, probability: 0.5 } } }\n",
    )
    .unwrap();
    assert_eq!(plan.catalog().find("a").unwrap().context, 112, "whole blocks");
    assert_eq!(plan.catalog().find("r").unwrap().context, 112);
    assert_eq!(plan.catalog().find("b").unwrap().context, 32768);
}

#[test]
fn a_model_without_a_batching_section_has_the_defaults_of_one() {
    let bounds = |text: &str| {
        let topology = Topology::from_text(text, &Sources::default()).unwrap();
        let bounds = batching::limits(&topology, "a").unwrap();
        (bounds.tokens_max, bounds.rows_max)
    };
    let (alone, empty) = ("models: { a: 'demo:small' }\n", "batching: { a: {} }\n");
    assert_eq!(bounds(alone), (512, 64));
    assert_eq!(bounds(&format!("{alone}{empty}")), bounds(alone));
    assert_eq!(bounds(&format!("{alone}batching: {{ a: {{ max_batch_rows: 2 }} }}\n")), (512, 2));
}

#[test]
fn what_cannot_run_is_told_with_key_and_reason() {
    let models = "models: { a: 'demo:small', b: 'demo:large' }\n";
    let cases = [
        (
            "models: { a: 'demo:tiny' }\n".to_owned(),
            "t.yaml:1: `models.a.path`: there is no demo model",
        ),
        (
            "models: { a: nowhere }\n".to_owned(),
            "t.yaml:1: `models.a.path`: `nowhere` is not a folder",
        ),
        (
            format!("{models}memory: {{ cpu: 1MiB }}\n"),
            "t.yaml:2: `memory.cpu`: the models of this device need",
        ),
        (
            "models: { a: { path: 'demo:small', kv_positions: 4000000 } }\nmemory: { cpu: 1MiB }\n"
                .to_owned(),
            "t.yaml:2: `memory.cpu`: the models with `kv_positions` alone need",
        ),
        (
            format!("{models}routes: {{ r: {{ entry: a, policy: {{ kind: magic }} }} }}\n"),
            "t.yaml:2: `routes.r.policy.kind`: there is no policy `magic`",
        ),
        (
            format!(
                "{models}routes: {{ r: {{ entry: a, policy: {{ kind: r-stitch, to: b, threshold: 2 }} }} }}\n"
            ),
            "t.yaml:2: `routes.r.policy.threshold",
        ),
        (
            format!(
                "{models}routes: {{ r: {{ entry: a, policy: {{ kind: random, to: c, probability: 1 }} }} }}\n"
            ),
            "t.yaml:2: `routes.r.policy.to`: there is no model `c`",
        ),
    ];
    for (text, expected) in cases {
        let told = fault(&text);
        assert!(told.starts_with(expected), "{text:?} gave {told:?}");
    }
}

#[test]
fn models_of_a_route_must_share_a_tokenizer() {
    let folder = std::env::temp_dir().join(format!("tokenrouter-boot-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let demo = tokenrouter_models::demo("mid").unwrap();
    std::fs::write(folder.join("config.json"), demo.config).unwrap();
    std::fs::write(folder.join("model.safetensors"), demo.weights).unwrap();
    let other = demo.tokenizer.replace("\"</think>\"", "\"</thought>\"");
    std::fs::write(folder.join("tokenizer.json"), other).unwrap();
    let models = format!("models: {{ a: 'demo:small', b: '{}' }}\n", folder.display());
    let alone = plan(&models).map(|plan| plan.catalog().names().len());
    let route = "routes: { r: { entry: a, policy: { kind: random, to: b, probability: 0.5 } } }\n";
    let told = fault(&format!("{models}{route}"));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(alone.unwrap(), 2, "each alone is fine");
    assert!(
        told.starts_with("t.yaml:2: `routes.r`: the tokenizers of `a` and `b` differ (token 4"),
        "{told}"
    );
}

#[test]
fn heads_are_found_once_and_must_fit() {
    let models = "models: { a: 'demo:small', b: 'demo:large' }\n";
    let route = |entry: &str, policy: &str| {
        let to = if entry == "a" { "b" } else { "a" };
        format!("{models}routes: {{ r: {{ entry: {entry}, policy: {{ to: {to}, {policy} }} }} }}\n")
    };
    let card_only = std::env::temp_dir().join(format!("tokenrouter-head-{}", std::process::id()));
    let weights = card_only.with_extension("safetensors");
    std::fs::write(&weights, tokenrouter_models::head("r2r").unwrap().weights).unwrap();
    let lonely = format!("kind: r2r, head: '{}', threshold: 0.5", weights.display());
    let cases = [
        (
            route("b", "kind: r2r, head: 'demo:r2r'"),
            "t.yaml:2: `routes.r.policy.head`: `demo:r2r` does not fit model `b`: the head reads hidden states of 64 numbers, but the model's have 192",
        ),
        (
            route("a", "kind: r2r, head: 'demo:none'"),
            "t.yaml:2: `routes.r.policy.head`: there is no demo head `none`; there are demo:r2r, demo:citer",
        ),
        (
            route("a", "kind: citer, head: 'demo:r2r'"),
            "t.yaml:2: `routes.r.policy.head`: `demo:r2r` is a head of kind r2r",
        ),
        (route("a", &lonely), "t.yaml:2: `routes.r.policy.head`: `"),
        (
            route("a", "kind: co-llm"),
            "t.yaml:2: `routes.r.policy.defer`: `a` has no token `<|defer|>` among its 511",
        ),
    ];
    for (text, expected) in cases {
        let told = fault(&text);
        assert!(told.starts_with(expected), "{text:?} gave {told:?}");
    }
    let told = fault(&route("a", &lonely));
    std::fs::remove_file(&weights).unwrap();
    assert!(told.contains(".json` is missing; a head is described by the .json"), "{told}");

    let twice = "routes: { q: { entry: a, policy: { kind: r2r, to: b, head: 'demo:r2r' } },\n\
                 r: { entry: a, policy: { kind: r2r, to: b, head: 'demo:r2r', threshold: 0.5 } },\n\
                 s: { entry: a, policy: { kind: citer, to: b, head: 'demo:citer' } } }\n";
    let heads = plan(&format!("{models}{twice}")).unwrap();
    let (small, plain) = (&heads.models[0], plan(models).unwrap());
    assert_eq!((small.heads.len(), small.files.heads.len()), (2, 2));
    let added = heads.models()[0].weights.0 - plain.models()[0].weights.0;
    assert_eq!(added, small.heads.iter().map(|head| head.facts.bytes).sum::<u64>());
    assert!(added > 100_000, "{added}");
}

#[test]
fn a_model_that_defers_speaks_the_language_of_its_family() {
    let text = "models: { a: 'demo:small-co-llm', b: 'demo:large' }\n\
                routes: { r: { entry: a, policy: { kind: co-llm, to: b } } }\n";
    let plan = plan(text).unwrap();
    let [small, large] = [&plan.models[0], &plan.models[1]];
    assert_eq!((small.arch.vocabulary, large.arch.vocabulary), (512, 511));
    assert_eq!((small.files.defer, large.files.defer), (Some(511), None));
    let tokenizer = &small.language.tokenizer;
    assert_eq!((tokenizer.vocabulary().len(), tokenizer.token("<|defer|>")), (511, Some(511)));
    let tokens = tokenizer.encode("so <|defer|> to", false).unwrap();
    assert!(tokens.iter().all(|token| *token < 511), "{tokens:?}");
    assert!(!tokenizer.names_special("<|defer|>"));
}

#[test]
fn thresholds_under_which_requests_could_wait_for_ever_are_refused() {
    let text = |small: &str, large: &str| {
        format!(
            "models: {{ small: 'demo:small', large: 'demo:large', mid: 'demo:mid' }}
routes: {{ both: {{ entry: small, policy: {{ kind: random, to: large, probability: 0.5 }} }} }}
batching:
  small: {{ threshold: {small} }}
  large: {{ threshold: {large} }}
  mid: {{ threshold: 9 }}
"
        )
    };
    assert_eq!(fault(&text("1", "3")), "accepted");
    assert_eq!(fault(&text("{1: 1, 4: 2}", "{1: 1, 4: 3}")), "accepted");
    assert_eq!(fault(&text("auto", "auto")), "accepted");
    let both = fault(&text("2", "3"));
    assert!(
        both.starts_with("t.yaml:5: `batching.large.threshold`: with 2 live requests"),
        "{both}"
    );
    let table = fault(&text("1", "{2: 3}"));
    assert!(
        table.contains("`batching.large.threshold`: a table of thresholds begins at 1"),
        "{table}"
    );
}
