//! Regular expressions of JSON Schema (ECMA-262) in the syntax of the grammar engine.
//!
//! What comes out matches the same texts, or there is an error: look-around, back references,
//! word boundaries and flags are refused, and so is an escape ECMA-262 does not know. Laziness of
//! quantifiers is dropped, for it changes no match.
//!
//! Bounds: `LENGTH` characters, `DEPTH` groups inside each other; the engine bounds the rest.

use std::fmt::Write;

/// Characters of a pattern.
const LENGTH: usize = 16 * 1024;
/// Groups inside groups.
const DEPTH: usize = 64;

/// ECMA's white space, which is not Unicode's.
const SPACE: &str = r"\x{9}-\x{d}\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";
/// What `.` does not match.
const LINE_ENDS: &str = r"\x{a}\x{d}\x{2028}\x{2029}";

/// Rewrites a pattern that is searched for, or with `whole` must match from end to end.
///
/// # Errors
/// A sentence about what cannot be honoured.
pub(super) fn translate(pattern: &str, whole: bool) -> Result<String, String> {
    let characters: Vec<char> = pattern.chars().collect();
    if characters.len() > LENGTH {
        return Err(format!("expected at most {LENGTH} characters, found {}", characters.len()));
    }
    let mut reader = Reader { characters: &characters, at: 0, out: String::new(), whole };
    reader.alternatives(0)?;
    match reader.peek() {
        None => Ok(reader.out),
        Some(found) => Err(format!("`{found}` without an opening one")),
    }
}

struct Reader<'a> {
    characters: &'a [char],
    at: usize,
    out: String,
    whole: bool,
}

type Done = Result<(), String>;

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(n, c)| self.characters.get(self.at + n) == Some(&c))
    }

    fn literal(&mut self, character: char) {
        if character.is_ascii_alphanumeric() {
            self.out.push(character);
        } else {
            // Writing to a string does not fail.
            let _ = write!(self.out, "\\x{{{:x}}}", character as u32);
        }
    }

    fn alternatives(&mut self, depth: usize) -> Done {
        if depth > DEPTH {
            return Err(format!("expected at most {DEPTH} groups inside each other"));
        }
        loop {
            self.sequence(depth)?;
            if !self.eat('|') {
                return Ok(());
            }
            self.out.push('|');
        }
    }

    fn sequence(&mut self, depth: usize) -> Done {
        let begun = self.at;
        while let Some(character) = self.peek() {
            if matches!(character, '|' | ')') {
                return Ok(());
            }
            self.at += 1;
            match character {
                // A whole match has its ends where the text has them.
                '^' if self.whole && depth == 0 && self.at == begun + 1 => continue,
                '$' if self.whole && depth == 0 && matches!(self.peek(), None | Some('|')) => {
                    continue;
                }
                '^' | '$' if self.whole => {
                    return Err(format!(
                        "`{character}` inside an expression that must match whole"
                    ));
                }
                '^' | '$' => {
                    self.out.push(character);
                    if matches!(self.peek(), Some('*' | '+' | '?')) {
                        return Err("a quantifier behind an anchor".to_owned());
                    }
                    continue;
                }
                '.' => {
                    let _ = write!(self.out, "[^{LINE_ENDS}]");
                }
                '(' => self.group(depth)?,
                '[' => self.class()?,
                '\\' => self.escape()?,
                '*' | '+' | '?' => return Err(format!("`{character}` with nothing to repeat")),
                other => self.literal(other),
            }
            self.quantifier()?;
        }
        Ok(())
    }

    fn quantifier(&mut self) -> Done {
        match self.peek() {
            Some(mark @ ('*' | '+' | '?')) => {
                self.at += 1;
                self.out.push(mark);
            }
            Some('{') => {
                let close = self.characters.iter().skip(self.at).position(|c| *c == '}');
                let inner: String = match close {
                    Some(length) => {
                        self.characters.iter().skip(self.at + 1).take(length - 1).collect()
                    }
                    None => return Ok(()),
                };
                let (least, most) = inner.split_once(',').unwrap_or((&inner, &inner));
                let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
                    true if !text.is_empty() => text
                        .parse::<u32>()
                        .map(Some)
                        .map_err(|_| format!("`{{{inner}}}`: expected bounds up to {}", u32::MAX)),
                    _ => Ok(None),
                };
                let Some(first) = number(least)? else { return Ok(()) };
                if !most.is_empty() {
                    match number(most)? {
                        Some(last) if last < first => {
                            return Err(format!(
                                "`{{{inner}}}`: the bounds are the wrong way round"
                            ));
                        }
                        Some(_) => {}
                        None => return Ok(()),
                    }
                }
                self.at += inner.chars().count() + 2;
                let _ = write!(self.out, "{{{inner}}}");
            }
            _ => return Ok(()),
        }
        // Lazy and greedy match the same texts.
        self.eat('?');
        match self.peek() {
            Some('*' | '+' | '?') => Err("two quantifiers in a row".to_owned()),
            _ => Ok(()),
        }
    }

    fn group(&mut self, depth: usize) -> Done {
        if self.starts("?") {
            if self.starts("?:") {
                self.at += 2;
            } else if self.starts("?<") && !self.starts("?<=") && !self.starts("?<!") {
                while self.next().is_some_and(|c| c != '>') {}
            } else if ["?=", "?!", "?<=", "?<!"].iter().any(|look| self.starts(look)) {
                return Err("look-around cannot be enforced".to_owned());
            } else {
                return Err("a group of an unknown kind, or flags".to_owned());
            }
        }
        self.out.push_str("(?:");
        self.alternatives(depth + 1)?;
        if !self.eat(')') {
            return Err("a group that is not closed".to_owned());
        }
        self.out.push(')');
        Ok(())
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let text: String = self.characters.get(self.at..self.at + digits)?.iter().collect();
        let number = u32::from_str_radix(&text, 16).ok()?;
        self.at += digits;
        Some(number)
    }

    /// One character after a backslash, in or outside a class; none: not a single character.
    fn character(&mut self, escape: char) -> Result<Option<char>, String> {
        let broken = || format!("`\\{escape}` with the wrong digits");
        Ok(Some(match escape {
            't' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            '0' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => '\0',
            'c' => match self.next() {
                Some(letter) if letter.is_ascii_alphabetic() => char::from(letter as u8 % 32),
                _ => return Err(broken()),
            },
            'x' => self.hex(2).and_then(char::from_u32).ok_or_else(broken)?,
            'u' if self.eat('{') => {
                let mut number = 0_u32;
                loop {
                    match self.next() {
                        Some('}') => break,
                        Some(digit) if digit.is_ascii_hexdigit() && number < 0x11_0000 => {
                            number = number * 16 + digit.to_digit(16).unwrap_or_default();
                        }
                        _ => return Err(broken()),
                    }
                }
                char::from_u32(number).ok_or_else(broken)?
            }
            'u' => {
                let first = self.hex(4).ok_or_else(broken)?;
                match (first, self.starts("\\u")) {
                    (0xD800..0xDC00, true) => {
                        self.at += 2;
                        let second = self.hex(4).ok_or_else(broken)?;
                        let second = second.checked_sub(0xDC00).filter(|n| *n < 0x400);
                        let second = second.ok_or_else(broken)?;
                        char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + second)
                            .ok_or_else(broken)?
                    }
                    _ => char::from_u32(first).ok_or_else(broken)?,
                }
            }
            'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'p' | 'P' => return Ok(None),
            'b' | 'B' => return Err(format!("the word boundary `\\{escape}` cannot be enforced")),
            '1'..='9' | 'k' => return Err("a back reference cannot be enforced".to_owned()),
            other if other.is_ascii_alphanumeric() => {
                return Err(format!("the escape `\\{other}` is not known"));
            }
            other => other,
        }))
    }

    /// A set of characters after a backslash, as a class.
    fn set(&mut self, escape: char) -> Done {
        match escape {
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            's' => {
                let _ = write!(self.out, "[{SPACE}]");
            }
            'S' => {
                let _ = write!(self.out, "[^{SPACE}]");
            }
            _ => {
                if !self.eat('{') {
                    return Err(format!("`\\{escape}` without a property"));
                }
                let mut name = String::new();
                loop {
                    match self.next() {
                        Some('}') => break,
                        Some(c) if c.is_ascii_alphanumeric() || matches!(c, '_' | '=') => {
                            name.push(c);
                        }
                        _ => return Err(format!("`\\{escape}{{…}}` with an odd name")),
                    }
                }
                let _ = write!(self.out, "\\{escape}{{{name}}}");
            }
        }
        Ok(())
    }

    fn escape(&mut self) -> Done {
        let escape = self.next().ok_or("a backslash at the end")?;
        match self.character(escape)? {
            Some(character) => self.literal(character),
            None => self.set(escape)?,
        }
        Ok(())
    }

    fn class(&mut self) -> Done {
        let negated = self.eat('^');
        if self.eat(']') {
            // Nothing, or anything.
            self.out.push_str(if negated { r"[\x{0}-\x{10ffff}]" } else { r"[^\x{0}-\x{10ffff}]" });
            return Ok(());
        }
        self.out.push_str(if negated { "[^" } else { "[" });
        loop {
            let character = self.next().ok_or("a class that is not closed")?;
            if character == ']' {
                break;
            }
            let Some(first) = self.member(character)? else {
                if self.starts("-") && !self.starts("-]") {
                    return Err("a range that begins with a set".to_owned());
                }
                continue;
            };
            self.literal(first);
            if self.starts("-") && !self.starts("-]") {
                self.at += 1;
                let end = self.next().ok_or("a class that is not closed")?;
                let last = self.member(end)?.ok_or("a range that ends with a set")?;
                if last < first {
                    return Err(format!("the range `{first}-{last}` is the wrong way round"));
                }
                self.out.push('-');
                self.literal(last);
            }
        }
        self.out.push(']');
        Ok(())
    }

    /// A member of a class; none: a set, already written.
    fn member(&mut self, character: char) -> Result<Option<char>, String> {
        if character != '\\' {
            return Ok(Some(character));
        }
        let escape = self.next().ok_or("a backslash at the end")?;
        if matches!(escape, 'b') {
            return Ok(Some('\u{8}'));
        }
        let found = self.character(escape)?;
        if found.is_none() {
            self.set(escape)?;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_exact_and_the_rest_is_refused() {
        let cases: &[(&str, Result<&str, &str>)] = &[
            (r"^hello there\!$", Ok(r"^hello\x{20}there\x{21}$")),
            (r"^\d{3}-[\w\-]+?$", Ok(r"^[0-9]{3}\x{2d}[[0-9A-Za-z_]\x{2d}]+$")),
            (r"(?<year>\u0041|\u{1F600}|\uD83D\uDE00)", Ok(r"(?:A|\x{1f600}|\x{1f600})")),
            (r"[^\]a-f/]", Ok(r"[^\x{5d}a-f\x{2f}]")),
            (r"ä{2,}x{,3}", Ok(r"\x{e4}{2,}x\x{7b}\x{2c}3\x{7d}")),
            (r"[]|[^]", Ok(r"[^\x{0}-\x{10ffff}]|[\x{0}-\x{10ffff}]")),
            (r"\p{L}\cJ\0", Ok(r"\p{L}\x{a}\x{0}")),
            (r"(?=a)", Err("look-around")),
            (r"(?<!a)", Err("look-around")),
            (r"(?i)a", Err("flags")),
            (r"(a)\1", Err("back reference")),
            (r"\bword", Err("boundary")),
            (r"\a", Err(r"`\a`")),
            (r"\Z", Err(r"`\Z`")),
            (r"(a", Err("not closed")),
            (r"a)", Err("without an opening")),
            (r"[a", Err("not closed")),
            (r"a**", Err("two quantifiers")),
            (r"*a", Err("nothing to repeat")),
            (r"[z-a]", Err("wrong way")),
            (r"x\", Err("backslash at the end")),
            (r"x{+3}", Ok(r"x\x{7b}+3\x{7d}")),
            (r"x{99999999999}", Err("bounds up to 4294967295")),
            (r"x{2,99999999999}", Err("bounds up to 4294967295")),
            (r"x{3,2}", Err("wrong way round")),
            (r"\ud800", Err("wrong digits")),
        ];
        for (pattern, expected) in cases {
            let found = translate(pattern, false);
            match expected {
                Ok(text) => assert_eq!(found.as_deref(), Ok(*text), "{pattern}"),
                Err(part) => {
                    assert!(found.clone().is_err_and(|e| e.contains(part)), "{pattern}: {found:?}")
                }
            }
        }
        assert_eq!(translate("^a|b$", true).as_deref(), Ok("a|b"));
        assert!(translate("a^b", true).is_err());
        assert!(translate(&"(".repeat(100_000), false).is_err());
        assert!(translate(&"(".repeat(1000), false).is_err());
    }
}
