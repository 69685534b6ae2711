//! The rules for one source file. Limits and permissions stand at the top; each rule is a function from a
//! file to what breaks it.

use super::Finding;
use super::source::Source;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
/// As for code, which the formatter sees to.
const COMMENT_COLUMNS_MAX: usize = 110;
/// Where `unsafe` may be written.
const UNSAFE: &[&str] =
    &["crates/sys", "crates/sync", "crates/abi", "faces/erlang", "faces/node", "faces/python"];
/// The files beside them: those that map files, and the one in which a benchmark opens its peer.
const UNSAFE_FILES: &[&str] = &[
    "crates/log/src/files/mapping.rs",
    "crates/http/tests/cold.rs",
    "bench/src/log/floor.rs",
    "bench/src/log/lmdb.rs",
];
/// Where atomics may be named.
const ATOMICS: &str = "crates/sync";
/// Where the kernel may be called.
const SYSTEM: &str = "crates/sys";
/// Where files and sockets of the standard library may be used: the kernel's crate, the program's own command
/// line and generator, and the tools of developers.
const STANDARD_IO: [&str; 5] = ["crates/sys", "crates/codegen", "crates/server", "xtask", "bench"];

/// Every rule over one file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    file_length(source, &mut findings);
    function_length(source, &mut findings);
    comment_width(source, &mut findings);
    unsafe_code(source, &mut findings);
    foreign_names(source, &mut findings);
    unfinished(source, &mut findings);
    crate_header(source, &mut findings);
    findings
}

fn report(source: &Source, line: usize, findings: &mut Vec<Finding>, rule: impl Into<String>) {
    findings.push(Finding::new(format!("{}:{}", source.path.display(), line + 1), rule));
}

fn file_length(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.tests.iter().filter(|t| !**t).count();
    if lines > FILE_LINES_MAX {
        let rule =
            format!("{lines} lines without tests, {FILE_LINES_MAX} are allowed: split by responsibility");
        report(source, 0, findings, rule);
    }
}

fn function_length(source: &Source, findings: &mut Vec<Finding>) {
    for (n, line) in source.shipped() {
        if !has_word(line, "fn") || line.contains("fn(") {
            continue;
        }
        let lines = source.end_of_item(n) - n + 1;
        if lines > FUNCTION_LINES_MAX {
            let rule = format!("a function of {lines} lines, {FUNCTION_LINES_MAX} are allowed");
            report(source, n, findings, rule);
        }
    }
}

/// Prose ends where code has to. What stands in a fence or a table, or is one piece of code, has the width
/// that it needs.
fn comment_width(source: &Source, findings: &mut Vec<Finding>) {
    let mut fenced = false;
    for (n, comment) in source.comments.iter().enumerate() {
        let text = comment.trim().trim_start_matches(['/', '!']).trim();
        if comment.trim().is_empty() {
            fenced = false;
        } else if text.starts_with("```") {
            fenced = !fenced;
        }
        let is_code = text.starts_with('`') && !text.trim_matches(['`', '.']).contains('`');
        let is_prose = !fenced && !is_code && !text.starts_with('|') && source.code[n].trim().is_empty();
        let columns = comment.trim_end().chars().count();
        if is_prose && columns > COMMENT_COLUMNS_MAX {
            let rule = format!("a comment of {columns} columns, {COMMENT_COLUMNS_MAX} are allowed");
            report(source, n, findings, rule);
        }
    }
}

fn unsafe_code(source: &Source, findings: &mut Vec<Finding>) {
    let is_one_file = UNSAFE_FILES.iter().any(|file| source.path == std::path::Path::new(file));
    let allowed = UNSAFE.contains(&source.package().as_str()) || is_one_file;
    for (n, line) in source.code.iter().enumerate() {
        if !has_word(line, "unsafe") {
            continue;
        }
        if !allowed {
            report(source, n, findings, "`unsafe` outside sys and sync");
        }
        // A declaration states what its callers owe; a use states why it is owed no more.
        let exported = line.contains("unsafe extern \"") && line.contains("\" fn ");
        let declares = exported || line.contains("unsafe fn") || line.contains("unsafe trait");
        let wanted = if declares { "# Safety" } else { "SAFETY:" };
        let callback_type = line.contains("unsafe fn(") || (line.contains("unsafe extern \"") && !exported);
        // An exported name is a promise to linkers, not to the compiler.
        let owes_nothing = callback_type || line.trim() == "#[unsafe(no_mangle)]";
        if !owes_nothing && !explained(source, n, wanted) {
            report(source, n, findings, format!("`unsafe` without a `{wanted}` comment right before it"));
        }
    }
}

/// Whether the comment on this line, or the comments and attributes right above its statement, say `wanted`.
fn explained(source: &Source, line: usize, wanted: &str) -> bool {
    if source.comments[line].contains(wanted) {
        return true;
    }
    for n in (0..line).rev() {
        let code = source.code[n].trim();
        let comment = source.comments[n].trim();
        if comment.contains(wanted) {
            return true;
        }
        // A statement may begin above the line its `unsafe` stands on.
        let continues = code.is_empty() || code.starts_with("#[") || code.ends_with(['=', '(', ',', '|']);
        if !continues || (code.is_empty() && comment.is_empty()) {
            return false;
        }
    }
    false
}

fn foreign_names(source: &Source, findings: &mut Vec<Finding>) {
    let package = source.package();
    for (n, line) in source.shipped() {
        if package != ATOMICS && (line.contains("sync::atomic") || line.contains("core::sync::atomic")) {
            report(source, n, findings, "atomics belong to crates/sync");
        }
        if package != SYSTEM && (line.contains("rustix::") || line.contains("libc::")) {
            report(source, n, findings, "system calls belong to crates/sys");
        }
        let files =
            line.contains("std::fs") || line.contains("std::net::Tcp") || line.contains("os::unix::net");
        if files && !STANDARD_IO.contains(&package.as_str()) {
            report(source, n, findings, "files and sockets are reached through crates/sys");
        }
    }
}

fn unfinished(source: &Source, findings: &mut Vec<Finding>) {
    for (n, line) in source.code.iter().enumerate() {
        for word in ["todo!", "unimplemented!", "dbg!"] {
            if line.contains(word) {
                report(source, n, findings, format!("`{word}` is unfinished work"));
            }
        }
        if line.contains("#[ignore") {
            report(source, n, findings, "a test that never runs is no test");
        }
        if source.tests[n] {
            continue;
        }
        let expects = line.match_indices(".expect(").any(|(at, m)| !line[at + m.len()..].starts_with(')'));
        if line.contains(".unwrap()") || expects {
            report(source, n, findings, "`unwrap` and `expect` are for tests: return the error");
        }
    }
}

/// What a crate's first lines must say.
fn crate_header(source: &Source, findings: &mut Vec<Finding>) {
    let path = source.path.to_string_lossy();
    let package = source.package();
    let root = ["lib.rs", "main.rs"].iter().any(|f| path == format!("{package}/src/{f}"));
    if !root {
        return;
    }
    let header: Vec<String> = source
        .comments
        .iter()
        .map(|line| line.trim().to_lowercase())
        .take_while(|line| line.is_empty() || line.starts_with("//!"))
        .collect();
    let header = header.join(" ");
    if !header.contains("own") || !header.contains("never") {
        report(source, 0, findings, "the crate's first lines say what it owns and what it never knows");
    }
    // What is forbidden cannot be allowed to one module; what is denied can.
    let has_such_a_file = UNSAFE_FILES.iter().any(|file| file.starts_with(&format!("{package}/src/")));
    let wanted = if has_such_a_file { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    let forbids =
        source.code.iter().any(|line| line.contains(wanted) || line.contains("#![forbid(unsafe_code)]"));
    if !forbids && !UNSAFE.contains(&package.as_str()) {
        report(source, 0, findings, format!("`{wanted}` is missing"));
    }
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '#');
        !joins(line[..at].chars().next_back()) && !joins(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(Path::new(path), text)).into_iter().map(|f| f.rule).collect()
    }

    fn good(path: &str, text: &str) {
        assert_eq!(found(path, text), Vec::<String>::new(), "{text}");
    }

    fn bad(path: &str, text: &str, rule: &str) {
        let found = found(path, text);
        assert!(found.len() == 1 && found[0].contains(rule), "{text}: {found:?}");
    }

    const LOG: &str = "crates/log/src/reading/read.rs";
    const SYS: &str = "crates/sys/src/map.rs";

    #[test]
    fn files_have_a_bound_that_tests_do_not_count_against() {
        good(LOG, &"// a line\n".repeat(600));
        bad(LOG, &"// a line\n".repeat(601), "601 lines");
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// a line\n".repeat(700));
        good(LOG, &format!("{}{tests}", "// a line\n".repeat(500)));
    }

    #[test]
    fn functions_have_a_bound() {
        let of = |lines: usize| format!("fn f(x: u8) {{\n{}}}\nfn g() {{}}\n", "    x;\n".repeat(lines - 2));
        good(LOG, &of(70));
        bad(LOG, &of(71), "71 lines");
        good("crates/log/tests/a.rs", &of(90));
    }

    #[test]
    fn comments_are_as_wide_as_code_and_tables_as_wide_as_they_need() {
        let (fits, wide) = ("x ".repeat(53), "x ".repeat(54));
        good(LOG, &format!("/// {fits}\n"));
        bad(LOG, &format!("/// {wide}\n"), "111 columns");
        bad(LOG, &format!("fn f() {{\n    // {wide}\n}}\n"), "columns");
        good(LOG, &format!("//! ```text\n//! {wide}\n//! ```\n//!\n//! | {wide} |\n"));
        good(LOG, &format!("let s = \"// {wide}\";\n"));
        good(LOG, &format!("/// `{wide}`.\n"));
        bad(LOG, &format!("//! ```\n//! ```\n//! {wide}\n"), "columns");
    }

    #[test]
    fn unsafe_stands_in_two_crates_and_says_why() {
        good(SYS, "fn f() {\n    // SAFETY: p is valid.\n    let x = unsafe { *p };\n}\n");
        good(SYS, "fn f() {\n    // SAFETY: p is valid.\n    let x =\n        unsafe { *p };\n}\n");
        good(SYS, "/// # Safety\n/// p is valid.\n#[inline]\npub unsafe fn f(p: *const u8) {}\n");
        good(SYS, "// Speaks of unsafe code.\nlet s = \"unsafe\";\n");
        bad(SYS, "fn f() {\n    let x = unsafe { *p };\n}\n", "SAFETY:");
        bad(SYS, "// SAFETY: too far away.\nlet a = 1;\nlet x = unsafe { *p };\n", "SAFETY:");
        bad(SYS, "pub unsafe fn f(p: *const u8) {}\n", "# Safety");
        let exported = "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn f(p: *const u8) {}\n";
        bad(SYS, exported, "# Safety");
        good(SYS, &format!("/// # Safety\n/// p is valid.\n{exported}"));
        good(SYS, "type F = unsafe extern \"C\" fn(p: *const u8);\n");
        good(SYS, "    fn f(call: unsafe extern \"C\" fn(u8));\n");
        bad(LOG, "// SAFETY: p is valid.\nlet x = unsafe { *p };\n", "outside sys and sync");
        for file in UNSAFE_FILES {
            good(file, "// SAFETY: p is valid.\nlet x = unsafe { *p };\n");
            bad(file, "let x = unsafe { *p };\n", "SAFETY:");
        }
        bad(
            "bench/src/log/ours.rs",
            "// SAFETY: p is valid.\nlet x = unsafe { *p };\n",
            "outside sys and sync",
        );
    }

    #[test]
    fn atomics_and_system_calls_keep_to_their_crates() {
        good("crates/sync/src/mailbox.rs", "use core::sync::atomic::AtomicU64;\n");
        bad(LOG, "use std::sync::atomic::AtomicU64;\n", "atomics");
        good(
            LOG,
            "use std::sync::Arc;\n#[cfg(test)]\nmod tests {\n    use std::sync::atomic::AtomicU64;\n}\n",
        );
        good(SYS, "use rustix::fs::fsync;\n");
        bad(LOG, "use rustix::fs::fsync;\n", "system calls");
        bad(LOG, "let p = libc::getpid();\n", "system calls");
        bad(LOG, "use std::fs::File;\n", "files and sockets");
        bad("crates/http/src/a.rs", "use std::net::TcpListener;\n", "files and sockets");
        good("crates/http/src/a.rs", "use std::net::SocketAddr;\n");
        good("crates/server/src/client.rs", "use std::net::TcpStream;\n");
    }

    #[test]
    fn nothing_is_left_unfinished() {
        bad(LOG, "fn f() { todo!() }\n", "todo!");
        bad(LOG, "fn f() { unimplemented!() }\n", "unimplemented!");
        bad(LOG, "fn f() { dbg!(1); }\n", "dbg!");
        bad("crates/log/tests/a.rs", "#[test]\n#[ignore]\nfn f() {}\n", "never runs");
        good(LOG, "// todo! in a comment\nlet s = \"todo!\";\n");
    }

    #[test]
    fn shipped_code_returns_its_errors() {
        bad(LOG, "fn f() { x.unwrap(); }\n", "for tests");
        bad(LOG, "fn f() { x.expect(\"a\"); }\n", "for tests");
        good(LOG, "fn f() { x.unwrap_or(0); stash.expect(); }\n");
        good(LOG, "#[cfg(test)]\nmod tests {\n    fn f() { x.unwrap(); }\n}\n");
    }

    #[test]
    fn a_crate_introduces_itself() {
        let header = "//! Records that last. Owns segments; never knows networks.\n";
        good("crates/http/src/lib.rs", &format!("{header}#![forbid(unsafe_code)]\n"));
        bad("crates/http/src/lib.rs", &format!("{header}#![deny(unsafe_code)]\n"), "forbid(unsafe_code)");
        good("crates/log/src/lib.rs", &format!("{header}#![deny(unsafe_code)]\n"));
        good("crates/sys/src/lib.rs", "//! Owns the kernel; never knows\n//! anything else.\n");
        bad("crates/log/src/lib.rs", header, "deny(unsafe_code)");
        bad("crates/http/src/lib.rs", "//! Records.\n#![forbid(unsafe_code)]\n", "first lines");
        good(LOG, "//! Reads.\n");
    }
}
