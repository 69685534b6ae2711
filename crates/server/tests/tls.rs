//! The program over TLS, as curl and its own verbs see it.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{PATIENCE, PROGRAM, Server, fails, says, until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use std::os::unix::fs::PermissionsExt;
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
fn certify(directory: &Path, is_ca: IsCa) -> (PathBuf, PathBuf) {
    let mut parameters = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    parameters.is_ca = is_ca;
    let signing_key = KeyPair::generate().unwrap();
    let made = parameters.self_signed(&signing_key).unwrap();
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    std::fs::write(&certificate, pem("CERTIFICATE", made.der())).unwrap();
    std::fs::write(&key, pem("PRIVATE KEY", &signing_key.serialize_der())).unwrap();
    (certificate, key)
}

/// The file that a server is started with.
const CONFIGURATION: &str = "thalweg.toml";

fn start(directory: &Path) -> (Server, String, String) {
    start_with(directory, IsCa::NoCa)
}

fn start_with(directory: &Path, is_ca: IsCa) -> (Server, String, String) {
    let (certificate, key) = certify(directory, is_ca);
    let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let configuration = directory.join(CONFIGURATION);
    std::fs::write(&configuration, "log_level = 'info'").unwrap();
    let more = ["--tls-certificate", files[0], "--tls-key", files[1], "--config"];
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(directory.join("data"));
    command.args(more).arg(configuration).stderr(Stdio::null());
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
    let plain = url.replace("https:", "http:");
    for verb in [&["read", "a"][..], &["head", "a"], &["tail", "a"], &["append", "a", "x"], &["cp", "a", "b"]]
    {
        let (code, said) = fails(&plain, verb);
        assert!(code == 1 && said.contains("This address speaks TLS: use https://"), "{verb:?}: {said}");
    }
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
    certify(directory.path(), IsCa::NoCa);
    assert_eq!(fails(&url, &["head", "notes", "--tls-ca", &ca]).0, 3);
    // It need not wait for a configuration that is right.
    std::fs::write(directory.path().join(CONFIGURATION), "log_level = 'wrong'").unwrap();
    server.signal("HUP");
    let start = Instant::now();
    while fails(&url, &["head", "notes", "--tls-ca", &ca]).0 != 0 {
        assert!(start.elapsed() < PATIENCE, "the new certificate is never used");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.end();
}

#[test]
fn certificate_and_key_come_together_and_are_no_reason_to_let_everybody_in() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certify(directory.path(), IsCa::NoCa);
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
    assert!(code == 2 && said.contains("--tokens") && said.contains("reach https://0.0.0.0:0,"), "{said}");
    let open = [&serve[..], &["--insecure-listen-anywhere", "--tls-key", "/nowhere"]].concat();
    let (code, said) = fails("", &open);
    assert!(code == 2 && said.contains("/nowhere"), "{said}");
    // A key, and one that is another certificate's.
    let elsewhere = tempfile::tempdir().unwrap();
    let (_, other) = certify(elsewhere.path(), IsCa::NoCa);
    let open = [&serve[..], &["--insecure-listen-anywhere", "--tls-key", other.to_str().unwrap()]].concat();
    let (code, said) = fails("", &open);
    assert!(code == 2 && said.contains(".pem: "), "{said}");
}

/// `serve` with a file that says so, and an environment.
fn serve(directory: &Path, text: &str, flags: &[&str], environment: &[(&str, &str)]) -> Command {
    let file = directory.join("thalweg.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args("serve --listen 127.0.0.1:0 --durability memory --reactors 1 --config".split(' '));
    command.arg(file).args(flags).envs(environment.iter().copied());
    command
}

#[test]
fn half_of_it_is_refused_wherever_it_comes_from() {
    let directory = tempfile::tempdir().unwrap();
    let half = |text: &str, flags: &[&str], environment: &[(&str, &str)]| {
        let output = serve(directory.path(), text, flags, environment).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = half("tls_certificate = \"/nonexistent/cert.pem\"\n", &[], &[]);
    assert!(code == Some(2) && said.contains("`tls_key` is not"), "{said}");
    assert!(said.contains("thalweg.toml:1)") && said.contains("THALWEG_TLS_KEY"), "{said}");
    let (code, said) = half("", &["--tls-certificate", "c.pem"], &[]);
    assert!(code == Some(2) && said.contains("`tls_certificate` is given (flag)"), "{said}");
    let (code, said) = half("", &[], &[("THALWEG_TLS_KEY", "k.pem")]);
    assert!(code == Some(2) && said.contains("given (environment THALWEG_TLS_KEY)"), "{said}");
    assert!(said.contains("--tls-certificate"), "{said}");
}

#[test]
fn certificate_and_key_may_come_from_two_places() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certify(directory.path(), IsCa::NoCa);
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let log = directory.path().join("log");
    let in_file = format!("tls_key = \"{key}\"\n");
    let environment = [("THALWEG_TLS_CERTIFICATE", certificate)];
    let certificate_too = format!("{in_file}tls_certificate = \"{certificate}\"\n");
    for (text, flags, environment) in [
        (&in_file[..], &[][..], &environment[..]),
        (&in_file, &["--tls-certificate", certificate], &[]),
        ("", &["--tls-key", key], &environment),
    ] {
        let mut command = serve(directory.path(), text, flags, environment);
        command.stderr(std::fs::File::create(&log).unwrap());
        let server = Server::started(command);
        assert!(server.greeting.contains("on https://127.0.0.1:"), "{}", server.greeting);
        server.end();
    }
    // A reload judges the same: a file that became half of it changes nothing.
    let mut command = serve(directory.path(), &certificate_too, &[], &[]);
    command.stderr(std::fs::File::create(&log).unwrap());
    let server = Server::started(command);
    std::fs::write(directory.path().join("thalweg.toml"), &in_file).unwrap();
    server.signal("HUP");
    let start = Instant::now();
    while !std::fs::read_to_string(&log).unwrap().contains("`tls_certificate` is not") {
        assert!(start.elapsed() < PATIENCE, "{}", std::fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(std::fs::read_to_string(&log).unwrap().contains("the configuration is not reloaded"));
    server.end();
}

#[test]
fn an_authoritys_certificate_is_no_servers_and_whoever_shows_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (server, url, ca) = start_with(directory.path(), IsCa::Ca(BasicConstraints::Unconstrained));
    let (code, said) = fails(&url, &["head", "a", "--tls-ca", &ca]);
    assert!(code == 3 && said.contains("CA:FALSE") && !said.contains("--tls-ca"), "{said}");
    server.end();
}

#[test]
fn a_key_that_every_user_may_read_is_warned_of_at_the_start_and_when_it_is_read_again() {
    const SAID: &str = "every user of this machine may read the certificate's key";
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certify(directory.path(), IsCa::NoCa);
    let flags = ["--tls-certificate", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let log = directory.path().join("log");
    let said = || std::fs::read_to_string(&log).unwrap().matches(SAID).count();
    for (mode, wanted) in [(0o640, 0), (0o604, 2)] {
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = serve(directory.path(), "", &flags, &[]);
        command.stderr(std::fs::File::create(&log).unwrap());
        let server = Server::started(command);
        server.signal("HUP");
        until("the reload", || std::fs::read_to_string(&log).unwrap().contains("configuration read again"));
        server.end();
        assert_eq!(said(), wanted, "{mode:o}");
    }
}
