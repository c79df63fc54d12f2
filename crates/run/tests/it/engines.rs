//! Engines that deliver something else than they should: nothing of a guarantee rests on them.

use undertone_coordinator::task::{ClipConfig, EstimatorConfig};
use undertone_local::{
    Engine, EngineError, EngineTimes, LocalError, LocalOutcome, LocalTask, UpdateSink, Work,
};

use crate::support::{Round, World, config};

const CLIP_NORM: f64 = 0.3;

/// The contribution of a false engine for the user at a place.
type Lie = fn(
    &mut dyn FnMut(usize, Vec<f32>, f64) -> Result<(), LocalError>,
    usize,
    usize,
) -> Result<(), LocalError>;

struct False(Lie);

impl Engine for False {
    fn train(
        &mut self,
        task: &LocalTask<'_>,
        work: &Work<'_>,
        sink: &dyn UpdateSink,
    ) -> Result<EngineTimes, EngineError> {
        let Work::Users { places, .. } = *work else {
            panic!("users were asked for");
        };
        let mut deliver = |place: usize, update: Vec<f32>, weight: f64| {
            let outcome = LocalOutcome {
                weight,
                examples: 1,
                tokens: 1,
                loss_sum: 0.0,
                projected: None,
                discarded: false,
            };
            sink.accept(place, &update, outcome)
        };
        for &place in places {
            (self.0)(&mut deliver, place, task.theta.len())
                .map_err(|source| EngineError { place, source })?;
        }
        Ok(EngineTimes::default())
    }
}

/// The squared norm of values in steps of `2^-48`. Each value is rounded down to a step, so that the squares fit into 128 bits.
fn squared(values: &[f32]) -> u128 {
    values
        .iter()
        .map(|&value| {
            let steps = f64::from(value) * f64::exp2(60.0);
            assert_eq!(steps, steps.trunc());
            (steps.abs() as u128 >> 12).pow(2)
        })
        .sum()
}

/// The released sum of three users under an engine, or the error.
fn released(lie: Lie) -> Result<Vec<f32>, String> {
    let mut run = config(&[]);
    run.task.privacy = None;
    run.task.clip = ClipConfig::Flat {
        norm: CLIP_NORM,
        normalised: false,
    };
    run.task.estimator = EstimatorConfig::FixedDenominator {
        expected_weight: Some(1.0),
    };
    let world = World::new(&run);
    let theta = world.model.initial_params(5);
    let round = Round {
        world: &world,
        task: &run.task,
        theta: &theta,
        total_weight: 60.0,
    };
    let head = round.head();
    let opened = head.open(None).expect("a round");
    let cohort = round.cohort(&[1, 5, 9], None);
    let gathered = round
        .gather(Box::new(False(lie)), &opened, &cohort)
        .map_err(|error| error.to_string())?;
    let entropy = undertone_coordinator::entropy::RoundEntropy::seeded(1);
    let next = head.close(opened, gathered, &entropy, &mut |_| ());
    Ok(next
        .expect("a release")
        .average
        .expect("an average")
        .into_values())
}

/// Three users, each 1,000 times as loud as allowed, move the sum by at most three clip norms. The sum itself is checked in exact
/// arithmetic where it is defined; here the released values are compared, in steps of `2^-48`.
#[test]
fn an_engine_cannot_move_the_sum_by_more_than_the_clip_norm_per_user() {
    let lies: [Lie; 3] = [
        |deliver, place, dim| deliver(place, vec![300.0; dim], 1.0),
        |deliver, place, dim| {
            deliver(
                place,
                (0..dim).map(|i| if i == place { -3e7 } else { 1e-3 }).collect(),
                1.0,
            )
        },
        |deliver, place, dim| deliver(place, vec![1e15; dim], 0.75),
    ];
    for lie in lies {
        let values = released(lie).expect("a release");
        let limit = (3.0 * CLIP_NORM * f64::exp2(60.0)) as u128 >> 12;
        assert!(
            squared(&values) <= limit.pow(2),
            "{} above {}",
            squared(&values),
            limit.pow(2)
        );
        assert!(squared(&values) > 0);
    }
}

#[test]
fn whatever_else_an_engine_does_is_an_error_before_any_noise() {
    let lies: [(Lie, &str); 7] = [
        (
            |deliver, place, dim| deliver(place, vec![f32::NAN; dim], 1.0),
            "user",
        ),
        (
            |deliver, place, dim| deliver(place, vec![0.1; dim + 1], 1.0),
            "expected",
        ),
        (
            |deliver, place, dim| deliver(place, vec![0.1; dim - 1], 1.0),
            "expected",
        ),
        (
            |deliver, place, dim| deliver(place, vec![0.1; dim], 1.5),
            "weight",
        ),
        (
            |deliver, place, dim| {
                deliver(place, vec![0.1; dim], 1.0)?;
                deliver(place, vec![0.1; dim], 1.0)
            },
            "expected each of 3 pieces once",
        ),
        (
            |deliver, _, dim| deliver(7, vec![0.1; dim], 1.0),
            "expected each of 3 pieces once",
        ),
        (|_, _, _| Ok(()), "never delivered piece"),
    ];
    for (lie, expected) in lies {
        let error = released(lie).expect_err(expected);
        assert!(
            error.contains(expected) && error.contains("round 0"),
            "{error} instead of {expected}"
        );
    }
}
