//! What this machine can do at most: bytes read from memory, and multiplications of small
//! integers. The yardsticks that benches hold the kernels against.
#![allow(unsafe_code, reason = "the widest loads and multiplications the processor has")]

use std::hint::black_box;
use std::time::Instant;

use crate::isa::{self, Isa};
use crate::memory::Slab;

/// Bytes each thread reads: far more than any cache holds.
const BYTES: usize = 512 << 20;

/// Passes of each variant; the best counts.
const PASSES: usize = 3;

/// How a block is read: streams side by side, and how far ahead lines are fetched (0: not).
const VARIANTS: [(usize, usize); 6] = [(1, 0), (1, 1024), (1, 2048), (4, 0), (4, 512), (4, 1024)];

/// The best rate, in bytes per second, at which `threads` threads read memory, each its own block
/// in huge pages: several read loops are tried. `None` if there is not enough memory.
pub fn bandwidth(threads: usize) -> Option<f64> {
    let mut blocks = Vec::new();
    for seed in 0..threads.max(1) {
        let mut block = Slab::zeroed(BYTES)?;
        // Pages must be there, and not all the same one.
        for page in block.as_mut_slice().chunks_mut(4096) {
            page.fill(seed as u8 | 1);
        }
        blocks.push(block);
    }
    let mut best = 0.0f64;
    for (streams, ahead) in VARIANTS {
        for _ in 0..PASSES {
            let started = Instant::now();
            std::thread::scope(|scope| {
                for block in &blocks {
                    scope.spawn(move || read(block.as_slice(), streams, ahead));
                }
            });
            let bytes = (blocks.len() * BYTES) as f64;
            best = best.max(bytes / started.elapsed().as_secs_f64());
        }
    }
    Some(best)
}

/// The best rate, in multiplications with addition per second, at which `threads` threads multiply
/// 8-bit integers in registers, with the instruction set in use.
pub fn int8_rate(threads: usize) -> f64 {
    const ROUNDS: usize = 2_000_000;
    let isa = isa::current();
    let mut best = 0.0f64;
    for _ in 0..PASSES {
        let started = Instant::now();
        let done: usize = std::thread::scope(|scope| {
            let work: Vec<_> =
                (0..threads.max(1)).map(|_| scope.spawn(move || multiply(isa, ROUNDS))).collect();
            work.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
        });
        best = best.max(done as f64 / started.elapsed().as_secs_f64());
    }
    best
}

/// Reads every cache line of a block.
fn read(block: &[u8], streams: usize, ahead: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match isa::offered() {
        // SAFETY: the instruction set is offered.
        Isa::Avx512 | Isa::Amx => return unsafe { x86::read512(block, streams, ahead) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { x86::read256(block, streams, ahead) },
        Isa::Scalar => {}
    }
    let _ = (streams, ahead);
    black_box(block.as_chunks::<8>().0.iter().fold(0, |sum, x| sum ^ u64::from_le_bytes(*x)));
}

/// Multiplies in registers; how many products that were.
fn multiply(isa: Isa, rounds: usize) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match isa {
        // SAFETY: the instruction set is offered.
        Isa::Avx512 | Isa::Amx => return unsafe { x86::multiply512(rounds) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { x86::multiply256(rounds) },
        Isa::Scalar => {}
    }
    let _ = isa;
    let (x, y) = (black_box([3i8; 64]), black_box([5i8; 64]));
    let mut sums = [0i32; 64];
    for _ in 0..rounds / 16 {
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum = sum.wrapping_add(i32::from(x) * i32::from(y));
        }
        black_box(&mut sums);
    }
    rounds / 16 * 64
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    macro_rules! read {
        ($name:ident, $features:literal, $zero:ident, $load:ident, $or:ident, $bytes:literal, $ty:ty) => {
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(block: &[u8], streams: usize, ahead: usize) {
                let part = block.len() / streams.max(1) / 256 * 256;
                let mut sums = [$zero(); 4];
                for at in (0..part).step_by(256) {
                    for stream in 0..streams {
                        let p = block.as_ptr().wrapping_add(stream * part + at);
                        for line in 0..4 {
                            let p = p.wrapping_add(64 * line);
                            if ahead > 0 {
                                _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(ahead).cast());
                            }
                            for half in 0..64 / $bytes {
                                // SAFETY: below the end of the stream's part of the block.
                                let v = unsafe { $load(p.add($bytes * half).cast::<$ty>()) };
                                if let Some(sum) = sums.get_mut(line) {
                                    *sum = $or(*sum, v);
                                }
                            }
                        }
                    }
                }
                black_box(&mut sums);
            }
        };
    }

    read!(
        read512,
        "avx512f",
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_or_si512,
        64,
        __m512i
    );
    read!(read256, "avx2", _mm256_setzero_si256, _mm256_loadu_si256, _mm256_or_si256, 32, __m256i);

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn multiply512(rounds: usize) -> usize {
        let (x, y) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(5)));
        let mut sums = [_mm512_setzero_si512(); 12];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, x, y);
            }
        }
        black_box(&mut sums);
        rounds * 12 * 64
    }

    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn multiply256(rounds: usize) -> usize {
        let (x, y) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(5)));
        let one = black_box(_mm256_set1_epi16(1));
        let mut sums = [_mm256_setzero_si256(); 8];
        for _ in 0..rounds {
            for sum in &mut sums {
                // The operand changes, so that the product is not computed once for all.
                let pairs = _mm256_maddubs_epi16(_mm256_xor_si256(x, *sum), y);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, one));
            }
        }
        black_box(&mut sums);
        rounds * 8 * 32
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_arithmetic_is_faster_than_one_product_a_nanosecond() {
        assert!(super::int8_rate(1) > 1e8);
    }
}
