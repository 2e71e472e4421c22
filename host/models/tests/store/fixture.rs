//! Small model files, made on the spot.

/// A GGUF file with these keys and one F32 tensor; `salt` makes files differ.
pub(crate) struct Model {
    keys: Vec<(String, Vec<u8>)>,
    pub(crate) salt: u32,
    pub(crate) elements: u32,
}

impl Model {
    pub(crate) fn new(salt: u32) -> Self {
        Self { keys: Vec::new(), salt, elements: 64 }
            .text("general.architecture", "llama")
            .u32("general.file_type", 0)
            .u32("llama.context_length", 128)
            .u32("llama.embedding_length", 64)
    }

    pub(crate) fn text(mut self, key: &str, value: &str) -> Self {
        self.keys.push((key.to_owned(), [&8_u32.to_le_bytes()[..], &string(value)].concat()));
        self
    }

    pub(crate) fn u32(mut self, key: &str, value: u32) -> Self {
        let bytes = [4_u32.to_le_bytes(), value.to_le_bytes()].concat();
        self.keys.push((key.to_owned(), bytes));
        self
    }

    fn u16(mut self, key: &str, value: u16) -> Self {
        let bytes = [&2_u32.to_le_bytes()[..], &value.to_le_bytes()].concat();
        self.keys.push((key.to_owned(), bytes));
        self
    }

    fn i32(mut self, key: &str, value: i32) -> Self {
        let bytes = [5_u32.to_le_bytes(), value.to_le_bytes()].concat();
        self.keys.push((key.to_owned(), bytes));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.named("weights")
    }

    fn named(&self, tensor: &str) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend(1_u64.to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            out.extend(string(key));
            out.extend(value);
        }
        out.extend(string(tensor));
        out.extend(1_u32.to_le_bytes());
        out.extend(u64::from(self.elements).to_le_bytes());
        out.extend(0_u32.to_le_bytes());
        out.extend(0_u64.to_le_bytes());
        out.resize(out.len().next_multiple_of(32), 0);
        for index in 0..self.elements {
            out.extend((index.wrapping_mul(2_654_435_761) ^ self.salt).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out
    }
}

/// The files of a model in `count` parts.
pub(crate) fn split(count: u16, salt: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|part| {
            Model::new(salt + u32::from(part))
                .u16("split.no", part)
                .u16("split.count", count)
                .i32("split.tensors.count", i32::from(count))
                .named(&format!("weights.{part}"))
        })
        .collect()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}
