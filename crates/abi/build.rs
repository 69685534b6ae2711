//! Gives the shared library the name that programs linked with it look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libthalweg.so.0");
}
