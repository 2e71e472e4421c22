//! One file from a server: continued where it broke off, and verified before it is used.
//!
//! What arrives is appended to `downloads/KEY.part`; beside it `KEY.json` says of what it is a
//! part. It is continued only when the server confirms that the rest belongs to the same bytes
//! (`If-Range` with a strong validator, or a digest that is checked at the end anyway), and starts
//! over otherwise. The caller holds the download's lock, so that nobody else writes to the part.

use std::{
    io::Write,
    path::{Path, PathBuf},
    thread,
};

use serde::{Deserialize, Serialize};

use super::{
    Store,
    digest::Digest,
    error::{Result, StoreError},
    http::{Answer, Client},
    import::Staged,
    layout::{Layout, Staging, TICK},
    progress::{Progress, Reporter, Stage},
};

/// No state file is longer.
const MAX_STATE: u64 = 1 << 16;

/// A file to fetch.
pub(super) struct Wanted {
    pub(super) url: String,
    /// What to call it in reports.
    pub(super) label: String,
    /// What is known of it beforehand.
    pub(super) sha256: Option<Digest>,
    pub(super) size: Option<u64>,
}

/// What a `.part` is a part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    url: String,
    /// The strong validator of the answer it came from.
    etag: Option<String>,
    sha256: Option<Digest>,
    size: u64,
}

struct Part<'a> {
    layout: &'a Layout,
    data: PathBuf,
    state: PathBuf,
    aside: PathBuf,
}

/// Fetches a file into the staging folder as `to`.
pub(super) fn download(
    store: &Store,
    staging: &Staging<'_>,
    client: &Client,
    wanted: &Wanted,
    to: &str,
    progress: &mut dyn Progress,
) -> Result<Staged> {
    let layout = &store.layout;
    let known = wanted.sha256.map(|digest| digest.to_string());
    let mut reporter = Reporter::new(progress, &wanted.label);
    reporter.digest = known.as_deref();
    reporter.total = wanted.size;

    if let Some(digest) = wanted.sha256
        && let Some(staged) = store.reuse(staging, to, digest, &mut reporter)?
    {
        return Ok(staged);
    }
    layout.folder(Path::new("downloads"))?;
    let key = Digest::of(wanted.url.as_bytes());
    let name: String = key.hex().chars().take(32).collect();
    let part = Part {
        layout,
        data: PathBuf::from(format!("downloads/{name}.part")),
        state: PathBuf::from(format!("downloads/{name}.json")),
        aside: PathBuf::from(format!("downloads/{name}.new")),
    };
    let mut failures = 0;
    let mut fresh = false;
    loop {
        match attempt(client, wanted, &part, &mut reporter) {
            Ok((digest, size)) => {
                let path = staging.file(to);
                layout.rename(&part.data, &path)?;
                layout.remove(&part.state)?;
                return Ok(Staged { path, digest, size });
            }
            // A part from an earlier time may be the culprit: once, all of it is fetched anew.
            Err((StoreError::Digest { .. }, true)) if !fresh => fresh = true,
            Err((error, _)) if error.is_transient() && failures < store.sources.retries => {
                tracing::info!(%error, "continuing a download");
                let pause = store.sources.pause.saturating_mul(1 << failures.min(10));
                failures += 1;
                let ticks = pause.as_millis() / TICK.as_millis();
                for _ in 0..ticks {
                    reporter.at(Stage::Waiting, part.len())?;
                    thread::sleep(TICK);
                }
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// One request and what comes of it. A failure comes with whether an earlier part was used.
fn attempt(
    client: &Client,
    wanted: &Wanted,
    part: &Part<'_>,
    reporter: &mut Reporter<'_>,
) -> std::result::Result<(Digest, u64), (StoreError, bool)> {
    let before = part.usable(wanted);
    let resumed = before.is_some();
    let state = match before {
        // All of it is here already; it only was not verified any more.
        Some(state) if part.len() == state.size => Ok(state),
        before => receive(client, wanted, part, before, reporter),
    };
    let verify = |state: State, reporter: &mut Reporter<'_>| {
        let file = part.layout.read(&part.data)?;
        let (digest, size) = Digest::read(&file, reporter, Stage::Verifying)?;
        if let Err(error) = digest.must_be(state.sha256.or(wanted.sha256), &wanted.label) {
            part.discard()?;
            return Err(error);
        }
        file.sync_all()
            .map_err(|e| StoreError::io("write", part.layout.absolute(&part.data), e))?;
        Ok((digest, size))
    };
    state.and_then(|state| verify(state, reporter)).map_err(|error| (error, resumed))
}

/// Asks for the file, or the rest of it, and appends what comes.
fn receive(
    client: &Client,
    wanted: &Wanted,
    part: &Part<'_>,
    before: Option<State>,
    reporter: &mut Reporter<'_>,
) -> Result<State> {
    let have = before.as_ref().map_or(0, |_| part.len());
    let mut headers = Vec::new();
    if let Some(before) = before.as_ref().filter(|_| have > 0) {
        headers.push(("Range", format!("bytes={have}-")));
        if let Some(etag) = &before.etag {
            headers.push(("If-Range", etag.clone()));
        }
    }
    let mut answer =
        client.get(&wanted.url, headers, &mut || reporter.at(Stage::Resolving, have))?;
    if answer.status == 416 {
        // The file is shorter now than what we have of it.
        part.discard()?;
        return Err(again(wanted, "the file has changed"));
    }
    answer.succeed()?;
    let start = if answer.status == 206 { have } else { 0 };
    let state = describe(wanted, &answer, start)?;
    if before.as_ref().is_some_and(|before| start > 0 && before.sha256 != state.sha256) {
        part.discard()?;
        return Err(again(wanted, "the file has changed"));
    }
    if start == 0 {
        part.discard()?;
    }
    part.layout.room(&wanted.label, state.size.saturating_sub(start))?;
    let text = serde_json::to_vec(&state).map_err(|e| StoreError::invalid(&wanted.label, e))?;
    part.layout.replace(&part.state, &part.aside, &text)?;
    reporter.total = Some(state.size);

    let mut file = part.layout.append(&part.data)?;
    let mut done = start;
    reporter.at(Stage::Downloading, done)?;
    let mut told = done;
    while let Some(chunk) = answer.chunk(&mut || reporter.at(Stage::Downloading, done))? {
        done = done.saturating_add(chunk.len() as u64);
        if done > state.size {
            part.discard()?;
            let reason = format!("more than the {} bytes it promised", state.size);
            return Err(StoreError::upstream(&wanted.url, reason));
        }
        file.write_all(&chunk)
            .map_err(|error| StoreError::io("write", part.layout.absolute(&part.data), error))?;
        if done - told >= 1 << 20 || done == state.size {
            told = done;
            reporter.at(Stage::Downloading, done)?;
        }
    }
    if done == state.size {
        return Ok(state);
    }
    Err(again(wanted, &format!("it ended after {done} of {} bytes", state.size)))
}

fn again(wanted: &Wanted, reason: &str) -> StoreError {
    StoreError::Unreachable { url: wanted.url.clone(), reason: reason.to_owned() }
}

/// What the head of an answer says about the file, checked against what is known and asked.
fn describe(wanted: &Wanted, answer: &Answer, start: u64) -> Result<State> {
    let nonsense = |reason: String| StoreError::upstream(&wanted.url, reason);
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u64>().ok());
    let length = number(answer.header("content-length"));
    let size = if answer.status == 206 {
        let range = answer.header("content-range").unwrap_or_default();
        let (from, total) = content_range(range)
            .ok_or_else(|| nonsense(format!("an unusable content-range `{range}`")))?;
        if from != start {
            return Err(nonsense(format!("bytes from {from}, asked for those from {start}")));
        }
        if length.is_some_and(|length| start.checked_add(length) != Some(total)) {
            return Err(nonsense(format!("{length:?} bytes of {total} from {start}")));
        }
        total
    } else {
        length.ok_or_else(|| nonsense("no content-length".to_owned()))?
    };
    let linked = number(answer.hub_header("x-linked-size"));
    for promised in [wanted.size, linked].into_iter().flatten() {
        if promised != size {
            return Err(nonsense(format!("{size} bytes, but {promised} are published")));
        }
    }
    // The hub's etag of a large file is its sha256; of a small one it is a git object's id.
    let etag = answer.hub_header("x-linked-etag").map(|etag| etag.trim_matches('"'));
    let linked = etag.and_then(Digest::parse);
    let sha256 = match (wanted.sha256, linked) {
        (Some(wanted_digest), Some(linked)) if wanted_digest != linked => {
            return Err(StoreError::Digest {
                what: format!("{} on the hub", wanted.label),
                expected: wanted_digest.hex(),
                found: linked.hex(),
            });
        }
        (known, linked) => known.or(linked),
    };
    let strong = |etag: &&str| etag.starts_with('"') && etag.len() <= 512;
    let etag = answer.header("etag").filter(strong).map(str::to_owned);
    Ok(State { url: wanted.url.clone(), etag, sha256, size })
}

/// `bytes FROM-TO/TOTAL`, where it reaches to the end.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to, total): (u64, u64, u64) =
        (from.parse().ok()?, to.parse().ok()?, total.parse().ok()?);
    (from <= to && to.checked_add(1)? == total).then_some((from, total))
}

impl Part<'_> {
    fn len(&self) -> u64 {
        self.layout.dir.metadata(&self.data).map_or(0, |metadata| metadata.len())
    }

    /// What is here of a file, if it can be continued.
    fn usable(&self, wanted: &Wanted) -> Option<State> {
        let file = self.layout.dir.open(&self.state).ok()?.into_std();
        let state: State = serde_json::from_reader(std::io::Read::take(file, MAX_STATE)).ok()?;
        let len = self.len();
        let good = state.url == wanted.url
            && wanted.sha256.is_none_or(|digest| state.sha256 == Some(digest))
            && wanted.size.is_none_or(|size| state.size == size)
            // Without a validator only a digest can tell whether the rest belongs to it.
            && (state.etag.is_some() || state.sha256.is_some())
            && (1..=state.size).contains(&len);
        good.then_some(state)
    }

    fn discard(&self) -> Result<()> {
        self.layout.remove(&self.data)?;
        self.layout.remove(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_must_reach_the_end() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, 10)));
        for bad in [
            "",
            "bytes 5-8/10",
            "bytes 5-9/*",
            "bytes 9-5/10",
            "items 5-9/10",
            "bytes 5-18446744073709551615/10",
        ] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
