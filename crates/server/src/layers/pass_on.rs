//! Services in front of services: what a layer has nothing to say about goes to the one behind it, its field
//! `inner`.

/// Writes methods of [`thalweg_wire::exchange::Service`] that pass on to `self.inner`.
macro_rules! pass_on {
    ($($method:ident)+) => { $($crate::layers::pass_on!(@ $method);)+ };
    (@ weight) => {
        fn weight(&self, head: &Request<'_>) -> Weight {
            self.inner.weight(head)
        }
    };
    (@ appends) => {
        fn appends(&self, head: &Request<'_>) -> bool {
            self.inner.appends(head)
        }
    };
    (@ admit) => {
        fn admit(&mut self, head: &Request<'_>, now: Now) -> Option<Response> {
            self.inner.admit(head, now)
        }
    };
    (@ alone) => {
        fn alone(&mut self, alone: bool) {
            self.inner.alone(alone);
        }
    };
    (@ look) => {
        fn look(&mut self, now: Now, each: &mut dyn FnMut(u64, Response)) -> Option<u32> {
            self.inner.look(now, each)
        }
    };
    (@ writes) => {
        fn writes(&self) -> u64 {
            self.inner.writes()
        }
    };
    (@ turn_ended) => {
        fn turn_ended(&mut self) {
            self.inner.turn_ended();
        }
    };
    (@ gone) => {
        fn gone(&mut self, later: u64) {
            self.inner.gone(later);
        }
    };
    (@ failed) => {
        fn failed(&mut self, now: Now) -> Response {
            self.inner.failed(now)
        }

        fn failed_instead_of(&mut self, answer: &Response, now: Now) -> Response {
            self.inner.failed_instead_of(answer, now)
        }
    };
    (@ watch) => {
        fn watch(&mut self, topic: &S::Topic) {
            self.inner.watch(topic);
        }
    };
    (@ unwatch) => {
        fn unwatch(&mut self, topic: &S::Topic) {
            self.inner.unwatch(topic);
        }
    };
    (@ acknowledge) => {
        fn acknowledge(&mut self, topic: &S::Topic) {
            self.inner.acknowledge(topic);
        }
    };
    (@ advance) => {
        fn advance(&mut self, topic: &S::Topic, live: &Live, now: Now) -> Advance {
            self.inner.advance(topic, live, now)
        }
    };
    (@ deadline) => {
        fn deadline(&mut self, topic: &S::Topic, live: &Live, now: Now) -> Response {
            self.inner.deadline(topic, live, now)
        }
    };
    (@ refuse) => {
        fn refuse(&mut self, refusal: &Refusal, announced: Announced<'_>, now: Now) -> Response {
            self.inner.refuse(refusal, announced, now)
        }
    };
}

pub(crate) use pass_on;
