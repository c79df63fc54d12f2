/// The order grid of [`Recipe::Rdp`](crate::Recipe::Rdp): 1.1 to 10.9 in tenths, 11 to 63, 128, 256, 512,
/// 1024.
///
/// The grid of dp-accounting 0.6.0, so that the two can be compared digit by digit.
#[must_use]
pub fn default_orders() -> Vec<f64> {
    let tenths = (1..100).map(|tenth| 1.0 + f64::from(tenth) / 10.0);
    let integers = (11..64).chain([128, 256, 512, 1024]).map(f64::from);
    tenths.chain(integers).collect()
}
