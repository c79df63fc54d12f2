//! Advice on a small synthetic population, against its parts.

use undertone_accounting::Accountant;

use super::*;
use undertone_run::Silent;
use undertone_run_directory::config::parse_as;

const SMALL: &str = r#"
name = "advice"
seed = 5
rounds = 30
[data]
source = { kind = "synthetic", users = 300, words = 40 }
[model]
family = "cifg"
cells = 8
embedding = 6
projection = 6
tied = true
[cohort]
sampling = "poisson"
users_per_round = 32
[user_update]
algorithm = "fedsgd"
batch_size = 8
learning_rate = 1.0
[clip]
kind = "flat"
norm = 1.0
[privacy]
noise_multiplier = 1.0
delta = 1e-4
"#;

fn file() -> RunFile {
    RunFile::new(parse_as(SMALL, Path::new("advice.toml"), &[]).unwrap(), ".")
}

fn corpus() -> (tempfile::TempDir, Corpus) {
    let folder = tempfile::tempdir().unwrap();
    let data = file().config.data;
    let corpus = Corpus::open(&data, Path::new("."), folder.path(), &CorpusProgress(&Silent)).unwrap();
    (folder, corpus)
}

fn request() -> AdviceRequest {
    AdviceRequest {
        compute_budget: 128,
        rounds: 30,
        epsilon: 4.0,
        delta: 1e-4,
        group_size: GroupSize::PrivateMedian {
            epsilon: 0.5,
            largest: 1 << 12,
        },
        probe_users: 40,
        start: (1, 16),
        seed: Some(3),
        threads: 2,
    }
}

fn ask(request: &AdviceRequest, proxy: Option<&RunFile>) -> Result<Advice> {
    let folder = tempfile::tempdir().unwrap();
    advise(&file(), proxy, request, folder.path(), &Silent)
}

fn epsilon_of(configured: &Configured, group_size: u64, advice: &Advice) -> f64 {
    let mut accountant = Accountant::new(Recipe::Pld);
    let step = Event::ExampleLevelSampling {
        group_size: group_size as u32,
        sampling_probability: SamplingProbability::new(configured.sampling_probability).unwrap(),
        noise_multiplier: undertone_accounting::NoiseMultiplier::new(configured.noise_multiplier).unwrap(),
    };
    accountant.compose(&step, advice.rounds).unwrap();
    let delta = Delta::new(advice.delta).unwrap();
    accountant.guarantee(delta).unwrap().epsilon.get()
}

#[test]
fn the_advice_is_what_its_parts_say() {
    let advice = ask(&request(), None).unwrap();
    let (_folder, corpus) = corpus();
    let users = corpus.partition(Split::Train);
    let sizes: Vec<u64> = users.users().map(|user| user.num_examples() as u64).collect();
    assert_eq!(advice.users, sizes.len() as u64);
    // The median, and its place among the users.
    let median = advice.median.unwrap();
    assert_eq!((median.epsilon, advice.training_epsilon), (0.5, 3.5));
    let group_size = advice.els.group_size;
    let below = sizes.iter().filter(|size| **size < group_size).count() as f64;
    let above = sizes.iter().filter(|size| **size > group_size).count() as f64;
    let middle = 0.5 * sizes.len() as f64;
    assert!(below.max(above) - middle <= median.rank_error, "{group_size}");
    // Batches and probabilities.
    let kept: u64 = sizes.iter().map(|size| *size.min(&group_size)).sum();
    assert_eq!(advice.els_examples, kept);
    assert_eq!(advice.els.sampling_probability, 128.0 / kept as f64);
    assert_eq!(advice.uls.group_size * advice.uls.batch, 128);
    let q = advice.uls.batch as f64 / sizes.len() as f64;
    assert_eq!(advice.uls.sampling_probability, q);
    // Both trainings hold what the median left, and nothing is wasted.
    for (configured, group_size) in [(&advice.els, group_size), (&advice.uls, 1)] {
        let epsilon = epsilon_of(configured, group_size, &advice);
        assert!(epsilon <= 3.5 && epsilon > 3.5 * (1.0 - 1e-4), "{epsilon}");
    }
    // Equations 5 to 7.
    let els = advice.els.noise_multiplier * advice.els.gradient_norm / 128.0;
    let uls = advice.uls.noise_multiplier * advice.uls.gradient_norm / advice.uls.batch as f64;
    assert!((advice.variance_ratio / (uls / els).powi(2) - 1.0).abs() < 1e-12);
    assert_eq!(
        advice.recommended == Recommended::Uls,
        advice.variance_ratio < 1.0
    );
    assert_eq!(advice.doubling.steps.len(), 3);
    let said = advice.privacy.join("\n");
    assert!(
        said.contains("seeded") && said.contains("NOT private: the gradient norms"),
        "{said}"
    );
}

/// The median of norms that are computed by other means: one gradient per example, added up in double precision.
#[test]
fn gradient_norms_are_those_computed_by_hand() {
    let (_folder, corpus) = corpus();
    let users = corpus.partition(Split::Train);
    let model = file().config.task.model.build(corpus.vocab().len()).unwrap();
    let parameters = model.initial_params(7);
    let randomness = Randomness::seeded(1);
    let all = users.num_users();
    let mut probe = Probe::new(model.as_ref(), &parameters, &users, all, &randomness, 2).unwrap();
    // More examples than anybody has: no choice is left.
    let got = probe.median_norm(1 << 40, &|| ()).unwrap();
    let mut worker = model.worker(1, 64);
    let mut gradient = vec![0.0; parameters.len()];
    let mut norms: Vec<f64> = users
        .users()
        .map(|user| {
            let mut sum = vec![0.0f64; parameters.len()];
            for example in user.examples() {
                let batches = undertone_local::batch::sentences(&[example], 1, users.special().bos);
                worker
                    .gradient(&parameters, &batches[0].batch(), &mut gradient)
                    .unwrap();
                sum.iter_mut()
                    .zip(&gradient)
                    .for_each(|(sum, value)| *sum += f64::from(*value));
            }
            let squares: f64 = sum.iter().map(|value| value * value).sum();
            squares.sqrt() / user.num_examples() as f64
        })
        .collect();
    norms.sort_by(f64::total_cmp);
    let middle = norms.len() / 2;
    let want = match norms.len() % 2 {
        0 => 0.5 * (norms[middle - 1] + norms[middle]),
        _ => norms[middle],
    };
    assert!((got / want - 1.0).abs() < 1e-4, "{got} {want}");
    // Averages of more examples are shorter.
    assert!(probe.median_norm(1, &|| ()).unwrap() > got);
}

#[test]
#[ignore = "slow"]
fn threads_change_nothing_and_a_proxy_is_said() {
    let one = ask(
        &AdviceRequest {
            threads: 1,
            ..request()
        },
        None,
    )
    .unwrap();
    let proxied = ask(&request(), Some(&file())).unwrap();
    // The proxy is the same corpus here.
    assert_eq!(
        (one.els, one.uls, &one.doubling),
        (proxied.els, proxied.uls, &proxied.doubling)
    );
    assert!(proxied.probed_proxy && !one.probed_proxy);
    let said = proxied.privacy.join("\n");
    assert!(!said.contains("NOT private: the gradient"), "{said}");
}

#[test]
fn requests_that_the_corpus_or_the_budget_cannot_meet_are_refused_by_key() {
    let message = |change: &dyn Fn(&mut AdviceRequest)| {
        let mut request = request();
        change(&mut request);
        ask(&request, None).unwrap_err().to_string()
    };
    assert!(
        message(&|request| request.compute_budget = 100).contains("`compute_budget`: expected group size 1")
    );
    assert!(message(&|request| request.compute_budget = 1 << 30).contains("the examples left"));
    assert!(message(&|request| request.epsilon = 0.5).contains("more than the 0.5 of the median"));
    assert!(message(&|request| request.start = (1, 512)).contains("compute_budget"));
    assert!(
        message(&|request| request.group_size = GroupSize::Given(0))
            .contains("`group_size`: expected at least 1")
    );
}
