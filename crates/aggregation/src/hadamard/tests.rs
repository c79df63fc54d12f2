use super::*;

fn sign(i: usize, j: usize) -> i64 {
    1 - 2 * i64::from((i & j).count_ones() % 2)
}

fn sample(len: usize) -> Vec<i64> {
    (0..len as i64)
        .map(|i| (i * 7919 + i * i % 101) % 2003 - 1001)
        .collect()
}

/// The matrix itself, row by row, up to 2^10; every kind of number is exact on whole numbers of this size.
#[test]
fn the_transform_is_the_matrix() {
    for level in 0..=10 {
        let x = sample(1 << level);
        let naive: Vec<i64> = (0..x.len())
            .map(|i| x.iter().enumerate().map(|(j, x)| sign(i, j) * x).sum())
            .collect();
        let mut single: Vec<f32> = x.iter().map(|&x| x as f32).collect();
        walsh_hadamard(&mut single).unwrap();
        assert!(
            single.iter().zip(&naive).all(|(&a, &b)| f64::from(a) == b as f64),
            "2^{level}"
        );
        let mut double: Vec<f64> = x.iter().map(|&x| x as f64).collect();
        walsh_hadamard(&mut double).unwrap();
        assert!(
            double.iter().zip(&naive).all(|(&a, &b)| a == b as f64),
            "2^{level}"
        );
    }
}

/// Beyond both caches: single rows of the matrix, and that twice is `n` times.
#[test]
fn long_vectors_match_rows_of_the_matrix() {
    for level in 11..=19 {
        let n = 1usize << level;
        let x = sample(n);
        let mut y: Vec<f64> = x.iter().map(|&x| x as f64).collect();
        walsh_hadamard(&mut y).unwrap();
        for i in [0, 1, 7, 8, n / 3, n / 2, n - 1] {
            let naive: i64 = x.iter().enumerate().map(|(j, x)| sign(i, j) * x).sum();
            assert_eq!(y[i], naive as f64, "2^{level}, row {i}");
        }
        walsh_hadamard(&mut y).unwrap();
        // Whole numbers below 2^53, so exact.
        assert!(
            y.iter().zip(&x).all(|(&y, &x)| y == (n as i64 * x) as f64),
            "2^{level}"
        );
    }
}

/// The rounding of every sum is that of the definition level by level, whatever the processor and the blocks.
#[test]
fn sums_are_rounded_in_the_order_of_the_levels() {
    for level in 0..=18 {
        let n = 1usize << level;
        let x: Vec<f32> = (0..n as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) as i32 as f32) * 1e-9)
            .collect();
        let mut plain = x.clone();
        for span in (0..level).map(|level| 1 << level) {
            for i in (0..n).filter(|i| i & span == 0) {
                let (a, b) = (plain[i], plain[i + span]);
                (plain[i], plain[i + span]) = (a + b, a - b);
            }
        }
        let mut fast = x.clone();
        walsh_hadamard(&mut fast).unwrap();
        assert!(
            fast.iter().zip(&plain).all(|(a, b)| a.to_bits() == b.to_bits()),
            "2^{level}"
        );
        let mut portable = x;
        transform_f32(&mut portable, &mut |_, block| portable_block_f32(block));
        assert!(
            portable
                .iter()
                .zip(&plain)
                .all(|(a, b)| a.to_bits() == b.to_bits()),
            "2^{level}, without intrinsics"
        );
    }
}

#[test]
fn other_lengths_are_refused() {
    for len in [0, 3, 6, 12, 1000] {
        let message = walsh_hadamard(&mut vec![0.0f32; len]).unwrap_err().to_string();
        assert_eq!(
            message,
            format!("expected a vector whose length is a power of two, got {len} numbers")
        );
    }
}
