//! Types as other notations write them, and how each is written here: hints for who knows those. Never
//! decides what a schema may say.

/// How a type is written here that other notations call by this name.
pub(crate) fn named(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    if let Some(bits) = lower.strip_prefix("uint").filter(|bits| is_width(bits)) {
        return Some(format!("an integer of {bits} bits without a sign is \"u{bits}\""));
    }
    if let Some(bits) = lower.strip_prefix("int").filter(|bits| is_width(bits)) {
        return Some(format!("an integer of {bits} bits is \"i{bits}\""));
    }
    let hint = match lower.as_str() {
        "int" | "uint" | "integer" | "number" | "short" | "long" => "say how wide: u32, i64, f64",
        "i128" | "u128" | "int128" | "uint128" => {
            "an integer has at most 64 bits: \"bytes\" holds a longer one"
        }
        "float" => "a float is \"f32\" or \"f64\"",
        "float32" => "a float of 32 bits is \"f32\"",
        "float64" | "double" => "a float of 64 bits is \"f64\"",
        "str" | "text" | "char" => "did you mean \"string\"?",
        "blob" | "binary" => "any number of bytes is \"bytes\"",
        "bytes32" => "exactly 32 bytes are \"bin32\"",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn is_width(bits: &str) -> bool {
    matches!(bits, "8" | "16" | "32" | "64")
}

/// How a type is written here that other notations make of another by this name, as in `list<T>`.
pub(crate) fn made_by(name: &str) -> &'static str {
    match name.to_ascii_lowercase().as_str() {
        "list" | "vec" | "vector" | "array" | "set" | "sequence" => "a list is written T[]",
        "option" | "optional" | "maybe" | "nullable" => "what may be absent is written T?",
        _ => "write map<T>",
    }
}

/// How a suffix is written here that stands where a type is to begin.
pub(crate) fn in_front(rest: &str) -> Option<&'static str> {
    match rest.as_bytes().first()? {
        b'?' => Some("? stands behind its type: T?"),
        b'[' => Some("[] stands behind its type: T[]"),
        _ => None,
    }
}
