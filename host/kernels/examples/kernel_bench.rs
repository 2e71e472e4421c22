//! Measures the kernels on this machine: `kernel_bench [gemv|small|gemm|pool|attention|ops] [TYPE]`.
//!
//! Prints medians. Weights are cycled through a working set larger than the last-level cache.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measuring tool may fail loudly"
)]

use gristmill_kernels::{
    Act, AttentionSpec, Bytes, Job, KvLayer, Matrix, Pool, Quant, attention, isa, linear, ops,
};

const TYPES: [Quant; 28] = [
    Quant::Q4_0,
    Quant::Q4_1,
    Quant::Q5_0,
    Quant::Q5_1,
    Quant::Q8_0,
    Quant::Q4_K,
    Quant::Q5_K,
    Quant::Q6_K,
    Quant::Q2_K,
    Quant::Q3_K,
    Quant::IQ4_NL,
    Quant::IQ4_XS,
    Quant::TQ1_0,
    Quant::TQ2_0,
    Quant::MXFP4,
    Quant::NVFP4,
    Quant::Q1_0,
    Quant::Q2_0,
    Quant::IQ2_XXS,
    Quant::IQ2_XS,
    Quant::IQ2_S,
    Quant::IQ3_XXS,
    Quant::IQ3_S,
    Quant::IQ1_S,
    Quant::IQ1_M,
    Quant::F16,
    Quant::BF16,
    Quant::F32,
];

fn noise(n: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Seconds of a clock.
#[allow(unsafe_code, reason = "std has no processor-time clock")]
fn seconds(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux, `time` is a live out-parameter.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Median seconds of `f`. With `KERNEL_BENCH_CPU=1` the calling thread's processor time, which
/// other load on the machine disturbs less (sensible with one thread only).
fn time(repeats: usize, mut f: impl FnMut()) -> f64 {
    let cpu = std::env::var_os("KERNEL_BENCH_CPU").is_some();
    let clock = if cpu { libc::CLOCK_THREAD_CPUTIME_ID } else { libc::CLOCK_MONOTONIC };
    f();
    median(
        (0..repeats)
            .map(|_| {
                let start = seconds(clock);
                f();
                seconds(clock) - start
            })
            .collect(),
    )
}

fn matrix(quant: Quant, rows: usize, cols: usize) -> Matrix {
    let mut row = vec![0u8; quant.row_bytes(cols).unwrap()];
    if gristmill_kernels::encode_row(quant, &noise(cols), &mut row).is_err() {
        // Any bytes do: time does not depend on what they say, as long as it is no denormal.
        for (byte, x) in row.iter_mut().zip(noise(cols * 4)) {
            *byte = 0x30 | (x * 15.0) as i8 as u8;
        }
    }
    let bytes = row.repeat(rows);
    Matrix::new(quant, rows, cols, Bytes::from_vec(bytes)).unwrap()
}

/// Seconds for one pass over copies of a matrix that fill `bytes`, and those copies' bytes.
fn pass(pool: &Pool, matrices: &[Matrix], n: usize, repeats: usize) -> f64 {
    pass_with(pool, matrices, n, false, repeats)
}

/// [`pass`], with tokens in bulk or not.
fn pass_with(pool: &Pool, matrices: &[Matrix], n: usize, bulk: bool, repeats: usize) -> f64 {
    let (rows, cols) = (matrices[0].rows(), matrices[0].cols());
    let x = noise(n * cols);
    let mut act = Act::default();
    act.prepare_bulk(pool, &x, n, &vec![bulk; n], cols, &[&matrices[0]]).unwrap();
    let mut out = vec![0.0; n * rows];
    time(repeats, || {
        for matrix in matrices {
            let job = Job { matrix, bias: None, scale: 1.0, out: &mut out, accumulate: false };
            linear(pool, &act, &mut [job]).unwrap();
        }
    })
}

fn copies(quant: Quant, rows: usize, cols: usize, bytes: usize, packed: bool) -> Vec<Matrix> {
    let one = matrix(quant, rows, cols);
    (0..(bytes / one.memory()).max(1))
        .map(|_| if packed { one.pack().unwrap() } else { matrix(quant, rows, cols) })
        .collect()
}

fn gemv(types: &[Quant]) {
    println!("GEMV, GB/s of a {} MB working set (1 thread / 2 threads)", 128);
    for &quant in types {
        print!("{:5}", quant.name());
        let k = if quant.block_len() >= 128 { 1024 } else { 576 };
        for (rows, cols) in [(1536, k), (576, 1536), (4096, 2048)] {
            for packed in [true, false] {
                let matrices = copies(quant, rows, cols, 128 << 20, packed);
                let bytes: usize = matrices.iter().map(Matrix::memory).sum();
                let speed = [1, 2].map(|threads| {
                    let pool = Pool::new(threads, true);
                    pool.pin_caller();
                    bytes as f64 / pass(&pool, &matrices, 1, 7) / 1e9
                });
                let kind = if packed { "packed" } else { "raw" };
                print!("  {rows}x{cols} {kind} {:.1}/{:.1}", speed[0], speed[1]);
            }
        }
        println!();
    }
}

fn small(types: &[Quant]) {
    println!("Small batches, time relative to one token (2 threads)");
    let pool = Pool::new(2, true);
    for &quant in types {
        let matrices = copies(quant, 1536, 1024, 128 << 20, true);
        let one = pass(&pool, &matrices, 1, 5);
        print!("{:5}", quant.name());
        for n in [2, 3, 4, 6, 8, 12, 16, 24] {
            print!("  n={n} {:.2}", pass(&pool, &matrices, n, 5) / one);
        }
        println!();
    }
}

/// With and without tiles, at a prompt's sizes.
fn gemm(types: &[Quant]) {
    println!("GEMM, GMAC/s, 1 / 2 threads; where there are tiles: the tokens in bulk / not");
    for &quant in types {
        println!("{}", quant.name());
        let k = if quant.block_len() >= 128 { 1024 } else { 576 };
        for (rows, cols) in [(1536, k), (576, 1536), (2048, 2048), (1536, 8960)] {
            let matrices = copies(quant, rows, cols, 8 << 20, true);
            print!("  {rows}x{cols}");
            for n in [4, 16, 64, 512] {
                let macs = (rows * cols * matrices.len() * n) as f64;
                print!("  n={n}");
                for threads in [1, 2] {
                    let pool = Pool::new(threads, true);
                    pool.pin_caller();
                    let speed = |bulk| macs / pass_with(&pool, &matrices, n, bulk, 5) / 1e9;
                    print!(" {:.0}", speed(true));
                    if pool.isa() >= isa::Isa::Amx {
                        print!(" ({:.0})", speed(false));
                    }
                }
            }
            println!();
        }
    }
}

fn pool() {
    let pool = Pool::new(2, true);
    pool.pin_caller();
    for round in 0..3 {
        let phases = 20_000;
        let t = time(5, || (0..phases).for_each(|_| pool.run(&|_| {}))) / phases as f64;
        println!("empty phase of {} threads, round {round}: {:.0} ns", pool.threads(), t * 1e9);
    }
}

fn attend(
    kv: Quant,
    threads: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    context: usize,
    n: usize,
) {
    let pool = Pool::new(threads, true);
    pool.pin_caller();
    let width = kv_heads * dim;
    let total = context + n;
    let mut layer = KvLayer::new(kv_heads, dim, total, kv, kv).unwrap();
    layer.append(0, &noise(total * width), &noise(total * width)).unwrap();
    let spec = AttentionSpec {
        heads,
        kv_heads,
        head_dim: dim,
        scale: 0.125,
        causal: true,
        window: None,
        softcap: None,
        sinks: None,
    };
    let q = noise(n * heads * dim);
    let rows: Vec<(usize, usize)> = (0..n).map(|i| (0, context + i)).collect();
    let mut out = vec![0.0; q.len()];
    let t = time(9, || attention(&pool, &spec, &q, &rows, &[], &[&layer], &mut out).unwrap());
    let macs = 2.0 * (heads * dim * n) as f64 * (context as f64 + n as f64 / 2.0);
    println!(
        "attention {kv} {heads}/{kv_heads} d{dim}, {n} queries after {context}, {threads} threads: \
         {:.1} us, {:.0} GMAC/s",
        t * 1e6,
        macs / t / 1e9
    );
}

fn small_ops() {
    let time_ns = |name: &str, f: &mut dyn FnMut()| {
        let t = time(15, || (0..100).for_each(|_| f())) / 100.0;
        println!("{name}: {:.2} us", t * 1e6);
    };
    let x = noise(262_144);
    let mut y = vec![0.0; 4096];
    time_ns("rms_norm 576", &mut || ops::rms_norm(&x[..576], 576, Some(&x[..576]), 1e-5, &mut y));
    let (mut gate, up) = (noise(1536), noise(1536));
    time_ns("glu silu 1536", &mut || ops::glu_in_place(ops::Activation::Silu, &mut gate, &up));
    time_ns("argmax 262144", &mut || {
        std::hint::black_box(ops::argmax(&x));
    });
    let mut found = Vec::new();
    time_ns("top_k 64 of 262144", &mut || ops::top_k(&x, 64, &mut found));
    let pool = Pool::new(1, false);
    let weights = matrix(Quant::Q4_1, 16, 1536).pack().unwrap();
    let mut act = Act::default();
    time_ns("prepare 1 x 1536", &mut || {
        act.prepare(&pool, &x[..1536], 1, 1536, &[&weights]).unwrap();
    });
    time_ns("prepare 128 x 1536", &mut || {
        act.prepare(&pool, &x[..128 * 1536], 128, 1536, &[&weights]).unwrap();
    });
    let mut rotations = ops::Rotations::default();
    ops::RopeTable::new(64, 1e4, 1.0, None).rotations(&[100], &mut rotations);
    let mut heads = noise(12 * 64);
    time_ns("rope 12 x 64", &mut || {
        ops::rope(&mut heads, 12, 64, 0, ops::RopeStyle::Halves, &rotations);
    });
}

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next();
    let only = args.next().and_then(|name| Quant::from_name(&name));
    let types: Vec<Quant> = TYPES.into_iter().filter(|q| only.is_none_or(|o| o == *q)).collect();
    let report = isa::report();
    println!("kernels: {} ({})", report.chosen, report.why);
    let wanted = |name: &str| what.as_deref().is_none_or(|what| what == name);
    if wanted("pool") {
        pool();
    }
    if wanted("ops") {
        small_ops();
    }
    if wanted("gemv") {
        gemv(&types);
    }
    if wanted("small") {
        small(&types);
    }
    if wanted("gemm") {
        gemm(&types);
    }
    if wanted("attention") {
        for threads in [1, 2] {
            for context in [128, 2048, 8192] {
                attend(Quant::F16, threads, 9, 3, 64, context, 1);
            }
            attend(Quant::F16, threads, 4, 1, 256, 2048, 1);
            attend(Quant::F16, threads, 9, 3, 64, 0, 512);
            attend(Quant::F16, threads, 9, 3, 64, 2048, 512);
            attend(Quant::F16, threads, 4, 1, 256, 0, 512);
            for kv in [Quant::BF16, Quant::Q8_0, Quant::Q4_0] {
                attend(kv, threads, 9, 3, 64, 8192, 1);
                attend(kv, threads, 9, 3, 64, 2048, 512);
            }
        }
    }
}
