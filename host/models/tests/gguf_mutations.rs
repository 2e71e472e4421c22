//! Real headers with random bytes changed: never a panic, never memory beyond the file's size.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
#![allow(unsafe_code, reason = "a counting allocator is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use gristmill_models::{Gguf, Tokenizer};

/// Counts what is allocated now, and the most there was.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches nothing else.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MUTATIONS: usize = 12_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Where the header's structure is dense: away from the long arrays of texts.
fn structure(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let gguf = Gguf::parse(bytes.to_vec()).unwrap();
    let end = gguf.tensors().iter().map(|tensor| tensor.range.start).min().unwrap_or(bytes.len());
    let find = |needle: &[u8]| {
        bytes[..end].windows(needle.len()).position(|window| window == needle).unwrap_or(end)
    };
    let tokens = (find(b"tokenizer.ggml.tokens") + 64).min(end);
    let start = 0..tokens;
    let mut places = vec![start];
    if !gguf.tensors().is_empty() {
        let table = gguf.tensors().len() * 64;
        places.push(end.saturating_sub(table)..end);
    }
    places
}

#[test]
fn mutated_headers_are_read_or_refused() {
    let mut files = vec![
        gristmill_testing::fetch::smollm2().unwrap(),
        gristmill_testing::fetch::gemma3().unwrap(),
    ];
    let folder = gristmill_testing::fetch::llama_cpp_models().unwrap();
    let mut vocabularies: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gguf"))
        .collect();
    vocabularies.sort();
    files.extend(vocabularies);
    let started = Instant::now();
    let mut random = Random(20_260_726);
    let (mut read, mut refused, mut tokenizers) = (0, 0, 0);
    let each = MUTATIONS.div_ceil(files.len());
    for path in &files {
        let original = fs::read(path).unwrap();
        let places = structure(&original);
        let size = original.len();
        let mut bytes = Arc::new(original);
        for round in 0..each {
            // Three of four changes hit the structure, one any byte of the header.
            let changes = 1 + random.below(3);
            let mut undo = Vec::new();
            for _ in 0..changes {
                let place = match random.below(4) {
                    0 => places[0].start..places.last().unwrap().end,
                    _ => places[random.below(places.len())].clone(),
                };
                let at = place.start + random.below(place.len());
                let value = match random.below(4) {
                    0 => 0xff,
                    1 => 0,
                    2 => bytes[at] ^ (1 << random.below(8)),
                    _ => random.next() as u8,
                };
                undo.push((at, bytes[at]));
                Arc::get_mut(&mut bytes).unwrap()[at] = value;
            }
            let before = NOW.load(Ordering::Relaxed);
            MOST.store(before, Ordering::Relaxed);
            let shared: Arc<dyn AsRef<[u8]> + Send + Sync> = bytes.clone();
            let result = Gguf::parse_shared(shared);
            let most = MOST.load(Ordering::Relaxed) - before;
            assert!(most <= size, "{}: {most} bytes allocated for {size}", path.display());
            match result {
                Ok(gguf) => {
                    read += 1;
                    let metadata = gguf.metadata();
                    assert_eq!(metadata.tensors.len(), gguf.tensors().len());
                    for tensor in gguf.tensors() {
                        let bytes = gguf.tensor_bytes(&tensor.name).unwrap();
                        assert_eq!(bytes.as_slice().len(), tensor.range.len());
                    }
                    // A vocabulary may be broken in its own ways.
                    if round % 64 == 0 && size < 8 << 20 {
                        tokenizers += 1;
                        if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) {
                            let _ = tokenizer.encode_prompt("Hello, <s>wörld</s>!");
                        }
                    }
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().starts_with("(memory): "), "{error}");
                }
            }
            for (at, value) in undo.into_iter().rev() {
                Arc::get_mut(&mut bytes).unwrap()[at] = value;
            }
        }
    }
    println!(
        "{} mutations of {} files in {:.1} s: {read} read, {refused} refused, {tokenizers} tokenizers tried",
        read + refused,
        files.len(),
        started.elapsed().as_secs_f32(),
    );
    assert!(read + refused >= 10_000 && refused > 1_000 && read > 1_000);
}
