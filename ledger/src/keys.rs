//! Keys: who may stand for a pin (`keys.toml`), and how a pin is signed and its signatures counted.
//!
//! A secret key is a file of mode 0600 with an Ed25519 seed; it is never printed and never leaves its
//! file but to sign. A key that is revoked, or listed twice, does not count; a threshold that
//! cannot be reached is refused.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    LedgerError, Pin,
    digest::{bytes32, hex, is_digest},
    disk,
    revoked::Revoked,
    seal, sha256,
};

/// The file's name in a ledger.
pub const KEYS: &str = "keys.toml";

pub(crate) const MAX_KEYS_BYTES: u64 = 64 << 10;

/// Most keys of a ledger, and the longest name of one: they fit into the file.
const MAX_KEYS: usize = 128;
const MAX_NAME_BYTES: usize = 128;

/// A signature of a pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Id of the key: SHA-256 of the public key, hexadecimal.
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub key: String,
    /// Ed25519 over [`Pin::signed`], base64.
    pub signature: String,
}

impl Signature {
    pub(crate) fn check(&self) -> Result<(), String> {
        if !is_digest(&self.key) {
            let found = &self.key;
            return Err(format!(
                "signature key {found:?}: expected 64 lower-case hexadecimal digits"
            ));
        }
        self.bytes().map(|_| ())
    }

    fn bytes(&self) -> Result<ed25519_dalek::Signature, String> {
        let expected = || format!("signature of {}: expected 64 bytes in base64", self.key);
        let bytes = BASE64.decode(&self.signature).map_err(|_| expected())?;
        ed25519_dalek::Signature::from_slice(&bytes).map_err(|_| expected())
    }
}

/// A key that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Whose, for people.
    #[schemars(length(max = 128))]
    pub name: String,
    /// The public key: 64 hexadecimal digits.
    #[schemars(extend("pattern" = "^[0-9a-fA-F]{64}$"))]
    pub public: String,
}

impl Key {
    /// The public half of a secret key.
    #[must_use]
    pub fn of(name: impl Into<String>, secret: &SigningKey) -> Self {
        Self { name: name.into(), public: hex(secret.verifying_key().as_bytes()) }
    }

    /// Its id: SHA-256 of the public key.
    ///
    /// # Errors
    /// What was expected of a public key.
    pub fn id(&self) -> Result<String, String> {
        self.verifying().map(|key| sha256(key.as_bytes()))
    }

    pub(crate) fn verifying(&self) -> Result<VerifyingKey, String> {
        bytes32(&self.public)
            .and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok())
            .filter(|key| !key.is_weak())
            .ok_or_else(|| {
                format!("key of {}: expected an Ed25519 public key in hexadecimal", self.name)
            })
    }
}

/// Whose signatures count, and how many a pin needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "keys that count")]
pub struct Keys {
    /// How many different keys must have signed a pin; 0: none, as in a developer's tree.
    pub threshold: u32,
    /// The keys.
    #[serde(default)]
    pub keys: Vec<Key>,
}

impl Keys {
    /// Reads `keys.toml` of a ledger. There must be one: silence approves nothing.
    ///
    /// # Errors
    /// `invalid-keys`, or that it cannot be read.
    pub fn open(ledger: &Path) -> Result<Self, LedgerError> {
        let path = ledger.join(KEYS);
        let invalid = |reason: String| LedgerError::refused("invalid-keys", &path, reason);
        let bytes = disk::read_if_there(&path, MAX_KEYS_BYTES)?.ok_or_else(|| {
            invalid(
                "missing; restore it: who may approve pins must be said, also if it is nobody"
                    .into(),
            )
        })?;
        let text = String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
        Self::parse(&text).map_err(invalid)
    }

    /// Reads sealed keys.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let keys: Self = toml::from_str(seal::open(text)?).map_err(|error| error.to_string())?;
        keys.check()?;
        Ok(keys)
    }

    /// The sealed text of the file.
    ///
    /// # Errors
    /// What makes these keys invalid.
    pub fn to_toml(&self) -> Result<String, String> {
        self.check()?;
        toml::to_string(self).map(|text| seal::seal(&text)).map_err(|error| error.to_string())
    }

    fn check(&self) -> Result<(), String> {
        let mut ids = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let id = key.id()?;
            if key.name.len() > MAX_NAME_BYTES || key.name.chars().any(char::is_control) {
                return Err(format!(
                    "key {id}: expected a name of at most {MAX_NAME_BYTES} bytes without control characters"
                ));
            }
            if ids.contains(&id) {
                return Err(format!("key of {}: listed twice; a key counts once", key.name));
            }
            ids.push(id);
        }
        if ids.len() > MAX_KEYS {
            return Err(format!("expected at most {MAX_KEYS} keys, found {}", ids.len()));
        }
        if self.threshold as usize > ids.len() {
            return Err(format!("threshold {}: there are {} keys", self.threshold, ids.len()));
        }
        Ok(())
    }

    /// How many keys stand for this pin. Signatures of unknown and of revoked keys do not count; a wrong
    /// signature of a known key is refused whatever the threshold.
    ///
    /// # Errors
    /// Too few, or a wrong one.
    pub fn verify(&self, pin: &Pin, revoked: &Revoked) -> Result<u32, String> {
        let signed = pin.signed()?;
        let mut count = 0;
        for key in &self.keys {
            let (id, verifying) = (key.id()?, key.verifying()?);
            let Some(signature) = pin.signatures.iter().find(|one| one.key == id) else { continue };
            verifying.verify_strict(&signed, &signature.bytes()?).map_err(|_| {
                format!("the signature of {} is not of this pin; sign it again", key.name)
            })?;
            if revoked.key(&id).is_none() {
                count += 1;
            }
        }
        if count < self.threshold {
            return Err(format!(
                "expected signatures of {} of {} keys, found {count}; sign it with `gristmill ledger sign`",
                self.threshold,
                self.keys.len()
            ));
        }
        Ok(count)
    }
}

/// Makes a new key pair: the secret seed goes to this file, which must not exist yet.
///
/// # Errors
/// The file exists or cannot be written, or the system has no random numbers.
pub fn keygen(path: &Path, name: &str) -> Result<Key, LedgerError> {
    let mut seed = [0_u8; 32];
    getrandom::fill(&mut seed)
        .map_err(|error| disk::unwritable(path, std::io::Error::other(error.to_string())))?;
    let secret = SigningKey::from_bytes(&seed);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| {
            file.write_all(format!("{}\n", hex(secret.as_bytes())).as_bytes())?;
            file.sync_all()
        })
        .map_err(|source| disk::unwritable(path, source))?;
    Ok(Key::of(name, &secret))
}

/// Reads a secret key, 64 hexadecimal digits, in a file that nobody else can read.
///
/// # Errors
/// `key-exposed` where others may read the file; an unreadable file; `invalid-keys` for other content, which
/// is not repeated.
pub fn secret(path: &Path) -> Result<SigningKey, LedgerError> {
    let unreadable = |source| LedgerError::Io { path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(LedgerError::refused(
            "key-exposed",
            path,
            format!("others may read it (mode {mode:o}); make a new key and revoke this one"),
        ));
    }
    let bytes = disk::read(path, 1 << 10)?;
    let seed = std::str::from_utf8(&bytes).ok().and_then(|text| bytes32(text.trim()));
    let reason = "expected a seed of 64 hexadecimal digits";
    let seed = seed.ok_or_else(|| LedgerError::refused("invalid-keys", path, reason))?;
    Ok(SigningKey::from_bytes(&seed))
}

/// Signs a pin; an earlier signature of the same key is replaced.
///
/// # Errors
/// What makes this pin invalid.
pub fn sign(pin: &mut Pin, secret: &SigningKey) -> Result<(), String> {
    let signature = detached(pin, secret)?;
    put(pin, signature);
    Ok(())
}

/// A signature of a pin that lies somewhere else.
///
/// # Errors
/// What makes this pin invalid.
pub fn detached(pin: &Pin, secret: &SigningKey) -> Result<Signature, String> {
    let key = sha256(secret.verifying_key().as_bytes());
    Ok(Signature { key, signature: BASE64.encode(secret.sign(&pin.signed()?).to_bytes()) })
}

/// Puts a signature into a pin that was made elsewhere, with the key whose public half this is, in
/// hexadecimal. An earlier one of the same key is replaced.
///
/// # Errors
/// It is no key, no signature, or not that key's of this pin.
pub fn attach(pin: &mut Pin, public: &str, signature: &str) -> Result<(), String> {
    let key = Key { name: "the signature".to_owned(), public: public.to_owned() };
    let verifying = key.verifying()?;
    let signature = Signature { key: key.id()?, signature: signature.to_owned() };
    verifying.verify_strict(&pin.signed()?, &signature.bytes()?).map_err(|_| {
        "it is not of this candidate, which may have changed since; sign the one that lies here now"
            .to_owned()
    })?;
    put(pin, signature);
    Ok(())
}

fn put(pin: &mut Pin, signature: Signature) {
    pin.signatures.retain(|other| other.key != signature.key);
    pin.signatures.push(signature);
    pin.signatures.sort_by(|a, b| a.key.cmp(&b.key));
}
