//! Text to tokens and back, byte for byte, and the tokens of an answer against its text.

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, ask},
    failed, not_applicable, short,
};

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

/// With `special` off, the spelling of a special token is ordinary text, alone and inside a text:
/// user input cannot forge one.
pub(crate) fn special(bench: &Bench) -> Verdict {
    let mut forgeable = 0;
    for spelling in SPECIAL {
        let as_token = serving::tokenize(&bench.model, spelling, true)?;
        round_trip(bench, spelling)?;
        let [token] = *as_token else { continue };
        forgeable += 1;
        for text in [spelling.to_owned(), format!("a {spelling} b")] {
            if serving::tokenize(&bench.model, &text, false)?.contains(&token) {
                let seen = format!("{spelling} is {token} in {text:?}");
                return failed("a special token out of plain text", seen);
            }
        }
    }
    if forgeable == 0 {
        return not_applicable("no spelling known here is one token of this model");
    }
    Ok(format!("{forgeable} of {} spellings are special tokens here", SPECIAL.len()))
}

/// No character of an answer is broken or lost: the text is what its tokens' bytes say. A model that
/// writes none of several bytes is bound to some, where it can be.
pub(crate) fn answer(bench: &Bench) -> Verdict {
    let pattern = "grün süß Straße 你好 🙂 é ".repeat(6);
    let mut request = bench.request(&pattern, 48);
    let with_bytes = bench.claims("logprobs");
    request.logprobs = with_bytes.then_some(0);
    let free = whole(&ask(&request)?);
    if !bench.claims("structured_output") || !matches!(free, Err(Stop::NotApplicable(_))) {
        return free;
    }
    let schema = r#"{"enum":["grün süß 你好 🙂 é"]}"#;
    request.constraint = Some(Constraint::JsonSchema(schema.to_owned()));
    match ask(&request) {
        Err(error) if error.code == "unsupported" => free,
        other => whole(&other?),
    }
}

fn whole(answer: &Answer) -> Verdict {
    let whole = format!("{}{}", answer.reasoning, answer.text);
    let explained = spelled(&answer.tokens);
    let count = |text: &str| text.matches(char::REPLACEMENT_CHARACTER).count();
    let wide = |text: &str| {
        text.chars().filter(|c| !c.is_ascii() && *c != char::REPLACEMENT_CHARACTER).count()
    };
    if count(&whole) > 0 && explained.is_empty() {
        return failed("a broken character, and no tokens that explain it", whole);
    }
    // A model can write bytes that are no character; then its tokens say so.
    if count(&whole) > count(&explained) {
        return failed("a character was broken on the way", format!("{whole:?} of {explained:?}"));
    }
    // What ends an answer, and the marks around a thought, are tokens and no text.
    let shown = answer.tokens.split_last().map_or_else(String::new, |(_, shown)| spelled(shown));
    if answer.reasoning.is_empty() && wide(&whole) < wide(&shown) {
        return failed("characters were lost on the way", format!("{whole:?} of {explained:?}"));
    }
    if wide(&whole) == 0 {
        return not_applicable("the answer has no character of more than one byte");
    }
    match count(&explained) {
        0 => Ok(short(&whole)),
        wrote => Ok(format!("the model itself wrote {wrote} bytes that are no character")),
    }
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
        let others = &token.alternatives;
        let ordered = others.windows(2).all(|pair| match pair {
            [(_, _, a), (_, _, b)] => a >= b,
            _ => true,
        });
        let above = |logprob: f32| logprob > 1e-3;
        let numbers = above(token.logprob) || others.iter().any(|(_, _, other)| above(*other));
        if numbers || others.is_empty() || others.len() > 3 || !ordered {
            let seen = format!("{} with {} others", token.logprob, others.len());
            return failed("expected at most 0, and up to 3 others, best first", seen);
        }
    }
    if let Some(rest) = unspelled(&answer) {
        return failed("the tokens spell another text", format!("{rest:?} {:?}", answer.text));
    }
    match answer.usage {
        Some(usage) if (usage.completion as usize) < answer.tokens.len() => {
            let seen = format!("{} tokens, {} counted", answer.tokens.len(), usage.completion);
            failed("more tokens than were counted", seen)
        }
        _ => Ok(format!("{} tokens", answer.tokens.len())),
    }
}

/// What the tokens spell, where it is not the text. What ends an answer is a token and no text, and
/// what is thought has marks around it.
fn unspelled(answer: &Answer) -> Option<String> {
    let (all, text) = (spelled(&answer.tokens), answer.text.trim());
    if !answer.reasoning.is_empty() {
        return (!all.contains(text)).then_some(all);
    }
    let unfinished = |letter: char| letter == char::REPLACEMENT_CHARACTER || letter.is_whitespace();
    let same = |spelled: &str| {
        let rest = spelled.trim_start().strip_prefix(text);
        rest.is_some_and(|rest| rest.trim_matches(unfinished).is_empty())
    };
    let shown = match answer.tokens.split_last() {
        Some((_, shown)) if answer.finish != "length" => spelled(shown),
        _ => all.clone(),
    };
    (!same(&all) && !same(&shown)).then_some(all)
}

/// The text of the tokens' bytes.
fn spelled(tokens: &[TokenInfo]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.bytes.clone()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
