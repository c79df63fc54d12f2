//! The statements of the privacy report of a task of the service.

use super::{COVERS_FOLLOWERS, Claims, DECLARED_WORDS, StartCost};
use crate::task::{AggregationConfig, IdentityLevel, LedgerPlace, SumName, TaskFile, TaskPurpose};

/// Warning of a task whose subjects nobody vouches for.
const UNVOUCHED: &str = "Nobody vouches for the pseudonyms (`identity = \"dev\"`): one person with many devices counts as many \
                         users, and the guarantee is that of one device's claims.";

/// The statements that a reader needs to use the guarantee of a task.
pub(super) fn statements(claims: &Claims<'_>, file: &TaskFile) -> Vec<String> {
    let start = claims.plan.start().map_or("", StartCost::statement);
    let output = match &file.purpose {
        TaskPurpose::Train { .. } => {
            "the sequence of noised average updates, so every released model is covered".to_owned()
        }
        TaskPurpose::Evaluate { of, .. } => format!(
            "the sequence of noised averages of three rates that users report about the released models of the task {of:?}"
        ),
    };
    let mut statements = vec![
        "Setting: central differential privacy; the operator of the service is trusted to run it as configured."
            .to_owned(),
        format!(
            "Data accesses covered: this task, over the text of the devices that took part. Choosing hyper-parameters or a model \
             by looking at results is not covered, nor is the choice of the vocabulary.{DECLARED_WORDS}{start}"
        ),
        format!(
            "Mechanism output: {output}. Not covered: metrics.jsonl and ledger.jsonl, which hold exact counts and times."
        ),
        "Unit of privacy: a subject, with all text of all its devices.".to_owned(),
        file.service.identity.statement().to_owned(),
        "Adjacency: two populations are neighbours if all the examples of one user are zeroed out.".to_owned(),
        "Participation: that a person took part, or was too slow or had too few examples, is not hidden. Attempts that made no \
         release count as participations of their users."
            .to_owned(),
        participation(file.service.ledger).to_owned(),
        "Taken as public: this configuration, and who took part when.".to_owned(),
        "Budget: the figures are those of this task alone. Other tasks of the same population read text of the same people and add \
         to them; the budget of the population bounds all of them together."
            .to_owned(),
    ];
    statements.extend(file.task.model.lora().map(|lora| {
        format!(
            "Adapters: {}, of rank {}. The others are those of the initial model: nobody's text here changes them.",
            claims.counts, lora.rank
        )
    }));
    match &file.task.aggregation {
        None => statements.push(
            "Aggregation: the server sees every update in memory and keeps none; the noise is the server's."
                .to_owned(),
        ),
        Some(aggregation) => {
            statements.push(of_aggregation(file, aggregation));
            if !file.task.encoding_is_noisy() {
                statements.push(COVERS_FOLLOWERS.to_owned());
            }
        }
    }
    statements
}

/// The warning about the identity of users, where there is one.
pub(super) fn warning(file: &TaskFile) -> Option<String> {
    (file.service.identity == IdentityLevel::Dev).then(|| UNVOUCHED.to_owned())
}

fn participation(ledger: LedgerPlace) -> &'static str {
    match ledger {
        LedgerPlace::Server => {
            "Accounting assumption: who takes part, and when, does not depend on anyone's examples. Planned and worst case hold for \
             everyone who keeps to the declared separation and number of participations; observed holds for the participation that \
             the ledger shows."
        }
        LedgerPlace::Device => {
            "Accounting assumption: who takes part, and when, does not depend on anyone's examples. Participation is declared, not \
             observed: each device counts by its own memory, and the server names nobody."
        }
    }
}

fn of_aggregation(file: &TaskFile, aggregation: &AggregationConfig) -> String {
    let min = file.service.group.min;
    let seen = match (aggregation.sum, file.service.identity) {
        (SumName::Plain, _) => "the server sees every update in memory".to_owned(),
        (SumName::SecAgg, IdentityLevel::Dev) => format!(
            "the server learns the sums of groups of at least {min} devices if it is honest but curious; a server that lies can \
             invent devices"
        ),
        (SumName::SecAgg, IdentityLevel::Certificate | IdentityLevel::Attested) => format!(
            "the server learns the sums of groups of at least {min} devices, also where it lies, as far as server and issuer do \
             not collude"
        ),
    };
    let floor = aggregation.min_clients;
    let noise = match aggregation.encoding.is_distributed() {
        true => format!(
            "the noise is that of at least {floor} users of one group who add their share as they should; users who lie about it \
             are not covered"
        ),
        false => "the noise is the server's, for the sensitivity of rounded updates".to_owned(),
    };
    format!(
        "Aggregation: updates are encoded by `{}`; {seen}; {noise}. Sums of fewer than {floor} users release nothing, but \
         participation in them counts.",
        aggregation.encoding.name()
    )
}
