//! A crash is told. A probe cannot end a back-end, it can only ask what has ended some: a token that
//! is in no vocabulary. Who refuses it has shown nothing of crashes; who breaks has to say so, or to be
//! there again.

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{Bench, Verdict, ask::ask, failed, not_applicable};

/// Words for a back-end that broke, and did not refuse.
const BROKE: [&str; 6] = [
    "internal",
    "plugin-fault",
    "session-fatal",
    "upstream-unavailable",
    "upstream-timeout",
    "no-answer",
];

pub(crate) fn crash(bench: &Bench) -> Verdict {
    let mut request = bench.plain("", 2);
    request.prompt = Prompt::Tokens(vec![u32::MAX; 4]);
    let broke = match ask(&request) {
        Ok(_) => return not_applicable("nothing crashed: what should crash it was answered"),
        Err(error) if BROKE.contains(&&*error.code) => error,
        Err(error) => {
            let why = format!("nothing crashed: refused with {}: {}", error.code, error.message);
            return not_applicable(why);
        }
    };
    let health = serving::health();
    match (ask(&bench.request("Hello.", 2)), health) {
        (Ok(_), _) => Ok(format!("{}, and the next request is served", broke.code)),
        (Err(next), Ok(health)) if health.ready => {
            let seen = format!("{}, then {}; health: {}", broke.code, next.code, health.detail);
            failed("a back-end that crashed says that it is ready", seen)
        }
        (Err(next), _) => Ok(format!("{}, then {}, and health tells", broke.code, next.code)),
    }
}
