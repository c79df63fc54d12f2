//! The privacy cost of the initial model to the users of the run.

use undertone_accounting::Adjacency;

use crate::trainings::{Training, unknown_source};
use undertone_present::numbers::epsilon_delta;

/// The trainings behind the initial model, as far as they concern the users of the run.
///
/// # Guarantee
/// PRIVACY: two trainings on the same users are together (epsilon + epsilon', delta + delta')-DP by basic composition, where
/// both guarantees hold for the same relation. Private trainings of unknown source count as trainings on the same users. Trainings on
/// other sources are not counted: it is not known here if they read text of the same users, and a warning says so.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StartCost {
    epsilon: f64,
    delta: f64,
    /// Number of trainings on the source of the run, or on an unknown one, whose guarantee is known.
    counted: usize,
    /// `true` if the noise of one of these trainings came from a known seed.
    seeded: bool,
    /// The reason for which no guarantee of the run together with its initial model can be stated.
    uncountable: Option<String>,
    warnings: Vec<String>,
    /// The sentence of `privacy.json` about the initial model, beside the data accesses that it covers.
    statement: String,
}

impl StartCost {
    /// The cost for a run on `source` whose initial model had these trainings.
    pub(super) fn new(trainings: &[Training], source: &str, adjacency: Adjacency) -> Self {
        let mut cost = Self {
            statement: statement(trainings, source).to_owned(),
            ..Self::default()
        };
        for training in trainings {
            cost.add(training, source, adjacency);
        }
        if cost.counted > 0 && cost.uncountable.is_none() {
            let start = epsilon_delta(cost.epsilon, cost.delta);
            cost.warnings.push(format!(
                "The model that the run started from was trained on the same source with a guarantee of its own, {start}. \
                 Planned, worst case and observed speak of this run alone; `with_initial_model` is everything together, and \
                 `privacy.max_epsilon` bounds everything together."
            ));
        }
        cost
    }

    fn add(&mut self, training: &Training, source: &str, adjacency: Adjacency) {
        match training {
            Training::NotPrivate { source_sha256, .. } if source_sha256 == source => self.refuse(
                "The model that the run started from was trained on the same source without privacy, so that the released \
                 model has no guarantee for these people. The figures speak of what this run adds to that model.",
            ),
            Training::NotPrivate {
                from_people: true, ..
            } => self.refuse(
                "The model that the run started from was trained without privacy on people's text, as its file says, so that the \
                 released model has no guarantee for these people. The figures speak of what this run adds to that model.",
            ),
            Training::Undescribed {} | Training::NotPrivate { .. } => {}
            Training::Private {
                source_sha256,
                adjacency: stated,
                guarantee,
                seeded,
            } => {
                if *seeded {
                    self.warnings.push(
                        "The model that the run started from comes from a seeded run: its guarantee is for study only."
                            .to_owned(),
                    );
                }
                let shown = guarantee.map(|guarantee| {
                    format!("{}, {stated}", epsilon_delta(guarantee.epsilon, guarantee.delta))
                });
                // PRIVACY: nobody knows here that the people are others, so they count as the same.
                if *source_sha256 == unknown_source() {
                    let shown = shown
                        .as_deref()
                        .unwrap_or("no guarantee that can be stated");
                    self.warnings.push(format!(
                        "The model that the run started from was trained privately by a session, whose text nobody here knows: \
                         {shown}. It counts as a training on the same source."
                    ));
                } else if source_sha256 != source {
                    let shown = shown.unwrap_or_else(|| "no guarantee that can be stated".to_owned());
                    self.warnings.push(format!(
                        "The model that the run started from was trained privately on another source: {shown}. It is not in \
                         the figures: add it if people are the same."
                    ));
                    return;
                }
                self.seeded |= *seeded;
                match guarantee {
                    Some(guarantee) if *stated == adjacency => {
                        self.epsilon += guarantee.epsilon;
                        self.delta += guarantee.delta;
                        self.counted += 1;
                    }
                    Some(_) => self.refuse(&format!(
                        "The model that the run started from was trained on the same source with a guarantee under another \
                         relation, {stated}, which cannot be added to one of {adjacency}. No guarantee of both together is \
                         stated."
                    )),
                    None => self.refuse(
                        "The model that the run started from was trained on the same source with so little noise that no \
                         guarantee can be stated, so that the released model has none for these people.",
                    ),
                }
            }
        }
    }

    fn refuse(&mut self, why: &str) {
        self.warnings.push(why.to_owned());
        self.uncountable.get_or_insert_with(|| why.to_owned());
    }

    /// `true` if trainings of the initial model count towards the guarantee of the run.
    #[must_use]
    pub(crate) fn is_counted(&self) -> bool {
        self.counted > 0
    }

    /// The reason for which no guarantee of the run together with its initial model can be stated, where that is so.
    #[must_use]
    pub fn uncountable(&self) -> Option<&str> {
        self.uncountable.as_deref()
    }

    /// `true` if a training on the users of the run had noise from a known seed, so that everything together has no guarantee.
    #[must_use]
    pub fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// Epsilon of the trainings before this run.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// Delta of the trainings before this run.
    #[must_use]
    pub fn delta(&self) -> f64 {
        self.delta
    }

    /// Warnings about the initial model for readers of the guarantee.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The sentence about the start in the statement of covered data accesses; empty without an initial model.
    #[must_use]
    pub fn statement(&self) -> &str {
        &self.statement
    }
}

/// The sentence that says if the initial model is public.
fn statement(trainings: &[Training], source: &str) -> &'static str {
    let of_people = |training: &Training| match training {
        Training::Private { .. } => true,
        Training::NotPrivate {
            source_sha256,
            from_people,
        } => *from_people || source_sha256 == source,
        Training::Undescribed {} => false,
    };
    if trainings.is_empty() {
        return "";
    }
    if trainings.iter().any(of_people) {
        return " The model that the run started from is not public: it was trained on people's text before, which the \
                warnings speak of.";
    }
    if trainings.contains(&Training::Undescribed {}) {
        return " The file of the model that the run started from does not say what it was trained on. It is declared public by \
                the run file.";
    }
    " The file of the model that the run started from says that it was trained without privacy, on another source. It is \
     declared public by the run file."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainings::StatedGuarantee;

    const OWN: &str = "own";

    fn cost(training: Training) -> StartCost {
        StartCost::new(&[training], OWN, Adjacency::AddOrRemoveOne)
    }

    fn private(source_sha256: &str, adjacency: Adjacency, seeded: bool) -> Training {
        Training::Private {
            source_sha256: source_sha256.to_owned(),
            adjacency,
            guarantee: Some(StatedGuarantee {
                epsilon: 7.5,
                delta: 1e-6,
            }),
            seeded,
        }
    }

    #[test]
    fn a_private_start_of_unknown_source_counts_as_one_on_the_same_people() {
        let same = cost(private(OWN, Adjacency::AddOrRemoveOne, false));
        let unknown = cost(private(&unknown_source(), Adjacency::AddOrRemoveOne, false));
        for cost in [&same, &unknown] {
            assert_eq!((cost.epsilon(), cost.delta()), (7.5, 1e-6));
            assert!(cost.statement().contains("is not public"));
            assert!(!cost.is_seeded());
        }
        assert_eq!(unknown.warnings().len(), 1 + same.warnings().len());
        assert!(unknown.warnings()[0].contains("whose text nobody here knows"));
        // Under another relation nothing can be added, so nothing is promised.
        let other = cost(private(&unknown_source(), Adjacency::ZeroOut, false));
        assert!(other.uncountable().is_some());
        let elsewhere = cost(private("other", Adjacency::AddOrRemoveOne, true));
        assert_eq!((elsewhere.epsilon(), elsewhere.is_seeded()), (0.0, false));
        assert!(cost(private(OWN, Adjacency::AddOrRemoveOne, true)).is_seeded());
    }

    #[test]
    fn a_start_on_a_text_that_its_file_calls_peoples_is_never_public() {
        let trained = |from_people| Training::NotPrivate {
            source_sha256: "other".to_owned(),
            from_people,
        };
        let declared = cost(trained(false));
        assert!(declared.uncountable().is_none());
        assert!(
            declared
                .statement()
                .ends_with("It is declared public by the run file.")
        );
        let recorded = cost(trained(true));
        assert!(
            recorded
                .uncountable()
                .is_some_and(|why| why.contains("as its file says"))
        );
        assert!(recorded.statement().contains("is not public"));
        // A file of an earlier version has no such key.
        let older: Training =
            serde_json::from_str(r#"{"kind":"not_private","source_sha256":"other"}"#).unwrap();
        assert_eq!(older, trained(false));
        assert!(!serde_json::to_string(&older).unwrap().contains("from_people"));
    }
}
