//! The log: what happened to the pins of a ledger, one JSON line each, appended and never rewritten.
//!
//! Each line carries its own SHA-256 and that of the line before it, so that a changed, missing or
//! inserted line breaks the chain (`log-tampered`). A crash can leave a last line without its end; that
//! alone is `log-torn`, and is mended by cutting that tail off, which happens when a [`Log`] is opened to
//! be written. An append is on the disk before it returns, and one that fails leaves the log as it was.
//!
//! Bounds: a line of 16 KiB, a log of 256 MiB; what would be longer is not written (`ledger-full`).

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions, TryLockError},
    io::Write as _,
    path::{Path, PathBuf},
};

use rustix::{fs::FallocateFlags, io::Errno};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{LedgerError, date::Date, digest::is_file_name, disk, sha256};

/// The file's name in a ledger.
pub const LOG: &str = "log.jsonl";

const MAX_LINE_BYTES: usize = 16 << 10;
/// Longest reason that is kept, in characters.
pub(crate) const MAX_WORDS: usize = 1_000;
const MAX_LOG_BYTES: u64 = 256 << 20;

/// What the first line has as the hash of the one before it.
const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A pin was proven and is in force from now on. Written before the pin is put in place.
    Promotion,
    /// A pin was not proven; what was in force stays.
    Refusal,
    /// The traffic moved to the pin in force.
    Swap,
    /// An earlier pin is in force again.
    Rollback,
    /// A promotion or rollback did not come to its end; what was in force before is again.
    Abandoned,
    /// A pin is not in force any more, and none is in its stead.
    Retirement,
    /// Something must not run any more.
    Revocation,
    /// A component had too many faults on this host: it is not put in force until it is released.
    Quarantine,
    /// A component may be put in force again.
    Release,
}

impl What {
    /// Whether it changes which pin of a name is in force.
    fn moves(self) -> bool {
        matches!(self, Self::Promotion | Self::Rollback | Self::Abandoned | Self::Retirement)
    }
}

/// One event, as it is handed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// What happened.
    pub what: What,
    /// Whose pin; for a revocation the digest or key; for a quarantine and a release the component's
    /// digest where no pin of it is known.
    pub name: String,
    /// The pin's sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Digest of the pin's file that it is about; for a revocation, that of `revoked.toml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Digest of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Digest of the pin's file that was in force before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The router's generation after a swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The documented word, where it was refused or abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What made it happen: a command, a changed file, a guardrail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Event {
    /// An event about this name, and nothing else said.
    #[must_use]
    pub fn new(what: What, name: impl Into<String>) -> Self {
        Self {
            what,
            name: name.into(),
            sequence: None,
            pin: None,
            component: None,
            from: None,
            generation: None,
            code: None,
            reason: None,
            by: None,
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "line of the log", extend("additionalProperties" = false))]
pub struct Entry {
    /// Counts the lines from 1.
    pub number: u64,
    /// When, by the clock of who wrote it. It never goes back.
    pub date: Date,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// [`Entry::hash`] of the line before, or zeros.
    pub previous: String,
    /// SHA-256 of this line up to this field.
    pub hash: String,
}

impl Entry {
    /// The line up to its own hash, without the closing brace.
    fn body(&self) -> Result<String, String> {
        let line = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let body = line.rsplit_once(",\"hash\":").ok_or("an entry has a hash")?.0;
        Ok(body.to_owned())
    }

    fn line(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    fn parse(line: &str, before: Option<&Self>) -> Result<Self, String> {
        let entry: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if entry.line()? != line {
            return Err("it is not written as the ledger writes a line".to_owned());
        }
        if !is_file_name(&entry.event.name) {
            return Err(format!("name {:?}: expected a pin's name or a digest", entry.event.name));
        }
        let hash = sha256(entry.body()?.as_bytes());
        if entry.hash != hash {
            return Err(format!("its content has the hash {hash}, it says {}", entry.hash));
        }
        let previous = before.map_or(NOTHING, |before| before.hash.as_str());
        if entry.previous != previous {
            return Err(format!("expected to follow {previous}, it follows {}", entry.previous));
        }
        let number = before.map_or(1, |before| before.number + 1);
        if entry.number != number {
            return Err(format!("expected number {number}, found {}", entry.number));
        }
        if let Some(before) = before.filter(|before| before.date > entry.date) {
            return Err(format!(
                "it is of {}, and the line before is of {}",
                entry.date, before.date
            ));
        }
        Ok(entry)
    }
}

/// What the log says of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Digest of the pin's file that is in force.
    pub pin: Option<String>,
    /// Its sequence.
    pub sequence: u64,
    /// What was in force before the last promotion or rollback.
    pub from: Option<String>,
    /// The highest sequence that ever was in force.
    pub highest: u64,
    /// Whether the pin was taken out of force.
    pub retired: bool,
    /// [`Standing::highest`] before the last promotion: what it is again if that is abandoned.
    prior: u64,
}

impl Standing {
    fn follow(&mut self, event: &Event) {
        self.pin.clone_from(&event.pin);
        self.from.clone_from(&event.from);
        self.sequence = event.sequence.unwrap_or_default();
        self.retired = event.what == What::Retirement;
        match event.what {
            What::Promotion => {
                self.prior = self.highest;
                self.highest = self.highest.max(self.sequence);
            }
            What::Abandoned => self.highest = self.prior,
            _ => self.prior = self.highest,
        }
    }
}

/// A log that was read and verified.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// Its lines.
    pub entries: Vec<Entry>,
    /// Where a torn last line begins, in bytes.
    pub torn: Option<u64>,
}

impl Chain {
    /// Reads and verifies the log of a ledger; one that is missing is empty.
    ///
    /// # Errors
    /// `log-tampered` with the line's number; a torn last line is no error here but told.
    pub fn open(ledger: &Path) -> Result<Self, LedgerError> {
        let path = ledger.join(LOG);
        let Some(bytes) = disk::read_if_there(&path, MAX_LOG_BYTES)? else {
            return Ok(Self::default());
        };
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (whole, tail) = bytes.split_at(end);
        let mut entries: Vec<Entry> = Vec::new();
        for (at, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let tampered = |reason: String| {
                let reason = format!(
                    "line {}: {reason}; the log was changed, restore it from a copy",
                    at + 1
                );
                LedgerError::refused("log-tampered", &path, reason)
            };
            let line = std::str::from_utf8(line).map_err(|error| tampered(error.to_string()))?;
            entries.push(Entry::parse(line, entries.last()).map_err(tampered)?);
        }
        let torn = (!tail.is_empty()).then_some(end as u64);
        Ok(Self { entries, torn })
    }

    /// Refuses a torn last line.
    ///
    /// # Errors
    /// `log-torn`.
    pub fn whole(self, ledger: &Path) -> Result<Self, LedgerError> {
        match self.torn {
            None => Ok(self),
            Some(at) => Err(LedgerError::refused(
                "log-torn",
                &ledger.join(LOG),
                format!(
                    "the last line, from byte {at} on, was not written to its end; the next command that writes cuts it off"
                ),
            )),
        }
    }

    /// The date of the last line.
    #[must_use]
    pub fn last(&self) -> Option<Date> {
        self.entries.last().map(|entry| entry.date)
    }

    /// What is in force for each name.
    #[must_use]
    pub fn standings(&self) -> BTreeMap<&str, Standing> {
        let mut names: BTreeMap<&str, Standing> = BTreeMap::new();
        for Entry { event, .. } in &self.entries {
            if event.what.moves() {
                names.entry(&event.name).or_default().follow(event);
            }
        }
        names
    }

    /// What is in force for one name.
    #[must_use]
    pub fn standing(&self, name: &str) -> Standing {
        let mut standing = Standing::default();
        for Entry { event, .. } in &self.entries {
            if event.name == name && event.what.moves() {
                standing.follow(event);
            }
        }
        standing
    }

    /// The hash of the last line, which stands for all of them.
    #[must_use]
    pub fn head(&self) -> Option<&str> {
        self.entries.last().map(|entry| entry.hash.as_str())
    }

    /// The digest of `revoked.toml` after the last revocation.
    #[must_use]
    pub fn revoked(&self) -> Option<&str> {
        let last = self.entries.iter().rfind(|entry| entry.event.what == What::Revocation)?;
        last.event.pin.as_deref()
    }
}

/// The log of a ledger, opened to be written by one process at a time.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    chain: Chain,
}

impl Log {
    /// Opens the log for its one writer, verifies it, and cuts off a torn last line.
    ///
    /// # Errors
    /// `ledger-busy` while another process writes; `log-tampered`; that it cannot be read or written.
    pub fn open(ledger: &Path) -> Result<Self, LedgerError> {
        let path = ledger.join(LOG);
        let unwritable = |source| disk::unwritable(&path, source);
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(unwritable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let reason = "another process is changing this ledger; wait until it is done";
                return Err(LedgerError::refused("ledger-busy", &path, reason));
            }
            Err(TryLockError::Error(source)) => return Err(unwritable(source)),
        }
        disk::sync_folder(&path)?;
        let mut chain = Chain::open(ledger)?;
        if let Some(end) = chain.torn.take() {
            file.set_len(end).and_then(|()| file.sync_all()).map_err(unwritable)?;
        }
        Ok(Self { path, file, chain })
    }

    /// What it holds.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Refuses a clock that is behind the last line.
    ///
    /// # Errors
    /// `clock-set-back`.
    pub fn check_clock(&self, now: Date) -> Result<(), LedgerError> {
        check_clock(&self.path, now, self.chain.last())
    }

    /// Makes sure that two more lines have room on the disk, so that what is begun in the log can be
    /// ended in it. A file system that reserves nothing is taken at its word.
    ///
    /// # Errors
    /// `ledger-full`; the log is as it was.
    pub fn reserve(&self) -> Result<(), LedgerError> {
        let unwritable = |source| disk::unwritable(&self.path, source);
        let end = self.file.metadata().map_err(unwritable)?.len();
        let room = 2 * MAX_LINE_BYTES as u64;
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, end, room) {
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) | Ok(()) => Ok(()),
            Err(error) => Err(unwritable(error.into())),
        }
    }

    /// Appends one event and waits until it is on the disk.
    ///
    /// # Errors
    /// `clock-set-back`, or that it cannot be written, for instance `ledger-full`; then the log is
    /// as it was.
    pub fn append(&mut self, mut event: Event, now: Date) -> Result<&Entry, LedgerError> {
        self.check_clock(now)?;
        let invalid = |reason: String| LedgerError::refused("log-tampered", &self.path, reason);
        if !is_file_name(&event.name) {
            let reason = format!("{:?} is no name that the log can hold", event.name);
            return Err(LedgerError::Invalid { path: self.path.clone(), reason });
        }
        for text in [&mut event.reason, &mut event.by].into_iter().flatten() {
            *text = text.chars().take(MAX_WORDS).collect();
        }
        let last = self.chain.entries.last();
        let mut entry = Entry {
            number: last.map_or(1, |last| last.number + 1),
            date: now,
            event,
            previous: last.map_or(NOTHING, |last| last.hash.as_str()).to_owned(),
            hash: String::new(),
        };
        entry.hash = sha256(entry.body().map_err(invalid)?.as_bytes());
        let mut line = entry.line().map_err(invalid)?;
        line.push('\n');
        disk::check(&self.path, line.len() as u64, MAX_LINE_BYTES as u64)?;
        let unwritable = |source| disk::unwritable(&self.path, source);
        let before = self.file.metadata().map_err(unwritable)?.len();
        disk::check(&self.path, before + line.len() as u64, MAX_LOG_BYTES)?;
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_all());
        if let Err(source) = written {
            // If this fails too, the next who opens the log cuts the tail off.
            let _ = self.file.set_len(before);
            return Err(unwritable(source));
        }
        self.chain.entries.push(entry);
        self.chain.entries.last().ok_or_else(|| {
            LedgerError::refused("log-tampered", &self.path, "no entry after an append")
        })
    }
}

/// Refuses a clock that is behind the log's last line; `path`: the log, for the message.
pub(crate) fn check_clock(path: &Path, now: Date, last: Option<Date>) -> Result<(), LedgerError> {
    match last.filter(|last| *last > now) {
        None => Ok(()),
        Some(last) => Err(LedgerError::refused(
            "clock-set-back",
            path,
            format!("its last line is of {last}, and the clock says {now}; set the clock"),
        )),
    }
}
