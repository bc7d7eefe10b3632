// Any bytes as a compiled program of the CPU backend: refused, or a program that makes sense and can be written again.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/backends/cpu/launch/program.h"

namespace {

using weft::cpu::BufferRef;
using weft::cpu::Entry;

std::string ValidProgram() {
  weft::cpu::Program p;
  p.arguments = p.results = {{weft::DType::kF32, {4}}};
  p.donor = {-1};
  p.words = 2;
  p.loops = {"key"};
  p.host_kernels = {"copy"};
  p.arena_bytes = 4096;
  p.carried = {64, 128};
  p.constants = "constant";
  p.origins = {{"add", ""}};
  Entry loop, repeat, branch;
  loop.buffers = {{BufferRef::Place::kArgument, 0, 0}, {BufferRef::Place::kCarried, 1, 0}};
  loop.params = {16, 1};
  loop.origins = {0};
  repeat.type = Entry::Type::kRepeat;
  repeat.buffers = {{}, {BufferRef::Place::kCarried, 0, 0}, {BufferRef::Place::kCarried, 1, 0}};
  branch.type = Entry::Type::kBranch;
  branch.code = 1;
  branch.buffers = {{BufferRef::Place::kWords, 0, 4}};
  p.controls = {{{1, 2}, -1}, {{3, 4}, -1}};
  p.lists = {{loop, repeat}, {loop}, {branch}, {loop}, {}};
  auto object = std::make_shared<weft::cpu::CodeObject>();
  object->keys = p.loops;
  object->symbols = {"loop_0"};
  p.objects = {object};
  auto bytes = weft::cpu::EncodeProgram(p);
  if (!bytes.ok() || !weft::cpu::ParseProgram(*bytes).ok()) std::abort();
  return *bytes;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto program = weft::cpu::ParseProgram(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!program.ok()) return 0;
  static_cast<void>(weft::cpu::ToString(*program));
  const auto bytes = weft::cpu::EncodeProgram(*program);
  if (!bytes.ok() || !weft::cpu::ParseProgram(*bytes).ok()) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  static const std::string valid = ValidProgram();
  if (size < 32 && max_size > valid.size()) {
    std::memcpy(data, valid.data(), valid.size());
    return valid.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
