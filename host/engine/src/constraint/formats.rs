//! What the `format` of a string is enforced as: regular expressions that let through only what
//! the format's own specification allows. Some are narrower than it, and say so here; none is wider.

/// A format's expressions, all of which a text must match; `None` for one that is not known.
///
/// Narrower than specified: no leap seconds; host names without double hyphens and with labels of
/// up to 31 characters; mail addresses without quotes and address literals; IPv6 without a dotted
/// tail; URIs without user names and IP literals; UUIDs in lower case or upper case as they come.
pub(super) fn expressions(format: &str) -> Option<Vec<String>> {
    const DAY_31: &str = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])";
    const DAY_30: &str = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)";
    const DAY_28: &str = "02-(?:0[1-9]|1[0-9]|2[0-8])";
    const LEAP: &str =
        "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29";
    const LABEL: &str = "(?:[0-9A-Za-z]{1,31}|[0-9A-Za-z](?:-?[0-9A-Za-z]){0,15})";
    const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    const CHAR: &str = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
    let date = format!("(?:[0-9]{{4}}-(?:{DAY_31}|{DAY_30}|{DAY_28})|{LEAP})");
    let clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
    let time = format!(r"{clock}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:[Zz]|[+-]{clock})");
    let host = format!(r"{LABEL}(?:\.{LABEL}){{0,6}}");
    // An authority needs `//`; the rest of what may follow a scheme must not begin with it.
    let path = format!("(?:/{CHAR}*)*");
    let tail = format!(r"(?:\?(?:{CHAR}|[/?])*)?(?:#(?:{CHAR}|[/?])*)?");
    let hierarchy = format!("(?://{host}(?::[0-9]{{1,5}})?{path}|/?{CHAR}+{path}|/?)");
    let expression = match format {
        "date" => date,
        "time" => time,
        "date-time" => format!("{date}[Tt]{time}"),
        "duration" => {
            let time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
            let day = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
            format!("P(?:{day}(?:{time})?|{time}|[0-9]+W)")
        }
        "email" => {
            let word = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]+";
            return Some(vec![
                anchored(&format!(r"{word}(?:\.{word})*@{host}")),
                // The part before the sign has at most 64 characters.
                "^[^@]{1,64}@".to_owned(),
            ]);
        }
        "hostname" => host,
        "ipv4" => format!(r"{OCTET}(?:\.{OCTET}){{3}}"),
        "ipv6" => {
            let group = "[0-9A-Fa-f]{1,4}";
            let mut forms = vec![format!("(?:{group}:){{7}}{group}"), "::".to_owned()];
            for before in 1..=7 {
                // At least one group is left out.
                forms.push(format!("{group}(?::{group}){{{}}}::", before - 1));
                for after in 1..=(7 - before) {
                    let (b, a) = (before - 1, after - 1);
                    forms.push(format!("{group}(?::{group}){{{b}}}::{group}(?::{group}){{{a}}}"));
                }
            }
            for after in 1..=7 {
                forms.push(format!("::{group}(?::{group}){{{}}}", after - 1));
            }
            forms.join("|")
        }
        "uuid" => {
            let hex = "[0-9A-Fa-f]";
            format!("{hex}{{8}}-{hex}{{4}}-{hex}{{4}}-{hex}{{4}}-{hex}{{12}}")
        }
        "uri" => format!("[A-Za-z][A-Za-z0-9+.-]*:{hierarchy}{tail}"),
        "uri-reference" => {
            // Without a scheme the first segment has no colon.
            let segment = CHAR.replace(":@", "@");
            format!(
                "(?:[A-Za-z][A-Za-z0-9+.-]*:{hierarchy}|//{host}{path}|/(?:{CHAR}+{path})?|{segment}+{path}|){tail}"
            )
        }
        "json-pointer" => "(?:/(?:[^~/]|~[01])*)*".to_owned(),
        _ => return None,
    };
    Some(vec![anchored(&expression)])
}

fn anchored(expression: &str) -> String {
    format!("^(?:{expression})$")
}
