//! What the conformance probes share: a [`Bench`] that knows what the back-end claims, requests and
//! collected answers ([`ask`]), judging JSON ([`json`]), whether something reaches the model at all
//! ([`reach`]), and the capability vocabulary ([`words`]).
//!
//! A check is a function from a bench to a [`Verdict`]. It tests the back-end and never how clever
//! the model is: where the model's wit would decide, the verdict is "not applicable", with the reason.
#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod ask;
mod bench;
pub mod json;
pub mod reach;
pub mod words;

pub use bench::{Bench, Standing};
#[doc(hidden)]
pub use gristmill_plugin;

use gristmill_plugin::prelude::*;

/// What a check found: evidence that the claim holds, or why there is none.
pub type Verdict = Result<String, Stop>;

/// Why a check did not pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// What was expected and seen, and the evidence.
    Failed(String, String),
    /// Why it cannot be tested here.
    NotApplicable(String),
}

/// The claim does not hold.
pub fn failed<T>(why: impl Into<String>, evidence: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(why.into(), evidence.into()))
}

/// It cannot be tested here.
pub fn not_applicable<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::NotApplicable(why.into()))
}

/// A back-end's error where none was expected. What depends on load is not the back-end's failure.
impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        let seen = format!("{}: {}", error.code, error.message);
        match &*error.code {
            "busy" | "insufficient-memory" => Self::NotApplicable(seen),
            _ => Self::Failed(seen.clone(), seen),
        }
    }
}

/// When a check runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Where the capability is claimed.
    Claimed,
    /// Where the capability is claimed not to be there.
    Denied,
    /// Always: every back-end owes it.
    Always,
    /// Wherever the model generates text: every back-end that generates owes it.
    Generates,
}

/// Longest why and evidence, in bytes: a report is read by people.
const LONGEST: usize = 400;

/// Runs one check. [`suite!`] uses it.
pub fn run(
    id: &str,
    capability: &str,
    when: When,
    check: fn(&Bench) -> Verdict,
    plan: &Plan,
) -> Check {
    let verdict = Bench::new(plan).map_err(Stop::from).and_then(|bench| {
        bench.ready_for(capability, when)?;
        check(&bench)
    });
    finding(id, verdict).of(capability)
}

fn finding(id: &str, verdict: Verdict) -> Check {
    match verdict {
        Ok(evidence) => Check::passed(id, short(&evidence)),
        Err(Stop::Failed(why, evidence)) => Check::failed(id, short(&why), short(&evidence)),
        Err(Stop::NotApplicable(why)) => Check::not_applicable(id, short(&why)),
    }
}

/// A text cut to what a report bears, line breaks made visible.
#[must_use]
pub fn short(text: &str) -> String {
    let line = text.replace('\n', "\\n");
    if line.len() <= LONGEST {
        return line;
    }
    let end = line.floor_char_boundary(LONGEST);
    format!("{}…", line.get(..end).unwrap_or_default())
}

/// A probe component out of a table of checks: `suite! { "area.name" of "capability" if Claimed =>
/// function, … }`.
#[macro_export]
macro_rules! suite {
    ($($id:literal of $capability:literal if $when:ident => $check:path),+ $(,)?) => {
        use $crate::gristmill_plugin;

        /// The probe.
        #[derive(Debug)]
        pub struct Suite;

        gristmill_plugin::export_probe!(Suite);

        impl $crate::gristmill_plugin::probe::Probe for Suite {
            fn checks() -> $crate::gristmill_plugin::prelude::Vec<&'static str> {
                [$($id),+].into()
            }

            fn run(
                check: &str,
                plan: &$crate::gristmill_plugin::probe::Plan,
            ) -> $crate::gristmill_plugin::probe::Check {
                match check {
                    $($id => $crate::run($id, $capability, $crate::When::$when, $check, plan),)+
                    other => $crate::gristmill_plugin::probe::Check::not_applicable(
                        other,
                        "this probe has no such check",
                    ),
                }
            }
        }

        #[cfg(test)]
        mod vocabulary {
            #[test]
            fn every_check_is_tied_to_a_word_of_the_vocabulary() {
                $(assert!($crate::words::known($capability), "{}", $capability);)+
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_plugin::probe::Outcome;

    #[test]
    fn what_depends_on_load_is_not_held_against_the_back_end() {
        let busy = Stop::from(Error::busy("full", 5));
        assert_eq!(busy, Stop::NotApplicable("busy: full".into()));
        assert!(matches!(Stop::from(Error::internal("x")), Stop::Failed(..)));
    }

    #[test]
    fn a_long_finding_is_cut_between_characters() {
        let check = finding("a.b", failed("é".repeat(999), "x\ny"));
        let Outcome::Failed(why) = &check.outcome else { panic!() };
        assert!(why.len() <= LONGEST + "…".len() && why.ends_with("é…"));
        assert_eq!(check.evidence, "x\\ny");
    }
}
