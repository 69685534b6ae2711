//! What a client reads that a server or a person wrote.

use super::glob::Glob;
use super::url::Url;
use thalweg_wire::sse::read::{Control, Event, Events};

/// The longest name, in characters, that a slow matcher is asked about.
const NAME_MAX: usize = 256;

/// Events are the same wherever pieces end, which the first byte says.
pub fn events(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let (front, back) = data.split_at(usize::from(*cut).min(data.len()));
    let whole = read(&[data]);
    assert_eq!(read(&[front, back]), whole);
    assert_eq!(read(&data.chunks(1).collect::<Vec<_>>()), whole);
    whole.iter().for_each(|event| drop(Control::parse(&event.data)));
}

fn read(pieces: &[&[u8]]) -> Vec<Event> {
    let (mut events, mut all) = (Events::default(), Vec::new());
    for piece in pieces {
        events.push(piece);
        all.extend(std::iter::from_fn(|| events.next()));
    }
    all
}

/// What a server writes, a payload and how its stream stands, comes to a client as it was.
pub fn written(payload: &[u8], next: &str, cursor: Option<u64>, closed: bool, stream: &[u8]) {
    let all = read(&[stream]);
    let [data, control] = &all[..] else { panic!("{} events", all.len()) };
    assert_eq!((data.kind.as_str(), &data.data[..], control.kind.as_str()), ("data", payload, "control"));
    let control = Control::parse(&control.data).expect("a control event that says nothing");
    let cursor = cursor.map(|cursor| cursor.to_string());
    assert_eq!(control, Control { next_offset: next.to_owned(), cursor, closed });
}

/// A pattern and a name, with a zero between: they match if a table of all their beginnings says so.
pub fn globs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (pattern, name) = text.split_once('\0').unwrap_or((text, "a/b"));
    if pattern.len() > NAME_MAX || name.len() > NAME_MAX {
        return;
    }
    let glob = Glob::new(pattern);
    let matches = glob.matches(name);
    assert_eq!(matches, plain(pattern.trim_start_matches('/'), name));
    assert!(!matches || name.starts_with(&glob.prefix()));
}

/// By the definition: `**` is anything, `*` anything but slashes.
fn plain(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let mut rows = vec![vec![false; name.len() + 1]; pattern.len() + 1];
    rows[0][0] = true;
    for (at, wanted) in pattern.iter().enumerate() {
        let deep = at > 0 && pattern[at - 1] == '*' || pattern.get(at + 1) == Some(&'*');
        for end in 0..=name.len() {
            let last = end.checked_sub(1).map(|last| (name[last], last));
            rows[at + 1][end] = match (wanted, last) {
                ('*', None) => rows[at][end],
                ('*', Some((character, last))) => {
                    rows[at][end] || (deep || character != '/') && rows[at + 1][last]
                }
                (_, None) => false,
                ('?', Some((character, last))) => character != '/' && rows[at][last],
                (wanted, Some((character, last))) => *wanted == character && rows[at][last],
            };
        }
    }
    rows[pattern.len()][name.len()]
}

/// A server's address that is taken can stand in the head of a request.
pub fn addresses(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(url) = Url::parse(text) else { return };
    let sound = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(sound(&url.host) && sound(&url.prefix), "{url:?}");
    assert!(url.is_same_server(&Url::parse(url.text()).expect("an address")));
}
