// Machine code from LLVM modules, and functions from machine code. A compiled object is a string of bytes that any
// process with the same CpuTarget may load, which is what the compile cache keeps. LLVM stays behind jit_llvm.h.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/backends/cpu/jit/isa.h"

namespace weft::cpu {

struct JitModule;  // an LLVM module with its context: jit_llvm.h

// The functions of one loaded object. They stay callable while this exists. Immutable.
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
  JitLibrary() = default;

  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  std::vector<std::pair<std::string, void*>> functions_;  // by name, a few dozen at most
};

// Compiles and loads. Cheap to make: LLVM starts at the first compilation (3-5 ms, once a process). Thread-safe: several
// threads may compile at once, which is how programs of many kernels are compiled.
class Jit {
 public:
  explicit Jit(CpuTarget target);
  const CpuTarget& target() const { return target_; }

  // Verifies the module and generates code at level O2 without IR passes (explicit-vector IR gains nothing from them).
  // Costs about 1.3 ms and 0.02 ms per vector instruction. Every function gets the target's cpu and features. Imports
  // may name only the functions of RuntimeSymbols(). The result is one ELF relocatable object.
  absl::StatusOr<std::string> Compile(std::unique_ptr<JitModule> module) const;

  // Links an object that Compile made, here or in another process, without LLVM. Bytes from a cache must have passed its
  // checksum: what a foreign object's code does nobody looks at, only that nothing outside it is written or referred to.
  // PERMISSION_DENIED where the process may not have executable memory. About 20 us, most of it the system's.
  static absl::StatusOr<std::unique_ptr<JitLibrary>> Load(std::span<const std::byte> object);
  static absl::StatusOr<std::unique_ptr<JitLibrary>> Load(std::string_view object) {
    return Load(std::as_bytes(std::span(object.data(), object.size())));
  }

 private:
  CpuTarget target_;
};

// What compiled code may call: libm in f32 and f64, memory functions, the model of AMX.
struct RuntimeSymbol {
  std::string_view name;
  void* address;
};
std::span<const RuntimeSymbol> RuntimeSymbols();

// "LLVM 19.1.7": part of every cache key.
std::string_view JitVersion();

}  // namespace weft::cpu
