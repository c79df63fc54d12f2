//! The section of the page about audits: what an attack has shown of the claim, and what was not looked at.

use std::fmt::Write;

use undertone_audit::attack::{self, Attack, Attacks, Membership};
use undertone_audit::record::{Audit, Bound};
use undertone_present::numbers::{grouped, number, upper_bound};

use super::page::escaped;
use super::{Result, RunData};

/// The audits that somebody has recorded beside a run.
pub(super) struct Audits {
    record: Option<Audit>,
    /// PRIVACY: exact statistics of users.
    attacks: Option<Attacks>,
}

impl Audits {
    /// The audits in the directory of a run.
    pub(super) fn beside(run: &RunData) -> Result<Self> {
        Ok(Self {
            record: undertone_audit::read(&run.directory)?,
            attacks: attack::read(&run.directory)?,
        })
    }
}

/// The section of a private run; nothing for one that claims nothing.
pub(super) fn section(run: &RunData, audits: &Audits) -> String {
    let private = run.privacy.as_ref().is_some_and(|privacy| privacy.private);
    if !private {
        return String::new();
    }
    let attacks = audits.attacks.as_ref().map_or(&[][..], |all| &all.attacks);
    let body = match &audits.record {
        None if !attacks.is_empty() => String::new(),
        None => format!(
            "<p>Nobody has audited this run. This command replays its sums beside those of its neighbours:</p>\n\
             <pre tabindex=\"0\">undertone audit replay {} --record</pre>\n",
            escaped(&run.directory.display().to_string())
        ),
        Some(audit) => of(audit),
    };
    let attacks = of_attacks(attacks);
    format!("<section class=\"audits\">\n<h2>Audits</h2>\n{body}{attacks}</section>\n")
}

/// The attacks on the texts of people. PRIVACY: the page is for those who run the training, as it holds other exact statistics.
fn of_attacks(attacks: &[Attack]) -> String {
    if attacks.is_empty() {
        return String::new();
    }
    let mut html = "<h3>Attacks on the texts of people</h3>\n\
                    <p>These figures are exact statistics of users and no part of a release. Intervals have 95 % confidence.</p>\n\
                    <table>\n<tr><th>attack</th><th>area under the curve</th><th>limit of the claim</th><th>members found</th>\
                    <th>limit of the claim</th><th>positive control</th></tr>\n"
        .to_owned();
    let area = |found: &Membership| {
        let (low, high) = found.auc_interval;
        format!("{} ({} to {})", number(found.auc), number(low), number(high))
    };
    for attack in attacks {
        let found = &attack.attack;
        let (low, high) = found.found_interval;
        let limits = attack.limit.as_ref().map_or_else(
            || ("none".to_owned(), "none".to_owned()),
            |limit| {
                let both =
                    |any: f64, gaussian: f64| format!("{}, or {} if Gaussian", number(any), number(gaussian));
                (
                    both(limit.auc, limit.auc_gaussian),
                    format!(
                        "{} at {} false alarms",
                        both(limit.found, limit.found_gaussian),
                        number(limit.false_alarms)
                    ),
                )
            },
        );
        let control = attack
            .control
            .as_ref()
            .map_or("none was made".to_owned(), |(rounds, control)| {
                format!("{} after {} rounds", area(control), grouped(*rounds))
            });
        let _ = writeln!(
            html,
            "<tr><td>{}, {} against {} people</td><td>{}</td><td>{}</td><td>{} ({} to {}) at {} false alarms</td><td>{}</td><td>{}</td></tr>",
            escaped(&attack.kind),
            grouped(found.members as u64),
            grouped(found.others as u64),
            area(found),
            limits.0,
            number(found.found),
            number(low),
            number(high),
            number(found.false_alarms),
            limits.1,
            control,
        );
    }
    html += "</table>\n<ul>\n";
    let mut shown: Vec<&str> = Vec::new();
    for statement in attacks.iter().flat_map(|attack| &attack.statements) {
        if !shown.contains(&statement.as_str()) {
            let _ = writeln!(html, "<li>{}</li>", escaped(statement));
            shown.push(statement);
        }
    }
    html + "</ul>\n"
}

fn of(audit: &Audit) -> String {
    let mut html = format!(
        "<p>A lower bound below the claim never confirms the claim. Verdict: <strong>{}</strong>.</p>\n",
        escaped(&audit.verdict)
    );
    html += &tiles(audit);
    html += &bars(audit);
    html += &list(&audit.statements);
    for other in &audit.others {
        let _ = writeln!(
            html,
            "<p>Of an earlier audit that stands beside these figures: <strong>{}</strong>.</p>",
            escaped(&other.verdict)
        );
        html += &list(&other.statements);
    }
    html
}

fn list(statements: &[String]) -> String {
    let items = statements
        .iter()
        .map(|statement| format!("<li>{}</li>\n", escaped(statement)));
    format!("<ul>\n{}</ul>\n", items.collect::<String>())
}

/// A tile per kind of audit, from the newest one.
fn tiles(audit: &Audit) -> String {
    let none = || ("none".to_owned(), "was made".to_owned());
    let replay = audit.all().find_map(|audit| audit.replay.as_ref());
    let replay = replay.map_or_else(none, |replay| {
        let asked = replay.checks.iter().filter(|check| check.compared > 0);
        let failed: Vec<&str> = (replay.checks.iter())
            .filter(|check| check.failed > 0)
            .map(|check| check.name.as_str())
            .collect();
        let found = match failed.is_empty() {
            true => format!(
                "{} of {} checks apply, and hold",
                asked.count(),
                replay.checks.len()
            ),
            false => format!("{} contradicted", failed.join(", ")),
        };
        (
            format!("{} pairs", grouped(replay.pairs)),
            format!("of user and round, of {}: {found}", replay.tested),
        )
    });
    let noise = audit.all().find_map(|audit| audit.noise.as_ref());
    let noise = noise.map_or_else(none, |noise| {
        let smallest = number(noise.smallest_p_holm);
        (
            grouped(noise.values as u64),
            format!("values of pure noise, smallest corrected p-value {smallest}"),
        )
    });
    let bounds = || audit.all().flat_map(|audit| &audit.canaries);
    let canaries = bounds().find(|bound| bound.headline);
    let canaries = canaries.map_or_else(none, |bound| {
        (
            grouped(bound.canaries),
            format!(
                "canaries at the level {}: epsilon at least {} with {} % confidence",
                bound.level,
                number(bound.epsilon_lower),
                number(100.0 * bound.confidence)
            ),
        )
    });
    let exposure = audit.exposure.as_ref().map_or_else(none, |exposure| {
        let limit = exposure.limit_95.map_or(String::new(), |limit| {
            format!("; the limit of the claim is {}", number(limit))
        });
        (
            format!("{} bits", number(exposure.attack.median)),
            format!(
                "of 20: the median exposure of {} secrets of invented users in a copy of the run, {} at most{limit}",
                exposure.secrets,
                number(exposure.attack.highest)
            ),
        )
    });
    let tile = |(title, (figure, text)): (&str, (String, String))| {
        format!(
            "<div class=\"tile\"><span>{title}</span><strong>{}</strong><span>{}</span></div>\n",
            escaped(&figure),
            escaped(&text)
        )
    };
    let all = [
        ("Replay", replay),
        ("Noise", noise),
        ("Canaries", canaries),
        ("Attacks on the model", exposure),
    ];
    format!("<div class=\"tiles\">\n{}</div>\n", all.map(tile).concat())
}

/// Width of the drawing, and height of one bar.
const WIDTH: f64 = 640.0;
const ROW: f64 = 44.0;

/// The claim as a line, and each bound as a bar with a tick where as many right guesses as possible would have led.
fn bars(audit: &Audit) -> String {
    let of_bounds = audit.all().find(|audit| !audit.canaries.is_empty());
    let Some(claim) = of_bounds.and_then(|audit| audit.claim.as_ref()) else {
        return String::new();
    };
    let bounds: Vec<&Bound> = audit.all().flat_map(|audit| &audit.canaries).collect();
    let shown = |bound: &&Bound| bound.epsilon_lower.max(bound.most_that_could_show.unwrap_or(0.0));
    let largest = bounds.iter().map(shown).fold(claim.epsilon, f64::max);
    if !(largest > 0.0 && largest.is_finite()) {
        return String::new();
    }
    let x = |epsilon: f64| 0.95 * WIDTH * epsilon / largest;
    let height = ROW * bounds.len() as f64 + 30.0;
    let mut svg = format!(
        "<figure>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Lower bounds below the claim\">\n"
    );
    let mut row = 24.0;
    for bound in bounds {
        let confidence = number(100.0 * bound.confidence);
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{}\" font-size=\"13\" fill=\"#1C2531\">{}, {}, level {}: at least {} with {confidence} % confidence; assumption: {}</text>\n\
             <rect x=\"0\" y=\"{}\" width=\"{:.1}\" height=\"12\" fill=\"#2F5D8A\"/>",
            row + 12.0,
            escaped(&bound.estimator),
            bound.seen(),
            escaped(&bound.level),
            number(bound.epsilon_lower),
            escaped(&bound.assumption),
            row + 18.0,
            x(bound.epsilon_lower.max(0.0)),
        );
        if let Some(most) = bound.most_that_could_show {
            let _ = writeln!(
                svg,
                "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#6B7583\"/>",
                x(most),
                row + 15.0,
                row + 33.0
            );
        }
        row += ROW;
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"18\" y2=\"{height}\" stroke=\"#C26A2D\"/>\n\
         <text x=\"{0:.1}\" y=\"12\" text-anchor=\"end\" font-size=\"13\" fill=\"#C26A2D\">claim {1}</text>\n</svg>",
        x(claim.epsilon),
        upper_bound(claim.epsilon),
    );
    svg + "<figcaption>Lower bounds as bars. A tick marks the largest bound that so many canaries could have shown, or any number of them in \
           the final model without guesses. The line is the \
           claim, which rests on proof.</figcaption>\n</figure>\n"
}
