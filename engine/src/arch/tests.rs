//! Descriptions that are understood, and the words in which others are refused.

use super::*;

const LARGE: &str = include_str!("../../../models/large/config.json");
const UNTIED: &str = include_str!("../../../models/tiny/qwen3/config.json");

/// The large model's description with one key changed, or removed where the value is null.
fn changed(key: &str, value: serde_json::Value) -> Result<Arch, ConfigError> {
    let mut config: serde_json::Map<_, _> = serde_json::from_str(LARGE).unwrap();
    config.insert(key.to_owned(), value);
    Arch::parse(&serde_json::to_vec(&config).unwrap())
}

#[test]
fn the_demo_models_are_understood() {
    let arch = Arch::parse(LARGE.as_bytes()).unwrap();
    assert_eq!((arch.family, arch.hidden, arch.layers()), ("qwen3", 192, 4));
    assert_eq!((arch.heads, arch.kv_heads, arch.head_dim), (6, 2, 32));
    assert_eq!((arch.intermediate, arch.vocabulary, arch.context), (512, 511, 32768));
    assert!(arch.tied && arch.qk_norm && arch.bias == Bias::None);
    assert_eq!(arch.windows, [None; 4]);
    // 1,671,936 weights: vectors and embeddings in four bytes, matrices and the lm_head in two.
    let footprint = arch.footprint();
    assert_eq!(footprint.position, 4 * 2 * 2 * 32 * 4);
    assert!((3_300_000..4_000_000).contains(&footprint.weights), "{footprint:?}");
    let untied = Arch::parse(UNTIED.as_bytes()).unwrap();
    assert!(!untied.tied && untied.tensors().iter().any(|(name, _)| name == "lm_head.weight"));
}

#[test]
fn keys_have_their_usual_defaults_and_other_places() {
    assert_eq!(changed("head_dim", ().into()).unwrap().head_dim, 32);
    assert_eq!(changed("num_key_value_heads", ().into()).unwrap().kv_heads, 6);
    assert_eq!(changed("rope_theta", 5e5.into()).unwrap().rope_theta, 5e5);
    let nested = serde_json::json!({ "rope_theta": 1e6, "rope_type": "default" });
    let mut config: serde_json::Map<_, _> = serde_json::from_str(LARGE).unwrap();
    config.remove("rope_theta");
    config.insert("rope_parameters".to_owned(), nested);
    let arch = Arch::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    assert_eq!(arch.rope_theta, 1e6);
    assert_eq!(changed("attention_bias", true.into()).unwrap().bias, Bias::All);
}

#[test]
fn windows_are_per_layer() {
    let mut config: serde_json::Map<_, _> = serde_json::from_str(LARGE).unwrap();
    config.insert("sliding_window".to_owned(), 8.into());
    config.insert("use_sliding_window".to_owned(), true.into());
    let kinds = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"];
    config.insert("layer_types".to_owned(), kinds.to_vec().into());
    let parse = |config: &serde_json::Map<_, serde_json::Value>| {
        Arch::parse(&serde_json::to_vec(config).unwrap()).unwrap().windows
    };
    assert_eq!(parse(&config), [None, Some(8), None, Some(8)]);
    config.remove("layer_types");
    config.insert("max_window_layers".to_owned(), 3.into());
    assert_eq!(parse(&config), [None, None, None, Some(8)]);
}

#[test]
fn what_is_not_supported_is_named() {
    let cases = [
        ("model_type", serde_json::json!("mamba"), "supported are: qwen3"),
        ("hidden_act", serde_json::json!("gelu"), "`hidden_act` is \"gelu\""),
        ("rope_scaling", serde_json::json!({ "type": "yarn", "factor": 4.0 }), "`rope_type` is"),
        ("mlp_bias", true.into(), "`mlp_bias`"),
        ("num_key_value_heads", 4.into(), "a divisor of num_attention_heads"),
        ("hidden_size", 0.into(), "`hidden_size` is 0"),
        ("vocab_size", 4_000_000_000_000_u64.into(), "`vocab_size`"),
        ("num_hidden_layers", 1_000_000.into(), "`num_hidden_layers` is 1000000"),
        ("rms_norm_eps", (-1.0).into(), "`rms_norm_eps` is -1"),
        ("head_dim", 31.into(), "`head_dim` is 31"),
        ("rope_theta", (-1.0).into(), "`rope_theta` is -1"),
        ("layer_types", serde_json::json!(["full_attention"]), "`layer_types` is 1 long"),
        ("layer_types", vec!["sliding_attention"; 4].into(), "`sliding_window` is missing"),
        ("num_hidden_layers", "four".into(), "cannot be read"),
    ];
    for (key, value, want) in cases {
        let error = changed(key, value).unwrap_err().to_string();
        assert!(error.contains(want), "{key}: {error}");
    }
    assert!(Arch::parse(b"{").is_err());
}
