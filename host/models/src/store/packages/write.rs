//! Writing a package: tensor after tensor, digests on the way, the index last.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::PathBuf,
};

use super::{
    super::{
        error::{Result, StoreError},
        progress::{Reporter, Stage},
    },
    format::{CHUNK, Index, PAGED, START, Section, digest, head},
};

/// A package on its way to disk. Memory: one chunk and the index.
pub struct PackageWriter<'a> {
    file: File,
    path: PathBuf,
    chunk: Vec<u8>,
    chunks: Vec<String>,
    /// Where the next byte goes, those waiting in `chunk` included.
    at: u64,
    tensors: BTreeMap<String, Section>,
    /// Bytes the last tensor still lacks.
    due: u64,
    reporter: Reporter<'a>,
}

impl std::fmt::Debug for PackageWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackageWriter({} tensors, {} bytes)", self.tensors.len(), self.at)
    }
}

impl<'a> PackageWriter<'a> {
    pub(super) fn new(file: File, path: PathBuf, reporter: Reporter<'a>) -> Self {
        // The first page's room. Whole chunks are written at once, at multiples of their size: the
        // page cache then holds each as one huge page.
        let mut chunk = Vec::with_capacity(CHUNK);
        chunk.resize(START as usize, 0);
        Self {
            file,
            path,
            chunk,
            chunks: Vec::new(),
            at: START,
            tensors: BTreeMap::new(),
            due: 0,
            reporter,
        }
    }

    /// Tensors so far.
    #[must_use]
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// Begins a tensor of `count` matrices of `bytes` bytes each, which follow one after the other
    /// in pieces of any size: [`PackageWriter::part`].
    ///
    /// # Errors
    /// What the disk says; `Invalid` when the one before is not complete.
    pub fn tensor(
        &mut self,
        name: &str,
        [quant, layout]: [u32; 2],
        [rows, cols, count]: [usize; 3],
        bytes: usize,
    ) -> Result<()> {
        self.complete()?;
        let bytes = bytes as u64;
        let total = bytes.saturating_mul(count as u64);
        let step = if total >= PAGED { START } else { 64 };
        let padding = self.at.next_multiple_of(step) - self.at;
        self.put(&vec![0; usize::try_from(padding).unwrap_or_default()])?;
        let section = Section { quant, rows, cols, count, layout, offset: self.at, bytes };
        self.tensors.insert(name.to_owned(), section);
        self.due = total;
        Ok(())
    }

    /// The next bytes of the tensor begun last.
    ///
    /// # Errors
    /// What the disk says; `Invalid` when the tensor has no more; `Cancelled`.
    pub fn part(&mut self, bytes: &[u8]) -> Result<()> {
        self.due = self.due.checked_sub(bytes.len() as u64).ok_or_else(|| {
            StoreError::invalid(self.path.display().to_string(), "a tensor has too many bytes")
        })?;
        self.put(bytes)?;
        self.reporter.at(Stage::Packing, self.at)
    }

    fn complete(&self) -> Result<()> {
        if self.due == 0 {
            return Ok(());
        }
        Err(StoreError::invalid(self.path.display().to_string(), "a tensor lacks bytes"))
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = (CHUNK - self.chunk.len()).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            self.chunk.extend_from_slice(now);
            bytes = later;
            if self.chunk.len() == CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        // Of the bytes in memory: what the disk makes of them afterwards is what it is for.
        let page = if self.chunks.is_empty() { START as usize } else { 0 };
        let covered = self.chunk.get(page..).unwrap_or_default();
        self.chunks.push(digest(covered));
        self.file.write_all(&self.chunk).map_err(|e| StoreError::io("write", &self.path, e))?;
        self.chunk.clear();
        Ok(())
    }

    /// Index, first page, and all of it on disk.
    pub(super) fn finish(mut self, source: &str, kind: &str) -> Result<()> {
        self.complete()?;
        self.flush()?;
        let index = Index {
            source: source.to_owned(),
            kind: kind.to_owned(),
            tensors: self.tensors,
            chunks: self.chunks,
        };
        let end = self.at;
        let mut write = || -> io::Result<()> {
            let index = serde_json::to_vec(&index)?;
            self.file.write_all(&index)?;
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&head(end, &index))?;
            self.file.sync_all()
        };
        write().map_err(|error| StoreError::io("write", &self.path, error))
    }
}
