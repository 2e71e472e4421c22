//! All parameter policies and profiles of a folder, and which of them applies to a request.
//!
//! Of several policies that match, the most specific applies, alone. Specific is, in this order:
//! a variant by its whole name, one by a longer beginning, a family, a back-end, one version, a range
//! of versions, a later word of the host's hardware. Two that would be equally specific for one
//! request are an error when they are read. What cannot be seen then (two names of one model, a server
//! that does not tell its version) goes to the id that is first in the alphabet.
//!
//! Bounds: a file is a page of text; nothing is kept per request.

use std::path::{Path, PathBuf};

use crate::{
    PolicyError,
    control::{Asked, Control},
    files,
    judge::{Judgement, Outcome, Refusal, Verdict},
    parameter::ParameterPolicy,
    profile::{NONE, Profile},
};

/// Whom a request is for.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// Every name of the model, as [`fold`] makes it.
    pub names: Vec<String>,
    /// The model's family, where it is known.
    pub family: Option<&'a str>,
    /// Kind of the back-end.
    pub backend: &'a str,
    /// Version of the server, or of the back-end; one that cannot be read is in every range.
    pub version: &'a str,
    /// Longest context the back-end tells for the model, in tokens.
    pub native_max: Option<u32>,
}

/// Parameter policies and profiles, as the host has read them.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    policies: Vec<ParameterPolicy>,
    profiles: Vec<Profile>,
    hardware: Vec<String>,
}

/// How specific a match is; a greater one goes first.
type Rank = (usize, bool, bool, u8, usize);

impl Rules {
    /// Reads every file in `dir/parameters` and `dir/profiles`. A folder that is missing holds none.
    /// `hardware`: the words for this host, the most general first.
    ///
    /// # Errors
    /// The first file that cannot be read, is not what its folder says, or is as specific as another
    /// one; a folder or file in `dir` that this host does not know, because it would not be kept to.
    pub fn open(dir: &Path, hardware: Vec<String>) -> Result<Self, PolicyError> {
        files::known(dir)?;
        let policies = files::each(dir, "parameters", ParameterPolicy::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let profiles =
            files::each(dir, "profiles", Profile::parse).collect::<Result<Vec<_>, _>>()?;
        Self::new(policies, profiles, hardware).map_err(|clash| PolicyError::Ambiguous {
            path: dir.join(&clash.folder),
            reason: clash.to_string(),
        })
    }

    /// Rules of these policies and profiles.
    ///
    /// # Errors
    /// Two that are equally specific.
    pub fn new(
        mut policies: Vec<ParameterPolicy>,
        mut profiles: Vec<Profile>,
        hardware: Vec<String>,
    ) -> Result<Self, Clash> {
        policies.sort_by(|a, b| a.id.cmp(&b.id));
        profiles.sort_by(|a, b| a.name.cmp(&b.name));
        for (place, one) in policies.iter().enumerate() {
            if let Some(other) = policies.iter().skip(place + 1).find(|other| clash(one, other)) {
                return Err(Clash::new("parameters", &one.id, &other.id));
            }
        }
        for (place, one) in profiles.iter().enumerate() {
            let equal = |other: &&Profile| {
                one.backend == other.backend
                    && one.models.iter().any(|model| other.models.contains(model))
            };
            if let Some(other) = profiles.iter().skip(place + 1).find(equal) {
                return Err(Clash::new("profiles", &one.name, &other.name));
            }
        }
        Ok(Self { policies, profiles, hardware })
    }

    /// All policies, by id; those for other hardware too.
    #[must_use]
    pub fn policies(&self) -> &[ParameterPolicy] {
        &self.policies
    }

    /// All profiles, by name.
    #[must_use]
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Whether the version behind a back-end of this kind matters, so that it has to be asked for.
    #[must_use]
    pub fn ask_version(&self, backend: &str) -> bool {
        self.policies.iter().any(|policy| {
            policy.versions.narrowness() > 0
                && policy.backend.as_ref().is_none_or(|kind| kind == backend)
        })
    }

    /// The policy that applies.
    #[must_use]
    pub fn policy(&self, subject: &Subject<'_>) -> Option<&ParameterPolicy> {
        let ranked = self.policies.iter().filter_map(|it| Some((self.rank(it, subject)?, it)));
        first_of_the_greatest(ranked)
    }

    /// The profile that is assigned.
    #[must_use]
    pub fn assigned(&self, subject: &Subject<'_>) -> Option<&Profile> {
        let ranked = self.profiles.iter().filter(|it| it.fits(subject.backend)).filter_map(|it| {
            let rank = it.models.iter().filter_map(|model| matches(model, &subject.names)).max()?;
            Some(((rank, it.backend.is_some()), it))
        });
        first_of_the_greatest(ranked)
    }

    /// Judges a request: fills in the profile that the caller selects, or else the assigned one,
    /// applies the one policy, and changes what is asked accordingly.
    ///
    /// # Errors
    /// [`Refusal::Profile`] for a profile that there is not, [`Refusal::Control`] for a control that
    /// the policy refuses.
    pub fn judge(
        &self,
        subject: &Subject<'_>,
        selected: Option<&str>,
        asked: &mut Asked,
    ) -> Result<Judgement, Refusal> {
        let profile = self.profile(subject, selected)?;
        let mut verdicts = profile.map(|profile| fill(profile, asked)).unwrap_or_default();
        let policy = self.policy(subject);
        if let Some(policy) = policy {
            let judged = policy.judge(asked, subject.native_max)?;
            let told = |control| judged.iter().any(|it: &Verdict| it.control == control);
            // What a profile puts in and the policy takes out again was never in.
            verdicts.retain(|filled| match asked.get(&filled.control) {
                None => false,
                Some(_) => !told(filled.control) || passed(&judged, filled.control),
            });
            verdicts.extend(judged);
        }
        let verified = policy.and_then(|policy| policy.context.as_ref());
        Ok(Judgement {
            policy: policy.map(|policy| policy.id.clone()),
            profile: profile.map(|profile| profile.name.clone()),
            verdicts,
            context_verified: verified.is_some_and(|context| context.override_verified)
                && asked.contains_key(&Control::NumCtx),
        })
    }

    fn profile(
        &self,
        subject: &Subject<'_>,
        selected: Option<&str>,
    ) -> Result<Option<&Profile>, Refusal> {
        let fitting = || self.profiles.iter().filter(|profile| profile.fits(subject.backend));
        match selected {
            None => Ok(self.assigned(subject)),
            Some(NONE) => Ok(None),
            Some(name) => match fitting().find(|profile| profile.name == name) {
                Some(profile) => Ok(Some(profile)),
                None => Err(Refusal::Profile {
                    name: name.to_owned(),
                    known: fitting().map(|profile| profile.name.clone()).collect(),
                }),
            },
        }
    }

    fn rank(&self, policy: &ParameterPolicy, subject: &Subject<'_>) -> Option<Rank> {
        let variant = match policy.variants.as_slice() {
            [] => 0,
            variants => variants.iter().filter_map(|it| matches(it, &subject.names)).max()?,
        };
        let named = |wanted: &Option<String>, is: Option<&str>| match wanted {
            None => Some(false),
            Some(wanted) => (Some(wanted.as_str()) == is).then_some(true),
        };
        let family = named(&policy.family, subject.family)?;
        let backend = named(&policy.backend, Some(subject.backend))?;
        let hardware = match &policy.hardware {
            None => 0,
            Some(word) => self.hardware.iter().position(|is| is == word)? + 1,
        };
        let versions = policy.versions.narrowness();
        policy
            .versions
            .hold(subject.version)
            .then_some((variant, family, backend, versions, hardware))
    }
}

fn fill(profile: &Profile, asked: &mut Asked) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (control, value) in &profile.parameters {
        if asked.contains_key(control) {
            continue;
        }
        asked.insert(*control, Some(value.clone()));
        verdicts.push(Verdict {
            control: *control,
            outcome: Outcome::Set,
            why: "profile",
            value: Some(value.clone()),
            reason: Some(profile.description.clone()),
        });
    }
    verdicts
}

fn passed(judged: &[Verdict], control: Control) -> bool {
    judged.iter().any(|it| it.control == control && it.outcome == Outcome::Passed)
}

/// The first, by id, of those with the greatest rank.
fn first_of_the_greatest<T, R: Ord>(ranked: impl Iterator<Item = (R, T)>) -> Option<T> {
    let mut best: Option<(R, T)> = None;
    for (rank, it) in ranked {
        if best.as_ref().is_none_or(|(known, _)| rank > *known) {
            best = Some((rank, it));
        }
    }
    best.map(|(_, it)| it)
}

/// How closely one of the names fits: by its whole, or by so many letters of its beginning.
fn matches(pattern: &str, names: &[String]) -> Option<usize> {
    match pattern.strip_suffix('*') {
        None => names.iter().any(|name| name == pattern).then_some(usize::MAX),
        Some(begin) => names.iter().any(|name| name.starts_with(begin)).then_some(begin.len()),
    }
}

/// Whether two policies are equally specific for a request that both match.
fn clash(one: &ParameterPolicy, other: &ParameterPolicy) -> bool {
    let variants = match (one.variants.as_slice(), other.variants.as_slice()) {
        ([], []) => true,
        (some, others) => some.iter().any(|variant| others.contains(variant)),
    };
    variants
        && one.family == other.family
        && one.backend == other.backend
        && one.hardware == other.hardware
        && one.versions.narrowness() == other.versions.narrowness()
        && one.versions.overlap(&other.versions)
}

/// Prefixes that stand for "no prefix" in Ollama's naming.
const DEFAULTS: [&str; 3] = ["registry.ollama.ai/library/", "registry.ollama.ai/", "library/"];

/// The form in which models' names are compared, wherever they are: upper and lower case are one,
/// `:latest` is the missing tag, and the default registry's prefix is the missing prefix.
#[must_use]
pub fn fold(name: &str) -> String {
    let lower = name.trim().to_lowercase();
    let short = DEFAULTS.iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
    short.strip_suffix(":latest").unwrap_or(short).to_owned()
}

/// Folds names of models, whole or with `*` at the end.
pub(crate) fn fold_patterns(key: &str, patterns: &mut [String]) -> Result<(), String> {
    let plain = |pattern: &str| {
        let name = pattern.strip_suffix('*').unwrap_or(pattern);
        !name.trim().is_empty() && !name.contains('*')
    };
    for pattern in patterns {
        let folded = fold(pattern);
        if !plain(pattern) || !plain(&folded) {
            return Err(format!(
                "{key}: {pattern:?}: expected a model's name, whole or with one * at its end; for every model leave {key} out"
            ));
        }
        *pattern = folded;
    }
    Ok(())
}

/// Two files that are equally specific.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{one}.toml and {other}.toml are equally specific for the same request; make one of them more specific, or join them"
)]
pub struct Clash {
    folder: PathBuf,
    one: String,
    other: String,
}

impl Clash {
    fn new(folder: &str, one: &str, other: &str) -> Self {
        Self { folder: folder.into(), one: one.to_owned(), other: other.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn spellings_of_one_model_meet_and_others_do_not() {
        for (spelling, folded) in [
            ("SmolLM2:latest", "smollm2"),
            (" registry.ollama.ai/library/smollm2:latest ", "smollm2"),
            ("library/SMOLLM2:135M", "smollm2:135m"),
            ("registry.ollama.ai/a/b", "a/b"),
            ("hf.co/User/Repo:Q4_K_M", "hf.co/user/repo:q4_k_m"),
            ("Library/Gemma4*", "gemma4*"),
        ] {
            assert_eq!(fold(spelling), folded);
        }
    }
}
