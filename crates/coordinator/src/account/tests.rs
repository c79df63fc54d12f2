use std::collections::BTreeMap;

use rand_core::Rng;
use undertone_accounting::participation::RoundsBetween;
use undertone_aggregation::ParamLayout;

use super::*;
use crate::participation::ParticipationKey;
use crate::participation::policy::Enforcement;
use crate::plan::Population;
use crate::record::{AbandonReason, EndReason};

const MIN_SEP: u64 = 3;
const MAX_PART: u64 = 4;

fn task(more: &str) -> TaskConfig {
    let text = format!(
        "name = \"t\"\nrounds = 60\nmodel = {{ family = \"dplm\", embed = 4, hidden = 6 }}\n\
         cohort = {{ sampling = \"check_in\", users_per_round = 4, population = 90 }}\n\
         user_update = {{ batch_size = 4, learning_rate = 0.5 }}\nclip = {{ kind = \"flat\", norm = 0.5 }}\n{more}"
    );
    let task: TaskConfig = toml::from_str(&text).unwrap();
    task.validate().unwrap();
    task
}

fn central() -> TaskConfig {
    task(&format!(
        "participation = {{ min_sep = {MIN_SEP}, max_part = {MAX_PART} }}\n\
         privacy = {{ noise_multiplier = 4.0, delta = 1e-5, mechanism = {{ kind = \"tree\" }} }}\n"
    ))
}

fn plan(task: &TaskConfig) -> PrivacyPlan {
    let layout = ParamLayout::with_tensor_groups(vec![("w".to_owned(), vec![16])]).unwrap();
    let population = Population {
        users: 90,
        total_weight: 90.0,
    };
    PrivacyPlan::new(task, None, &layout, population).unwrap()
}

fn names(users: &[u64]) -> Vec<ParticipantId> {
    users.iter().map(|&user| ParticipantId::new(user)).collect()
}

fn attempt(number: u32, users: &[u64]) -> AbandonedAttempt {
    AbandonedAttempt {
        attempt: number,
        reason: AbandonReason::Few,
        participants: names(users),
        row_spent: false,
    }
}

fn entry(plan: &PrivacyPlan, round: u64, included: &[u64]) -> LedgerEntry {
    let of_round = plan.round(round);
    LedgerEntry {
        round,
        sampling: "check_in".to_owned(),
        mode: None,
        sampling_probability: plan.sampling_probability(),
        population: 90,
        total_weight: 90.0,
        cohort_size: included.len() as u64,
        group_size: None,
        examples: None,
        survivors: None,
        abandoned: false,
        quarantined: false,
        summed_on_gpu: false,
        participants: names(included),
        lost: Vec::new(),
        attempts: Vec::new(),
        issuer: None,
        clip_norm: of_round.clipping.bound(),
        sensitivity: of_round.sensitivity,
        noise_std: of_round.noise_std,
        noise_multiplier: of_round.noise_multiplier,
        noise_key: None,
        noise_domain: plan.noise_label(),
        parameters_sha256: Some(String::new()),
        released_sha256: None,
        previous_sha256: String::new(),
    }
}

fn end(rounds: u64, attempts: Vec<AbandonedAttempt>) -> LedgerEnd {
    LedgerEnd {
        end: EndReason::Stopped,
        rounds,
        attempts,
        issuer: None,
        previous_sha256: String::new(),
    }
}

/// The participations of each user, counted one by one: the rounds in which a user stands, in order.
type Recount = BTreeMap<u64, Vec<u64>>;

/// `true` if nobody breaks the declared schema, by a scan of all pairs.
fn keeps(counted: &Recount) -> bool {
    counted.values().all(|rounds| {
        rounds.len() as u64 <= MAX_PART && rounds.windows(2).all(|pair| pair[1] - pair[0] >= MIN_SEP)
    })
}

/// Random histories of rounds with abandoned attempts and lost users. Whatever keeps to the schema is taken, and the observed
/// separation and max participation are those of a recount of every participation.
#[test]
fn abandoned_attempts_and_lost_users_count_as_a_recount_counts_them() {
    let (task, mut generator) = (central(), ParticipationKey::from_bytes([5; 32]).examples_of(0));
    let plan = plan(&task);
    let (mut taken, mut refused, mut twice, mut with_attempts) = (0, 0, 0, 0);
    for _ in 0..600 {
        let mut draw = |below: u64| generator.next_u64() % below;
        let mut account = Account::new(&task, &plan).unwrap();
        let mut counted = Recount::new();
        let mut round = 0;
        let rounds = 1 + draw(20);
        // Most histories choose among those who may come; some choose anybody.
        let careless = draw(4) == 0;
        loop {
            let is_end = round == rounds;
            let mut picked: Vec<u64> = Vec::new();
            let mut pick = |most: u64, picked: &mut Vec<u64>| {
                let mut chosen = Vec::new();
                for _ in 0..draw(most + 1) {
                    let user = draw(24);
                    let mut with = counted.get(&user).cloned().unwrap_or_default();
                    with.push(round);
                    let may = keeps(&BTreeMap::from([(user, with)])) && !picked.contains(&user);
                    if may || (careless && draw(30) == 0) {
                        chosen.push(user);
                        picked.push(user);
                    }
                }
                chosen.sort_unstable();
                names(&chosen)
            };
            let mut attempts = Vec::new();
            for number in 0..3 {
                let participants = pick(3, &mut picked);
                if number > 0 && participants.is_empty() {
                    break;
                }
                attempts.push(AbandonedAttempt {
                    participants,
                    ..attempt(number, &[])
                });
            }
            with_attempts += u64::from(!attempts.is_empty());
            let result = if is_end {
                account.end(&end(rounds, attempts))
            } else {
                let mut line = entry(&plan, round, &[]);
                line.participants = pick(4, &mut picked);
                line.lost = pick(2, &mut picked);
                line.attempts = attempts;
                account.add(&line)
            };
            let distinct: std::collections::BTreeSet<_> = picked.iter().collect();
            let doubled = distinct.len() < picked.len();
            for &user in &picked {
                counted.entry(user).or_default().push(round);
            }
            assert_eq!(
                result.is_ok(),
                !doubled && keeps(&counted),
                "round {round}: {result:?}"
            );
            if let Err(error) = result {
                refused += 1;
                twice += u64::from(error.to_string().contains("at most once per round"));
                break;
            }
            let observed = account.participation();
            let gaps = counted
                .values()
                .flat_map(|rounds| rounds.windows(2).map(|pair| pair[1] - pair[0] - 1));
            assert_eq!(observed.min_sep().map(RoundsBetween::get), gaps.min());
            let max = counted.values().map(Vec::len).max().unwrap_or(0);
            assert_eq!(observed.max_participation(), max as u64);
            assert_eq!(observed.users(), counted.len() as u64);
            if is_end {
                taken += 1;
                break;
            }
            round += 1;
        }
    }
    assert!(
        taken > 400 && refused > 40 && twice > 5 && with_attempts > 2000,
        "{taken} {refused} {twice} {with_attempts}"
    );
}

#[test]
fn a_user_in_two_attempts_of_one_round_is_refused_by_name() {
    let task = central();
    let plan = plan(&task);
    let refuse = |change: &dyn Fn(&mut LedgerEntry)| {
        let mut account = Account::new(&task, &plan).unwrap();
        let mut line = entry(&plan, 0, &[1, 2]);
        change(&mut line);
        account.add(&line).unwrap_err().to_string()
    };
    let twice = "user 0000000000000007: expected the user at most once per round";
    let error = refuse(&|line| line.attempts = vec![attempt(0, &[7, 8]), attempt(1, &[7])]);
    assert!(error.contains(twice), "{error}");
    let error = refuse(&|line| (line.attempts, line.lost) = (vec![attempt(0, &[7])], names(&[7])));
    assert!(error.contains(twice), "{error}");
    let error = refuse(&|line| line.lost = names(&[2]));
    assert!(error.contains("0000000000000002"), "{error}");
    let error = refuse(&|line| {
        line.attempts = vec![AbandonedAttempt {
            row_spent: true,
            ..attempt(0, &[9])
        }];
    });
    assert!(error.contains("row_spent"), "{error}");
    // Each of them comes back too soon, two rounds after an abandoned attempt or a loss.
    for change in [
        &(|line: &mut LedgerEntry| line.attempts = vec![attempt(0, &[7])]) as &dyn Fn(&mut LedgerEntry),
        &|line| line.lost = names(&[7]),
    ] {
        let mut account = Account::new(&task, &plan).unwrap();
        let mut line = entry(&plan, 0, &[1, 2]);
        change(&mut line);
        account.add(&line).unwrap();
        account.add(&entry(&plan, 1, &[])).unwrap();
        let error = account.add(&entry(&plan, 2, &[7])).unwrap_err().to_string();
        assert!(
            error.contains("gap of at least 3 rounds") && error.contains("got 2 (round 0)"),
            "{error}"
        );
    }
}

#[test]
fn an_end_after_another_number_of_rounds_is_refused() {
    let task = central();
    let plan = plan(&task);
    let mut account = Account::new(&task, &plan).unwrap();
    account.add(&entry(&plan, 0, &[1])).unwrap();
    let error = account.end(&end(2, Vec::new())).unwrap_err().to_string();
    assert!(error.contains("`rounds` = 1, got 2"), "{error}");
    account.end(&end(1, Vec::new())).unwrap();
}

/// Abandoned attempts release nothing, so with noise of the server they cost no row; they widen the observed schema only.
#[test]
fn an_abandoned_attempt_counts_in_the_observed_schema() {
    let task = central();
    let plan = plan(&task);
    let observed = |second: &[u64], last: Vec<AbandonedAttempt>| {
        let mut account = Account::new(&task, &plan).unwrap();
        account.add(&entry(&plan, 0, &[1, 2])).unwrap();
        account.add(&entry(&plan, 1, &[])).unwrap();
        account.add(&entry(&plan, 2, &[])).unwrap();
        account.add(&entry(&plan, 3, second)).unwrap();
        account.end(&end(4, last)).unwrap();
        let record = account.observed().unwrap().unwrap();
        (record.rounds, record.schema.unwrap().max_part, record.epsilon)
    };
    let once = observed(&[3], Vec::new());
    assert_eq!((once.0, once.1), (4, 1));
    let twice = observed(&[1], Vec::new());
    assert_eq!((twice.0, twice.1), (4, 2));
    assert!(twice.2 > once.2);
    // The user comes again in an attempt after the last release: nothing was released, and the count says so.
    let late = observed(&[3], vec![attempt(0, &[1])]);
    assert_eq!((late.0, late.1), (4, 2));
    assert!(late.2 >= once.2);
}

/// With noise in shares the server has seen the noised sum of an abandoned attempt, so its users pay for it.
#[test]
fn an_attempt_after_the_last_release_costs_a_participation_where_clients_add_the_noise() {
    let task = task(
        "participation = { min_sep = 1, max_part = 5 }\nprivacy = { noise_multiplier = 4.0, delta = 1e-5 }\n\
         [aggregation]\nencoding = { kind = \"skellam\", scale = 1e4 }\nmin_clients = 3\nmax_clients = 8\n",
    );
    let plan = plan(&task);
    let client_noise = plan.client_noise().unwrap();
    let of = |times: u64| {
        let mut accountant = undertone_accounting::Accountant::under(
            undertone_accounting::Recipe::Rdp,
            undertone_accounting::Adjacency::ZeroOut,
        );
        accountant.compose(client_noise.event(), times).unwrap();
        let delta = undertone_accounting::Delta::new(1e-5).unwrap();
        accountant.guarantee(delta).unwrap().epsilon.get()
    };
    let observed = |rounds: &[&[u64]], last: Vec<AbandonedAttempt>| {
        let mut account = Account::new(&task, &plan).unwrap();
        for (round, users) in rounds.iter().enumerate() {
            let mut line = entry(&plan, round as u64, users);
            line.survivors = Some(users.len() as u64);
            account.add(&line).unwrap();
        }
        account.end(&end(rounds.len() as u64, last)).unwrap();
        account.observed().unwrap().map(|record| record.epsilon)
    };
    assert_eq!(observed(&[&[1, 2, 3]], Vec::new()), Some(of(1)));
    assert_eq!(observed(&[&[1, 2, 3]], vec![attempt(0, &[1, 4])]), Some(of(2)));
    // A task without any release has cost its users what the server saw.
    assert_eq!(observed(&[], vec![attempt(0, &[1, 2, 3])]), Some(of(1)));
    assert_eq!(observed(&[], Vec::new()), None);
}

/// The account of the first rounds of a plan, each made as planned by four users of its own.
fn made(task: &TaskConfig, plan: &PrivacyPlan, rounds: u64) -> StopRecordOf {
    let mut account = Account::new(task, plan).unwrap();
    for round in 0..rounds {
        let first = 4 * round % 88;
        account.add(&entry(plan, round, &[first, first + 1])).unwrap();
    }
    let planned = plan.planned().unwrap();
    let stopped = |reason: Option<EndReason>| {
        let end = reason.map(|reason| LedgerEnd {
            end: reason,
            ..end(rounds, Vec::new())
        });
        account.stopped(end.as_ref(), planned.as_ref()).unwrap()
    };
    StopRecordOf {
        unknown: stopped(None),
        by_operator: stopped(Some(EndReason::Stopped)),
        starved: stopped(Some(EndReason::Starved)),
        observed: account.observed().unwrap(),
    }
}

/// The stop of one ledger, for each reason that its last line may give.
struct StopRecordOf {
    unknown: Option<StopRecord>,
    by_operator: Option<StopRecord>,
    starved: Option<StopRecord>,
    observed: Option<GuaranteeRecord>,
}

#[test]
fn a_stop_by_anybody_claims_all_rounds_of_the_plan_and_a_lack_of_users_the_rounds_made() {
    let task = central();
    let plan = plan(&task);
    let planned = plan.planned().unwrap().unwrap();
    let stop = made(&task, &plan, 3);
    for stopped in [stop.unknown.unwrap(), stop.by_operator.unwrap()] {
        assert_eq!((stopped.rounds, stopped.planned_rounds), (3, 60));
        assert_eq!(stopped.claimed.unwrap(), planned);
    }
    assert_eq!(stop.starved, None);
    assert!(stop.observed.unwrap().epsilon < planned.epsilon);
    // With all rounds, and with none, there is no stop.
    assert_eq!(made(&task, &plan, 60).unknown, None);
    assert_eq!(made(&task, &plan, 0).unknown, None);
}

#[test]
fn a_schema_that_was_widened_before_a_stop_is_claimed_for_all_rounds() {
    let mut task = central();
    if let Some(schema) = &mut task.participation {
        schema.on_violation = Enforcement::Account;
    }
    let plan = plan(&task);
    let mut account = Account::new(&task, &plan).unwrap();
    account.add(&entry(&plan, 0, &[1])).unwrap();
    account.add(&entry(&plan, 1, &[1])).unwrap();
    let planned = plan.planned().unwrap();
    let stopped = account.stopped(None, planned.as_ref()).unwrap().unwrap();
    let claimed = stopped.claimed.unwrap();
    assert_eq!((stopped.planned_rounds, claimed.rounds), (60, 60));
    assert!(claimed.epsilon > planned.unwrap().epsilon);
}

/// Sampled cohorts under a budget that admits some of the rounds: the budget ends the run in one round whatever is released.
#[test]
fn a_stop_claims_no_more_rounds_than_the_budget_admits_and_an_exhausted_budget_is_no_stop() {
    let task: TaskConfig = toml::from_str(
        "name = \"t\"\nrounds = 60\nmodel = { family = \"dplm\", embed = 4, hidden = 6 }\n\
         cohort = { users_per_round = 4 }\nuser_update = { batch_size = 4, learning_rate = 0.5 }\n\
         clip = { kind = \"flat\", norm = 0.5 }\nprivacy = { noise_multiplier = 1.0, delta = 1e-5, max_epsilon = 1.5 }\n",
    )
    .unwrap();
    let plan = plan(&task);
    let sampled = |round: u64| LedgerEntry {
        sampling: "poisson".to_owned(),
        ..entry(&plan, round, &[])
    };
    let mut account = Account::new(&task, &plan).unwrap();
    let mut head = Spending::new(&plan);
    // A run goes on round after round, until the budget refuses one.
    while head
        .check_budget(&plan, head.rounds(), Cost::from(&plan.round(head.rounds())))
        .is_ok()
    {
        head.compose(&plan, Cost::from(&plan.round(head.rounds())), 1)
            .unwrap();
    }
    let admitted = head.rounds();
    assert!((3..60).contains(&admitted), "{admitted}");
    for round in 0..admitted {
        let stopped = account.stopped(None, None).unwrap();
        match round {
            0 => assert_eq!(stopped, None),
            _ => {
                let stopped = stopped.unwrap();
                let claimed = stopped.claimed.unwrap();
                assert_eq!((stopped.rounds, stopped.planned_rounds), (round, admitted));
                let whole = head.epsilon(&plan).unwrap().unwrap();
                assert!((claimed.epsilon - whole).abs() < 1e-9 && whole <= 1.5);
            }
        }
        account.add(&sampled(round)).unwrap();
    }
    assert_eq!(account.stopped(None, None).unwrap(), None);
}
