//! What tokenizers promise beyond the published ids: nothing is lost, control tokens come only from
//! where they may, one beginning of text, sound errors, and time linear in the text.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::time::{Duration, Instant};

use common::{File, array, key, text};
use gristmill_models::{Gguf, ModelError, Tokenizer};

const SHIPPED: [&str; 19] = [
    "aquila",
    "baichuan",
    "bert-bge",
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "gpt-neox",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "nomic-bert-moe",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];
/// Vocabularies that spell every text exactly.
const EXACT: [&str; 16] = [
    "aquila",
    "baichuan",
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "gpt-neox",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];

fn shipped(name: &str) -> Tokenizer {
    let folder = gristmill_testing::fetch::llama_cpp_models().unwrap();
    let gguf = Gguf::open(folder.join(format!("ggml-vocab-{name}.gguf"))).unwrap();
    Tokenizer::from_gguf(&gguf).unwrap()
}

/// Texts that are hard to cut, and some made at random from characters of all lengths.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "  ",
        "\n",
        "\t \n\n  x",
        "Hello, world!",
        " leading",
        "trailing ",
        "a  b   c",
        "I'll DON'T we'Ve",
        "1234567890 3.14 1,000",
        "für Straße ÄÖÜ ß",
        "你好，世界。こんにちは",
        "🦙🦙 👩‍👩‍👧‍👦 \u{1F1E9}\u{1F1EA}",
        "e\u{301}\u{200b}\u{feff}",
        "\u{0}\u{1}\u{7f}",
        "<|im_start|>user</s><s>[INST]",
        "▁▁ ▁x",
        "\r\n\r\n",
        "კ៘\u{10FFFF}\u{E000}",
        "def f(x):\n\treturn x**2  # ½ ² ⅔\n",
    ]
    .map(str::to_owned)
    .to_vec();
    let alphabet: Vec<char> =
        "aB3 \n\t'.,-_#<>|▁ßéñжع中あ한🦙\u{301}\u{a0}\u{3000}\u{2028}½٣".chars().collect();
    let mut state = 7_u64;
    for length in 0..120 {
        let mut text = String::new();
        for _ in 0..length % 40 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push(alphabet[(state >> 33) as usize % alphabet.len()]);
        }
        texts.push(text);
    }
    texts
}

#[test]
fn all_threads_share_one() {
    fn shared<T: Send + Sync>() {}
    shared::<Gguf>();
    shared::<Tokenizer>();
    shared::<gristmill_models::ChatTemplate>();
}

#[test]
fn texts_come_back_whole() {
    let texts = texts();
    let mut count = 0;
    for name in EXACT {
        let tokenizer = shipped(name);
        // SentencePiece's space is ▁; a ▁ in the text is then a space.
        let sentence = matches!(name, "baichuan" | "gemma-4" | "llama-spm");
        for text in &texts {
            let ids = tokenizer.encode(text, false).unwrap();
            let expected = if sentence { text.replace('▁', " ") } else { text.clone() };
            assert_eq!(tokenizer.decode(&ids, true), expected, "{name}");
            let bytes: Vec<u8> =
                ids.iter().flat_map(|id| tokenizer.token_bytes(*id).unwrap()).collect();
            assert!(bytes.ends_with(expected.as_bytes()), "{name} {text:?}");
            assert!(bytes.len() <= expected.len() + 1, "{name} {text:?}");
            count += 1;
        }
    }
    println!("{count} texts of {} vocabularies came back", EXACT.len());
}

#[test]
fn control_tokens_come_only_from_where_they_may() {
    for name in SHIPPED {
        let tokenizer = shipped(name);
        let mut marks = 0;
        for id in 0..tokenizer.vocab_len() {
            let text = tokenizer.token_text(id).unwrap().to_owned();
            if !tokenizer.is_special(id) || text.is_empty() {
                continue;
            }
            marks += 1;
            if marks > 40 {
                break;
            }
            assert_eq!(tokenizer.encode(&text, true).unwrap(), [id], "{name} {text}");
            assert_eq!(tokenizer.token_bytes(id).unwrap(), text.as_bytes(), "{name}");
            assert_eq!(tokenizer.id_of(&text), Some(id), "{name}");
            // WordPiece's own mark for the unknown is what it must answer with.
            if name == "bert-bge" || name == "nomic-bert-moe" {
                continue;
            }
            let typed = tokenizer.encode(&text, false).unwrap();
            let user_defined = typed == [id];
            assert!(
                user_defined || typed.iter().all(|id| !tokenizer.is_special(*id)),
                "{name} {text} {typed:?}"
            );
        }
        assert!(marks > 0, "{name}");
        assert_eq!(tokenizer.token_bytes(tokenizer.vocab_len()), None);
    }
}

#[test]
fn a_prompt_begins_once() {
    for (name, begins, ends) in [
        ("llama-bpe", true, false),
        ("llama-spm", true, false),
        ("gemma-4", true, false),
        ("command-r", true, false),
        ("qwen2", false, false),
        ("gpt-2", false, false),
        ("bert-bge", true, true),
        ("nomic-bert-moe", true, true),
    ] {
        let tokenizer = shipped(name);
        assert_eq!((tokenizer.add_bos(), tokenizer.add_eos()), (begins, ends), "{name}");
        let bos = tokenizer.bos().map(|id| tokenizer.token_text(id).unwrap().to_owned());
        let plain = tokenizer.encode_prompt("Hi there").unwrap();
        let count = |ids: &[u32]| ids.iter().filter(|id| Some(**id) == tokenizer.bos()).count();
        assert_eq!(count(&plain), usize::from(begins), "{name}");
        if begins {
            let spelled = tokenizer.encode_prompt(&format!("{}Hi there", bos.unwrap())).unwrap();
            assert_eq!(spelled, plain, "{name}");
        }
        if ends {
            assert_eq!(plain.last().copied(), tokenizer.eos(), "{name}");
        }
        let empty = tokenizer.encode_prompt("").unwrap();
        assert_eq!(empty.len(), usize::from(begins) + usize::from(ends), "{name}");
    }
}

#[test]
fn turns_end_where_the_family_ends_them() {
    for (name, ends, goes_on) in [
        ("llama-bpe", &["<|eot_id|>", "<|end_of_text|>"][..], "<|start_header_id|>"),
        ("qwen2", &["<|im_end|>", "<|endoftext|>"], "<|im_start|>"),
        ("gemma-4", &["<eos>", "<turn|>"], "<|turn>"),
        ("phi-3", &["<|end|>", "<|endoftext|>"], "<|user|>"),
        ("llama-spm", &["</s>"], "<s>"),
    ] {
        let tokenizer = shipped(name);
        for text in ends {
            let id = tokenizer.id_of(text).unwrap();
            assert!(tokenizer.is_end(id) && tokenizer.is_special(id), "{name} {text}");
        }
        assert!(!tokenizer.is_end(tokenizer.id_of(goes_on).unwrap()), "{name}");
    }
    // An ordinary tag in this vocabulary.
    let gemma = shipped("gemma-4");
    assert!(!gemma.is_end(gemma.id_of("</s>").unwrap()));
}

#[test]
fn spaces_around_control_tokens_follow_the_family() {
    // Llama: text after a control token begins like a text.
    let llama = shipped("llama-spm");
    let id = |text: &str| llama.id_of(text).unwrap();
    assert_eq!(llama.encode("<s>G", true).unwrap(), [1, id("▁G")]);
    assert_eq!(llama.encode("a</s> b", true).unwrap(), [id("▁a"), 2, id("▁"), id("▁b")]);
    assert_eq!(llama.decode(&[1, id("▁a"), id("▁b")], false), "a b");
    // Phi-3: white space after a control token belongs to it.
    let phi = shipped("phi-3");
    let marked = phi.encode("<|user|>\n  Hi<|end|>\n", true).unwrap();
    let id = |text: &str| phi.id_of(text).unwrap();
    assert_eq!(marked, [id("<|user|>"), id("▁Hi"), id("<|end|>")]);
    // Gemma: nothing is added.
    let gemma = shipped("gemma-4");
    assert_eq!(gemma.encode("<bos>G", true).unwrap()[1..], gemma.encode("G", false).unwrap());
}

#[test]
fn unigram_gives_the_ids_of_its_family() {
    // XLM-RoBERTa's own ids for these, with its marks.
    let tokenizer = shipped("nomic-bert-moe");
    assert_eq!(tokenizer.encode_prompt("Hello world").unwrap(), [0, 35_378, 8_999, 2]);
    assert_eq!(tokenizer.encode(" Hello   world ", false).unwrap(), [35_378, 8_999]);
    assert_eq!(tokenizer.decode(&[0, 35_378, 8_999, 2], false), "Hello world");
}

#[test]
fn hostile_texts_take_linear_time() {
    let texts = [
        "a".repeat(1 << 20),
        " ".repeat(1 << 20),
        "\n ".repeat(1 << 19),
        "1".repeat(1 << 20),
        "'".repeat(1 << 20),
        "é".repeat(1 << 19),
        "A a".repeat(1 << 18),
    ];
    let mut slowest = (Duration::ZERO, "", None);
    for name in ["gpt-2", "llama-bpe", "qwen2", "llama-spm", "gemma-4", "bert-bge"] {
        let tokenizer = shipped(name);
        for text in &texts {
            let started = Instant::now();
            let ids = tokenizer.encode(text, true).unwrap();
            let took = started.elapsed();
            // A quadratic step would take hours.
            slowest = slowest.max((took, name, text.chars().next()));
            assert!(took < Duration::from_secs(60), "{name} {:?}… {took:?}", &text[..2]);
            assert!(ids.len() <= text.len() + 1);
        }
    }
    println!("slowest: {slowest:?}");
}

#[test]
fn the_largest_vocabulary_is_ready_at_once() {
    let gguf = Gguf::open(gristmill_testing::fetch::gemma3().unwrap()).unwrap();
    let started = Instant::now();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let built = started.elapsed();
    let text = "The quick brown fox jumps over the lazy dog, für immer.\n".repeat(2000);
    let started = Instant::now();
    let ids = tokenizer.encode(&text, true).unwrap();
    let took = started.elapsed();
    println!(
        "{} tokens ready in {built:?}; {} bytes to {} ids in {took:?}",
        tokenizer.vocab_len(),
        text.len(),
        ids.len(),
    );
    assert!(built < Duration::from_secs(20), "{built:?}");
    assert!(tokenizer.is_end(106) && tokenizer.token_text(106) == Some("<end_of_turn>"));
    let turn = tokenizer.encode_prompt("<bos><start_of_turn>user\nHi<end_of_turn>\n").unwrap();
    assert_eq!(turn, [2, 105, 2364, 107, 10979, 106, 107]);
}

/// A small byte-level vocabulary: the 256 bytes, `he`, and a mark.
fn small() -> File {
    let alphabet: Vec<String> = (0..=255_u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte).to_string(),
            0..=0x20 => char::from_u32(0x100 + u32::from(byte)).unwrap().to_string(),
            0xad => '\u{143}'.to_string(),
            other => char::from_u32(0x121 + u32::from(other) - 0x7f).unwrap().to_string(),
        })
        .collect();
    let mut tokens: Vec<u8> = alphabet.iter().flat_map(|token| text(token)).collect();
    tokens.extend([text("he"), text("<end>")].concat());
    let mut types = vec![1_i32; 257];
    types.push(3);
    let types: Vec<u8> = types.into_iter().flat_map(i32::to_le_bytes).collect();
    File {
        keys: vec![
            key("tokenizer.ggml.model", 8, &text("gpt2")),
            key("tokenizer.ggml.pre", 8, &text("gpt-2")),
            key("tokenizer.ggml.tokens", 9, &array(8, 258, &tokens)),
            key("tokenizer.ggml.token_type", 9, &array(5, 258, &types)),
            key("tokenizer.ggml.merges", 9, &array(8, 2, &[text("h e"), text("q x")].concat())),
            key("tokenizer.ggml.eos_token_id", 4, &257_u32.to_le_bytes()),
        ],
        ..File::default()
    }
}

#[test]
fn a_vocabulary_made_by_hand_works_and_its_faults_are_named() {
    let build = |file: &File| Tokenizer::from_gguf(&Gguf::parse(file.bytes()).unwrap());
    let tokenizer = build(&small()).unwrap();
    assert_eq!(tokenizer.encode("he<end>", true).unwrap(), [256, 257]);
    assert_eq!(tokenizer.encode("é", false).unwrap(), [0xc3, 0xa9]);
    assert_eq!(tokenizer.token_bytes(0xc3), Some(vec![0xc3]));
    assert_eq!(tokenizer.decode(&[0xc3], true), "\u{fffd}");
    assert_eq!(tokenizer.encode_prompt("he").unwrap(), [256]);
    assert_eq!(tokenizer.bos(), None);

    let with = |at: usize, replacement: Option<Vec<u8>>| {
        let mut file = small();
        match replacement {
            Some(key) => file.keys[at] = key,
            None => drop(file.keys.remove(at)),
        }
        build(&file).unwrap_err()
    };
    let cases: [(&str, ModelError); 8] = [
        ("tokenizer.ggml.model: expected the vocabulary's kind", with(0, None)),
        ("vocabulary kind `rwkv`", with(0, Some(key("tokenizer.ggml.model", 8, &text("rwkv"))))),
        (
            "pre-tokenizer `new`; this build knows",
            with(1, Some(key("tokenizer.ggml.pre", 8, &text("new")))),
        ),
        ("tokenizer.ggml.tokens", with(2, None)),
        (
            "expected an array of strings",
            with(2, Some(key("tokenizer.ggml.tokens", 9, &array(0, 1, &[1])))),
        ),
        (
            "258 elements, one per token, found 1",
            with(3, Some(key("tokenizer.ggml.token_type", 9, &array(5, 1, &[1, 0, 0, 0])))),
        ),
        ("`he` at 0", with(4, Some(key("tokenizer.ggml.merges", 9, &array(8, 1, &text("he")))))),
        (
            "expected an id below 258, found 258",
            with(5, Some(key("tokenizer.ggml.eos_token_id", 4, &258_u32.to_le_bytes()))),
        ),
    ];
    for (words, error) in cases {
        assert!(error.to_string().contains(words), "no `{words}` in `{error}`");
    }
}

#[test]
fn a_byte_that_cannot_be_spelled_is_an_error_not_a_loss() {
    let mut file = small();
    let mut tokens: Vec<u8> =
        (b'a'..=b'z').flat_map(|byte| text(&char::from(byte).to_string())).collect();
    tokens.extend(text("Ġ"));
    file.keys[2] = key("tokenizer.ggml.tokens", 9, &array(8, 27, &tokens));
    file.keys.truncate(5);
    file.keys.remove(3);
    let tokenizer = Tokenizer::from_gguf(&Gguf::parse(file.bytes()).unwrap()).unwrap();
    assert_eq!(tokenizer.encode("a b", true).unwrap(), [0, 26, 1]);
    let error = tokenizer.encode("aß", true).unwrap_err().to_string();
    assert!(error.contains("no token for byte 0xc3"), "{error}");
}
