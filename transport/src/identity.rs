//! Who a node is: its key, its certificate, and the authority of its cluster, read from a folder.
//!
//! It never writes; [`certs`](crate::certs) makes the files.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};

/// The file of the authority's certificate.
pub const AUTHORITY: &str = "ca.pem";

/// The file of a node's certificate.
pub fn certificate_file(node: &str) -> String {
    format!("{node}.pem")
}

/// The file of a node's key.
pub fn key_file(node: &str) -> String {
    format!("{node}.key")
}

/// What a node proves itself with, and by what it judges others.
#[derive(Debug)]
pub struct Identity {
    /// The node's name, which its certificate bears.
    pub node: String,
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Why a folder holds no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file is missing or cannot be read.
    #[error("cannot read {path}: {source}; `tokenrouter certs init` makes the files of a cluster")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("{path} holds no {what} in PEM: {reason}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why it does not.
        reason: String,
    },
    /// Others can read the key.
    #[error("{path} can be read by others (mode {mode:o}): `chmod 600 {path}`")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

impl Identity {
    /// Reads the identity of `node` from a folder.
    ///
    /// # Errors
    /// A file that is missing or rubbish, or a key that others may read.
    pub fn read(folder: &Path, node: &str) -> Result<Self, IdentityError> {
        let certificate = |file: &str| {
            let (path, pem) = read(folder, file)?;
            CertificateDer::from_pem_slice(&pem).map_err(|reason| IdentityError::Pem {
                path,
                what: "certificate",
                reason: reason.to_string(),
            })
        };
        let authority = certificate(AUTHORITY)?;
        let own = certificate(&certificate_file(node))?;
        let (path, pem) = read(folder, &key_file(node))?;
        closed(&path)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|reason| IdentityError::Pem {
            path,
            what: "private key",
            reason: reason.to_string(),
        })?;
        Ok(Self { node: node.to_owned(), authority, certificate: own, key })
    }
}

fn read(folder: &Path, file: &str) -> Result<(PathBuf, Vec<u8>), IdentityError> {
    let path = folder.join(file);
    match std::fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(source) => Err(IdentityError::Read { path, source }),
    }
}

#[cfg(unix)]
fn closed(path: &Path) -> Result<(), IdentityError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(path)
        .map_err(|source| IdentityError::Read { path: path.to_owned(), source })?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Open { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(not(unix))]
fn closed(_path: &Path) -> Result<(), IdentityError> {
    Ok(())
}
