// Functions of the fake plugin about programs: compiled, kept as bytes, loaded, asked for figures.
#pragma once

#include "src/runtime/status.h"
#include "tests/pjrt/fake/more_api.h"

namespace weft::pjrt::fake {

absl::Status ClientCompile(api::ClientCompile& args);
absl::Status Compile(api::Compile& args);
absl::Status ExecutableSerialize(api::ExecutableSerialize& args);
absl::Status DeserializeAndLoad(api::DeserializeAndLoad& args);
absl::Status ExecutableDestroy(api::OfExecutable& args);
absl::Status LoadedExecutableDestroy(api::OfLoadedExecutable& args);
absl::Status LoadedExecutableGetExecutable(api::GetExecutable& args);
absl::Status LoadedExecutableAddressableDevices(api::LoadedDevices& args);
absl::Status ExecutableName(api::ExecutableText& args);
absl::Status ExecutableOne(api::ExecutableNumber& args);
absl::Status ExecutableNumOutputs(api::ExecutableNumber& args);
absl::Status ExecutableSizeOfGeneratedCode(api::ExecutableNumber& args);
absl::Status ExecutableOutputElementTypes(api::OutputElementTypes& args);
absl::Status ExecutableOutputDimensions(api::OutputDimensions& args);
absl::Status ExecutableGetCompiledMemoryStats(api::CompiledMemoryStats& args);
absl::Status ExecutableGetCostAnalysis(api::CostAnalysis& args);

}  // namespace weft::pjrt::fake
