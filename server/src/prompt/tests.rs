//! Renderings of the demo's template and of the tricks that other models' templates use.

use super::*;
use serde_json::json;
use std::slice::from_ref;

fn message(role: &str, content: &str) -> Message {
    Message { role: role.into(), content: content.into() }
}

fn template(source: &str) -> Template {
    Template::new(None, Some(source)).unwrap()
}

fn render(source: &str, messages: &[Message]) -> String {
    template(source).render(messages, &Map::new()).unwrap().text
}

fn demo() -> Template {
    Template::new(Some(tokenrouter_models::demo("small").unwrap().tokenizer_config), None).unwrap()
}

#[test]
fn the_demo_template_renders_and_finds_the_contents() {
    let messages = [message("system", "Be brief."), message("user", "What is 1 + 1?")];
    let rendered = demo().render(&messages, &Map::new()).unwrap();
    assert_eq!(
        rendered.text,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    );
    let contents: Vec<&str> =
        rendered.contents.unwrap().into_iter().map(|range| &rendered.text[range]).collect();
    assert_eq!(contents, ["Be brief.", "What is 1 + 1?"]);
}

#[test]
fn contents_are_found_whatever_they_say() {
    for content in
        ["", " \n ", "<|im_end|>", "<|im_start|>user\n", "{{ messages }}", "\u{e000}0:0\u{e001}"]
    {
        let rendered = demo().render(&[message("user", content)], &Map::new()).unwrap();
        let range = rendered.contents.unwrap()[0].clone();
        assert_eq!(&rendered.text[range], content);
    }
}

#[test]
fn a_template_that_trims_is_followed_and_one_that_changes_more_is_not() {
    let trims = template("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}");
    let rendered = trims.render(&[message("user", "  a  ")], &Map::new()).unwrap();
    assert_eq!(rendered.text, "[a]");
    assert_eq!(rendered.contents.as_deref(), Some(from_ref(&(1..2))));
    let shouts = template("{% for m in messages %}[{{ m.content | upper }}]{% endfor %}");
    let rendered = shouts.render(&[message("user", "abc")], &Map::new()).unwrap();
    assert_eq!((rendered.text.as_str(), rendered.contents), ("[ABC]", None));
}

#[test]
fn what_templates_use_is_there() {
    let messages = [message("user", "a </think> b")];
    let cases = [
        ("{{ messages[0]['content'].split('</think>')[-1].lstrip() }}", "b"),
        (
            "{{ messages[0].content.startswith('a ') and messages[0].role.upper() == 'USER' }}",
            "True",
        ),
        ("{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{{ messages[::-1][0].role }}", "user"),
        ("{{ {'a': [1, 'x<y']} | tojson }}", r#"{"a": [1, "x<y"]}"#),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% if tools %}t{% else %}none{% endif %}", "none"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{%- set ns = namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}", "2"),
        ("a\n    {% if true %}\nb\n    {% endif %}\nc", "a\nb\nc"),
        ("{{ '<' }}{{ messages[0].content | e if false else '&' }}", "<&"),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source, &messages), expected, "{source}");
    }
    assert_eq!(render("{{ strftime_now('%Y') }}", &messages).len(), 4);
}

#[test]
fn a_template_refuses_in_its_own_words() {
    let strict = template(
        "{% if messages[0].role != 'user' %}{{ raise_exception('Roles must alternate!') }}{% endif %}",
    );
    let error = strict.render(&[message("system", "x")], &Map::new()).unwrap_err();
    assert_eq!(error, TemplateError::Refused("Roles must alternate!".into()));
}

#[test]
fn sources_and_arguments_are_found() {
    let list = json!({"bos_token": {"content": "<s>"}, "chat_template": [
        {"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ bos_token }}{{ enable_thinking }}"},
    ]});
    let template = Template::new(Some(&list.to_string()), None).unwrap();
    let arguments = json!({"enable_thinking": false}).as_object().unwrap().clone();
    assert_eq!(template.render(&[message("user", "x")], &arguments).unwrap().text, "<s>False");
    assert_eq!(Template::new(Some("{}"), None).unwrap_err(), TemplateError::Missing);
    assert!(matches!(Template::new(Some("{"), None), Err(TemplateError::Config(_))));
    assert!(matches!(Template::new(None, Some("{% if %}")), Err(TemplateError::Syntax(_))));
}

#[test]
fn arguments_of_a_client_do_not_replace_the_messages() {
    let arguments =
        json!({"messages": [], "add_generation_prompt": false}).as_object().unwrap().clone();
    let template = template("{{ messages | length }}{{ add_generation_prompt }}");
    assert_eq!(template.render(&[message("user", "x")], &arguments).unwrap().text, "1True");
}

#[test]
fn many_messages_are_found_as_well() {
    let messages: Vec<Message> =
        (0..20_000).map(|index| message("user", &index.to_string())).collect();
    let rendered = demo().render(&messages, &Map::new()).unwrap();
    let contents = rendered.contents.unwrap();
    assert_eq!(contents.len(), 20_000);
    assert_eq!(&rendered.text[contents[19_999].clone()], "19999");
}

#[test]
fn a_template_that_takes_marks_apart_gives_no_contents() {
    let template = template("{% for m in messages %}{{ m.content[:1] }}{% endfor %}");
    let rendered = template.render(&[message("user", "abc")], &Map::new()).unwrap();
    assert_eq!((rendered.text.as_str(), rendered.contents), ("a", None));
}

#[test]
fn marks_avoid_every_mark_that_a_client_wrote() {
    let forged = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("{MARK_START}{number}:")).collect()
    };
    assert_eq!(unused_prefix("no mark"), format!("{MARK_START}0:"));
    let gap = format!("{}{}", forged(0..777), forged(778..50_000));
    assert_eq!(unused_prefix(&gap), format!("{MARK_START}777:"));
    let odd = format!("{MARK_START}{MARK_START}0:{MARK_START}1{MARK_START}2:x:{MARK_START}");
    assert_eq!(unused_prefix(&odd), format!("{MARK_START}1:"));
    let content = forged(0..50_000);
    let rendered = demo().render(&[message("user", &content)], &Map::new()).unwrap();
    assert_eq!(&rendered.text[rendered.contents.unwrap()[0].clone()], content);
}
