//! Probe: a forced call comes, with arguments of the declared type; ids and order hold; calls stay
//! out of the text. Calls are forced by tool choice, so no model has to be willing.
#![cfg_attr(target_arch = "wasm32", no_std)]

mod calls;
mod values;

probe_kit::suite! {
    "tools.string" of "tools.calling" if Claimed => values::string,
    "tools.boolean" of "tools.calling" if Claimed => values::boolean,
    "tools.number" of "tools.calling" if Claimed => values::number,
    "tools.array" of "tools.calling" if Claimed => values::array,
    "tools.object" of "tools.calling" if Claimed => values::object,
    "tools.null" of "tools.calling" if Claimed => values::null,
    "tools.empty" of "tools.calling" if Claimed => values::empty,
    "tools.none" of "tools.calling" if Claimed => calls::none,
    "tools.ids" of "tools.calling" if Claimed => calls::ids,
    "tools.channel" of "tools.calling" if Claimed => calls::channel,
    "tools.round-trip" of "tools.calling" if Claimed => calls::round_trip,
    "tools.parallel" of "tools.parallel" if Claimed => calls::parallel,
    "tools.streaming" of "tools.streaming" if Claimed => calls::streaming,
    "tools.fragments" of "streaming.tool_arguments" if Claimed => calls::fragments,
}
