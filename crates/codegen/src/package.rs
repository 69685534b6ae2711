//! The few files that make output a package: of npm, pip, cargo, CMake, Zig, rebar3. Sources stand where each
//! expects them; what they export is what was generated.

use crate::File;
use crate::arguments::Language;
use crate::names::Names;
use thalweg_schema::Service;

const VERSION: &str = "0.1.0";

pub(crate) fn emit(service: &Service, names: &Names) -> Vec<File> {
    let name = names.arguments.package.as_deref().unwrap_or(&names.module);
    let about = format!("The service {}", service.name);
    let files = match names.arguments.lang {
        Language::Ts => npm(name, &about),
        Language::Python => pip(name, &about),
        Language::Rust => cargo(name, &about, names.arguments.runtime.as_deref()),
        Language::Cpp => cmake(name, &about),
        Language::Zig => zig(name, names, &service.hash),
        Language::Erlang => rebar(name, &about),
    };
    files.into_iter().map(|(path, text)| File { path, text }).collect()
}

fn npm(name: &str, about: &str) -> Vec<(String, String)> {
    let package = format!(
        "{{\n  \"name\": \"{name}\",\n  \"version\": \"{VERSION}\",\n  \"description\": \"{about}\",\n  \
         \"type\": \"module\",\n  \"engines\": {{ \"node\": \">=20\" }},\n  \"files\": [\"dist\"],\n  \
         \"exports\": {{\n    \"./*\": {{ \"types\": \"./dist/*.d.ts\", \"default\": \"./dist/*.js\" }}\n  }},\n  \
         \"scripts\": {{ \"build\": \"tsc\", \"prepare\": \"tsc\" }},\n  \
         \"devDependencies\": {{ \"typescript\": \">=5.7\" }}\n}}\n"
    );
    let settings = "{\n  \"compilerOptions\": {\n    \"target\": \"ES2022\",\n    \"module\": \"NodeNext\",\n    \
                    \"moduleResolution\": \"NodeNext\",\n    \"lib\": [\"ES2022\", \"DOM\"],\n    \"strict\": true,\n    \
                    \"declaration\": true,\n    \"rootDir\": \"src\",\n    \"outDir\": \"dist\"\n  },\n  \
                    \"include\": [\"src\"]\n}\n";
    vec![("package.json".to_owned(), package), ("tsconfig.json".to_owned(), settings.to_owned())]
}

fn pip(name: &str, about: &str) -> Vec<(String, String)> {
    let module = name.replace('-', "_");
    let project = format!(
        "[build-system]\nrequires = [\"setuptools>=68\"]\nbuild-backend = \"setuptools.build_meta\"\n\n\
         [project]\nname = \"{name}\"\nversion = \"{VERSION}\"\ndescription = \"{about}\"\n\
         requires-python = \">=3.11\"\n\n[tool.setuptools]\npackage-dir = {{ \"\" = \"src\" }}\n\
         packages = [\"{module}\"]\n\n[tool.setuptools.package-data]\n{module} = [\"py.typed\"]\n"
    );
    vec![("pyproject.toml".to_owned(), project)]
}

fn cargo(name: &str, about: &str, runtime: Option<&str>) -> Vec<(String, String)> {
    // A runtime of the caller's choice is the caller's to depend on. Ours is in no registry, where anybody
    // may take its name.
    let ours = format!("thalweg-wire = {{ git = \"{}\" }}\n", env!("CARGO_PKG_REPOSITORY"));
    let dependency = if runtime.is_none() { ours.as_str() } else { "" };
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"{VERSION}\"\ndescription = \"{about}\"\nedition = \"2024\"\n\n\
         [dependencies]\n{dependency}"
    );
    vec![("Cargo.toml".to_owned(), manifest)]
}

fn cmake(name: &str, about: &str) -> Vec<(String, String)> {
    let lists = format!(
        "# {about}.\ncmake_minimum_required(VERSION 3.20)\nproject({name} VERSION {VERSION} LANGUAGES CXX)\n\n\
         add_library({name} INTERFACE)\nadd_library({name}::{name} ALIAS {name})\n\
         target_compile_features({name} INTERFACE cxx_std_20)\n\
         target_include_directories({name} INTERFACE\n    $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}/include>\n    \
         $<INSTALL_INTERFACE:include>)\n\n\
         install(TARGETS {name} EXPORT {name}-targets)\ninstall(DIRECTORY include/ DESTINATION include)\n\
         install(EXPORT {name}-targets NAMESPACE {name}:: FILE {name}-config.cmake DESTINATION lib/cmake/{name})\n"
    );
    vec![("CMakeLists.txt".to_owned(), lists)]
}

fn zig(name: &str, names: &Names, hash: &[u8; 32]) -> Vec<(String, String)> {
    let identifier = name.replace('-', "_");
    let module = &names.module;
    let build = format!(
        "const std = @import(\"std\");\n\npub fn build(b: *std.Build) void {{\n    \
         _ = b.addModule(\"{identifier}\", .{{ .root_source_file = b.path(\"src/{module}.zig\") }});\n}}\n"
    );
    // Zig tells packages apart by the checksum of the name and a number of the package's own.
    let own = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]).clamp(1, u32::MAX - 1);
    let fingerprint = u64::from(crc32(identifier.as_bytes())) << 32 | u64::from(own);
    let manifest = format!(
        ".{{\n    .name = .{identifier},\n    .version = \"{VERSION}\",\n    .fingerprint = 0x{fingerprint:016x},\n    \
         .minimum_zig_version = \"0.15.1\",\n    .paths = .{{ \"build.zig\", \"build.zig.zon\", \"src\" }},\n}}\n"
    );
    vec![("build.zig".to_owned(), build), ("build.zig.zon".to_owned(), manifest)]
}

/// CRC-32 as of zip and Ethernet.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}

fn rebar(name: &str, about: &str) -> Vec<(String, String)> {
    let application = name.replace('-', "_");
    let resource = format!(
        "{{application, {application}, [\n    {{description, \"{about}\"}},\n    {{vsn, \"{VERSION}\"}},\n    \
         {{registered, []}},\n    {{applications, [kernel, stdlib]}},\n    {{modules, []}}\n]}}.\n"
    );
    let settings = "{erl_opts, [debug_info, warnings_as_errors]}.\n{minimum_otp_vsn, \"25\"}.\n";
    vec![(format!("src/{application}.app.src"), resource), ("rebar.config".to_owned(), settings.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
