//! The demo models as bytes inside the program, so that it serves from any folder and without a network.
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

/// The names of the demo models, smallest first.
pub const NAMES: [&str; 3] = ["small", "mid", "large"];

/// Held-out problems, one JSON object `{"question", "answer"}` a line.
pub const PROBLEMS: &str = include_str!("../problems.jsonl");

/// The demo model `name`, one of [`NAMES`].
pub fn demo(name: &str) -> Option<Demo> {
    match name {
        "small" => Some(demo!("small")),
        "mid" => Some(demo!("mid")),
        "large" => Some(demo!("large")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_files_and_one_tokenizer_serves_all() {
        let models: Vec<Demo> = NAMES.iter().map(|name| demo(name).unwrap()).collect();
        assert!(models.iter().all(|model| model.tokenizer == models[0].tokenizer));
        assert!(models.windows(2).all(|pair| pair[0].weights.len() < pair[1].weights.len()));
        assert!(demo("tiny").is_none());
    }

    #[test]
    fn there_are_a_thousand_problems() {
        assert_eq!(PROBLEMS.lines().count(), 1000);
    }
}
