// Runs every operation's samples, with their gradients, here and on a PJRT plugin, for oracle_test.py to compare.
//
//   dump_programs FOLDER PLUGIN [EVERY [FIRST]]
//
// Makes FOLDER/cases.json (one array; without its end where a plugin ended the process) and FOLDER/tensors.bin (raw bytes at the offsets that cases.json gives): inputs, our results
// and the plugin's, or what it said instead. Where composites of ours have a name in StableHLO, the plugin runs the program with
// those names as well; of programs of the narrow types (f8, i4, u4, i2, u2) the one that has them, where our own has bytes.
// FOLDER/<n>.mlir is the text. EVERY N: each N-th program alone, from the FIRST (0). PLUGIN -: texts and names alone, nothing runs. With WEFT_NARROW_PROGRAMS in the environment also programs of the narrow types, which not every plugin survives.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/backends/cpu/cpu_backend.h"
#include "src/backends/pjrt/pjrt_backend.h"
#include "src/backends/pjrt/program.h"
#include "src/compiler/lower.h"
#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"
#include "src/ops/sample.h"
#include "src/passes/pipeline.h"
#include "src/runtime/narrow.h"
#include "tests/support/body_programs.h"
#include "tests/support/control_programs.h"
#include "tests/support/cpu_under_test.h"
#include "tests/support/edges.h"
#include "tests/support/op_programs.h"
#include "tests/support/run_on_backend.h"
#include "tests/support/training_programs.h"

namespace weft {
namespace {

bool HasNarrow(const ir::Function& function) {
  const auto narrow = [](const ir::Value& value) { return value.type().is_tensor() && IsNarrow(value.dtype()); };
  return std::ranges::any_of(function.parameters(), narrow) || std::ranges::any_of(function.results(), narrow);
}

// The program between bytes, as devices have the narrow types: they become elements where it begins, and bytes where it ends.
absl::StatusOr<ir::Module> BetweenBytes(const ir::Module& module) {
  ir::Builder b;
  std::vector<ir::Value> parameters, elements, results;
  for (const ir::Value& parameter : module.main().parameters()) {
    const DType dtype = parameter.dtype();
    parameters.push_back(ops::Parameter(ir::Type::Tensor(StorageOf(dtype), parameter.dims())));
    const ir::OpDef& op = IsFloat(dtype) ? ops::kOp_bitcast_convert : ops::kOp_convert;
    elements.push_back(IsNarrow(dtype) ? ops::Call(b, op, {parameters.back()}, {dtype}) : parameters.back());
  }
  for (const ir::Value& result : ir::Inline(module.main(), elements)) {
    const DType dtype = result.dtype();
    const ir::OpDef& op = IsFloat(dtype) ? ops::kOp_bitcast_convert : ops::kOp_convert;
    results.push_back(IsNarrow(dtype) ? ops::Call(b, op, {result}, {StorageOf(dtype)}) : result);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  ir::Module made;
  made.functions.push_back(ir::Function::Create("main", std::move(parameters), std::move(results)));
  return made;
}

// f8 as the numbers they are, for a judge that does not know them.
std::vector<HostTensor> Numbers(std::vector<HostTensor> tensors, std::span<const ir::Value> results) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const DType dtype = results[i].dtype();
    if (!IsNarrow(dtype) || !IsFloat(dtype)) continue;
    HostTensor codes(dtype, tensors[i].dims()), numbers(DType::kF32, tensors[i].dims());
    std::ranges::copy(tensors[i].bytes(), codes.mutable_bytes().begin());
    for (int64_t k = 0; k < codes.count(); ++k) numbers.SetDouble(k, codes.GetDouble(k));
    tensors[i] = std::move(numbers);
  }
  return tensors;
}

class Dump {
 public:
  // Without backends: texts and names alone.
  Dump(std::string folder, Backend* backend, Backend* plugin)
      : folder_(std::move(folder)), backend_(backend), plugin_(plugin), tensors_(folder_ + "/tensors.bin", std::ios::binary), cases_(folder_ + "/cases.json") {
    cases_ << "[" << std::flush;
  }

  absl::Status Add(const test::OpProgram& program);
  // A program that needs the host between two programs, which the plugin says.
  void AddOnHost(const test::OpProgram& program, std::string_view said) {
    AddCase(absl::StrCat("{\"name\": \"", program.name, "\", \"op\": \"", program.group, "\", \"found\": \"", said, "\"}"));
  }
  bool Finish();

 private:
  std::string Tensor(const HostTensor& tensor);
  std::string Tensors(std::span<const HostTensor> tensors);
  void AddCase(std::string_view text);
  // A member of the case's object: what the plugin makes of the module, which is one of the program's.
  std::string Found(std::string_view member, const ir::Module& module, const test::OpProgram& program);

  const std::string folder_;
  Backend* const backend_;
  Backend* const plugin_;
  std::ofstream tensors_;
  int64_t offset_ = 0;
  std::ofstream cases_;
  int64_t count_ = 0;
};

std::string Dump::Tensor(const HostTensor& tensor) {
  const auto bytes = tensor.bytes();
  tensors_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  std::string text = absl::StrCat("{\"dtype\": \"", NameOf(tensor.dtype()), "\", \"dims\": [",
                                  absl::StrJoin(tensor.dims(), ", "), "], \"offset\": ", offset_, "}");
  offset_ += static_cast<int64_t>(bytes.size());
  return text;
}

std::string Dump::Tensors(std::span<const HostTensor> tensors) {
  std::vector<std::string> all;
  for (const HostTensor& tensor : tensors) all.push_back(Tensor(tensor));
  return absl::StrCat("[", absl::StrJoin(all, ", "), "]");
}

std::string Dump::Found(std::string_view member, const ir::Module& module, const test::OpProgram& program) {
  const auto found = test::RunLowered(*plugin_, module, program.inputs);
  if (found.ok()) {
    return absl::StrCat("\"", member, "\": ", Tensors(Numbers(*found, program.module.main().results())), ", ");
  }
  std::string text;
  for (const char c : found.status().message()) {
    if (c == '"' || c == '\\') text += '\\';
    text += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return absl::StrCat("\"", member, "\": \"", text, "\", ");
}

bool HasNamedComposite(const ir::Module& module) {
  return std::ranges::any_of(module.main().nodes(), [](const ir::Node* node) {
    return node->op().kind == ir::Kind::kComposite && node->op().stablehlo != nullptr && node->regions().empty();
  });
}

absl::Status Dump::Add(const test::OpProgram& program) {
  passes::PipelineOptions options{.verify_between = true};
  options.claims = pjrt::StaysWhole;
  WEFT_ASSIGN_OR_RETURN(ir::Module lowered, passes::RunPipeline(program.module, options));
  pjrt::Program described;
  WEFT_ASSIGN_OR_RETURN(const std::string text, pjrt::ToText(lowered, &described));
  std::ofstream(absl::StrCat(folder_, "/", count_, ".mlir")) << text;
  if (plugin_ == nullptr) {
    AddCase(absl::StrCat("{\"name\": \"", program.name, "\", \"op\": \"", program.group, "\"}"));
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(auto expected, test::RunOnBackend(*backend_, program.module, program.inputs));
  const bool narrow = HasNarrow(program.module.main()), named = narrow || HasNamedComposite(program.module);
  std::string found = Found("found", lowered, program);
  if (named) {
    ir::Module whole = program.module;
    if (narrow) {
      WEFT_ASSIGN_OR_RETURN(whole, BetweenBytes(program.module));
    }
    WEFT_ASSIGN_OR_RETURN(const ir::Module exported, compiler::StableHloModule(whole));
    found += Found("found_named", exported, program);
  }
  const ir::Tolerance& t = program.tolerance;
  AddCase(absl::StrCat(
      "{\"name\": \"", program.name, "\", \"op\": \"", program.group, "\", \"named\": ", named ? "true" : "false", ", \"narrow\": ", narrow ? "true" : "false", ", \"forward\": ", program.forward_results,
      ", \"tolerance\": {\"f32\": ", t.f32, ", \"f64\": ", t.f64, ", \"bf16\": ", t.bf16, ", \"f16\": ", t.f16,
      ", \"absolute\": ", t.absolute, "},\n ", found, "\"inputs\": ", Tensors(program.inputs),
      ",\n \"results\": ", Tensors(Numbers(std::move(expected), program.module.main().results())), "}"));
  return absl::OkStatus();
}

void Dump::AddCase(std::string_view text) {
  tensors_.flush();
  cases_ << (count_++ == 0 ? "" : ",\n") << text << std::flush;
}

bool Dump::Finish() {
  cases_ << "]\n" << std::flush;
  tensors_.flush();
  return cases_.good() && tensors_.good();
}

// Forward only: slopes at infinities are as good as any.
absl::StatusOr<std::vector<test::OpProgram>> EdgePrograms() {
  std::vector<test::OpProgram> programs;
  for (const ir::OpDef* op : ops::AllOps()) {
    const ir::Sample* sample = test::EdgeSample(*op);
    if (sample == nullptr) continue;
    for (DType dtype : ops::SampleTypes(*op, *sample)) {
      WEFT_ASSIGN_OR_RETURN(auto program, test::MakeOpProgram(*op, *sample, dtype, absl::StrCat(op->c_name, " edges ", NameOf(dtype)),
                                                              /*gradients=*/false));
      test::FillWithEdges(program.inputs);
      // XLA:CPU takes denormals for 0 on the way in: the smallest normal number instead.
      const int smallest = dtype == DType::kF64 ? -1022 : dtype == DType::kF16 ? -14 : -126;
      for (HostTensor& x : program.inputs) {
        for (int64_t i = 0; IsFloat(dtype) && i < x.count(); ++i) {
          if (x.GetDouble(i) > 0 && x.GetDouble(i) < std::ldexp(1, smallest)) x.SetDouble(i, std::ldexp(1, smallest));
        }
      }
      programs.push_back(std::move(program));
    }
  }
  return programs;
}

bool Takes(const ir::OpDef& op, const ir::Sample& sample, DType dtype) {
  const auto parsed = ops::ParseSample(op, sample, dtype);
  if (!parsed.ok()) return false;
  const auto generic = std::ranges::find(parsed->operands, true, &ops::SampleOperand::generic);
  if (generic == parsed->operands.end()) return false;
  const auto place = static_cast<size_t>(generic - parsed->operands.begin());
  return ir::Contains(op.operands[std::min(place, op.operands.size() - 1)].types, dtype);
}

// FNV-1a: the same for a name whatever other operations there are.
uint32_t NumberOf(std::string_view name) {
  uint32_t number = 2166136261;
  for (const char c : name) number = (number ^ static_cast<uint8_t>(c)) * 16777619;
  return number >> 8;
}

// Each operation's first sample in one of the 8-bit floats and one of the integers below a byte; its name says which.
absl::StatusOr<std::vector<test::OpProgram>> NarrowPrograms() {
  constexpr DType kFloats[] = {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E4M3, DType::kF8E3M4, DType::kF8E4M3B11FNUZ,
                               DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ, DType::kF8E8M0FNU};
  constexpr DType kIntegers[] = {DType::kI4, DType::kU4, DType::kI2, DType::kU2};
  std::vector<test::OpProgram> programs;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (op->samples.empty()) continue;
    const ir::Sample& sample = op->samples[0];
    const uint32_t turn = NumberOf(op->c_name);
    for (const DType dtype : {kFloats[turn % std::size(kFloats)], kIntegers[turn % std::size(kIntegers)]}) {
      if (!Takes(*op, sample, dtype)) continue;
      WEFT_ASSIGN_OR_RETURN(auto program, test::MakeOpProgram(*op, sample, dtype, absl::StrCat(op->c_name, " narrow ", NameOf(dtype))));
      if (IsFloat(dtype)) {  // a step up or down, where the f32 in front of the rounding may differ at all
        const bool exact = program.tolerance.f32 == 0;
        const int fraction = dtype == DType::kF8E8M0FNU ? 0 : SmallFloatOf(dtype).fraction;
        if (dtype == DType::kF8E8M0FNU) {  // which are NaN below zero, and a NaN is what XLA loses
          for (HostTensor& x : program.inputs) {
            for (int64_t i = 0; x.dtype() == dtype && i < x.count(); ++i) x.SetDouble(i, std::ldexp(1, static_cast<int>(i % 5) - 3));
          }
        }
        program.tolerance = {.f32 = exact ? 0 : std::ldexp(1.0, -fraction), .absolute = exact ? 0 : 0x1p-6};
      }
      programs.push_back(std::move(program));
    }
  }
  return programs;
}

absl::StatusOr<std::vector<test::OpProgram>> AllPrograms() {
  WEFT_ASSIGN_OR_RETURN(auto programs, test::OpPrograms(/*all_types=*/true));
  WEFT_ASSIGN_OR_RETURN(auto edges, EdgePrograms());
  std::ranges::move(edges, std::back_inserter(programs));
  WEFT_ASSIGN_OR_RETURN(auto control, test::ControlPrograms());
  std::ranges::move(control, std::back_inserter(programs));
  WEFT_ASSIGN_OR_RETURN(auto bodies, test::BodyPrograms());
  for (test::OpProgram& program : bodies) {  // XLA takes no captures in these bodies
    if (!program.name.ends_with("captured")) programs.push_back(std::move(program));
  }
  WEFT_ASSIGN_OR_RETURN(auto mlp, test::MlpStep(64));
  programs.push_back(std::move(mlp));
  // Small enough for the reference, large enough that every convolution has several rows of tiles.
  WEFT_ASSIGN_OR_RETURN(auto cnn, test::CnnStep(4));
  programs.push_back(std::move(cnn));
  if (std::getenv("WEFT_NARROW_PROGRAMS") != nullptr) {
    WEFT_ASSIGN_OR_RETURN(auto narrow, NarrowPrograms());
    std::ranges::move(narrow, std::back_inserter(programs));
  }
  return programs;
}

int Run(const char* folder, std::string_view plugin, size_t every, size_t first) {
  std::unique_ptr<Backend> here, there;
  if (plugin != "-") {
    auto backend = test::NewCpuBackend();
    const char* const options = std::getenv("WEFT_PLUGIN_OPTIONS");
    auto outside = pjrt::NewPjrtBackend(
        {.plugin = std::string(plugin), .platform = "pjrt", .plugin_options = options == nullptr ? "" : options});
    for (const absl::Status& status : {backend.status(), outside.status()}) {
      if (status.ok()) continue;
      std::cerr << status.message() << "\n";
      return 1;
    }
    here = *std::move(backend);
    there = *std::move(outside);
  }
  auto programs = AllPrograms();
  if (!programs.ok()) {
    std::cerr << programs.status().message() << "\n";
    return 1;
  }
  Dump dump(folder, here.get(), there.get());
  int failures = 0;
  for (size_t i = first; i < programs->size(); i += every) {
    const test::OpProgram& program = (*programs)[i];
    if (absl::Status status = dump.Add(program); !status.ok()) {
      constexpr std::string_view kOnHost = "matrix decompositions are no part of StableHLO";
      if (absl::StrContains(status.message(), kOnHost)) {
        dump.AddOnHost(program, kOnHost);
        continue;
      }
      std::cerr << program.name << ": " << status.message() << "\n";
      ++failures;
    }
  }
  if (!dump.Finish()) {
    std::cerr << "cannot write to " << folder << "\n";
    return 1;
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  size_t every = 1, first = 0;
  if (argc < 3 || argc > 5 || (argc > 3 && (!absl::SimpleAtoi(argv[3], &every) || every == 0)) ||
      (argc > 4 && !absl::SimpleAtoi(argv[4], &first))) {
    std::cerr << "usage: dump_programs FOLDER PLUGIN [EVERY [FIRST]]\n";
    return 2;
  }
  return weft::Run(argv[1], argv[2], every, first);
}
