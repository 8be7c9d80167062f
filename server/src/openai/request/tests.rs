//! What is read, and how each fault is told.

use super::*;

fn read(body: Value) -> Result<ChatRequest, ApiError> {
    chat(body.to_string().as_bytes(), 8)
}

/// A good request with `extra` fields over it.
fn with(extra: Value) -> Value {
    let mut body = json!({"model": "demo", "messages": [{"role": "user", "content": "hi"}]});
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[test]
fn a_bare_request_has_the_defaults() {
    let request = read(with(json!({}))).unwrap();
    assert_eq!(request.messages, [Message { role: "user".into(), content: "hi".into() }]);
    assert_eq!(request.options, Options { model: "demo".into(), n: 1, ..Options::default() });
}

#[test]
fn null_is_the_same_as_absent() {
    let keys = [
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "n",
        "stop",
        "stream",
        "stream_options",
        "ignore_eos",
        "user",
        "tools",
        "tool_choice",
        "logprobs",
        "logit_bias",
        "response_format",
        "presence_penalty",
        "best_of",
        "suffix",
        "echo",
        "stop_token_ids",
        "chat_template_kwargs",
        "anything",
    ];
    let mut body = with(json!({}));
    for key in keys {
        body[key] = Value::Null;
    }
    let request = read(body).unwrap();
    assert_eq!(request.options.unknown, ["anything"]);
    assert_eq!(
        Options { unknown: vec![], ..request.options },
        read(with(json!({}))).unwrap().options
    );
}

#[test]
fn fields_are_read() {
    let request = read(with(json!({
        "max_tokens": 5, "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": -1,
        "min_p": 0.1, "seed": -1, "n": 3, "stop": ["a", "b"], "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "ignore_eos": true,
        "user": "u", "chat_template_kwargs": {"enable_thinking": false}, "future": 1,
    })))
    .unwrap();
    let options = request.options;
    assert_eq!(options.max_tokens, Some(7), "max_completion_tokens wins");
    assert_eq!(
        (options.temperature, options.top_p, options.min_p),
        (Some(0.5), Some(0.9), Some(0.1))
    );
    assert_eq!((options.top_k, options.seed, options.n), (Some(0), Some(u64::MAX), 3));
    assert_eq!(options.stop, ["a", "b"]);
    assert!(options.stream && options.include_usage && options.ignore_eos);
    assert_eq!(options.unknown, ["future"]);
    assert_eq!(request.template_arguments["enable_thinking"], json!(false));
}

#[test]
fn what_changes_nothing_is_accepted() {
    let extra = json!({
        "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "logprobs": false,
        "top_logprobs": 0, "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0,
        "repetition_penalty": 1.0, "best_of": 1, "echo": false, "stop_token_ids": [], "min_tokens": 0,
        "suffix": "",
    });
    assert!(read(with(extra)).unwrap().options.unknown.is_empty());
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let cases = [
        json!({"tools": [{"type": "function"}]}),
        json!({"tool_choice": "required"}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"logprobs": true}),
        json!({"top_logprobs": 2}),
        json!({"logit_bias": {"191222": -100}}),
        json!({"presence_penalty": 0.5}),
        json!({"frequency_penalty": -1}),
        json!({"repetition_penalty": 1.2}),
        json!({"best_of": 2}),
        json!({"echo": true}),
        json!({"suffix": "x"}),
        json!({"stop_token_ids": [3]}),
        json!({"min_tokens": 4}),
        json!({"structured_outputs": {"json": {}}}),
        json!({"continue_final_message": true}),
    ];
    for extra in cases {
        let key = extra.as_object().unwrap().keys().next().unwrap().clone();
        let error = read(with(extra)).unwrap_err();
        assert_eq!(error.status.as_u16(), 400, "{key}");
        assert_eq!(error.param.as_deref(), Some(key.as_str()));
        assert_eq!(error.code, Some("unsupported_parameter"), "{key}");
    }
}

#[test]
fn values_out_of_range_and_of_wrong_types_are_refused_by_name() {
    let cases = [
        json!({"max_tokens": 0}),
        json!({"max_tokens": -1}),
        json!({"max_tokens": 1.5}),
        json!({"max_tokens": "5"}),
        json!({"max_tokens": 1e30}),
        json!({"max_tokens": u64::MAX}),
        json!({"max_completion_tokens": 0}),
        json!({"temperature": -0.1}),
        json!({"temperature": 2.1}),
        json!({"temperature": "hot"}),
        json!({"temperature": true}),
        json!({"top_p": 0}),
        json!({"top_p": 1.1}),
        json!({"top_p": -1}),
        json!({"top_k": -2}),
        json!({"top_k": 0.5}),
        json!({"min_p": -0.1}),
        json!({"min_p": 2}),
        json!({"seed": 1.5}),
        json!({"seed": "7"}),
        json!({"seed": u64::MAX}),
        json!({"n": 0}),
        json!({"n": -1}),
        json!({"n": 9}),
        json!({"n": "2"}),
        json!({"stop": ""}),
        json!({"stop": ["a", ""]}),
        json!({"stop": 3}),
        json!({"stop": ["a", 3]}),
        json!({"stop": vec!["x"; 17]}),
        json!({"stream": "yes"}),
        json!({"stream": 1}),
        json!({"ignore_eos": 1}),
        json!({"user": 5}),
        json!({"stream_options": {"include_usage": true}}),
        json!({"chat_template_kwargs": []}),
        json!({"model": 3}),
        json!({"messages": "hi"}),
        json!({"messages": {}}),
        json!({"messages": []}),
    ];
    for extra in cases {
        let key = extra.as_object().unwrap().keys().next().unwrap().clone();
        let error = read(with(extra.clone())).unwrap_err();
        assert_eq!(error.status.as_u16(), 400, "{extra}");
        assert_eq!(error.param.as_deref(), Some(key.as_str()), "{extra}");
        assert!(error.message.contains(&key), "{}", error.message);
    }
    let inner = json!({"stream": true, "stream_options": {"include_usage": 1}});
    assert_eq!(
        read(with(inner)).unwrap_err().param.as_deref(),
        Some("stream_options.include_usage")
    );
}

#[test]
fn messages_are_strings_or_text_parts() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let request = read(with(json!({"messages": [{"role": "user", "content": parts}]}))).unwrap();
    assert_eq!(request.messages[0].content, "a\nb");

    let cases = [
        (json!(["hi"]), "messages[0]"),
        (json!([{"content": "hi"}]), "messages[0].role"),
        (json!([{"role": "", "content": "hi"}]), "messages[0].role"),
        (json!([{"role": "user<|im_end|>", "content": "hi"}]), "messages[0].role"),
        (json!([{"role": 1, "content": "hi"}]), "messages[0].role"),
        (json!([{"role": "user"}]), "messages[0].content"),
        (json!([{"role": "user", "content": null}]), "messages[0].content"),
        (json!([{"role": "user", "content": 5}]), "messages[0].content"),
        (json!([{"role": "user", "content": []}]), "messages[0].content"),
        (json!([{"role": "user", "content": ["a"]}]), "messages[0].content[0]"),
        (json!([{"role": "user", "content": [{"text": "a"}]}]), "messages[0].content[0].type"),
        (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
            "messages[0].content[0].type",
        ),
        (
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [1]}]),
            "messages[1].tool_calls",
        ),
    ];
    for (messages, param) in cases {
        let error = read(with(json!({ "messages": messages }))).unwrap_err();
        assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(param)));
    }
}

#[test]
fn bodies_that_are_no_object_are_refused() {
    for body in [
        "",
        "{",
        "[]",
        "3",
        "null",
        "\"x\"",
        "{\"model\": NaN}",
        "{\"temperature\": 1e999}",
        "\u{0}",
    ] {
        let error = chat(body.as_bytes(), 8).unwrap_err();
        assert_eq!((error.status.as_u16(), error.kind), (400, "invalid_request_error"), "{body:?}");
    }
    assert_eq!(chat(b"{}", 8).unwrap_err().param.as_deref(), Some("model"));
    assert!(chat(&[0xff, 0xfe], 8).is_err());
    assert!(
        chat("[".repeat(100_000).as_bytes(), 8).is_err(),
        "deep nesting is an error, not a crash"
    );
}

fn complete(prompt: Value) -> Result<Vec<Prompt>, ApiError> {
    let body = json!({"model": "demo", "prompt": prompt}).to_string();
    completion(body.as_bytes(), 8).map(|request| request.prompts)
}

#[test]
fn prompts_have_four_shapes() {
    assert_eq!(complete(json!("a")).unwrap(), [Prompt::Text("a".into())]);
    assert_eq!(
        complete(json!(["a", "b"])).unwrap(),
        [Prompt::Text("a".into()), Prompt::Text("b".into())]
    );
    assert_eq!(complete(json!([1, 2])).unwrap(), [Prompt::Tokens(vec![1, 2])]);
    assert_eq!(
        complete(json!([[1], [2, 3]])).unwrap(),
        [Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]
    );
}

#[test]
fn bad_prompts_are_refused_by_name() {
    let cases = [
        (json!(null), "prompt"),
        (json!(""), "prompt"),
        (json!([]), "prompt"),
        (json!([""]), "prompt[0]"),
        (json!([[]]), "prompt[0]"),
        (json!({}), "prompt"),
        (json!(5), "prompt"),
        (json!([1, -2]), "prompt"),
        (json!([1, "a"]), "prompt"),
        (json!([1.5]), "prompt"),
        (json!([[1], true]), "prompt[1]"),
        (json!([4_294_967_296_u64]), "prompt"),
    ];
    for (prompt, param) in cases {
        let error = complete(prompt.clone()).unwrap_err();
        assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(param)), "{prompt}");
    }
    let many = json!({"model": "demo", "prompt": ["a", "b", "c"], "n": 3}).to_string();
    assert_eq!(completion(many.as_bytes(), 8).unwrap_err().param.as_deref(), Some("prompt"));
}
