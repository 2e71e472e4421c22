//! Where parameter policies and profiles are kept to: every request passes here once, after it is
//! settled which back-end answers and before that back-end sees it.
//!
//! Owns the running rules, which are swapped whole, and the way between a request and the controls
//! that rules speak of. Refuses a control that a policy refuses, by the policy's id.
//!
//! Extras whose names begin with [`HOST`] are words between rooms of the host: the caller's profile, and
//! options that no request has a field for. They end here; no back-end sees them. `context =
//! verified` is said here and by nobody else.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gristmill_core::{Code, Error, Result, capability::ModelInfo, request::Request};
use gristmill_policies::{Asked, Refusal, Rules, Setting, Subject};
pub use gristmill_policies::{Control, Judgement, Outcome};

use crate::{Router, blocks, generation::Generation, name};

/// How extras begin that are no back-end's to see.
pub const HOST: &str = "host.";
/// The extra with the name of the profile that the caller selects.
pub const PROFILE: &str = "host.profile";
/// How extras begin that stand for an option without a field of its own; a control's word follows.
pub const OPTION: &str = "host.option.";

/// The extra by which a back-end knows that a context's length was tested.
const CONTEXT: &str = "context";

/// The running rules.
#[derive(Debug, Default)]
pub struct Policy {
    rules: ArcSwap<Rules>,
}

impl Policy {
    /// The rules now.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    /// Puts other rules in their place. A request is judged by the one or the other, never by both.
    pub fn replace(&self, rules: Rules) {
        self.rules.store(Arc::new(rules));
    }

    /// Judges a request and changes it accordingly.
    ///
    /// # Errors
    /// `blocked` or `unsupported` with the details `policy`, `control`, `field` (the control's word),
    /// `class` and `reason`; `invalid-request` for a profile that there is not.
    pub(crate) async fn apply(
        &self,
        generation: &Generation,
        info: &ModelInfo,
        request: &mut Request,
    ) -> Result<Judgement> {
        let mut asked = read(request);
        let selected = request.extra(PROFILE).map(str::to_owned);
        clean(request);
        let rules = self.rules();
        let descriptor = &generation.descriptor;
        let server = match rules.ask_version(&descriptor.kind) {
            true => generation.server_version().await,
            false => None,
        };
        let names = std::iter::once(&info.id).chain(&info.names);
        let subject = Subject {
            names: names.map(|name| name::fold(name)).collect(),
            family: info.family.as_deref(),
            backend: &descriptor.kind,
            version: blocks::version(descriptor, server.as_deref()),
            native_max: info.context_native,
        };
        let judged = rules.judge(&subject, selected.as_deref(), &mut asked);
        let judgement = judged.map_err(|refusal| {
            if let Refusal::Control { policy, verdict } = &refusal {
                tracing::info!(
                    request_id = request.id,
                    model = info.id,
                    policy,
                    control = verdict.control.as_str(),
                    class = verdict.why,
                    "refused by a parameter policy"
                );
            }
            refused(&refusal, &info.id, &descriptor.kind)
        })?;
        for verdict in &judgement.verdicts {
            // What passes is the caller's, also what is read here only in part.
            if verdict.outcome != Outcome::Passed {
                write(request, verdict.control, asked.get(&verdict.control));
            }
            tracing::info!(
                request_id = request.id,
                model = info.id,
                policy = judgement.policy,
                profile = judgement.profile,
                verdict = verdict.told(verdict.control.as_str()),
                "parameter policy"
            );
        }
        if judgement.context_verified {
            request.extras.push((CONTEXT.to_owned(), "verified".to_owned()));
        }
        Ok(judgement)
    }
}

impl Router {
    /// The same router, which keeps to these rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        self.policy.replace(rules);
        self
    }

    /// The running rules, and the way to replace them.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

/// Takes out what only the host may say.
pub(crate) fn clean(request: &mut Request) {
    request.extras.retain(|(name, _)| !name.starts_with(HOST) && name != CONTEXT);
}

fn refused(refusal: &Refusal, model: &str, backend: &str) -> Error {
    match refusal {
        Refusal::Profile { .. } => Error::invalid(refusal.to_string()).with("field", "profile"),
        Refusal::Control { policy, verdict } => {
            let code = match verdict.why {
                "override-unsupported" | "beyond-native-max" => Code::Unsupported,
                _ => Code::Blocked,
            };
            let message = format!("{refusal} (\"{model}\" on {backend})");
            Error::new(code, message)
                .with("field", verdict.control)
                .with("control", verdict.control)
                .with("policy", policy)
                .with("class", verdict.why)
                .with("reason", verdict.reason.as_deref().unwrap_or_default())
        }
    }
}

/// The controls that a request sets.
fn read(request: &Request) -> Asked {
    let mut asked = Asked::new();
    let sampling = &request.sampling;
    let whole = |number: u32| Setting::Number(f64::from(number));
    let singles = [
        (Control::Temperature, sampling.temperature),
        (Control::TopP, sampling.top_p),
        (Control::MinP, sampling.min_p),
        (Control::TypicalP, sampling.typical_p),
        (Control::RepeatPenalty, sampling.repeat_penalty),
        (Control::PresencePenalty, sampling.presence_penalty),
        (Control::FrequencyPenalty, sampling.frequency_penalty),
    ];
    let numbers = [
        (Control::TopK, sampling.top_k.map(whole)),
        (Control::RepeatLastN, sampling.repeat_last_n.map(|n| Setting::Number(f64::from(n)))),
        // Exact up to 2^53; no file can name a larger one.
        (Control::Seed, sampling.seed.map(|seed| Setting::Number(seed as f64))),
        (Control::NumPredict, request.max_tokens.map(whole)),
        (Control::NumCtx, request.context.map(whole)),
        (
            Control::Stop,
            Some(&request.stop).filter(|it| !it.is_empty()).cloned().map(Setting::Texts),
        ),
    ];
    let singles = singles.into_iter().map(|(it, value)| (it, value.map(Setting::single)));
    for (control, value) in singles.chain(numbers) {
        if value.is_some() {
            asked.insert(control, value);
        }
    }
    if !sampling.logit_bias.is_empty() {
        asked.insert(Control::LogitBias, None);
    }
    let options = request.extras.iter().filter_map(|(name, _)| name.strip_prefix(OPTION));
    asked.extend(options.filter_map(Control::named).map(|control| (control, None)));
    asked
}

/// Sets a control of a request, or takes it out. Values were checked when the rules were read.
fn write(request: &mut Request, control: Control, value: Option<&Option<Setting>>) {
    let value = value.and_then(Option::as_ref);
    let number = value.and_then(Setting::number);
    let single = number.map(|number| number as f32);
    let whole = number.map(|number| number as u32);
    let sampling = &mut request.sampling;
    match control {
        Control::Temperature => sampling.temperature = single,
        Control::TopK => sampling.top_k = whole,
        Control::TopP => sampling.top_p = single,
        Control::MinP => sampling.min_p = single,
        Control::TypicalP => sampling.typical_p = single,
        Control::RepeatPenalty => sampling.repeat_penalty = single,
        Control::RepeatLastN => sampling.repeat_last_n = number.map(|number| number as i32),
        Control::PresencePenalty => sampling.presence_penalty = single,
        Control::FrequencyPenalty => sampling.frequency_penalty = single,
        Control::Seed => sampling.seed = number.map(|number| number as u64),
        Control::NumPredict => request.max_tokens = whole,
        Control::NumCtx => request.context = whole,
        Control::Stop => {
            request.stop = match value {
                Some(Setting::Texts(texts)) => texts.clone(),
                _ => Vec::new(),
            }
        }
        Control::LogitBias => sampling.logit_bias.clear(),
        // No back-end is given these; they ended with the extras.
        Control::NumThread
        | Control::NumBatch
        | Control::NumGpu
        | Control::MainGpu
        | Control::NumKeep
        | Control::UseMmap
        | Control::UseMlock
        | Control::LowVram
        | Control::Numa
        | Control::F16Kv
        | Control::DraftNumPredict => {}
    }
}
