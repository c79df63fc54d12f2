//! The rules that cut a device's text into examples.

use serde::{Deserialize, Serialize};

use crate::examples::Examples;
use crate::rule::WordRule;

/// The rules that cut the text of a device into examples: `[text]` of a task file, and `text` of a signed plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TextRules {
    /// The rule of sentences and words. Tasks of earlier versions name none, which is the rule of English.
    #[serde(skip_serializing_if = "WordRule::is_english")]
    pub words: WordRule,
    /// The unit of text that is one example.
    pub examples: Examples,
    /// Words of a sentence that are kept; a longer sentence is cut and gets no EOS.
    pub max_sentence_tokens: usize,
    /// Targets of a window, EOS among them; only where examples are windows.
    pub max_example_tokens: usize,
}

impl Default for TextRules {
    fn default() -> Self {
        Self {
            words: WordRule::English,
            examples: Examples::Sentences,
            max_sentence_tokens: 20,
            max_example_tokens: 128,
        }
    }
}

impl TextRules {
    /// Max number of targets of an example, as [`ExampleCutter::new`](crate::ExampleCutter::new) takes it.
    #[must_use]
    pub fn longest(&self) -> usize {
        match self.examples {
            Examples::Sentences => self.max_sentence_tokens,
            Examples::Windows => self.max_example_tokens,
        }
    }
}
