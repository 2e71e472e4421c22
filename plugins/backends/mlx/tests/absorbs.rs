//! What the server sends, in each of its ways, as the contract's events.
#[path = "../../testing.rs"]
mod testing;

use gristmill_backend_mlx::Mlx;
use gristmill_bridge::openai::{Speaks, generate};

#[test]
fn every_recorded_answer_becomes_the_events_written_beside_it() {
    testing::absorbs("mlx", |fake, request, max| {
        testing::play(generate(&Mlx::PROFILE, fake, request), max)
    });
}
