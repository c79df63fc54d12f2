//! `undertone init [FILE]`: a run file that is known to work, from public and declared facts.

mod ask;
mod choice;
mod corpus;
mod example;
mod start;
mod text;

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use undertone_present::numbers::{grouped, number};

use crate::output::{Output, facts};
use ask::{Begin, Questions};
use choice::Choice;
use corpus::{Corpus, CorpusArgs};
use start::Start;

/// Maximum epsilon of a guarantee: a larger one says close to nothing about any one person.
const MAX_EPSILON: f64 = 20.0;

/// Arguments of `undertone init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Write the run file to this path [default: run.toml, or NAME.toml with --example].
    file: Option<PathBuf>,
    /// Write a run file on text that a documented process draws, which needs no text of yours [default name: quickstart].
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        default_missing_value = "quickstart",
        conflicts_with_all = ["corpus", "user_column", "text_column", "users", "epsilon", "delta", "minutes", "public", "start", "words"]
    )]
    example: Option<String>,
    #[command(flatten)]
    corpus: CorpusArgs,
    /// State the number of users of the corpus, which `undertone data stats` counts. It must be public: the run treats it so.
    #[arg(long, value_name = "NUMBER", help_heading = "Facts")]
    users: Option<u64>,
    /// Set the epsilon of the guarantee (for example 4).
    #[arg(long, help_heading = "Facts")]
    epsilon: Option<f64>,
    /// Set the delta of the guarantee [default: the power of ten at or below 1 / (10 users)].
    #[arg(long, help_heading = "Facts")]
    delta: Option<f64>,
    /// Set the time at hand for the private training on this machine, in minutes [default: 5].
    #[arg(long, help_heading = "Facts")]
    minutes: Option<f64>,
    /// Make the public start from this public text: a .jsonl, .csv or .parquet file with the columns user_id and text.
    ///
    /// The text must have the language of the users, and better their kind of text: a start of another language is worse than none, and
    /// the command cannot see it. The command writes start.toml beside the run file, for `undertone pretrain`. `undertone data prose`
    /// makes such a text.
    #[arg(long, value_name = "FILE", help_heading = "Public start")]
    public: Option<String>,
    /// Start from this run of `undertone pretrain` instead.
    #[arg(
        long,
        value_name = "RUN",
        conflicts_with = "public",
        help_heading = "Public start"
    )]
    start: Option<PathBuf>,
    /// Start from random parameters over this public list of words, one per line, where no public text is like that of the users.
    ///
    /// The list must be public, such as the commonest words of the language. Each word adds noised parameters: 1000 are many.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["public", "start"],
        help_heading = "Public start"
    )]
    words: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long)]
    force: bool,
}

/// The public and declared facts: all that a run file is chosen from.
#[derive(Debug, Clone, Serialize)]
struct Facts {
    name: String,
    corpus: Corpus,
    users: u64,
    epsilon: f64,
    delta: f64,
    minutes: f64,
    #[serde(skip)]
    start: Start,
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    file: &'a Path,
    /// The file for `undertone pretrain`, where the start is still to be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_file: Option<&'a Path>,
    #[serde(flatten)]
    facts: &'a Facts,
    choice: &'a Choice,
    max_examples: u64,
    /// The commands to give next, in order.
    next: Vec<String>,
}

/// Asks for what is missing, chooses, and writes the files.
pub(crate) fn run(args: &InitArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(name) = &args.example {
        return example::write(name, args.file.clone(), args.force, output);
    }
    let file = args.file.as_deref().unwrap_or(Path::new("run.toml"));
    let stdin = std::io::stdin();
    let mut lines = stdin.lock();
    let terminal = (stdin.is_terminal() && output.is_read()).then_some(&mut lines as &mut dyn BufRead);
    let mut questions = Questions::new(terminal, output);
    let corpus = args.corpus.corpus(&mut questions)?;
    let users = questions.number(
        "--users",
        args.users,
        "How many users does it have (a public number; `undertone data stats` counts them)?",
        None,
        &|users| check_users(*users),
    )?;
    let epsilon = questions.number(
        "--epsilon",
        args.epsilon,
        "Which epsilon shall the guarantee have?",
        Some(4.0),
        &|epsilon| check_epsilon(*epsilon),
    )?;
    let minutes = questions.optional(
        args.minutes,
        "How many minutes may the training take?",
        5.0,
        &|minutes| check_minutes(*minutes),
    )?;
    let begin = match (&args.public, &args.start, &args.words) {
        (Some(public), ..) => Begin::Public(public.clone()),
        (_, Some(run), _) => Begin::Start(run.clone()),
        (.., Some(list)) => Begin::Words(list.clone()),
        (None, None, None) => questions.begin()?,
    };
    questions.finish()?;
    let delta = args.delta.unwrap_or_else(|| default_delta(users));
    check_delta(users, delta)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let start_file = matches!(begin, Begin::Public(_)).then(|| file.with_file_name("start.toml"));
    for file in start_file.iter().map(PathBuf::as_path).chain([file]) {
        ensure!(
            args.force || !file.exists(),
            "{} already exists; give --force to replace it",
            file.display()
        );
    }
    ensure!(
        corpus.path.starts_with('$') || Path::new(&corpus.path).exists(),
        "the corpus {} does not exist",
        corpus.path
    );
    corpus.check()?;
    let start = match &begin {
        Begin::Public(public) => Start::to_make(public, folder)?,
        Begin::Start(run) => Start::made(run, folder)?,
        Begin::Words(list) => Start::words(list, folder)?,
    };
    let path = placed_text(&corpus.path, folder)?;
    let facts = Facts {
        name: name_of(file)?,
        corpus: Corpus { path, ..corpus },
        users,
        epsilon,
        delta,
        minutes,
        start,
    };
    let spinner = output.spinner("planning");
    let choice = choice::choose(&facts)?;
    let hopeless = choice::hopeless(&facts, &choice);
    spinner.finish_and_clear();
    if let Some(sentence) = hopeless {
        bail!("{sentence}");
    }
    if let (Some(file), Some(text)) = (&start_file, &facts.start.pretraining) {
        write(file, text)?;
    }
    write(file, &text::run_file(&facts, &choice))?;
    let pretrain = start_file
        .iter()
        .map(|file| format!("undertone pretrain {}", file.display()));
    let train = format!("undertone train {}", file.display());
    let document = Document {
        file,
        start_file: start_file.as_deref(),
        facts: &facts,
        choice: &choice,
        max_examples: choice::MAX_EXAMPLES,
        next: pretrain
            .chain([train, format!("undertone predict runs/{}", facts.name)])
            .collect(),
    };
    output.show(&document, || table(&document))
}

/// The power of ten at or below a tenth of one over the number of users.
fn default_delta(users: u64) -> f64 {
    let digits = (10 * u128::from(users.max(1)) - 1).to_string().len();
    format!("1e-{digits}").parse().unwrap_or(f64::MIN_POSITIVE)
}

fn check_users(users: u64) -> anyhow::Result<()> {
    ensure!(
        users >= 10,
        "--users: expected at least 10, because a fifth of them are held out, got {users}"
    );
    Ok(())
}

fn check_epsilon(epsilon: f64) -> anyhow::Result<()> {
    ensure!(
        epsilon > 0.0 && epsilon <= MAX_EPSILON,
        "--epsilon: expected a number above 0 and at most {MAX_EPSILON}, because a larger one says close to nothing about any one \
         person, got {epsilon}"
    );
    Ok(())
}

fn check_delta(users: u64, delta: f64) -> anyhow::Result<()> {
    let max = 1.0 / users as f64;
    ensure!(
        delta > 0.0 && delta < max,
        "--delta: expected a number above 0 and below 1 / users = {max:.2e}, because a guarantee with a larger one allows to publish \
         the text of one person, got {delta}"
    );
    Ok(())
}

fn check_minutes(minutes: f64) -> anyhow::Result<()> {
    ensure!(
        (0.1..=10_000.0).contains(&minutes),
        "--minutes: expected a number from 0.1 to 10000, got {minutes}"
    );
    Ok(())
}

/// The name of the run: that of its file.
fn name_of(file: &Path) -> anyhow::Result<String> {
    let name = file.file_stem().and_then(|stem| stem.to_str());
    let name = name.filter(|name| !name.starts_with('.') && *name != "start");
    name.map(str::to_owned).with_context(|| {
        format!(
            "expected a file such as run.toml, whose name becomes that of the run (start is the public start), got {}",
            file.display()
        )
    })
}

/// A path of this folder, as a run file in `folder` names it.
fn placed(path: &str, folder: Option<&Path>) -> anyhow::Result<String> {
    if folder.is_none() || path.starts_with('$') {
        return Ok(path.to_owned());
    }
    let absolute = std::path::absolute(path).with_context(|| format!("cannot find {path}"))?;
    Ok(absolute.to_string_lossy().into_owned())
}

/// A path under `[data]`, where a dollar sign begins the name of an environment variable. In a path that does not begin with one,
/// the sign is a letter.
fn placed_text(path: &str, folder: Option<&Path>) -> anyhow::Result<String> {
    let placed = placed(path, folder)?;
    Ok(if path.starts_with('$') {
        placed
    } else {
        placed.replace('$', "$$")
    })
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn table(document: &Document<'_>) -> String {
    let Choice {
        rounds,
        users_per_round,
        noise_multiplier,
        parameters,
        reach,
        seconds,
        expected,
        ..
    } = document.choice;
    let mut rows = vec![("run file", document.file.display().to_string())];
    rows.extend(
        document
            .start_file
            .map(|file| ("public start", format!("{}, still to be trained", file.display()))),
    );
    rows.extend([
        (
            "guarantee",
            format!(
                "epsilon {}, delta {:e}, for each user",
                document.facts.epsilon, document.facts.delta
            ),
        ),
        (
            "rounds",
            format!(
                "{rounds} with {} users each, about {} minutes",
                grouped(users_per_round.round() as u64),
                number(seconds / 60.0)
            ),
        ),
        ("noise multiplier", number(*noise_multiplier)),
        ("parameters", grouped(*parameters)),
        (
            "reach",
            format!(
                "{}: how far training can move the parameters, over the noise in them",
                number(*reach)
            ),
        ),
        ("accuracy to expect", expected.to_string()),
    ]);
    let next = document.next.iter().enumerate();
    rows.extend(next.map(|(index, command)| (if index == 0 { "next" } else { "" }, command.clone())));
    facts(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_is_a_power_of_ten_at_or_below_a_tenth_of_one_over_the_users() {
        for (users, delta) in [
            (10, 1e-2),
            (11, 1e-3),
            (1_991, 1e-5),
            (10_000, 1e-5),
            (10_001, 1e-6),
        ] {
            assert_eq!(default_delta(users), delta, "{users}");
        }
        assert!(default_delta(u64::MAX) > 0.0);
    }

    #[test]
    fn facts_outside_their_ranges_are_named() {
        check_users(10).unwrap();
        check_epsilon(20.0).unwrap();
        check_delta(1000, 1e-5).unwrap();
        check_minutes(0.1).unwrap();
        for (bad, flag) in [
            (check_users(3), "--users"),
            (check_epsilon(0.0), "--epsilon"),
            (check_epsilon(f64::NAN), "--epsilon"),
            (check_epsilon(50.0), "--epsilon"),
            (check_delta(1000, 0.001), "--delta"),
            (check_minutes(f64::INFINITY), "--minutes"),
        ] {
            let error = bad.unwrap_err().to_string();
            assert!(error.starts_with(flag), "{error}");
        }
    }

    #[test]
    fn a_run_file_names_its_run() {
        assert_eq!(name_of(Path::new("a/posts.toml")).unwrap(), "posts");
        assert!(name_of(Path::new("start.toml")).is_err());
    }
}
