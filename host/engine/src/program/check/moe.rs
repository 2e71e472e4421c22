//! Reads the attributes of `moe`.

use super::{Checker, activation};
use crate::program::{
    attributes::Attributes,
    fault::Fault,
    ir::{Moe, Scoring, TensorId},
    limits,
};

impl Checker<'_> {
    pub(super) fn moe(&mut self, width: usize, a: &mut Attributes<'_>) -> Result<Moe, Box<Fault>> {
        let experts = a.count("experts", limits::EXPERTS)?;
        let active = a.count("active", limits::EXPERTS)?;
        if active > experts {
            return Err(Fault::wrong("attribute `active`", format!("at most {experts}"), active));
        }
        let groups = a.count_or("groups", limits::EXPERTS)?.unwrap_or(1);
        let active_groups = a.count_or("active-groups", limits::EXPERTS)?.unwrap_or(groups);
        if !experts.is_multiple_of(groups) {
            let expected = format!("a divisor of {experts} experts");
            return Err(Fault::wrong("attribute `groups`", expected, groups));
        }
        if active_groups > groups || active_groups * (experts / groups) < active {
            let expected = format!("1..={groups} groups that hold {active} experts");
            return Err(Fault::wrong("attribute `active-groups`", expected, active_groups));
        }
        let router = self.tensor("router", a.tensor("router")?, &[width, experts])?;
        let gate = a.tensor("gate")?;
        let ff = self.dimension(gate, 1).unwrap_or(0);
        let gate = self.tensor("gate", gate, &[width, ff, experts])?;
        let up = self.tensor("up", a.tensor("up")?, &[width, ff, experts])?;
        let down = self.tensor("down", a.tensor("down")?, &[ff, width, experts])?;
        let router_bias = self.optional("router-bias", a, &[experts])?;
        let selection_bias = self.optional("selection-bias", a, &[experts])?;
        let gate_bias = self.optional("gate-bias", a, &[ff, experts])?;
        let up_bias = self.optional("up-bias", a, &[ff, experts])?;
        let down_bias = self.optional("down-bias", a, &[width, experts])?;
        let activation = activation("activation", a.text("activation")?)?;
        let scoring = match a.text("scoring")? {
            "softmax" => Scoring::Softmax,
            "sigmoid" => Scoring::Sigmoid,
            "softmax-chosen" => Scoring::Chosen,
            word => {
                let expected = "softmax, sigmoid or softmax-chosen";
                return Err(Fault::unknown("attribute `scoring`", expected, format!("`{word}`")));
            }
        };
        let normalize = a.flag("normalize")?;
        let scale = a.float_or("scale")?.unwrap_or(1.0) as f32;
        Ok(Moe {
            router,
            router_bias,
            selection_bias,
            gate,
            gate_bias,
            up,
            up_bias,
            down,
            down_bias,
            ff,
            experts,
            active,
            groups,
            active_groups,
            activation,
            scoring,
            normalize,
            scale,
        })
    }

    fn optional(
        &mut self,
        name: &'static str,
        a: &mut Attributes<'_>,
        shape: &[usize],
    ) -> Result<Option<TensorId>, Box<Fault>> {
        a.tensor_or(name)?.map(|tensor| self.tensor(name, tensor, shape)).transpose()
    }
}
