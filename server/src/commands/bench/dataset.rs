//! What a benchmark asks. It sends nothing but what makes random prompts as long as they should be.

use super::client::Client;
use crate::cli::bench::{Bench, Dataset};
use crate::commands::CommandError;
use crate::commands::problem::Selection;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde::Deserialize;

/// Words for random prompts; every tokeniser has most of them as one token.
const WORDS: [&str; 24] = [
    "one", "two", "three", "time", "way", "day", "man", "thing", "world", "life", "hand", "part",
    "child", "eye", "place", "work", "week", "case", "point", "number", "group", "fact", "is",
    "the",
];

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Prompt {
    /// What is asked; files of problems call it a question.
    #[serde(rename = "prompt", alias = "question")]
    pub(super) text: String,
    /// The most tokens of the reply, where it is not the same for all.
    #[serde(default)]
    pub(super) output_tokens: Option<u32>,
}

/// `count` prompts, the same ones again where there are fewer.
///
/// # Errors
/// A file that cannot be used.
pub(super) async fn prompts(
    arguments: &Bench,
    client: &Client,
    random: &mut StdRng,
    count: usize,
) -> Result<Vec<Prompt>, CommandError> {
    let all = match arguments.prompts.dataset_name {
        Dataset::Problems => problems()?,
        Dataset::Custom => custom(arguments)?,
        Dataset::Random => {
            return Ok(words(client, random, arguments.prompts.input_len as usize, count).await);
        }
    };
    Ok(all.iter().cycle().take(count).cloned().collect())
}

fn problems() -> Result<Vec<Prompt>, CommandError> {
    let problems = Selection::new(None, None, 0)?.load()?;
    let prompt = |question| Prompt { text: question, output_tokens: None };
    Ok(problems.into_iter().map(|problem| prompt(problem.question)).collect())
}

fn custom(arguments: &Bench) -> Result<Vec<Prompt>, CommandError> {
    let Some(path) = &arguments.prompts.dataset_path else {
        return Err(CommandError::Input("flag --dataset-path: name the file".to_owned()));
    };
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| CommandError::Input(format!("{name}: the file cannot be read: {e}")))?;
    parse(&name.to_string(), &text)
}

fn parse(name: &str, text: &str) -> Result<Vec<Prompt>, CommandError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts = lines.map(|(index, line)| {
        serde_json::from_str(line).map_err(|e| {
            let hint = "write {\"prompt\": \"…\"}, and \"output_tokens\": N if it should differ";
            CommandError::Input(format!("{name}:{}: not a prompt: {e}; {hint}", index + 1))
        })
    });
    let prompts: Vec<Prompt> = prompts.collect::<Result<_, _>>()?;
    if prompts.is_empty() {
        return Err(CommandError::Input(format!("{name}: there are no prompts in it")));
    }
    Ok(prompts)
}

/// Prompts of `length` tokens each; of so many words where the server does not say what its tokens are.
async fn words(client: &Client, random: &mut StdRng, length: usize, count: usize) -> Vec<Prompt> {
    let mut prompts = Vec::with_capacity(count);
    for _ in 0..count {
        let words: Vec<&str> = (0..length).filter_map(|_| WORDS.choose(random).copied()).collect();
        let mut text = words.join(" ");
        match cut(client, &text, length).await {
            Ok(exact) => text = exact,
            Err(reason) if prompts.is_empty() => eprintln!(
                "warning: prompts have {length} words, not tokens: {} has no /tokenize: {reason}",
                client.base()
            ),
            Err(_) => {}
        }
        prompts.push(Prompt { text, output_tokens: None });
    }
    prompts
}

/// The beginning of `text` that has `length` tokens.
async fn cut(client: &Client, text: &str, length: usize) -> Result<String, String> {
    let tokens = client.tokenize(text).await?;
    client.detokenize(tokens.get(..length).unwrap_or(&tokens)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_prompts_or_problems() {
        let text = "{\"prompt\": \"a\", \"output_tokens\": 3}\n\n{\"question\": \"b\", \"answer\": \"1\"}\n";
        let prompt = |text: &str, output_tokens| Prompt { text: text.to_owned(), output_tokens };
        assert_eq!(parse("f", text).unwrap(), [prompt("a", Some(3)), prompt("b", None)]);
        let told = parse("f", "{\"prompt\": \"a\"}\n{}").unwrap_err().to_string();
        assert!(told.starts_with("f:2: not a prompt: missing field `prompt`"), "{told}");
        assert_eq!(parse("f", "\n").unwrap_err().to_string(), "f: there are no prompts in it");
    }
}
