//! The run that a mechanism is for: its rounds, and how often and how far apart one user takes part.

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use undertone_accounting::participation::{Gap, Participation, RoundsBetween, Spacing};

/// Max number of rounds: strategies keep one number per round.
const MAX_ROUNDS: usize = 1 << 24;

/// Options of a run.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Run")]
pub(super) struct RunArgs {
    /// Set the number of rounds of the run.
    #[arg(long)]
    rounds: Option<usize>,
    /// Set the min distance of two participations of a user in rounds: the rounds between them plus 1.
    ///
    /// Rounds i and j have the distance j - i. Tables of production runs print the rounds strictly between (MinS): for that
    /// number use --rounds-between.
    #[arg(
        long,
        value_name = "GAP",
        visible_alias = "gap",
        conflicts_with = "rounds_between"
    )]
    min_sep: Option<u64>,
    /// Set the min number of rounds strictly between two participations of a user (MinS in production tables).
    #[arg(long, value_name = "ROUNDS")]
    rounds_between: Option<u64>,
    /// Set the max number of participations per user (default: as many as fit into the rounds).
    #[arg(long, value_name = "TIMES", visible_alias = "max-part")]
    max_participation: Option<u64>,
    /// Assume that participations are exactly the gap apart: all epochs visit the users in one fixed order.
    #[arg(long)]
    fixed_epochs: bool,
}

/// A run with the participations that fit into it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Run {
    pub(super) rounds: usize,
    /// Participation of a user, with no more participations than fit into the run.
    pub(super) participation: Participation,
    /// The note that participations were lowered, where more were asked for than fit.
    pub(super) lowered: Option<String>,
}

impl Run {
    /// The run with no more participations than fit into it.
    pub(super) fn new(rounds: usize, participation: Participation) -> anyhow::Result<Self> {
        ensure!(rounds > 0, "--rounds: expected at least 1, got 0");
        ensure!(
            rounds <= MAX_ROUNDS,
            "--rounds: expected at most {MAX_ROUNDS}, got {rounds}"
        );
        let effective = participation.effective(rounds as u64)?;
        Ok(Self {
            rounds,
            participation: effective.participation,
            // As many as fit is asked for by the largest number.
            lowered: (effective.is_lowered() && effective.requested < u64::MAX)
                .then(|| effective.to_string()),
        })
    }

    /// The schema in words.
    pub(super) fn shown(&self) -> String {
        let participation = &self.participation;
        let max = participation.max_participation();
        if max == 1 {
            return format!("{} rounds, one participation", self.rounds);
        }
        let gap = participation.gap();
        let spacing = match participation.spacing() {
            Spacing::AtLeast => "at least",
            Spacing::Exactly => "exactly",
        };
        format!(
            "{} rounds, {max} participations {spacing} {} rounds apart ({})",
            self.rounds,
            gap.get(),
            gap.rounds_between()
        )
    }
}

impl RunArgs {
    /// The run that the options describe; what they leave open is as in `default`.
    pub(super) fn run(&self, default: Option<&Run>) -> anyhow::Result<Run> {
        let rounds = self
            .rounds
            .or(default.map(|run| run.rounds))
            .context("expected --rounds, the number of rounds")?;
        Run::new(rounds, self.participation(default.map(|run| &run.participation))?)
    }

    /// `true` if a max number of participations was asked for.
    pub(super) fn limits_participation(&self) -> bool {
        self.max_participation.is_some()
    }

    /// The schema, with as many participations as were asked for.
    fn participation(&self, default: Option<&Participation>) -> anyhow::Result<Participation> {
        let gap = match (self.rounds_between, self.min_sep) {
            (Some(rounds), _) => Some(RoundsBetween::new(rounds).gap()),
            (None, Some(rounds)) => Some(Gap::new(rounds).context("--min-sep")?),
            (None, None) => default.map(Participation::gap),
        };
        let max = match (self.max_participation, default) {
            (Some(max), _) => max,
            (None, Some(default))
                if self.rounds.is_none() && self.min_sep.is_none() && self.rounds_between.is_none() =>
            {
                default.max_participation()
            }
            (None, _) => u64::MAX,
        };
        let exactly =
            self.fixed_epochs || default.is_some_and(|default| default.spacing() == Spacing::Exactly);
        let schema = match gap {
            None if max == 1 => return Ok(Participation::single()),
            None if max == 0 => Participation::at_least(Gap::new(1)?, 0),
            None => bail!(
                "expected --min-sep or --rounds-between (how far apart a user's participations are), or --max-participation 1"
            ),
            Some(gap) if exactly => Participation::fixed_epochs(gap, max),
            Some(gap) => Participation::at_least(gap, max),
        };
        schema.context("--max-participation")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parse(line: &str) -> RunArgs {
        let words = ["run"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().run
    }

    fn check(line: &str, shown: &str) {
        let run = parse(line).run(None).unwrap();
        assert_eq!(run.shown(), shown);
    }

    #[test]
    fn every_option_for_the_gap_means_the_same_schema() {
        let both = "2052 rounds, 6 participations at least 342 rounds apart (341 rounds between)";
        check("--rounds 2052 --min-sep 342 --max-participation 6", both);
        check("--rounds 2052 --gap 342 --max-part 6", both);
        check("--rounds 2052 --rounds-between 341", both);
        check("--rounds 9 --max-participation 1", "9 rounds, one participation");
        check("--rounds 9 --min-sep 9", "9 rounds, one participation");
        check(
            "--rounds 9 --min-sep 4 --fixed-epochs",
            "9 rounds, 3 participations exactly 4 rounds apart (3 rounds between)",
        );
    }

    #[test]
    fn what_is_lowered_is_said() {
        let run = parse("--rounds 100 --min-sep 40 --max-participation 9")
            .run(None)
            .unwrap();
        let said = run.lowered.unwrap();
        assert!(
            said.starts_with("max participation lowered from 9 to 3: no more fit"),
            "{said}"
        );
        let fits = parse("--rounds 100 --min-sep 40").run(None).unwrap();
        assert_eq!((fits.lowered, fits.participation.max_participation()), (None, 3));
    }

    #[test]
    fn defaults_fill_what_is_left_open() {
        let default = Run::new(2000, Participation::at_least(Gap::new(400).unwrap(), 4).unwrap()).unwrap();
        let with = |line: &str| parse(line).run(Some(&default)).unwrap().shown();
        assert_eq!(with(""), default.shown());
        assert!(with("--rounds 4000").starts_with("4000 rounds, 10 participations at least 400"));
        assert!(with("--min-sep 200 --max-participation 3").contains("3 participations at least 200"));
    }
}
