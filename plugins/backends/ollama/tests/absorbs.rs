//! What Ollama sends, in each of its ways, as the contract's events.
#[path = "../../testing.rs"]
mod testing;

use gristmill_backend_ollama::generate;

#[test]
fn every_recorded_answer_becomes_the_events_written_beside_it() {
    testing::absorbs("ollama", |fake, request, max| testing::play(generate(fake, request), max));
}
