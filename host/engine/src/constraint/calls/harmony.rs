//! Grammars of answers that are messages on channels (`harmony`): thoughts, and then calls or the
//! answer. The marks are tokens that no text can be, so text ends where one comes.

use gristmill_core::{Result, request::Constraint};
use gristmill_models::Tokenizer;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};

use super::{
    super::grammar::{Draft, Thoughts, answer},
    Callable, Calls,
    lark::{Lark, spelled},
};

/// The marks of messages, and the rules they are in a grammar.
const MARKS: [(&str, &str); 5] = [
    ("start_mark", "<|start|>"),
    ("channel_mark", "<|channel|>"),
    ("constrain_mark", "<|constrain|>"),
    ("message_mark", "<|message|>"),
    ("end_mark", "<|end|>"),
];

/// The rule of one call: a message to a function. The recipient stands before the channel or after
/// it, and the type of what follows may be there.
pub(super) fn rules(tools: &[Callable<'_>]) -> Result<Lark> {
    let mut lark = Lark::default();
    let mut all = Vec::new();
    for tool in tools {
        tool.named(|name| {
            !name.is_empty() && !name.contains(char::is_whitespace) && !name.contains("<|")
        })?;
        let (schema, definitions) = tool.object();
        let arguments = lark.json(&schema, &definitions);
        let to = spelled(&format!(" to=functions.{}", tool.name));
        let header = format!(
            "({to} channel_mark /commentary/ | channel_mark /commentary/ {to}) typed message_mark"
        );
        all.push(format!("{header} {arguments}"));
    }
    lark.rule("one", &all.join(" | "));
    Ok(lark)
}

/// The marks of a vocabulary, as rules.
pub(in crate::constraint) struct Harmony {
    rules: String,
}

impl Harmony {
    /// None where the vocabulary lacks a mark.
    pub(in crate::constraint) fn new(tokenizer: &Tokenizer, thoughts: Thoughts) -> Option<Self> {
        let mut lark = Lark::default();
        for (rule, mark) in MARKS {
            let token = tokenizer.id_of(mark).filter(|token| tokenizer.is_special(*token))?;
            lark.rule(rule, &format!("<[{token}]>"));
        }
        lark.rule("MORE", "/(?s:.+)/");
        lark.rule("said", "(MORE)? end_mark start_mark /assistant/");
        lark.rule("typed", "((/ /)? constrain_mark /json/ | / json/)?");
        lark.rule("thought", "channel_mark /analysis/ message_mark said");
        let thinks = match (thoughts.opened, thoughts.may_open) {
            (true, _) => "said (thought)*",
            (false, true) => "(thought)*",
            (false, false) => "\"\"",
        };
        lark.rule("thoughts", thinks);
        Some(Self { rules: lark.lines })
    }

    /// The grammar of a whole answer; none when nothing binds it.
    pub(in crate::constraint) fn draft(
        self,
        calls: Option<Calls>,
        constraint: Option<&Constraint>,
        forced: bool,
    ) -> Result<Option<Draft>> {
        let mut lark = Lark::default();
        let (mut grammars, mut schemas) = (Vec::new(), Vec::new());
        let mut ways = Vec::new();
        let field = if calls.is_some() { "tools" } else { "constraint" };
        if let Some(constraint) = constraint {
            let (answer, own) = answer(constraint)?;
            grammars.push(answer);
            schemas.extend(own);
            ways.push("channel_mark /final/ typed message_mark @answer");
        }
        if let Some(calls) = calls {
            if !forced && constraint.is_none() && !calls.strict {
                return Ok(None);
            }
            let more =
                if calls.parallel { "((end_mark)? start_mark /assistant/ one)*" } else { "" };
            lark.rule("calls", &format!("one {more}"));
            lark.lines.push_str(&calls.lark.lines);
            grammars.extend(calls.lark.grammars);
            schemas.extend(calls.schemas);
            ways.push("calls");
            if !forced && constraint.is_none() {
                // The model decides: it may say something, and go on or not.
                lark.rule("note", "channel_mark /commentary/ message_mark said thoughts");
                ways.push("note calls");
                ways.push("(note)? channel_mark /final/ message_mark (MORE)?");
            }
        } else if constraint.is_none() {
            return Ok(None);
        }
        lark.rule("start", &format!("thoughts ({})", ways.join(" | ")));
        let text = lark.lines + &self.rules;
        let mut all = vec![GrammarWithLexer::from_lark(text)];
        all.append(&mut grammars);
        Ok(Some(Draft {
            grammar: TopLevelGrammar { grammars: all, max_tokens: None },
            field: field.to_owned(),
            schemas,
            after: None,
            thinks: true,
        }))
    }
}
