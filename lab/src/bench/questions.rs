//! Questions with one number for an answer, and the CPU seconds that it takes.

use anyhow::bail;
use serde_json::json;

use crate::bench::usage::clocked;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Repeats of every question, after one that is discarded
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// One question only
    #[arg(long)]
    only: Option<String>,
}

/// A question by its name.
pub(crate) struct Question {
    name: String,
    /// Asked by name only: it takes long.
    slow: bool,
    answer: Box<dyn Fn() -> anyhow::Result<f64>>,
}

impl Question {
    pub(crate) fn new(name: impl Into<String>, answer: impl Fn() -> anyhow::Result<f64> + 'static) -> Self {
        Self {
            name: name.into(),
            slow: false,
            answer: Box::new(answer),
        }
    }

    /// Marks the question as one that runs only when it is named.
    pub(crate) fn slow(self) -> Self {
        Self { slow: true, ..self }
    }
}

/// Prints a `RESULT {json}` line for every question; the answer, called `what`, has to be the same every time.
pub(crate) fn ask(arguments: &Arguments, what: &str, questions: Vec<Question>) -> anyhow::Result<()> {
    let wanted = |question: &Question| match &arguments.only {
        Some(only) => *only == question.name,
        None => !question.slow,
    };
    let mut asked = 0;
    for question in questions.into_iter().filter(wanted) {
        asked += 1;
        let name = &question.name;
        let value = (question.answer)()?;
        let mut seconds = Vec::new();
        for _ in 0..arguments.repeats {
            let (again, took) = clocked(&question.answer)?;
            let again = again?;
            if again != value {
                bail!("{name}: {value} at first, {again} later");
            }
            seconds.push(took);
        }
        seconds.sort_by(f64::total_cmp);
        let mut result = json!({
            "name": "undertone",
            "version": env!("CARGO_PKG_VERSION"),
            "question": name,
            "cpu_s": seconds[seconds.len() / 2],
            "cpu_s_all": seconds,
        });
        result[what] = value.into();
        println!("RESULT {result}");
    }
    if asked == 0 {
        bail!("--only: no question of this name");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_questions_are_asked_by_name_and_answers_stay() {
        let arguments = |only: Option<&str>| Arguments {
            repeats: 1,
            only: only.map(str::to_owned),
        };
        let refuse = || Question::new("refuses", || bail!("asked")).slow();
        assert!(
            ask(
                &arguments(None),
                "value",
                vec![Question::new("one", || Ok(1.0)), refuse()]
            )
            .is_ok()
        );
        assert!(ask(&arguments(Some("refuses")), "value", vec![refuse()]).is_err());
        assert!(ask(&arguments(Some("other")), "value", vec![refuse()]).is_err());
        let count = std::cell::Cell::new(0.0);
        let changing = Question::new("changing", move || {
            count.set(count.get() + 1.0);
            Ok(count.get())
        });
        let error = ask(&arguments(None), "value", vec![changing]).unwrap_err();
        assert_eq!(error.to_string(), "changing: 1 at first, 2 later");
    }
}
