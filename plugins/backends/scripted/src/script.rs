//! Reading a script: one command a line, refused as a whole if one line is wrong.

use gristmill_plugin::prelude::*;

/// `wait` costs CPU time, of which a call has little.
const MOST_WAIT: u32 = 500;

/// A line of a script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Line {
    Event(Event),
    Token(TokenInfo, String),
    Bytes(Vec<u8>),
    Tool { id: String, name: String, arguments: String },
    ToolStart { id: String, name: String },
    ToolArguments(String),
    ToolEnd,
    Request,
    Flush,
    Wait(u32),
    Repeat(u32, Box<Line>),
    Error(Error),
    Trap,
    Hang,
    End,
}

/// Every command there is.
const COMMANDS: [&str; 20] = [
    "text",
    "reasoning",
    "bytes",
    "token",
    "tool",
    "tool-start",
    "tool-arguments",
    "tool-end",
    "request",
    "usage",
    "timings",
    "other",
    "finish",
    "flush",
    "wait",
    "repeat",
    "error",
    "trap",
    "hang",
    "end",
];

/// Whether a prompt is a script: its first line begins with a command.
pub(crate) fn is_script(prompt: &str) -> bool {
    let first = prompt.trim_start().lines().next().unwrap_or_default();
    COMMANDS.contains(&first.split(' ').next().unwrap_or_default())
}

/// All lines of a script.
///
/// # Errors
/// `invalid-request` naming the line.
pub(crate) fn parse(script: &str) -> Result<Vec<Line>> {
    let lines = script.trim_start().lines().enumerate();
    lines
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(index, text)| {
            line(text).map_err(|why| {
                Error::invalid_request(format!("line {} of the script: {why}", index + 1))
            })
        })
        .collect()
}

fn line(line: &str) -> Result<Line, String> {
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    Ok(match command {
        "text" => Line::Event(Event::Text(unescaped(rest))),
        "reasoning" => Line::Event(Event::Reasoning(unescaped(rest))),
        "bytes" => Line::Bytes(bytes(rest)?),
        "token" => {
            let (id, rest) = word(rest, "an id, a log probability and a text")?;
            let (logprob, text) = word(rest, "a log probability and a text")?;
            let text = unescaped(text);
            let info = TokenInfo {
                id: number(id)?,
                bytes: text.as_bytes().to_vec(),
                logprob: logprob.parse().map_err(|_| format!("{logprob} is no number"))?,
                alternatives: Vec::new(),
            };
            Line::Token(info, text)
        }
        "tool" => {
            let (id, rest) = word(rest, "an id, a name and arguments")?;
            let (name, arguments) = word(rest, "a name and arguments")?;
            Line::Tool { id: id.into(), name: name.into(), arguments: unescaped(arguments) }
        }
        "tool-start" => {
            let (id, name) = word(rest, "an id and a name")?;
            Line::ToolStart { id: id.into(), name: name.into() }
        }
        "tool-arguments" => Line::ToolArguments(unescaped(rest)),
        "tool-end" => Line::ToolEnd,
        "request" => Line::Request,
        "usage" => {
            let [prompt, completion, cached, reasoning] = numbers(rest)?;
            let extras = Vec::new();
            Line::Event(Event::Usage(Usage { prompt, cached, completion, reasoning, extras }))
        }
        "timings" => {
            let [queue, load, prefill, decode] = numbers(rest)?.map(u64::from);
            let extras = Vec::new();
            Line::Event(Event::Timings(Timings { queue, load, prefill, decode, extras }))
        }
        "other" => {
            let (name, value) = word(rest, "a name and a value")?;
            Line::Event(Event::Other((name.into(), unescaped(value))))
        }
        "finish" => {
            let (reason, stop) = rest.split_once(' ').unwrap_or((rest, ""));
            let stop = Some(unescaped(stop)).filter(|stop| !stop.is_empty());
            Line::Event(Event::Finish(Finish { reason: reason.into(), stop }))
        }
        "flush" => Line::Flush,
        "wait" => match number(rest)? {
            ms if ms <= MOST_WAIT => Line::Wait(ms),
            ms => return Err(format!("waits at most {MOST_WAIT} ms, found {ms}")),
        },
        "repeat" => {
            let (times, rest) = word(rest, "a number and a line")?;
            if rest.starts_with("repeat") {
                return Err("a repetition is not repeated".into());
            }
            Line::Repeat(number(times)?, Box::new(self::line(rest)?))
        }
        "error" => {
            let (code, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let (retry, message) = match rest.strip_prefix("retry=") {
                Some(rest) => {
                    let (ms, message) = rest.split_once(' ').unwrap_or((rest, ""));
                    (Some(number(ms)?), message)
                }
                None => (None, rest),
            };
            Line::Error(Error { retry_after_ms: retry, ..Error::new(code, unescaped(message)) })
        }
        "trap" => Line::Trap,
        "hang" => Line::Hang,
        "end" => Line::End,
        other => return Err(format!("{other} is no command")),
    })
}

fn word<'t>(text: &'t str, wanted: &str) -> Result<(&'t str, &'t str), String> {
    text.split_once(' ').ok_or_else(|| format!("wanted {wanted}, found {text:?}"))
}

fn number(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("{text} is no number from 0 to 4294967295"))
}

/// Up to four numbers; what is missing is 0.
fn numbers(text: &str) -> Result<[u32; 4], String> {
    let mut four = [0; 4];
    let mut words = text.split_whitespace();
    for place in &mut four {
        if let Some(word) = words.next() {
            *place = number(word)?;
        }
    }
    match words.next() {
        Some(word) => Err(format!("at most 4 numbers, then found {word}")),
        None => Ok(four),
    }
}

fn bytes(hex: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u32> = hex
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| digit.to_digit(16).ok_or_else(|| format!("{digit} is no hexadecimal digit")))
        .collect::<Result<_, _>>()?;
    if !digits.len().is_multiple_of(2) {
        return Err(format!("{} hexadecimal digits are no whole bytes", digits.len()));
    }
    Ok(digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8))
        .collect())
}

/// `\n`, `\t` and `\\` as in Rust; any other backslash stands for itself.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        let escaped = match (letter, rest.as_str().chars().next()) {
            ('\\', Some('n')) => '\n',
            ('\\', Some('t')) => '\t',
            ('\\', Some('\\')) => '\\',
            _ => {
                plain.push(letter);
                continue;
            }
        };
        plain.push(escaped);
        rest.next();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_read_and_nothing_else() {
        for command in COMMANDS {
            assert!(is_script(command), "{command}");
            if let Err(error) = parse(command) {
                assert!(!error.message.contains("is no command"), "{}", error.message);
            }
        }
        assert!(!is_script("texts are nice"));
        let error = parse("text a\n\nspell b").unwrap_err();
        assert_eq!(error.message, "line 3 of the script: spell is no command");
    }

    #[test]
    fn texts_keep_blanks_and_undo_escapes() {
        let lines = parse("text  a \\n\\\\n\\x ").unwrap();
        assert_eq!(lines, [Line::Event(Event::Text(" a \n\\n\\x ".into()))]);
    }

    #[test]
    fn what_is_malformed_is_named() {
        for (script, why) in [
            ("bytes c", "1 hexadecimal digits are no whole bytes"),
            ("bytes zz", "z is no hexadecimal digit"),
            ("usage 1 2 3 4 5", "at most 4 numbers, then found 5"),
            ("usage -1", "-1 is no number from 0 to 4294967295"),
            ("wait 501", "waits at most 500 ms, found 501"),
            ("repeat 2 repeat 2 text a", "a repetition is not repeated"),
            ("tool a", "wanted an id, a name and arguments, found \"a\""),
        ] {
            let error = parse(script).unwrap_err();
            assert_eq!(error.code, "invalid-request");
            assert_eq!(error.message, format!("line 1 of the script: {why}"));
        }
    }
}
