//! The description of a head: the JSON that lies beside its weights. It says nothing of shapes, which the weights know.

use super::HeadError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokenrouter_policies::HeadKind;

/// The networks, by the names that their own code gives them.
const KINDS: [(&str, HeadKind); 8] = [
    ("HiddenStatesTokenLMHeadLogitsClassifier", HeadKind::R2r),
    ("HiddenStatesTokenLMHeadClassifier", HeadKind::R2r),
    ("HiddenStatesLogitsClassifier", HeadKind::R2r),
    ("HiddenStatesClassifier", HeadKind::R2r),
    ("HiddenStatesClassifierWithLMHead", HeadKind::R2r),
    ("LogitsClassifier", HeadKind::R2r),
    ("CITER", HeadKind::Citer),
    ("Linear", HeadKind::Linear),
];

/// What a head is, apart from its weights; `NAME.json` beside `NAME.safetensors`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadCard {
    /// The class of the network: one of R2R's, `CITER` or `Linear`.
    pub model_type: String,
    /// The arguments that the class was made with.
    #[serde(default)]
    pub init_args: Map<String, Value>,
    /// The threshold that its makers chose; a policy's own setting wins.
    #[serde(default)]
    pub threshold: Option<f64>,
    /// What it reads, in its makers' words; kept for people, since the class already says it.
    #[serde(default)]
    pub input_type: Option<Value>,
}

impl HeadCard {
    /// Reads a description.
    ///
    /// # Errors
    /// [`HeadError::Card`] for a text that is none.
    pub fn parse(json: &[u8]) -> Result<Self, HeadError> {
        Ok(serde_json::from_slice(json)?)
    }

    /// What its score means.
    ///
    /// # Errors
    /// [`HeadError::Kind`] for a network that is not supported.
    pub fn kind(&self) -> Result<HeadKind, HeadError> {
        let known = KINDS.iter().find(|(name, _)| *name == self.model_type);
        known.map(|(_, kind)| *kind).ok_or_else(|| HeadError::Kind {
            found: self.model_type.clone(),
            supported: KINDS.map(|(name, _)| name).join(", "),
        })
    }

    /// Whether an argument is `true`.
    pub(super) fn says(&self, argument: &str) -> bool {
        self.init_args.get(argument).and_then(Value::as_bool).unwrap_or(false)
    }
}
