//! Dependencies point down only. The table says what each crate may see; a crate without a row is refused, so
//! that a new one has to state its place. The workspace lists its members in data-path order, and the table
//! is held to that order too.

use super::Finding;
use std::fs;
use std::path::Path;

/// What each crate may see of the workspace, in data-path order.
const MAY_SEE: &[(&str, &[&str])] = &[
    ("sys", &[]),
    ("sync", &["sys"]),
    ("queue", &[]),
    ("reactor", &["sys", "sync"]),
    ("events", &["sync"]),
    ("transport", &["sys", "sync", "reactor"]),
    ("wire", &[]),
    ("service", &["sys", "sync", "reactor", "transport", "wire"]),
    ("log", &["sys", "sync", "queue"]),
    ("state", &["sync", "queue", "wire", "service", "log"]),
    ("http", &["sys", "sync", "queue", "reactor", "transport", "wire"]),
    ("streams", &["queue", "wire", "log"]),
    ("schema", &[]),
    ("codegen", &["wire", "schema"]),
    ("rpc", &["sys", "sync", "reactor", "transport", "wire", "service", "http", "schema"]),
    ("fork", &["sys", "wire", "service", "schema", "rpc"]),
    ("abi", &["reactor", "transport", "wire", "service", "schema", "rpc"]),
    ("load", &["sys", "reactor", "wire", "http"]),
    (
        "server",
        &[
            "sys",
            "sync",
            "queue",
            "reactor",
            "transport",
            "wire",
            "log",
            "state",
            "http",
            "streams",
            "schema",
            "codegen",
            "rpc",
            "fork",
            "service",
            "load",
        ],
    ),
    ("erlang", &["events", "reactor", "service", "transport", "wire"]),
    ("node", &["sys", "sync", "reactor", "transport", "wire", "service", "log", "schema", "rpc"]),
    ("python", &["sys", "reactor", "events", "transport", "wire", "service", "log", "schema", "rpc"]),
    (
        "bench",
        &[
            "sys",
            "sync",
            "reactor",
            "events",
            "transport",
            "wire",
            "log",
            "service",
            "state",
            "schema",
            "rpc",
            "load",
        ],
    ),
    ("xtask", &["sys", "wire", "schema", "codegen"]),
];

/// Crates whose use is one crate's privilege.
const PRIVILEGES: [(&str, &str); 3] = [("rustix", "sys"), ("libc", "sys"), ("loom", "sync")];

/// Checks every member's manifest.
///
/// # Errors
/// A manifest cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"));
    let members = members(&read("Cargo.toml")?);
    let mut findings = order(&members);
    for member in &members {
        let path = format!("{member}/Cargo.toml");
        findings.extend(manifest(&path, name_of(member), &read(&path)?));
    }
    Ok(findings)
}

fn name_of(member: &str) -> &str {
    member.rsplit('/').next().unwrap_or(member)
}

/// The members in the order the workspace lists them.
fn members(workspace: &str) -> Vec<String> {
    let list = workspace.lines().skip_while(|l| !l.trim_start().starts_with("members")).skip(1);
    let list = list.take_while(|l| !l.trim_start().starts_with(']'));
    list.filter_map(|l| l.split('"').nth(1)).map(str::to_owned).collect()
}

fn order(members: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (n, member) in members.iter().enumerate() {
        let Some((_, sees)) = MAY_SEE.iter().find(|(name, _)| *name == name_of(member)) else {
            let rule = format!("{member} has no row in xtask/src/tidy/arrows.rs: say what it may see");
            findings.push(Finding::new("Cargo.toml", rule));
            continue;
        };
        for later in &members[n..] {
            if sees.contains(&name_of(later)) {
                findings.push(Finding::new(
                    "Cargo.toml",
                    format!("{later} is listed below {member}, which sees it"),
                ));
            }
        }
    }
    findings
}

/// Checks one manifest's dependencies, those of its tests included.
fn manifest(path: &str, name: &str, text: &str) -> Vec<Finding> {
    let sees = MAY_SEE.iter().find(|(n, _)| *n == name).map_or(&[][..], |(_, sees)| *sees);
    let mut findings = Vec::new();
    for dependency in dependencies(text) {
        if let Some(target) = dependency.strip_prefix("thalweg-")
            && !sees.contains(&target)
        {
            findings.push(Finding::new(path, format!("an arrow points up: {name} must not see {target}")));
        }
        for (private, owner) in PRIVILEGES {
            if dependency == private && name != owner {
                findings.push(Finding::new(path, format!("only {owner} uses {private}")));
            }
        }
    }
    findings
}

/// Names in `[dependencies]`, `[dev-dependencies]`, `[build-dependencies]` and their per-target kin.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut listing = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            listing = section.ends_with("dependencies");
            // `[dependencies.name]` lists one by its heading.
            if let Some((_, name)) = section.split_once("dependencies.") {
                names.push(name.trim_matches('"').to_owned());
            }
            continue;
        }
        if listing && !line.is_empty() && !line.starts_with('#') {
            let end = line.find(['.', '=', ' ']).unwrap_or(line.len());
            names.push(line[..end].trim_matches('"').to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(name: &str, text: &str) -> Vec<String> {
        manifest("Cargo.toml", name, text).into_iter().map(|f| f.rule).collect()
    }

    #[test]
    fn arrows_down_are_fine() {
        let text =
            "[package]\nname = \"x\"\n[dependencies]\nthalweg-sys.workspace = true\nbytes.workspace = true\n";
        assert!(judge("log", text).is_empty());
        assert!(judge("server", "[dependencies.thalweg-http]\nworkspace = true\n").is_empty());
    }

    #[test]
    fn arrows_up_are_not() {
        for section in ["dependencies", "dev-dependencies", "target.\"cfg(loom)\".dependencies"] {
            let text = format!("[{section}]\nthalweg-wire.workspace = true\n");
            assert!(judge("reactor", &text)[0].contains("must not see wire"), "{section}");
        }
        assert_eq!(judge("http", "[dependencies.thalweg-log]\nworkspace = true\n").len(), 1);
        assert_eq!(judge("http", "[dependencies]\nthalweg-streams = { path = \"../streams\" }\n").len(), 1);
        assert_eq!(judge("wire", "[dependencies]\nthalweg-sys.workspace = true\n").len(), 1);
    }

    #[test]
    fn privileges_are_kept() {
        assert!(judge("sys", "[dependencies]\nrustix.workspace = true\n").is_empty());
        assert_eq!(judge("log", "[dependencies]\nrustix.workspace = true\n"), ["only sys uses rustix"]);
        assert_eq!(judge("log", "[dependencies]\nloom = \"0.7\"\n"), ["only sync uses loom"]);
    }

    #[test]
    fn the_workspace_lists_its_members_in_data_path_order() {
        let list = |names: &[&str]| order(&names.iter().map(|n| format!("crates/{n}")).collect::<Vec<_>>());
        assert!(
            list(&["sys", "sync", "reactor", "transport", "wire", "log", "http", "streams", "server"])
                .is_empty()
        );
        assert_eq!(list(&["sys", "reactor", "sync"]).len(), 1);
        assert!(list(&["novelty"])[0].rule.contains("no row"));
        assert_eq!(members("members = [\n  \"crates/sys\",\n  \"xtask\",\n]\n"), ["crates/sys", "xtask"]);
    }

    #[test]
    fn the_table_itself_points_down() {
        for (n, (name, sees)) in MAY_SEE.iter().enumerate() {
            for seen in *sees {
                let at = MAY_SEE.iter().position(|(other, _)| other == seen);
                assert!(at.is_some_and(|at| at < n), "{name} sees {seen}");
            }
        }
    }
}
