//! The bindings of the device, as apps use them.

#![cfg(feature = "bindgen")]

mod bindings;
mod kotlin;
mod support;
