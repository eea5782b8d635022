//! A frame that is written.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use super::turns::Turns;
use super::{Found, Length, Odd};
use crate::Memory;

/// A frame that is written: small parts together, large buffers as pieces of their own.
pub struct Output<'a> {
    pub bytes: Vec<u8>,
    pub pieces: Vec<Py<PyAny>>,
    piece_bytes_min: usize,
    pub turns: Turns<'a>,
}

impl<'a> Output<'a> {
    pub fn new(bytes: Vec<u8>, piece_bytes_min: usize, turns: Turns<'a>) -> Output<'a> {
        Output { bytes, pieces: vec![], piece_bytes_min, turns }
    }

    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub fn length(&mut self, length: Length, count: usize) -> Found<()> {
        match length {
            Length::Int16 => self.bytes.extend(i16::try_from(count).map_err(|_| Odd)?.to_be_bytes()),
            Length::Int32 => self.bytes.extend(i32::try_from(count).map_err(|_| Odd)?.to_be_bytes()),
            Length::Compact => self.uvarint(u32::try_from(count + 1).map_err(|_| Odd)?),
        }
        Ok(())
    }

    pub fn null(&mut self, length: Length) {
        match length {
            Length::Int16 => self.bytes.extend((-1i16).to_be_bytes()),
            Length::Int32 => self.bytes.extend((-1i32).to_be_bytes()),
            Length::Compact => self.bytes.push(0),
        }
    }

    pub fn buffer(&mut self, py: Python<'_>, buffer: &Bound<'_, PyAny>, memory: &Memory) -> Found<()> {
        if memory.bytes().len() < self.piece_bytes_min {
            self.bytes.extend_from_slice(memory.bytes());
        } else {
            self.flush(py);
            let bytes = PyMemoryView::from(buffer)?.call_method1("cast", ("B",))?;
            self.pieces.push(bytes.unbind());
        }
        Ok(())
    }

    pub fn flush(&mut self, py: Python<'_>) {
        if !self.bytes.is_empty() {
            self.pieces.push(PyBytes::new(py, &self.bytes).into_any().unbind());
            self.bytes.clear();
        }
    }
}
