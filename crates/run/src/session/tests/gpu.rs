//! Rounds whose sum a GPU makes. The GPU is this processor, with digits of its own.

use undertone_aggregation::Limbs;

use super::*;

/// The norms of an update, group after group, by plain integers.
fn norms(round: &Round, update: &[f32]) -> Vec<Limbs> {
    let groups = round.gpu_groups().unwrap().into_iter();
    let of_group = |spans: Vec<std::ops::Range<usize>>| {
        let values = || spans.iter().flat_map(|span| &update[span.clone()]);
        let largest = values().map(|value| value.abs().to_bits()).max().unwrap_or(0);
        let mut sums = [0; 4];
        for value in values() {
            let square = u128::from(magnitude(*value)).pow(2);
            for (place, sum) in sums.iter_mut().enumerate() {
                *sum += (square >> (32 * place)) as u64 & 0xffff_ffff;
            }
        }
        Limbs { largest, sums }
    };
    groups.map(of_group).collect()
}

/// `|q|` of a value below `2^22`.
fn magnitude(value: f32) -> u64 {
    (f64::from(value.abs()) * 2f64.powi(40)) as u64
}

/// Adds a unit as a GPU would.
fn add(round: &Round, sum: &mut [i64], unit: usize, update: &[f32]) -> Result<()> {
    let factors = round.add_on_gpu(unit, &norms(round, update))?.groups();
    if round.audits(unit) {
        round.audit(update)?;
    }
    for (spans, (factor, halvings)) in round.gpu_groups().unwrap().into_iter().zip(factors) {
        assert_eq!(halvings, 0);
        for place in spans.into_iter().flatten() {
            let length = (u128::from(magnitude(update[place])) * u128::from(factor)) >> 30;
            sum[place] += length as i64 * if update[place] < 0.0 { -1 } else { 1 };
        }
    }
    Ok(())
}

/// An update of a unit in a round.
fn update(round: u64, unit: usize) -> Vec<f32> {
    let value = |place: usize| (round as f32 + 1.0) * (unit as f32 - 1.5) * 0.1f32.powi(place as i32);
    (0..DIM).map(value).collect()
}

/// The digests of all rounds, and the folder.
fn trained(out: &Path, text: &str, on_gpu: bool) -> (Vec<String>, PathBuf) {
    let mut session = create(out, text, false).unwrap();
    let mut digests = Vec::new();
    while let Some(round) = session.next_round().unwrap() {
        let mut sum = vec![0; DIM];
        for unit in 0..round.examples().map_or(round.users().len(), <[_]>::len) {
            let update = update(round.index(), unit);
            match on_gpu {
                true => add(round, &mut sum, unit, &update).unwrap(),
                false => drop(round.add(unit, &update).unwrap()),
            }
        }
        if on_gpu {
            round.merge_gpu(0, &sum[..2]).unwrap();
            round.merge_gpu(2, &sum[2..]).unwrap();
        }
        digests.push(session.release(&mut [0.0; DIM]).unwrap().sha256);
    }
    (digests, session.finish(&[1.0; DIM]).unwrap())
}

#[test]
#[ignore = "slow"]
fn the_sum_of_a_gpu_is_that_of_the_host_and_the_report_names_what_it_assumes() {
    let layers = POISSON.replace("[privacy]", "[clip]\nkind = \"per_layer\"\nnorm = 0.4\n[privacy]");
    for text in [ULS, POISSON, ELS, ADAPTIVE, &layers] {
        let seeded = format!("seed = 7\n{text}");
        let (host, gpu) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (expected, plain) = trained(host.path(), &seeded, false);
        let (found, folder) = trained(gpu.path(), &seeded, true);
        assert_eq!(found, expected, "{text}");
        assert_eq!(problems(&folder), "", "{text}");
        let statement = |folder: &Path| {
            let report = fs::read_to_string(folder.join("privacy.json")).unwrap();
            report.contains("A device such as a GPU, led by the program that trained")
        };
        assert_eq!((statement(&plain), statement(&folder)), (false, true));
        let lines = |folder: &Path| {
            let ledger = fs::read_to_string(folder.join(LEDGER_FILE)).unwrap();
            ledger.matches("\"summed_on_device\":true").count()
        };
        assert_eq!((lines(&plain), lines(&folder)), (0, expected.len()));
    }
}

#[test]
fn the_published_ledger_says_that_a_gpu_made_the_sum() {
    let out = TempDir::new().unwrap();
    let (_, folder) = trained(out.path(), ULS, true);
    let published = out.path().join("published");
    undertone_verify::publish(&folder, &published).unwrap();
    assert_eq!(problems(&published), "");
}

#[test]
fn a_unit_that_is_announced_is_not_forgotten() {
    let out = TempDir::new().unwrap();
    let text = POISSON.replace("users_per_round = 8", "sampling_probability = 1.0");
    let mut session = create(out.path(), &text, false).unwrap();
    let says = |result: Result<()>, expected: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let awaits = "a unit that a GPU has measured: expected its norms";
    let (update, mut sum) = ([0.1; DIM], vec![0; DIM]);
    let round = session.next_round().unwrap().unwrap();
    says(round.announce(USERS as usize), "expected a unit from 0 to 19");
    round.announce(3).unwrap();
    says(round.announce(3), awaits);
    says(round.announce(4), awaits);
    says(round.merge_gpu(0, &[0; DIM]), awaits);
    // A unit that comes at once does not take the place of the one that is announced.
    add(round, &mut sum, 5, &update).unwrap();
    says(round.announce(5), "it has contributed before");
    says(session.release(&mut [0.0; DIM]).map(drop), awaits);
    let round = session.open_round().unwrap();
    add(round, &mut sum, 3, &update).unwrap();
    says(round.announce(3), "it has contributed before");
    // Norms that are refused end the announcement, and the unit can come again.
    round.announce(4).unwrap();
    says(round.add_on_gpu(4, &[]).map(drop), "norms of a unit");
    round.announce(4).unwrap();
    add(round, &mut sum, 4, &update).unwrap();
    round.merge_gpu(0, &sum).unwrap();
    says(round.announce(6), "the sum of the GPU was taken before");
    session.release(&mut [0.0; DIM]).unwrap();
    // What was announced goes with its round.
    session.next_round().unwrap().unwrap().announce(3).unwrap();
    drop(session);
    let mut session = create(out.path(), &text, true).unwrap();
    assert_eq!(one_round(&mut session).unwrap().unwrap().len(), DIM);
}

/// Something that a GPU gets wrong.
type Fault = fn(&Round) -> Result<()>;

#[test]
fn a_faulty_gpu_never_gets_a_release() {
    let text = POISSON.replace("users_per_round = 8", "sampling_probability = 1.0");
    let faults: [(&str, Fault); 3] = [
        ("norm of unit", |round| {
            let audited = (0..USERS as usize).find(|&unit| round.audits(unit)).unwrap();
            let mut norms = norms(round, &[0.1; DIM]);
            norms[0].sums[0] += 1;
            round.add_on_gpu(audited, &norms)?;
            round.audit(&[0.1; DIM])
        }),
        ("norm of unit", |round| {
            let mut norms = norms(round, &[0.1; DIM]);
            norms[0].sums[3] = u64::MAX;
            let unit = (0..USERS as usize).find(|&unit| !round.audits(unit)).unwrap();
            round.add_on_gpu(unit, &norms).map(drop)
        }),
        ("sum at index 4", |round| {
            let mut sum = vec![0; DIM];
            add(round, &mut sum, 0, &[0.1; DIM])?;
            sum[4] += 1 << 45;
            round.merge_gpu(0, &sum)
        }),
    ];
    for (expected, fault) in faults {
        let out = TempDir::new().unwrap();
        let mut session = create(out.path(), &text, false).unwrap();
        let error = fault(session.next_round().unwrap().unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
        let round = session.open_round().unwrap();
        let error = add(round, &mut [0; DIM], 1, &[0.1; DIM]).unwrap_err().to_string();
        assert!(error.contains("gave a wrong norm or sum"), "{error}");
        let mut average = [2.0; DIM];
        let error = session.release(&mut average).unwrap_err().to_string();
        assert!(error.contains("gave a wrong norm or sum"), "{error}");
        assert_eq!((average, session.round()), ([2.0; DIM], 0));
        // A session that goes on makes the round again.
        drop(session);
        let mut session = create(out.path(), &text, true).unwrap();
        assert_eq!(one_round(&mut session).unwrap().unwrap().len(), DIM);
    }
}
