//! The registry of tensor types: id, name, block length and block bytes of every ggml type.
//!
//! Ids, names and block sizes are ggml's (MIT). What a type's bytes mean is in [`crate::codec`].

use crate::error::KernelError;

macro_rules! registry {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $block:literal, $bytes:literal;)*) => {
        /// A tensor type, by its ggml id.
        #[allow(non_camel_case_types, reason = "the types' own names, as files and tools spell them")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Quant {
            $($(#[$doc])* $variant = $id,)*
        }

        impl Quant {
            /// Every type, in order of id.
            pub const ALL: &'static [Quant] = &[$(Quant::$variant,)*];

            /// The type with this ggml id.
            ///
            /// # Errors
            /// The id is not known, or it was removed from the format (then the error names it).
            pub fn from_id(id: u32) -> Result<Quant, KernelError> {
                match id {
                    $($id => Ok(Quant::$variant),)*
                    _ => Err(match removed(id) {
                        Some(name) => KernelError::RemovedType { id, name },
                        None => KernelError::UnknownType(id),
                    }),
                }
            }

            /// The type's name as ggml spells it.
            pub const fn name(self) -> &'static str {
                match self { $(Quant::$variant => $name,)* }
            }

            /// Values per block.
            pub const fn block_len(self) -> usize {
                match self { $(Quant::$variant => $block,)* }
            }

            /// Bytes per block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Quant::$variant => $bytes,)* }
            }
        }
    };
}

registry! {
    /// 32-bit float.
    F32 = 0, "F32", 1, 4;
    /// 16-bit IEEE float.
    F16 = 1, "F16", 1, 2;
    /// 4 bits, one scale per 32.
    Q4_0 = 2, "Q4_0", 32, 18;
    /// 4 bits, scale and minimum per 32.
    Q4_1 = 3, "Q4_1", 32, 20;
    /// 5 bits, one scale per 32.
    Q5_0 = 6, "Q5_0", 32, 22;
    /// 5 bits, scale and minimum per 32.
    Q5_1 = 7, "Q5_1", 32, 24;
    /// 8 bits, one scale per 32.
    Q8_0 = 8, "Q8_0", 32, 34;
    /// 8 bits with the block's sum; an activation format.
    Q8_1 = 9, "Q8_1", 32, 36;
    /// 2 bits, 16 sub-blocks.
    Q2_K = 10, "Q2_K", 256, 84;
    /// 3 bits, 16 sub-blocks.
    Q3_K = 11, "Q3_K", 256, 110;
    /// 4 bits, 8 sub-blocks with 6-bit scale and minimum.
    Q4_K = 12, "Q4_K", 256, 144;
    /// 5 bits, 8 sub-blocks with 6-bit scale and minimum.
    Q5_K = 13, "Q5_K", 256, 176;
    /// 6 bits, 16 sub-blocks with 8-bit scale.
    Q6_K = 14, "Q6_K", 256, 210;
    /// 8 bits with sums of 16; an activation format.
    Q8_K = 15, "Q8_K", 256, 292;
    /// 2.06 bits on a grid of 256 points.
    IQ2_XXS = 16, "IQ2_XXS", 256, 66;
    /// 2.31 bits on a grid of 512 points.
    IQ2_XS = 17, "IQ2_XS", 256, 74;
    /// 3.06 bits on a grid of 256 points.
    IQ3_XXS = 18, "IQ3_XXS", 256, 98;
    /// 1.56 bits on a grid of 2048 points.
    IQ1_S = 19, "IQ1_S", 256, 50;
    /// 4 bits through a table of 16 levels, one scale per 32.
    IQ4_NL = 20, "IQ4_NL", 32, 18;
    /// 3.44 bits on a grid of 512 points.
    IQ3_S = 21, "IQ3_S", 256, 110;
    /// 2.56 bits on a grid of 1024 points.
    IQ2_S = 22, "IQ2_S", 256, 82;
    /// 4.25 bits through the table of IQ4_NL, 6-bit scales.
    IQ4_XS = 23, "IQ4_XS", 256, 136;
    /// 8-bit integer.
    I8 = 24, "I8", 1, 1;
    /// 16-bit integer.
    I16 = 25, "I16", 1, 2;
    /// 32-bit integer.
    I32 = 26, "I32", 1, 4;
    /// 64-bit integer.
    I64 = 27, "I64", 1, 8;
    /// 64-bit float.
    F64 = 28, "F64", 1, 8;
    /// 1.75 bits on the grid of IQ1_S.
    IQ1_M = 29, "IQ1_M", 256, 56;
    /// bfloat16.
    BF16 = 30, "BF16", 1, 2;
    /// Ternary, five values a byte.
    TQ1_0 = 34, "TQ1_0", 256, 54;
    /// Ternary, four values a byte.
    TQ2_0 = 35, "TQ2_0", 256, 66;
    /// OCP microscaling 4-bit float.
    MXFP4 = 39, "MXFP4", 32, 17;
    /// 4-bit float with an 8-bit float scale per 16.
    NVFP4 = 40, "NVFP4", 64, 36;
    /// 1 bit: plus or minus the scale.
    Q1_0 = 41, "Q1_0", 128, 18;
    /// 2 bits: -1, 0, 1, 2 times the scale.
    Q2_0 = 42, "Q2_0", 64, 18;
}

/// Names of the ids that ggml has dropped.
const fn removed(id: u32) -> Option<&'static str> {
    Some(match id {
        4 => "Q4_2",
        5 => "Q4_3",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        36 => "IQ4_NL_4_4",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        _ => return None,
    })
}

impl Quant {
    /// The type with this name, in any case of letters.
    pub fn from_name(name: &str) -> Option<Quant> {
        Quant::ALL.iter().copied().find(|quant| quant.name().eq_ignore_ascii_case(name))
    }

    /// The ggml id.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of a row of `cols` values.
    ///
    /// # Errors
    /// The block does not divide `cols`, or the product overflows.
    pub fn row_bytes(self, cols: usize) -> Result<usize, KernelError> {
        let block = self.block_len();
        if !cols.is_multiple_of(block) {
            return Err(KernelError::RowLength { quant: self.name(), block, cols });
        }
        (cols / block).checked_mul(self.block_bytes()).ok_or(KernelError::TooLarge("a row"))
    }
}

/// What a type's kernels are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paths {
    /// Panels of 16 rows for one, few and many tokens; rows as the file has them until packed.
    Panels,
    /// Points of a grid looked up in the file's rows; unpacked into panels for more than 8 tokens.
    Grid,
    /// Floats, as the file has them.
    Floats,
    /// Decoded, then as floats.
    Decoded,
}

impl Quant {
    /// What its matrix products use where there are vector instructions.
    pub const fn paths(self) -> Paths {
        match self {
            Quant::F32 | Quant::F16 | Quant::BF16 => Paths::Floats,
            quant if quant.on_grid() => Paths::Grid,
            quant if quant.int_kind().is_some() => Paths::Panels,
            _ => Paths::Decoded,
        }
    }

    /// Offsets of the half floats in a block that multiply or shift its values.
    pub(crate) const fn half_fields(self) -> &'static [usize] {
        match self {
            Quant::Q4_1 | Quant::Q5_1 | Quant::Q4_K | Quant::Q5_K => &[0, 2],
            Quant::Q2_K => &[80, 82],
            Quant::Q3_K => &[108],
            Quant::Q6_K => &[208],
            Quant::TQ1_0 => &[52],
            Quant::TQ2_0 => &[64],
            Quant::Q4_0
            | Quant::Q5_0
            | Quant::Q8_0
            | Quant::Q8_1
            | Quant::Q1_0
            | Quant::Q2_0
            | Quant::IQ1_S
            | Quant::IQ2_XXS
            | Quant::IQ2_XS
            | Quant::IQ2_S
            | Quant::IQ3_XXS
            | Quant::IQ3_S
            | Quant::IQ4_NL
            | Quant::IQ4_XS => &[0],
            _ => &[],
        }
    }
}

impl std::fmt::Display for Quant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
