//! Grammars in llama.cpp's notation (GBNF), rewritten as Lark, the engine's own.
//!
//! Rules, sequences, alternatives, groups, strings, character classes, `.`, `* + ? {m,n}` and
//! comments are read. Tokens by name or number are refused.

use std::fmt::Write;

use super::schema::literal;

/// Groups inside groups.
const DEPTH: usize = 64;

/// The same grammar in Lark.
///
/// # Errors
/// A sentence with the line.
pub(super) fn lark(source: &str) -> Result<String, String> {
    let characters: Vec<char> = source.chars().collect();
    let mut reader = Reader { characters: &characters, at: 0, out: String::new() };
    let mut root = false;
    reader.blank(true);
    while reader.peek().is_some() {
        let name = reader.name()?;
        root |= name == "r_root";
        reader.blank(false);
        for expected in "::=".chars() {
            reader.expect(expected)?;
        }
        let _ = write!(reader.out, "{name}: ");
        reader.blank(true);
        reader.alternatives(0)?;
        reader.out.push('\n');
        reader.blank(true);
    }
    if !root {
        return Err("expected a rule `root`".to_owned());
    }
    Ok(format!("start: r_root\n{}", reader.out))
}

struct Reader<'a> {
    characters: &'a [char],
    at: usize,
    out: String,
}

type Done = Result<(), String>;

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn fault<T>(&self, expected: &str) -> Result<T, String> {
        let line = 1 + self.characters.iter().take(self.at).filter(|c| **c == '\n').count();
        let found = self.peek().map_or("the end".to_owned(), |c| format!("`{}`", c.escape_debug()));
        Err(format!("line {line}: expected {expected}, found {found}"))
    }

    fn expect(&mut self, wanted: char) -> Done {
        if self.peek() != Some(wanted) {
            return self.fault(&format!("`{wanted}`"));
        }
        self.at += 1;
        Ok(())
    }

    /// Skips white space and comments, over line ends if asked to.
    fn blank(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                '\n' | '\r' if !lines => return,
                c if c.is_ascii_whitespace() => self.at += 1,
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let begun = self.at;
        let mut name = "r_".to_owned();
        while let Some(c) =
            self.peek().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        {
            match c {
                // Lark's rules are in lower case and have no hyphens; what differs must stay so.
                '-' => name.push_str("_m"),
                '_' => name.push_str("__"),
                c if c.is_ascii_uppercase() => {
                    name.push_str("_u");
                    name.push(c.to_ascii_lowercase());
                }
                c => name.push(c),
            }
            self.at += 1;
        }
        if self.at == begun { self.fault("a rule's name") } else { Ok(name) }
    }

    fn alternatives(&mut self, depth: usize) -> Done {
        if depth > DEPTH {
            return self.fault(&format!("at most {DEPTH} groups inside each other"));
        }
        loop {
            self.sequence(depth)?;
            if self.peek() != Some('|') {
                return Ok(());
            }
            self.at += 1;
            self.out.push_str(" | ");
            self.blank(true);
        }
    }

    /// Whether a rule's definition begins here rather than a mention.
    fn defines(&self) -> bool {
        let rest = self.characters.iter().skip(self.at);
        let rest = rest.skip_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let mut rest = rest.skip_while(|c| matches!(c, ' ' | '\t'));
        rest.next() == Some(&':')
    }

    fn sequence(&mut self, depth: usize) -> Done {
        let mut empty = true;
        loop {
            // A rule ends with its line, but for groups and open alternatives.
            let before = self.at;
            self.blank(true);
            match self.peek() {
                None | Some('|' | ')') => break,
                Some(c) if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') => {
                    if self.defines() {
                        self.at = before;
                        break;
                    }
                    let name = self.name()?;
                    let _ = write!(self.out, "{name}");
                }
                Some('"') => self.string()?,
                Some('[') => self.class()?,
                Some('.') => {
                    self.at += 1;
                    self.out.push_str(r"/[\x{0}-\x{10ffff}]/");
                }
                Some('(') => {
                    self.at += 1;
                    self.out.push('(');
                    self.alternatives(depth + 1)?;
                    self.expect(')')?;
                    self.out.push(')');
                }
                Some(_) => return self.fault("a string, a class, a group or a rule's name"),
            }
            empty = false;
            self.repeated()?;
            self.out.push(' ');
        }
        if empty {
            self.out.push_str("\"\" ");
        }
        Ok(())
    }

    /// The number that stands here; none: no digits do.
    fn number(&mut self) -> Result<Option<u32>, String> {
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            number = number.unwrap_or(0_u32).checked_mul(10).and_then(|n| n.checked_add(digit));
            if number.is_none() {
                return self.fault(&format!("a number up to {}", u32::MAX));
            }
            self.at += 1;
        }
        Ok(number)
    }

    fn repeated(&mut self) -> Done {
        match self.peek() {
            Some(mark @ ('*' | '+' | '?')) => {
                self.at += 1;
                self.out.push(mark);
            }
            Some('{') => {
                self.at += 1;
                let least = self.number()?;
                let bounds = if self.peek() == Some(',') {
                    self.at += 1;
                    let (least, most) = (least.unwrap_or(0), self.number()?);
                    most.map_or(format!("{{{least},}}"), |most| format!("{{{least},{most}}}"))
                } else {
                    match least {
                        Some(least) => format!("{{{least}}}"),
                        None => return self.fault("a number"),
                    }
                };
                self.expect('}')?;
                self.out.push_str(&bounds);
            }
            _ => {}
        }
        Ok(())
    }

    /// A character of a string or class, escapes resolved.
    fn character(&mut self) -> Result<char, String> {
        let Some(c) = self.peek() else { return self.fault("a character") };
        self.at += 1;
        if c != '\\' {
            return Ok(c);
        }
        let Some(escape) = self.peek() else { return self.fault("an escape") };
        self.at += 1;
        let digits = match escape {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' | '.' => return Ok(escape),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return self.fault("one of the escapes n r t x u U"),
        };
        let text: String = self.characters.iter().skip(self.at).take(digits).collect();
        self.at += digits;
        match u32::from_str_radix(&text, 16).ok().and_then(char::from_u32) {
            Some(c) => Ok(c),
            None => self.fault("hexadecimal digits of a character"),
        }
    }

    fn string(&mut self) -> Done {
        self.at += 1;
        let mut text = String::new();
        while self.peek() != Some('"') {
            if matches!(self.peek(), None | Some('\n')) {
                return self.fault("`\"`");
            }
            text.push(self.character()?);
        }
        self.at += 1;
        if text.is_empty() {
            self.out.push_str("\"\"");
        } else {
            let _ = write!(self.out, "/{}/", literal(&text));
        }
        Ok(())
    }

    fn class(&mut self) -> Done {
        self.at += 1;
        let negated = self.peek() == Some('^');
        self.at += usize::from(negated);
        let mut members = String::new();
        while self.peek() != Some(']') {
            let first = self.character()?;
            members.push_str(&literal(&first.to_string()));
            if self.peek() == Some('-') && self.characters.get(self.at + 1) != Some(&']') {
                self.at += 1;
                let last = self.character()?;
                if last < first {
                    return self.fault("a range that is the right way round");
                }
                members.push('-');
                members.push_str(&literal(&last.to_string()));
            }
        }
        self.at += 1;
        if members.is_empty() {
            return self.fault("a class with members");
        }
        let not = if negated { "^" } else { "" };
        let _ = write!(self.out, "/[{not}{members}]/");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_keep_their_meaning_and_mistakes_their_line() {
        let source = "# a list\nroot ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= [a-z]{2,} |\n  Big-Num_1\nBig-Num_1 ::= [^\\x00-\\x1F\"]+ .?\n";
        let expected = "start: r_root\nr_root: /\\x{5b}/ (r_item (/\\x{2c}/ r_item )* )? /\\x{5d}/ \nr_item: /[\\x{61}-\\x{7a}]/{2,}  | r__ubig_m_unum__1 \nr__ubig_m_unum__1: /[^\\x{0}-\\x{1f}\\x{22}]/+ /[\\x{0}-\\x{10ffff}]/? \n";
        assert_eq!(lark(source).as_deref(), Ok(expected));
        for (source, part) in [
            ("root ::= \"a", "line 1"),
            ("root ::= (\"a\"", "line 1: expected `)`, found the end"),
            ("root ::= \"a\"\nx ::= ]", "line 2"),
            ("root ::= [z-a]", "right way round"),
            ("root := \"a\"", "expected `:`, found `=`"),
            ("x ::= \"a\"", "`root`"),
            ("root ::= <think>", "expected a string"),
            ("root ::= \"\\q\"", "escapes"),
            ("root ::= \"a\"{99999999999}", "a number up to 4294967295"),
            ("root ::= \"a\"{1,99999999999}", "a number up to 4294967295"),
            ("root ::= \"a\"{}", "expected a number, found `}`"),
        ] {
            let found = lark(source);
            assert!(found.clone().is_err_and(|e| e.contains(part)), "{source}: {found:?}");
        }
        assert!(lark(&format!("root ::= {}", "(".repeat(100_000))).is_err());
    }
}
