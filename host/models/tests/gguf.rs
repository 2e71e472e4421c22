//! What a sound model file says, and what is said of an unsound one: a row per fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{fs, path::Path};

use common::{File, array, key, tensor, text};
use gristmill_core::{Code, Error, program::Value};
use gristmill_models::{Gguf, ModelError};

#[test]
fn a_sound_file_says_what_was_written() {
    for version in [2, 3] {
        let gguf = Gguf::parse(File { version, ..File::sound() }.bytes()).unwrap();
        assert_eq!(gguf.version(), version);
        assert_eq!(gguf.u32("llama.block_count").unwrap(), Some(2));
        assert_eq!(gguf.f32("llama.eps").unwrap(), Some(1e-5));
        assert_eq!(gguf.flag("flag").unwrap(), Some(true));
        assert_eq!(gguf.text("general.architecture").unwrap(), Some("llama"));
        assert_eq!(gguf.text("general.name").unwrap(), None);
        let words: Vec<&str> = gguf.array("words").unwrap().unwrap().texts().collect();
        assert_eq!(words, ["x", "yz"]);
        let numbers: Vec<i64> = gguf.array("numbers").unwrap().unwrap().ints().collect();
        assert_eq!(numbers, [1, -2, 3]);

        assert_eq!(gguf.tensors().len(), 2);
        let a = gguf.tensor("a").unwrap();
        assert_eq!((a.shape.as_slice(), a.ggml_type, a.element.name), (&[4, 2][..], 0, "F32"));
        assert_eq!(gguf.tensor_bytes("a").unwrap().as_slice(), (0..32).collect::<Vec<u8>>());
        assert_eq!(gguf.tensor_bytes("b").unwrap().as_slice(), (32..50).collect::<Vec<u8>>());
        assert!(gguf.tensor("c").is_none() && gguf.tensor_bytes("c").is_none());

        let metadata = gguf.metadata();
        assert_eq!(metadata.architecture, "llama");
        assert_eq!(metadata.get("numbers"), Some(&Value::Ints(vec![1, -2, 3])));
        assert_eq!(metadata.get("words"), Some(&Value::Texts(vec!["x".into(), "yz".into()])));
        assert_eq!(metadata.tensor("b").unwrap().element, "Q4_0");
    }
}

#[test]
fn every_type_of_value_is_read() {
    let values: [(u32, Vec<u8>, Value); 12] = [
        (0, vec![200], Value::Int(200)),
        (1, vec![0xff], Value::Int(-1)),
        (2, 65_535_u16.to_le_bytes().to_vec(), Value::Int(65_535)),
        (3, (-2_i16).to_le_bytes().to_vec(), Value::Int(-2)),
        (4, u32::MAX.to_le_bytes().to_vec(), Value::Int(i64::from(u32::MAX))),
        (5, i32::MIN.to_le_bytes().to_vec(), Value::Int(i64::from(i32::MIN))),
        (6, 0.5_f32.to_le_bytes().to_vec(), Value::Float(0.5)),
        (7, vec![0], Value::Flag(false)),
        (8, text("ü"), Value::Text("ü".to_owned())),
        (10, 7_u64.to_le_bytes().to_vec(), Value::Int(7)),
        (11, i64::MIN.to_le_bytes().to_vec(), Value::Int(i64::MIN)),
        (12, 0.25_f64.to_le_bytes().to_vec(), Value::Float(0.25)),
    ];
    for (kind, bytes, expected) in values {
        let gguf = Gguf::parse(File::sound().with_key(key("k", kind, &bytes)).bytes()).unwrap();
        assert_eq!(gguf.metadata().get("k"), Some(&expected), "{kind}");
    }
    let long = array(4, 4097, &[0; 4 * 4097]);
    let nested = array(9, 1, &array(0, 2, &[1, 2]));
    let file = File::sound().with_key(key("long", 9, &long)).with_key(key("nested", 9, &nested));
    let gguf = Gguf::parse(file.bytes()).unwrap();
    assert_eq!(gguf.metadata().get("long"), Some(&Value::Long(4097)));
    assert_eq!(gguf.metadata().get("nested"), Some(&Value::Long(1)));
    assert_eq!(gguf.array("long").unwrap().unwrap().ints().count(), 4097);
}

/// A character that goes from one text into the next is in neither, whether the length between them
/// could be a part of it (169 and 128 could) or not.
#[test]
fn texts_of_an_array_are_each_utf8() {
    let raw = |bytes: &[u8]| [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
    let texts = |texts: &[&[u8]]| {
        let all: Vec<u8> = texts.iter().flat_map(|text| raw(text)).collect();
        let file = File::sound().with_key(key("k", 9, &array(8, texts.len() as u64, &all)));
        Gguf::parse(file.bytes())
    };
    for length in [1, 127, 128, 169, 300, 65_536] {
        let rest = vec![b'x'; length - 1];
        let begins = [&[0xa9][..], &rest].concat();
        let error = texts(&[b"ok", &[0xc3], &begins]).unwrap_err().to_string();
        assert!(error.contains("k[1]") && error.contains("UTF-8"), "{length}: {error}");
        let ends = [&rest[..], &[0xc3]].concat();
        let error = texts(&[&ends, b"\xa9"]).unwrap_err().to_string();
        assert!(error.contains("k[0]") && error.contains("UTF-8"), "{length}: {error}");

        let sound = ["é".repeat(length), String::new(), "▁of".to_owned()];
        let gguf = texts(&sound.each_ref().map(|text| text.as_bytes())).unwrap();
        assert!(gguf.array("k").unwrap().unwrap().texts().eq(sound), "{length}");
    }
}

#[test]
fn a_key_of_another_type_is_an_error_that_says_so() {
    let gguf = Gguf::parse(File::sound().bytes()).unwrap();
    let error = gguf.u32("general.architecture").unwrap_err();
    assert_eq!(
        error.to_string(),
        "(memory): general.architecture: expected an integer from 0 to 2^32-1, found a string"
    );
    let error = Error::from(error);
    assert_eq!(error.code, Code::InvalidRequest);
    assert_eq!(error.detail("field"), Some("general.architecture"));
    assert!(gguf.text("words").unwrap_err().to_string().contains("an array of 2 string"));
}

#[test]
fn optional_keys_are_optional() {
    let sound = File::sound();
    for missing in 0..sound.keys.len() {
        let mut file = sound.clone();
        file.keys.remove(missing);
        Gguf::parse(file.bytes()).unwrap();
    }
    let bare = Gguf::parse(File::default().bytes()).unwrap();
    assert_eq!((bare.tensors().len(), bare.keys().count()), (0, 0));
}

#[test]
fn the_alignment_of_the_file_holds() {
    let mut file = File { alignment: 64, ..File::sound() };
    file = file.with_key(key("general.alignment", 4, &64_u32.to_le_bytes()));
    file.tensors[1] = tensor("b", &[32, 1], 2, 64);
    file.data = (0..82).collect();
    let gguf = Gguf::parse(file.bytes()).unwrap();
    assert_eq!(gguf.tensor_bytes("b").unwrap().as_slice(), (64..82).collect::<Vec<u8>>());
}

/// A fault: its name, the file, and words of the message.
type Fault = (&'static str, Vec<u8>, &'static [&'static str]);

#[allow(clippy::too_many_lines, reason = "a table")]
fn faults() -> Vec<Fault> {
    let sound = File::sound;
    let keyed = |bytes: Vec<u8>| sound().with_key(bytes).bytes();
    let tensored = |bytes: Vec<u8>| {
        let mut file = sound();
        file.tensors[1] = bytes;
        file.bytes()
    };
    let huge = u64::MAX.to_le_bytes();
    let mut bad_key = 4_u64.to_le_bytes().to_vec();
    bad_key.extend([b'a', 0xff, b'b', b'c']);
    bad_key.extend(4_u32.to_le_bytes());
    bad_key.extend(1_u32.to_le_bytes());
    let mut bad_text = 2_u64.to_le_bytes().to_vec();
    bad_text.extend([0xc3, 0x28]);
    let mut bad_name = tensor("bb", &[32, 1], 2, 32);
    bad_name[9] = 0xfe;
    let deep = (0..6).fold(array(0, 1, &[1]), |inner, _| array(9, 1, &inner));
    vec![
        (
            "bad magic",
            File { magic: *b"GGUX", ..sound() }.bytes(),
            &["this is not GGUF", "47 47 55 58"],
        ),
        ("magic of big endian", File { magic: *b"FUGG", ..sound() }.bytes(), &["big endian"]),
        (
            "version of big endian",
            File { version: 3_u32.swap_bytes(), ..sound() }.bytes(),
            &["byte order", "big endian"],
        ),
        ("version 0", File { version: 0, ..sound() }.bytes(), &["version", "2 or 3", "found 0"]),
        ("version 1", File { version: 1, ..sound() }.bytes(), &["version", "obsolete"]),
        ("version of the future", File { version: 4, ..sound() }.bytes(), &["version", "found 4"]),
        ("empty", Vec::new(), &["empty"]),
        ("only magic", b"GGUF".to_vec(), &["version", "4 bytes", "0 bytes until the end"]),
        ("header cut", sound().bytes()[..20].to_vec(), &["key count"]),
        (
            "too many tensors",
            File { tensor_count: Some(u64::MAX), ..sound() }.bytes(),
            &["tensor count", "at most"],
        ),
        ("one tensor too many", File { tensor_count: Some(3), ..sound() }.bytes(), &["tensor 2"]),
        (
            "too many keys",
            File { key_count: Some(u64::MAX / 2), ..sound() }.bytes(),
            &["key count", "at most"],
        ),
        ("one key too many", File { key_count: Some(7), ..sound() }.bytes(), &["tensor"]),
        (
            "key longer than the file",
            keyed([&(1_u64 << 63).to_le_bytes()[..], b"k"].concat()),
            &["length of key 6", "65535"],
        ),
        ("empty key", keyed(key("", 4, &[0; 4])), &["length of key 6", "found 0"]),
        ("key that is not UTF-8", keyed(bad_key), &["key 6", "UTF-8"]),
        (
            "unknown type of value",
            keyed(key("k", 13, &[0; 8])),
            &["type of k", "0 to 12", "found 13"],
        ),
        ("duplicate key", keyed(key("flag", 7, &[1])), &["key flag", "twice"]),
        ("bool of 2", keyed(key("k", 7, &[2])), &["k", "0 or 1"]),
        ("bool of 3 in an array", keyed(key("k", 9, &array(7, 2, &[1, 3]))), &["k", "0 or 1"]),
        (
            "text longer than the file",
            keyed(key("k", 8, &(1_u64 << 30).to_le_bytes())),
            &["k", "1073741824 bytes"],
        ),
        ("text that is not UTF-8", keyed(key("k", 8, &bad_text)), &["k", "UTF-8"]),
        (
            "array longer than the file",
            keyed(key("k", 9, &[&4_u32.to_le_bytes()[..], &huge].concat())),
            &["length of k", "at most"],
        ),
        (
            "array of texts longer than the file",
            keyed(key("k", 9, &[&8_u32.to_le_bytes()[..], &huge].concat())),
            &["length of k", "string"],
        ),
        (
            "array of an unknown type",
            keyed(key("k", 9, &array(77, 1, &[0; 8]))),
            &["element type of k", "found 77"],
        ),
        ("arrays nested too deep", keyed(key("k", 9, &deep)), &["nested at most 4"]),
        (
            "alignment 0",
            keyed(key("general.alignment", 4, &[0; 4])),
            &["general.alignment", "power of two", "found 0"],
        ),
        (
            "alignment 13",
            keyed(key("general.alignment", 4, &13_u32.to_le_bytes())),
            &["general.alignment", "found 13"],
        ),
        (
            "alignment of a wrong type",
            keyed(key("general.alignment", 8, &text("32"))),
            &["general.alignment", "a string"],
        ),
        (
            "name of a tensor too long",
            tensored(tensor(&"n".repeat(65), &[32], 2, 32)),
            &["name of tensor 1", "1 to 64", "found 65"],
        ),
        (
            "empty name of a tensor",
            tensored(tensor("", &[32], 2, 32)),
            &["name of tensor 1", "found 0"],
        ),
        ("name of a tensor that is not UTF-8", tensored(bad_name), &["name of tensor 1", "UTF-8"]),
        ("no dimensions", tensored(tensor("b", &[], 2, 32)), &["dimensions of tensor b", "1 to 4"]),
        (
            "five dimensions",
            tensored(tensor("b", &[32, 1, 1, 1, 1], 2, 32)),
            &["dimensions of tensor b", "found 5"],
        ),
        (
            "row that is not whole blocks",
            tensored(tensor("b", &[33, 1], 2, 32)),
            &["shape of tensor b", "blocks of 32", "rows of 33"],
        ),
        (
            "dimension of 0",
            tensored(tensor("b", &[32, 0], 2, 32)),
            &["shape of tensor b", "above 0"],
        ),
        (
            "dimension below 0",
            tensored(tensor("b", &[32, u64::MAX], 2, 32)),
            &["shape of tensor b"],
        ),
        (
            "product that overflows",
            tensored(tensor("b", &[1 << 40, 1 << 40], 0, 32)),
            &["shape of tensor b", "63 bits"],
        ),
        ("bytes that overflow", tensored(tensor("b", &[1 << 62], 0, 32)), &["tensor b"]),
        (
            "bytes that wrap when padded",
            tensored(tensor("b", &[(u64::MAX >> 3) & !31], 0, 32)),
            &["tensor b"],
        ),
        (
            "type that was removed",
            tensored(tensor("b", &[32, 1], 31, 32)),
            &["type of tensor b", "Q4_0_4_4", "removed"],
        ),
        (
            "type that was removed early",
            tensored(tensor("b", &[32, 1], 4, 32)),
            &["type of tensor b", "Q4_2", "removed"],
        ),
        (
            "unknown type",
            tensored(tensor("b", &[32, 1], 43, 32)),
            &["type of tensor b", "43, which is unknown"],
        ),
        (
            "offset that is not aligned",
            tensored(tensor("b", &[32, 1], 2, 33)),
            &["offset of tensor b", "a multiple of 32", "found 33"],
        ),
        ("offset past the end", tensored(tensor("b", &[32, 1], 2, 1 << 40)), &["data of tensor b"]),
        (
            "offset that wraps",
            tensored(tensor("b", &[32, 1], 2, u64::MAX - 31)),
            &["data of tensor b"],
        ),
        ("duplicate tensor", tensored(tensor("a", &[32, 1], 2, 32)), &["tensor a", "twice"]),
        (
            "tensors over each other",
            tensored(tensor("b", &[32, 1], 2, 0)),
            &["bytes that belong to"],
        ),
        (
            "data cut by one byte",
            {
                let mut bytes = sound().bytes();
                bytes.pop();
                bytes
            },
            &["data of tensor b", "18 bytes", "cut short"],
        ),
        (
            "no data",
            {
                let mut file = sound();
                file.data.clear();
                file.bytes()
            },
            &["data of tensor"],
        ),
        (
            "alignment other than the table's",
            {
                let mut file = sound().with_key(key("general.alignment", 4, &64_u32.to_le_bytes()));
                file.data.resize(200, 0);
                file.bytes()
            },
            &["offset of tensor b", "a multiple of 64"],
        ),
        (
            "part of a split file",
            keyed(key("split.count", 2, &2_u16.to_le_bytes())),
            &["file name", "-00001-of-00002.gguf"],
        ),
        (
            "git lfs pointer",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".to_vec(),
            &["this is a Git LFS pointer"],
        ),
        ("web page", b"<!DOCTYPE html><html>".to_vec(), &["web page"]),
        ("old format", b"tjgg\0\0\0\0".to_vec(), &["old GGML"]),
    ]
}

#[test]
fn every_fault_is_named() {
    let faults = faults();
    for (name, bytes, words) in &faults {
        let message = match Gguf::parse(bytes.clone()) {
            Ok(_) => panic!("{name}: was accepted"),
            Err(error) => error.to_string(),
        };
        for word in *words {
            assert!(message.contains(word), "{name}: no `{word}` in `{message}`");
        }
    }
    println!("{} faults", faults.len());
}

#[test]
fn every_byte_at_which_a_file_can_be_cut_is_an_error() {
    let bytes = File::sound().bytes();
    for length in 0..bytes.len() {
        assert!(Gguf::parse(bytes[..length].to_vec()).is_err(), "{length}");
    }
}

#[test]
fn what_is_not_a_file_is_said_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let missing = Gguf::open(&path).unwrap_err();
    assert!(missing.to_string().contains("m.gguf"), "{missing}");
    assert_eq!(Error::from(missing).code, Code::NotFound);
    let directory = Gguf::open(folder.path()).unwrap_err().to_string();
    assert!(directory.contains("this is a directory"), "{directory}");
    fs::write(&path, b"").unwrap();
    let empty = Gguf::open(&path).unwrap_err().to_string();
    assert!(empty.contains("m.gguf") && empty.contains("empty"), "{empty}");
    fs::write(&path, b"version https://git-lfs.github.com/spec/v1\n").unwrap();
    assert!(matches!(Gguf::open(&path), Err(ModelError::NotAModel { .. })));
}

/// Writes a file in two parts and opens one.
fn split(folder: &Path, change: impl Fn(usize, &mut File)) -> Result<Gguf, ModelError> {
    for part in 0..2 {
        let mut file = File {
            keys: if part == 0 { File::sound().keys } else { Vec::new() },
            tensors: vec![match part {
                0 => tensor("a", &[4, 2], 0, 0),
                _ => tensor("b", &[32, 1], 2, 0),
            }],
            data: if part == 0 { (0..32).collect() } else { (32..50).collect() },
            ..File::default()
        };
        file.keys.push(key("split.no", 2, &(part as u16).to_le_bytes()));
        file.keys.push(key("split.count", 2, &2_u16.to_le_bytes()));
        file.keys.push(key("split.tensors.count", 5, &2_i32.to_le_bytes()));
        change(part, &mut file);
        fs::write(folder.join(format!("m-0000{}-of-00002.gguf", part + 1)), file.bytes()).unwrap();
    }
    Gguf::open(folder.join("m-00001-of-00002.gguf"))
}

#[test]
fn parts_of_a_split_file_are_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = split(folder.path(), |_, _| {}).unwrap();
    assert_eq!(gguf.tensors().len(), 2);
    assert_eq!(gguf.text("general.architecture").unwrap(), Some("llama"));
    assert_eq!(gguf.tensor("b").unwrap().part, 1);
    for (name, bytes) in [("a", 0..32_u8), ("b", 32..50)] {
        let found = gguf.tensor_bytes(name).unwrap();
        assert_eq!(found.as_slice(), bytes.collect::<Vec<u8>>());
        // Advice changes nothing.
        let tensor = gguf.tensor(name).unwrap();
        gguf.will_need(tensor);
        gguf.release(tensor);
        assert_eq!(gguf.tensor_bytes(name).unwrap().as_slice(), found.as_slice());
    }

    let second = Gguf::open(folder.path().join("m-00002-of-00002.gguf")).unwrap_err().to_string();
    assert!(second.contains("open m-00001-of-00002.gguf"), "{second}");
    fs::rename(folder.path().join("m-00001-of-00002.gguf"), folder.path().join("x.gguf")).unwrap();
    let renamed = Gguf::open(folder.path().join("x.gguf")).unwrap_err().to_string();
    assert!(renamed.contains("-00001-of-00002.gguf") && renamed.contains("x.gguf"), "{renamed}");
}

/// Gives a key another value.
fn replace(file: &mut File, name: &str, kind: u32, value: &[u8]) {
    let prefix = text(name);
    file.keys.retain(|key| !key.starts_with(&prefix));
    file.keys.push(key(name, kind, value));
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    type Change = dyn Fn(usize, &mut File);
    let cases: [(&str, &Change); 4] = [
        ("split.no", &|part, file| {
            if part == 1 {
                replace(file, "split.no", 2, &0_u16.to_le_bytes());
            }
        }),
        ("split.count", &|part, file| {
            if part == 1 {
                replace(file, "split.count", 2, &3_u16.to_le_bytes());
            }
        }),
        ("split.tensors.count", &|_, file| {
            replace(file, "split.tensors.count", 5, &7_i32.to_le_bytes());
        }),
        ("tensor a", &|part, file| {
            if part == 1 {
                file.tensors = vec![tensor("a", &[32, 1], 2, 0)];
            }
        }),
    ];
    for (word, change) in cases {
        let folder = tempfile::tempdir().unwrap();
        let message = split(folder.path(), change).unwrap_err().to_string();
        assert!(message.contains(word), "{word}: {message}");
    }
    let folder = tempfile::tempdir().unwrap();
    split(folder.path(), |_, _| {}).unwrap();
    fs::remove_file(folder.path().join("m-00002-of-00002.gguf")).unwrap();
    let missing = Gguf::open(folder.path().join("m-00001-of-00002.gguf")).unwrap_err().to_string();
    assert!(missing.contains("m-00002-of-00002.gguf"), "{missing}");
}

#[test]
fn real_files_are_read() {
    let smollm2 = Gguf::open(gristmill_testing::fetch::smollm2().unwrap()).unwrap();
    assert_eq!(smollm2.metadata().architecture, "llama");
    assert_eq!(smollm2.tensors().len(), 272);
    assert_eq!(smollm2.tensor("token_embd.weight").unwrap().shape, [576, 49152]);
    let gemma3 = Gguf::open(gristmill_testing::fetch::gemma3().unwrap()).unwrap();
    assert_eq!(gemma3.metadata().architecture, "gemma3");
    assert_eq!(gemma3.array("tokenizer.ggml.tokens").unwrap().unwrap().len(), 262_144);
}
