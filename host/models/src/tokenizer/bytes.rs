//! The alphabet of byte-level BPE: every byte as a printable character, the ones that are printable
//! already as themselves and the rest from U+0100 on (a fact of GPT-2's vocabulary).

/// The character that stands for each byte.
pub(super) fn alphabet() -> [char; 256] {
    let mut next = 0x100;
    std::array::from_fn(|byte| match byte as u8 {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte as u8),
        _ => {
            let character = char::from_u32(next).unwrap_or_default();
            next += 1;
            character
        }
    })
}

/// The byte that a character stands for.
pub(super) fn byte_of(character: char) -> Option<u8> {
    // Those from U+0100 on stand, in order, for the bytes that are not printable.
    match u32::from(character) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        for (byte, character) in alphabet().into_iter().enumerate() {
            assert_eq!(byte_of(character), Some(byte as u8), "{character:?}");
        }
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!(alphabet()[usize::from(b' ')], 'Ġ');
        assert_eq!(alphabet()[usize::from(b'\n')], 'Ċ');
    }
}
