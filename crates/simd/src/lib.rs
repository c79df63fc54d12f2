#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it does |
//! |---|---|
//! | [`vectorised!`](vectorised) | compiles a function for several instruction sets and calls the widest |
//!
//! # Notes
//!
//! Kernels with intrinsics of their own, such as the matrix products of `undertone-models`, choose their instruction set themselves.

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
