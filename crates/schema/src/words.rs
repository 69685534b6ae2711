//! Words that are taken: reserved by a target language, or used by the code around what is generated. A name
//! that becomes one of them would compile in some languages and not in others, so it is refused for all.

use crate::casing::{camel, snake};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Words a value's name (field, enum member) may not become.
const VALUES: &[(&str, &str)] = &[
    (
        "C++",
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class \
         compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype \
         default delete do double dynamic_cast else enum explicit export extern false float for friend goto if \
         inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public \
         register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct \
         switch template this thread_local throw true try typedef typeid typename union unsigned using virtual \
         void volatile wchar_t while xor xor_eq \
         alloca basename be16toh be32toh be64toh d_fileno errno h_addr h_errno htobe16 htobe32 htobe64 htole16 \
         htole32 htole64 ifa_broadaddr ifa_dstaddr ifc_buf ifc_req ifr_addr ifr_bandwidth ifr_broadaddr ifr_data \
         ifr_dstaddr ifr_flags ifr_hwaddr ifr_ifindex ifr_map ifr_metric ifr_mtu ifr_name ifr_netmask ifr_newname \
         ifr_qlen ifr_slave issubnormal le16toh le32toh le64toh linux math_errhandling msg_cbytes offsetof \
         pthread_cleanup_pop pthread_cleanup_pop_restore_np pthread_cleanup_push pthread_cleanup_push_defer_np \
         s6_addr s6_addr16 s6_addr32 sa_handler sa_sigaction sched_priority si_addr si_addr_lsb si_arch si_band \
         si_call_addr si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr si_status si_stime si_syscall \
         si_timerid si_uid si_upper si_utime si_value sigev_notify_attributes sigev_notify_function st_atime \
         st_ctime st_mtime stderr stdin stdout unix",
    ),
    (
        "Rust",
        "abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen \
         if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait \
         true try type typeof unsafe unsized use virtual where while yield",
    ),
    (
        "Python",
        "False None True and as assert async await break class continue def del elif else except finally for from \
         global if import in is lambda nonlocal not or pass raise return try while with yield",
    ),
    (
        "TypeScript",
        "arguments await break case catch class const constructor continue debugger default delete do else enum eval \
         export extends false finally for function if implements import in instanceof interface let new null package \
         private protected prototype public return static super switch this throw true try typeof undefined var \
         void while with yield \
         hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf",
    ),
    (
        "Zig",
        "addrspace align allowzero and anyframe anyopaque anytype asm async await bool break callconv catch comptime \
         const continue defer else enum errdefer error export extern f16 f32 f64 f80 f128 false fn for i8 i16 i32 i64 \
         i128 if inline isize linksection noalias noinline noreturn nosuspend null opaque or orelse packed pub resume \
         return struct suspend switch test threadlocal true try type u8 u16 u32 u64 u128 undefined union unreachable \
         usingnamespace usize var void volatile while",
    ),
    (
        "Erlang",
        "after and andalso band begin bnot bor bsl bsr bxor case catch cond div else end fun if let maybe not of or \
         orelse receive rem try when xor",
    ),
];

/// Words a method's name may not become, beside those of values: generated clients and servers have them
/// already.
const METHODS: &str = "access behaviour_info call decode deinit dispatch encode error error_tag init \
    module_info mp new ok own over service std then types";

/// Macros of C's library that stand in place of a method's name, since they take arguments as it does. A
/// field or an enum's word may have such a name.
const CALLED: &str = "assert assert_perror major makedev minor setjmp sigmask sigsetjmp strdupa strndupa timeradd timerclear \
    timercmp timerisset timersub va_arg va_copy va_end va_start";

/// Words a type's name, or a message's, may not become: the generated code or its language's prelude uses
/// them.
const TYPES: &str = "Access Allocator Any Array AsyncCall AsyncGenerator AsyncItems AsyncIterator AsyncTransport Boolean Borrowed BTreeMap Box Call CallError CallOptions Callable ClassVar Codec Command \
    Cow DecodeError DecodeErrorKind Default Enum Err Error Exception False Fields Final Fork Function Int Iterator List Map Message Never \
    NewType None Number Object Ok Option Optional Ordering Owned Promise Protocol RangeError Reader Record Reply Request Responder Response \
    Result Schedule Self Send Set Sized Some StrEnum Storage Stream String Symbol SyncCallOptions SyncReply SyncService SyncTransport Transport Tuple Type TypeAlias Uint8Array Union ValueError Vec \
    Writer";

/// Macros of C's library, which stand in place of a type's name wherever a header that C++ brings along
/// defines them.
const MACROS: &str = "\
    BUFSIZ CSIGNAL E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EADV EAFNOSUPPORT EAGAIN EALREADY EBADE EBADF EBADFD \
    EBADMSG EBADR EBADRQC EBADSLT EBFONT EBUSY ECANCELED ECHILD ECHRNG ECOMM ECONNABORTED ECONNREFUSED ECONNRESET \
    EDEADLK EDEADLOCK EDESTADDRREQ EDOM EDOTDOT EDQUOT EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM \
    EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR EISNAM EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT EL2NSYNC \
    EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN ELNRNG ELOOP EMEDIUMTYPE EMFILE EMLINK EMSGSIZE EMULTIHOP \
    ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH ENFILE ENOANO ENOBUFS ENOCSI ENODATA ENODEV ENOENT ENOEXEC \
    ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENONET ENOPKG ENOPROTOOPT ENOSPC ENOSR ENOSTR ENOSYS ENOTBLK \
    ENOTCONN ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE ENOTSOCK ENOTSUP ENOTTY ENOTUNIQ ENXIO EOF EOPNOTSUPP \
    EOVERFLOW EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPROTO EPROTONOSUPPORT EPROTOTYPE ERANGE EREMCHG EREMOTE EREMOTEIO \
    ERESTART ERFKILL EROFS ESHUTDOWN ESOCKTNOSUPPORT ESPIPE ESRCH ESRMNT ESTALE ESTRPIPE ETIME ETIMEDOUT \
    ETOOMANYREFS ETXTBSY EUCLEAN EUNATCH EUSERS EWOULDBLOCK EXDEV EXFULL INFINITY MAXFLOAT NAN NFDBITS NULL NZERO \
    SNAN SNANF SNANF128 SNANF32 SNANF32X SNANF64 SNANF64X SNANL WCONTINUED WEOF WEXITED WEXITSTATUS WIFCONTINUED \
    WIFEXITED WIFSIGNALED WIFSTOPPED WNOHANG WNOWAIT WSTOPPED WSTOPSIG WTERMSIG WUNTRACED";

/// Words a service's name may not become, beside C++'s, which alone makes it an identifier of its own:
/// namespaces that generated code stands beside or in.
const SERVICES: &str = "std thalweg";

/// Words an enum's may not become, beside those of values: names in whose sight enums are declared.
const MEMBERS: &str = "error_tag schema_hash";

/// Who reserves each word of [`VALUES`]: the first there.
static VALUE_OWNERS: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let mut owners = BTreeMap::new();
    for (language, words) in VALUES {
        for word in words.split_whitespace() {
            owners.entry(word).or_insert(*language);
        }
    }
    owners
});

/// Who reserves each word of [`TYPES`] and [`MACROS`].
static TYPE_OWNERS: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let macros = MACROS.split_whitespace().map(|word| (word, "a macro of C's library"));
    macros.chain(TYPES.split_whitespace().map(|word| (word, "the generated code"))).collect()
});

/// What some language appends to a type's name, or puts before it.
const DERIVED: [(&str, &str); 3] = [("", "View"), ("", "Codec"), ("Basic", "")];

/// What stands beside a type of this name in some language, each a name that nothing else may have.
pub(crate) fn derived(name: &str) -> [String; DERIVED.len()] {
    DERIVED.map(|(before, behind)| format!("{before}{name}{behind}"))
}

/// Names that no other struct may have beside a struct of this name, each with what both would have beside
/// them: C++ alone puts something before a name and something behind it.
pub(crate) fn rivals(name: &str) -> impl Iterator<Item = (String, String)> {
    let both = |stem: &str| format!("Basic{stem}View");
    let view = name.strip_prefix("Basic").map(|stem| (format!("{stem}View"), both(stem)));
    let basic = name.strip_suffix("View").map(|stem| (format!("Basic{stem}"), both(stem)));
    view.into_iter().chain(basic)
}

/// The language, or other owner, that reserves this enum's word.
pub(crate) fn reserves_member(word: &str) -> Option<&'static str> {
    let taken = MEMBERS.split_whitespace().any(|w| w == word);
    reserves_value(word).or(taken.then_some("the generated code"))
}

/// The language that reserves this value's name.
pub(crate) fn reserves_value(word: &str) -> Option<&'static str> {
    VALUE_OWNERS.get(word).copied()
}

/// What the method of a command would be called in some language where that is reserved, and by whom, if
/// anywhere.
///
/// ```
/// assert_eq!(thalweg_schema::reserves_command("ToString"), Some(("toString".to_owned(), "TypeScript")));
/// ```
pub fn reserves_command(name: &str) -> Option<(String, &'static str)> {
    let reserved = |word: String| reserves_method(&word).map(|owner| (word, owner));
    [snake(name), camel(name)].into_iter().find_map(reserved)
}

/// Whether a language, by the name it has in messages, keeps this word for itself.
///
/// ```
/// assert!(thalweg_schema::is_word_of("Rust", "match") && !thalweg_schema::is_word_of("Rust", "class"));
/// ```
pub fn is_word_of(language: &str, word: &str) -> bool {
    VALUES.iter().any(|(of, words)| *of == language && words.split_whitespace().any(|w| w == word))
}

/// The language, or other owner, that reserves this method's name.
fn reserves_method(word: &str) -> Option<&'static str> {
    let is_one_of = |words: &str| words.split_whitespace().any(|w| w == word);
    let taken = is_one_of(METHODS).then_some("the generated code");
    let called = is_one_of(CALLED).then_some("a macro of C's library");
    reserves_value(word).or(taken).or(called).or(is_zig_type(word).then_some("Zig"))
}

/// Whether this is a type in every Zig file, so that no function there can have its name.
fn is_zig_type(word: &str) -> bool {
    let bits = word.strip_prefix(['i', 'u']).unwrap_or_default();
    word == "anyerror" || (!bits.is_empty() && bits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The owner that reserves this name of a service's namespace.
pub fn reserves_service(word: &str) -> Option<&'static str> {
    let taken = SERVICES.split_whitespace().any(|w| w == word);
    reserves_value(word).filter(|language| *language == "C++").or(taken.then_some("the generated code"))
}

/// Whether this type's name is taken.
pub(crate) fn reserves_type(word: &str) -> Option<&'static str> {
    TYPE_OWNERS.get(word).copied().or_else(|| reserves_value(word))
}
