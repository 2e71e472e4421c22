//! A probe: asks the back-end everything and says what it saw.

wit_bindgen::generate!({ world: "probe", path: "../../../wit/v0.1", generate_all });

use exports::gristmill::contract::probing::{Check, Guest, Outcome, Plan};
use gristmill::contract::{
    clock, log, serving,
    types::{Event, Prompt, Reasoning, Request, Sampling, ToolChoice},
};

struct Probe;

fn request(model: &str, prompt: &str) -> Request {
    Request {
        id: "probe".into(),
        model: model.into(),
        prompt: Prompt::Text(prompt.into()),
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        constraint: None,
        reasoning: Reasoning::Unset,
        sampling: Sampling {
            temperature: None,
            top_p: None,
            top_k: None,
            min_p: None,
            typical_p: None,
            repeat_penalty: None,
            repeat_last_n: None,
            presence_penalty: None,
            frequency_penalty: None,
            seed: None,
            logit_bias: Vec::new(),
            extras: Vec::new(),
        },
        max_tokens: None,
        stop: Vec::new(),
        logprobs: None,
        context: None,
        extras: Vec::new(),
    }
}

/// The text of an answer.
fn answer(model: &str, prompt: &str) -> Result<String, String> {
    let generation = serving::generate(&request(model, prompt)).map_err(|error| error.code)?;
    let mut text = String::new();
    while let Some(events) = generation.next(8).map_err(|error| error.code)? {
        for event in events {
            if let Event::Text(more) = event {
                text.push_str(&more);
            }
        }
    }
    Ok(text)
}

impl Guest for Probe {
    fn checks() -> Vec<String> {
        ["describe", "generate", "fault"].map(String::from).to_vec()
    }

    fn run(plan: Plan) -> Vec<Check> {
        log::write(log::Level::Info, "run", &[("model".into(), plan.model.clone())]);
        clock::monotonic();
        let check = |id: &str, outcome: Outcome, evidence: String| Check {
            id: id.into(),
            capability: Some("inference.text".into()),
            outcome,
            evidence,
        };
        let mut results = Vec::new();
        for id in if plan.checks.is_empty() { Self::checks() } else { plan.checks } {
            results.push(match id.as_str() {
                "describe" => check(&id, Outcome::Passed, serving::describe().id),
                "generate" => match answer(&plan.model, "good 3") {
                    Ok(text) => check(&id, Outcome::Passed, text),
                    Err(code) => check(&id, Outcome::Failed(code), String::new()),
                },
                "fault" => match answer(&plan.model, "trap") {
                    Ok(text) => check(&id, Outcome::Passed, text),
                    Err(code) => check(&id, Outcome::Failed(code), String::new()),
                },
                _ => check(&id, Outcome::NotApplicable("no such check".into()), String::new()),
            });
        }
        results
    }
}

export!(Probe);
