// Which runtime this is: a number made of all its files, which a test of crates/codegen compares. Its names stand in a
// namespace of that number, so that services on different versions link into one program and each keeps its own.
#ifndef THALWEG_RUNTIME
#define THALWEG_RUNTIME 0x5bd6e702
#define THALWEG_RUNTIME_NAMESPACE runtime_5bd6e702
#elif THALWEG_RUNTIME != 0x5bd6e702
#error "two versions of Thalweg's runtime in one file: generate its services, and install the headers, with one version"
#endif
