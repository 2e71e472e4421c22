//! Which instruction set the kernels use: what the processor has, what a self-test in this process
//! confirmed, and what the user allows.

use std::sync::OnceLock;

/// An instruction set the kernels are written for, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain code that runs anywhere.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, VBMI and VNNI.
    Avx512,
    /// The same with BF16, and tiles of bf16 for rows that come in bulk.
    Amx,
}

impl Isa {
    /// The name `GRISTMILL_ISA` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }

    /// Every level up to this one, lowest first.
    pub fn up_to(self) -> impl Iterator<Item = Isa> {
        [Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Amx].into_iter().filter(move |isa| *isa <= self)
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What was chosen and why.
#[derive(Debug, Clone)]
pub struct Report {
    /// The instruction set in use.
    pub chosen: Isa,
    /// The highest one the processor and the operating system offer.
    pub offered: Isa,
    /// One sentence for a person.
    pub why: String,
}

/// The highest instruction set processor and operating system offer.
pub fn offered() -> Isa {
    // Detection in std checks CPUID and that the operating system saves the registers (XCR0).
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let avx2 = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c");
        let avx512 = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512vbmi")
            && std::arch::is_x86_feature_detected!("avx512vnni");
        if avx2 && avx512 {
            let brains = std::arch::is_x86_feature_detected!("avx512bf16");
            let tiles = brains && crate::tile::offered() == Ok(true);
            return if tiles { Isa::Amx } else { Isa::Avx512 };
        }
        if avx2 {
            return Isa::Avx2;
        }
    }
    Isa::Scalar
}

/// The instruction set in use. The first call runs the self-tests.
#[inline]
pub fn current() -> Isa {
    report().chosen
}

/// What is in use and why, for the host's profile.
pub fn report() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| {
        choose(std::env::var("GRISTMILL_ISA").ok().as_deref(), crate::selftest::run)
    })
}

/// Chooses among what is offered, wished for and confirmed by `test`.
fn choose(wish: Option<&str>, test: impl Fn(Isa) -> Result<(), &'static str>) -> Report {
    let offered = offered();
    let mut reasons = vec![format!("the processor offers {offered}")];
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    reasons.extend(crate::tile::offered().err().map(str::to_owned));
    let mut chosen = offered;
    match wish.map(str::trim).filter(|wish| !wish.is_empty()) {
        None => {}
        Some(wish) => match Isa::Amx.up_to().find(|isa| isa.name().eq_ignore_ascii_case(wish)) {
            Some(isa) if isa <= offered => {
                chosen = isa;
                reasons.push(format!("GRISTMILL_ISA asks for {isa}"));
            }
            Some(isa) => reasons.push(format!("GRISTMILL_ISA asks for {isa}, which is not there")),
            None => reasons.push(format!(
                "GRISTMILL_ISA is `{wish}`, expected scalar, avx2, avx512 or amx; ignored"
            )),
        },
    }
    while let Err(kernel) = test(chosen) {
        reasons.push(format!("the {chosen} self-test of {kernel} failed"));
        chosen = match chosen {
            Isa::Amx => Isa::Avx512,
            Isa::Avx512 => Isa::Avx2,
            _ => Isa::Scalar,
        };
        if chosen == Isa::Scalar {
            break;
        }
    }
    Report { chosen, offered, why: reasons.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_lowers_but_never_raises() {
        let choose = |wish| choose(wish, |_| Ok(()));
        assert_eq!(choose(Some("scalar")).chosen, Isa::Scalar);
        assert!(choose(Some("amx")).chosen <= offered());
        let odd = choose(Some("sse9"));
        assert_eq!(odd.chosen, choose(None).chosen);
        assert!(odd.why.contains("sse9"), "{}", odd.why);
    }

    /// A processor that offers what it cannot do: the next lower set, and the kernel's name.
    #[test]
    fn what_fails_its_test_is_not_used_and_named() {
        let report = choose(None, |isa| if isa == offered() { Err("Q4_K") } else { Ok(()) });
        if offered() == Isa::Scalar {
            return;
        }
        assert!(report.chosen < offered(), "{report:?}");
        let said = format!("the {} self-test of Q4_K failed", offered());
        assert!(report.why.contains(&said), "{}", report.why);
        // Nothing works but plain code, which is not asked.
        let report = choose(None, |_| Err("attention over F16"));
        assert_eq!(report.chosen, Isa::Scalar);
        assert!(report.why.contains("self-test of attention over F16 failed"), "{}", report.why);
    }
}
