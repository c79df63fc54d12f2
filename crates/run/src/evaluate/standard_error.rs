//! The standard error of a share over held-out users, and of the difference of two models on equal users.
//!
//! The share is a ratio of sums over users, `r = sum_u h_u / sum_u t_u`, and users are drawn independently of one another while the
//! targets of one user are not. The influence of a user on the ratio is `z_u = (h_u - r t_u) / sum_v t_v`. The variance of the
//! ratio is then about `n / (n - 1) sum_u z_u^2` for n users. Two models on equal users are paired by `z_u - z'_u`.
//!
//! Source: the linearisation of a ratio, Cochran, "Sampling Techniques", 1977, section 6.4, with users as units.

use super::tally::Counts;

/// The influence of each user with a target on `part / whole`, in order; none where nothing is measured.
pub(super) fn influence(
    users: &[Counts],
    total: &Counts,
    part: impl Fn(&Counts) -> f64,
    whole: impl Fn(&Counts) -> f64,
) -> Vec<f64> {
    let (all, ratio) = (whole(total), part(total) / whole(total));
    let measured = users.iter().filter(|user| user.targets > 0);
    measured
        .map(|user| (part(user) - ratio * whole(user)) / all)
        .collect()
}

/// The standard error of a figure with these influences of its users; `None` with fewer than two users.
///
/// # Example
/// ```
/// use undertone_run::evaluate::standard_error;
///
/// // Two users with one target each, of which one is right: the ratio is 1/2, and the influences are 1/4 and -1/4.
/// assert_eq!(standard_error(&[0.25, -0.25]), Some(0.5));
/// assert_eq!(standard_error(&[0.25]), None);
/// ```
#[must_use]
pub fn standard_error(influences: &[f64]) -> Option<f64> {
    let n = influences.len() as f64;
    let squares: f64 = influences.iter().map(|value| value * value).sum();
    (influences.len() > 1).then(|| (n / (n - 1.0) * squares).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(figures: &[(u64, u64, f64)]) -> (Vec<Counts>, Counts) {
        let of = |&(targets, hits, loss): &(u64, u64, f64)| Counts {
            targets,
            top: [hits; 3],
            loss,
            ..Counts::default()
        };
        let users: Vec<Counts> = figures.iter().map(of).collect();
        let sum = |part: fn(&Counts) -> u64| users.iter().map(part).sum();
        let total = Counts {
            targets: sum(|user| user.targets),
            top: [sum(|user| user.top[0]); 3],
            loss: users.iter().map(|user| user.loss).sum(),
            ..Counts::default()
        };
        (users, total)
    }

    fn error(users: &[Counts], total: &Counts) -> Option<f64> {
        let hits = |user: &Counts| user.top[0] as f64;
        standard_error(&influence(users, total, hits, |user| user.targets as f64))
    }

    /// With equal numbers of targets the ratio is a mean over users, and its error that of the mean.
    #[test]
    fn equal_users_have_the_standard_error_of_a_mean() {
        let (users, total) = users(&[(4, 1, 0.0), (4, 2, 0.0), (4, 0, 0.0), (4, 4, 0.0)]);
        let rates = [0.25, 0.5, 0.0, 1.0];
        let mean = rates.iter().sum::<f64>() / 4.0;
        let squares: f64 = rates.iter().map(|rate: &f64| (rate - mean).powi(2)).sum();
        let expected = (squares / 3.0 / 4.0).sqrt();
        assert!((error(&users, &total).unwrap() - expected).abs() < 1e-15);
    }

    /// Users without a target say nothing, and neither does one user alone.
    #[test]
    fn an_error_needs_two_users_with_targets() {
        let (one, total) = users(&[(4, 1, 0.0), (0, 0, 0.0)]);
        assert_eq!(error(&one, &total), None);
        let (none, total) = users(&[]);
        assert_eq!(error(&none, &total), None);
    }

    /// Users are drawn again with replacement, and the spread of the ratio is compared with the formula. The seed is fixed, so there is
    /// no false alarm.
    #[test]
    fn the_formula_agrees_with_a_bootstrap_over_users() {
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        // Users differ in size by a factor of 60, and in their accuracy.
        let figures: Vec<(u64, u64, f64)> = (0..300)
            .map(|_| {
                let targets = 1 + draw(60);
                let skill = 1 + draw(9);
                let hits = (0..targets).filter(|_| draw(10) < skill).count() as u64;
                (targets, hits, targets as f64 * (1.0 + draw(100) as f64 / 50.0))
            })
            .collect();
        let (users, total) = users(&figures);
        for part in [|user: &Counts| user.top[0] as f64, |user: &Counts| user.loss] {
            let formula =
                standard_error(&influence(&users, &total, part, |user| user.targets as f64)).unwrap();
            let ratios: Vec<f64> = (0..2000)
                .map(|_| {
                    let (mut above, mut below) = (0.0, 0.0);
                    for _ in 0..users.len() {
                        let user = &users[draw(users.len() as u64) as usize];
                        above += part(user);
                        below += user.targets as f64;
                    }
                    above / below
                })
                .collect();
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
            let spread = (squares / (ratios.len() as f64 - 1.0)).sqrt();
            assert!((formula / spread - 1.0).abs() < 0.06, "{formula} {spread}");
        }
    }
}
