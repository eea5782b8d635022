//! What a message has where its frame or its writer gives nothing.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// What a field has that is not given. Lists and dicts are made anew each time, as they could be changed.
pub enum Absent {
    Constant(Py<PyAny>),
    List,
    Dict(Vec<(Py<PyString>, Absent)>),
}

impl Absent {
    /// Describes that of a `Field` of Python.
    pub fn of(field: &Bound<'_, PyAny>) -> PyResult<Absent> {
        let (default, kind) = (field.getattr("default")?, field.getattr("kind")?.getattr("value")?);
        if default.is_none() {
            return Ok(Absent::Constant(default.unbind()));
        }
        Ok(match kind.extract::<String>()?.as_str() {
            "array" => Absent::List,
            "struct" => {
                let mut of = vec![];
                for each in field.getattr("fields")?.try_iter()? {
                    let each = each?;
                    let name: Bound<'_, PyString> = each.getattr("name")?.extract()?;
                    of.push((name.unbind(), Absent::of(&each)?));
                }
                Absent::Dict(of)
            }
            _ => Absent::Constant(default.unbind()),
        })
    }

    pub fn made<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Absent::Constant(constant) => Ok(constant.bind(py).clone()),
            Absent::List => Ok(PyList::empty(py).into_any()),
            Absent::Dict(of) => {
                let found = PyDict::new(py);
                for (name, absent) in of {
                    found.set_item(name, absent.made(py)?)?;
                }
                Ok(found.into_any())
            }
        }
    }
}
