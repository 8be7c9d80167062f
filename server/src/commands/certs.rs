//! `tokenrouter certs`: the certificates by which the nodes of a cluster know each other.

use super::{CommandError, print};
use crate::cli::{Certs, CertsCommand, CertsInit};
use tokenrouter_transport::certs::{AUTHORITY_KEY, CertsError, init};

/// Does what the command says.
///
/// # Errors
/// A name that no certificate can bear, a folder that cannot be written.
pub fn run(arguments: &Certs) -> Result<(), CommandError> {
    let CertsCommand::Init(CertsInit { nodes, dir }) = &arguments.command;
    let written = init(dir, nodes).map_err(|error| match error {
        CertsError::File { .. } => CommandError::Other(error.to_string()),
        other => CommandError::Input(other.to_string()),
    })?;
    let mut text = String::new();
    for path in &written {
        text += &format!("wrote {}\n", path.display());
    }
    let folder = dir.display();
    if written.is_empty() {
        text += &format!("{folder} has all of these already\n");
    }
    text += &format!(
        "Give each node its own .pem and .key and ca.pem. {folder}/{AUTHORITY_KEY} is needed only to certify more nodes: keep it \
         where no node runs.\n"
    );
    print(&text)
}
