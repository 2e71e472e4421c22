//! The list of models, kept as long as nothing in the folder of names has changed.
//!
//! A file or folder is taken as unchanged while its time and length are. Times are coarse, so what
//! was changed a moment before it was read is not kept: the next change might bear the same time.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use super::{Located, error::Result, layout::Layout};

/// How old a change must be.
const SETTLED: Duration = Duration::from_secs(2);

/// When something was changed, and its length; none: it is not there.
type Mark = Option<(SystemTime, u64)>;

/// What a list was read from.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<(PathBuf, Mark)>);

impl Marks {
    /// Notes something that is about to be read.
    pub(super) fn note(&mut self, layout: &Layout, path: PathBuf) {
        let mark = mark(layout, &path);
        self.0.push((path, mark));
    }

    fn hold(&self, layout: &Layout) -> bool {
        self.0.iter().all(|(path, known)| mark(layout, path) == *known)
    }

    fn settled(&self, read: SystemTime) -> bool {
        let old = |time: &SystemTime| read.duration_since(*time).is_ok_and(|age| age > SETTLED);
        self.0.iter().all(|(_, mark)| mark.as_ref().is_none_or(|(time, _)| old(time)))
    }
}

fn mark(layout: &Layout, path: &PathBuf) -> Mark {
    let metadata = layout.dir.metadata(path).ok()?;
    Some((metadata.modified().ok()?.into_std(), metadata.len()))
}

/// The kept list.
#[derive(Debug, Default)]
pub(super) struct Listing(Mutex<Option<(Marks, Vec<Located>)>>);

impl Listing {
    /// The list as it is, read anew where something changed.
    pub(super) fn get(
        &self,
        layout: &Layout,
        read: impl FnOnce(&mut Marks) -> Result<Vec<Located>>,
    ) -> Result<Vec<Located>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((marks, models)) = &*kept
            && marks.hold(layout)
        {
            return Ok(models.clone());
        }
        *kept = None;
        let (begun, mut marks) = (SystemTime::now(), Marks::default());
        let models = read(&mut marks)?;
        if marks.settled(begun) {
            *kept = Some((marks, models.clone()));
        }
        Ok(models)
    }
}
