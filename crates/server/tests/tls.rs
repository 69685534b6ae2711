//! The program over TLS, as curl and its own verbs see it.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{PROGRAM, Server, fails, says};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: String =
        text.as_bytes().chunks(64).map(|line| format!("{}\n", str::from_utf8(line).unwrap())).collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

/// Writes a certificate of our own making, and its key, for this machine.
fn certify(directory: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    std::fs::write(&certificate, pem("CERTIFICATE", made.cert.der())).unwrap();
    std::fs::write(&key, pem("PRIVATE KEY", &made.signing_key.serialize_der())).unwrap();
    (certificate, key)
}

fn start(directory: &Path) -> (Server, String, String) {
    let (certificate, key) = certify(directory);
    let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let more = ["--tls-certificate", files[0], "--tls-key", files[1], "--log-level", "info"];
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(directory.join("data"));
    command.args(more).stderr(Stdio::null());
    let server = Server::started(command);
    let greeted = server.greeting.split_whitespace().find(|word| word.starts_with("https://"));
    let url = greeted.unwrap().to_owned();
    (server, url, files[0].to_owned())
}

fn curl(ca: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "--cacert", ca]).args(arguments);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn curl_writes_reads_catches_up_and_follows() {
    let directory = tempfile::tempdir().unwrap();
    let (server, url, ca) = start(directory.path());
    assert!(server.greeting.contains(" in TLS handshakes; "), "{}", server.greeting);
    let stream = format!("{url}/v1/stream/a");
    let status = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}"];
    let (_, said) =
        curl(&ca, &[&["-X", "PUT", "-H", "Content-Type: text/plain", &stream], &status[..]].concat());
    assert_eq!(said, "201 1.1");
    // Several megabytes in, and out again in one connection.
    let body = directory.path().join("body");
    let text = "0123456789abcdef".repeat(256 * 1024);
    std::fs::write(&body, &text).unwrap();
    let data = format!("@{}", body.display());
    for _ in 0..2 {
        let post = ["-X", "POST", "-H", "Content-Type: text/plain", "--data-binary", &data, &stream];
        assert!(curl(&ca, &[&post[..], &status[..]].concat()).1.starts_with("204"));
    }
    let read = says(&url, &["read", "a", "--tls-ca", &ca]);
    assert_eq!(read.len(), 2 * text.len());
    says(&url, &["close", "a", "--tls-ca", &ca]);
    let (_, events) = curl(&ca, &["-N", &format!("{stream}?offset=-1&live=sse")]);
    assert!(events.contains("event: data") && events.contains("streamClosed"), "{}", events.len());
    // Nobody is believed who is not trusted, and nobody is served who speaks HTTP.
    assert_eq!(Command::new("curl").args(["-s", &stream]).output().unwrap().status.code(), Some(60));
    let (_, said) = curl(&ca, &[&url.replace("https:", "http:")]);
    assert!(said.contains("https://"), "{said}");
    let (code, said) = fails(&url, &["read", "a"]);
    assert!(code == 3 && said.contains("--tls-ca"), "{said}");
    server.end();
}

#[test]
fn what_it_says_of_itself_begins_with_https() {
    let directory = tempfile::tempdir().unwrap();
    let (server, url, ca) = start(directory.path());
    let stream = format!("{url}/v1/stream/a");
    let (_, said) = curl(&ca, &["-i", "-X", "PUT", &stream]);
    assert!(said.to_lowercase().contains(&format!("location: {stream}\r\n")), "{said}");
    let subscription = format!("{url}/v1/stream/__ds/subscriptions/s");
    let wish = r#"{"type":"webhook","pattern":"events/*","webhook":{"url":"https://hook.example/"}}"#;
    let json = ["-X", "PUT", "-H", "Content-Type: application/json", "-d", wish];
    let (_, said) = curl(&ca, &[&json[..], &[&subscription]].concat());
    assert!(said.contains(&format!("\"jwks_url\":\"{url}/v1/stream/__ds/jwks.json\"")), "{said}");
    // A request may name the whole of it (RFC 9112 3.2.2).
    let (_, said) = curl(&ca, &["-o", "/dev/null", "-w", "%{http_code}", "--request-target", &stream, &url]);
    assert_eq!(said, "200");
    server.end();
}

#[test]
fn the_verbs_and_the_load_speak_tls_and_a_new_certificate_needs_no_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (server, url, ca) = start(directory.path());
    says(&url, &["create", "notes", "--content-type", "application/json", "--tls-ca", &ca]);
    says(&url, &["append", "notes", "{\"a\":1}", "--tls-ca", &ca]);
    says(&url, &["close", "notes", "--tls-ca", &ca]);
    assert!(says(&url, &["tail", "notes", "--tls-ca", &ca]).contains("{\"a\":1}"));
    let bench = ["--output", "json", "bench", "append", "--connections", "4", "--operations", "200"];
    let report = says(&url, &[&bench[..], &["--warm-up-ms", "0", "--tls-ca", &ca]].concat());
    assert!(report.contains("\"failed\":0"), "{report}");
    let metrics = curl(&ca, &[&format!("{url}/metrics")]).1;
    assert!(metrics.contains("thalweg_tls_handshakes_total{reactor=\"0\"}"), "{metrics}");
    // The file is another one, and so is whom clients have to trust.
    certify(directory.path());
    assert_eq!(fails(&url, &["head", "notes", "--tls-ca", &ca]).0, 3);
    server.signal("HUP");
    let start = Instant::now();
    while fails(&url, &["head", "notes", "--tls-ca", &ca]).0 != 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "the new certificate is never used");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.end();
}

#[test]
fn certificate_and_key_come_together_and_are_no_reason_to_let_everybody_in() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certify(directory.path());
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let data = directory.path().join("data");
    let serve = [
        "serve",
        "--data",
        data.to_str().unwrap(),
        "--listen",
        "0.0.0.0:0",
        "--tls-certificate",
        certificate,
    ];
    assert_eq!(fails("", &serve).0, 2);
    let (code, said) = fails("", &[&serve[..], &["--tls-key", key]].concat());
    assert!(code == 1 && said.contains("--tokens"), "{said}");
    let open = [&serve[..], &["--insecure-listen-anywhere", "--tls-key", "/nowhere"]].concat();
    let (code, said) = fails("", &open);
    assert!(code == 1 && said.contains("/nowhere"), "{said}");
}
