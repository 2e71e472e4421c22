//! Vectors as clients want them: one row for each input, cut, of unit length, finite. Pure.

use gristmill_core::{Code, Error, Result, request::Embeddings};

/// One vector for each of `inputs`, cut to `dimensions` and of length 1.
///
/// # Errors
/// `upstream-error` when the back-end's numbers are not what was asked: another count, NaN, infinity.
pub fn rows(
    embeddings: &Embeddings,
    inputs: usize,
    dimensions: Option<u32>,
) -> Result<Vec<Vec<f32>>> {
    let dim = embeddings.dim as usize;
    let count = embeddings.rows as usize;
    if count != inputs || dim.checked_mul(count) != Some(embeddings.data.len()) {
        return Err(Error::new(
            Code::UpstreamError,
            format!(
                "the back-end gave {} numbers as {count} vectors of {dim} for {inputs} inputs",
                embeddings.data.len()
            ),
        ));
    }
    if count == 0 || dim == 0 {
        return Ok(vec![Vec::new(); count]);
    }
    let keep = dimensions.map_or(dim, |wanted| dim.min(wanted as usize));
    embeddings.data.chunks_exact(dim).map(|row| unit(row.get(..keep).unwrap_or(row))).collect()
}

/// The vector at length 1; zero stays zero. Summed in double precision, so that large values do not
/// overflow.
fn unit(row: &[f32]) -> Result<Vec<f32>> {
    if row.iter().any(|value| !value.is_finite()) {
        return Err(Error::new(Code::UpstreamError, "embedding contains NaN or Inf values"));
    }
    let length = row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
    // Already of unit length within f32's own error: the back-end's bits are left alone.
    if length == 0.0 || (length - 1.0).abs() < 1e-6 {
        return Ok(row.to_vec());
    }
    Ok(row.iter().map(|&value| (f64::from(value) / length) as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(rows: u32, dim: u32, data: &[f32]) -> Embeddings {
        Embeddings { dim, rows, data: data.to_vec(), prompt_tokens: 1 }
    }

    #[test]
    fn vectors_come_in_order_at_unit_length() {
        let given = vectors(2, 2, &[3.0, 4.0, 0.0, -5.0]);
        assert_eq!(rows(&given, 2, None).unwrap(), [[0.6, 0.8], [0.0, -1.0]]);
        assert_eq!(rows(&given, 2, Some(1)).unwrap(), [[1.0], [0.0]]);
        assert_eq!(rows(&given, 2, Some(99)).unwrap()[0].len(), 2);
        let huge = vectors(1, 2, &[3e38, 0.0]);
        assert_eq!(rows(&huge, 1, None).unwrap(), [[1.0, 0.0]]);
    }

    #[test]
    fn numbers_that_are_not_what_was_asked_are_refused() {
        for (given, inputs) in [
            (vectors(1, 2, &[1.0, 0.0]), 2),
            (vectors(1, 2, &[1.0]), 1),
            (vectors(1, 2, &[f32::NAN, 0.0]), 1),
            (vectors(1, 2, &[f32::INFINITY, 0.0]), 1),
            (vectors(u32::MAX, u32::MAX, &[]), u32::MAX as usize),
        ] {
            assert_eq!(rows(&given, inputs, None).unwrap_err().code, Code::UpstreamError);
        }
    }
}
