//! Copies the machines and the seeded world, and plants every bug of the list in the copies, behind a switch. Never touches
//! an original; a bug whose place is gone, or is no longer the only one, fails the build and is named.

use bugs::{BUGS, Bug};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

#[allow(unreachable_pub, reason = "the library shows it")]
#[path = "src/bugs.rs"]
mod bugs;

/// What is copied: the root of a module, the folder of what is in it, and its name.
const COPIES: [(&str, &str, &str); 3] = [
    ("policies/src/lib.rs", "policies/src", "policies"),
    ("protocol/src/lib.rs", "protocol/src", "protocol"),
    ("tests/src/world.rs", "tests/src/world", "world"),
];

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let mut modules = String::new();
    for (root, folder, module) in COPIES {
        let copied = copy(root, &out.join(module).with_extension("rs"), module)
            .and_then(|()| copy_all(folder, &out.join(module), module));
        copied.unwrap_or_else(|error| panic!("{folder}: {error}"));
        println!("cargo::rerun-if-changed={}", workspace().join(root).display());
        println!("cargo::rerun-if-changed={}", workspace().join(folder).display());
        modules += &format!("pub mod {module};\n");
    }
    for (number, bug) in (0..).zip(BUGS) {
        plant(number, bug, &out);
    }
    fs::write(out.join("copies.rs"), modules).expect("it can be written");
    println!("cargo::rerun-if-changed=src/bugs.rs");
}

/// Copies a folder of sources.
fn copy_all(folder: &str, to: &Path, module: &str) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(workspace().join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let from = format!("{folder}/{}", name.display());
        match entry.file_type()?.is_dir() {
            true => copy_all(&from, &to.join(name), module)?,
            false => copy(&from, &to.join(name), module)?,
        }
    }
    Ok(())
}

/// Copies a source, and lets it name the others as modules of one crate.
fn copy(from: &str, to: &Path, module: &str) -> io::Result<()> {
    let text = fs::read_to_string(workspace().join(from))?;
    let text = match module {
        "world" => text,
        _ => text.replace("crate::", &format!("crate::{module}::")),
    };
    let text = text.replace("tokenrouter_policies::", "crate::policies::");
    fs::write(to, text.replace("tokenrouter_protocol::", "crate::protocol::"))
}

/// The workspace that is being built, which need not be the one where this script was compiled: checkouts may share a
/// target folder. Cargo runs scripts in the folder of their package.
fn workspace() -> &'static Path {
    Path::new("../..")
}

fn plant(number: usize, bug: &Bug, out: &Path) {
    let Bug { name, file, original, planted } = bug;
    let path = out.join(file.replace("/src/", "/"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
    let places = text.matches(original).count();
    assert!(
        places == 1,
        "the bug \"{name}\" needs one place, but {file} has {places}; what has become of this?\n{original}"
    );
    let planted = planted.replace("BUG", &format!("crate::on({number})"));
    fs::write(path, text.replace(original, &planted)).expect("it can be written");
}
