//! Probe: what a back-end says of itself and of its models is complete, consistent and the same
//! every time it is asked.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{Support, extra, prelude::*, probe::serving};
use probe_kit::{
    Bench, Standing, Verdict, When,
    ask::{Answer, ask},
    failed, not_applicable, short, words,
};

probe_kit::suite! {
    "metadata.descriptor" of "conduct.metadata" if Always => descriptor,
    "metadata.claims" of "conduct.metadata" if Always => claims,
    "metadata.model" of "conduct.metadata" if Always => model,
    "metadata.digest" of "conduct.metadata" if Always => digest,
    "metadata.context" of "context.native_max" if Always => context,
    "metadata.dense" of "architecture.dense" if Claimed => dense,
    "metadata.moe" of "architecture.moe" if Claimed => moe,
    "metadata.routing" of "architecture.moe" if Claimed => routing,
    "metadata.quantization" of "quantization.formats" if Always => quantization,
    "metadata.speculation" of "speculative.draft_model" if Always => speculation,
}

fn descriptor(bench: &Bench) -> Verdict {
    let Descriptor { id, kind, version, execution, .. } = &bench.descriptor;
    if let Some(code) = extra(&bench.descriptor.extras, "code") {
        return failed("the back-end cannot describe itself", code);
    }
    for (name, value) in [("id", id), ("kind", kind), ("version", version)] {
        if value.is_empty() {
            return failed(format!("expected {name}, found nothing"), "describe");
        }
    }
    if !["external", "process", "library"].contains(&&**execution) {
        return failed("expected external, process or library", format!("execution {execution:?}"));
    }
    if serving::describe() != bench.descriptor {
        return failed("two descriptions differ", format!("id {id}"));
    }
    Ok(format!("{kind} {version}, {execution}"))
}

/// Each claim once, by a word of the vocabulary, with a reason where it is denied.
fn claims(bench: &Bench) -> Verdict {
    let of_model = bench.info.as_ref().map(|info| info.claims.as_slice()).unwrap_or_default();
    for (place, claims) in [("back-end", &*bench.descriptor.claims), ("model", of_model)] {
        for (index, claim) in claims.iter().enumerate() {
            let name = &claim.name;
            if !words::known(name) {
                return failed("expected a word of the vocabulary", format!("{place}: {name}"));
            }
            if claims.iter().skip(index + 1).any(|other| other.name == *name) {
                return failed("expected each claim once", format!("{place}: {name}"));
            }
            match &claim.support {
                Support::Unsupported(reason)
                    if reason.code.is_empty() || reason.detail.is_empty() =>
                {
                    return failed("a denied claim has a reason", format!("{place}: {name}"));
                }
                Support::Conditional(condition) if condition.is_empty() => {
                    return failed("a condition is empty", format!("{place}: {name}"));
                }
                _ => {}
            }
        }
    }
    Ok(format!(
        "{} of the back-end, {} of the model",
        bench.descriptor.claims.len(),
        of_model.len()
    ))
}

fn model(bench: &Bench) -> Verdict {
    let Some(info) = &bench.info else {
        return failed("the back-end does not list the model it is asked for", &*bench.model);
    };
    let again = serving::models()?;
    if again.iter().filter(|other| other.id == info.id).count() != 1 {
        return failed("expected the model once in the list", &*info.id);
    }
    if !again.contains(info) {
        return failed("two listings say different things of the model", &*info.id);
    }
    for (number, other) in again.iter().enumerate() {
        let own = |name: &String| *name == other.id || other.names.contains(name);
        let clash =
            again.iter().skip(number + 1).any(|next| own(&next.id) || next.names.iter().any(own));
        if clash {
            return failed("two models have one name", &*other.id);
        }
    }
    let family = info.family.as_deref().unwrap_or("of no named family");
    Ok(format!("{} {family}, one of {}", info.id, again.len()))
}

fn digest(bench: &Bench) -> Verdict {
    let Some(digest) = bench.info.as_ref().and_then(|info| info.digest.as_deref()) else {
        return not_applicable("the back-end does not know its models' digests");
    };
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    if hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(digest.to_owned());
    }
    failed("expected sha256: and 64 hexadecimal digits", digest)
}

/// All that is said of the longest context agrees.
fn context(bench: &Bench) -> Verdict {
    let told = bench.info.as_ref().and_then(|info| info.context_native);
    let number = |capability| match bench.standing(capability) {
        Standing::Claimed(Some(value)) => match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(Some(number)),
            _ => failed(format!("{capability}: expected a number above 0"), value),
        },
        Standing::Claimed(None) => {
            failed(format!("{capability}: expected a number above 0"), "claimed without one")
        }
        _ => Ok(None),
    };
    let native = number("context.native_max")?;
    let asked = number("context.requested_limit")?;
    let served = number("context.effective_max")?.or(asked);
    if told == Some(0) {
        return failed("a context of no tokens", "context-native 0");
    }
    if let (Some(told), Some(native)) = (told, native)
        && told != native
    {
        let seen = format!("context-native {told}, context.native_max {native}");
        return failed("two numbers for one context", seen);
    }
    match (told.or(native), served) {
        (None, None) => not_applicable("nobody says how long the context is"),
        (Some(native), Some(served)) if served > native => {
            failed("more is served than was trained", format!("{served} of {native}"))
        }
        (native, served) => Ok(format!("native {native:?}, served {served:?}")),
    }
}

fn dense(bench: &Bench) -> Verdict {
    if bench.claims("architecture.moe") {
        return failed("dense and a mixture of experts at once", &*bench.model);
    }
    for number in ["moe.total_experts", "moe.active_experts", "moe.shared_experts"] {
        if bench.claims(number) {
            return failed("a dense model has no experts", format!("{number} is claimed"));
        }
    }
    Ok("no experts are claimed".to_owned())
}

fn moe(bench: &Bench) -> Verdict {
    let count = |capability| match bench.standing(capability) {
        Standing::Claimed(Some(value)) => match value.parse::<u32>() {
            Ok(count) => Ok(Some(count)),
            Err(_) => failed(format!("{capability}: expected a number"), value),
        },
        Standing::Claimed(None) => {
            failed(format!("{capability}: expected a number"), "claimed without one")
        }
        _ => Ok(None),
    };
    let (total, active) = (count("moe.total_experts")?, count("moe.active_experts")?);
    let (Some(total), Some(active)) = (total, active) else {
        return not_applicable("the numbers of experts are not told, so routing cannot be judged");
    };
    if total < 2 || active == 0 || active > total {
        let seen = format!("{active} of {total}");
        return failed("expected several experts, of which from 1 to all are active", seen);
    }
    bench.ready_for("inference.text", When::Generates)?;
    // Which experts answer is not visible from here; that routing works at all is.
    let answer = ask(&bench.request("Count to five.", 8))?;
    if answer.text.is_empty() && answer.reasoning.is_empty() {
        return failed("no answer from a mixture of experts", answer.finish);
    }
    Ok(format!("{active} of {total} experts, an answer of {} bytes", answer.text.len()))
}

/// Routing that chooses other experts for the same tokens shows; which it chose, and whether these were
/// the right ones, does not, so this never passes.
fn routing(bench: &Bench) -> Verdict {
    bench.ready_for("inference.text", When::Generates)?;
    let request = bench.request("Count from one to ten.", 16);
    let first = ask(&request)?.seen();
    for _ in 0..2 {
        let again = ask(&request)?.seen();
        if first != again {
            let seen = format!("{} | {}", short(&first), short(&again));
            return failed("the same tokens are routed in two ways", seen);
        }
    }
    not_applicable("which experts answered cannot be seen; the same tokens gave the same answer")
}

/// The model's quantization is one that the back-end says it takes, and it is taken. The model's own
/// word on formats would be its quantization compared with itself.
fn quantization(bench: &Bench) -> Verdict {
    let claims = &bench.descriptor.claims;
    let claim = claims.iter().find(|claim| claim.name == "quantization.formats");
    let Some(Claim { support: Support::Supported, value: Some(formats), .. }) = claim else {
        return not_applicable("the back-end does not say which quantizations it takes");
    };
    let Some(own) = bench.info.as_ref().and_then(|info| info.quantization.as_deref()) else {
        return not_applicable("the model does not say how it is quantized");
    };
    // Mixes are named after their main format: Q4_K_M is mostly Q4_K.
    let takes = |format: &str| own == format || own.starts_with(&format!("{format}_"));
    if formats.split_whitespace().any(takes) {
        bench.ready_for("inference.text", When::Generates)?;
        ask(&bench.request("Hello.", 1))?;
        return Ok(format!("{own} of {formats}, and it answers"));
    }
    failed(
        "the model's quantization is none that the back-end takes",
        format!("{own} of {formats}"),
    )
}

/// What was drafted is at least what was accepted, and speculation does not change a greedy answer: one
/// token, where there is nothing to speculate on, is how the long answer begins.
fn speculation(bench: &Bench) -> Verdict {
    const KINDS: [&str; 3] = ["speculative.draft_model", "speculative.mtp", "speculative.ngram"];
    if !KINDS.iter().any(|kind| bench.claims(kind)) {
        return not_applicable("no speculation is claimed");
    }
    bench.ready_for("inference.text", When::Generates)?;
    let prompt = "Say this again: one two three one two three one two three.";
    let answer = ask(&bench.request(prompt, 24))?;
    let written = |answer: &Answer| format!("{}{}", answer.reasoning, answer.text);
    for few in 1..=3 {
        let plain = ask(&bench.request(prompt, few))?;
        // Half a character of the last token may be missing there.
        let whole = written(&plain);
        let begun = whole.trim_end_matches(char::REPLACEMENT_CHARACTER);
        if !written(&answer).starts_with(begun) {
            let seen = format!("{} | {}", short(&whole), short(&answer.seen()));
            return failed("speculation changes the answer", seen);
        }
    }
    let Some(usage) = answer.usage else {
        return not_applicable("the back-end does not say what it drafted and accepted");
    };
    let count = |name| extra(&usage.extras, name).map(|value| (value, value.parse::<u32>().ok()));
    let (drafted, accepted) = match (count("drafted"), count("accepted")) {
        (Some((_, Some(drafted))), Some((_, Some(accepted)))) => (drafted, accepted),
        (None, None) => return not_applicable("nothing is said to have been drafted or accepted"),
        (drafted, accepted) => {
            let seen = format!("drafted {drafted:?}, accepted {accepted:?}");
            return failed("expected two numbers", seen);
        }
    };
    if accepted > drafted || accepted > usage.completion {
        let seen = format!("drafted {drafted}, accepted {accepted} of {}", usage.completion);
        return failed("more was accepted than drafted or written", seen);
    }
    if drafted == 0 {
        return not_applicable("nothing was drafted, so the fallback answered");
    }
    Ok(format!("{accepted} of {drafted} drafted tokens accepted"))
}
