//! Small changes to a template's text before it is compiled, for what the engine does not have:
//!
//! - `{% generation %} … {% endgeneration %}` (marks the assistant's words for training) becomes a
//!   condition that always holds, which keeps its white-space control;
//! - in a template that changes lists or dicts in place, every literal becomes a changeable one.

use super::mutable::FUNCTION;

/// Method calls that change their object.
const CHANGES: [&str; 8] = [
    ".append(",
    ".extend(",
    ".insert(",
    ".pop(",
    ".remove(",
    ".update(",
    ".setdefault(",
    ".clear(",
];

/// The text to compile.
pub(super) fn rewrite(source: &str) -> String {
    let changes = CHANGES.iter().any(|call| source.contains(call));
    let mut out = String::with_capacity(source.len() + 64);
    let mut rest = source;
    while let Some(start) = next_tag(rest) {
        let (text, tag) = rest.split_at(start);
        out.push_str(text);
        let end = tag_end(tag);
        let (tag, after) = tag.split_at(end);
        rest = after;
        match generation(tag) {
            Some(replaced) => out.push_str(&replaced),
            None if changes && !tag.starts_with("{#") => literals(tag, &mut out),
            None => out.push_str(tag),
        }
        if is_raw(tag)
            && let Some(end) = raw_end(rest)
        {
            let (raw, after) = rest.split_at(end);
            out.push_str(raw);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

fn next_tag(text: &str) -> Option<usize> {
    ["{%", "{{", "{#"].iter().filter_map(|open| text.find(open)).min()
}

/// Where a tag ends, past its closing mark: not inside a string, nor at the brace of a dict.
fn tag_end(tag: &str) -> usize {
    if tag.starts_with("{#") {
        return tag.find("#}").map_or(tag.len(), |at| at + 2);
    }
    let close = if tag.starts_with("{%") { "%}" } else { "}}" };
    let mut depth = 0_usize;
    let mut at = 2;
    while let Some(here) = tag.get(at..).filter(|here| !here.is_empty()) {
        if depth == 0 && here.starts_with(close) {
            return at + 2;
        }
        let Some(character) = here.chars().next() else { break };
        match character {
            '"' | '\'' => at += string_end(here),
            '{' => {
                depth += 1;
                at += 1;
            }
            '}' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            other => at += other.len_utf8(),
        }
    }
    tag.len()
}

/// The length of the string literal at the start of `text`.
fn string_end(text: &str) -> usize {
    let mut characters = text.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if Some(character) == quote {
            return at + 1;
        }
    }
    text.len()
}

/// The word of a `{% word %}` tag, with what stands before and after it.
fn word(tag: &str) -> Option<(&str, &str, &str)> {
    let inner = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    let (before, inner) = match inner.strip_prefix(['-', '+']) {
        Some(stripped) => (tag.get(..3)?, stripped),
        None => ("{%", inner),
    };
    let (after, inner) = match inner.strip_suffix(['-', '+']) {
        Some(stripped) => (tag.get(tag.len() - 3..)?, stripped),
        None => ("%}", inner),
    };
    Some((before, inner.trim(), after))
}

fn generation(tag: &str) -> Option<String> {
    let (before, word, after) = word(tag)?;
    match word {
        "generation" => Some(format!("{before} if true {after}")),
        "endgeneration" => Some(format!("{before} endif {after}")),
        _ => None,
    }
}

fn is_raw(tag: &str) -> bool {
    word(tag).is_some_and(|(_, word, _)| word == "raw")
}

/// Where the tag that ends a raw block starts.
fn raw_end(text: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find("{%") {
        let at = from + at;
        let tag = text.get(at..)?;
        let tag = tag.get(..tag_end(tag))?;
        if word(tag).is_some_and(|(_, word, _)| word == "endraw") {
            return Some(at);
        }
        from = at + 2;
    }
    None
}

/// Copies a tag, with every list and dict literal inside a call of [`FUNCTION`].
fn literals(tag: &str, out: &mut String) {
    let (open, inner) = tag.split_at(2);
    let (inner, close) = inner.split_at(inner.len().saturating_sub(2));
    out.push_str(open);
    // For each open bracket: whether it is a literal's.
    let mut brackets: Vec<bool> = Vec::new();
    // Whether a value has just ended, so that a bracket would be a subscript.
    let mut after_value = false;
    let mut at = 0;
    while let Some(here) = inner.get(at..).filter(|here| !here.is_empty()) {
        let Some(character) = here.chars().next() else { break };
        let length = match character {
            '"' | '\'' => string_end(here),
            c if c.is_alphanumeric() || c == '_' => {
                here.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(here.len())
            }
            c => c.len_utf8(),
        };
        let piece = here.get(..length).unwrap_or_default();
        at += length;
        match character {
            '[' | '{' => {
                let literal = character == '{' || !after_value;
                if literal {
                    out.push_str(FUNCTION);
                    out.push('(');
                }
                brackets.push(literal);
                out.push(character);
                after_value = false;
            }
            ']' | '}' => {
                out.push(character);
                if brackets.pop() == Some(true) {
                    out.push(')');
                }
                after_value = true;
            }
            c if c.is_whitespace() => out.push_str(piece),
            c => {
                out.push_str(piece);
                let operator = matches!(
                    piece,
                    "in" | "if" | "else" | "elif" | "not" | "and" | "or" | "is" | "for" | "set"
                );
                after_value = c == ')'
                    || c == '"'
                    || c == '\''
                    || ((c.is_alphanumeric() || c == '_') && !operator);
            }
        }
    }
    out.push_str(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_become_conditions_with_the_same_white_space() {
        assert_eq!(
            rewrite("a {%- generation -%} b {% endgeneration +%} c"),
            "a {%- if true -%} b {% endif +%} c"
        );
    }

    #[test]
    fn literals_change_only_where_something_is_changed_in_place() {
        assert_eq!(rewrite("{% set x = [] %}{{ x[0] }}"), "{% set x = [] %}{{ x[0] }}");
        assert_eq!(
            rewrite("[{% set x = [1, [2]] %}{{ x[0] }}{% set _ = x.append({'}}': y['a']}) %}]"),
            "[{% set x = __mutable__([1, __mutable__([2])]) %}{{ x[0] }}\
             {% set _ = x.append(__mutable__({'}}': y['a']})) %}]"
        );
        assert_eq!(
            rewrite("{% for a in [1] %}{{ x.pop(0) }}{# [] #}"),
            "{% for a in __mutable__([1]) %}{{ x.pop(0) }}{# [] #}"
        );
    }

    #[test]
    fn raw_text_stays() {
        let source = "{% raw %}{% generation %}{{ [] }}{% endraw %}{{ x.pop() }}";
        assert_eq!(rewrite(source), source);
    }

    #[test]
    fn text_that_never_closes_comes_through() {
        for source in ["{{ 'a", "{% if", "{# x", "{{ {", "x {"] {
            assert_eq!(rewrite(source), source);
        }
    }
}
