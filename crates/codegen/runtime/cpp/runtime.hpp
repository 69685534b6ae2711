// Which version this is: a number made of the runtime's files, of the other headers that are installed with
// them, and of what the generator makes of a schema. A test of crates/codegen compares it. All of that, and
// all generated code, has its names in an inline namespace of the number. So code that was compiled with
// different versions links into one program, and each part keeps its own, even where two parts were generated
// for the same service. Two schemas of one service under the same version still share their names: give one
// of them another namespace (`--cpp-namespace`).
#ifndef THALWEG_RUNTIME
#define THALWEG_RUNTIME 0xb1fd8345
#define THALWEG_RUNTIME_NAMESPACE runtime_b1fd8345
#elif THALWEG_RUNTIME != 0xb1fd8345
#error "two versions of Thalweg's runtime in one file: generate its services, and install the headers, with one version"
#endif
