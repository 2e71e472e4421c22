//! Text to tokens and back, byte for byte, and the tokens of an answer against its text.

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{Bench, Stop, Verdict, ask::ask, failed, not_applicable, short};

const ASCII: [&str; 6] = [
    "a",
    "The quick brown fox.",
    "two  blanks, three   blanks\n\nand lines\t\ttabs ",
    "fn main() { println!(\"{}\", 0x1f); }",
    "0123456789 3.14159 -1e10",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Umlauts, ß, dotless i, CJK, kana, Hangul, right-to-left, emoji with joiners and modifiers, and
/// combining marks that must not be composed.
const UNICODE: [&str; 10] = [
    "äöü ÄÖÜ",
    "Straße, Maß, ẞ",
    "Iıİ Žluťoučký kůň",
    "你好，世界",
    "こんにちは カタカナ",
    "안녕하세요",
    "שלום مرحبا",
    "🙂 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈",
    "e\u{301} a\u{308} n\u{303} o\u{302}\u{323}",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \u{10FFFD}",
];

/// Spellings that are one token in some family; as plain text they stay text.
const SPECIAL: [&str; 7] =
    ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<bos>", "<start_of_turn>", "<|endoftext|>"];

pub(crate) fn ascii(bench: &Bench) -> Verdict {
    round_trips(bench, &ASCII)
}

pub(crate) fn unicode(bench: &Bench) -> Verdict {
    round_trips(bench, &UNICODE)
}

fn round_trips(bench: &Bench, texts: &[&str]) -> Verdict {
    let mut count = 0;
    for text in texts {
        count += round_trip(bench, text)?;
    }
    Ok(format!("{} texts, {count} tokens", texts.len()))
}

/// There and back; how many tokens it was.
fn round_trip(bench: &Bench, text: &str) -> Result<usize, Stop> {
    let tokens = serving::tokenize(&bench.model, text, false)?;
    let back = serving::detokenize(&bench.model, &tokens)?;
    // A family may begin every text with a blank of its own; nothing else may change.
    let same = back == text.as_bytes() || back.strip_prefix(b" ") == Some(text.as_bytes());
    if !same {
        let seen = String::from_utf8_lossy(&back).into_owned();
        return failed("other bytes came back", format!("{text:?} came back as {seen:?}"));
    }
    Ok(tokens.len())
}

/// With `special` off, the spelling of a special token is ordinary text: user input cannot forge one.
pub(crate) fn special(bench: &Bench) -> Verdict {
    let mut forged = 0;
    for spelling in SPECIAL {
        let as_token = serving::tokenize(&bench.model, spelling, true)?;
        let as_text = serving::tokenize(&bench.model, spelling, false)?;
        if let ([token], true) = (&*as_token, as_text.len() < 2)
            && as_text.first() == Some(token)
        {
            return failed("a special token out of plain text", format!("{spelling} is {token}"));
        }
        round_trip(bench, spelling)?;
        forged += usize::from(as_token.len() == 1);
    }
    Ok(format!("{forged} of {} spellings are special tokens here", SPECIAL.len()))
}

/// No character of an answer is broken: the text is what its tokens' bytes say.
pub(crate) fn answer(bench: &Bench) -> Verdict {
    let pattern = "grün süß Straße 你好 🙂 é ".repeat(6);
    let mut request = bench.request(&pattern, 48);
    let with_bytes = bench.claims("logprobs");
    request.logprobs = with_bytes.then_some(0);
    let answer = ask(&request)?;
    let whole = format!("{}{}", answer.reasoning, answer.text);
    if !whole.contains(char::REPLACEMENT_CHARACTER) {
        return Ok(short(&whole));
    }
    // A model can write bytes that are no character; then its tokens say so.
    let bytes: Vec<u8> = answer.tokens.iter().flat_map(|token| token.bytes.clone()).collect();
    if bytes.is_empty() {
        return failed("a broken character, and no tokens that explain it", whole);
    }
    let count = |text: &str| text.matches(char::REPLACEMENT_CHARACTER).count();
    let explained = String::from_utf8_lossy(&bytes);
    if count(&whole) > count(&explained) {
        return failed("a character was broken on the way", format!("{whole:?} of {explained:?}"));
    }
    Ok(format!("the model itself wrote {} bytes that are no character", count(&explained)))
}

/// One log probability per token, none above 0, alternatives best first, and bytes that make the text.
pub(crate) fn logprobs(bench: &Bench) -> Verdict {
    let mut request = bench.request("Name three colours.", 12);
    request.logprobs = Some(3);
    let answer = ask(&request)?;
    if answer.tokens.is_empty() {
        return failed("log probabilities were asked for and none came", answer.text);
    }
    for token in &answer.tokens {
        let ordered = token.alternatives.windows(2).all(|pair| match pair {
            [(_, _, a), (_, _, b)] => a >= b,
            _ => true,
        });
        if token.logprob > 1e-3 || token.alternatives.len() > 3 || !ordered {
            let seen = format!("{} with {} others", token.logprob, token.alternatives.len());
            return failed("expected at most 0, and at most 3 others, best first", seen);
        }
    }
    let bytes: Vec<u8> = answer.tokens.iter().flat_map(|token| token.bytes.clone()).collect();
    let spelled = String::from_utf8_lossy(&bytes);
    // What ends an answer is a token and no text; what is thought has marks around it.
    if answer.reasoning.is_empty() && !spelled.starts_with(answer.text.trim()) {
        let trimmed = spelled.trim_start();
        if !trimmed.starts_with(answer.text.trim()) {
            return failed(
                "the tokens spell another text",
                format!("{spelled:?} {:?}", answer.text),
            );
        }
    }
    match answer.usage {
        Some(usage) if (usage.completion as usize) < answer.tokens.len() => {
            let seen = format!("{} tokens, {} counted", answer.tokens.len(), usage.completion);
            failed("more tokens than were counted", seen)
        }
        _ if answer.tokens.is_empty() => not_applicable("no tokens"),
        _ => Ok(format!("{} tokens", answer.tokens.len())),
    }
}
