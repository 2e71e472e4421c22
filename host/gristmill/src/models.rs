//! Commands on the local store.

use std::{path::Path, sync::Arc, time::SystemTime};

use anyhow::{Context, Result};
use gristmill_core::{Error, program::Value};
use gristmill_engine::{cache::KvTypes, packing, plan::Plan, program::check};
use gristmill_kernels::Quant;
use gristmill_models::{
    Gguf,
    store::{Located, Store, catalogue},
};

use crate::{
    compose::{Places, families},
    progress::Bars,
    settings::Settings,
};

/// `gristmill pull`
pub(crate) fn pull(
    settings: &Settings,
    places: &Places,
    model: &str,
    name: Option<&str>,
    ahead: bool,
) -> Result<()> {
    let store = store(places)?;
    let known = catalogue()?
        .iter()
        .find(|entry| entry.names.iter().any(|known| known.eq_ignore_ascii_case(model)));
    if let (Some(entry), None) = (known, name)
        && let Ok(found) = store.locate(model)
        && found.digest == entry.sha256.to_string()
    {
        println!("{} is here and as published", found.id);
        return pack(settings, places, &store, &found, ahead);
    }
    let found = store.pull(model, name, &mut Bars::new())?;
    done(&found);
    pack(settings, places, &store, &found, ahead)
}

/// Makes a model's package now rather than at its first use.
fn pack(
    settings: &Settings,
    places: &Places,
    store: &Store,
    model: &Located,
    wanted: bool,
) -> Result<()> {
    if !wanted {
        return Ok(());
    }
    let families = families(settings, places)?;
    match packing::ahead(store, &model.id, &*families, &mut Bars::new())? {
        Some(package) => println!("packed  {}  {}", size(package.size()), package.path().display()),
        None => println!("nothing of it has a packed layout on this machine"),
    }
    Ok(())
}

/// `gristmill import`
pub(crate) fn import(
    settings: &Settings,
    places: &Places,
    file: &Path,
    name: Option<&str>,
    quantization: Option<&str>,
    ahead: bool,
) -> Result<()> {
    let source = format!("file:{}", file.display());
    let quantization = quantization
        .map(|name| Quant::from_name(name).with_context(|| format!("no quantization {name:?}")))
        .transpose()?;
    let store = store(places)?;
    let found = store.import_as(&source, name, quantization, &mut Bars::new())?;
    done(&found);
    pack(settings, places, &store, &found, ahead)
}

/// `gristmill list`
pub(crate) fn list(places: &Places) -> Result<()> {
    let store = store(places)?;
    let models = store.list()?;
    if models.is_empty() {
        println!("no models yet; try: gristmill pull smollm2");
        return Ok(());
    }
    println!(
        "{:<32} {:>10} {:>10} {:>8} {:<10} {:<14} MODIFIED",
        "NAME", "SIZE", "PACKED", "PARAMS", "QUANT", "DIGEST"
    );
    for model in models {
        let packed: u64 = store.packages(&model.digest).iter().map(|package| package.size).sum();
        let packed = if packed == 0 { "-".to_owned() } else { size(packed) };
        for name in &model.names {
            println!(
                "{name:<32} {:>10} {packed:>10} {:>8} {:<10} {:<14} {}",
                size(model.size),
                model.facts.parameter_size(),
                model.facts.quantization,
                short(&model.digest),
                age(model.modified),
            );
        }
    }
    Ok(())
}

/// `gristmill show`
pub(crate) fn show(settings: &Settings, places: &Places, name: &str, program: bool) -> Result<()> {
    let store = store(places)?;
    let model = store.locate(name)?;
    let first = model.paths.first().context("a stored model has a file")?;
    let gguf = Gguf::open(first)?;
    let metadata = gguf.metadata();
    if program {
        let resolved = families(settings, places)?.resolve(&metadata)?;
        let program = check(&resolved.program, &metadata).map_err(Error::from)?;
        println!("family  {} ({})", resolved.family, resolved.digest);
        print!("{}", Plan::new(Arc::new(program)).describe(KvTypes::default()));
        return Ok(());
    }
    let facts = &model.facts;
    println!("name          {}", model.names.join(", "));
    println!("architecture  {}", facts.architecture);
    println!("parameters    {}", facts.parameter_size());
    println!("quantization  {}", facts.quantization);
    if let Some(context) = facts.context_length {
        println!("context       {context}");
    }
    println!("size          {}", size(model.size));
    println!("digest        {}", model.digest);
    println!("source        {}", model.source);
    if let Some(license) = &model.license {
        println!("licence       {license}");
    }
    println!("capabilities  {}", facts.capabilities.join(", "));
    for package in store.packages(&model.digest) {
        let state = match store.package(&model.digest, &package.kind) {
            Ok(Some(open)) => match open.huge() {
                // What maps it does not matter: the pages are the file's.
                Some(huge) => format!("sound, {} of it in huge pages", size(huge)),
                None => "sound".to_owned(),
            },
            Ok(None) => continue,
            Err(error) => error.to_string(),
        };
        println!("package       {}  {}  {state}", package.kind, size(package.size));
    }
    println!();
    for (key, value) in &metadata.keys {
        println!("{key} = {}", shown(value));
    }
    Ok(())
}

/// `gristmill rm`
pub(crate) fn remove(places: &Places, name: &str) -> Result<()> {
    store(places)?.remove(name)?;
    println!("removed {name}");
    Ok(())
}

/// The store of this machine.
pub(crate) fn store(places: &Places) -> Result<Arc<Store>> {
    let store = Store::open(&places.models)
        .map_err(Error::from)
        .with_context(|| format!("cannot open the model store {}", places.models.display()))?;
    Ok(Arc::new(store))
}

fn done(model: &Located) {
    println!("{}  {}  {}", model.id, size(model.size), short(&model.digest));
}

fn short(digest: &str) -> String {
    digest.trim_start_matches("sha256:").chars().take(12).collect()
}

fn size(bytes: u64) -> String {
    indicatif::DecimalBytes(bytes).to_string()
}

fn age(time: SystemTime) -> String {
    let elapsed = SystemTime::now().duration_since(time).unwrap_or_default();
    format!("{} ago", indicatif::HumanDuration(elapsed))
}

/// A value in one line of bearable length.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::Ints(numbers) => format!("{numbers:?}"),
        Value::Floats(numbers) => format!("{numbers:?}"),
        Value::Texts(texts) => format!("{texts:?}"),
        Value::Long(length) => format!("({length} values)"),
    };
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
