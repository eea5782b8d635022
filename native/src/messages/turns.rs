//! Turns of other threads, while one reads or writes a long message.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use super::Found;

/// After so many elements others have the interpreter, as they do after some of Python's code.
const TURN_ELEMENTS: usize = 256;

/// Lets others have the interpreter now and then, by a function of Python that does nothing: before it begins, whoever waits
/// has a turn. To let go of the lock and take it again would give nobody one.
#[derive(Default)]
pub struct Turns<'a> {
    nothing: Option<&'a Py<PyAny>>,
    elements: usize,
}

impl<'a> Turns<'a> {
    pub fn new(nothing: &'a Py<PyAny>) -> Turns<'a> {
        Turns { nothing: Some(nothing), elements: 0 }
    }

    pub fn element(&mut self, py: Python<'_>) -> Found<()> {
        self.elements += 1;
        if let (0, Some(nothing)) = (self.elements % TURN_ELEMENTS, self.nothing) {
            nothing.call0(py)?;
        }
        Ok(())
    }
}
