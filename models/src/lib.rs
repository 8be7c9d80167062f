//! The demo models and their router heads as bytes inside the program, so that it serves from any folder and without a network.
//!
//! Nothing is read from disk at run time, and nothing is parsed here.

/// The files of one model folder.
#[derive(Clone, Copy)]
pub struct Demo {
    /// `config.json`: the architecture.
    pub config: &'static str,
    /// `model.safetensors`: the weights, bfloat16.
    pub weights: &'static [u8],
    /// `tokenizer.json`.
    pub tokenizer: &'static str,
    /// `tokenizer_config.json`, with the chat template.
    pub tokenizer_config: &'static str,
    /// `generation_config.json`.
    pub generation_config: &'static str,
}

macro_rules! demo {
    ($name:literal) => {
        Demo {
            config: include_str!(concat!("../", $name, "/config.json")),
            weights: include_bytes!(concat!("../", $name, "/model.safetensors")),
            tokenizer: include_str!(concat!("../", $name, "/tokenizer.json")),
            tokenizer_config: include_str!(concat!("../", $name, "/tokenizer_config.json")),
            generation_config: include_str!(concat!("../", $name, "/generation_config.json")),
        }
    };
}

/// A router head of the demo model `small`.
#[derive(Clone, Copy)]
pub struct DemoHead {
    /// Its description.
    pub card: &'static str,
    /// Its weights, a safetensors file.
    pub weights: &'static [u8],
}

macro_rules! demo_head {
    ($name:literal) => {
        DemoHead {
            card: include_str!(concat!("../heads/", $name, ".json")),
            weights: include_bytes!(concat!("../heads/", $name, ".safetensors")),
        }
    };
}

/// The names of the demo models, smallest first, and of a variant: `small-co-llm` is `small` trained further to say when it should defer.
pub const NAMES: [&str; 4] = ["small", "mid", "large", "small-co-llm"];

/// The names of the demo heads.
pub const HEADS: [&str; 2] = ["r2r", "citer"];

/// Held-out problems, one JSON object `{"question", "answer"}` a line.
pub const PROBLEMS: &str = include_str!("../problems.jsonl");

/// The demo model `name`, one of [`NAMES`].
pub fn demo(name: &str) -> Option<Demo> {
    match name {
        "small" => Some(demo!("small")),
        "mid" => Some(demo!("mid")),
        "large" => Some(demo!("large")),
        "small-co-llm" => Some(demo!("small-co-llm")),
        _ => None,
    }
}

/// The demo head `name`, one of [`HEADS`].
pub fn head(name: &str) -> Option<DemoHead> {
    match name {
        "r2r" => Some(demo_head!("r2r")),
        "citer" => Some(demo_head!("citer")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_files_and_one_tokenizer_serves_all() {
        let models: Vec<Demo> = NAMES.iter().map(|name| demo(name).unwrap()).collect();
        let (variant, plain) = models.split_last().unwrap();
        assert!(plain.iter().all(|model| model.tokenizer == plain[0].tokenizer));
        assert!(plain.windows(2).all(|pair| pair[0].weights.len() < pair[1].weights.len()));
        assert!(variant.tokenizer.contains("<|defer|>"));
        assert!(demo("tiny").is_none());
    }

    #[test]
    fn heads_are_small() {
        let size: usize = HEADS.iter().map(|name| head(name).unwrap().weights.len()).sum();
        assert!(size + demo("small-co-llm").unwrap().weights.len() < 1 << 20, "{size}");
        assert!(head("none").is_none());
    }

    #[test]
    fn there_are_a_thousand_problems() {
        assert_eq!(PROBLEMS.lines().count(), 1000);
    }
}
