//! Makes small GGUF files by hand, so that each field can be wrong on its own.

#![allow(dead_code, reason = "each test file uses its part")]

/// A file under construction; every field is written as given, right or wrong.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
    pub(crate) tensor_count: Option<u64>,
    pub(crate) key_count: Option<u64>,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) alignment: usize,
    pub(crate) data: Vec<u8>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            key_count: None,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            data: Vec::new(),
        }
    }
}

impl File {
    /// A sound file: a few keys, and tensors `a` (F32, 4 × 2) and `b` (Q4_0, 32 × 1).
    pub(crate) fn sound() -> Self {
        Self {
            keys: vec![
                key("general.architecture", 8, &text("llama")),
                key("llama.block_count", 4, &2_u32.to_le_bytes()),
                key("llama.eps", 6, &1e-5_f32.to_le_bytes()),
                key("flag", 7, &[1]),
                key("words", 9, &array(8, 2, &[text("x"), text("yz")].concat())),
                key("numbers", 9, &array(5, 3, &[1_i32, -2, 3].map(i32::to_le_bytes).concat())),
            ],
            tensors: vec![tensor("a", &[4, 2], 0, 0), tensor("b", &[32, 1], 2, 32)],
            data: (0..50).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn with_key(mut self, key: Vec<u8>) -> Self {
        self.keys.push(key);
        self
    }

    pub(crate) fn with_tensor(mut self, tensor: Vec<u8>) -> Self {
        self.tensors.push(tensor);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        out.extend(self.keys.concat());
        out.extend(self.tensors.concat());
        if !self.tensors.is_empty() {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&self.data);
        }
        out
    }
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

pub(crate) fn key(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(name), &kind.to_le_bytes()[..], value].concat()
}

pub(crate) fn array(kind: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), elements].concat()
}

pub(crate) fn tensor(name: &str, shape: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut out = text(name);
    out.extend((shape.len() as u32).to_le_bytes());
    for length in shape {
        out.extend(length.to_le_bytes());
    }
    out.extend(kind.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out
}
