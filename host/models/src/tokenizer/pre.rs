//! How byte-level BPE vocabularies cut text into words before merging: one row per family of
//! `tokenizer.ggml.pre` names. The patterns are those of the vocabularies' own `tokenizer.json`.
//!
//! All patterns run on the `regex` crate, so cutting is linear in the text whatever the text is.
//! The look-ahead that nearly all of them end with, `\s+(?!\S)` (a run of white space leaves its
//! last character to the word that follows), is done by hand: see [`Spaces`].

use std::{fmt::Write as _, ops::Range};

use regex::Regex;

/// What happens to the last character of a run of white space before a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spaces {
    /// It stays in the run.
    Keep,
    /// It goes to the word.
    Yield,
    /// It goes to the word, unless it is the end of a line, which its own alternative has taken.
    YieldUnlessNewline,
}

/// One cut: pieces are matches of a pattern and what lies between them, each further cut by the
/// next.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Pattern(&'static str, Spaces),
    /// Runs of digits in groups of three, counted from the right.
    Thousands,
}

/// A family of pre-tokenizers.
#[derive(Debug)]
struct Row {
    names: &'static [&'static str],
    cuts: &'static [Cut],
    /// A word that is a token is taken whole, whatever the merges say.
    whole_words: bool,
    /// Whether a beginning-of-text token is added when the file does not say.
    add_bos: bool,
}

const fn row(names: &'static [&'static str], cuts: &'static [Cut]) -> Row {
    Row { names, cuts, whole_words: false, add_bos: false }
}

const GPT2: Cut = Cut::Pattern(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+",
    Spaces::Yield,
);
const DIGIT: Cut = Cut::Pattern(r"\p{N}", Spaces::Keep);
const THREE_DIGITS: Cut = Cut::Pattern(r"\p{N}{1,3}", Spaces::Keep);
const CONTRACTION: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const LLAMA3: Cut = Cut::Pattern(
    r"{contraction}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Spaces::YieldUnlessNewline,
);
const QWEN2: Cut = Cut::Pattern(
    r"{contraction}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Spaces::YieldUnlessNewline,
);
const HAN_KANA: Cut =
    Cut::Pattern("[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+", Spaces::Keep);
const DEEPSEEK3: Cut = Cut::Pattern(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##,
    Spaces::YieldUnlessNewline,
);
const GPT4O: Cut = Cut::Pattern(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+{contraction}?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*{contraction}?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    Spaces::YieldUnlessNewline,
);
const BLOOM: Cut = Cut::Pattern(
    " ?[^(\\s|.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+",
    Spaces::Keep,
);

/// All families.
const ROWS: &[Row] = &[
    row(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        &[GPT2],
    ),
    row(
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[DIGIT, GPT2],
    ),
    Row {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        cuts: &[LLAMA3],
        whole_words: true,
        add_bos: true,
    },
    Row { names: &["glm4", "glm5"], cuts: &[LLAMA3], whole_words: true, add_bos: false },
    row(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    row(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "megrez",
            "grok-2",
        ],
        &[QWEN2],
    ),
    row(
        &["qwen35"],
        &[Cut::Pattern(
            r"{contraction}|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessNewline,
        )],
    ),
    row(
        &["ufakzeka"],
        &[Cut::Pattern(
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessNewline,
        )],
    ),
    row(
        &["seed-coder"],
        &[Cut::Pattern(
            r"{contraction}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessNewline,
        )],
    ),
    row(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[Cut::Pattern(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+",
            Spaces::YieldUnlessNewline,
        )],
    ),
    row(&["laguna"], &[Cut::Pattern(r"[^\n]+|\n+", Spaces::Keep), QWEN2]),
    Row {
        names: &["minicpm5"],
        cuts: &[
            THREE_DIGITS,
            Cut::Pattern(
                r"{contraction}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
                Spaces::YieldUnlessNewline,
            ),
        ],
        whole_words: true,
        add_bos: false,
    },
    row(
        &["deepseek-llm"],
        &[
            Cut::Pattern(r"[\r\n]", Spaces::Keep),
            Cut::Pattern(
                "\\s?[A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\
                \u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\
                \u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\
                \u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\
                \u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\
                \u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\
                \u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\
                \u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\
                \u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\
                \u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\
                \u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\
                \u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\
                \u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\
                \u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\
                \u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\
                \u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\
                \u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\
                \u{1e900}-\u{1e943}]+",
                Spaces::Keep,
            ),
            Cut::Pattern(
                "\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",
                Spaces::Keep,
            ),
            Cut::Pattern(r"\s+$", Spaces::Keep),
            Cut::Pattern("[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+", Spaces::Keep),
            Cut::Pattern(r"\p{N}+", Spaces::Keep),
        ],
    ),
    row(
        &["deepseek-coder"],
        &[
            Cut::Pattern(r"[\r\n]", Spaces::Keep),
            Cut::Pattern(r"\s?\p{L}+", Spaces::Keep),
            Cut::Pattern(r"\s?\p{P}+", Spaces::Keep),
            Cut::Pattern("[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+", Spaces::Keep),
            DIGIT,
        ],
    ),
    row(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[THREE_DIGITS, HAN_KANA, DEEPSEEK3],
    ),
    row(
        &["afmoe"],
        &[
            Cut::Thousands,
            Cut::Pattern(
                "[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{8c48}-\u{faff}\u{3040}-\u{309f}\
                 \u{30a0}-\u{30ff}\u{ff65}-\u{ff9f}\u{2f00}-\u{2fdf}\u{e40}-\u{e7f}\
                 \u{e80}-\u{eff}\u{1780}-\u{17ff}\u{1000}-\u{109f}\u{aa60}-\u{aa7f}\
                 \u{a9e0}-\u{a9ff}\u{ac00}-\u{d7af}\u{1100}-\u{11ff}]+",
                Spaces::Keep,
            ),
            DEEPSEEK3,
        ],
    ),
    row(
        &["falcon"],
        &[
            Cut::Pattern(r"[\p{P}$+<=>^~|`]+", Spaces::Keep),
            GPT2,
            Cut::Pattern(r"[0-9][0-9][0-9]", Spaces::Keep),
        ],
    ),
    row(
        &["default"],
        &[
            Cut::Pattern(r"[\p{P}$+<=>^~|]+", Spaces::Keep),
            GPT2,
            Cut::Pattern(r"\p{N}+", Spaces::Keep),
            Cut::Pattern(r"[0-9][0-9][0-9]", Spaces::Keep),
        ],
    ),
    row(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    Row { names: &["granite-embed-multi-97m"], cuts: &[GPT4O], whole_words: true, add_bos: false },
    Row {
        names: &["tekken"],
        cuts: &[Cut::Pattern(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessNewline,
        )],
        whole_words: true,
        add_bos: true,
    },
    row(&["tiny_aya", "cohere2moe"], &[Cut::Thousands, GPT4O]),
    row(
        &["kimi-k2"],
        &[Cut::Pattern(
            r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+{contraction}?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*{contraction}?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessNewline,
        )],
    ),
    row(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    row(&["viking"], &[BLOOM, DIGIT]),
];

/// A compiled cut.
enum Compiled {
    Pattern(Regex, Spaces),
    Thousands,
}

/// A pre-tokenizer, ready to cut.
pub(crate) struct PreTokenizer {
    cuts: Vec<Compiled>,
    pub(super) whole_words: bool,
    pub(super) add_bos: bool,
}

impl PreTokenizer {
    /// The one with this name; otherwise what to say.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let Some(row) = ROWS.iter().find(|row| row.names.contains(&name)) else {
            let mut known = String::new();
            for name in ROWS.iter().flat_map(|row| row.names) {
                let _ = write!(known, " {name}");
            }
            return Err(format!("pre-tokenizer `{name}`; this build knows{known}"));
        };
        Self::compile(row)
    }

    /// The first name of the first row for which `same` holds.
    pub(crate) fn like(same: impl Fn(&Self) -> bool) -> Option<&'static str> {
        let row = ROWS.iter().find(|row| Self::compile(row).is_ok_and(|known| same(&known)))?;
        row.names.first().copied()
    }

    fn compile(row: &Row) -> Result<Self, String> {
        let cuts = row.cuts.iter().map(|cut| match cut {
            Cut::Thousands => Ok(Compiled::Thousands),
            Cut::Pattern(pattern, spaces) => {
                let pattern = pattern.replace("{contraction}", CONTRACTION);
                let regex = Regex::new(&pattern).map_err(|error| error.to_string())?;
                Ok(Compiled::Pattern(regex, *spaces))
            }
        });
        Ok(Self {
            cuts: cuts.collect::<Result<_, String>>()?,
            whole_words: row.whole_words,
            add_bos: row.add_bos,
        })
    }

    /// The words of a text, which together are the text.
    pub(crate) fn words(&self, text: &str) -> Vec<Range<usize>> {
        let whole = 0..text.len();
        let mut words = vec![whole];
        for cut in &self.cuts {
            let mut next = Vec::with_capacity(words.len());
            for word in words {
                let start = word.start;
                let piece = text.get(word).unwrap_or_default();
                match cut {
                    Compiled::Pattern(regex, spaces) => {
                        cut_by_pattern(regex, *spaces, piece, start, &mut next);
                    }
                    Compiled::Thousands => cut_thousands(piece, start, &mut next),
                }
            }
            words = next;
        }
        words
    }
}

fn push(words: &mut Vec<Range<usize>>, start: usize, word: Range<usize>) {
    if word.start < word.end {
        words.push(start + word.start..start + word.end);
    }
}

fn cut_by_pattern(
    regex: &Regex,
    spaces: Spaces,
    piece: &str,
    start: usize,
    words: &mut Vec<Range<usize>>,
) {
    let mut done = 0;
    while let Some(found) = regex.find_at(piece, done) {
        let mut end = found.end();
        if spaces != Spaces::Keep && end < piece.len() {
            end -= yielded(found.as_str(), spaces);
        }
        push(words, start, done..found.start());
        push(words, start, found.start()..end);
        if end == done {
            break;
        }
        done = end;
    }
    push(words, start, done..piece.len());
}

/// Bytes at the end of a match that belong to the word after it.
fn yielded(found: &str, spaces: Spaces) -> usize {
    let Some(last) = found.chars().next_back() else { return 0 };
    let newline = matches!(last, '\r' | '\n');
    let run = found.len() > last.len_utf8() && found.chars().all(char::is_whitespace);
    if run && !(newline && spaces == Spaces::YieldUnlessNewline) { last.len_utf8() } else { 0 }
}

/// Cuts runs of digits as they are grouped when written: `12345` is `12` and `345`.
fn cut_thousands(piece: &str, start: usize, words: &mut Vec<Range<usize>>) {
    let mut done = 0;
    let mut rest = piece.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        if !character.is_numeric() {
            continue;
        }
        push(words, start, done..at);
        let mut digits = vec![at];
        while let Some((next, _)) = rest.next_if(|(_, next)| next.is_numeric()) {
            digits.push(next);
        }
        let end = rest.peek().map_or(piece.len(), |(end, _)| *end);
        let mut from = at;
        for (index, place) in digits.iter().enumerate().skip(1) {
            if (digits.len() - index) % 3 == 0 {
                push(words, start, from..*place);
                from = *place;
            }
        }
        push(words, start, from..end);
        done = end;
    }
    push(words, start, done..piece.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let pre = PreTokenizer::named(name).unwrap();
        pre.words(text).into_iter().map(|word| text[word].to_owned()).collect()
    }

    #[test]
    fn every_row_compiles_and_loses_nothing() {
        let text = "Hello, world!  I'LL\n\n  pay 1234567 \u{a0}€ für\r\n„Ünïcödé“ 你好 ¡ 𝟘 \t x  ";
        for name in ROWS.iter().flat_map(|row| row.names) {
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn a_run_of_spaces_leaves_its_last_to_the_word() {
        assert_eq!(words("gpt-2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(words("gpt-2", "a \n\nb  "), ["a", " \n", "\n", "b", "  "]);
        assert_eq!(words("llama-bpe", "a \n\nb"), ["a", " \n\n", "b"]);
        assert_eq!(words("llama-bpe", "a\t\tb"), ["a", "\t", "\tb"]);
        assert_eq!(words("qwen2", "1  2"), ["1", " ", " ", "2"]);
    }

    #[test]
    fn thousands_are_counted_from_the_right() {
        assert_eq!(words("afmoe", "1234567"), ["1", "234", "567"]);
        assert_eq!(words("tiny_aya", "x12345"), ["x", "12", "345"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let refused = PreTokenizer::named("from-next-year").err().unwrap();
        assert!(refused.contains("`from-next-year`") && refused.contains("llama-bpe"), "{refused}");
    }
}
