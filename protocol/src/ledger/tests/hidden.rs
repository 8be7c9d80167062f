//! Tables for hidden text: the client's text loses it, everything else keeps it, and no border of rows or tokens shows.

use super::*;
use tokenrouter_policies::Hidden;

/// A reply on a route that hides `<t>`, `</t>` and `<n>NUMBER</n>`.
struct Told {
    pieces: Vec<String>,
    finish: Option<Finish>,
    committed: Position,
    tokens: Vec<Token>,
}

fn tell(request: Request, rows: &[Vec<Token>]) -> Told {
    let text = |text: &str| Hidden::Text(text.to_owned());
    let (open, close) = ("<n>".to_owned(), "</n>".to_owned());
    let number = Hidden::Number { open, close, digits_max: 2 };
    let hidden = vec![text("<t>"), text("</t>"), number];
    let route = route(By { hidden, ..By::staying() });
    let prompt = request.prompt.len() as Position;
    let (pieces, finish, ledger) = walk_on(&route, request.clone(), rows);
    let reply = &ledger.tokens()[prompt as usize..];
    // Another life of the home has shown the same when it has read the same, and goes on from there.
    let cut = reply.len() / 2;
    let (adopted, ended) = Ledger::adopt(rid(1), request.clone(), &route, &reply[..cut], None);
    let (before, _, direct) = walk_on(&route, request, &[reply[..cut].to_vec()]);
    assert!(before.len() <= 1 && ended.is_none() && adopted.reply.held == direct.reply.held);
    let told =
        Told { pieces, finish, committed: ledger.committed() - prompt, tokens: reply.to_vec() };
    assert_eq!(told.tokens, rows.concat()[..told.committed as usize], "every model sees all");
    told
}

/// A text, its tokens, what a client sees of it, and what it waits for at the end.
#[test]
fn hidden_text_is_lost_wherever_it_is_cut() {
    let cases: [(Vec<Token>, &str); 9] = [
        (letters("1<t>2</t>3"), "123"),
        (letters("<t></t>"), ""),
        (letters("a<n>12</n>b<n>123</n>"), "ab<n>123</n>"),
        (letters("a < b <x> <tt>"), "a < b <x> <tt>"),
        (letters("<<t>t>"), "<t>"),
        // One token ends a tag and goes on; another is half a character beside one.
        ([letters("x<t>y"), vec![TAG_BLANK], letters("z")].concat(), "xy\n\nz"),
        ([vec![BLANK_TAG], letters("z")].concat(), "\n\nz"),
        ([vec![HALVES[0]], letters("<t>"), vec![HALVES[1]]].concat(), "é"),
        // What is no tag in the end is text after all.
        (letters("ab</"), "ab</"),
    ];
    for (tokens, expected) in cases {
        for size in 1..=tokens.len() {
            let rows: Vec<Vec<Token>> = tokens.chunks(size).map(<[Token]>::to_vec).collect();
            let max_tokens = tokens.len() as Position;
            let told = tell(Request { max_tokens, ..request("p") }, &rows);
            assert_eq!(told.pieces.concat(), expected, "{expected:?} in rows of {size}");
            assert_eq!((told.finish, told.committed), (Some(Finish::Length), max_tokens));
        }
    }
}

#[test]
fn a_piece_holds_back_no_more_than_may_be_a_tag() {
    let rows = [letters("a<"), letters("t"), letters(">b<x"), letters("<n>1"), letters("2</n>c")];
    let told = tell(request("p"), &rows);
    assert_eq!(told.pieces, ["a", "", "b<x", "", "c"]);
    assert_eq!((told.finish, told.committed), (None, 17), "tags count as tokens of the reply");
}

/// A request that stops at this, or nowhere.
fn stopping(stop: &str) -> Request {
    let stop = if stop.is_empty() { Vec::new() } else { vec![stop.to_owned()] };
    Request { stop, ..request("p") }
}

#[test]
fn stop_strings_are_looked_for_in_what_is_shown() {
    // Rows are divided by `|`.
    let cases = [
        ("over a tag", "bc", "ab<t>cd", stop("bc"), 6),
        ("not in a tag", "t", "a<t>b", None, 5),
        ("not a tag itself", "<t>", "a<t>b", None, 5),
        ("over a tag and rows", "bc", "ab|<t|>|cd", stop("bc"), 6),
        ("in what was nearly one", "<x", "a<|x>", stop("<x"), 3),
        ("when it turns out not to be one", "</x", "a<|/|x", stop("</x"), 4),
        ("the tag before it is gone", "b", "a<t>b", stop("b"), 5),
    ];
    for (what, end, rows, finish, committed) in cases {
        let rows: Vec<Vec<Token>> = rows.split('|').map(letters).collect();
        let told = tell(stopping(end), &rows);
        assert_eq!((told.finish, told.committed), (finish, committed), "{what}");
        assert!(!told.pieces.concat().contains(end), "{what}: {:?}", told.pieces);
    }
}

#[test]
fn the_end_of_a_reply_settles_what_was_held_back() {
    let end = Some(Finish::Eos(EOS));
    let cases = [
        ("half a tag is text", "", "a<t", "a<t", end.clone()),
        ("a whole one is not", "", "a<t>", "a", end.clone()),
        ("half a tag is a stop string", "<t", "a<t", "a", stop("<t")),
        ("it begins one", "<tx", "a<t", "a<t", end),
        ("it ends one", "a<", "a<", "", stop("a<")),
    ];
    for (what, end, text, shown, finish) in cases {
        let told = tell(stopping(end), &[[letters(text), vec![EOS]].concat()]);
        assert_eq!((told.pieces.concat().as_str(), told.finish), (shown, finish), "{what}");
    }
}
