//! Frames are the same wherever the network cuts the body.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::collections::VecDeque;

use gristmill_sandbox::{Frame, Framing};
use gristmill_upstream::framing::{Framer, TooLong};

/// The frames of a body that comes in these pieces.
fn frames<'a>(framing: Framing, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Frame> {
    let (mut framer, mut frames) = (Framer::new(framing, 1 << 20), VecDeque::new());
    for piece in pieces {
        framer.push(piece, &mut frames).unwrap();
    }
    framer.end(&mut frames).unwrap();
    frames.into()
}

type Event<'a> = (Option<&'a str>, &'a [u8]);

const EVENTS: &[(&[u8], &[Event<'_>])] = &[
    (b"data: a\n\n", &[(None, b"a")]),
    (b"data:a\n\ndata: b\n\n", &[(None, b"a"), (None, b"b")]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", &[(None, b"a"), (None, b"b")]),
    (b"data: a\r\rdata: b\r\r", &[(None, b"a"), (None, b"b")]),
    (b"data: a\r\n\rdata: b\n\r\ndata: c\r\r\n", &[(None, b"a"), (None, b"b"), (None, b"c")]),
    (b"\xef\xbb\xbfdata: a\n\n", &[(None, b"a")]),
    (b"\xef\xbb\xbf\ndata: a\n\n", &[(None, b"a")]),
    (b"data: \xef\xbb\xbfa\n\n\xef\xbb\xbfdata: b\n\n", &[(None, b"\xef\xbb\xbfa")]),
    (b": ping\n\ndata: a\n: in between\n\n:\n\n", &[(None, b"a")]),
    (b"data: a\ndata: b\ndata:\n\n", &[(None, b"a\nb\n")]),
    (b"data\n\ndata:\n\n", &[(None, b""), (None, b"")]),
    (b"data:  two spaces\n\ndata:\ttab\n\n", &[(None, b" two spaces"), (None, b"\ttab")]),
    (b"event: x\ndata: a\n\ndata: b\n\n", &[(Some("x"), b"a"), (None, b"b")]),
    (b"event: lost\n\ndata: b\n\n", &[(None, b"b")]),
    (b"event: a\nevent: b\ndata: c\nevent:\n\n", &[(None, b"c")]),
    (b"id: 1\nretry: 5\nDATA: no\n data: no\ndata: a\nunknown\n\n", &[(None, b"a")]),
    (b"\n\n\r\n\r\rdata: a\n\n\n\n", &[(None, b"a")]),
    (b"data: {\"a\": \"b:c\"}\n\n", &[(None, b"{\"a\": \"b:c\"}")]),
    (b"data: \xff\xfe\xf0\x9f\n\n", &[(None, b"\xff\xfe\xf0\x9f")]),
    (b"event: \xff\ndata: \0\n\n", &[(Some("\u{fffd}"), b"\0")]),
    ("data: grüße 👩‍👩‍👧\n\n".as_bytes(), &[(None, "grüße 👩‍👩‍👧".as_bytes())]),
    // Servers that leave out the last blank line, or the last line's end.
    (b"data: a\n\ndata: [DONE]\n", &[(None, b"a"), (None, b"[DONE]")]),
    (b"data: a\n\ndata: [DONE]", &[(None, b"a"), (None, b"[DONE]")]),
    (b"", &[]),
    (b"event: x\n\n: y\n\n", &[]),
];

#[test]
fn events_are_what_the_standard_says_at_every_cut() {
    for (body, expected) in EVENTS {
        let expected: Vec<Frame> = expected
            .iter()
            .map(|(event, data)| Frame { event: event.map(str::to_owned), data: data.to_vec() })
            .collect();
        let shown = String::from_utf8_lossy(body);
        assert_eq!(frames(Framing::Sse, [*body]), expected, "{shown:?} whole");
        assert_eq!(frames(Framing::Sse, body.chunks(1)), expected, "{shown:?} byte by byte");
        for first in 0..=body.len() {
            for second in first..=body.len() {
                let pieces = [&body[..first], &body[first..second], &body[second..]];
                assert_eq!(frames(Framing::Sse, pieces), expected, "{shown:?} {first} {second}");
            }
        }
    }
}

#[test]
fn lines_are_whole_at_every_cut() {
    let cases: &[(&[u8], &[&[u8]])] = &[
        (b"a\nb\r\nc", &[b"a", b"b", b"c"]),
        (b"\n\r\n", &[b"", b""]),
        (b"a\rb\n\r\r\n", &[b"a\rb", b"\r"]),
        (b"{\"x\": \"\xff\"}\n", &[b"{\"x\": \"\xff\"}"]),
        (b"", &[]),
    ];
    for (body, expected) in cases {
        for first in 0..=body.len() {
            let got = frames(Framing::Lines, [&body[..first], &body[first..]]);
            let got: Vec<_> = got.iter().map(|frame| frame.data.as_slice()).collect();
            assert_eq!(&got, expected, "{:?} {first}", String::from_utf8_lossy(body));
        }
    }
}

#[test]
fn raw_pieces_add_up_to_the_body() {
    let body: Vec<u8> = (0..=255).collect();
    let got = frames(Framing::Raw, body.chunks(7).chain([&[][..]]));
    assert!(got.iter().all(|frame| !frame.data.is_empty() && frame.event.is_none()));
    let together: Vec<u8> = got.into_iter().flat_map(|frame| frame.data).collect();
    assert_eq!(together, body);
}

#[test]
fn what_has_no_end_is_refused_and_what_just_fits_is_not() {
    let pushed = |framing, body: &[u8], size| {
        let (mut framer, mut frames) = (Framer::new(framing, 8), VecDeque::new());
        let done = body.chunks(size).try_for_each(|piece| framer.push(piece, &mut frames));
        (frames.len(), done)
    };
    let long = Err(TooLong { limit: 8 });
    for size in [1, 3, 1 << 10] {
        assert_eq!(pushed(Framing::Lines, b"12345678\n", size), (1, Ok(())));
        assert_eq!(pushed(Framing::Lines, b"ok\n123456789\n", size), (1, long));
        assert_eq!(pushed(Framing::Lines, b"123456789", size), (0, long));
        assert_eq!(pushed(Framing::Sse, b"data:abc\n\n", size), (1, Ok(())));
        assert_eq!(pushed(Framing::Sse, b"data:a\n\n:23456789\n\n", size), (1, long));
        assert_eq!(pushed(Framing::Sse, b"data:a\ndata:b\ndata:c\ndata:d\n", size), (0, long));
    }
}
