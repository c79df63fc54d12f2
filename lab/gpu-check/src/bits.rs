//! The bits that have to be equal: those of the kernels on two machines, updates in other slots, rounds that are repeated, and sums.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use undertone_aggregation::AggregationError;
use undertone_aggregation::{
    Bound, BoundedSum, Clipping, Factor, GpuPart, GpuSum, Limbs, NonFinite, ParamLayout,
};
use undertone_gpu::Trainer;
use undertone_gpu_sum::{Emulator, UnitSlots};
use undertone_local::LocalOutcome;

use crate::world::{Cohort, Kept, Sum, World};

/// The kernels of the sum against known answers, and those of local training against the emulator.
pub(crate) fn kernels<M: Trainer + Clone>(machine: &M) -> anyhow::Result<Value> {
    undertone_gpu_sum::self_test(machine)?;
    undertone_gpu::self_test(machine)?;
    let mut values = 0;
    let mut differing = 0;
    for world in World::all(true)? {
        let cohort = Cohort::uneven(9, 11, 7, world.ids);
        let of = |kept: Vec<(usize, Vec<f32>, LocalOutcome)>| -> Vec<u32> {
            kept.iter()
                .flat_map(|(_, update, _)| update.iter().map(|value| value.to_bits()))
                .collect()
        };
        let (ours, theirs) = (Kept::default(), Kept::default());
        world.train(
            &mut world.engine(machine, &cohort, 4)?,
            &cohort,
            &cohort.places(),
            &ours,
        )?;
        let emulator = Emulator::default();
        world.train(
            &mut world.engine(&emulator, &cohort, 4)?,
            &cohort,
            &cohort.places(),
            &theirs,
        )?;
        let (ours, theirs) = (of(ours.sorted()), of(theirs.sorted()));
        values += ours.len();
        differing += ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
    }
    Ok(json!({"values": values, "differing_from_the_emulator": differing, "holds": differing == 0}))
}

/// Updates of the same users alone, and in other slots beside other users.
pub(crate) fn independence<M: Trainer + Clone>(machine: &M, small: bool) -> anyhow::Result<Value> {
    let (users, settings) = if small { (7, 3) } else { (48, 6) };
    let (mut tried, mut differing) = (0, 0);
    for world in World::all(small)? {
        let cohort = world.cohort(users);
        let mut alone = Vec::new();
        let mut engine = world.engine(machine, &cohort, 1)?;
        for place in cohort.places() {
            let kept = Kept::default();
            world.train(&mut engine, &cohort, &[place], &kept)?;
            alone.extend(kept.sorted());
        }
        for setting in 0..settings {
            let slots = [2, 5, 16, 33, users, users + 3][setting % 6];
            let mut places = cohort.places();
            places.rotate_left(setting * 5 % users);
            if setting % 2 == 1 {
                places.reverse();
            }
            let kept = Kept::default();
            world.train(
                &mut world.engine(machine, &cohort, slots)?,
                &cohort,
                &places,
                &kept,
            )?;
            for ((_, update, _), (_, expected, _)) in kept.sorted().iter().zip(&alone) {
                tried += 1;
                let differ = |(a, b): &(&f32, &f32)| a.to_bits() != b.to_bits();
                differing += update.iter().zip(expected).filter(differ).count();
            }
        }
    }
    Ok(json!({"updates": tried, "differing_values": differing, "holds": differing == 0}))
}

/// The digest of the sums of several rounds, twice. Each round starts from parameters that the round before moved.
pub(crate) fn determinism<M: Trainer + Clone>(machine: &M, small: bool) -> anyhow::Result<Value> {
    let (users, rounds) = if small { (6, 2) } else { (64, 5) };
    let digest = || -> anyhow::Result<String> {
        let mut digest = Sha256::new();
        for mut world in World::all(small)? {
            let cohort = world.cohort(users);
            let mut engine = world.engine(machine, &cohort, 32)?;
            for _ in 0..rounds {
                let sink = Sum::new(world.bound(), true);
                world.train(&mut engine, &cohort, &cohort.places(), &sink)?;
                let steps = sink.steps()?;
                for (parameter, step) in world
                    .theta
                    .iter_mut()
                    .zip(&steps[steps.len() - world.model.layout().len()..])
                {
                    *parameter += *step as f32 * 2f32.powi(-40) / users as f32;
                }
                steps.iter().for_each(|step| digest.update(step.to_le_bytes()));
            }
        }
        Ok(digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    };
    let (first, second) = (digest()?, digest()?);
    Ok(json!({"digest": first, "rounds": World::all(small)?.len() * rounds, "holds": first == second}))
}

/// A part of a GPU whose first norm is wrong.
struct Faulty<'a>(&'a mut dyn GpuPart);

impl GpuPart for Faulty<'_> {
    fn units(&self) -> usize {
        self.0.units()
    }

    fn parameters(&self) -> usize {
        self.0.parameters()
    }

    fn norms(&mut self) -> Result<Vec<Limbs>, AggregationError> {
        let mut norms = self.0.norms()?;
        if let Some(norm) = norms.first_mut() {
            norm.sums[0] ^= 1;
        }
        Ok(norms)
    }

    fn update(&mut self, unit: usize, into: &mut [f32]) -> Result<(), AggregationError> {
        self.0.update(unit, into)
    }

    fn add(&mut self, factors: &[Factor]) -> Result<(), AggregationError> {
        self.0.add(factors)
    }

    fn take(&mut self) -> Result<GpuSum, AggregationError> {
        self.0.take()
    }
}

/// Sums of trained updates and of hostile vectors, and an audit of a wrong norm.
pub(crate) fn exactness<M: Trainer + Clone>(machine: &M, small: bool) -> anyhow::Result<Value> {
    let (mut values, mut differing) = (0, 0);
    for world in World::all(small)? {
        let cohort = world.cohort(if small { 6 } else { 40 });
        let mut sums = Vec::new();
        for on_gpu in [true, false] {
            let sink = Sum::new(world.bound(), on_gpu);
            world.train(
                &mut world.engine(machine, &cohort, 16)?,
                &cohort,
                &cohort.places(),
                &sink,
            )?;
            sums.push(sink.steps()?);
        }
        values += sums[0].len();
        differing += sums[0].iter().zip(&sums[1]).filter(|(a, b)| a != b).count();
    }
    let (vectors, len) = if small { (40, 999) } else { (4000, 10_001) };
    let bound = {
        let layout = Arc::new(ParamLayout::with_tensor_groups(vec![("w".into(), vec![len])])?);
        Bound::new(layout, Clipping::Flat { clip_norm: 1.5 }, NonFinite::Zero)
    };
    let mut slots = UnitSlots::new(machine.clone(), &bound, 8)?;
    let (on_gpu, on_host) = (BoundedSum::new(bound.clone()), BoundedSum::new(bound));
    let mut audits = 0;
    for part in 0..vectors / 8 {
        for slot in 0..8 {
            let update = hostile(len, part * 8 + slot);
            on_host.add(&update, 0.75)?;
            slots.write(slot, &update)?;
        }
        if BoundedSum::new(on_host.bound().clone())
            .add_on_gpu(&mut Faulty(&mut slots), &[0.75; 8], &[0])
            .is_err()
        {
            audits += 1;
        }
        on_gpu.add_on_gpu(&mut slots, &[0.75; 8], &[7])?;
    }
    let steps = |sum| Sum::of(sum).steps();
    let (on_gpu, on_host) = (steps(on_gpu)?, steps(on_host)?);
    values += on_gpu.len();
    differing += on_gpu.iter().zip(&on_host).filter(|(a, b)| a != b).count();
    let found = audits == vectors / 8;
    Ok(json!({
        "values": values,
        "differing_values": differing,
        "hostile_vectors": vectors,
        "planted_faults_found": format!("{audits} of {}", vectors / 8),
        "holds": differing == 0 && found,
    }))
}

/// Values of all magnitudes, and now and then one that is not finite.
fn hostile(len: usize, seed: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let bits = (state >> 32) as u32;
            let exponent = match seed % 4 {
                0 => 110 + bits % 20,
                1 => bits % 254,
                2 => 140 + bits % 100,
                _ => 1 + bits % 250,
            };
            let broken = seed % 16 == 15 && state.is_multiple_of(1000);
            f32::from_bits(if broken {
                0x7f80_0000
            } else {
                bits & 0x807f_ffff | exponent << 23
            })
        })
        .collect()
}
