//! Wherever the network cuts a body, the frames are the same, and so are the events: every recorded
//! answer, cut in two at every byte, and into single bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

use std::collections::VecDeque;

use gristmill_fakes::Transcript;
use gristmill_sandbox::{Frame, Framing};
use gristmill_upstream::framing::Framer;

fn frames<'b>(framing: Framing, pieces: impl IntoIterator<Item = &'b [u8]>) -> VecDeque<Frame> {
    let mut framer = Framer::new(framing, 1 << 20);
    let mut frames = VecDeque::new();
    for piece in pieces {
        framer.push(piece, &mut frames).unwrap();
    }
    framer.end(&mut frames).unwrap();
    frames
}

#[test]
fn every_cut_of_every_recorded_answer_gives_the_same_frames() {
    let mut cuts = 0;
    for transcript in Transcript::all() {
        let framing = match transcript.header("content-type") {
            Some(kind) if kind.contains("event-stream") => Framing::Sse,
            Some(kind) if kind.contains("ndjson") => Framing::Lines,
            _ => continue,
        };
        let body = transcript.body.as_slice();
        let whole = frames(framing, [body]);
        for at in 0..=body.len() {
            let (head, tail) = body.split_at(at);
            let (server, case) = (&transcript.server, &transcript.case);
            assert_eq!(frames(framing, [head, tail]), whole, "{server}/{case} cut at {at}");
            cuts += 1;
        }
        assert_eq!(frames(framing, body.chunks(1)), whole, "{}", transcript.case);
    }
    assert!(cuts > 50_000, "only {cuts} cuts");
}
