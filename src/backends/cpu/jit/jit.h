// Machine code from LLVM modules, and functions from machine code. A compiled object is a string of bytes that any
// process with the same CpuTarget may load, which is what the compile cache keeps. LLVM stays behind jit_llvm.h.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "src/backends/cpu/jit/code_map.h"
#include "src/backends/cpu/jit/isa.h"
#include "src/runtime/log.h"
#include "src/runtime/mutex.h"

namespace weft::cpu {

struct JitSession;
struct JitModule;  // an LLVM module with its context: jit_llvm.h

// The functions of one loaded object. They stay callable while this exists. Thread-safe.
class JitLibrary {
 public:
  ~JitLibrary();
  JitLibrary(const JitLibrary&) = delete;
  JitLibrary& operator=(const JitLibrary&) = delete;

  // The address of a function that the object defines; NOT_FOUND with its name otherwise. Resolve once, keep the pointer.
  absl::StatusOr<void*> Lookup(std::string_view symbol) const;

  template <typename Fn>
  absl::StatusOr<Fn*> Function(std::string_view symbol) const {
    absl::StatusOr<void*> address = Lookup(symbol);
    if (!address.ok()) return address.status();
    return reinterpret_cast<Fn*>(*address);
  }

 private:
  friend class Jit;
  struct Impl;
  explicit JitLibrary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The tools that are told where code lies.
struct CodeWatch {
  PerfFile perf = PerfFile::kOff;
  bool gdb = false;
  LogHook log;  // hears once what cannot be written
};

// Compiles and loads. Cheap to make: LLVM starts at the first call (3-5 ms, once a process). Thread-safe: several
// threads may compile at once, which is how programs of many kernels are compiled.
class Jit {
 public:
  explicit Jit(CpuTarget target, CodeWatch watch = {});
  ~Jit();
  const CpuTarget& target() const { return target_; }

  // Verifies the module and generates code at level O2 without IR passes (explicit-vector IR gains nothing from them).
  // Costs about 1.3 ms and 0.02 ms per vector instruction. Every function gets the target's cpu and features. Imports
  // may name only the functions of RuntimeSymbols(). The result is one ELF relocatable object.
  // Or, for people, a text of it.
  enum class Form : uint8_t { kObject, kLlvm, kAssembly };
  absl::StatusOr<std::string> Compile(std::unique_ptr<JitModule> module, Form form = Form::kObject) const;

  // Links an object that Compile made, here or in another process. Bytes from a cache must have passed its checksum:
  // a foreign object is refused only as far as its format shows. About 30 us.
  absl::StatusOr<std::unique_ptr<JitLibrary>> Load(std::span<const std::byte> object) const;
  absl::StatusOr<std::unique_ptr<JitLibrary>> Load(std::string_view object) const {
    return Load(std::as_bytes(std::span(object.data(), object.size())));
  }

 private:
  absl::StatusOr<std::shared_ptr<JitSession>> Session() const;

  CpuTarget target_;
  const CodeWatch watch_;
  mutable Mutex session_mutex_;
  mutable std::shared_ptr<JitSession> session_ ABSL_GUARDED_BY(session_mutex_);
};

// Functions that compiled code may call: libm in f32 and f64, memory functions, the model of AMX. Sorted by name.
struct RuntimeSymbol {
  std::string_view name;
  void* address;
};
std::span<const RuntimeSymbol> RuntimeSymbols();

// "LLVM 19.1.7": part of every cache key.
std::string_view JitVersion();

}  // namespace weft::cpu
