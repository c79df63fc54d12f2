//! Algorithms 1 and 2 of \[UserDP\] against plain arithmetic over the gradients of single examples.

use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, Recipe, SamplingProbability};
use undertone_aggregation::{CLIP_MARGIN, Clipping};
use undertone_coordinator::kept_examples::{self, KeptExamples};
use undertone_coordinator::participation::ParticipationKey;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::task::{ClipConfig, EstimatorConfig};
use undertone_run::example_counts;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::initial_model::starting_parameters;

use crate::support::{
    BASE, Round, Start, World, check_refusals, config, ledger, norm, overrides, parsed, train,
};

const ULS: &[&str] = &["user_update={algorithm='uls',group_size=4}"];
const ELS: &[&str] = &[
    "user_update={algorithm='els',group_size=4}",
    "cohort={sampling='poisson',examples_per_round=30}",
    "privacy.accountant=pld",
];

fn with(base: &[&str], more: &[&str]) -> RunConfig {
    config(&[base, more].concat())
}

/// The run file of `base` and `more` without noise.
fn public(base: &[&str], more: &[&str]) -> RunConfig {
    let text = BASE.replace("privacy = { noise_multiplier = 2.0, delta = 1e-5 }", "");
    let mut changes = [base, more].concat();
    changes.retain(|change| !change.starts_with("privacy"));
    RunConfig::parse(&text, "test.toml".as_ref(), &overrides(&changes)).expect("a configuration")
}

impl Start {
    /// Parameters before the first round.
    fn initial(&self) -> Vec<f32> {
        let (model, vocab) = (self.world.model.as_ref(), self.world.corpus.vocab());
        let spec = &self.config.task.model;
        starting_parameters(spec, None, ".".as_ref(), model, vocab, &self.randomness).expect("parameters")
    }

    fn kept(&self) -> KeptExamples {
        let counts = example_counts(&self.world.users());
        let group_size = self.config.task.user_update.group_size.expect("a group size");
        KeptExamples::new(&counts, group_size, &ParticipationKey::new(&self.randomness))
    }

    /// The released average of a round of these examples, without noise.
    fn els_round(
        &self,
        examples: &[(usize, usize)],
        clipping: &Clipping,
        denominator: f64,
        threads: usize,
    ) -> Vec<f32> {
        let mut task = self.config.task.clone();
        task.privacy = None;
        task.clip = match *clipping {
            Clipping::Flat { clip_norm } => ClipConfig::Flat {
                norm: clip_norm,
                normalised: false,
            },
            _ => ClipConfig::None,
        };
        task.estimator = EstimatorConfig::FixedDenominator {
            expected_weight: Some(denominator),
        };
        let size = task.user_update.batch_size();
        let microbatches = self.kept().microbatches(examples, size);
        let round = Round {
            world: &self.world,
            task: &task,
            theta: &self.theta,
            total_weight: 1000.0,
        };
        let (released, work) = round.released(&round.cohort(&[], Some(microbatches)), threads);
        assert_eq!(work.parts, examples.len());
        released
    }
}

fn scaled(values: &[f32], factor: f64) -> Vec<f64> {
    values.iter().map(|&value| factor * f64::from(value)).collect()
}

fn distance(got: &[f32], expected: &[f64]) -> f64 {
    norm(got.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b) as f32))
}

fn length(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The update reads all examples of a user where the group is larger, `group_size` of them otherwise, and is clipped.
#[test]
fn uls_clips_the_average_over_the_drawn_examples() {
    for group_size in [1, 3, 1000] {
        let start = Start::new(with(ULS, &[&format!("user_update.group_size={group_size}")]));
        let users = start.world.users();
        let index = (0..users.num_users())
            .find(|&index| (3..20).contains(&users.user(index).num_examples()))
            .expect("a user");
        let user = users.user(index);
        for clipping in [Clipping::None, Clipping::Flat { clip_norm: 0.01 }] {
            let (outcome, update) = start
                .trained(&mut start.worker(), index, &start.task(&clipping))
                .expect("training");
            let drawn = user.num_examples().min(group_size);
            assert_eq!(outcome.examples, drawn);
            // The draw that the worker made.
            let mut examples = start.examples(index);
            let mut generator = start.randomness.generator(Purpose::LocalOrder, 0, index as u64);
            undertone_mechanisms::draws::shuffle(&mut examples, &mut generator);
            let mut average = vec![0.0; start.theta.len()];
            for example in &examples[..drawn] {
                let gradient = scaled(&start.gradient(&[example]), -1.0 / drawn as f64);
                average.iter_mut().zip(gradient).for_each(|(a, b)| *a += b);
            }
            let whole = length(&average);
            assert!(
                (outcome.norm / whole - 1.0).abs() < 1e-5,
                "{} {whole}",
                outcome.norm
            );
            let factor = clipping.bound().map_or(1.0, |bound| (bound / whole).min(1.0));
            average.iter_mut().for_each(|value| *value *= factor);
            assert!(distance(&update, &average) < 1e-5 * length(&average));
        }
    }
}

/// Each example's own gradient is clipped, in microbatches of one to the norm itself, in larger ones to just below it.
#[test]
fn els_sums_gradients_that_are_clipped_one_by_one() {
    for (batch_size, bound) in [(1, 0.02), (5, 0.02 * (1.0 - CLIP_MARGIN))] {
        let start = Start::new(with(ELS, &[&format!("user_update.batch_size={batch_size}")]));
        let users = start.world.users();
        let mut generator = start.randomness.generator(Purpose::Cohort, 0, 0);
        let examples = start.kept().sample(0.2, &mut generator);
        assert!(examples.len() > 20 && !examples.len().is_multiple_of(5));
        let clipping = Clipping::Flat { clip_norm: 0.02 };
        let mut expected = vec![0.0; start.theta.len()];
        let mut clipped = 0;
        for &(user, example) in &examples {
            let gradient = start.gradient(&[users.user(user).example(example)]);
            let length = norm(gradient.iter().copied());
            clipped += usize::from(length > bound);
            let gradient = scaled(&gradient, -(bound / length).min(1.0) / 7.0);
            expected.iter_mut().zip(gradient).for_each(|(a, b)| *a += b);
        }
        assert!(clipped > 0, "the clip norm is not reached");
        let got = start.els_round(&examples, &clipping, 7.0, 1);
        let off = distance(&got, &expected) / length(&expected);
        assert!(off < 1e-5, "batch_size {batch_size}: {off}");
        assert_eq!(
            got,
            start.els_round(&examples, &clipping, 7.0, 2),
            "threads change bits"
        );
    }
}

/// The sum of a microbatch is a function of its examples alone, so what one more user leaves grouped as it was keeps its bits.
#[test]
fn a_user_who_joins_leaves_the_sums_of_other_microbatches_bit_for_bit() {
    let start = Start::new(with(ELS, &["user_update.batch_size=5"]));
    let users = start.world.users();
    let kept = start.kept();
    let mut generator = start.randomness.generator(Purpose::Cohort, 0, 0);
    let all = kept.sample(0.5, &mut generator);
    let joining = all[all.len() / 2].0;
    let others: Vec<_> = all.iter().copied().filter(|&(user, _)| user != joining).collect();
    let clipping = Clipping::Flat { clip_norm: 0.02 };
    let sums = |sampled: &[(usize, usize)]| {
        let mut worker = start.worker();
        let sum = |microbatch: &Vec<(usize, usize)>| {
            let texts: Vec<&[u32]> = microbatch
                .iter()
                .map(|&(user, example)| users.user(user).example(example))
                .collect();
            worker
                .train_examples(&texts, &start.task(&clipping))
                .expect("gradients");
            let bits: Vec<u32> = worker.update_mut().iter().map(|value| value.to_bits()).collect();
            (microbatch.clone(), bits)
        };
        kept.microbatches(sampled, 5).iter().map(sum).collect::<Vec<_>>()
    };
    let (with, without) = (sums(&all), sums(&others));
    let first = with.iter().zip(&without).take_while(|(a, b)| a == b).count();
    let rest = (with[first..].iter().rev()).zip(without[first..].iter().rev());
    let last = rest.take_while(|(a, b)| a == b).count();
    assert!(first > 0 && last > 0, "{first} {last} of {}", with.len());
    let moved = with.len() - first - last;
    assert!(moved < with.len() / 2, "{moved} of {}", with.len());
    // Cut by position, everything behind would have moved.
    let behind: usize = with[first + moved..]
        .iter()
        .map(|(microbatch, _)| microbatch.len())
        .sum();
    assert!(behind > 5, "{behind}");
}

/// The sum over no examples is zero, whatever the last user or microbatch left in the worker.
#[test]
fn no_examples_are_no_update() {
    let clipping = Clipping::Flat { clip_norm: 0.02 };
    for base in [ULS, ELS] {
        for size in [1, 5] {
            let start = Start::new(with(base, &[&format!("user_update.batch_size={size}")]));
            let users = start.world.users();
            let example = users.user(0).example(0);
            let mut worker = start.worker();
            worker
                .train_examples(&[example], &start.task(&clipping))
                .expect("a gradient");
            assert!(worker.update_mut().iter().any(|&value| value != 0.0));
            worker
                .train_examples(&[], &start.task(&clipping))
                .expect("nothing");
            assert!(worker.update_mut().iter().all(|&value| value == 0.0), "{size}");
        }
    }
}

/// Without a bound and without noise a round is plain SGD on the sampled examples, to the last bit.
#[test]
#[ignore = "slow"]
fn without_clip_and_noise_both_are_plain_sgd() {
    let changes = [
        "clip={kind='none'}",
        "rounds=1",
        "server.learning_rate=0.5",
        "evaluation.max_tokens=200",
    ];
    for base in [ULS, ELS] {
        let sizes = [
            "user_update.group_size=1",
            "user_update.batch_size=1",
            "data.max_examples=1",
        ];
        let sampling = match base == ULS {
            true => "cohort={sampling='poisson',users_per_round=12}",
            false => "cohort={sampling='poisson',examples_per_round=12}",
        };
        let start = Start::new(public(base, &[&changes[..], &sizes, &[sampling]].concat()));
        let users = start.world.users();
        let population = users.num_users();
        let q = 12.0 / population as f64;
        let mut generator = start.randomness.generator(Purpose::Cohort, 0, 0);
        let batch = undertone_mechanisms::draws::poisson(population, q, &mut generator);
        assert!(batch.len() > 3);
        // SGD over the batch's gradients, added up exactly, divided by the expected number.
        let mut theta = start.initial();
        let begin = Start {
            theta: theta.clone(),
            ..start
        };
        let mut sum = vec![0i64; theta.len()];
        for &user in &batch {
            let gradient = begin.gradient(&[begin.world.users().user(user).example(0)]);
            for (sum, value) in sum.iter_mut().zip(gradient) {
                *sum -= (f64::from(value) * (1u64 << 40) as f64) as i64;
            }
        }
        let scale = (-40f64).exp2() / (q * population as f64);
        for (parameter, sum) in theta.iter_mut().zip(sum) {
            *parameter += 0.5 * (sum as f64 * scale) as f32;
        }
        begin.world.model.constrain(&mut theta);
        let (_folder, summary) = train(&begin.config, 1);
        let trained = begin.world.parameters(&summary.run_dir);
        assert!(
            trained
                .iter()
                .zip(&theta)
                .all(|(a, b)| a.to_bits() == b.to_bits()),
            "{:?} is not plain SGD",
            begin.config.task.user_update.algorithm
        );
    }
}

/// Users with one example each: sampling users and sampling examples is one thing, and so is clipping.
#[test]
fn one_example_a_user_makes_uls_and_els_one() {
    let common = [
        "data.max_examples=1",
        "user_update.group_size=1",
        "user_update.batch_size=1",
        "clip.norm=0.02",
        "evaluation.max_tokens=200",
        "rounds=4",
        "server.optimizer={kind='sgd',momentum=0.9}",
    ];
    let of = |base, size: &str| {
        let cohort = format!("cohort={{sampling='poisson',{size}=12}}");
        with(base, &[&common[..], &[&cohort]].concat())
    };
    let (uls, els) = (of(ULS, "users_per_round"), of(ELS, "examples_per_round"));
    let [(_folder, one), (_other, other)] = [train(&uls, 2), train(&els, 2)];
    let world = World::new(&uls);
    let (a, b) = (world.parameters(&one.run_dir), world.parameters(&other.run_dir));
    assert!(a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits()));
    for (one, other) in ledger(&one.run_dir).iter().zip(&ledger(&other.run_dir)) {
        assert_eq!(one.participants, other.participants);
        assert_eq!(
            (one.noise_std, one.sensitivity),
            (other.noise_std, other.sensitivity)
        );
        assert_eq!(
            (one.examples, other.examples),
            (Some(one.cohort_size), Some(one.cohort_size))
        );
    }
}

/// `target_epsilon` chooses the noise by the mixtures of Gaussians, and what is reported is the accountant's on the ledger.
#[test]
fn els_is_calibrated_and_accounted_for_as_mixtures_of_gaussians() {
    let mut config = with(ELS, &["rounds=3", "evaluation.max_tokens=200"]);
    let privacy = config.task.privacy.as_mut().expect("a table");
    (privacy.noise_multiplier, privacy.target_epsilon) = (None, Some(2.0));
    let (_folder, summary) = train(&config, 1);
    let epsilon = |noise: f64| {
        let mut accountant = Accountant::new(Recipe::Pld);
        for entry in ledger(&summary.run_dir) {
            assert_eq!(entry.group_size, Some(4));
            let event = Event::ExampleLevelSampling {
                group_size: 4,
                sampling_probability: SamplingProbability::new(entry.sampling_probability).expect("p"),
                noise_multiplier: NoiseMultiplier::new(noise * entry.noise_multiplier.expect("noise"))
                    .expect("z"),
            };
            accountant.compose(&event, 1).expect("a round");
        }
        let delta = Delta::new(1e-5).expect("delta");
        accountant.guarantee(delta).expect("a guarantee").epsilon.get()
    };
    let observed = summary.privacy.observed.expect("a guarantee");
    assert_eq!(observed.group_size, Some(4));
    assert!(
        observed.epsilon >= epsilon(1.0) && observed.epsilon <= 2.0,
        "{}",
        observed.epsilon
    );
    assert!((observed.epsilon / epsilon(1.0) - 1.0).abs() < 1e-5);
    assert!(epsilon(0.999) > 2.0, "less noise would do");
}

#[test]
fn kept_examples_are_chosen_once_and_bounded() {
    let start = Start::new(with(ELS, &[]));
    let users = start.world.users();
    let kept = start.kept();
    let mut total = 0;
    for (index, user) in users.users().enumerate() {
        let of = kept.of(index);
        assert_eq!(of.len(), user.num_examples().min(4));
        assert!(of.is_sorted() && of.iter().all(|&example| example < user.num_examples()));
        total += of.len();
    }
    assert_eq!(total as u64, kept_examples::count(&example_counts(&users), 4));
    // A sample of everything is everything that is kept; a round's draws never leave it.
    let mut generator = start.randomness.generator(Purpose::Cohort, 0, 0);
    let all = kept.sample(1.0, &mut generator);
    let listed =
        (0..users.num_users()).flat_map(|user| kept.of(user).into_iter().map(move |example| (user, example)));
    assert_eq!(all, listed.collect::<Vec<_>>());
    let part = kept.sample(0.3, &mut generator);
    assert!(part.is_sorted() && part.iter().all(|example| all.contains(example)));
    // The choice is uniform: another key keeps others.
    let other = ParticipationKey::new(&Randomness::seeded(2));
    let other = KeptExamples::new(&example_counts(&users), 4, &other);
    assert!((0..users.num_users()).any(|user| other.of(user) != kept.of(user)));
}

#[test]
#[ignore = "slow"]
fn a_compute_budget_is_users_times_group() {
    let budget = |base: &[&str], budget: u64| {
        let change = format!("cohort={{sampling='poisson',compute_budget={budget}}}");
        let config = with(base, &[&change, "rounds=1", "evaluation.max_tokens=200"]);
        let (_folder, summary) = train(&config, 1);
        let entry = ledger(&summary.run_dir).remove(0);
        entry.sampling_probability
            * if base == ULS {
                entry.population as f64
            } else {
                entry.total_weight
            }
    };
    assert!(
        (budget(ULS, 40) - 10.0).abs() < 1e-9,
        "40 gradients are 10 users of 4"
    );
    assert!((budget(ELS, 40) - 40.0).abs() < 1e-9);
}

#[test]
fn normalised_clipping_divides_by_the_clip_norm() {
    // The same step whatever the norm, once every gradient is clipped.
    let run = |norm: f64| {
        let clip = format!("clip={{kind='flat',norm={norm},normalised=true}}");
        let config = public(ULS, &[&clip, "rounds=1", "evaluation.max_tokens=200"]);
        let (_folder, summary) = train(&config, 1);
        World::new(&config).parameters(&summary.run_dir)
    };
    let (one, half) = (run(1e-3), run(5e-4));
    let start = Start::new(with(ULS, &[])).initial();
    let moved = |to: &[f32]| -> Vec<f32> { to.iter().zip(&start).map(|(a, b)| a - b).collect() };
    let (one, half) = (moved(&one), moved(&half));
    assert!(
        norm(one.iter().copied()) > 0.1,
        "a step of the order of the learning rate"
    );
    let off = norm(one.iter().zip(&half).map(|(a, b)| a - b));
    assert!(off < 1e-3 * norm(one.iter().copied()), "{off}");
}

#[test]
fn combinations_that_mean_nothing_are_refused_by_key() {
    let refused = |base: &[&str], table: &str| {
        check_refusals(base, table, |changes| {
            parsed(changes).expect_err("a refusal").to_string()
        });
    };
    refused(
        ULS,
        "
        cohort={sampling='poisson',compute_budget=30}
            a multiple of user_update.group_size = 4 ... got 30
        cohort.examples_per_round=8
            `cohort.examples_per_round`: expected `users_per_round`
        cohort.compute_budget=8
            `cohort.users_per_round` cannot be combined with `cohort.compute_budget`; remove one of them
        user_update.learning_rate=1.0
            `server.learning_rate` with uls
        user_update.max_examples=3
            `user_update.max_examples`: expected `group_size` with uls
        user_update={algorithm='uls'}
            `user_update.group_size` is missing: expected a value for algorithm uls
        user_update.group_size=0
            at least 1
        user_update.epochs=2
            1 with uls
        user_update.batching=stream
            `sentences` with uls
        ",
    );
    refused(
        ELS,
        "
        cohort={sampling='fixed_size',examples_per_round=8}
            `poisson` with els
        cohort={sampling='shuffled_epochs',examples_per_round=8}
            can meet in one round
        cohort={sampling='poisson',users_per_round=8}
            `examples_per_round`, `sampling_probability` or
        privacy.accountant=rdp
            `privacy.accountant`: expected `pld` with els
        privacy.mechanism={kind='blt'}
            `privacy.mechanism` must be left out: with els
        clip={kind='per_layer',norm=1.0}
            `clip.kind`: expected `flat` with els
        estimator={kind='clipped_denominator',min_weight=3.0}
            `estimator.kind`
        estimate={population=1000,users_per_round=10}
            `estimate` must be left out: with els
        aggregation={min_clients=2}
            `aggregation`
        ",
    );
    let transformer = ["model={family='transformer',layers=1,width=8,heads=2,context=16}"];
    refused(
        &transformer,
        "
        data.max_sentence_tokens=16
            `data.max_sentence_tokens`: expected less than model.context = 16, got 16
        data.examples=windows data.max_example_tokens=17
            `data.max_example_tokens`: expected at most model.context = 16, got 17
        data.max_sentence_tokens=15 user_update.batching=stream
            `sentences` with a transformer
        ",
    );
    refused(
        &[],
        "
        user_update.group_size=4
            `uls` or `els` as user_update.algorithm
        user_update={algorithm='fedavg',batch_size=2}
            `user_update.learning_rate` is missing: expected a value for algorithm fedavg
        cohort.compute_budget=8
            `cohort.compute_budget`: expected `users_per_round` or
        server.optimizer={kind='adafactor',epsilon=1e-60}
            1e-37
        server.optimizer={kind='adamw',weight_decay=2.0}
            `server.optimizer.weight_decay`
        ",
    );
}
