// Any bytes as an object of machine code: refused, or laid out in memory of its own. Nothing in it is called.
#include <cstdint>
#include <cstring>
#include <string>

#include "src/backends/cpu/kernels/micro.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto library = weft::cpu::Jit::Load(std::string_view(reinterpret_cast<const char*>(data), size));
  if (library.ok()) static_cast<void>((*library)->Lookup("nobody"));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  static const std::string valid =
      *weft::cpu::CompileMicro(weft::cpu::Jit(*weft::cpu::TargetFromName("auto")), weft::cpu::MicroSpec());
  if (size < 64 && max_size > valid.size()) {
    std::memcpy(data, valid.data(), valid.size());
    return valid.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
