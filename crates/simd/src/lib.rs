//! Run-time choice of the vector instruction set for plain loops that the compiler vectorises.
//!
//! One macro, for loops that are worth more than the SSE2 of a default x86-64 build. Kernels with intrinsics of their own
//! (the matrix products of `undertone-models`) choose for themselves.
//!
//! ```
//! undertone_simd::vectorised! {
//!     /// Sum of squares.
//!     fn energy(values: &[f32]) -> f32 {
//!         values.iter().map(|value| value * value).sum()
//!     }
//! }
//! assert_eq!(energy(&[3.0, 4.0]), 25.0);
//! ```

/// Defines a function whose body is compiled for AVX-512, AVX2 and the target's baseline, the widest of which runs.
///
/// Write bodies without fused multiply-add and with sums of a fixed order: then every version computes the same bits.
#[macro_export]
macro_rules! vectorised {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                {
                    // SAFETY: the features that `avx512` enables were all detected on this processor.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the feature that `avx2` enables was detected on this processor.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}
