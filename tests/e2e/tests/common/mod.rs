//! What tests against real servers ask, and how they read the answer.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not every test needs all of it, and tests may fail loudly"
)]

use gristmill_core::{
    event::{Event, Usage},
    request::{Message, Prompt, Request, Role},
};
use gristmill_e2e::{Bridge, listing};

/// A short greedy answer to this.
pub fn chat(text: &str) -> Request {
    let mut request =
        Request::new("e2e", "smollm2", Prompt::Chat(vec![Message::text(Role::User, text)]));
    request.sampling.temperature = Some(0.0);
    request.max_tokens = Some(16);
    request
}

/// What was said.
pub fn text(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// The counts.
pub fn usage(events: &[Event]) -> &Usage {
    let found = events.iter().find_map(|event| match event {
        Event::Usage(usage) => Some(usage),
        _ => None,
    });
    found.expect("an answer tells its counts")
}

/// Whether it ends for this reason.
pub fn ends(events: &[Event], reason: &str) -> bool {
    matches!(events.last(), Some(Event::Finish(finish)) if finish.reason == reason)
}

/// Bridges of these kinds to one server are ready, list its model, and get the same answer.
pub async fn say_the_same(bridges: &[(&str, &Bridge)]) {
    let mut said = Vec::new();
    for (kind, bridge) in bridges {
        assert!(bridge.backend.health().await.unwrap().ready, "{kind}");
        let models = bridge.backend.models().await.unwrap();
        assert_eq!(models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["smollm2"]);
        let answer = bridge.play(chat("Say hello, Größe!"), 8).await;
        assert!(answer.1.is_none() && ends(&answer.0, "length"), "{kind}: {}", listing(&answer));
        assert_eq!(usage(&answer.0).completion, 16, "{kind}");
        said.push(text(&answer.0));
    }
    assert_eq!(said.first(), said.last());
}

/// A raw prompt's answer of three tokens has log probabilities for each.
pub async fn tells_its_tokens(bridge: &Bridge) {
    let mut request = chat("");
    request.prompt = Prompt::Text("Once upon a".into());
    request.logprobs = Some(2);
    request.max_tokens = Some(3);
    let answer = bridge.play(request, 8).await;
    assert!(ends(&answer.0, "length"), "{}", listing(&answer));
    let told: usize = answer
        .0
        .iter()
        .map(|event| match event {
            Event::Tokens(tokens) => tokens.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(told, 3, "{}", listing(&answer));
}
