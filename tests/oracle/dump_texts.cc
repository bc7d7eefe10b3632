// Writes what becomes of many programs, for comparing two builds: equal files mean that no program is compiled in another way.
//
//   weft_dump_texts FILE [FIRST LAST]
//
// The programs are every operation's samples in every element type that takes them, with their gradients, the programs with loops
// and branches, and random ones of the seeds FIRST to LAST (1 to 300). Of each the file has what it costs, its text after the
// shared passes (once with the CPU backend's claims, once without any, twice with types that the device holds as others) and the
// CPU backend's launch list, for the instruction set of WEFT_ISA.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/cpu_backend.h"
#include "src/compiler/cost.h"
#include "src/ir/text.h"
#include "src/ops/registry.h"
#include "src/ops/sample.h"
#include "src/passes/pipeline.h"
#include "tests/support/body_programs.h"
#include "tests/support/control_programs.h"
#include "tests/support/cpu_under_test.h"
#include "tests/support/op_programs.h"
#include "tests/support/random_program.h"

namespace weft {
namespace {

class Dump {
 public:
  Dump(std::ostream& out, cpu::CpuBackend& backend) : out_(out), backend_(backend) {}

  void Add(std::string_view name, const ir::Module& module) {
    ++programs_;
    out_ << "=== " << name << "\n";
    const absl::StatusOr<compiler::Cost> cost = compiler::CostOf(module.main());
    out_ << (cost.ok() ? absl::StrCat("cost ", cost->flops, " ", cost->transcendentals) : cost.status().ToString()) << "\n";
    const auto claims = [this](const ir::Node& node) { return backend_.Claims(node); };
    const absl::StatusOr<ir::Module> claimed = passes::RunPipeline(module, {.claims = claims});
    Write(claimed);
    Write(passes::RunPipeline(module, {}));
    Write(passes::RunPipeline(module, {.held = {.f32 = DType::kBF16}, .claims = claims}));
    Write(passes::RunPipeline(
        module, {.held = {.f64 = DType::kF32, .i64 = DType::kI32, .u64 = DType::kU32}, .claims = claims}));
    if (!claimed.ok()) return;
    const absl::StatusOr<std::string> launches = backend_.CodeText(*claimed, {}, CodeForm::kLoops);
    out_ << (launches.ok() ? *launches : launches.status().ToString()) << "\n";
  }
  int programs() const { return programs_; }

 private:
  void Write(const absl::StatusOr<ir::Module>& module) {
    out_ << (module.ok() ? ir::Print(*module) : module.status().ToString()) << "\n";
  }

  std::ostream& out_;
  cpu::CpuBackend& backend_;
  int programs_ = 0;
};

constexpr DType kTypes[] = {
    DType::kF32,      DType::kF64,         DType::kBF16,          DType::kF16,       DType::kI8,
    DType::kI16,      DType::kI32,         DType::kI64,           DType::kU8,        DType::kU16,
    DType::kU32,      DType::kU64,         DType::kBool,          DType::kC64,       DType::kC128,
    DType::kF8E5M2,   DType::kF8E4M3FN,    DType::kF8E4M3B11FNUZ, DType::kF8E8M0FNU, DType::kI4,
    DType::kU4,       DType::kI2,          DType::kU2,
};

void AddOperations(Dump& dump) {
  for (const ir::OpDef* op : ops::AllOps()) {
    for (const DType dtype : kTypes) {
      for (size_t i = 0; i < op->samples.size(); ++i) {
        const std::string name = absl::StrCat(op->c_name, " #", i, " ", NameOf(dtype));
        const auto program = test::MakeOpProgram(*op, op->samples[i], dtype, name, IsFloat(dtype));
        if (program.ok()) dump.Add(name, program->module);
      }
    }
  }
}

absl::Status Run(std::ostream& out, uint64_t first, uint64_t last) {
  auto backend = test::NewCpuBackend({.threads = 4});
  if (!backend.ok()) return backend.status();
  Dump dump(out, **backend);
  AddOperations(dump);
  for (const auto& made : {test::ControlPrograms(), test::BodyPrograms()}) {
    if (!made.ok()) return made.status();
    for (const test::OpProgram& program : *made) dump.Add(program.name, program.module);
  }
  for (uint64_t seed = first; seed <= last; ++seed) {
    for (const double control : {0.0, 1.0}) {
      const test::RandomOptions options = {.calls = control > 0 ? 8 : 20, .control = control, .hollow = 0.2};
      const auto built = test::BuildProgram(test::MakeRandomProgram(seed, options));
      if (built.ok()) dump.Add(absl::StrCat("seed ", seed, " control ", control), {{built->function}});
    }
  }
  std::printf("%d programs\n", dump.programs());
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: weft_dump_texts FILE [FIRST LAST]\n");
    return 2;
  }
  std::ofstream out(argv[1]);
  const absl::Status status = weft::Run(out, argc == 4 ? std::strtoull(argv[2], nullptr, 10) : 1,
                                        argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 300);
  out.close();
  if (!status.ok() || !out) {
    std::cerr << (status.ok() ? "the file cannot be written" : status.ToString()) << "\n";
    return 1;
  }
  return 0;
}
