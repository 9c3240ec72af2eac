//! A Python function that answers where a policy requires an approval.

use std::sync::Arc;

use async_trait::async_trait;
use brig_sandbox::approvals::{ApprovalAnswer, ApprovalRequest, Approver};
use pyo3::prelude::*;

use crate::callback;

/// `(request, call) -> (approved, by, reason)`. What raises denies.
#[derive(Debug)]
pub(crate) struct PythonApprover(pub(crate) Arc<Py<PyAny>>);

#[async_trait]
impl Approver for PythonApprover {
    async fn ask(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let denied = || ApprovalAnswer::deny("python").because("the approver failed");
        let Ok(text) = serde_json::to_string(request) else {
            return denied();
        };
        let answer: Option<(bool, String, Option<String>)> = callback::call(&self.0, text).await;
        let Some((approved, by, reason)) = answer else {
            return denied();
        };
        let answer = match approved {
            true => ApprovalAnswer::approve(by),
            false => ApprovalAnswer::deny(by),
        };
        match reason {
            Some(reason) => answer.because(reason),
            None => answer,
        }
    }
}
