//! Why a request would go where it would, as the router says it.
//!
//! A question about capabilities becomes a request that needs them, so that what explains is what
//! routes ([`gristmill_router::Router::explain`]).

use gristmill_core::{
    Error, Result,
    request::{Constraint, Media, Message, Part, Prompt, Reasoning, Request, Role, Tool},
};
use gristmill_router::{Considered, Provenance};

use super::view::{Candidate, Cause, Condition, Need, Route, RouteQuestion, Winner};
use crate::{fields::wrong, state::AppState};

/// Explains where a request for this model would go.
///
/// # Errors
/// As [`gristmill_router::Router::explain`]; `invalid-request` for a capability that is there twice.
pub async fn explain(state: &AppState, id: &str, question: RouteQuestion) -> Result<Route> {
    let request = request(id, &question)?;
    let found = state.router.explain(&question.model, Some(&request)).await?;
    Ok(Route {
        model: question.model,
        capabilities: question.capabilities,
        candidates: found.candidates.iter().map(candidate).collect(),
        winner: found.winner.map(winner),
        refusal: found.refusal.as_ref().map(Cause::from),
    })
}

/// The least request that needs this.
fn request(id: &str, question: &RouteQuestion) -> Result<Request> {
    let mut message = Message::text(Role::User, "");
    let mut request = Request::new(id, question.model.clone(), Prompt::Chat(Vec::new()));
    for (place, need) in question.capabilities.iter().enumerate() {
        let before = question.capabilities.get(..place).unwrap_or_default();
        if before.contains(need) {
            return Err(wrong(&format!("capabilities[{place}]"), "is there twice"));
        }
        let media = || Media { mime: String::new(), data: Vec::new() };
        match need {
            Need::Text => {}
            Need::Tools => request.tools.push(Tool {
                name: "tool".to_owned(),
                description: None,
                parameters: "{}".to_owned(),
                strict: None,
                extras: Vec::new(),
            }),
            Need::Structure => request.constraint = Some(Constraint::JsonObject),
            Need::Logprobs => request.logprobs = Some(0),
            Need::Reasoning => request.reasoning = Reasoning::On,
            Need::Vision => message.content.push(Part::Image(media())),
            Need::Audio => message.content.push(Part::Audio(media())),
        }
    }
    request.prompt = Prompt::Chat(vec![message]);
    Ok(request)
}

fn candidate(considered: &Considered) -> Candidate {
    let conditions = considered.conditions.iter().map(|condition| Condition {
        name: condition.name.clone(),
        holds: condition.holds,
        detail: condition.detail.clone(),
    });
    Candidate {
        backend: considered.backend.clone(),
        kind: considered.kind.clone(),
        digest: considered.generation.digest.clone(),
        generation: considered.generation.generation,
        model: considered.model.clone(),
        conditions: conditions.collect(),
        refusal: considered.refusal.as_ref().map(|error: &Error| error.into()),
        score: (&considered.score).into(),
        takes_seconds: considered.takes,
        wins: considered.wins,
    }
}

fn winner(by: Provenance) -> Winner {
    let Provenance { model, backend, digest, generation, .. } = by;
    Winner { backend, model, digest, generation }
}
