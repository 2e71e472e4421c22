//! The schemas take every shipped file and refuse what the readers refuse; the shipped schemas are
//! those of the types.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use std::{fs, path::Path};

use gristmill_policies::{
    Approvals, Block, Grant, ParameterPolicy, Profile,
    schema::{self, KINDS},
};
use jsonschema::Validator;

fn validator(kind: &str) -> Validator {
    jsonschema::validator_for(&schema::of(kind).unwrap()).unwrap()
}

fn takes(validator: &Validator, text: &str) -> bool {
    let table: toml::Table = text.parse().unwrap();
    validator.is_valid(&serde_json::to_value(table).unwrap())
}

fn reads(kind: &str, text: &str) -> Result<(), String> {
    match kind {
        "grant" => Grant::parse(text).map(drop),
        "block" => Block::parse("b", text).map(drop),
        "parameter" => ParameterPolicy::parse("p", text).map(drop),
        "profile" => Profile::parse("p", text).map(drop),
        "approval" => Approvals::parse(text).map(drop),
        other => panic!("no such kind: {other}"),
    }
}

/// Words of a whole file, and what takes their place.
type Changes = &'static [(&'static str, &'static str)];

const GRANT: &str = "kind = \"backend\"\nimports = [\"a:b/c\"]\nlimits.memory-mib = 8\n[upstreams.primary]\n\
    network = [\"loopback\"]\nmethods = [\"GET\"]\npaths = [\"/v1/*\"]\nrequest-bytes = 5";
const BLOCK: &str = "backend = \"vllm\"\nversions = \">=b4000, <0.6.4-rc1\"\nfamily = \"f\"\nhardware = \"h\"\n\
    capability = \"c\"\nreason = \"r\"\nevidence = \"e\"\nexpires = \"2027-01-31\"\nalternative = \"a\"";
const PARAMETER: &str = "family = \"f\"\nvariants = [\"v*\"]\nbackend = \"b\"\nversions = \"*\"\nhardware = \"h\"\n\
    reason = \"r\"\nevidence = \"e\"\nunlisted = \"optional\"\n[actions]\nknown-good = \"refuse\"\n\
    [context]\nnative-max = 9\nbackend-managed = true\noverride-supported = true\noverride-verified = false\n\
    action = \"strip\"\n[parameters.top_k]\nclass = \"known-good\"\nvalue = 64\n\
    [parameters.stop]\nclass = \"required\"\nvalue = [\"a\"]\naction = \"strip\"\nreason = \"r\"";
const PROFILE: &str = "description = \"d\"\nmodels = [\"m*\"]\nbackend = \"b\"\n[parameters]\nseed = 1\nstop = [\"a\"]";
const APPROVAL: &str = "otherwise = 1\n[[rules]]\nchanges = [\"new-bytes\"]\nkind = \"family\"\n\
    names = [\"n\"]\napprovals = 2\nreason = \"r\"";

#[test]
fn every_key_is_taken_and_what_the_reader_refuses_by_shape_is_refused() {
    let broken: [(&str, &str, Changes); 5] = [
        (
            "grant",
            GRANT,
            &[
                ("kind", "kin"),
                ("\"backend\"", "\"kernel\""),
                ("memory-mib", "memory_mib"),
                ("= 8", "= 0"),
                ("= 8", "= 257"),
                ("= 8", "= \"8\""),
                ("[\"loopback\"]", "[]"),
                ("loopback", "anywhere"),
                ("\"GET\"", "\"CONNECT\""),
                ("/v1/*", "v1"),
                ("request-bytes = 5", "request-bytes = 0"),
                ("request-bytes", "request_bytes"),
                ("methods", "method"),
            ],
        ),
        (
            "block",
            BLOCK,
            &[
                ("reason", "reson"),
                ("family = \"f\"", "family = 3"),
                (">=b4000, <0.6.4-rc1", "b4000"),
                ("2027-01-31", "soon"),
                ("expires = \"2027-01-31\"", ""),
            ],
        ),
        (
            "parameter",
            PARAMETER,
            &[
                ("family", "famly"),
                ("reason = \"r\"\nevidence", "evidence"),
                ("[parameters.top_k]", "[parameters.topk]"),
                ("[parameters.top_k]", "[parameters.num_ctx]"),
                ("\"known-good\"", "\"good\""),
                ("value = 64", ""),
                ("= 64", "= true"),
                ("known-good = \"refuse\"", "known_good = \"refuse\""),
                ("unlisted = \"optional\"", "unlisted = \"required\""),
                ("native-max", "native_max"),
                ("native-max = 9", "native-max = 0"),
                ("backend-managed = true", "backend-managed = 1"),
                ("override-verified = false\n", ""),
                ("\"*\"", "\"latest\""),
            ],
        ),
        (
            "profile",
            PROFILE,
            &[
                ("description", "descripton"),
                ("seed", "seeds"),
                ("seed", "num_thread"),
                ("= 1", "= \"1\""),
                ("[parameters]\nseed = 1\nstop = [\"a\"]", ""),
            ],
        ),
        (
            "approval",
            APPROVAL,
            &[
                ("otherwise", "otherwse"),
                ("new-bytes", "new_bytes"),
                ("\"family\"", "\"model\""),
                ("= 2", "= 17"),
                ("= 2", "= -1"),
                ("reason = \"r\"", ""),
            ],
        ),
    ];
    assert_eq!(broken.map(|(kind, ..)| kind), KINDS.map(|(kind, _)| kind), "every kind");
    for (kind, whole, changes) in broken {
        let schema = validator(kind);
        reads(kind, whole).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(takes(&schema, whole), "{kind}: {whole}");
        for (from, to) in changes {
            assert!(whole.contains(from), "{kind}: {from}");
            let text = whole.replacen(from, to, 1);
            assert!(reads(kind, &text).is_err(), "{kind}: the reader takes {text}");
            assert!(!takes(&schema, &text), "{kind}: the schema takes {text}");
        }
    }
    assert!(schema::of("pin").is_none());
}

#[test]
fn every_shipped_file_fits_its_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for (folder, kind) in
        [("grants", "grant"), ("parameters", "parameter"), ("profiles", "profile")]
    {
        let schema = validator(kind);
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            assert!(takes(&schema, &fs::read_to_string(&path).unwrap()), "{}", path.display());
            count += 1;
        }
    }
    assert!(count > 8);
    let approvals = fs::read_to_string(root.join("approvals.toml")).unwrap();
    assert!(takes(&validator("approval"), &approvals));
}

#[test]
fn the_shipped_schemas_are_those_of_the_types() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    for (kind, _) in KINDS {
        let shipped = fs::read_to_string(root.join(format!("{kind}.json"))).unwrap_or_default();
        let made = format!("{:#}\n", schema::of(kind).unwrap());
        assert!(
            shipped == made,
            "write it anew: gristmill policy schema {kind} > policies/schema/{kind}.json"
        );
    }
}
