//! The files of a model: a demo model inside the program, or a folder as it comes from Hugging Face.
//!
//! Weights are only named here, never read.

use serde_json::Value;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use tokenrouter_engine::{HeadFiles, ModelFiles, Weights};

/// Why a model's files cannot be used. Its text is the reason of an error about the model's `path`.
#[derive(Debug, thiserror::Error)]
pub enum AssetsError {
    /// No such demo model.
    #[error("there is no demo model `{name}`; there are {}", known.join(", "))]
    Demo {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The path is no folder.
    #[error("`{}` is not a folder; name a model's folder, or one of the demo models such as demo:small", .0.display())]
    NotAFolder(PathBuf),
    /// A file of the folder cannot be read.
    #[error("`{}` cannot be read: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A folder without weights.
    #[error("`{}` has no .safetensors file", .0.display())]
    NoWeights(PathBuf),
    /// No such demo head.
    #[error("there is no demo head `{name}`; there are {}", known.join(", "))]
    DemoHead {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// No weights of a head.
    #[error("`{}` is not a file; name a head's .safetensors file, or a demo head such as demo:r2r", .0.display())]
    NotAHead(PathBuf),
    /// Weights of a head without their description.
    #[error("`{}` is missing; a head is described by the .json beside its weights, which `tokenrouter convert-head` writes", .0.display())]
    NoCard(PathBuf),
    /// A file that is no JSON.
    #[error("{file} is not valid JSON: {reason}")]
    Json {
        /// The file.
        file: &'static str,
        /// Why.
        reason: String,
    },
}

/// The files of one model.
#[derive(Debug)]
pub struct Assets {
    /// What the engine needs.
    pub files: ModelFiles,
    /// `config.json`, parsed.
    pub config: Value,
    /// `generation_config.json`, parsed.
    pub generation_config: Option<Value>,
    /// `tokenizer.json`.
    pub tokenizer: Cow<'static, [u8]>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<Cow<'static, str>>,
    /// `chat_template.jinja`.
    pub template: Option<String>,
}

impl Assets {
    /// Finds the files that `path` of a topology names.
    ///
    /// # Errors
    /// An unknown demo model, a missing or unreadable file.
    pub fn find(path: &str) -> Result<Self, AssetsError> {
        match path.strip_prefix("demo:") {
            Some(name) => demo(name),
            None => folder(Path::new(path)),
        }
    }
}

/// Finds the files of the router head that a policy's `head` names: `demo:NAME`, or a safetensors file with its
/// description beside.
///
/// # Errors
/// An unknown demo head, a missing or unreadable file.
pub fn head(name: &str) -> Result<HeadFiles, AssetsError> {
    if let Some(demo) = name.strip_prefix("demo:") {
        let unknown = || AssetsError::DemoHead {
            name: demo.to_owned(),
            known: tokenrouter_models::HEADS.iter().map(|name| format!("demo:{name}")).collect(),
        };
        let head = tokenrouter_models::head(demo).ok_or_else(unknown)?;
        let card = Cow::Borrowed(head.card.as_bytes());
        return Ok(HeadFiles { card, weights: Weights::Embedded(head.weights) });
    }
    let weights = PathBuf::from(name);
    let card = weights.with_extension("json");
    if !weights.is_file() || card == weights {
        return Err(AssetsError::NotAHead(weights));
    }
    let card = read_if_there(&card)?.ok_or(AssetsError::NoCard(card))?;
    Ok(HeadFiles { card: Cow::Owned(card), weights: Weights::Files(vec![weights]) })
}

fn demo(name: &str) -> Result<Assets, AssetsError> {
    let demo = tokenrouter_models::demo(name).ok_or_else(|| AssetsError::Demo {
        name: name.to_owned(),
        known: tokenrouter_models::NAMES.iter().map(|name| format!("demo:{name}")).collect(),
    })?;
    Ok(Assets {
        files: ModelFiles {
            config: Cow::Borrowed(demo.config.as_bytes()),
            weights: Weights::Embedded(demo.weights),
            heads: Vec::new(),
            defer: None,
        },
        config: json("config.json", demo.config.as_bytes())?,
        generation_config: Some(json("generation_config.json", demo.generation_config.as_bytes())?),
        tokenizer: Cow::Borrowed(demo.tokenizer.as_bytes()),
        tokenizer_config: Some(Cow::Borrowed(demo.tokenizer_config)),
        template: None,
    })
}

fn folder(path: &Path) -> Result<Assets, AssetsError> {
    if !path.is_dir() {
        return Err(AssetsError::NotAFolder(path.to_owned()));
    }
    let config = read(&path.join("config.json"))?;
    let generation_config = match read_if_there(&path.join("generation_config.json"))? {
        Some(bytes) => Some(json("generation_config.json", &bytes)?),
        None => None,
    };
    let text = |name: &str| -> Result<Option<String>, AssetsError> {
        let bytes = read_if_there(&path.join(name))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    Ok(Assets {
        config: json("config.json", &config)?,
        generation_config,
        tokenizer: Cow::Owned(read(&path.join("tokenizer.json"))?),
        tokenizer_config: text("tokenizer_config.json")?.map(Cow::Owned),
        template: text("chat_template.jinja")?,
        files: ModelFiles {
            config: Cow::Owned(config),
            weights: Weights::Files(weights(path)?),
            heads: Vec::new(),
            defer: None,
        },
    })
}

/// The weights of a folder: its index if it has one, or else all `.safetensors` files in order of their names.
fn weights(folder: &Path) -> Result<Vec<PathBuf>, AssetsError> {
    let index = folder.join("model.safetensors.index.json");
    if index.is_file() {
        return Ok(vec![index]);
    }
    let whole = folder.join("model.safetensors");
    if whole.is_file() {
        return Ok(vec![whole]);
    }
    let fault =
        |e: std::io::Error| AssetsError::Read { path: folder.to_owned(), reason: e.to_string() };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let file = entry.map_err(fault)?.path();
        if file.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() { Err(AssetsError::NoWeights(folder.to_owned())) } else { Ok(files) }
}

fn read(path: &Path) -> Result<Vec<u8>, AssetsError> {
    std::fs::read(path)
        .map_err(|e| AssetsError::Read { path: path.to_owned(), reason: e.to_string() })
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, AssetsError> {
    if path.exists() { read(path).map(Some) } else { Ok(None) }
}

fn json(file: &'static str, bytes: &[u8]) -> Result<Value, AssetsError> {
    serde_json::from_slice(bytes).map_err(|e| AssetsError::Json { file, reason: e.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_models_are_inside() {
        let assets = Assets::find("demo:mid").unwrap();
        assert_eq!(assets.config["model_type"], "qwen3");
        assert!(matches!(assets.files.weights, Weights::Embedded(_)));
        let told = Assets::find("demo:huge").unwrap_err().to_string();
        assert_eq!(
            told,
            "there is no demo model `huge`; there are demo:small, demo:mid, demo:large, demo:small-co-llm"
        );
    }

    #[test]
    fn a_folder_is_as_good_and_a_missing_file_is_told() {
        let models = Path::new("../models");
        let folder = |name: &str| Assets::find(models.join(name).to_str().unwrap());
        let assets = folder("small").unwrap();
        assert_eq!(assets.config, Assets::find("demo:small").unwrap().config);
        assert!(matches!(assets.files.weights, Weights::Files(files) if files.len() == 1));
        let told = folder("tiny/qwen3").unwrap_err().to_string();
        assert!(told.contains("tokenizer.json` cannot be read"), "{told}");
        let told = head("demo:none").unwrap_err().to_string();
        assert_eq!(told, "there is no demo head `none`; there are demo:r2r, demo:citer");
        for (name, expected) in [
            ("heads/none.safetensors", "is not a file; name a head's .safetensors file"),
            ("heads/r2r.json", "is not a file; name a head's .safetensors file"),
            ("small/model.safetensors", "model.json` is missing; a head is described by the .json"),
        ] {
            let told = head(models.join(name).to_str().unwrap()).unwrap_err().to_string();
            assert!(told.contains(expected), "{told}");
        }
        let named = head(models.join("heads/r2r.safetensors").to_str().unwrap()).unwrap();
        assert_eq!(named.card, head("demo:r2r").unwrap().card);
        assert!(folder("none").unwrap_err().to_string().contains("is not a folder"));
    }
}
