//! A Python function that gives tokens for Azure.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use brig_aca::{Token, TokenSource};
use pyo3::prelude::*;

use crate::callback;

/// `(scope, call) -> (token, expires)`, the end in seconds since 1970.
#[derive(Debug)]
pub(crate) struct PythonTokens(pub(crate) Arc<Py<PyAny>>);

#[async_trait]
impl TokenSource for PythonTokens {
    async fn token(&self, scope: &str) -> Result<Token, String> {
        let answer: Option<(String, u64)> = callback::call(&self.0, scope.to_owned()).await;
        let (secret, expires) = answer.ok_or("the credential that was given raised")?;
        let expires = SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_secs(expires))
            .ok_or_else(|| format!("the credential gave a token with no valid end: {expires}"))?;
        Ok(Token::new(secret, expires))
    }
}
