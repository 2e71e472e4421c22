//! The sampler's random numbers: `SplitMix64` (Steele, Lea and Flood 2014; Vigna's public-domain
//! constants). One addition and one mix a number, any seed is a good seed, and the same seed gives
//! the same numbers on every machine. Not for secrets.

use std::hash::{BuildHasher, RandomState};

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that differs each time: the standard library's own, drawn from the system.
    #[must_use]
    pub(crate) fn fresh_seed() -> u64 {
        RandomState::new().hash_one(0_u64)
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0 .. 1`, all 53 bits of it random.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // First outputs of SplitMix64 for seed 1234567, as its authors' C program prints them.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn unit_stays_below_one() {
        let mut random = Random::new(7);
        assert!((0..10_000).map(|_| random.unit()).all(|u| (0.0..1.0).contains(&u)));
    }
}
