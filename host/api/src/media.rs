//! Pictures and sounds inside JSON.

use base64::{
    Engine,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use gristmill_core::{Result, request::Media};

use crate::fields::wrong;

/// Standard alphabet; clients differ on padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Bytes from base64.
///
/// # Errors
/// `invalid-request` naming `field`.
pub fn decode(field: &str, text: &str) -> Result<Vec<u8>> {
    BASE64.decode(text.trim()).map_err(|error| wrong(field, format!("is not base64: {error}")))
}

/// A picture from bare base64, its type from its first bytes.
///
/// # Errors
/// `invalid-request` naming `field` for bad base64 or an unknown format.
pub fn image(field: &str, text: &str) -> Result<Media> {
    let data = decode(field, text)?;
    let mime = match data.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => return Err(wrong(field, "is not a PNG, JPEG, GIF or WebP picture")),
    };
    Ok(Media { mime: mime.to_owned(), data })
}

/// A picture from a `data:` URL. Nothing is ever fetched.
///
/// # Errors
/// `invalid-request` naming `field` for any other URL.
pub fn data_url(field: &str, url: &str) -> Result<Media> {
    let parts = url.strip_prefix("data:").and_then(|rest| rest.split_once(','));
    match parts {
        Some((head, payload)) if head.ends_with(";base64") => image(field, payload),
        _ => Err(wrong(field, "must be a data: URL with base64; pictures are not fetched")),
    }
}
