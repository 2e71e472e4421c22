//! Reads the attributes of `rope`.

use super::Checker;
use crate::program::{
    attributes::Attributes,
    fault::Fault,
    ir::{Layout, Long, Rope, Scaling},
    limits,
};

impl Checker<'_> {
    pub(super) fn rope(
        &mut self,
        width: usize,
        a: &mut Attributes<'_>,
    ) -> Result<Rope, Box<Fault>> {
        let heads = a.count("heads", limits::HEADS)?;
        let head_dim = a.count("head-dim", limits::HEAD_DIM)?;
        if heads * head_dim != width {
            let found = format!("{heads} heads of {head_dim}");
            return Err(Fault::wrong("heads", format!("heads · head-dim = {width}"), found));
        }
        let offset = a.offset_or("offset", limits::HEAD_DIM)?.unwrap_or(0);
        let left = head_dim.saturating_sub(offset);
        let dims = a.count_or("dims", limits::HEAD_DIM)?.unwrap_or(left);
        if dims > left || !dims.is_multiple_of(2) {
            let expected = format!("an even number up to {left}");
            return Err(Fault::wrong("attribute `dims`", expected, dims));
        }
        let layout = match a.text("layout")? {
            "interleaved" => Layout::Interleaved,
            "half" => Layout::Half,
            word => {
                let expected = "interleaved or half";
                return Err(Fault::unknown("attribute `layout`", expected, format!("`{word}`")));
            }
        };
        let base = a.positive("base")?;
        let factor = a.positive_or("factor")?.unwrap_or(1.0);
        let attention_factor = a.positive_or("attention-factor")?.unwrap_or(1.0);
        let mut original_context = a.count_or("original-context", limits::CONTEXT)?;
        let mut original = || {
            let value = original_context.take();
            value.ok_or_else(|| Fault::wrong("attribute `original-context`", "an int", "nothing"))
        };
        let scaling = match a.text_or("scaling", "none")? {
            "none" if factor == 1.0 => Scaling::None { attention_factor },
            "none" => {
                let expected = "1 without `scaling`";
                return Err(Fault::wrong("attribute `factor`", expected, factor));
            }
            "linear" if attention_factor == 1.0 => Scaling::Linear { factor },
            "linear" => {
                let expected = "1 with `scaling` linear";
                return Err(Fault::wrong(
                    "attribute `attention-factor`",
                    expected,
                    attention_factor,
                ));
            }
            "yarn" => Scaling::Yarn {
                factor,
                original_context: original()?,
                beta_fast: a.positive_or("beta-fast")?.unwrap_or(32.0),
                beta_slow: a.positive_or("beta-slow")?.unwrap_or(1.0),
                attention_factor,
            },
            word => {
                let expected = "none, linear or yarn";
                return Err(Fault::unknown("attribute `scaling`", expected, format!("`{word}`")));
            }
        };
        let mut factors = |name: &'static str| -> Result<_, Box<Fault>> {
            let tensor = a.tensor_or(name)?;
            tensor.map(|tensor| self.tensor(name, tensor, &[dims / 2])).transpose()
        };
        let (short, long) = (factors("factors")?, factors("long-factors")?);
        let long = match long {
            Some(factors) => Some(Long { factors, original_context: original()? }),
            None => None,
        };
        if let Some(found) = original_context {
            let expected = "nothing without `scaling` yarn or `long-factors`";
            return Err(Fault::wrong("attribute `original-context`", expected, found));
        }
        Ok(Rope { heads, head_dim, offset, dims, layout, base, scaling, factors: short, long })
    }
}
