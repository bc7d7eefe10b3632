// Runs functions on the CPU backend and on the reference interpreter.
#pragma once

#include <gtest/gtest.h>

#include "src/backends/cpu/cpu_backend.h"
#include "src/backends/cpu/lower/lower_region.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ir/function.h"
#include "src/passes/fuse.h"
#include "src/passes/pipeline.h"
#include "tests/ops/op_matrix.h"
#include "tests/support/cpu_under_test.h"

namespace weft::cpu {

// One backend a test program: threads are slow to start.
inline CpuBackend& TestBackend() {
  static CpuBackend* backend = test::NewCpuBackend({.threads = 2})->release();
  return *backend;
}

inline std::vector<std::string> TestIsas() {
  std::vector<std::string> isas;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (IsSupported(isa)) isas.emplace_back(NameOf(isa));
  }
  return isas;
}

inline absl::StatusOr<ir::Module> Prepared(CpuBackend& backend, Ref<const ir::Function> function) {
  ir::Module module;
  module.functions.push_back(std::move(function));
  passes::PipelineOptions options;
  options.claims = [&backend](const ir::Node& node) { return backend.Claims(node); };
  return passes::RunPipeline(std::move(module), options);
}

inline absl::StatusOr<std::vector<HostTensor>> RunExecutable(CpuBackend& backend, Executable& executable,
                                                             std::span<const HostTensor> arguments) {
  std::vector<Ref<Buffer>> buffers;
  for (const HostTensor& argument : arguments) {
    WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, backend.ToDevice(backend.devices()[0], argument.dtype(), argument.dims(), argument.bytes()));
    buffers.push_back(std::move(buffer));
  }
  DeviceArguments device;
  device.buffers = buffers;
  WEFT_ASSIGN_OR_RETURN(std::vector<DeviceResults> results, executable.Execute({&device, 1}));
  WEFT_RETURN_IF_ERROR(results[0].done->Wait());
  std::vector<HostTensor> values;
  for (const Ref<Buffer>& buffer : results[0].buffers) {
    HostTensor value(buffer->dtype(), buffer->dims());
    WEFT_RETURN_IF_ERROR(backend.FromDevice(*buffer, 0, value.mutable_bytes()));
    values.push_back(std::move(value));
  }
  return values;
}

inline absl::StatusOr<std::vector<HostTensor>> RunOnCpu(CpuBackend& backend, Ref<const ir::Function> function,
                                                        std::span<const HostTensor> arguments, std::string_view isa = "") {
  WEFT_ASSIGN_OR_RETURN(const ir::Module module, Prepared(backend, std::move(function)));
  CompileOptions options;
  options.isa = std::string(isa);
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, backend.Compile(module, options));
  return RunExecutable(backend, *executable, arguments);
}

// The launch list of the function, as the portable path gets it.
inline absl::StatusOr<LoweredModule> FusedAndLowered(Ref<const ir::Function> function) {
  WEFT_ASSIGN_OR_RETURN(ir::Module module, Prepared(TestBackend(), std::move(function)));
  passes::FuseOptions options;
  options.can_fuse = IsLoopNode;
  options.ends_sums = EndsSums;
  WEFT_ASSIGN_OR_RETURN(module.functions[0], passes::Fuse(module.main(), options));
  WEFT_ASSIGN_OR_RETURN(const CpuTarget target, TargetFor(Isa::kPortable));
  return LowerModule(module, target);
}

}  // namespace weft::cpu
