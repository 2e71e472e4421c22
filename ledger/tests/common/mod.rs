//! A ledger with everything in it, in a folder of its own, and a host that does as it is told.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly, and use of this what they need"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ed25519_dalek::SigningKey;
use gristmill_ledger::{
    Audit, Changed, Date, Draft, Granted, Host, HostRefusal, Inspected, Keeper, Kind, Ledger,
    LedgerError, Pin, Plan, Report, Rules, Step, Terms,
    contract::{self, World},
    evidence::{
        self, Finding, Model, Outcome, Resource, STATEMENT, Statement, TEST_RESULT, TestResult,
        Tested, Verdict,
    },
    grant_digest,
    guardrail::{Guardrail, Measured, Rates},
    keys::{self, KEYS, Key, Keys},
    performance::{HostFingerprint, Record, ResultClass},
    sha256,
    source::Folder,
    upstream::{Status, Upstream},
};

pub const NAME: &str = "one";
pub const CLASS: &str = "x86_64-avx2-2";
pub const NOW: &str = "2026-11-30T12:00:00Z";

pub fn date(text: &str) -> Date {
    text.parse().unwrap()
}

pub fn seed(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[number; 32])
}

/// A host that says what it was told to say and notes what it was asked.
#[derive(Debug)]
pub struct Told {
    pub inspected: Inspected,
    pub rates: Result<Rates, String>,
    /// The call that fails: `inspect`, `measure`, `compile`, `smoke`, `swap`.
    pub fails: &'static str,
    pub asked: Vec<&'static str>,
    pub generation: u64,
    /// At this step the process is gone.
    pub dies: Option<Step>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            inspected: inspected(),
            rates: Ok(Rates { prefill: 100.0, decode: 20.0 }),
            fails: "",
            asked: Vec::new(),
            generation: 1,
            dies: None,
        }
    }
}

impl Told {
    pub fn failing(fails: &'static str) -> Self {
        Self { fails, ..Self::default() }
    }

    fn ask(&mut self, what: &'static str) -> Result<(), HostRefusal> {
        self.asked.push(what);
        if self.fails == what { Err(format!("{what} fails").into()) } else { Ok(()) }
    }
}

impl Host for Told {
    fn class(&self) -> String {
        CLASS.to_owned()
    }

    fn inspect(&mut self, _: &[u8]) -> Result<Inspected, HostRefusal> {
        self.ask("inspect").map(|()| self.inspected.clone())
    }

    fn measure(&mut self, _: &Pin, _: &[u8]) -> Result<Rates, HostRefusal> {
        self.ask("measure")?;
        self.rates.clone().map_err(HostRefusal::from)
    }

    fn compile(&mut self, _: &Pin, _: &[u8]) -> Result<(), HostRefusal> {
        self.ask("compile")
    }

    fn smoke(&mut self, _: &Pin, _: &[u8]) -> Result<(), HostRefusal> {
        self.ask("smoke")
    }

    fn swap(&mut self, _: &Pin, _: &[u8]) -> Result<Option<u64>, HostRefusal> {
        self.ask("swap")?;
        self.generation += 1;
        Ok(Some(self.generation))
    }

    fn reached(&mut self, step: Step) {
        if self.dies == Some(step) {
            die();
        }
    }
}

/// As `kill -9` of this process.
pub fn die() -> ! {
    let id = std::process::id().to_string();
    std::process::Command::new("kill").args(["-9", &id]).status().unwrap();
    unreachable!("killed");
}

pub fn inspected() -> Inspected {
    Inspected {
        kind: Kind::Backend,
        contract: "0.1".into(),
        imports: vec![
            "gristmill:contract/types@0.1.0".into(),
            "gristmill:contract/upstream@0.1.0".into(),
        ],
    }
}

/// A report without failures on this component.
pub fn report(component: &[u8], when: &str) -> Statement {
    let statement = Statement {
        kind: STATEMENT.into(),
        subject: vec![Resource::new(NAME, &sha256(component))],
        predicate_type: TEST_RESULT.into(),
        predicate: TestResult {
            result: Verdict::Passed,
            configuration: vec![Resource::new("probe-text", &sha256(b"probe"))],
            passed_tests: vec!["text.greedy".into()],
            failed_tests: Vec::new(),
            backend: Tested {
                name: NAME.into(),
                id: NAME.into(),
                kind: NAME.into(),
                version: "0.1.0".into(),
                server_version: None,
            },
            model: Model { id: "m".into(), digest: None, family: None, quantization: None },
            host: evidence::Host {
                os: "linux".into(),
                arch: "x86_64".into(),
                isa: "avx2".into(),
                threads: 2,
                runtime: "0.1.0".into(),
            },
            date: when.into(),
            checks: vec![Finding {
                id: "text.greedy".into(),
                capability: "conduct.determinism".into(),
                probe: "probe-text".into(),
                outcome: Outcome::Passed,
                reason: None,
                evidence: "the same twice".into(),
            }],
            content_digest: None,
        },
    };
    statement.seal().unwrap()
}

pub fn record(component: &[u8]) -> Record {
    Record {
        component: NAME.into(),
        component_digest: sha256(component),
        host: HostFingerprint {
            os: "linux".into(),
            arch: "x86_64".into(),
            isa: "avx2".into(),
            processors: 2,
            processor: None,
            memory: 8 << 30,
            runtime: "0.1.0".into(),
        },
        model: "m".into(),
        model_digest: Some(sha256(b"model")),
        quantization: "Q4_K_M".into(),
        placement: "cpu".into(),
        threads: 2,
        prefill_tokens: 1_000,
        decode_tokens: 200,
        prefill_per_second: 100.0,
        decode_per_second: 20.0,
        memory: BTreeMap::from([("weights".into(), 1 << 20), ("kv".into(), 1 << 16)]),
        result: ResultClass::Steady,
        date: date(NOW),
    }
}

pub fn upstream() -> Upstream {
    Upstream {
        project: "ollama".into(),
        status: Status::ObservedUnpinned,
        version: None,
        commit: None,
        date: date(NOW),
        transcripts: None,
        licence: "MIT".into(),
        provenance: "recorded".into(),
        hardware: Vec::new(),
        enabled: vec!["inference.text".into()],
        disabled: Vec::new(),
        families: Vec::new(),
    }
}

/// A folder with a ledger, components, grants and, outside of the ledger, a state file.
pub struct Home {
    pub root: PathBuf,
    pub worlds: Vec<World>,
    /// Removed with this; none in a child, which does not own it.
    _folder: Option<tempfile::TempDir>,
}

impl Home {
    /// A ledger that asks for signatures of two of three keys (seeds 1 to 3).
    pub fn signed() -> Self {
        let home = Self::unsigned();
        home.trust(2, &[1, 2, 3]);
        home
    }

    /// A developer's ledger.
    pub fn unsigned() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = Self { _folder: Some(folder), ..Self::at(PathBuf::new()) };
        let root = home._folder.as_ref().unwrap().path().to_owned();
        let home = Self { root, ..home };
        fs::create_dir_all(home.ledger()).unwrap();
        fs::create_dir_all(home.path("components")).unwrap();
        fs::create_dir_all(home.path("policies/grants")).unwrap();
        let grant = "# A grant.\nkind = \"backend\"\nimports = [\"gristmill:contract/upstream\"]\n";
        fs::write(home.path("policies/grants/one.toml"), grant).unwrap();
        home.trust(0, &[]);
        home
    }

    pub fn at(root: PathBuf) -> Self {
        Self { root, worlds: contract::worlds(), _folder: None }
    }

    pub fn trust(&self, threshold: u32, seeds: &[u8]) {
        let keys = seeds.iter().map(|number| Key::of(format!("key {number}"), &seed(*number)));
        let keys = Keys { threshold, keys: keys.collect() };
        fs::write(self.ledger().join(KEYS), keys.to_toml().unwrap()).unwrap();
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    pub fn ledger(&self) -> PathBuf {
        self.path("ledger")
    }

    pub fn place(&self) -> PathBuf {
        self.ledger().join("pins/one.toml")
    }

    pub fn state(&self) -> PathBuf {
        self.path("state.toml")
    }

    pub fn keeper(&self) -> Keeper {
        self.try_keeper().unwrap()
    }

    pub fn try_keeper(&self) -> Result<Keeper, LedgerError> {
        Keeper::open(&self.ledger(), Some(&self.state()))
    }

    /// Writes a component and its report, and drafts the pin that follows the one in force.
    pub fn draft(&self, keeper: &Keeper, component: &[u8]) -> Pin {
        fs::write(self.path("components/one.wasm"), component).unwrap();
        let report = serde_json::to_vec(&report(component, "2026-11-29T12:00:00Z")).unwrap();
        let digest = sha256(&report);
        fs::create_dir_all(self.ledger().join("evidence")).unwrap();
        let file = self.ledger().join("evidence").join(format!("{}.json", &digest[..12]));
        fs::write(file, report).unwrap();
        let inspected = inspected();
        let measured = vec![Measured { host_class: CLASS.into(), prefill: 100.0, decode: 20.0 }];
        let draft = Draft {
            original: Some("one.wasm"),
            worlds: &self.worlds,
            grant: grant_digest(&self.path("policies"), NAME, Kind::Backend).unwrap(),
            evidence: vec![digest],
            guardrail: Some(Guardrail { tolerance: 0.05, measured }),
            ..Draft::new(NAME, "one.wasm", component, &inspected)
        };
        keeper.draft(&draft).unwrap()
    }

    /// The text of a pin, signed by these.
    pub fn sealed(&self, mut pin: Pin, seeds: &[u8]) -> String {
        for number in seeds {
            keys::sign(&mut pin, &seed(*number)).unwrap();
        }
        pin.to_toml().unwrap()
    }

    pub fn with_terms<T>(&self, now: &str, act: impl FnOnce(Terms<'_>) -> T) -> T {
        let digest = grant_digest(&self.path("policies"), NAME, Kind::Backend).unwrap();
        let allows = |import: &str| {
            import.starts_with("gristmill:contract/types@")
                || import.starts_with("gristmill:contract/upstream@")
        };
        let (source, rules) = (Folder(self.path("components")), Rules::default());
        let terms = Terms {
            source: &source,
            grant: &Granted { digest, allows: &allows },
            worlds: &self.worlds,
            rules: &rules,
            now: date(now),
            by: "test",
        };
        act(terms)
    }

    pub fn promote(
        &self,
        keeper: &mut Keeper,
        text: &str,
        host: &mut Told,
    ) -> Result<Changed, LedgerError> {
        self.promote_at(NOW, keeper, text, host)
    }

    pub fn promote_at(
        &self,
        now: &str,
        keeper: &mut Keeper,
        text: &str,
        host: &mut Told,
    ) -> Result<Changed, LedgerError> {
        self.with_terms(now, |terms| keeper.promote(&Plan { name: NAME, text, terms }, host))
    }

    pub fn rollback(
        &self,
        keeper: &mut Keeper,
        to: Option<u64>,
        host: &mut Told,
    ) -> Result<Changed, LedgerError> {
        self.with_terms(NOW, |terms| keeper.rollback(NAME, to, terms, host))
    }

    pub fn serve(&self, keeper: &Keeper, host: &mut Told) -> Result<String, LedgerError> {
        self.with_terms(NOW, |terms| keeper.serve(NAME, terms, host)).map(|proven| proven.digest)
    }

    /// Promotes this component, signed by two; the pin's text.
    pub fn promoted(&self, component: &[u8]) -> String {
        let mut keeper = self.keeper();
        let text = self.sealed(self.draft(&keeper, component), &[1, 2]);
        self.promote(&mut keeper, &text, &mut Told::default()).unwrap();
        text
    }

    pub fn audit(&self) -> Report {
        self.audit_at(NOW)
    }

    pub fn audit_at(&self, now: &str) -> Report {
        let source = Folder(self.path("components"));
        let audit = Audit {
            components: Some(&source),
            policies: Some(&self.path("policies")),
            transcripts: None,
            worlds: &self.worlds,
            state: Some(&self.state()),
            now: date(now),
        };
        Ledger::verify(&self.ledger(), &audit).unwrap()
    }

    /// The codes of all that is wrong.
    pub fn faults(&self) -> Vec<&'static str> {
        self.audit().faults.iter().map(LedgerError::code).collect()
    }

    pub fn in_place(&self) -> String {
        fs::read_to_string(self.place()).unwrap()
    }
}

/// Every file below a folder with its content.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}
