//! What tests against real servers ask, and how they read the answer.
#![allow(dead_code, reason = "not every test needs all of it")]

use gristmill_core::{
    event::{Event, Usage},
    request::{Message, Prompt, Request, Role},
};

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
