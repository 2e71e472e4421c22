//! What policies and profiles did to a request, in the words of the dialect it came in.
//!
//! Owns what each dialect calls a control, the header by which a caller selects a profile, and the
//! headers that tell what was done. Nothing is decided here.

use std::{collections::VecDeque, sync::Arc};

use axum::{http::HeaderName, response::Response};
use gristmill_core::{Error, request::Request};
use gristmill_router::policy::{self, Control, HOST, Judgement};

use crate::{account::Account, drive::header_value};

/// The header with the profile that the caller selects, or `none`; and of the one that applied.
pub(crate) static PROFILE: HeaderName = HeaderName::from_static("x-gristmill-profile");

/// An extra that says by which of several names the caller calls a control.
#[must_use]
pub fn named(control: Control, name: &str) -> (String, String) {
    (format!("{HOST}name.{control}"), name.to_owned())
}

/// Hands the caller's profile on with each request.
pub(crate) fn select(account: &Arc<Account>, requests: &mut VecDeque<Request>) {
    let Some(profile) = &account.profile else { return };
    for request in requests {
        request.extras.push((policy::PROFILE.to_owned(), profile.clone()));
    }
}

/// What the caller calls the controls of one request.
pub(crate) struct Names {
    route: String,
    own: Vec<(String, String)>,
}

impl Names {
    /// By the route it came in on, and by what the request says itself.
    pub(crate) fn of(route: &str, request: &Request) -> Self {
        let own = request.extras.iter().filter(|(name, _)| name.starts_with(HOST)).cloned();
        Self { route: route.to_owned(), own: own.collect() }
    }

    fn of_control(&self, control: Control) -> String {
        let (key, _) = named(control, "");
        if let Some((_, name)) = self.own.iter().find(|(own, _)| *own == key) {
            return name.clone();
        }
        let route = self.route.as_str();
        if route.starts_with("/api/") {
            return format!("options.{control}");
        }
        let word = match (control, route) {
            (Control::NumPredict, "/v1/responses") => "max_output_tokens",
            (Control::NumPredict, _) => "max_tokens",
            (Control::Stop, "/v1/messages") => "stop_sequences",
            (Control::RepeatPenalty, _) => "repetition_penalty",
            (other, _) => other.as_str(),
        };
        word.to_owned()
    }

    /// Notes what was done to a request that went on.
    pub(crate) fn judged(&self, account: &Account, judgement: &Judgement) {
        if judgement.policy.is_none() && judgement.profile.is_none() {
            return;
        }
        let told = judgement.verdicts.iter().map(|it| it.told(&self.of_control(it.control)));
        account.tell(Told {
            policy: judgement.policy.clone(),
            profile: judgement.profile.clone(),
            detail: told.collect::<Vec<_>>().join("; "),
        });
    }

    /// The failure in the dialect's words; a policy's refusal is noted.
    pub(crate) fn failed(&self, account: &Account, mut error: Error) -> Error {
        if error.detail("field") == Some("profile") && account.profile.is_some() {
            set_field(&mut error, PROFILE.as_str());
            return error;
        }
        let control = error.detail("control").and_then(Control::named);
        let (Some(control), Some(policy)) = (control, error.detail("policy")) else { return error };
        let name = self.of_control(control);
        let class = error.detail("class").unwrap_or_default();
        account.tell(Told {
            policy: Some(policy.to_owned()),
            profile: None,
            detail: format!("refused {name} ({class})"),
        });
        // The message begins with the control's word.
        if let Some(rest) = error.message.strip_prefix(control.as_str()) {
            error.message = format!("{name}{rest}");
        }
        set_field(&mut error, &name);
        error
    }
}

fn set_field(error: &mut Error, name: &str) {
    let field = error.details.iter_mut().find(|(key, _)| key == "field");
    if let Some((_, field)) = field {
        name.clone_into(field);
    }
}

/// What the headers of an answer say.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    policy: Option<String>,
    profile: Option<String>,
    detail: String,
}

impl Told {
    /// Puts it into an answer's headers.
    pub(crate) fn name(&self, response: &mut Response) {
        let headers = response.headers_mut();
        let mut say = |name: &'static str, value: &str| {
            headers.insert(name, header_value(value));
        };
        if let Some(policy) = &self.policy {
            say("x-gristmill-policy", policy);
        }
        if !self.detail.is_empty() {
            say("x-gristmill-policy-detail", &self.detail);
        }
        if let Some(profile) = &self.profile {
            headers.insert(&PROFILE, header_value(profile));
        }
    }
}
