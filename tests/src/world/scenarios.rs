//! Interleavings that broke a protocol once, or would break this one if a sentence of it were left out. Each is a few
//! lines of [`super::script`], and names the planted bugs that it must catch. They decide nothing themselves.

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What happens.
    pub name: &'static str,
    /// The planted bugs under which it fails.
    pub catches: &'static [&'static str],
    /// The lines.
    pub text: &'static str,
}

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a slow grant meets the next life of its model",
        catches: &[
            "a model takes a grant of another life",
            "home learns of a new life from its greeting alone",
        ],
        text: "
            restless
            request large 1 20
            open 0
            hold grant as slow
            door 2; deliver grant       # turn 2 overtakes turn 1
            write 0 3
            kill model 2; drop reborn
            deliver slow
            step 2; step 2; step 2; drop row
            door 2; deliver grant       # home still trusts what the dead life held",
    },
    Scenario {
        name: "a slow grant of a dead home meets a closed request",
        catches: &["a model takes a late grant of a dead home"],
        text: "
            restless
            request large 1 20
            open 0
            hold grant as slow
            door 2; deliver grant
            write 0 3
            kill home 0; wait 1; wait 2000
            step 2; deliver row         # nobody has brought the request yet
            deliver finish; drop closed
            deliver slow
            step 2; step 2; step 2; drop row
            adopt 0; deliver grant      # from an anchor of this very life",
    },
    Scenario {
        name: "a grant arrives when all is over",
        catches: &[
            "a finished request that a late grant revives is left alone",
            "a model does not name what has not moved",
        ],
        text: "
            request large 2 1
            open 0
            copy grant as late
            deliver grant; step 2; deliver row
            deliver finish; deliver finish; deliver closed; deliver closed
            expect done 0
            deliver late
            step 2; drop row            # the only word that anybody would have said of it",
    },
    Scenario {
        name: "a model has closed what a later life of home takes up",
        catches: &["only the first grant from 0 says what is asked for"],
        text: "
            request large 4 8
            open 0
            write 0 3
            kill home 0; wait 1; wait 2000
            step 2; deliver row; deliver finish; drop closed
            adopt 0; deliver grant
            expect missing
            deliver missing
            expect grant",
    },
    Scenario {
        name: "two owners share a pool that is too small",
        catches: &["a preempted owner is not told of"],
        text: "
            pool 8
            request large 3 5
            request large 3 5
            open 0; open 1
            deliver grant; deliver grant
            step 2; step 2; step 2
            expect missing",
    },
    Scenario {
        name: "a handoff is lost that committed nothing",
        catches: &["a pending request counts as work when asked"],
        text: "
            request period 2 6
            open 0
            write 0 1
            step 0; drop row",
    },
    Scenario {
        name: "the path is slower than the watchdog is patient",
        catches: &["the watchdog does not wait longer each time"],
        text: "
            latency 20000
            request large 2 3
            open 0",
    },
    Scenario {
        name: "a row is lost and the next arrives",
        catches: &["a row with a hole before it is accepted", "a hole is left to the watchdog"],
        text: "
            request large 1 5
            open 0
            deliver grant
            step 2; drop row
            step 2; deliver row
            expect grant",
    },
    Scenario {
        name: "an older grant arrives after a newer",
        catches: &["a model does not compare fences"],
        text: "
            request large 1 5
            open 0
            hold grant as old
            door 2; deliver grant
            write 0 2
            deliver old",
    },
    Scenario {
        name: "a row of an older turn arrives where the next begins",
        catches: &["home does not compare fences"],
        text: "
            request large 1 5
            open 0
            deliver grant; step 2
            hold row as late
            door 2
            deliver late",
    },
    Scenario {
        name: "a turn is granted again while its step runs",
        catches: &["a row of an older turn is not dropped when its step is done"],
        text: "
            restless
            request large 1 8
            open 0
            write 0 1
            step 2; drop row
            door 2; deliver grant
            step 2",
    },
    Scenario {
        name: "a life greets after the next one did",
        catches: &["home believes a life that is over"],
        text: "
            request large 2 4
            open 0
            kill model 2; hold reborn as first
            kill model 2; deliver reborn
            deliver first
            door 2",
    },
    Scenario {
        name: "a model dies that held much",
        catches: &["anchors of a dead life are kept", "a death is left to the watchdog"],
        text: "
            request large 2 6
            open 0
            write 0 3
            kill model 2; deliver reborn
            expect grant",
    },
    Scenario {
        name: "a door is replaced, and a grant lay behind the old one",
        catches: &["a lost door is left to the watchdog"],
        text: "
            request large 2 6
            open 0
            drop grant
            door 2
            expect grant",
    },
    Scenario {
        name: "two models take turns and nothing is fed twice",
        catches: &["home forgets what a model holds"],
        text: "
            request period 4 8
            open 0
            write 0 8
            expect fed 0 11; expect fed 2 11",
    },
    Scenario {
        name: "offers are lost, and the turn is granted again",
        catches: &["a grant does not cut back"],
        text: "
            restless
            request large 1 6
            open 0
            write 0 1
            step 2; step 2; drop row
            door 2; deliver grant",
    },
    Scenario {
        name: "a model closes a request because home did not know it, and home does by now",
        catches: &["a `Finish` of an older turn is obeyed"],
        text: "
            request large 2 6
            open 0
            write 0 2
            kill home 0; wait 1; wait 2000
            step 2; deliver row
            hold finish as late
            adopt 0; deliver grant
            deliver late",
    },
    Scenario {
        name: "a client leaves and its model does not hear of it",
        catches: &["`Finish` is said once"],
        text: "
            request large 2 6
            open 0
            write 0 2
            cancel 0; drop finish",
    },
    Scenario {
        name: "a request is closed while its step runs",
        catches: &["blocks are freed under a running step"],
        text: "
            request large 2 6
            open 0
            write 0 2
            cancel 0; deliver finish",
    },
    Scenario {
        name: "a home dies with the last token committed and the end not said",
        catches: &["a later life of a home goes on with a complete reply"],
        text: "
            request large 2 3
            open 0
            write 0 2
            step 2
            tear 1; deliver row
            adopt 0
            expect done 0; expect no grant",
    },
    Scenario {
        name: "a home dies between two handoffs",
        catches: &["a later life of a home forgets where a request stood"],
        text: "
            request propose 3 20
            open 0
            write 0 6
            kill home 0
            adopt 0",
    },
    Scenario {
        name: "a model hands over what it discarded, and gets it back",
        catches: &["a discarded token is committed", "token and route share a draw"],
        text: "
            request period 2 8
            request draw 2 8
            open 0; open 1",
    },
    Scenario {
        name: "a large model is cut off and comes back",
        catches: &["the watchdog does not wait longer each time"],
        text: "
            latency 9000
            request period 2 8
            open 0
            write 0 3
            cut 2
            step 0; step 2
            wait 5000; wait 5000; wait 5000
            mend 2",
    },
    Scenario {
        name: "a node dies with every session, and the other goes on",
        catches: &["a model does not name what has not moved"],
        text: "
            request large 2 1
            open 0
            deliver grant; step 2
            kill node 0
            drop row",
    },
];
