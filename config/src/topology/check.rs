//! What a topology must satisfy beyond its types.

use super::{Batching, Model, Route, Topology};
use crate::error::Error;
use crate::secret::Secret;
use std::net::SocketAddr;
use std::time::Duration;

/// More threads than any machine has cores: a number beyond it is a slip, and starting them would take minutes.
const MOST_THREADS: usize = 1024;

/// More choices than any machine can write at once; what is counted for each of them cannot overflow below it.
const MOST_REQUESTS: usize = 1 << 20;

/// Routes and models together, for each model is a route: as many as a 16-bit number can tell apart.
const MOST_ROUTES: usize = u16::MAX as usize;

impl Topology {
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.models.is_empty() {
            return Err(self.error(&["models"], "there is no model; name at least one"));
        }
        if self.models.len() > usize::from(u8::MAX) {
            return Err(self.error(&["models"], "there are more than 255 models"));
        }
        if self.models.len() + self.routes.len() > MOST_ROUTES {
            let reason = format!("there are more than {MOST_ROUTES} routes and models together");
            return Err(self.error(&["routes"], reason));
        }
        self.check_origins()?;
        self.check_keys()?;
        for (name, model) in &self.models {
            self.check_model(name, model)?;
        }
        for (name, route) in &self.routes {
            self.check_route(name, route)?;
        }
        for (name, batching) in &self.batching {
            self.check_batching(name, batching)?;
        }
        self.check_nodes()?;
        self.check_limits()
    }

    fn check_model(&self, name: &str, model: &Model) -> Result<(), Error> {
        self.check_name("models", name)?;
        if model.path.is_empty() {
            return Err(self.error(&["models", name, "path"], "the path is empty"));
        }
        match model.device.as_deref() {
            None | Some("cpu") => {}
            Some(other) => {
                let reason = format!("the device `{other}` is not yet supported; use cpu");
                return Err(self.error(&["models", name, "device"], reason));
            }
        }
        if model.quantize.is_some() {
            let reason =
                "quantisation is not yet supported; leave it out to use the weights as they are";
            return Err(self.error(&["models", name, "quantize"], reason));
        }
        if model.threads.is_some_and(|threads| !(1..=MOST_THREADS).contains(&threads)) {
            let reason = format!("a model needs at least 1 thread and at most {MOST_THREADS}");
            return Err(self.error(&["models", name, "threads"], reason));
        }
        if model.kv_positions == Some(0) {
            let reason = "a KV cache of 0 positions can hold no request";
            return Err(self.error(&["models", name, "kv_positions"], reason));
        }
        Ok(())
    }

    fn check_route(&self, name: &str, route: &Route) -> Result<(), Error> {
        self.check_name("routes", name)?;
        if self.models.contains_key(name) {
            let reason = format!("the name is taken: the model `{name}` is a route of its own");
            return Err(self.error(&["routes", name], reason));
        }
        if !self.models.contains_key(&route.entry) {
            let reason = self.no_such_model(&route.entry);
            return Err(self.error(&["routes", name, "entry"], reason));
        }
        Ok(())
    }

    fn check_batching(&self, name: &str, batching: &Batching) -> Result<(), Error> {
        if !self.models.contains_key(name) {
            return Err(self.error(&["batching", name], self.no_such_model(name)));
        }
        for (key, value) in [
            ("max_batch_tokens", batching.max_batch_tokens),
            ("max_batch_rows", batching.max_batch_rows),
        ] {
            if value == 0 {
                return Err(self.error(&["batching", name, key], "must be at least 1"));
            }
        }
        // A request that waits for others must not look as if it stood still.
        let stall = self.limits.stall_timeout;
        if let Some(wait) = batching.max_wait.filter(|wait| *wait * 4 > stall) {
            let reason = format!(
                "{wait:?} is too long: `limits.stall_timeout`, {stall:?}, must be at least four times that"
            );
            return Err(self.error(&["batching", name, "max_wait"], reason));
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), Error> {
        let limits = &self.limits;
        let counts = [
            ("requests", limits.requests as u64),
            ("choices", u64::from(limits.choices)),
            ("body", limits.body.0),
        ];
        for (key, value) in counts {
            if value == 0 {
                return Err(self.error(&["limits", key], "must be at least 1"));
            }
        }
        if limits.requests > MOST_REQUESTS {
            let reason = format!("must be at most {MOST_REQUESTS}");
            return Err(self.error(&["limits", "requests"], reason));
        }
        for (key, value) in [("grace", limits.grace), ("stall_timeout", limits.stall_timeout)] {
            if value < Duration::from_millis(10) {
                return Err(self.error(&["limits", key], "must be at least 10ms"));
            }
        }
        if self.restart.within.is_zero() {
            return Err(self.error(&["restart", "within"], "must be longer than nothing"));
        }
        Ok(())
    }

    /// A key that no header can carry would lock everybody out, and an empty one nobody.
    fn check_keys(&self) -> Result<(), Error> {
        let fits = |key: &Secret| {
            !key.reveal().is_empty() && key.reveal().chars().all(|c| c.is_ascii_graphic())
        };
        let reason = "a key is made of visible ASCII characters, at least one";
        if let Some(index) = self.http.api_keys.iter().position(|key| !fits(key)) {
            return Err(self.error(&["http", "api_keys", &index.to_string()], reason));
        }
        let admin = &self.admin;
        if admin.api_key.as_ref().is_some_and(|key| !fits(key)) {
            return Err(self.error(&["admin", "api_key"], reason));
        }
        // A node of several listens where its own settings say.
        self.check_admin(self.nodes.is_empty().then_some(self.http.listen))
    }

    /// Whoever listens there must not let everybody kill.
    pub(super) fn check_admin(&self, listen: Option<SocketAddr>) -> Result<(), Error> {
        let open = self.admin.enabled && self.admin.api_key.is_none();
        if let Some(listen) = listen.filter(|listen| open && !listen.ip().is_loopback()) {
            let reason = format!(
                "others could kill actors through {listen}; set `admin.api_key`, or listen on 127.0.0.1"
            );
            return Err(self.error(&["admin", "enabled"], reason));
        }
        Ok(())
    }

    /// An origin is compared with what a browser sends, letter by letter: one of another form would never match.
    fn check_origins(&self) -> Result<(), Error> {
        let fits = |origin: &String| {
            let host = origin.split_once("://").map(|(_, host)| host);
            origin == "*"
                || origin == "null"
                || origin.chars().all(|c| c.is_ascii_graphic())
                    && host.is_some_and(|host| !host.is_empty() && !host.contains('/'))
        };
        match self.http.cors.iter().position(|origin| !fits(origin)) {
            None => Ok(()),
            Some(index) => {
                let reason = format!(
                    "`{}` is not an origin; write it as in https://example.org:8443, or `*` for all",
                    self.http.cors[index]
                );
                Err(self.error(&["http", "cors", &index.to_string()], reason))
            }
        }
    }

    /// Names stand in URLs, logs and requests.
    fn check_name(&self, section: &str, name: &str) -> Result<(), Error> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !name.is_empty() && name.len() <= 128 && name.chars().all(fits) {
            return Ok(());
        }
        let reason = "a name consists of letters, digits, `.`, `_` and `-`, at most 128 of them";
        Err(self.error(&[section, name], reason))
    }

    pub(super) fn no_such_model(&self, name: &str) -> String {
        let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
        format!("there is no model `{name}`; the topology has {}", known.join(", "))
    }
}
