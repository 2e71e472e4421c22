//! An open package: mapped, verified, shared.
//!
//! Assumption, as for model files: nobody writes to a package while it is mapped. The store never
//! does; it replaces packages by renaming.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use memmap2::{Advice, Mmap};

use super::{
    super::error::{Result, StoreError},
    format::{CHUNK, START, Section, digest, index},
};
use crate::gguf::Shared;

/// Packed weights, mapped read-only. All processes that open it share its pages.
#[derive(Debug)]
pub struct Package {
    path: PathBuf,
    map: Arc<Mmap>,
    tensors: BTreeMap<String, Section>,
}

/// How the bytes of a package are looked at.
#[derive(Debug, Clone, Copy)]
pub(super) enum Look {
    /// Through the map: they are computed with next, and nothing is copied.
    Mapped,
    /// By reading: while a model still runs from its file, both need not be in this process's memory.
    Read,
}

impl Package {
    /// Maps a package and verifies every byte of it, on all processors.
    pub(super) fn open(
        path: &Path,
        file: &File,
        source: &str,
        kind: &str,
        look: Look,
    ) -> Result<Self> {
        let refuse =
            |reason: String| StoreError::Package { path: path.display().to_string(), reason };
        let length = file.metadata().map_err(|e| StoreError::io("open", path, e))?.len();
        if length < START {
            return Err(refuse("it is shorter than its first page".to_owned()));
        }
        let map = map(path, file)?;
        // Advice only: without it everything is right, and slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        let (index, end) = index(&map).map_err(refuse)?;
        if index.source != source {
            return Err(refuse(format!("it was made of {}, not of {source}", index.source)));
        }
        if index.kind != kind {
            return Err(refuse(format!(
                "it was made for {}, this machine runs {kind}",
                index.kind
            )));
        }
        let damaged = damaged(&map, file, look, end, &index.chunks);
        if let Some(chunk) = damaged.map_err(|error| StoreError::io("read", path, error))? {
            let from = (chunk * CHUNK) as u64;
            let hit = index.tensors.iter().filter(|(_, section)| {
                let length = section.bytes.saturating_mul(section.count as u64);
                section.offset < from + CHUNK as u64 && from < section.offset + length
            });
            let name = hit.min_by_key(|(_, section)| section.offset).map(|(name, _)| name.as_str());
            return Err(refuse(format!(
                "its bytes from {} on are damaged (`{}`)",
                from.max(START),
                name.unwrap_or("padding")
            )));
        }
        Ok(Self { path: path.to_owned(), map: Arc::new(map), tensors: index.tensors })
    }

    /// What is known of a tensor, if it is here.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.tensors.get(name)
    }

    /// The bytes of a tensor's `n`-th matrix.
    #[must_use]
    pub fn part(&self, section: &Section, n: usize) -> Option<(Shared, Range<usize>)> {
        let n = (n < section.count).then_some(n as u64)?;
        let start = usize::try_from(section.offset + n * section.bytes).ok()?;
        let range = start..start.checked_add(usize::try_from(section.bytes).ok()?)?;
        (range.end <= self.map.len()).then(|| (Arc::clone(&self.map) as Shared, range))
    }

    /// Tensors in it.
    #[must_use]
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.map.len() as u64
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of it that are mapped by huge pages now; none where the system does not say.
    #[must_use]
    pub fn huge(&self) -> Option<u64> {
        let text = fs::read_to_string("/proc/self/smaps").ok()?;
        let start = format!("{:x}-", self.map.as_ptr().addr());
        let lines = text.lines().skip_while(|line| !line.starts_with(&start));
        let line = lines.take(40).find_map(|line| line.strip_prefix("FilePmdMapped:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    }
}

#[allow(unsafe_code, reason = "a memory mapping is unsafe to make; see SAFETY")]
fn map(path: &Path, file: &File) -> Result<Mmap> {
    // SAFETY: mapped read-only, and never written to by the module's assumption.
    unsafe { Mmap::map(file) }.map_err(|error| StoreError::io("map", path, error))
}

/// The first chunk that is not what it was when it was written; every open looks at every byte, on all
/// processors.
fn damaged(
    map: &Mmap,
    file: &File,
    look: Look,
    end: u64,
    known: &[String],
) -> io::Result<Option<usize>> {
    if end.div_ceil(CHUNK as u64) != known.len() as u64 {
        return Ok(Some(0));
    }
    let (next, first) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let work = || -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(known) = known.get(place) else { return Ok(()) };
            // The first page has a digest of its own.
            let from = if place == 0 { START } else { (place * CHUNK) as u64 };
            let to = ((place + 1) * CHUNK) as u64;
            let length = usize::try_from(to.min(end).saturating_sub(from)).unwrap_or_default();
            let chunk = match look {
                Look::Mapped => ready(map, from, length)?,
                Look::Read => None,
            };
            let chunk = match chunk {
                Some(chunk) => chunk,
                None => {
                    buffer.resize(length, 0);
                    read_at(file, &mut buffer, from)?;
                    &buffer
                }
            };
            if digest(chunk) != *known {
                first.fetch_min(place, Ordering::Relaxed);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(known.len());
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let panicked = || io::Error::other("a thread that verifies ended");
        others.into_iter().try_fold((), |(), other| other.join().map_err(|_| panicked())?)?;
        mine
    })?;
    let first = first.into_inner();
    Ok((first != usize::MAX).then_some(first))
}

/// Bytes of a map, which the system has in memory by then: what a disk cannot read is an error here,
/// where touching it would end the process. None where it cannot be asked for that.
fn ready(map: &Mmap, from: u64, length: usize) -> io::Result<Option<&[u8]>> {
    let start = usize::try_from(from).unwrap_or(usize::MAX);
    let found = map.get(start..).and_then(|rest| rest.get(..length));
    let found = found.ok_or(io::ErrorKind::UnexpectedEof)?;
    #[cfg(target_os = "linux")]
    match map.advise_range(Advice::PopulateRead, start, length) {
        Ok(()) => return Ok(Some(found)),
        // Linux before 5.14.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
        Err(error) => return Err(error),
    }
    let _ = found;
    Ok(None)
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, buffer, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = buffer.get_mut(read..).unwrap_or_default();
        at += read as u64;
    }
    Ok(())
}
