//! Every dependency's licence against the list in deny.toml, and the crates that file bans, told by
//! `cargo metadata`, so the check needs nothing but cargo. A licence expression is evaluated: `OR` needs one
//! side allowed, `AND` both, `WITH` is part of the name, and an old-style `/` is an `OR`.

use super::Finding;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Checks all packages of the dependency graph.
///
/// # Errors
/// cargo fails, or deny.toml lacks its lists.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let text = fs::read_to_string(root.join("deny.toml")).map_err(|e| format!("deny.toml: {e}"))?;
    let mut allowed = list(&text, "licenses", "allow");
    let exceptions = list(&text, "licenses", "exceptions");
    allowed.extend(exceptions.iter().filter_map(|name| exception(&text, name)));
    let banned = list(&text, "bans", "deny");
    if allowed.is_empty() || banned.is_empty() {
        return Err("deny.toml: no [licenses] allow or no [bans] deny".to_owned());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    Ok(judge(&metadata, &allowed, &banned))
}

fn judge(metadata: &Value, allowed: &BTreeSet<String>, banned: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("?");
        if banned.contains(name) {
            findings.push(Finding::new(name, "banned by deny.toml"));
        }
        match package["license"].as_str() {
            Some(licence) if permits(licence, allowed) || allowed.contains(&of_one(name, licence)) => {}
            Some(licence) => {
                findings.push(Finding::new(name, format!("licence {licence} is not in deny.toml")))
            }
            None => findings.push(Finding::new(name, "states no licence")),
        }
    }
    findings
}

/// The quoted strings of `key = [ … ]` in `[section]`; for tables in the list, their first string.
fn list(text: &str, section: &str, key: &str) -> BTreeSet<String> {
    let heading = format!("[{section}]");
    let inside = text.lines().map(str::trim).skip_while(|l| *l != heading).skip(1);
    let inside = inside.take_while(|l| !l.starts_with('['));
    let start = format!("{key} = [");
    let items = inside.skip_while(|l| !l.starts_with(&start)).skip(1).take_while(|l| !l.starts_with(']'));
    items.filter_map(|l| l.split('"').nth(1)).map(str::to_owned).collect()
}

/// A licence that one crate alone may have.
fn of_one(name: &str, licence: &str) -> String {
    format!("{licence} of {name}")
}

/// The licence that `{ crate = "name", allow = ["licence"] }` lets this crate have.
fn exception(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|l| l.contains(&format!("crate = \"{name}\"")) && l.contains("allow"))?;
    Some(of_one(name, line.split("allow = [\"").nth(1)?.split('"').next()?))
}

/// Evaluates a licence expression.
fn permits(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest, allowed) && rest.is_empty()
}

fn any_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut permitted = all_of(rest, allowed);
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        // Both sides are read, whatever the first one says.
        permitted |= all_of(rest, allowed);
    }
    permitted
}

fn all_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut permitted = one(rest, allowed);
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        permitted &= one(rest, allowed);
    }
    permitted
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let Some((first, tail)) = rest.split_first() else { return false };
    *rest = tail;
    if *first == "(" {
        let permitted = any_of(rest, allowed);
        let closes = rest.first() == Some(&")");
        *rest = rest.get(1..).unwrap_or(&[]);
        return permitted && closes;
    }
    let mut name = (*first).to_owned();
    if let ["WITH", exception, tail @ ..] = *rest {
        name = format!("{name} WITH {exception}");
        *rest = tail;
    }
    allowed.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = "[licenses]\nconfidence = 1\nallow = [\n  \"MIT\",\n  \"Unicode-3.0\",\n  \"Apache-2.0 WITH LLVM-exception\",\n]\n\n[bans]\ndeny = [\n  { crate = \"tokio\" },\n]\n";

    fn allowed() -> BTreeSet<String> {
        list(DENY, "licenses", "allow")
    }

    #[test]
    fn lists_are_read_from_their_sections() {
        assert_eq!(allowed().len(), 3);
        assert_eq!(list(DENY, "bans", "deny"), BTreeSet::from(["tokio".to_owned()]));
        assert!(list(DENY, "sources", "allow").is_empty());
    }

    #[test]
    fn expressions_are_evaluated() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0 AND X OR MIT",
        ] {
            assert!(permits(good, &allowed()), "{good}");
        }
        for bad in
            ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT", "", "MIT MIT", "MIT AND (GPL-3.0 OR X)"]
        {
            assert!(!permits(bad, &allowed()), "{bad}");
        }
    }

    #[test]
    fn an_exception_is_one_crate_s() {
        let deny = "[licenses]\nexceptions = [\n    { crate = \"tool\", allow = [\"MPL-2.0\"] },\n]\n";
        let allowed: BTreeSet<String> =
            list(deny, "licenses", "exceptions").iter().filter_map(|name| exception(deny, name)).collect();
        let metadata = serde_json::json!({"packages": [
            {"name": "tool", "license": "MPL-2.0"},
            {"name": "tool", "license": "GPL-3.0"},
            {"name": "other", "license": "MPL-2.0"},
        ]});
        let found = judge(&metadata, &allowed, &BTreeSet::new());
        let names: Vec<&str> = found.iter().map(|f| f.place.as_str()).collect();
        assert_eq!(names, ["tool", "other"]);
    }

    #[test]
    fn banned_unlicensed_and_foreign_packages_are_named() {
        let metadata = serde_json::json!({"packages": [
            {"name": "fine", "license": "MIT"},
            {"name": "tokio", "license": "MIT"},
            {"name": "bare", "license": null},
            {"name": "viral", "license": "GPL-3.0"},
        ]});
        let found = judge(&metadata, &allowed(), &list(DENY, "bans", "deny"));
        let names: Vec<&str> = found.iter().map(|f| f.place.as_str()).collect();
        assert_eq!(names, ["tokio", "bare", "viral"]);
    }
}
