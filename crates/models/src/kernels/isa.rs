/// The instruction set that kernels run with, chosen once per worker from what the machine has.
///
/// Results may differ in the last bits between instruction sets; for one of them they never vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isa {
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The baseline of the target: NEON on AArch64, SSE2 on x86-64.
    Portable,
}

impl Isa {
    /// `true` if the target's baseline has a fused multiply-add. Without one, `mul_add` is a slow library call.
    pub(crate) const PORTABLE_FUSED: bool = cfg!(target_arch = "aarch64");

    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") {
                if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
                    return Self::Avx512;
                }
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// Every instruction set this machine can run.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Self> {
        match Self::detect() {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => vec![Self::Avx512, Self::Avx2, Self::Portable],
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => vec![Self::Avx2, Self::Portable],
            Self::Portable => vec![Self::Portable],
        }
    }
}

/// Defines a kernel whose body is compiled once per instruction set and picked at run time by its first argument.
///
/// The body may use the type `T` of the numbers, and the constant named in angle brackets, which says whether fused
/// multiply-add is an instruction.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$fused:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name<T: $crate::scalar::Scalar>(isa: $crate::kernels::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<T: $crate::scalar::Scalar, const $fused: bool>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[allow(clippy::too_many_arguments)]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512<T: $crate::scalar::Scalar>($($arg: $ty),*) $(-> $ret)? {
                body::<T, true>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[allow(clippy::too_many_arguments)]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<T: $crate::scalar::Scalar>($($arg: $ty),*) $(-> $ret)? {
                body::<T, true>($($arg),*)
            }
            match isa {
                // SAFETY: `Isa::Avx512` is only made by `detect`, which checked these features.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::isa::Isa::Avx512 => unsafe { avx512::<T>($($arg),*) },
                // SAFETY: `Isa::Avx2` is only made by `detect`, which checked these features.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::isa::Isa::Avx2 => unsafe { avx2::<T>($($arg),*) },
                $crate::kernels::isa::Isa::Portable => {
                    body::<T, { $crate::kernels::isa::Isa::PORTABLE_FUSED }>($($arg),*)
                }
            }
        }
    };
}
pub(crate) use kernel;
