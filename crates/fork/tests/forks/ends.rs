//! How servers end: by orders, signals and force, with their supervisor, or without it.

use crate::control::*;
use crate::programs::{reached, started_by, wedged};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thalweg_fork::generated::types::*;
use thalweg_fork::{Options, Supervisor};
use thalweg_sys::event::EventFd;
use thalweg_sys::fork::{ExitStatus, await_any_child, release};

/// Whether a process has a signal to look at that is blocked.
fn is_told(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    pending.is_some_and(|signals| signals.trim().bytes().any(|digit| digit != b'0'))
}

#[allow(clippy::zombie_processes, reason = "the supervisor waits for every child there is")]
pub(crate) fn a_server_that_is_signalled_answers_what_was_begun() {
    let control = Control::start();
    let copy = fork(&mut control.forks(), "1").1;
    for address in [control.first(), copy] {
        let (_, process) = add(&address, 7);
        std::fs::write(&control.gate, "").unwrap();
        std::thread::scope(|scope| {
            let begun = scope.spawn(|| add(&address, 1));
            let gate = Gate(&control.gate);
            until("busy", || reached(&control.gate).exists());
            std::process::Command::new("kill").args(["-s", "TERM", &process.to_string()]).spawn().unwrap();
            until("told", || is_told(process) || !runs(process));
            drop(gate);
            assert_eq!(begun.join().unwrap(), (8, process));
        });
        until("ended", || !runs(process));
    }
    until("over", || control.supervisor.is_over());
    control.end();
}

#[allow(clippy::zombie_processes, reason = "what is tested waits for it")]
pub(crate) fn a_number_is_its_process_until_it_is_released() {
    for (words, end) in [
        ("exit 0", ExitStatus::Code(0)),
        ("exit 3", ExitStatus::Code(3)),
        ("kill -9 $$", ExitStatus::Signal(9)),
    ] {
        let child = std::process::Command::new("sh").args(["-c", words]).spawn().unwrap();
        let is_there = || Path::new(&format!("/proc/{}", child.id())).exists();
        for _ in 0..2 {
            assert_eq!(await_any_child().unwrap(), Some((child.id(), end)));
            assert!(is_there());
        }
        release(child.id());
        assert!(!is_there());
        assert_eq!(await_any_child().unwrap(), None);
    }
}

/// The group that a terminal's signals reach a process with, and the session that has the terminal.
fn group_and_session(process: u32) -> [u32; 2] {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let words = stat.rsplit(") ").next().unwrap().split(' ').skip(2);
    let numbers: Vec<u32> = words.take(2).map(|word| word.parse().unwrap()).collect();
    [numbers[0], numbers[1]]
}

pub(crate) fn a_terminals_signals_are_the_supervisors_alone() {
    let control = Control::start();
    let mut forks = control.forks();
    let (server, _, copy) = fork(&mut forks, "1");
    let (_, _, of_copy) = fork(&mut forks, &server);
    let process = add(&control.first(), 0).1;
    let [group, session] = group_and_session(std::process::id());
    assert!(![process, copy, of_copy].contains(&group));
    // Each has its own group, and what was forked its own session.
    assert_eq!(group_and_session(process), [process, session]);
    for copy in [copy, of_copy] {
        assert_eq!(group_and_session(copy), [copy, copy]);
    }
    control.end();
}

/// It is in another session than the supervisor, and in its parent's group.
pub(crate) fn a_copy_that_may_lead_no_group_is_ended_alone() {
    let control = Control::start_program("in a session", Duration::from_secs(60));
    let (_, _, copy) = fork(&mut control.forks(), "1");
    let (other, _, of_other) = fork(&mut control.forks(), "1");
    let [group, _] = group_and_session(copy);
    assert!(group != copy && group_and_session(of_other)[0] == group);
    control.supervisor.end_by_force();
    until("no process", || children() == 0);
    assert!(control.supervisor.address(&other).is_none());
    control.end();
}

pub(crate) fn servers_that_nobody_looks_after_any_more_end() {
    let mut control = Control::start();
    fork(&mut control.forks(), "1");
    assert_eq!(children(), 2);
    control.stopper.stop();
    control.thread.take().unwrap().join().unwrap();
    drop(control);
    until("no process", || children() == 0);
}

/// Outlives its supervisor, and must not outlive a test that fails: who reads the tests' output would wait
/// for it.
struct Freed(u32);

impl Drop for Freed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = thalweg_sys::fork::kill(self.0);
        }
    }
}

pub(crate) fn a_server_that_is_emancipated_late_is_not_ended() {
    let control = Control::start_with(SHORT);
    let mut forks = control.forks();
    let (one, first, process) = fork(&mut forks, "1");
    let _freed = Freed(process);
    let (other, second, process) = fork(&mut forks, "1");
    let _freed = Freed(process);
    let emancipate = |server: &str| {
        let refused = control.forks().emancipate(&ForksEmancipate { server: server.into() });
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("not_yet: "), "{refused}");
        let servers = control.servers();
        assert!(servers.iter().all(|server| !server.emancipated), "{servers:?}");
    };
    control.while_busy(&first, || emancipate(&one));
    until("known", || control.servers().iter().any(|server| *server.server == *one && server.emancipated));
    forks.shutdown(&ForksShutdown { server: one.into() }).unwrap();
    control.while_busy(&second, || {
        emancipate(&other);
        let again = control.forks().emancipate(&ForksEmancipate { server: (&*other).into() });
        let again = again.unwrap_err().to_string();
        assert!(again.contains("not_emancipated: "), "{again}");
        control.supervisor.end();
        until("the first gone", || control.servers().len() == 1);
        assert!(runs(process), "it was ended");
        assert!(!control.supervisor.is_over(), "it may be refused yet");
    });
    until("over", || control.supervisor.is_over());
    assert_eq!(add(&second, 7), (7, process));
    forks.shutdown(&ForksShutdown { server: other.into() }).unwrap();
    control.end();
}

/// Runs a supervisor in a process of its own, which this one kills.
pub(crate) fn supervise(directory: &Path) {
    let control = Control::start();
    let mut forks = control.forks();
    let mut processes = vec![add(&control.first(), 0).1, fork(&mut forks, "1").2];
    let (free, address, process) = fork(&mut forks, "1");
    forks.emancipate(&ForksEmancipate { server: free.into() }).unwrap();
    processes.push(process);
    let words: Vec<String> = processes.iter().map(ToString::to_string).collect();
    std::fs::write(directory.join("said.new"), format!("{} {address}", words.join(" "))).unwrap();
    std::fs::rename(directory.join("said.new"), directory.join("said")).unwrap();
    wedged();
}

/// The descriptors of a process by which it waits for others.
fn epolls(process: u32) -> BTreeSet<PathBuf> {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let paths = descriptors.map(|entry| entry.unwrap().path());
    let leads_to_epoll =
        |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("eventpoll"));
    paths.filter(leads_to_epoll).collect()
}

pub(crate) fn nobody_is_left_behind_but_who_was_emancipated() {
    let directory = tempfile::tempdir().unwrap();
    let mut supervisor = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["supervise".as_ref(), directory.path().as_os_str()])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = directory.path().join("said");
    until("said", || said.exists());
    let said = std::fs::read_to_string(said).unwrap();
    let words: Vec<&str> = said.split(' ').collect();
    let processes: Vec<u32> = words[..3].iter().map(|word| word.parse().unwrap()).collect();
    assert!(processes.iter().all(|process| runs(*process)));
    let _freed = Freed(processes[2]);
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    until("gone", || !runs(processes[0]) && !runs(processes[1]));
    assert_eq!(add(words[3], 3), (3, processes[2]));
    // It waits as before, and does not make anew what it waits by, which has another number then.
    let mut idle = Vec::new();
    let waits_by = |_| {
        // It wakes once for this one, and some times for the next.
        idle.push(TcpStream::connect(words[3]).unwrap());
        add(words[3], 0);
        epolls(processes[2])
    };
    let samples: Vec<_> = (0..16).map(waits_by).collect();
    assert!(samples.iter().all(|sample| *sample == samples[0]), "{samples:?}");
    thalweg_sys::fork::kill(processes[2]).unwrap();
    until("gone, too", || !runs(processes[2]));
}

pub(crate) fn a_server_that_is_to_end_and_goes_on_is_ended_by_force() {
    let control = Control::start_program("lingering", Duration::from_secs(2));
    let process = control.servers()[0].process;
    control.forks().shutdown(&ForksShutdown { server: "1".into() }).unwrap();
    assert!(!runs(process) && control.servers().is_empty());
    control.end();
}

pub(crate) fn who_is_ended_by_force_takes_what_it_has_started_with_it_and_nobody_else() {
    let control = Control::start_program("family", Duration::from_secs(2));
    let (copy, _, of_copy) = fork(&mut control.forks(), "1");
    let processes = [control.servers()[0].process, of_copy];
    let started = processes.map(|process| {
        let words = std::fs::read_to_string(started_by(&control.gate, process)).unwrap();
        words.parse::<u32>().unwrap()
    });
    assert!(started.iter().all(|process| runs(*process)));
    control.forks().shutdown(&ForksShutdown { server: copy.into() }).unwrap();
    until("gone with the copy", || !runs(started[1]));
    assert!(runs(processes[0]) && runs(started[0]), "they were not the copy's");
    control.supervisor.end();
    until("no process", || children() == 0);
    assert!(!runs(started[0]));
    control.end();
}

pub(crate) fn supervisors_of_one_process_have_one_reaper() {
    let is_reaper = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).is_ok_and(|name| name == "reaper\n")
    };
    let reapers = || {
        std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| is_reaper(task).then_some(())).count()
    };
    let controls = [(); 2].map(|()| Control::start());
    controls[0].crash("1");
    assert_eq!(reapers(), 1);
    assert!(controls[0].supervisor.is_over() && !controls[1].supervisor.is_over());
    controls[1].crash("1");
    until("no reaper", || reapers() == 0);
    // Who comes afterwards finds another.
    let control = Control::start();
    control.crash("1");
    controls.into_iter().chain([control]).for_each(Control::end);
}

/// Its end is told to the reaper of another supervisor, before somebody else says that it listens.
pub(crate) fn a_program_that_ends_before_it_listens_is_no_server() {
    let control = Control::start();
    let script =
        "exec 3<&0; (read order <&3; while kill -0 $$; do sleep 0.01; done; echo ok >&3) 2>/dev/null &";
    let options = Options::new(["sh", "-c", script].map(Into::into).to_vec(), anywhere());
    let refused = Supervisor::start(options).map(|of| of.is_over()).map_err(|error| error.to_string());
    assert_eq!(refused, Err("the process ended".to_owned()));
    until("one process", || children() == 1);
    assert!(!control.supervisor.is_over());
    control.end();
}

/// A program that never answers is given up, and ended by force.
pub(crate) fn a_wedged_program_is_no_server() {
    let this = || std::env::current_exe().unwrap().into();
    let options = Options::new(vec![this(), "wedged".into()], anywhere());
    let options = Options { patience: Duration::from_millis(200), ..options };
    let failed = Supervisor::start(options).unwrap_err().to_string();
    assert!(failed.contains("says nothing"), "{failed}");
    assert_eq!(children(), 0);
    // Nor is it blamed for a start that was cancelled.
    let bell = EventFd::new().unwrap();
    bell.signal().unwrap();
    let cancel = Some(bell.as_fd().try_clone_to_owned().unwrap());
    let options = Options::new(vec![this(), "wedged".into()], anywhere());
    let cancelled = Supervisor::start(Options { cancel, ..options }).unwrap_err();
    assert_eq!(cancelled.kind(), std::io::ErrorKind::Interrupted, "{cancelled}");
    assert_eq!(children(), 0);
    let refused = Options::new(vec![this(), "hesitant".into(), "nowhere".into()], anywhere());
    let refused = Supervisor::start(Options { servers_max: 0, ..refused }).unwrap_err().to_string();
    assert!(refused.contains("servers_full: "), "{refused}");
    assert_eq!(children(), 0, "one is left that nobody waits for");
    // What it has started ends with it.
    let family = ["sh", "-c", "sleep 120 >/dev/null & wait"].map(Into::into).to_vec();
    let options = Options { patience: Duration::from_millis(200), ..Options::new(family, anywhere()) };
    assert!(Supervisor::start(options).is_err());
    until("no process", || children() == 0);
    let missing = Options::new(vec!["/nowhere/at/all".into()], anywhere());
    assert!(Supervisor::start(missing).is_err());
}
