//! The page: the result first, then privacy, pictures, head words and the configuration.

use super::audits::Audits;
use std::fmt::Write;

use super::RunData;
use super::audits;
use super::pictures::Picture;
use super::story::Story;
use super::summary::{duration, summary, tokens_of};
use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_present::PALETTE;
use undertone_present::numbers::{grouped, share, upper_bound};
use undertone_run_directory::metrics::HeadWords;
use undertone_run_directory::privacy_page;

const STYLE: &str = include_str!("style.css");

pub(super) fn page(run: &RunData, audits: &Audits, pictures: &[Picture]) -> String {
    let name = escaped(&run.start.run);
    let body = [
        header(run),
        story(run),
        privacy(run),
        audits::section(run, audits),
        tiles(run),
        figures(pictures),
        head_words(run),
        facts(run),
        configuration(run),
    ]
    .concat();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{name} - Undertone run report</title>\n\
         <style>\n{PALETTE}{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <footer>Made by Undertone from the files of the run directory. This page holds exact statistics of cohorts: it \
         is for the operator alone, and no part of the private release.</footer>\n</body>\n</html>\n"
    )
}

/// Text as HTML content or attribute value.
pub(super) fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&#39;"),
            other => result.push(other),
        }
    }
    result
}

fn header(run: &RunData) -> String {
    let start = &run.start;
    let (done, all) = (run.rounds.len() as u64, start.rounds);
    let state = if done < all {
        format!("{} of {} rounds", grouped(done), grouped(all))
    } else {
        format!("finished, {} rounds", grouped(all))
    };
    format!(
        "<header>\n<p class=\"kicker\">Undertone run report</p>\n<h1>{}</h1>\n<p class=\"lead\">{} with {}, trained \
         on {} <span class=\"state\">{state}</span></p>\n</header>\n",
        escaped(&start.run),
        escaped(&start.model),
        start.counts(),
        match start.train_tokens {
            _ if run.is_of_session() => format!(
                "updates that another program computed for a population of {} users",
                grouped(start.train_users as u64)
            ),
            Some(tokens) => format!(
                "{} users and {} tokens",
                grouped(start.train_users as u64),
                grouped(tokens)
            ),
            None => format!(
                "devices of a population of at most {} users",
                grouped(start.train_users as u64)
            ),
        },
    )
}

/// The rows of the run, which come before everything else.
fn story(run: &RunData) -> String {
    let Some(story) = Story::of(run) else {
        return String::new();
    };
    let row = |[name, others @ ..]: [String; 4]| {
        let others = others.map(|text| format!("<td>{}</td>", escaped(&text)));
        format!(
            "<tr><th scope=\"row\">{}</th>{}</tr>\n",
            escaped(&name),
            others.concat()
        )
    };
    let rows: String = story.rows().into_iter().map(row).collect();
    let titles = Story::COLUMNS
        .map(|title| format!("<th scope=\"col\">{title}</th>"))
        .concat();
    let sentences = story.sentences().into_iter();
    let sentences: String = sentences
        .map(|text| format!("<p>{}</p>\n", escaped(text)))
        .collect();
    format!(
        "<section class=\"story\">\n<h2>Result on {} users</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Result\">\
         <table class=\"facts\">\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n{sentences}</section>\n",
        escaped(&story.partition)
    )
}

fn privacy(run: &RunData) -> String {
    let mut html = String::from("<section class=\"privacy\">\n<h2>Privacy</h2>\n");
    match &run.privacy {
        Some(privacy) => {
            html += &warnings(&privacy.warnings);
            if privacy.private {
                html += &guarantees(privacy);
            } else if privacy.warnings.is_empty() {
                html += &warnings(&["This run gives no guarantee.".to_owned()]);
            }
            html += &statements(&privacy.statements);
        }
        None => match run.rounds.last().and_then(|round| round.epsilon) {
            Some(epsilon) => {
                let _ = writeln!(
                    html,
                    "<p>The run has not written its guarantee yet. Epsilon after {} rounds: <strong>{}</strong>.</p>",
                    grouped(run.rounds.len() as u64),
                    upper_bound(epsilon)
                );
            }
            None => html += "<p>The run has not written its guarantee yet.</p>\n",
        },
    }
    html + "</section>\n"
}

fn warnings(warnings: &[String]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let items: String = warnings
        .iter()
        .map(|warning| format!("<li>{}</li>\n", escaped(warning)))
        .collect();
    let title = if warnings.len() == 1 {
        "Warning"
    } else {
        "Warnings"
    };
    format!("<div class=\"warnings\" role=\"note\">\n<h3>{title}</h3>\n<ul>\n{items}</ul>\n</div>\n")
}

fn guarantees(privacy: &PrivacyReport) -> String {
    let class = |name: &str| match name {
        "Observed" => "main",
        "Estimate" => "estimate",
        _ => "",
    };
    let cards: String = privacy_page::named(privacy)
        .map(|(name, how, record)| card(name, how, record, class(name)))
        .collect();
    format!("<div class=\"guarantees\">\n{cards}</div>\n")
}

fn card(title: &str, how: &str, record: &GuaranteeRecord, class: &str) -> String {
    let rows: String = privacy_page::facts(record)
        .iter()
        .map(|(name, value)| (*name, escaped(value)))
        .chain(record.points.iter().map(|point| {
            let epsilon = format!("&epsilon; = {}", upper_bound(point.epsilon));
            (
                "At other deltas",
                format!("{epsilon} at &delta; = {}", upper_bound(point.delta)),
            )
        }))
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n"))
        .collect();
    format!(
        "<article class=\"guarantee {class}\">\n<h3>{title}</h3>\n<p class=\"how\">{how}</p>\n\
         <p class=\"epsilon\"><span>&epsilon; =</span> {} <span>&delta; = {}</span></p>\n<dl>\n{rows}</dl>\n</article>\n",
        upper_bound(record.epsilon),
        upper_bound(record.delta),
    )
}

fn statements(statements: &[String]) -> String {
    if statements.is_empty() {
        return String::new();
    }
    let item = |statement: &String| match statement.split_once(": ") {
        Some((topic, rest)) => format!("<dt>{}</dt><dd>{}</dd>\n", escaped(topic), escaped(rest)),
        None => format!("<dt></dt><dd>{}</dd>\n", escaped(statement)),
    };
    format!(
        "<dl class=\"statements\">\n{}</dl>\n",
        statements.iter().map(item).collect::<String>()
    )
}

fn tiles(run: &RunData) -> String {
    let mut tiles = Vec::new();
    if let Some(evaluation) = run.evaluations.last() {
        let metrics = &evaluation.metrics;
        let top3 = share(metrics.top3, metrics.top3_standard_error);
        tiles.push((top3, format!("top-3 accuracy on {}", evaluation.split)));
    }
    if !run.rounds.is_empty() && !run.is_of_session() {
        let seconds: f64 = run.rounds.iter().map(|round| round.seconds).sum();
        tiles.push((duration(seconds), "training time".to_owned()));
        if let Some(tokens) = tokens_of(run)
            && seconds > 0.0
        {
            tiles.push((
                grouped((tokens as f64 / seconds).round() as u64),
                "tokens per second".to_owned(),
            ));
        }
    }
    let tile = |(value, name): &(String, String)| {
        format!(
            "<div class=\"tile\"><strong>{}</strong><span>{}</span></div>\n",
            escaped(value),
            escaped(name)
        )
    };
    if tiles.is_empty() {
        String::new()
    } else {
        format!(
            "<section class=\"tiles\">\n{}</section>\n",
            tiles.iter().map(tile).collect::<String>()
        )
    }
}

fn figures(pictures: &[Picture]) -> String {
    if pictures.is_empty() {
        return "<section><h2>Rounds</h2>\n<p>No round has finished yet.</p></section>\n".to_owned();
    }
    let figure = |picture: &Picture| {
        let caption = escaped(&picture.caption);
        // The picture is described for those who cannot see it; its own size gives way to the column's.
        let svg = picture.svg.replacen(
            "<svg ",
            &format!("<svg role=\"img\" aria-label=\"{caption}\" "),
            1,
        );
        format!(
            "<figure id=\"{}\">\n{svg}\n<figcaption>{caption}</figcaption>\n</figure>\n",
            picture.name
        )
    };
    format!(
        "<section>\n<h2>Rounds</h2>\n<div class=\"figures\">\n{}</div>\n</section>\n",
        pictures.iter().map(figure).collect::<String>()
    )
}

fn head_words(run: &RunData) -> String {
    let Some(evaluation) = run
        .evaluations
        .iter()
        .rev()
        .find(|evaluation| evaluation.metrics.head_words.is_some())
    else {
        return String::new();
    };
    let Some(HeadWords { top10, top50, top100 }) = &evaluation.metrics.head_words else {
        return String::new();
    };
    let row = |(frequent, counts): (u32, &Vec<u64>)| {
        let total = counts.iter().copied().fold(0, u64::saturating_add).max(1) as f64;
        let cells: String = counts
            .iter()
            .map(|&count| {
                let fraction = 100.0 * count as f64 / total;
                format!(
                    "<td style=\"--share:{:.0}%\">{fraction:.1}</td>",
                    fraction.sqrt() * 5.0
                )
            })
            .collect();
        format!("<tr><th scope=\"row\">{frequent} most frequent</th>{cells}</tr>\n")
    };
    let rows: String = [(10, top10), (50, top50), (100, top100)]
        .into_iter()
        .map(row)
        .collect();
    let columns: String = (0..=10)
        .map(|count| format!("<th scope=\"col\">{count}</th>"))
        .collect();
    format!(
        "<section>\n<h2>Head words</h2>\n<p>How many of the ten likeliest predictions are among the most frequent words, in \
         percent of the targets of {} after round {}. A model that has learnt little predicts frequent words only: its \
         mass sits on the right.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Head words\"><table class=\"heads\">\n<thead><tr><td></td>{columns}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n</section>\n",
        escaped(&evaluation.split),
        grouped(evaluation.round),
    )
}

fn facts(run: &RunData) -> String {
    let row = |(name, value): (&str, String)| {
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n",
            escaped(name),
            escaped(&value)
        )
    };
    let rows: String = summary(run).into_iter().map(row).collect();
    format!(
        "<section>\n<h2>Summary</h2>\n<table class=\"facts\">\n<tbody>\n{rows}</tbody>\n</table>\n</section>\n"
    )
}

fn configuration(run: &RunData) -> String {
    match &run.config {
        Some(config) => format!(
            "<section>\n<h2>Configuration</h2>\n<pre tabindex=\"0\"><code>{}</code></pre>\n</section>\n",
            escaped(config.trim_end())
        ),
        None => String::new(),
    }
}
