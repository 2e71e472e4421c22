//! Hugging Face checkpoints: what is written is what was there, under GGUF's names and in the
//! quantization asked for; what is not understood is refused by name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use gristmill_kernels::{Quant, decode_row};
use gristmill_models::{
    Gguf, ModelError, Store, Tokenizer,
    checkpoint::{Checkpoint, QUANTIZATIONS, is_checkpoint},
    store::Silent,
};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

const WIDTH: usize = 256;
const HEADS: usize = 4;
const FF: usize = 512;

/// A checkpoint that is being made.
struct Made {
    folder: tempfile::TempDir,
    config: Value,
    tokenizer: Value,
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            // Exact in bfloat16, so that every element type holds the same.
            (f32::from(state as u8) - 128.0) / 64.0
        })
        .collect()
}

fn added(id: usize, content: &str, special: bool) -> Value {
    json!({
        "id": id, "content": content, "special": special, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false,
    })
}

/// Bytes as byte-level vocabularies spell them: printable ones are themselves.
fn byte_letters() -> Vec<char> {
    let mut next = 256;
    (0..=255_u8)
        .map(|byte| {
            let char = char::from(byte);
            if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
                return char;
            }
            next += 1;
            char::from_u32(next - 1).unwrap()
        })
        .collect()
}

impl Made {
    fn llama() -> Self {
        let letters = byte_letters();
        let mut vocab: Vec<String> = letters.iter().map(char::to_string).collect();
        let merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w")];
        vocab.extend(merges.map(|(a, b)| format!("{a}{b}")));
        let vocab: serde_json::Map<String, Value> =
            vocab.into_iter().enumerate().map(|(id, text)| (text, json!(id))).collect();
        let count = vocab.len();
        let tokenizer = json!({
            "version": "1.0",
            "added_tokens": [
                added(count, "<|begin|>", true),
                added(count + 1, "<|end|>", true),
                added(count + 2, "<tool>", false),
            ],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            ]},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<|begin|>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {
                    "<|begin|>": {"id": "<|begin|>", "ids": [count], "tokens": ["<|begin|>"]},
                },
            },
            "model": {
                "type": "BPE", "vocab": vocab,
                "merges": merges.map(|(a, b)| json!([a, b])),
            },
        });
        let rows = count + 8;
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": WIDTH,
            "intermediate_size": FF, "max_position_embeddings": 512, "num_attention_heads": HEADS,
            "num_hidden_layers": 1, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
            "rope_theta": 50_000.0, "tie_word_embeddings": true, "vocab_size": rows,
            "bos_token_id": count, "eos_token_id": [count + 1, count],
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 128},
        });
        let mut made = Self {
            folder: tempfile::tempdir().unwrap(),
            config,
            tokenizer,
            tensors: BTreeMap::new(),
        };
        let kv = WIDTH / 2;
        for (name, shape) in [
            ("model.embed_tokens.weight", vec![rows, WIDTH]),
            ("model.norm.weight", vec![WIDTH]),
            ("model.layers.0.input_layernorm.weight", vec![WIDTH]),
            ("model.layers.0.self_attn.q_proj.weight", vec![WIDTH, WIDTH]),
            ("model.layers.0.self_attn.k_proj.weight", vec![kv, WIDTH]),
            ("model.layers.0.self_attn.v_proj.weight", vec![kv, WIDTH]),
            ("model.layers.0.self_attn.o_proj.weight", vec![WIDTH, WIDTH]),
            ("model.layers.0.post_attention_layernorm.weight", vec![WIDTH]),
            ("model.layers.0.mlp.gate_proj.weight", vec![FF, WIDTH]),
            ("model.layers.0.mlp.up_proj.weight", vec![FF, WIDTH]),
            ("model.layers.0.mlp.down_proj.weight", vec![WIDTH, FF]),
        ] {
            made.tensor(name, &shape);
        }
        made
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) {
        let seed = name.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
        let values = numbers(shape.iter().product(), seed);
        self.tensors.insert(name.to_owned(), (shape.to_vec(), values));
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes it with this element type, in so many shards.
    fn write(&self, dtype: Dtype, shards: usize) -> &Path {
        let file = |name: &str| self.path().join(name);
        fs::write(file("config.json"), self.config.to_string()).unwrap();
        fs::write(file("tokenizer.json"), self.tokenizer.to_string()).unwrap();
        let mut map = BTreeMap::new();
        for shard in 0..shards {
            let name = match shards {
                1 => "model.safetensors".to_owned(),
                _ => format!("model-{:05}-of-{shards:05}.safetensors", shard + 1),
            };
            let own: Vec<_> = self
                .tensors
                .iter()
                .enumerate()
                .filter(|(index, _)| index % shards == shard)
                .map(|(_, (name, (shape, values)))| {
                    let bytes: Vec<u8> = match dtype {
                        Dtype::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
                        Dtype::F16 => values
                            .iter()
                            .flat_map(|x| half::f16::from_f32(*x).to_le_bytes())
                            .collect(),
                        Dtype::BF16 => values
                            .iter()
                            .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
                            .collect(),
                        _ => values.iter().map(|x| *x as u8).collect(),
                    };
                    (name, shape.clone(), bytes)
                })
                .collect();
            let views: Vec<_> = own
                .iter()
                .map(|(tensor, shape, bytes)| {
                    map.insert((*tensor).clone(), name.clone());
                    (*tensor, TensorView::new(dtype, shape.clone(), bytes).unwrap())
                })
                .collect();
            fs::write(file(&name), safetensors::serialize(views, None).unwrap()).unwrap();
        }
        if shards > 1 {
            let index = json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string();
            fs::write(file("model.safetensors.index.json"), index).unwrap();
        }
        self.path()
    }

    fn converted(&self, quantization: Option<Quant>) -> Gguf {
        convert(self.path(), quantization).unwrap()
    }
}

fn convert(folder: &Path, quantization: Option<Quant>) -> Result<Gguf, ModelError> {
    let checkpoint = Checkpoint::open(folder, "made", quantization)?;
    let mut last = 0;
    let bytes = checkpoint.write(Path::new("(memory)"), Vec::new(), |done| {
        assert!(done >= last, "progress goes forward");
        last = done;
        Ok::<(), ModelError>(())
    })?;
    assert_eq!(last, checkpoint.size());
    Gguf::parse(bytes)
}

fn decoded(gguf: &Gguf, name: &str) -> (Quant, Vec<f32>) {
    let tensor = gguf.tensor(name).unwrap_or_else(|| panic!("no {name}"));
    let quant = Quant::from_id(tensor.ggml_type).unwrap();
    let count: u64 = tensor.shape.iter().product();
    let mut values = vec![0.0; count as usize];
    decode_row(quant, gguf.tensor_bytes(name).unwrap().as_slice(), &mut values).unwrap();
    (quant, values)
}

#[test]
fn weights_arrive_under_their_names_from_every_element_type_and_any_number_of_shards() {
    for (dtype, shards, quant) in
        [(Dtype::F32, 1, Quant::F32), (Dtype::F16, 2, Quant::F16), (Dtype::BF16, 3, Quant::BF16)]
    {
        let made = Made::llama();
        assert!(is_checkpoint(made.write(dtype, shards)));
        let gguf = made.converted(None);
        assert_eq!(gguf.text("general.architecture").unwrap(), Some("llama"));
        assert_eq!(gguf.text("general.name").unwrap(), Some("made"));
        assert_eq!(gguf.u32("llama.attention.head_count_kv").unwrap(), Some(2));
        assert_eq!(gguf.u32("llama.rope.dimension_count").unwrap(), Some(64));
        assert_eq!(gguf.f32("llama.rope.freq_base").unwrap(), Some(50_000.0));
        for (theirs, ours) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"),
            ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
        ] {
            assert_eq!(decoded(&gguf, ours), (quant, made.tensors[theirs].1.clone()), "{ours}");
        }
        let norm = decoded(&gguf, "blk.0.ffn_norm.weight");
        let theirs = &made.tensors["model.layers.0.post_attention_layernorm.weight"].1;
        assert_eq!(norm, (Quant::F32, theirs.clone()));
        assert_eq!(gguf.tensor("blk.0.ffn_down.weight").unwrap().shape, [512, 256]);
    }
}

#[test]
fn query_and_key_rows_are_paired_as_the_interleaved_rotation_wants_them() {
    let made = Made::llama();
    made.write(Dtype::F32, 1);
    let (_, q) = decoded(&made.converted(None), "blk.0.attn_q.weight");
    let theirs = &made.tensors["model.layers.0.self_attn.q_proj.weight"].1;
    let row = |values: &[f32], row: usize| values[row * WIDTH..(row + 1) * WIDTH].to_vec();
    // Second head, third pair: numbers 2 and 2 + 32 of it.
    assert_eq!(row(&q, 64 + 4), row(theirs, 64 + 2));
    assert_eq!(row(&q, 64 + 5), row(theirs, 64 + 34));
    assert_eq!(row(&q, 0), row(theirs, 0));
}

#[test]
fn llama_3s_frequencies_are_stretched_where_waves_are_long() {
    let made = Made::llama();
    made.write(Dtype::F32, 1);
    let (_, factors) = decoded(&made.converted(None), "rope_freqs.weight");
    assert_eq!((factors.len(), factors[0], factors[31]), (32, 1.0, 8.0));
    assert!(factors.windows(2).all(|pair| pair[0] <= pair[1]));
}

#[test]
fn every_quantization_is_near_the_weights_and_the_embedding_keeps_six_bits() {
    let made = Made::llama();
    made.write(Dtype::BF16, 1);
    for quant in QUANTIZATIONS {
        let gguf = made.converted(Some(quant));
        let (found, values) = decoded(&gguf, "blk.0.ffn_up.weight");
        assert_eq!(found, quant);
        let theirs = &made.tensors["model.layers.0.mlp.up_proj.weight"].1;
        let error: f32 = values.iter().zip(theirs).map(|(a, b)| (a - b).powi(2)).sum();
        let power: f32 = theirs.iter().map(|x| x * x).sum();
        // Four bits on a uniform distribution: one sixteenth of the range, evenly spread.
        assert!((error / power).sqrt() < 0.09, "{quant}: {}", (error / power).sqrt());
        let (embedding, _) = decoded(&gguf, "token_embd.weight");
        let bits = quant.block_bytes() * 8 / quant.block_len();
        assert_eq!(embedding, if bits < 6 { Quant::Q6_K } else { quant });
    }
    let refused = convert(made.path(), Some(Quant::IQ2_XS)).unwrap_err().to_string();
    assert!(refused.contains("IQ2_XS") && refused.contains("Q4_K"), "{refused}");
}

#[test]
fn the_vocabulary_makes_the_same_tokens_as_hugging_faces_own() {
    let made = Made::llama();
    made.write(Dtype::F32, 1);
    let gguf = made.converted(None);
    assert_eq!(gguf.text("tokenizer.ggml.pre").unwrap(), Some("smollm"));
    assert_eq!(gguf.flag("tokenizer.ggml.add_bos_token").unwrap(), Some(true));
    let ours = Tokenizer::from_gguf(&gguf).unwrap();
    let theirs = tokenizers::Tokenizer::from_file(made.path().join("tokenizer.json")).unwrap();
    for text in ["hello world", "  hello\n\n 123 wörld 你好 <tool>hell", "<|begin|>hello<|end|>"]
    {
        let wanted = theirs.encode(text, false).unwrap().get_ids().to_vec();
        assert_eq!(ours.encode(text, true).unwrap(), wanted, "{text:?}");
    }
    assert_eq!(ours.bos(), Some(261));
    assert_eq!(ours.eos(), Some(262));
}

/// Spoils a sound checkpoint.
type Spoil = fn(&mut Made);

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let rows: &[(&str, Spoil)] = &[
        ("architecture MambaForCausalLM", |m| {
            m.config["architectures"] = json!(["MambaForCausalLM"]);
        }),
        ("architectures", |m| m.config["architectures"] = json!(null)),
        ("hidden_act \"relu2\"", |m| m.config["hidden_act"] = json!("relu2")),
        ("num_hidden_layers", |m| m.config["num_hidden_layers"] = json!(-1)),
        ("rope scaling spiral", |m| m.config["rope_scaling"] = json!({"type": "spiral"})),
        ("sliding_window", |m| m.config["sliding_window"] = json!(4096)),
        ("factor, a positive number", |m| m.config["rope_scaling"]["factor"] = json!(0)),
        ("tensor model.layers.0.mlp.gate.weight", |m| {
            m.tensor("model.layers.0.mlp.gate.weight", &[4, WIDTH]);
        }),
        ("an embedding of", |m| m.config["vocab_size"] = json!(999)),
        ("embedding's rows", |m| {
            m.tokenizer["added_tokens"][0]["id"] = json!(100_000);
        }),
        ("rows in 4 heads", |m| {
            m.tensor("model.layers.0.self_attn.q_proj.weight", &[WIDTH - 4, WIDTH]);
        }),
        ("tensor model.norm.weight, row 0: expected finite numbers, found NaN", |m| {
            m.tensors.get_mut("model.norm.weight").unwrap().1[3] = f32::NAN;
        }),
        ("found inf", |m| {
            m.tensors.get_mut("model.embed_tokens.weight").unwrap().1[700] = f32::INFINITY;
        }),
        ("a SentencePiece vocabulary", |m| {
            m.tokenizer["model"]["byte_fallback"] = json!(true);
        }),
        ("a Unigram vocabulary", |m| m.tokenizer["model"]["type"] = json!("Unigram")),
        ("it cuts like none that is known", |m| {
            m.tokenizer["pre_tokenizer"] = json!({"type": "Whitespace"});
        }),
        ("pairs of tokens", |m| m.tokenizer["model"]["merges"] = json!([["a", "b", "c"]])),
    ];
    for (word, spoil) in rows {
        let mut made = Made::llama();
        spoil(&mut made);
        made.write(Dtype::F32, 1);
        let refused = convert(made.path(), None).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(word), "no {word:?} in {refused}");
    }
    let made = Made::llama();
    made.write(Dtype::U8, 1);
    let refused = convert(made.path(), None).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("is U8; F32, F16 and BF16 are read"), "{refused}");
}

#[test]
fn an_index_that_says_other_than_the_shards_is_refused() {
    let spoilt = |change: fn(&mut Value), word: &str| {
        let made = Made::llama();
        made.write(Dtype::F32, 2);
        let path = made.path().join("model.safetensors.index.json");
        let mut index: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut index["weight_map"]);
        fs::write(&path, index.to_string()).unwrap();
        let refused = convert(made.path(), None).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(word), "no {word:?} in {refused}");
    };
    spoilt(|map| map["model.norm.weight"] = json!("../../etc/passwd"), "a file beside the index");
    spoilt(|map| map["more.weight"] = json!("model-00001-of-00002.safetensors"), "more.weight");
    spoilt(
        |map| {
            map.as_object_mut().unwrap().remove("model.norm.weight");
        },
        "model.norm.weight",
    );
    spoilt(|map| *map = json!([]), "a weight_map");
}

#[test]
fn a_damaged_file_is_refused_whatever_byte_of_its_header_is_wrong() {
    let mut made = Made::llama();
    made.tensors.retain(|name, _| name == "model.norm.weight");
    made.write(Dtype::F32, 1);
    let path = made.path().join("model.safetensors");
    let sound = fs::read(&path).unwrap();
    let header = sound.len() - WIDTH * 4;
    for at in 0..header {
        for bit in 0..8 {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, bytes).unwrap();
            // No embedding: even what still reads well ends in a refusal, never in a panic.
            assert!(convert(made.path(), None).is_err());
        }
    }
    for length in [0, 7, 8, header, sound.len() - 1] {
        fs::write(&path, &sound[..length]).unwrap();
        assert!(convert(made.path(), None).is_err(), "{length} bytes");
    }
}

#[test]
fn the_store_takes_a_folder_and_names_what_it_made() {
    let made = Made::llama();
    let folder = made.write(Dtype::BF16, 2);
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let source = |path: &Path| format!("file:{}", path.display());
    let before = tree(folder);
    let model =
        store.import_as(&source(folder), Some("tiny"), Some(Quant::Q8_0), &mut Silent).unwrap();
    assert_eq!(
        (model.facts.architecture.as_str(), model.facts.quantization.as_str()),
        ("llama", "Q8_0")
    );
    assert_eq!(tree(folder), before, "the source is only read");
    let path = model.paths.first().unwrap();
    assert_eq!(decoded(&Gguf::open(path).unwrap(), "blk.0.attn_v.weight").0, Quant::Q8_0);

    // A GGUF file stays as it is, and a folder that is no checkpoint is none.
    let refused = store.import_as(&source(path), Some("x"), Some(Quant::Q4_0), &mut Silent);
    assert!(refused.unwrap_err().to_string().contains("stays as it is"));
    let refused = store.import(&source(root.path()), Some("x"), &mut Silent).unwrap_err();
    assert!(refused.to_string().contains("config.json and model.safetensors"), "{refused}");
    assert_eq!(store.list().unwrap().len(), 1);
}

fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}
