//! A schema full of names that some language wants for itself: keywords, words of its prelude, names in the
//! code around what is generated. A name either is refused, or compiles in every language: those that the
//! schema takes stand in it as command, type, enum, enum's word and field.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use thalweg_schema::casing::{camel, pascal, snake};

/// Reserved words of any language, in any spelling.
const WORDS: &str = "
    abstract access address alias align alignas alignof allocator allowzero and andalso answer any anyframe anyopaque anytype arena
    arguments array as ascii ask asm assert associated async asyncio atom attempt auto await band base become begin behaviour
    binary bit bits bitand bool boolean borrow borrowed box break buffer builtin byte bytes call callback callconv callable
    cancel case catch char class classmethod clear client clone close codec coerce command commands comptime concept cond
    connect const constexpr constructor context continue copy count cow crate credit current data dataclass date deadline debug
    debugger decl declare decltype decode decode-error def default defer deinit del delete describe destroy dict dispatch dispatch-unordered div do
    double drop dump dyn each echo either elif else empty encode end ensure enum err errdefer error errors eval even event
    except exception exec exit explicit export extends extern extra fail false field fields file final finally find finish
    float fn for fork forks format frame frames friend from frozenset fun function future gen generator get global goto
    group handle handler hash head hear heard hello help here id if impl implements import in index info init inline inner
    input inspect instance instanceof int integer interface into into-owned invoke is item items iterator join key kind
    lambda last left len length let lib line list load local lock loop macro main make map match max maybe member
    message method methods min mod mode module module-info move mp mut mutable name namespace native never new next nil
    no-answer noalias node noexcept none nonlocal normal noreturn nosuspend not nothing null number object of ok opaque open
    operator option optional or orelse out outer over own owned owner package packed pack pair panic parse part pass path
    pending pipeline pointer post print priv private process promise property protected protocol prototype public pub put
    query queue raise range raw read reader receive recv ref refuse refused register release rem reply repr request
    requests require requires response responses rest result resume return returns run schedule schema scope seen select self
    send sequence server service session set setter short signed size sizeof slice some spawn stack start state static
    staticmethod status std stop storage store str stream string struct sub sum super suspend switch symbol sync system
    table tag take task tell template test then this thread throw throws time timeout to to-string token trait transport true
    try tuple type typealias typedef typeof typename types undefined union unit unreachable unsafe unsized unsigned unwrap
    update use using usize value values var variant vec vector virtual void volatile wait waiting when where while
    with word words wrap write writer xor yield zip
    copy-with debug-info display eq ord partial-eq send-sync sized clone-from drop-in-place iter into-iter from-str try-from value-error range-error async-items async-call sync-transport
    bool-ean b-tree-map uint8-array text-decoder abort-signal number-format type-var enum-meta int-enum
    errno linux unix stdin stdout stderr offsetof assert thalweg erlang zig python schema-hash error-tag request-frame access-of own-ed fork-of decode-request encode-response this-is frozen-set
    basename d-fileno h-addr h-errno ifr-name major makedev minor msg-cbytes s6-addr sa-handler sa-sigaction setjmp si-addr si-fd
    si-int si-pid si-status si-uid si-value sigmask st-atime st-ctime st-mtime timeradd va-arg
    anyerror i7 u128 u65535 value-of to-locale-string has-own-property is-prototype-of property-is-enumerable";

/// Those that are commands too: some sixty, because every command costs each compiler five types.
const COMMANDS: &str = "
    allocator answer anyerror arena ask async asyncio begin begun box bytes call carrier class client clone command copy count debug decode default deinit delete
    dispatch drop encode end error-tag fields fork forks get handle heard i7 init int item items iterator list match message mp new next no-answer
    none object option own own-ed print promise reader refused reply responder result self send service sized some std str
    stream string super symbol thalweg then to-string transport type types u128 value-of vec view writer";

/// More words of one enum than compilers take through a loop without being told.
const WORDS_MANY: usize = 1_200;

/// The schema.
pub(super) fn schema() -> String {
    let words: BTreeSet<&str> = WORDS.split_whitespace().chain(COMMANDS.split_whitespace()).collect();
    let commanded: BTreeSet<&str> = COMMANDS.split_whitespace().collect();
    let mut commands = String::new();
    let mut fields = String::new();
    let mut types = String::new();
    let mut members: Vec<String> = Vec::new();
    for word in &words {
        let (name, field) = (pascal(word), snake(word));
        let of = |stream: &str| {
            format!(
                "\"{name}\": {{ \"request\": {{ \"text\": \"string\" }},{stream} \"response\": {{ \"n\": \"u8\" }} }}"
            )
        };
        if commanded.contains(word) && is_taken("", &of("")) {
            let stream = if name.len() % 3 == 0 { " \"stream\": { \"part\": \"bytes\" }," } else { "" };
            let _ = writeln!(commands, "    {},", of(stream));
        }
        let declared = format!("\"{name}\": {{ \"text\": \"string\", \"number\": \"u8\" }}");
        if is_taken(&format!("\"types\": {{ {declared} }},"), GOOD) {
            let _ = writeln!(types, "    {declared},");
        }
        // Either spelling is both in some language.
        let declared = format!("\"{}\": \"u8\"", if word.len() % 2 == 0 { field } else { camel(word) });
        if is_taken(&format!("\"types\": {{ \"Plain\": {{ {declared} }} }},"), GOOD) {
            let _ = writeln!(fields, "      {declared},");
        }
        let member = snake(word).replace('_', "-");
        if is_taken(&format!("\"enums\": {{ \"Plain\": [\"{member}\"] }},"), GOOD)
            && !members.contains(&member)
        {
            members.push(member);
        }
    }
    let members: Vec<String> = members.iter().map(|member| format!("\"{member}\"")).collect();
    let many: Vec<String> = (0..WORDS_MANY).map(|n| format!("\"w{n}\"")).collect();
    format!(
        "{{\n  \"service\": \"Anything\",\n  \"error\": {{ \"message\": \"string\" }},\n  \
         \"enums\": {{ \"EveryMember\": [{}], \"ManyMembers\": [{}] }},\n  \"types\": {{\n{types}    \"EveryField\": {{\n{fields}    }},\n  }},\n  \
         \"commands\": {{\n{commands}  }},\n}}\n",
        members.join(", "),
        many.join(", ")
    )
}

const GOOD: &str = "\"Good\": { \"request\": {}, \"response\": {} }";

/// Whether the schema language takes it.
fn is_taken(declared: &str, command: &str) -> bool {
    let text = format!(
        "{{ \"service\": \"Anything\", \"error\": {{ \"message\": \"string\" }}, {declared} \"commands\": {{ {command} }} }}"
    );
    thalweg_schema::parse("anything.jsonc", &text).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_are_names_of_each_kind_and_they_go_together() {
        let schema = super::schema();
        let service = thalweg_schema::parse("anything.jsonc", &schema).map_err(|e| e.to_string()).unwrap();
        assert!(service.commands.len() > 40 && service.types.len() > 100, "{}", service.commands.len());
        assert!(service.commands.iter().any(|command| command.name == "Stream"));
    }
}
