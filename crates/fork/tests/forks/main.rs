//! Processes that fork, with the traps that such servers have: this program is the supervisor's test, and,
//! started again by it, the server that forks.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod control;
mod copies;
mod ends;
mod hand;
mod orders;
mod programs;
mod sessions;

use std::path::Path;

type Test = (&'static str, fn());

macro_rules! tests {
    ($($module:ident: $($name:ident)+;)+) => {
        const TESTS: &[Test] = &[$($((stringify!($name), $module::$name),)+)+];
    };
}

tests! {
    copies:
        a_fork_is_a_copy_that_goes_its_own_way
        a_copy_holds_nothing_of_its_parents
        what_goes_wrong_stays_in_the_parent
        no_more_are_forked_at_once_than_there_are_places
        a_copy_listens_beside_its_parent_wherever_that_moved
        nothing_is_used_up_by_many_forks
        nothing_is_used_up_by_many_generations
        what_was_not_written_is_not_written_twice
        a_server_that_comes_is_waited_for
        a_server_that_never_comes_is_given_up
        a_server_that_comes_while_all_are_ended_is_none
        a_copy_that_hangs_on_its_way_is_ended_with_the_servers
        a_copy_that_nobody_waits_for_is_none
        a_copy_that_is_given_up_behind_its_answer_ends
        a_copy_that_is_known_is_not_given_up
        a_copy_is_not_given_up_at_another_endpoint
        a_copy_that_nobody_heard_of_ends
        a_copy_that_comes_late_is_none
        who_speaks_for_a_copy_is_none;
    orders:
        a_server_moves
        a_call_to_a_servers_former_address_is_answered
        an_answer_that_comes_late_is_the_answer_to_no_other_order
        a_server_that_hangs_is_ended_in_the_time_of_one_order
        a_server_that_is_out_of_descriptors_refuses_and_goes_on;
    ends:
        a_server_that_is_signalled_answers_what_was_begun
        a_number_is_its_process_until_it_is_released
        a_terminals_signals_are_the_supervisors_alone
        a_copy_that_may_lead_no_group_is_ended_alone
        servers_that_nobody_looks_after_any_more_end
        a_server_that_is_emancipated_late_is_not_ended
        nobody_is_left_behind_but_who_was_emancipated
        a_server_that_is_to_end_and_goes_on_is_ended_by_force
        who_is_ended_by_force_takes_what_it_has_started_with_it_and_nobody_else
        supervisors_of_one_process_have_one_reaper
        a_program_that_ends_before_it_listens_is_no_server
        a_wedged_program_is_no_server;
    sessions:
        what_may_have_been_committed_is_not_taken_back
        the_only_one_left_is_not_ended
        a_session_keeps_or_takes_back
        a_session_that_is_let_go_of_leaves_what_its_cleanup_says;
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["sum", gate] => return programs::sum(Path::new(gate)),
        ["family", gate] => return programs::family(Path::new(gate)),
        ["hesitant", gate] => return programs::hesitant(Path::new(gate)),
        ["crowded", _] => return programs::crowded(0),
        ["crowded but for one", _] => return programs::crowded(1),
        ["lingering", _] => return programs::lingering(),
        ["in a session", _] => return programs::in_a_session(),
        ["groupless"] => return programs::groupless(),
        ["pretender", _] => return programs::pretender(),
        ["talker"] => return programs::talker(),
        ["ask", endpoint] => return control::ask(Path::new(endpoint)),
        ["wedged"] => return programs::wedged(),
        ["supervise", directory] => return ends::supervise(Path::new(directory)),
        _ => {}
    }
    let wanted = words.iter().find(|word| !word.starts_with('-'));
    let chosen: Vec<&Test> =
        TESTS.iter().filter(|(name, _)| wanted.is_none_or(|w| name.contains(w))).collect();
    if words.contains(&"--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    // Each in a process of its own: a supervisor waits for every child there is.
    if let ["--one", name] = words[..] {
        let (_, test) = TESTS.iter().find(|(known, _)| *known == name).unwrap();
        return test();
    }
    let mut failed = 0;
    for (name, _) in &chosen {
        let run = std::process::Command::new(std::env::current_exe().unwrap()).args(["--one", name]).status();
        let passed = run.is_ok_and(|status| status.success());
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    println!("test result: {} passed; {failed} failed", chosen.len() - failed);
    assert_eq!(failed, 0);
}
