//! One test for each fault that was found at the borders, with the example that showed it and the right value.

use undertone_accounting::{
    Accountant, AccountingError, Adjacency, Delta, Epsilon, Event, NoiseMultiplier, Recipe,
    SamplingProbability, calibrate, gaussian,
};

fn delta(value: f64) -> Delta {
    Delta::new(value).unwrap()
}

fn noise(value: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(value).unwrap()
}

fn poisson(q: f64, z: f64) -> Event {
    Event::PoissonGaussian {
        sampling_probability: SamplingProbability::new(q).unwrap(),
        noise_multiplier: noise(z),
    }
}

fn composed(recipe: Recipe, events: &[(Event, u64)]) -> Accountant {
    let mut accountant = Accountant::new(recipe);
    for (event, rounds) in events {
        accountant.compose(event, *rounds).unwrap();
    }
    accountant
}

fn epsilon(recipe: Recipe, events: &[(Event, u64)], at: f64) -> f64 {
    composed(recipe, events)
        .guarantee(delta(at))
        .unwrap()
        .epsilon
        .get()
}

fn close(got: f64, want: f64, tolerance: f64) {
    assert!((got / want - 1.0).abs() <= tolerance, "{got} is not {want}");
}

/// `1 / b + 2 ln(1 - delta)` for one release of Laplace noise, and never more than `10 / b` for ten.
#[test]
fn f1_bounds_of_laplace_noise_keep_their_order_where_a_release_costs_more_than_31() {
    for b in [
        0.032, 0.0315, 0.031, 0.03, 0.0295, 0.0285, 0.0275, 0.0266, 0.02, 0.001,
    ] {
        let exact = 1.0 / b + 2.0 * (-1e-6f64).ln_1p();
        let (lower, upper) = composed(Recipe::Pld, &[(Event::Laplace { scale: b }, 1)])
            .bounds(delta(1e-6))
            .unwrap();
        assert!(
            lower.get() <= exact * (1.0 + 1e-12) && upper.get() >= exact * (1.0 - 1e-12),
            "{b}: {lower} {exact} {upper}"
        );
        assert!(upper.get() - lower.get() <= 1e-5 * exact, "{b}: {lower} {upper}");
    }
    let ten = composed(Recipe::Pld, &[(Event::Laplace { scale: 0.0275 }, 10)]);
    let (lower, upper) = ten.bounds(delta(1e-6)).unwrap();
    assert!(
        lower.get() <= 363.635_341_725_81
            && upper.get() >= 363.635_341_725_8
            && upper.get() <= 363.636_363_636_364
    );
}

#[test]
fn f1_a_mechanism_with_a_pure_epsilon_never_costs_more_by_any_recipe() {
    let events = [(Event::Laplace { scale: 0.02 }, 1)];
    for recipe in [Recipe::Pld, Recipe::Rdp, Recipe::best_for([&events[0].0])] {
        let accountant = composed(recipe, &events);
        assert_eq!(accountant.pure_epsilon().unwrap().get(), 50.0);
        for at in [1e-6, 1e-50, 1e-300] {
            let stated = accountant.guarantee(delta(at)).unwrap().epsilon.get();
            assert!(stated <= 50.0 && stated > 49.999, "{recipe}: {stated}");
        }
    }
    // The cap of the printed number, where Renyi divergences alone say 100.0037.
    assert_eq!(
        epsilon(Recipe::Rdp, &[(Event::Laplace { scale: 0.03125 }, 3)], 1e-6),
        96.0
    );
    for range in [33.9, 36.36, 38.0, 50.0] {
        let event = Event::BoundedRange {
            epsilon: Epsilon::new(range).unwrap(),
        };
        let (lower, upper) = composed(Recipe::Pld, &[(event, 1)]).bounds(delta(1e-6)).unwrap();
        assert!(
            lower <= upper && upper.get() <= range && range - lower.get() < 3e-3,
            "{range}: {lower} {upper}"
        );
    }
}

/// The contour integral gives 73.4996381185.
#[test]
fn f1_large_losses_beside_a_gaussian_keep_the_order_of_bounds() {
    let events = [
        (Event::Laplace { scale: 0.0275 }, 2),
        (
            Event::Gaussian {
                noise_multiplier: noise(5.0),
            },
            1,
        ),
    ];
    let (lower, upper) = composed(Recipe::Pld, &events).bounds(delta(1e-6)).unwrap();
    assert!(
        lower.get() <= 73.499_638_12 && upper.get() >= 73.499_638_11 && upper.get() <= 73.51,
        "{lower} {upper}"
    );
}

#[test]
fn f3_a_cohort_never_costs_more_than_everybody() {
    let fixed = |cohort_size: u64, z: f64, rounds: u64| {
        let event = Event::FixedSizeGaussian {
            population: 100,
            cohort_size,
            noise_multiplier: noise(z),
        };
        epsilon(Recipe::best_for([&event]), &[(event, rounds)], 1e-5)
    };
    for (z, rounds, all) in [(2.0, 100, 33.104), (5.0, 10, 2.594), (0.5, 1, 9.997)] {
        let everybody = fixed(100, z, rounds);
        close(everybody, all, 1e-3);
        for cohort in [30, 50, 70, 90, 99] {
            let spent = fixed(cohort, z, rounds);
            assert!(
                spent <= everybody,
                "{cohort} of 100 at {z}: {spent} > {everybody}"
            );
        }
    }
    // 30 of 100 is not changed by the minimum.
    close(fixed(30, 2.0, 100), 19.86, 1e-3);
    // Every order has the smaller of two bounds.
    let curve = |cohort_size| {
        let event = Event::FixedSizeGaussian {
            population: 100,
            cohort_size,
            noise_multiplier: noise(2.0),
        };
        undertone_accounting::rdp::curve(&event, &[2.0, 8.0, 64.0]).unwrap()
    };
    assert!(curve(99).iter().zip(curve(100)).all(|(some, all)| *some <= all));
}

/// Who joins a full cohort displaces another: the plain Gaussian behind it is moved by 2, not by 1. Everybody joins, so the user is kept
/// with probability 0.99, and delta(1) is that of `0.99 N(2) + 0.01 N(0)` against `N(0)`.
#[test]
fn f3_the_minimum_for_a_cut_cohort_counts_the_displaced_user() {
    let event = Event::TruncatedPoissonGaussian {
        population: 100,
        sampling_probability: SamplingProbability::new(1.0).unwrap(),
        max_cohort_size: 99,
        noise_multiplier: noise(1.0),
    };
    for recipe in [Recipe::Pld, Recipe::Rdp] {
        let stated = composed(recipe, &[(event.clone(), 1)])
            .delta_for(Epsilon::new(1.0).unwrap())
            .unwrap();
        assert!(stated.delta.get() >= 0.5036, "{recipe}: {}", stated.delta);
    }
    let one = gaussian::delta(noise(1.0), Epsilon::new(1.0).unwrap());
    assert!(one < 0.5, "the minimum with a move of 1 would be false");
}

#[test]
fn f4_calibration_to_an_epsilon_of_zero_ends_at_the_best_value() {
    let zero = |at: f64| (Epsilon::new(0.0).unwrap(), delta(at));
    let q = |value: f64| SamplingProbability::new(value).unwrap();
    assert_eq!(
        calibrate::rounds(zero(1e-3), q(0.01), noise(100.0), Recipe::Pld).unwrap(),
        628
    );
    let found = calibrate::sampling_probability(zero(1e-3), noise(100.0), 100, Recipe::Pld).unwrap();
    close(found.get(), 0.025_065_715_8, 1e-6);
    let found = calibrate::noise_multiplier(zero(1e-5), q(0.1), 128, Recipe::Pld).unwrap();
    close(found.get(), 45_135.167, 1e-5);
    let plain = Event::Gaussian {
        noise_multiplier: noise(1000.0),
    };
    assert_eq!(
        calibrate::rounds_of(zero(1e-3), &plain, Recipe::ExactGaussian).unwrap(),
        6
    );
    let range = calibrate::Range {
        safe: 1e6,
        risky: 1e-3,
        whole: false,
    };
    let scale = calibrate::parameter(zero(1e-3), range, Recipe::Pld, None, |scale| {
        Ok::<_, AccountingError>(vec![(Event::Laplace { scale }, 1)])
    });
    close(scale.unwrap(), -0.5 / (-1e-3f64).ln_1p(), 1e-6);
}

#[test]
fn f5_a_stated_guarantee_holds_at_its_own_delta_and_a_smaller_delta_is_named() {
    let event = Event::ApproximateDp {
        epsilon: Epsilon::new(0.1).unwrap(),
        delta: Some(delta(1e-5)),
    };
    for recipe in [Recipe::Pld, Recipe::Rdp] {
        let accountant = composed(recipe, &[(event.clone(), 1)]);
        assert_eq!(accountant.guarantee(delta(1e-5)).unwrap().epsilon.get(), 0.1);
        let stated = accountant.delta_for(Epsilon::new(0.1).unwrap()).unwrap();
        assert_eq!(stated.delta.get(), 1e-5);
        let error = accountant.guarantee(delta(9e-6)).unwrap_err();
        assert_eq!(
            error,
            AccountingError::DeltaBelowStated {
                stated: 1e-5,
                asked: 9e-6
            }
        );
        let text = error.to_string();
        assert!(
            text.starts_with(
                "delta: the stated deltas add up to 1e-5, which is more than 9e-6; ask for at least 1e-5"
            ),
            "{text}"
        );
    }
    assert_eq!(
        composed(Recipe::Pld, &[(event.clone(), 1)])
            .lower_bound(delta(1e-5))
            .unwrap()
            .get(),
        0.1
    );
    let three = Event::ApproximateDp {
        epsilon: Epsilon::new(2.0).unwrap(),
        delta: Some(delta(1e-7)),
    };
    close(epsilon(Recipe::Pld, &[(three, 3)], 3e-7), 6.0, 1e-7);
}

#[test]
fn f5_a_refusal_names_the_event_and_what_to_change() {
    let refusal = |recipe, event: Event| {
        let error = composed(recipe, &[(event, 3)])
            .guarantee(delta(1e-6))
            .unwrap_err();
        assert!(
            matches!(error, AccountingError::NoFiniteGuarantee { .. }),
            "{error}"
        );
        error.to_string()
    };
    let text = refusal(
        Recipe::ExactGaussian,
        Event::Gaussian {
            noise_multiplier: noise(1e-200),
        },
    );
    assert!(
        text.contains("the Gaussian event (3 times)") && text.contains("raise its noise_multiplier"),
        "{text}"
    );
    let text = refusal(
        Recipe::Pld,
        Event::RandomizedResponse {
            num_buckets: 5,
            noise_parameter: 0.0,
        },
    );
    assert!(
        text.contains("randomized-response") && text.contains("raise its noise_parameter"),
        "{text}"
    );
    let text = refusal(
        Recipe::Pld,
        Event::Binomial {
            trials: 10,
            success_probability: 0.5,
            shift: 1,
        },
    );
    assert!(
        text.contains("binomial") && text.contains("raise the delta"),
        "{text}"
    );
    let text = refusal(Recipe::Pld, Event::NonPrivate);
    assert!(
        text.contains("without noise") && text.contains("give it noise or leave it out"),
        "{text}"
    );
}

#[test]
fn f6_a_cap_at_the_mean_of_a_large_cohort_has_an_epsilon() {
    let event = |population, q, max_cohort_size| Event::TruncatedPoissonGaussian {
        population,
        sampling_probability: SamplingProbability::new(q).unwrap(),
        max_cohort_size,
        noise_multiplier: noise(1.0),
    };
    for (population, q, cap, least, most) in [
        (2_000_000_000, 1e-3, 2_000_000, 1.605_415_08, 2.100_405_45),
        (1_500_000_000, 0.01, 15_000_000, 4.617_352_47, 5.520_699_79),
        (4_000_000_000, 5e-4, 2_000_000, 0.888_863_195, 1.246_089_42),
        (2_000_000_000, 1e-3, 2_000_001, 1.605_164_55, 2.100_405_45),
    ] {
        let spent = epsilon(Recipe::Pld, &[(event(population, q, cap), 10)], 1e-6);
        assert!(spent >= least && spent <= most * 1.001, "{population}: {spent}");
    }
}

/// Rounding errors would exceed delta beyond 2^40 releases: an upper bound of 0 was seen for a true value of 1.84.
#[test]
fn f7_too_many_releases_are_refused_with_the_nearest_question_that_is_answered() {
    let ask = |rounds: u64, recipe| composed(recipe, &[(poisson(1e-8, 1.0), rounds)]).guarantee(delta(1e-6));
    let error = ask(1_000_000_000_000_000, Recipe::Pld).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, AccountingError::TooLarge { .. }), "{text}");
    assert!(
        text.contains("ask for at most 1099511627776 of them, or use the recipe 'rdp'"),
        "{text}"
    );
    // Both of the questions that it names are answered.
    assert!(ask(1_000_000_000_000_000, Recipe::Rdp).unwrap().epsilon.get() > 1.8);
    assert!(ask(1 << 40, Recipe::Pld).is_ok());
}

/// Lower bounds of more releases than a window holds are those of fewer releases, which spend no more.
#[test]
#[ignore = "slow"]
fn f7_a_lower_bound_of_very_many_releases_fits_into_memory() {
    let many = composed(Recipe::Pld, &[(poisson(3e-7, 1.0), 1_000_000_000_000)]);
    let (lower, upper) = many.bounds(delta(1e-6)).unwrap();
    assert!(
        lower.get() > 0.1 && lower.get() < 1.7332 && upper.get() > 1.7332,
        "{lower} {upper}"
    );
}

/// mpmath at 80 digits. A stated delta is never below the exact one by more than the last digit of a number.
#[test]
fn f8_a_stated_delta_of_a_gaussian_is_not_below_the_exact_one() {
    for (z, epsilon, exact) in [
        (1e4, 1e-3, 7.478_298_460_019_527e-29),
        (1e5, 1e-4, 7.474_933_991_853_69e-30),
        (1e12, 0.0, 3.989_422_804_014_327e-13),
        (1e8, 1e-9, 3.509_353_313_801_823e-9),
        (0.01, 4900.0, 0.838_900_846_637_217_8),
        (1e17, 0.0, 3.989_422_804_014_327e-18),
    ] {
        let epsilon = Epsilon::new(epsilon).unwrap();
        for stated in [
            gaussian::delta(noise(z), epsilon),
            composed(
                Recipe::ExactGaussian,
                &[(
                    Event::Gaussian {
                        noise_multiplier: noise(z),
                    },
                    1,
                )],
            )
            .delta_for(epsilon)
            .unwrap()
            .delta
            .get(),
        ] {
            assert!(
                stated >= exact * (1.0 - 4e-16) && stated <= exact * (1.0 + 1e-9),
                "{z}: {stated} {exact}"
            );
        }
    }
}

#[test]
fn f8_the_bounds_of_a_gaussian_at_its_own_delta_are_one_number() {
    let one = composed(
        Recipe::ExactGaussian,
        &[(
            Event::Gaussian {
                noise_multiplier: noise(1e4),
            },
            1,
        )],
    );
    let stated = one.delta_for(Epsilon::new(1e-3).unwrap()).unwrap();
    let lower = one.lower_bound_of(&stated).unwrap();
    assert!(
        lower <= stated.epsilon && lower.get() > 1e-3 * (1.0 - 1e-12),
        "{lower}"
    );
}

#[test]
fn f9_lower_bounds_exist_where_no_lattice_resolves_the_losses() {
    let five = composed(Recipe::Pld, &[(Event::Laplace { scale: 1.0 }, 5)]);
    close(five.lower_bound(delta(1e-50)).unwrap().get(), 5.0, 1e-9);
    // Little noise and few releases: some joined, and each of them moved the sum by very many deviations.
    for z in [1e-5, 1e-7] {
        let (lower, upper) = composed(Recipe::Pld, &[(poisson(0.01, z), 100)])
            .bounds(delta(1e-6))
            .unwrap();
        assert!(lower.get() > 0.7 * upper.get(), "{z}: {lower} {upper}");
    }
}

#[test]
fn f9_delta_exists_at_negative_epsilons() {
    let close = |accountant: &Accountant, epsilon: f64, want: f64, tolerance: f64| {
        close(accountant.delta_at(epsilon).unwrap(), want, tolerance);
    };
    let gaussian = |z, rounds| {
        composed(
            Recipe::Pld,
            &[(
                Event::Gaussian {
                    noise_multiplier: noise(z),
                },
                rounds,
            )],
        )
    };
    close(&gaussian(1.0, 1), -1.0, 0.678_817_974_887, 1e-11);
    close(&gaussian(2.0, 3), -0.3, 0.437_288_438_165, 1e-11);
    close(&gaussian(1.0, 1), -20.0, 0.999_999_997_939, 1e-11);
    close(
        &composed(Recipe::Pld, &[(poisson(0.1, 1.0), 20)]),
        -0.5,
        0.438_995_493,
        1e-6,
    );
    close(
        &composed(Recipe::Pld, &[(poisson(0.02, 0.8), 100)]),
        -1.0,
        0.633_705_845,
        1e-6,
    );
    let one = gaussian(1.0, 1);
    assert_eq!(
        one.delta_at(1.0).unwrap(),
        one.delta_for(Epsilon::new(1.0).unwrap()).unwrap().delta.get()
    );
    assert!(one.delta_at(f64::NAN).is_err());
}

#[test]
fn f9_calibrated_noise_of_a_gaussian_does_not_exceed_delta_by_the_exact_formula() {
    let target = (Epsilon::new(0.1).unwrap(), delta(1e-6));
    let one = calibrate::noise_multiplier_of(target, 1, Recipe::ExactGaussian, |noise_multiplier| {
        Event::Gaussian { noise_multiplier }
    });
    let z = one.unwrap();
    close(z.get(), 36.304_690_426_195, 1e-11);
    assert!(gaussian::delta(z, target.0) <= 1e-6);
    assert!(gaussian::delta(noise(z.get() * (1.0 - 1e-8)), target.0) > 1e-6);
}

/// The event that is replaced by another costs as the sum that moves twice as far, sampled or not.
#[test]
fn f3_no_relation_makes_sampling_dearer() {
    for adjacency in [
        Adjacency::AddOrRemoveOne,
        Adjacency::ReplaceOne,
        Adjacency::ZeroOut,
    ] {
        let spent = |recipe, event: Event| {
            let mut accountant = Accountant::under(recipe, adjacency);
            accountant.compose(&event, 20).unwrap();
            accountant.guarantee(delta(1e-6)).unwrap().epsilon.get()
        };
        let all = spent(
            Recipe::ExactGaussian,
            Event::Gaussian {
                noise_multiplier: noise(2.0),
            },
        );
        for q in [0.5, 0.99, 1.0 - 1e-9] {
            for recipe in [Recipe::Pld, Recipe::Rdp] {
                let some = spent(recipe, poisson(q, 2.0));
                assert!(
                    some <= all * (1.0 + 1e-12),
                    "{adjacency} {recipe} {q}: {some} > {all}"
                );
            }
        }
    }
}

fn under(adjacency: Adjacency, events: &[(Event, u64)], at: f64) -> f64 {
    let mut accountant = Accountant::under(Recipe::Pld, adjacency);
    for (event, rounds) in events {
        accountant.compose(event, *rounds).unwrap();
    }
    accountant.guarantee(delta(at)).unwrap().epsilon.get()
}

/// 458 rounds were stated to cost 5.45e-5, and 915 of them 3.01e-5. The values are those of a convolution of one and of two rare losses on
/// a grid of 2e-9, without any tilt, which is good to two digits more than is asked here.
#[test]
fn f10_fewer_rounds_never_cost_more_where_one_rare_loss_decides() {
    let event = poisson(1.532_452_759_991_871e-8, 0.977_432_982_848_663);
    let spent = |rounds| {
        epsilon(
            Recipe::Pld,
            &[(event.clone(), rounds)],
            4.953_823_875_390_724_5e-18,
        )
    };
    let mut fewer = 0.0;
    for (rounds, want) in [
        (458, 2.693_05e-5),
        (913, 2.976_81e-5),
        (915, 2.977_75e-5),
        (2000, 3.332_52e-5),
    ] {
        let spent = spent(rounds);
        close(spent, want, 1e-5);
        assert!(fewer < spent, "{rounds}: {fewer} {spent}");
        fewer = spent;
    }
}

/// 29 rounds were stated to cost 2.9448, 57 of them 2.9439 and 64 of them 2.6149. The values of one and of two rounds are those of
/// mpmath at 40 digits: one integral over the outcome of the first round.
#[test]
fn f10_fewer_rounds_of_a_cut_cohort_never_cost_more_at_a_delta_next_to_zero() {
    let event = Event::TruncatedPoissonGaussian {
        population: 319,
        sampling_probability: SamplingProbability::new(9.424_597_950_312_244e-9).unwrap(),
        max_cohort_size: 1,
        noise_multiplier: noise(3.200_780_328_446_956),
    };
    let spent = |rounds| {
        let events = [(event.clone(), rounds)];
        under(Adjacency::ReplaceOne, &events, 2.414_632_320_214_963e-270)
    };
    close(spent(1), 2.406_533, 1e-6);
    close(spent(2), 2.418_082, 1e-6);
    let mut fewer = 0.0;
    for rounds in [1, 2, 9, 29, 57, 64] {
        let spent = spent(rounds);
        assert!(fewer < spent && spent < 2.49, "{rounds}: {fewer} {spent}");
        fewer = spent;
    }
}

/// 43,884 rounds beside the statement were stated to cost 2.89257, and 87,767 of them 2.89251. They add next to nothing to its epsilon.
#[test]
fn f10_fewer_rounds_beside_a_stated_guarantee_never_cost_more() {
    let stated = 2.888_827_304_289_298_7;
    let spent = |rounds| {
        let events = [
            (
                Event::RandomizedResponse {
                    num_buckets: 4067,
                    noise_parameter: 0.999_999_996_226_366_9,
                },
                1,
            ),
            (
                Event::ApproximateDp {
                    epsilon: Epsilon::new(stated).unwrap(),
                    delta: None,
                },
                1,
            ),
            (
                Event::TruncatedPoissonGaussian {
                    population: 68,
                    sampling_probability: SamplingProbability::new(1.615_326_534_545_882_2e-9).unwrap(),
                    max_cohort_size: 1,
                    noise_multiplier: noise(16.680_078_592_716_587),
                },
                rounds,
            ),
        ];
        under(Adjacency::ZeroOut, &events, 2.434_813_765_007_761e-21)
    };
    let (half, all) = (spent(43_884), spent(87_767));
    assert!(half <= all * (1.0 + 1e-9), "{half} {all}");
    assert!(
        half > stated && all < stated * (1.0 + 1e-5),
        "{half} {all} {stated}"
    );
}

/// The cut cohort was stated to cost 614.03 beside the other events, and the whole population 613.07.
#[test]
fn f10_a_cohort_beside_a_large_stated_guarantee_never_costs_more_than_everybody() {
    let spent = |event: Event| {
        let events = [
            (
                Event::Binomial {
                    trials: 695_241,
                    success_probability: 0.391_071_886_894_592_5,
                    shift: 2,
                },
                1,
            ),
            (
                Event::ApproximateDp {
                    epsilon: Epsilon::new(40.863_035_705_007_23).unwrap(),
                    delta: None,
                },
                15,
            ),
            (event, 13),
        ];
        under(Adjacency::AddOrRemoveOne, &events, 2.457_621_562_159_481e-134)
    };
    let z = 18_042.520_006_648_017;
    let some = spent(Event::TruncatedPoissonGaussian {
        population: 84_709_622,
        sampling_probability: SamplingProbability::new(1.112_213_399_733_081_3e-6).unwrap(),
        max_cohort_size: 94,
        noise_multiplier: noise(z),
    });
    let all = spent(Event::Gaussian {
        noise_multiplier: noise(0.5 * z),
    });
    assert!(some <= all * (1.0 + 1e-9), "{some} {all}");
    assert!(some >= 15.0 * 40.863_035_705, "{some}");
}

/// The search tried up to 27 values of a second each, because the bound jumped by a factor of seven between them, and it ended at a quarter
/// of the best probability. The values are those of an integral over the one rare loss, good to 1e-4.
#[test]
#[ignore = "slow"]
fn f10_a_calibrated_probability_is_the_best_one_where_one_rare_loss_decides() {
    let (z, at) = (noise(0.367_968_605_892_199_26), delta(2.765_112_581_171_149e-10));
    for (target, want) in [(0.003, 7.7639e-9), (0.01, 1.577_19e-8)] {
        let target = Epsilon::new(target).unwrap();
        let found = calibrate::sampling_probability((target, at), z, 231, Recipe::Pld).unwrap();
        close(found.get(), want, 2e-4);
        let spent = |q: f64| epsilon(Recipe::Pld, &[(poisson(q, z.get()), 231)], at.get());
        assert!(spent(found.get()) <= target.get());
        assert!(spent(found.get() * (1.0 + 3e-6)) > target.get() * (1.0 - 1e-6));
    }
}

fn rarely(q: f64, event: Event) -> Event {
    Event::PoissonSampled {
        sampling_probability: SamplingProbability::new(q).unwrap(),
        event: Box::new(event),
    }
}

/// Not below the exact value by more than rounding, and at most `slack` above it.
fn just_above(got: f64, exact: f64, slack: f64) {
    assert!(
        got >= exact * (1.0 - 1e-12) && got <= exact * (1.0 + slack),
        "{got} {exact}"
    );
}

/// 11 releases were stated to cost 5.981386 and 12 of them 5.981547: two of the largest losses decide, and they were split between points of
/// a lattice. The values are those of mpmath at 30 digits: an integral over each number of rare losses, good to 1e-9.
#[test]
fn f11_fewer_releases_never_cost_more_where_largest_losses_decide() {
    let event = rarely(
        3.674_424_255_977_262e-8,
        Event::Laplace {
            scale: 0.049_854_519_661_953_395,
        },
    );
    let mut fewer = 0.0;
    for (rounds, exact) in [
        (11, 5.981_235_987),
        (12, 5.981_243_214),
        (21, 5.981_267_978),
        (22, 5.981_269_008),
    ] {
        let spent = under(
            Adjacency::ZeroOut,
            &[(event.clone(), rounds)],
            8.928_885_105_883_718e-19,
        );
        just_above(spent, exact, 1e-8);
        assert!(fewer < spent, "{rounds}: {fewer} {spent}");
        fewer = spent;
    }
}

/// Stated too large by 1e-3, 8e-5 and 5e-5. The values are those of mpmath at 40 digits: all numbers of the outcomes of equal loss, listed.
#[test]
fn f11_losses_without_a_grid_of_their_own_are_not_split_where_they_decide() {
    for (q, parameter, sensitivity, rounds, at, exact) in [
        (
            1.390_538_664_691_755_9e-9,
            7.510_681_069_177_033,
            3,
            50,
            3.252_346_076_588_672e-30,
            6.749_587_388_835_911,
        ),
        (
            4.742_340_271_405_592_4e-8,
            25.250_850_600_845_844,
            2,
            136,
            5.452_146_084_112_411_5e-9,
            33.636_702_289_802_73,
        ),
        (
            0.003_030_614_118_025_604_5,
            25.093_694_084_124_394,
            2,
            29,
            2.699_396_441_289_009_6e-16,
            355.041_159_955_507_7,
        ),
    ] {
        let event = rarely(
            q,
            Event::DiscreteLaplace {
                parameter,
                sensitivity,
            },
        );
        just_above(under(Adjacency::ZeroOut, &[(event, rounds)], at), exact, 1e-8);
    }
}

/// Stated too large by 1.4e-4: below a sum of the largest losses, delta falls faster than coarse lattices show. The value is that of mpmath at
/// 40 digits: all numbers of the three outcomes, listed.
#[test]
fn f11_lattices_suit_the_fall_of_delta_below_a_single_loss() {
    let event = rarely(
        6.405_617_914_168_345e-4,
        Event::DiscreteLaplace {
            parameter: 4.598_628_522_327_392,
            sensitivity: 2,
        },
    );
    let spent = under(Adjacency::ZeroOut, &[(event, 270)], 4.596_000_461_753_164e-18);
    just_above(spent, 21.734_459_168_335_595, 1e-6);
}

/// At 6 % more noise two improbable outcomes of two releases are as probable as delta, and their large losses decide. The values are those of
/// mpmath at 60 digits: all sums of two losses, listed.
#[test]
fn f11_more_discrete_gaussian_noise_may_cost_more() {
    for (factor, exact) in [
        (1.0, 459.138_394_402_628_4),
        (1.04, 424.499_255_238_583_4),
        (1.06, 510.203_179_354_073_55),
    ] {
        let event = Event::DiscreteGaussian {
            sigma: 0.161_666_046_319_284_1 * factor,
            sensitivity: 3,
        };
        let spent = under(Adjacency::ZeroOut, &[(event, 2)], 7.212_878_031_327_995e-16);
        just_above(spent, exact, 1e-9);
    }
}

/// The lower bound was looked for without end: where all losses lie far above, a rounding error made the start of a search infinite. The value is
/// that of the closed form, a binomial sum of gamma distributions.
#[test]
fn f12_bounds_of_many_releases_with_large_losses_are_found() {
    let mut accountant = Accountant::under(Recipe::Pld, Adjacency::ReplaceOne);
    let event = Event::Laplace {
        scale: 0.001_780_004_164_554_939_7,
    };
    accountant.compose(&event, 14_827).unwrap();
    let (lower, upper) = accountant.bounds(delta(3.681_577_183_258_904e-14)).unwrap();
    let exact = 16_646_218.737;
    assert!(
        lower.get() <= exact && lower.get() > exact * (1.0 - 3e-6),
        "{lower:?}"
    );
    // The sum of the largest losses is all that is known from above.
    assert!(
        upper.get() >= exact && upper.get() < exact * (1.0 + 1e-3),
        "{upper:?}"
    );
}

/// A population of one has no others, and the case in which they fill the cohort never occurs. 55 rounds were stated to cost 1.105e-4, and 110
/// of them 3.84e-5. The values are those of a convolution on two grids, 8e-12 and 4e-12 apart, under a tilt of 1e8.
#[test]
fn f13_a_case_that_never_occurs_costs_nothing() {
    let (q, z) = (5.016_953_241_255_603_4e-8, 7.300_657_765_873_348);
    let alone = Event::TruncatedPoissonGaussian {
        population: 1,
        sampling_probability: SamplingProbability::new(q).unwrap(),
        max_cohort_size: 1,
        noise_multiplier: noise(z),
    };
    for (rounds, exact) in [(55, 5.379_973_59e-7), (110, 7.433_239_00e-7)] {
        let spent = |event: &Event| {
            under(
                Adjacency::ZeroOut,
                &[(event.clone(), rounds)],
                2.428_086_602_978_307e-30,
            )
        };
        let (cut, whole) = (spent(&alone), spent(&poisson(q, z)));
        assert!(cut >= exact * (1.0 - 1e-8), "{rounds}: {cut}");
        close(cut, exact, 1e-6);
        close(cut, whole, 1e-9);
    }
}

/// 155 rounds were stated to cost 2.87e-3, and 310 of them 1.28e-3: the largest losses are 100,000 times as large as those that decide, and one
/// lattice held both. The values are those of a convolution on a grid of 4e-10, without any tilt.
#[test]
fn f13_losses_far_above_those_that_decide_get_a_lattice_of_their_own() {
    let event = Event::TruncatedPoissonGaussian {
        population: 443,
        sampling_probability: SamplingProbability::new(2.835_578_161_837_095_3e-7).unwrap(),
        max_cohort_size: 1,
        noise_multiplier: noise(1.038_758_097_799_090_2),
    };
    for (rounds, exact) in [(155, 1.788_866_50e-5), (310, 2.617_732_10e-5)] {
        let events = [(event.clone(), rounds)];
        let spent = under(Adjacency::ReplaceOne, &events, 2.128_100_457_731_11e-8);
        assert!(spent >= exact * (1.0 - 1e-8), "{rounds}: {spent}");
        close(spent, exact, 2e-6);
    }
}

/// Rounds in which five of 26,720 bring the person decide here. They were stated to cost 5275.58. The value is the sum over the numbers of
/// rounds with a full and with a free cohort in which the person is, of the closed form for the Gaussian loss of each.
#[test]
fn f13_many_people_of_whom_a_cohort_holds_three() {
    let event = Event::TruncatedPoissonGaussian {
        population: 934_361_174,
        sampling_probability: SamplingProbability::new(3.186_453_689_860_956_3e-9).unwrap(),
        max_cohort_size: 3,
        noise_multiplier: noise(0.045_200_230_757_192_01),
    };
    let spent = under(Adjacency::ZeroOut, &[(event, 26720)], 7.655_628_691_160_518e-27);
    let exact = 4_967.852_541_8;
    assert!(spent >= exact, "{spent}");
    close(spent, exact, 1e-6);
}

/// Rare losses had a cell for each step of a lattice, a million in all, and 53 Gaussians in each: 20 seconds. The bounds were 0 and 25.32.
#[test]
fn f13_rare_losses_of_many_gaussians_are_bounded_on_both_sides() {
    let mut accountant = Accountant::under(Recipe::Pld, Adjacency::ReplaceOne);
    let event = Event::ExampleLevelSampling {
        group_size: 52,
        sampling_probability: SamplingProbability::new(1.053_765_858_006_813_7e-6).unwrap(),
        noise_multiplier: noise(1.512_302_517_201_375_8),
    };
    accountant.compose(&event, 70_478).unwrap();
    let delta = Delta::new(2.392_818_010_418_949e-30).unwrap();
    let (spent, enough) = accountant.bounds(delta).unwrap();
    assert!(
        spent.get() > 0.2114 && enough.get() < 0.211_81,
        "{spent} {enough}"
    );
}
