//! The element types a GGUF tensor can have: id, name, values per block, bytes per block (layout
//! facts from ggml, MIT). Ids that the format once had and gave up are refused by name.

/// An element type of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// The format's id.
    pub id: u32,
    /// The format's name, for instance `Q4_K`.
    pub name: &'static str,
    /// Values in a block; a row's length divides by it.
    pub block: u64,
    /// Bytes of a block.
    pub bytes: u64,
}

const fn element(id: u32, name: &'static str, block: u64, bytes: u64) -> Element {
    Element { id, name, block, bytes }
}

const ELEMENTS: [Element; 35] = [
    element(0, "F32", 1, 4),
    element(1, "F16", 1, 2),
    element(2, "Q4_0", 32, 18),
    element(3, "Q4_1", 32, 20),
    element(6, "Q5_0", 32, 22),
    element(7, "Q5_1", 32, 24),
    element(8, "Q8_0", 32, 34),
    element(9, "Q8_1", 32, 36),
    element(10, "Q2_K", 256, 84),
    element(11, "Q3_K", 256, 110),
    element(12, "Q4_K", 256, 144),
    element(13, "Q5_K", 256, 176),
    element(14, "Q6_K", 256, 210),
    element(15, "Q8_K", 256, 292),
    element(16, "IQ2_XXS", 256, 66),
    element(17, "IQ2_XS", 256, 74),
    element(18, "IQ3_XXS", 256, 98),
    element(19, "IQ1_S", 256, 50),
    element(20, "IQ4_NL", 32, 18),
    element(21, "IQ3_S", 256, 110),
    element(22, "IQ2_S", 256, 82),
    element(23, "IQ4_XS", 256, 136),
    element(24, "I8", 1, 1),
    element(25, "I16", 1, 2),
    element(26, "I32", 1, 4),
    element(27, "I64", 1, 8),
    element(28, "F64", 1, 8),
    element(29, "IQ1_M", 256, 56),
    element(30, "BF16", 1, 2),
    element(34, "TQ1_0", 256, 54),
    element(35, "TQ2_0", 256, 66),
    element(39, "MXFP4", 32, 17),
    element(40, "NVFP4", 64, 36),
    element(41, "Q1_0", 128, 18),
    element(42, "Q2_0", 64, 18),
];

const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl Element {
    /// The type with this id; otherwise why there is none.
    pub(crate) fn from_id(id: u32) -> Result<Self, String> {
        if let Some(element) = ELEMENTS.iter().find(|element| element.id == id) {
            return Ok(*element);
        }
        match REMOVED.iter().find(|(removed, _)| *removed == id) {
            Some((_, name)) => Err(format!("{id} ({name}), which the format has removed")),
            None => Err(format!("{id}, which is unknown")),
        }
    }
}
