//! The number of tokens that are drafted before they are checked.

/// Max number of drafts per text between two checks.
const MOST: usize = 12;
/// Steps without a draft after which one is tried again.
const PATIENCE: usize = 32;
/// Drafts over which the share of right ones is averaged.
const MEMORY: f64 = 24.0;

/// Time of a draft of one token per text, in units of one exact pass with one row: a reading of a quarter of the bytes.
const DRAFT: f64 = 0.26;
/// Time that each further row adds to an exact pass or to a draft.
const ROW: f64 = 0.035;

/// Learns how often drafts are right, and says how many pay.
#[derive(Debug)]
pub(super) struct Pace {
    /// Estimated probability that a draft is right.
    right: f64,
    /// Steps since the last draft.
    idle: usize,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { right: 0.9, idle: 0 }
    }

    /// Takes note of one draft that was checked.
    pub(super) fn learn(&mut self, right: bool) {
        self.right += (f64::from(u8::from(right)) - self.right) / MEMORY;
    }

    /// Number of drafts per text, for texts that are made together, at which most tokens per time are expected.
    pub(super) fn drafts(&mut self, texts: usize) -> usize {
        let rate = |drafts: usize| {
            // The tokens before the first wrong draft, and the one that the check gives in its place.
            let tokens: f64 = (0..=drafts).map(|draft| self.right.powi(draft as i32)).sum();
            let rows = |count: usize| ROW * (count - 1) as f64;
            tokens / (1.0 + rows(texts * (drafts + 1)) + drafts as f64 * (DRAFT + rows(texts)))
        };
        let best = (1..=MOST).fold(0, |best, drafts| match rate(drafts) > rate(best) {
            true => drafts,
            false => best,
        });
        self.idle = if best == 0 { self.idle + 1 } else { 0 };
        if self.idle > PATIENCE {
            self.idle = 0;
            return 1;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(right: bool, count: usize) -> Pace {
        let mut pace = Pace::new();
        (0..count).for_each(|_| pace.learn(right));
        pace
    }

    #[test]
    fn right_drafts_are_followed_by_more_and_wrong_ones_by_none() {
        let first = Pace::new().drafts(1);
        assert!((1..MOST).contains(&first));
        assert!(after(true, 200).drafts(1) > first);
        assert_eq!(after(false, 200).drafts(1), 0);
        assert!(Pace::new().drafts(16) < first, "rows cost more than they bring");
    }

    #[test]
    fn a_text_that_could_not_be_drafted_is_tried_again() {
        let mut pace = after(false, 200);
        let tried = (0..4 * PATIENCE).filter(|_| pace.drafts(1) > 0).count();
        assert_eq!(tried, 3);
        let mut pace = after(false, 200);
        for _ in 0..3_000 {
            if pace.drafts(1) > 0 {
                pace.learn(true);
            }
        }
        assert!(pace.drafts(1) > 1, "a text that has become easy is drafted again");
    }
}
