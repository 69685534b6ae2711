//! C++ alone brings its runtime along as headers, so two services in one program may stand on two versions of
//! it, and so may one service that an application and a library have generated. Each has to be served by what
//! it was compiled with, and one file that includes two versions has to be refused.

use super::{passes, start, write};
use crate::Tally;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What `readable` puts for a byte that is no character's.
const REPLACEMENT: &str = "\"\\xef\\xbf\\xbd\"";
/// What it puts in the other version.
const ANOTHER: &str = "\"?\"";
/// What a generated decoder calls the place of a message that it does not know.
const PLACE: &str = "unknown_message, \"frame\"";
/// What the generated code of the other version calls it.
const ANOTHER_PLACE: &str = "unknown_message, \"request\"";

/// Compiles services from two folders into one program: the first on this version of the runtime, and both on
/// another.
///
/// # Errors
/// There is no compiler, or a file cannot be read or written.
pub(super) fn judge(
    tally: &mut Tally,
    work: &Path,
    [(one, on_this), (two, on_another)]: [(&str, &Path); 2],
) -> Result<(), String> {
    let other = work.join("another-runtime");
    copy(&on_another.join("thalweg"), &other.join("thalweg"), &another_version)?;
    copy(on_another, &other, &|text| text)?;
    copy(on_this, &other, &|text| text.replace(PLACE, ANOTHER_PLACE))?;
    let compiler = || {
        let mut command = Command::new("g++");
        command.args(["-std=c++20", "-O0"]);
        command
    };
    let mut objects = Vec::new();
    for ((name, text), folder) in sources(one, two).into_iter().zip([on_this, &other, &other]) {
        let source = work.join(name);
        write(&source, &text)?;
        let object = source.with_extension("o");
        let mut build = compiler();
        build.arg("-I").arg(folder).arg("-c").arg(&source).arg("-o").arg(&object);
        passes(tally, "cpp: a service on a version of the runtime", &mut build)?;
        objects.push(object);
    }
    let program = work.join("two-runtimes");
    passes(tally, "cpp: two runtimes linked", compiler().args(objects).arg("-o").arg(&program))?;
    passes(tally, "cpp: each service on its own runtime", &mut Command::new(program))?;
    let both = work.join("both.cpp");
    write(&both, &format!("#include \"{one}_client.hpp\"\n#include \"{two}_client.hpp\"\n"))?;
    let mut build = compiler();
    let build = build.arg("-fsyntax-only").arg("-I").arg(on_this).arg("-I").arg(&other).arg(both);
    let said = start(build)?;
    let words = String::from_utf8_lossy(&said.stderr);
    tally.check(!said.status.success() && words.contains("two versions of Thalweg's runtime"), || {
        format!("cpp: a file took two versions of the runtime\n{words}")
    });
    Ok(())
}

/// The sources of that program: the first service, the second one, and the first one again.
fn sources(one: &str, two: &str) -> [(&'static str, String); 3] {
    let says = |service: &str, function: &str| {
        format!(
            "#include \"{service}_client.hpp\"\n#include \"{service}_server.hpp\"\n\
             std::string {function}() {{ return thalweg::readable(\"\\xff\"); }}\n"
        )
    };
    // A request with a tag that no service has.
    let refuses = |function: &str| {
        format!(
            "std::string {function}() {{\n    const std::uint8_t frame[] = {{0x91, 0x92, 0xa1, 'x', 0x80}};\n    \
             try {{\n        {one}::decode_request(frame);\n    \
             }} catch (const thalweg::DecodeError& no) {{\n        return std::string(no.place);\n    \
             }}\n    return {{}};\n}}\n"
        )
    };
    let asks = format!(
        "std::string of_two(), of_again(), refused_again();\n\
         int main() {{\n    \
         const bool runtimes = of_one() == {REPLACEMENT} && of_two() == {ANOTHER} && of_again() == {ANOTHER};\n    \
         return runtimes && refused() == \"frame\" && refused_again() == \"request\" ? 0 : 1;\n}}\n"
    );
    [
        ("first.cpp", says(one, "of_one") + &refuses("refused") + &asks),
        ("second.cpp", says(two, "of_two")),
        ("again.cpp", says(one, "of_again") + &refuses("refused_again")),
    ]
}

/// A runtime with another number, of which one function differs.
fn another_version(text: String) -> String {
    let number = |text: &str| Some(text.split_once("#define THALWEG_RUNTIME 0x")?.1.get(..8)?.to_owned());
    let text = match number(&text) {
        Some(number) => text.replace(&number, "00c0ffee"),
        None => text,
    };
    text.replace(REPLACEMENT, ANOTHER)
}

/// Copies the files of a folder, without those of the folders in it.
fn copy(from: &Path, to: &Path, changed: &dyn Fn(String) -> String) -> Result<(), String> {
    let entries = fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?;
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        if path.extension().is_none_or(|extension| extension != "hpp") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        write(&to.join(path.file_name().unwrap_or_default()), &changed(text))?;
    }
    Ok(())
}
