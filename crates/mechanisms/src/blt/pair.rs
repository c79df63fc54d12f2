//! Output scales from the decays of a matrix and of its inverse.

use crate::error::{Result, ensure, setting};

/// Output scales of the matrix and of its inverse, from the decays of both.
///
/// The generating function is `prod_j (1 - theta_hat_j x) / prod_j (1 - theta_j x) = 1 + x sum_j omega_j / (1 - theta_j x)`;
/// its residues are `omega_i = prod_j (theta_i - theta_hat_j) / prod_{j != i} (theta_i - theta_j)`. For the inverse the
/// decays swap their roles.
///
/// # Errors
/// Different numbers of decays, or two equal ones, where residues do not exist.
///
/// # Source
/// \[BLT\] Algorithm 5, equal to it but without its divisions by decays.
///
/// # Example
/// ```
/// let (omega, omega_hat) = undertone_mechanisms::output_scales(&[0.9], &[0.6])?;
/// assert!((omega[0] - 0.3).abs() < 1e-15 && (omega_hat[0] + 0.3).abs() < 1e-15);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
pub fn output_scales(theta: &[f64], theta_hat: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
    let (name, count) = ("number of inverse decays", theta_hat.len());
    ensure(theta.len() == count, name, "the number of decays", count as f64)?;
    let omega = residues(theta, theta_hat);
    let omega_hat = residues(theta_hat, theta);
    if let Some(&got) = omega.iter().chain(&omega_hat).find(|scale| !scale.is_finite()) {
        let expected = "finite, which takes decays that are finite and differ from each other";
        return Err(setting("output scale", expected, got));
    }
    Ok((omega, omega_hat))
}

fn residues(poles: &[f64], zeros: &[f64]) -> Vec<f64> {
    // Quotients of neighbours: for interlaced decays no partial product leaves the range of numbers.
    let residue = |(i, pole): (usize, &f64)| {
        let others = (0..poles.len()).filter(|&j| j != i);
        others.fold(pole - zeros[i], |product, j| {
            product * ((pole - zeros[j]) / (pole - poles[j]))
        })
    };
    poles.iter().enumerate().map(residue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(theta: &[f64], theta_hat: &[f64], omega: &[f64], omega_hat: &[f64]) {
        let got = output_scales(theta, theta_hat).unwrap();
        for (got, want) in got.0.iter().zip(omega).chain(got.1.iter().zip(omega_hat)) {
            assert!((got / want - 1.0).abs() < 1e-9, "{got} {want}");
        }
    }

    /// Values by 60-digit arithmetic for the decays as printed.
    #[test]
    fn output_scales_match_sixty_digit_arithmetic() {
        check(
            &[
                0.9999999999983397,
                0.9973412136664378,
                0.9584629472313878,
                0.6581796870749317,
            ],
            &[
                0.9997130876395738,
                0.9877030359020302,
                0.874478581429497,
                0.26202936791488324,
            ],
            &[
                0.008657392263670818,
                0.0589089129818026,
                0.145481769306987,
                0.2770117005326523,
            ],
            &[
                -8.640928150745089e-06,
                -0.0011572607809625887,
                -0.03225938434978802,
                -0.45663448902621134,
            ],
        );
        check(
            &[0.898372311149],
            &[0.631968461806],
            &[0.266403849343],
            &[-0.266403849343],
        );
    }

    #[test]
    fn decays_without_distinct_partners_are_refused() {
        assert!(output_scales(&[0.9], &[]).is_err());
        assert!(output_scales(&[0.9, 0.9], &[0.5, 0.4]).is_err());
        assert!(output_scales(&[f64::NAN], &[0.5]).is_err());
    }
}
