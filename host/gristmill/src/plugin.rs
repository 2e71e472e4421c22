//! Commands for who writes and who installs plugins.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Subcommand, ValueEnum};
use gristmill_ledger::{
    Date, Draft, Granted, Keeper, Ledger, Pin, Plan, Rules, Terms, Unserved, contract,
    grant_digest, keys::Keys, source::OneFile,
};
use gristmill_sandbox::inspect;

use crate::{compose::Places, ledger::inspected};

/// `gristmill plugin …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a crate that builds to a plugin
    New {
        /// What it will be
        #[arg(long, value_enum)]
        kind: Kind,
        /// Its name: lower-case words with hyphens; also the folder
        name: String,
        /// The SDK: a folder, or a version requirement
        #[arg(long, value_name = "FOLDER")]
        sdk: Option<PathBuf>,
    },
    /// Kind, contract version, imports, digest of a component
    Inspect {
        /// A .wasm file
        file: PathBuf,
    },
    /// Write or replace the pins of components
    Pin {
        /// The ledger [default: the distribution's]
        #[arg(long)]
        ledger: Option<PathBuf>,
        /// The pin's name [default: from the file's name]
        #[arg(long)]
        name: Option<String>,
        /// The plugin's version [default: the one it had, else 0.1.0]
        #[arg(long)]
        version: Option<String>,
        /// .wasm files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Check every pin against its file
    Verify,
}

/// What a plugin can be.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    /// Serves models
    Backend,
    /// Defines a model family
    Family,
    /// Tests a back-end
    Probe,
}

/// Does it.
pub(crate) fn plugin(places: &Places, command: Command) -> Result<()> {
    match command {
        Command::New { kind, name, sdk } => create(kind, &name, sdk.as_deref()),
        Command::Inspect { file } => show(&file),
        Command::Pin { ledger, name, version, files } => {
            ensure!(name.is_none() || files.len() == 1, "--name is for one file");
            let ledger = ledger.unwrap_or_else(|| places.ledger.clone());
            let mut keeper = Keeper::open(&ledger, None)?;
            for file in &files {
                pin(&mut keeper, places, &ledger, file, name.as_deref(), version.as_deref())?;
            }
            Ok(())
        }
        Command::Verify => verify(places),
    }
}

fn show(file: &Path) -> Result<()> {
    let inspection = inspect(&read(file)?).with_context(|| file.display().to_string())?;
    println!("kind      {}", inspection.kind);
    println!("contract  {}", inspection.contract);
    println!("digest    {}", inspection.digest);
    println!("size      {}", inspection.size);
    for (title, names) in [("imports", &inspection.imports), ("exports", &inspection.exports)] {
        for (index, name) in names.iter().enumerate() {
            println!("{:<9} {name}", if index == 0 { title } else { "" });
        }
    }
    Ok(())
}

/// Pins a component: at once in a ledger that asks for no signatures, else as a candidate.
fn pin(
    keeper: &mut Keeper,
    places: &Places,
    ledger: &Path,
    file: &Path,
    name: Option<&str>,
    version: Option<&str>,
) -> Result<()> {
    let bytes = read(file)?;
    let inspected =
        inspected(&bytes).map_err(|refusal| anyhow!("{}: {refusal}", file.display()))?;
    let name = name.map_or_else(|| name_of(file), |name| Ok(name.to_owned()))?;
    let (file_name, worlds) = (file_name(file)?, contract::worlds());
    let grant = grant_digest(&places.policies, &name, inspected.kind)?;
    let draft = Draft {
        version,
        original: Some(&file_name),
        worlds: &worlds,
        grant: grant.clone(),
        ..Draft::new(&name, &file_name, &bytes, &inspected)
    };
    let pin = keeper.draft(&draft)?;
    let same = |known: &Pin| {
        known.verify(&bytes).is_ok()
            && known.imports == pin.imports
            && known.version == pin.version
            && (&known.grant, &known.world_digest) == (&pin.grant, &pin.world_digest)
    };
    let standing = keeper.standing(&name).pin;
    let in_force = keeper.in_force(&name)?;
    if in_force.is_some_and(|known| Some(&known.digest) == standing.as_ref() && same(&known.pin)) {
        return Ok(());
    }
    if Keys::open(ledger)?.threshold > 0 {
        let candidate = keeper.propose(&pin)?;
        println!("proposed {name} {}: {}", pin.digest(), candidate.display());
        return Ok(());
    }
    let text = pin.to_toml().map_err(anyhow::Error::msg)?;
    // Whoever loads it holds its imports against the grant.
    let grant = Granted { digest: grant, allows: &|_| true };
    let terms = Terms {
        source: &OneFile(file.to_owned()),
        grant: &grant,
        worlds: &worlds,
        rules: &Rules::developer(),
        now: Date::now(),
        by: "plugin pin",
    };
    let plan = Plan { name: &name, text: &text, terms };
    let changed = keeper.promote(&plan, &mut Unserved(inspected))?;
    println!("pinned {name} {}", changed.pin.digest());
    Ok(())
}

fn verify(places: &Places) -> Result<()> {
    let ledger = Ledger::open(&places.ledger)?;
    let mut wrong = 0;
    let mut checked = 0;
    for pin in ledger.pins() {
        checked += 1;
        let path = places.plugins.join(&pin.file);
        let result = read(&path).and_then(|bytes| {
            pin.verify(&bytes)?;
            let found = inspect(&bytes)?;
            ensure!(found.imports == pin.imports, "its imports are not the pinned ones");
            Ok(())
        });
        match result {
            Ok(()) => println!("{:<16} ok", pin.name),
            Err(error) => {
                wrong += 1;
                println!("{:<16} {error:#}", pin.name);
            }
        }
    }
    ensure!(checked > 0, "no pins in {}", places.ledger.display());
    ensure!(wrong == 0, "{wrong} of {checked} pins do not match");
    Ok(())
}

/// `gristmill_family_llama.wasm` → `llama`, `my_bridge.wasm` → `my-bridge`.
fn name_of(file: &Path) -> Result<String> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).context("a file needs a name")?;
    let name = stem.replace('_', "-");
    let short = ["gristmill-family-", "gristmill-backend-", "gristmill-probe-"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    Ok(short.unwrap_or(&name).to_owned())
}

fn file_name(file: &Path) -> Result<String> {
    file.file_name()
        .and_then(|name| name.to_str())
        .map(str::to_owned)
        .context("a file needs a name in UTF-8")
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// A template's files: path below the new crate, and text.
type Template = &'static [(&'static str, &'static str)];

macro_rules! template {
    ($kind:literal) => {
        &[
            ("Cargo.toml", include_str!(concat!("../../../sdk/templates/", $kind, "/Cargo.toml"))),
            ("README.md", include_str!(concat!("../../../sdk/templates/", $kind, "/README.md"))),
            ("src/lib.rs", include_str!(concat!("../../../sdk/templates/", $kind, "/src/lib.rs"))),
        ]
    };
}

const BACKEND: Template = template!("backend");
const FAMILY: Template = template!("family");
const PROBE: Template = template!("probe");

fn create(kind: Kind, name: &str, sdk: Option<&Path>) -> Result<()> {
    let sound = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    ensure!(sound, "a name has lower-case letters, digits and hyphens, found {name:?}");
    let folder = Path::new(name);
    ensure!(!folder.exists(), "{name} exists already");
    let sdk = match sdk {
        Some(sdk) => sdk.to_path_buf(),
        None => sdk_in_tree()?,
    };
    let sdk = sdk.canonicalize().with_context(|| format!("no SDK in {}", sdk.display()))?;
    let files = match kind {
        Kind::Backend => BACKEND,
        Kind::Family => FAMILY,
        Kind::Probe => PROBE,
    };
    for (path, text) in files {
        let target = folder.join(path);
        fs::create_dir_all(target.parent().unwrap_or(folder))?;
        let text = text.replace("{{name}}", name).replace("{{sdk}}", &sdk.display().to_string());
        fs::write(&target, text).with_context(|| format!("cannot write {}", target.display()))?;
    }
    println!(
        "{name} is ready:\n  cd {name}\n  cargo build --release --target wasm32-wasip2\n  \
         gristmill plugin inspect target/wasm32-wasip2/release/{}.wasm",
        name.replace('-', "_")
    );
    Ok(())
}

/// The SDK of the tree this binary was built from, while it is there.
fn sdk_in_tree() -> Result<PathBuf> {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/rust");
    if !sdk.is_dir() {
        bail!("the SDK's folder is not known; say where it is with --sdk FOLDER");
    }
    Ok(sdk)
}
