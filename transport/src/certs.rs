//! Makes the authority of a cluster and the certificates of its nodes.
//!
//! It keeps what is there: a node that joins later is certified by the same authority, and no key is ever overwritten.

use crate::identity::{AUTHORITY, certificate_file, key_file};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of the authority's key; only who certifies nodes needs it.
pub const AUTHORITY_KEY: &str = "ca.key";

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Of a certificate and its key, one is there and the other is not.
    #[error("{there} is there and {missing} is not: put it back, or move the other away")]
    Half {
        /// The file that exists.
        there: PathBuf,
        /// The file that does not.
        missing: PathBuf,
    },
    /// A name that no certificate can bear, or an authority that is none.
    #[error("cannot certify {name}: {source}")]
    Certify {
        /// The node, or the authority's file.
        name: String,
        /// Why.
        source: rcgen::Error,
    },
}

/// Certifies `nodes` in `folder`, by the authority that is there or a new one. Returns the files it wrote.
///
/// # Errors
/// See [`CertsError`]; files written before the error stay.
pub fn init(folder: &Path, nodes: &[String]) -> Result<Vec<PathBuf>, CertsError> {
    std::fs::create_dir_all(folder)
        .map_err(|source| CertsError::File { path: folder.to_owned(), source })?;
    let mut written = Vec::new();
    let authority = authority(folder, &mut written)?;
    for node in nodes {
        let files = [folder.join(certificate_file(node)), folder.join(key_file(node))];
        if whole(&files)? {
            continue;
        }
        let failed = |source| CertsError::Certify { name: node.clone(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = node_params(node).and_then(|params| params.signed_by(&key, &authority));
        store(&files, &certificate.map_err(failed)?.pem(), &key.serialize_pem(), &mut written)?;
    }
    Ok(written)
}

fn node_params(node: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![node.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, node);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// The authority of the folder, made if there is none.
fn authority(
    folder: &Path,
    written: &mut Vec<PathBuf>,
) -> Result<Issuer<'static, KeyPair>, CertsError> {
    let files = [folder.join(AUTHORITY), folder.join(AUTHORITY_KEY)];
    let failed = |source| CertsError::Certify { name: AUTHORITY.to_owned(), source };
    if whole(&files)? {
        let key = KeyPair::from_pem(&read(&files[1])?).map_err(failed)?;
        return Issuer::from_ca_cert_pem(&read(&files[0])?, key).map_err(failed);
    }
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "TokenRouter cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(failed)?;
    let key_pem = key.serialize_pem();
    let made = CertifiedIssuer::self_signed(params.clone(), key).map_err(failed)?;
    store(&files, &made.pem(), &key_pem, written)?;
    let key = KeyPair::from_pem(&key_pem).map_err(failed)?;
    Ok(Issuer::new(params, key))
}

/// Whether both files are there.
fn whole([certificate, key]: &[PathBuf; 2]) -> Result<bool, CertsError> {
    match (certificate.exists(), key.exists()) {
        (true, false) => Err(CertsError::Half { there: certificate.clone(), missing: key.clone() }),
        (false, true) => Err(CertsError::Half { there: key.clone(), missing: certificate.clone() }),
        (both, _) => Ok(both),
    }
}

fn read(path: &Path) -> Result<String, CertsError> {
    std::fs::read_to_string(path)
        .map_err(|source| CertsError::File { path: path.to_owned(), source })
}

/// Writes a certificate and its key, the key for its owner's eyes only.
fn store(
    [certificate, key]: &[PathBuf; 2],
    certificate_pem: &str,
    key_pem: &str,
    written: &mut Vec<PathBuf>,
) -> Result<(), CertsError> {
    for (path, text, secret) in [(key, key_pem, true), (certificate, certificate_pem, false)] {
        write(path, text, secret)
            .map_err(|source| CertsError::File { path: path.clone(), source })?;
        written.push(path.clone());
    }
    Ok(())
}

fn write(path: &Path, text: &str, secret: bool) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if secret {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)?.write_all(text.as_bytes())
}
